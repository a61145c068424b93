//! What can go wrong in a call.

use crate::kinds::Object;
use runtime::{Class, TargetKey};

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// In the source.
    #[error("cannot {verb} {object}")]
    Local { verb: &'static str, object: Object, source: Box<kube::Error> },
    /// In a target.
    #[error("cannot {verb} {object} in target {cluster}")]
    Remote { verb: &'static str, object: Object, cluster: TargetKey, source: Box<kube::Error> },
    /// What was seen is not so any more.
    #[error("what is known of {object} is behind")]
    Stale { object: Object },
}

impl Error {
    /// What to do about it.
    pub(crate) fn class(&self) -> Class {
        match self {
            Error::Local { source, .. } | Error::Remote { source, .. } => runtime::class(source),
            Error::Stale { .. } => Class::Conflict,
        }
    }
}
