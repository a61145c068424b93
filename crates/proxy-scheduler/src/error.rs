//! What can go wrong.

use runtime::Class;

/// A call or a start that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An answer of an API server, or none.
    #[error("cannot {verb} {object} in cluster {cluster}")]
    Call { verb: &'static str, object: String, cluster: String, source: Box<kube::Error> },
    /// What stands under our name is not what we would put there.
    #[error("PodChaperon {object} in cluster {cluster} {why}")]
    Foreign { object: String, cluster: String, why: &'static str },
    /// The proxy pod does not make a delegate.
    #[error("cannot make a delegate of pod {object}")]
    Delegate { object: String, source: Box<api::delegate::Error> },
    /// The target went away, or may not be used for this pod.
    #[error("cluster {cluster} cannot be used")]
    Unusable { cluster: String },
    /// The UID of this cluster cannot be read.
    #[error("cannot read namespace kube-system, whose UID is this cluster's")]
    Identity { source: Box<kube::Error> },
    /// The UID of this cluster is absent.
    #[error("namespace kube-system has no UID")]
    NoIdentity,
    /// A metric cannot be registered.
    #[error("cannot register metrics")]
    Metrics { source: Box<prometheus::Error> },
}

impl Error {
    /// What the failure means for what is done next.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Error::Call { source, .. } | Error::Identity { source } => runtime::class(source),
            Error::Foreign { .. } => Class::Conflict,
            Error::Delegate { .. } => Class::Invalid,
            Error::Unusable { .. } => Class::Unreachable,
            Error::NoIdentity | Error::Metrics { .. } => Class::Bug,
        }
    }

    /// For the owner of the pod: what an API server said, else what we know.
    #[must_use]
    pub fn for_user(&self) -> String {
        match self {
            Error::Call { source, .. } if let kube::Error::Api(status) = &**source => status.message.clone(),
            Error::Call { .. } | Error::Identity { .. } if self.class() == Class::Unreachable => {
                "the target does not answer".to_owned()
            }
            other => runtime::Chain(other).to_string(),
        }
    }
}
