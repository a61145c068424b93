//! Everything that can go wrong in the shell.

use runtime::Class;
use std::path::PathBuf;

/// Why certificates, keys or the CA bundle are not in place.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Secret cannot be read.
    #[error("cannot read secret {name}")]
    ReadSecret {
        /// Namespace and name.
        name: String,
        /// What the API server said.
        source: kube::Error,
    },
    /// The Secret cannot be written.
    #[error("cannot {verb} secret {name}")]
    WriteSecret {
        /// The verb.
        verb: &'static str,
        /// Namespace and name.
        name: String,
        /// What the API server said.
        source: kube::Error,
    },
    /// A webhook configuration cannot be read.
    #[error("cannot read {kind} {name}")]
    ReadConfiguration {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// What the API server said.
        source: kube::Error,
    },
    /// The CA bundle cannot be published.
    #[error("cannot publish the CA bundle in {kind} {name}")]
    Publish {
        /// The configuration's kind.
        kind: String,
        /// The configuration's name.
        name: String,
        /// What the API server said.
        source: kube::Error,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate")]
    Issue {
        /// What the library said.
        source: rcgen::Error,
    },
    /// No randomness for a key.
    #[error("the system gives no random bytes")]
    Random,
    /// Certificate and key do not serve.
    #[error("certificate and key cannot be used")]
    Unusable {
        /// What the library said.
        source: rustls::Error,
    },
    /// No certificate or key in PEM.
    #[error("{what} is not in PEM")]
    NotPem {
        /// Which of them.
        what: &'static str,
        /// What the parser said.
        source: rustls::pki_types::pem::Error,
    },
    /// A mounted file cannot be read.
    #[error("cannot read {path}")]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The listener cannot be opened or has failed.
    #[error("cannot serve reviews on {address}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// What the error means for what we do next.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Error::ReadSecret { source, .. }
            | Error::WriteSecret { source, .. }
            | Error::ReadConfiguration { source, .. }
            | Error::Publish { source, .. } => runtime::class(source),
            Error::Unusable { .. } | Error::NotPem { .. } | Error::ReadFile { .. } => Class::Invalid,
            Error::Issue { .. } | Error::Random | Error::Listen { .. } => Class::Bug,
        }
    }
}
