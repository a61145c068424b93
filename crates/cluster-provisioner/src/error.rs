//! What can go wrong in a call.

use crate::openstack;
use runtime::Class;

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// One to a cluster.
    #[error("cannot {verb} {kind} {object} in the {cluster} cluster")]
    Cluster {
        verb: &'static str,
        kind: String,
        object: String,
        /// `management` or `workload`.
        cluster: &'static str,
        source: Box<kube::Error>,
    },
    /// One to the cloud.
    #[error("the cloud does not do what it is asked")]
    Cloud { source: Box<openstack::Error> },
}

impl From<openstack::Error> for Error {
    fn from(source: openstack::Error) -> Self {
        Self::Cloud { source: Box::new(source) }
    }
}

impl Error {
    /// What to do about it.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Cluster { source, .. } => runtime::class(source),
            Self::Cloud { source } => source.class(),
        }
    }

    /// What was said when it will be said again until a person does something.
    pub(crate) fn refusal(&self) -> Option<String> {
        if !matches!(self.class(), Class::Invalid | Class::Forbidden) {
            return None;
        }
        match self {
            Self::Cluster { source, .. } => match &**source {
                kube::Error::Api(status) => Some(format!("{self}: {}", status.message)),
                _other => None,
            },
            Self::Cloud { source } => Some(source.to_string()),
        }
    }
}
