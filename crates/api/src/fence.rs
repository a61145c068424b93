//! The Lease by which a source shows a target that it is there: `fence: Lease`.
//!
//! One Lease for each source and target, in the target. The source renews it by a higher counter as long as it needs
//! it. A target that has not seen the counter change for [`Timing::expiry`] notes that the epoch is over, and stops
//! the delegates of that epoch. A source that could not renew it waits for [`Timing::wait`] after its last attempt
//! has ended, writes a higher epoch on its Target, and replaces the pods of the earlier one. Nobody reads the clock of
//! another machine.

use crate::keys;
use k8s_openapi::api::coordination::v1::Lease;
use std::time::Duration;

/// How long a target takes at most to begin with the end of its delegates, after the last renewal.
const DURATION: Duration = Duration::from_secs(90);
/// For kubelets and API servers to do what they are told after a grace period.
const MARGIN: Duration = Duration::from_secs(10);
/// The grace period of a pod that names none, in seconds.
pub const GRACE_SECONDS: u64 = 30;
/// Between two renewals.
pub const RENEWAL: Duration = Duration::from_secs(5);
/// How long one renewal may take.
pub const ATTEMPT: Duration = Duration::from_secs(5);

/// The times of one Lease; all follow from its duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// `spec.leaseDurationSeconds`.
    pub duration: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { duration: DURATION }
    }
}

impl Timing {
    /// What a Lease says, or the default.
    #[must_use]
    pub fn of(lease: &Lease) -> Self {
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        seconds.map_or_else(Self::default, |seconds| Self { duration: Duration::from_secs(seconds) })
    }

    /// How long a target that has seen the counter change lets delegates run.
    #[must_use]
    pub fn expiry(self) -> Duration {
        self.duration / 3
    }

    /// How long one that has just begun to look does.
    #[must_use]
    pub fn doubt(self) -> Duration {
        self.duration / 6
    }

    /// For how long altogether the target may be without leader in between.
    #[must_use]
    pub fn takeover(self) -> Duration {
        self.duration / 2
    }

    /// How long a source waits after its last attempt to renew, until what had this grace period does not run any
    /// more: 1 % more for clocks that do not run equally fast.
    #[must_use]
    pub fn wait(self, grace: Duration) -> Duration {
        let exact = self.duration + grace + MARGIN;
        exact + exact / 100
    }
}

/// Reads an epoch from an annotation.
#[must_use]
pub fn epoch(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// The epoch of a Lease.
#[must_use]
pub fn lease_epoch(lease: &Lease) -> u64 {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    transitions.and_then(|epoch| u64::try_from(epoch).ok()).unwrap_or_default()
}

/// The counter of a Lease.
#[must_use]
pub fn lease_counter(lease: &Lease) -> u64 {
    let annotations = lease.metadata.annotations.as_ref();
    epoch(annotations.and_then(|all| all.get(keys::FENCE_COUNTER)).map(String::as_str)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Timing, lease_counter, lease_epoch};
    use crate::keys;
    use k8s_openapi::api::coordination::v1::Lease;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_source_waits_longer_than_a_target_and_the_grace_period_take() {
        let timing = Timing::default();
        let grace = Duration::from_secs(30);
        assert!(timing.wait(grace) > timing.duration + grace);
        assert_eq!(timing.wait(Duration::from_secs(900)), Duration::from_secs(1010));
    }

    #[test]
    fn a_lease_says_its_epoch_its_counter_and_its_duration() {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"annotations": {keys::FENCE_COUNTER: "12"}},
            "spec": {"leaseTransitions": 3, "leaseDurationSeconds": 60}}))
        .unwrap();
        assert_eq!((lease_epoch(&lease), lease_counter(&lease)), (3, 12));
        assert_eq!(Timing::of(&lease).duration, Duration::from_secs(60));
        let empty = Lease::default();
        assert_eq!((lease_epoch(&empty), lease_counter(&empty)), (0, 0));
        assert_eq!(Timing::of(&empty), Timing::default());
    }
}
