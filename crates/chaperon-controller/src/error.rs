//! What can go wrong in a call.

use runtime::Class;

/// A call to the API server that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A read.
    #[error("cannot read {kind} {object}")]
    Read { kind: &'static str, object: String, source: kube::Error },
    /// A write.
    #[error("cannot {verb} {kind} {object}")]
    Write { verb: &'static str, kind: &'static str, object: String, source: kube::Error },
    /// A JSON patch, whose tests name what we believe to be there.
    #[error("cannot patch {kind} {object}")]
    Patch { kind: &'static str, object: String, source: kube::Error },
}

impl Error {
    /// What to do about it.
    pub(crate) fn class(&self) -> Class {
        match self {
            Error::Read { source, .. } | Error::Write { source, .. } => runtime::class(source),
            // The API server answers a failed test with 422.
            Error::Patch { source, .. } => match runtime::class(source) {
                Class::Invalid => Class::Conflict,
                class => class,
            },
        }
    }
}
