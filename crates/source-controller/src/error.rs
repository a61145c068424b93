//! What can go wrong in a call.

use runtime::Class;

/// A call to the API server that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {kind} {object}")]
pub(crate) struct Error {
    pub(crate) verb: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) object: String,
    pub(crate) source: kube::Error,
}

impl Error {
    /// What to do about it.
    pub(crate) fn class(&self) -> Class {
        runtime::class(&self.source)
    }

    /// What the API server said, for users.
    pub(crate) fn answer(&self) -> String {
        match &self.source {
            kube::Error::Api(status) => format!("{self}: {}", status.message),
            _ => self.to_string(),
        }
    }
}
