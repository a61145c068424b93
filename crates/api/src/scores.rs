//! TargetScore: what somebody thinks of a target, such as what a pod costs there.
//!
//! | kind | written by | read by |
//! |---|---|---|
//! | [`TargetScore`] (spec) | any controller that may | proxy-scheduler, command line |
//!
//! A score has no status: whether it counts follows from its age and from how much pods let it count.
#![expect(unreachable_pub, reason = "the derive of validated schemas makes a local copy of each struct")]

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Group and version of the kind.
pub const GROUP_VERSION: &str = "multicluster-scheduler.io/v1alpha1";

/// The kind of a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TargetKind {
    /// A Target, in a namespace.
    Target,
    /// A ClusterTarget.
    #[default]
    ClusterTarget,
}

/// A Target or ClusterTarget by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = kube::core::Rule::new(
    "(self.kind == 'Target') == (has(self.namespace) && self.namespace != '')"
).message("targetRef: give a `namespace` for kind `Target`, and none for `ClusterTarget`"))]
pub struct TargetReference {
    /// `Target` or `ClusterTarget`.
    pub kind: TargetKind,
    /// Namespace of a Target.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What one controller thinks of one target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "multicluster-scheduler.io",
    version = "v1alpha1",
    kind = "TargetScore",
    doc = "How good a target is in one respect, such as what a pod costs there. Any controller may publish some.",
    plural = "targetscores",
    shortname = "tscore",
    derive = "PartialEq",
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.targetRef.name"),
    printcolumn(name = "Score", type_ = "string", json_path = ".spec.score"),
    printcolumn(name = "Value", type_ = "integer", json_path = ".spec.value"),
    printcolumn(name = "Observed", type_ = "date", json_path = ".spec.observedAt"),
    printcolumn(name = "MaxAge", type_ = "string", json_path = ".spec.maxAge"),
    validation = kube::core::Rule::new("has(self.spec)").message("spec: say what is scored, and how")
)]
pub struct TargetScoreSpec {
    /// The target that is judged.
    pub target_ref: TargetReference,
    /// In which respect, such as `cost`, `latency` or `carbon`; by this name people say how much it counts.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub score: String,
    /// 0 (worst) … 100 (best). Only differences between targets count.
    #[schemars(range(min = 0, max = 100))]
    pub value: i32,
    /// When that was found out.
    #[schemars(extend("format" = "date-time"))]
    pub observed_at: String,
    /// How long it counts after that, like `90s` or `10m`, at most a week. Whoever publishes it goes on doing so
    /// more often.
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]+(\.[0-9]+)?(s|m|h))+$"))]
    #[x_kube(validation = kube::core::Rule::new(
        "duration(self) >= duration('1s') && duration(self) <= duration('168h')"
    ).message("maxAge: write a duration from 1s to 168h"))]
    pub max_age: String,
}

impl TargetScore {
    /// When it was found out; `None` where nobody can say, so that it never counts.
    #[must_use]
    pub fn observed_at(&self) -> Option<Timestamp> {
        self.spec.observed_at.parse().ok()
    }

    /// How much longer it counts. What was found out in the future was found out now: no clock is trusted to make
    /// a score count for longer than its age allows.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> Duration {
        let limit = crate::preference::parse_deadline(&self.spec.max_age).unwrap_or_default();
        let Some(observed) = self.observed_at() else { return Duration::ZERO };
        let age = now.duration_since(observed).max(SignedDuration::ZERO);
        limit.saturating_sub(Duration::try_from(age).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::{TargetScore, TargetScoreSpec};
    use std::time::Duration;

    #[track_caller]
    fn check(observed_at: &str, max_age: &str, left: u64) {
        let (observed_at, max_age) = (observed_at.to_owned(), max_age.to_owned());
        let score =
            TargetScore::new("a", TargetScoreSpec { observed_at, max_age, ..TargetScoreSpec::default() });
        assert_eq!(score.left("2026-01-01T00:10:00Z".parse().unwrap()), Duration::from_secs(left));
    }

    #[test]
    fn a_score_counts_until_it_is_too_old() {
        check("2026-01-01T00:10:00Z", "5m", 300);
        check("2026-01-01T00:06:00Z", "5m", 60);
        check("2026-01-01T00:05:00Z", "5m", 0);
        check("2025-01-01T00:05:00Z", "1h30m", 0);
    }

    #[test]
    fn a_clock_that_is_ahead_does_not_make_a_score_count_for_longer() {
        check("2027-01-01T00:00:00Z", "5m", 300);
    }

    #[test]
    fn what_cannot_be_read_does_not_count() {
        check("yesterday", "5m", 0);
        check("2026-01-01T00:10:00Z", "soon", 0);
    }
}
