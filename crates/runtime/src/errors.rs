//! What an error means for what we do next, and how it is printed.

use std::error::Error as StdError;
use std::fmt;

/// The only thing about an error that code branches on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Somebody else wrote first, or a precondition failed.
    Conflict,
    /// The object is not there.
    NotFound,
    /// We lack a right.
    Forbidden,
    /// The API server refuses what we sent.
    Invalid,
    /// No answer.
    Unreachable,
    /// An answer that asks for patience.
    Overloaded,
    /// Anything else.
    Bug,
}

impl Class {
    /// The word for a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Conflict => "conflict",
            Class::NotFound => "not_found",
            Class::Forbidden => "forbidden",
            Class::Invalid => "invalid",
            Class::Unreachable => "unreachable",
            Class::Overloaded => "overloaded",
            Class::Bug => "bug",
        }
    }

    /// Whether the same call may succeed later without anything else changing.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(self, Class::Unreachable | Class::Overloaded)
    }
}

/// The class of an error of the Kubernetes client.
#[must_use]
pub fn class(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) => match status.code {
            409 => Class::Conflict,
            404 | 410 => Class::NotFound,
            401 | 403 => Class::Forbidden,
            400 | 413 | 415 | 422 => Class::Invalid,
            429 | 500..=599 => Class::Overloaded,
            _ => Class::Bug,
        },
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => {
            Class::Unreachable
        }
        _ => Class::Bug,
    }
}

/// Prints an error with all its causes, in one line.
pub struct Chain<'a>(pub &'a (dyn StdError + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut last = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Some libraries repeat their cause in their own text.
            if !last.contains(&text) {
                write!(f, ": {text}")?;
            }
            last = text;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Chain;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the pod")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_chain_prints_every_cause_once() {
        let error = Outer(std::io::Error::other("connection refused"));
        assert_eq!(Chain(&error).to_string(), "cannot read the pod: connection refused");
    }
}
