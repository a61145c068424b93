//! What can go wrong in the shell.

use runtime::Class;

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {verb} {object}")]
    Call { verb: &'static str, object: String, source: kube::Error },
    #[error("the manifest of a pod in namespace {namespace} is none")]
    Manifest { namespace: String, source: serde_json::Error },
    #[error("cannot read the pod that admission returned in namespace {namespace}")]
    Returned { namespace: String, source: scheduling::FieldError },
}

impl Error {
    /// What it means for what we do next.
    pub fn class(&self) -> Class {
        match self {
            Self::Call { source, .. } => runtime::class(source),
            Self::Manifest { .. } | Self::Returned { .. } => Class::Invalid,
        }
    }

    /// What the API server said, or the problem itself.
    pub fn answer(&self) -> String {
        match self {
            Self::Call { source: kube::Error::Api(status), .. } => status.message.clone(),
            Self::Call { source, .. } => source.to_string(),
            Self::Manifest { source, .. } => source.to_string(),
            Self::Returned { source, .. } => source.to_string(),
        }
    }
}
