//! What becomes of pods whose target does not answer: policies of Targets, and what pods say instead.

use crate::{Failover, Fence, Pod, keys};
use std::time::Duration;

/// How long a target may be silent before pods are replaced, when nobody says otherwise.
pub const GRACE: Duration = Duration::from_secs(5 * 60);

/// What is in force for one pod, or the default of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// What becomes of it.
    pub failover: Failover,
    /// When.
    pub grace: Duration,
    /// On what proof.
    pub fence: Fence,
}

impl Default for Policy {
    fn default() -> Self {
        Self { failover: Failover::Stay, grace: GRACE, fence: Fence::Confirmed }
    }
}

/// What a pod says of its own; what cannot be read is not said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wish {
    /// What becomes of it.
    pub failover: Option<Failover>,
    /// When.
    pub grace: Option<Duration>,
    /// On what proof.
    pub fence: Option<Fence>,
}

impl Wish {
    /// What the annotations of a pod say.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self {
            failover: pod.annotation(keys::FAILOVER).and_then(|text| parse_failover(text).ok()),
            grace: pod.annotation(keys::FAILOVER_GRACE_PERIOD).and_then(|text| parse_grace(text).ok()),
            fence: pod.annotation(keys::FENCE).and_then(|text| parse_fence(text).ok()),
        }
    }

    /// The pod's own word over the default of its target.
    #[must_use]
    pub fn over(self, default: Policy) -> Policy {
        Policy {
            failover: self.failover.unwrap_or(default.failover),
            grace: self.grace.unwrap_or(default.grace),
            fence: self.fence.unwrap_or(default.fence),
        }
    }
}

impl Policy {
    /// Whether a pod may be replaced when a Lease has run out: it runs once at a time, and somebody would replace it.
    #[must_use]
    pub fn is_leased(&self, pod: &Pod) -> bool {
        self.failover == Failover::MoveOnce && self.fence == Fence::Lease && pod.controller().is_some()
    }
}

impl Failover {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Failover::Stay => "Stay",
            Failover::Move => "Move",
            Failover::MoveOnce => "MoveOnce",
        }
    }
}

impl Fence {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Fence::Confirmed => "Confirmed",
            Fence::Lease => "Lease",
        }
    }
}

/// Reads a policy.
///
/// # Errors
///
/// It is none; the sentence says which ones there are.
pub fn parse_failover(text: &str) -> Result<Failover, String> {
    let all = [Failover::Stay, Failover::Move, Failover::MoveOnce];
    let found = all.into_iter().find(|policy| policy.as_str() == text);
    found.ok_or_else(|| format!("{text:?} must be Stay, Move or MoveOnce"))
}

/// Reads what counts as proof.
///
/// # Errors
///
/// It is nothing that is known; the sentence says what is.
pub fn parse_fence(text: &str) -> Result<Fence, String> {
    let found = [Fence::Confirmed, Fence::Lease].into_iter().find(|fence| fence.as_str() == text);
    found.ok_or_else(|| format!("{text:?} must be Confirmed or Lease"))
}

/// Reads a grace period like `90s`, `5m` or `1h30m`.
///
/// # Errors
///
/// It is none, or shorter than a second; the sentence says how to write it.
pub fn parse_grace(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<kube::core::Duration>().ok().filter(|duration| !duration.is_negative());
    let duration = parsed.map(Duration::from).filter(|duration| *duration >= Duration::from_secs(1));
    duration.ok_or_else(|| format!("{text:?} is no duration of a second or more; write 90s, 5m or 1h30m"))
}

#[cfg(test)]
mod tests {
    use super::{GRACE, Policy, Wish, parse_failover, parse_fence, parse_grace};
    use crate::{Failover, Fence, Pod, keys};
    use serde_json::json;
    use std::time::Duration;

    fn pod(failover: &str, grace: &str) -> Pod {
        let annotations = json!({keys::FAILOVER: failover, keys::FAILOVER_GRACE_PERIOD: grace});
        serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
    }

    #[test]
    fn a_pod_says_more_than_its_target_and_its_target_more_than_nobody() {
        assert_eq!(
            Policy::default(),
            Policy { failover: Failover::Stay, grace: GRACE, fence: Fence::Confirmed }
        );
        let target =
            Policy { failover: Failover::MoveOnce, grace: Duration::from_secs(60), ..Policy::default() };
        assert_eq!(Wish::of(&Pod::default()).over(target), target);
        let own = Wish::of(&pod("Move", "10s")).over(target);
        assert_eq!((own.failover, own.grace), (Failover::Move, Duration::from_secs(10)));
    }

    #[test]
    fn what_cannot_be_read_is_not_said() {
        assert_eq!(Wish::of(&pod("move", "soon")), Wish::default());
        assert!(parse_failover("Sometimes").unwrap_err().contains("MoveOnce"));
        assert!(parse_fence("lease").unwrap_err().contains("Confirmed or Lease"));
        for wrong in ["", "5", "-5m", "0s", "10ms"] {
            assert!(parse_grace(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_grace("1h30m").unwrap(), Duration::from_secs(5400));
    }
}
