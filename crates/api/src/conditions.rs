//! Condition types and reasons, and how a condition is merged into a status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Types of the conditions of Targets, ClusterTargets, Sources and ClusterSources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The object is valid and nothing else claims the same cluster.
    Accepted,
    /// The target answers.
    Reachable,
    /// All is in place.
    Ready,
}

/// Why a condition has its status. Users and alerts match on these words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Everything is as it should be.
    Ok,
    /// The kubeconfig Secret does not exist.
    SecretNotFound,
    /// The kubeconfig Secret lacks the key, or its content is no kubeconfig.
    KubeconfigInvalid,
    /// The kubeconfig asks for what is not allowed in a tenant's Secret: files, commands, no TLS check.
    KubeconfigForbidden,
    /// The spec is invalid in a way that admission could not see.
    SpecInvalid,
    /// Another, older Target stands for the same cluster.
    SameCluster,
    /// The target does not speak our protocol.
    OldProtocol,
    /// The identity of the target could not be read yet.
    IdentityUnknown,
    /// Another cluster answers than the one that the Target was accepted for.
    IdentityChanged,
    /// The target does not answer.
    Unreachable,
    /// The target refuses our identity or what we must do there.
    Forbidden,
    /// An object of the name that we need exists and is not ours.
    NameTaken,
    /// A namespace that the spec names does not exist.
    NamespaceNotFound,
    /// The local API server did not take what we wrote.
    Failed,
    /// The target answers, but its watches show nothing new.
    WatchStalled,
    /// Somebody has fenced the target.
    Fenced,
    /// The Target is being deleted.
    Deleting,
    /// Not looked at yet.
    Pending,
}

impl Kind {
    /// The word in `type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Accepted => "Accepted",
            Kind::Reachable => "Reachable",
            Kind::Ready => "Ready",
        }
    }
}

impl Reason {
    /// The word in `reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Ok => "Ok",
            Reason::SecretNotFound => "SecretNotFound",
            Reason::KubeconfigInvalid => "KubeconfigInvalid",
            Reason::KubeconfigForbidden => "KubeconfigForbidden",
            Reason::SpecInvalid => "SpecInvalid",
            Reason::SameCluster => "SameCluster",
            Reason::OldProtocol => "OldProtocol",
            Reason::IdentityUnknown => "IdentityUnknown",
            Reason::IdentityChanged => "IdentityChanged",
            Reason::Unreachable => "Unreachable",
            Reason::Forbidden => "Forbidden",
            Reason::NameTaken => "NameTaken",
            Reason::NamespaceNotFound => "NamespaceNotFound",
            Reason::Failed => "Failed",
            Reason::WatchStalled => "WatchStalled",
            Reason::Fenced => "Fenced",
            Reason::Deleting => "Deleting",
            Reason::Pending => "Pending",
        }
    }
}

/// Whether a condition is there and `True`.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: Kind) -> bool {
    conditions.iter().any(|condition| condition.type_ == kind.as_str() && condition.status == "True")
}

/// What a condition is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Its type.
    pub kind: Kind,
    /// `True` (Some(true)), `False` or `Unknown` (None).
    pub status: Option<bool>,
    /// Its reason.
    pub reason: Reason,
    /// What a user can do about it.
    pub message: String,
}

/// Puts verdicts into a list of conditions. The transition time of a condition whose status stays is kept.
pub fn merge(conditions: &mut Vec<Condition>, verdicts: &[Verdict], generation: Option<i64>, now: &Time) {
    for verdict in verdicts {
        let status = match verdict.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let condition = Condition {
            type_: verdict.kind.as_str().to_owned(),
            status: status.to_owned(),
            reason: verdict.reason.as_str().to_owned(),
            message: verdict.message.clone(),
            observed_generation: generation,
            last_transition_time: now.clone(),
        };
        put(conditions, condition);
    }
}

/// Puts a condition into a list. While its status stays, so does its transition time.
pub fn put(conditions: &mut Vec<Condition>, mut condition: Condition) {
    match conditions.iter_mut().find(|old| old.type_ == condition.type_) {
        Some(old) => {
            if old.status == condition.status {
                condition.last_transition_time = old.last_transition_time.clone();
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Reason, Verdict, is_true, merge};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn verdict(status: bool) -> Verdict {
        Verdict { kind: Kind::Reachable, status: Some(status), reason: Reason::Ok, message: String::new() }
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        merge(&mut conditions, &[verdict(true)], Some(1), &at(1));
        merge(&mut conditions, &[verdict(true)], Some(2), &at(2));
        assert_eq!(conditions[0].last_transition_time, at(1));
        assert_eq!(conditions[0].observed_generation, Some(2));
        assert!(is_true(&conditions, Kind::Reachable));
        merge(&mut conditions, &[verdict(false)], Some(2), &at(3));
        assert_eq!(conditions[0].last_transition_time, at(3));
        assert_eq!(conditions.len(), 1);
        assert!(!is_true(&conditions, Kind::Reachable));
    }
}
