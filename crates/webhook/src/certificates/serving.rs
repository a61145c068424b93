//! The certificate that the listener shows, replaced while it serves.

use crate::error::Error;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

/// The certificate in use. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Hot(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl Hot {
    /// Shows another certificate from the next handshake on.
    pub fn set(&self, certified: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certified));
    }

    /// Whether another certificate than the given one is in use.
    #[must_use]
    pub fn differs(&self, from: &CertifiedKey) -> bool {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().is_none_or(|current| current.cert != from.cert)
    }

    /// A TLS configuration that shows whatever certificate is set.
    ///
    /// # Errors
    ///
    /// The provider supports none of the protocol versions.
    pub fn config(&self) -> Result<ServerConfig, Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|source| Error::Unusable { source })?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl ResolvesServerCert for Hot {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A chain and its key, both in PEM, checked to belong together.
///
/// # Errors
///
/// One of them is no PEM, or they do not belong together.
pub fn certified(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, Error> {
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| Error::NotPem { what: "the certificate", source })?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|source| Error::NotPem { what: "the private key", source })?;
    CertifiedKey::from_der(chain, key, &default_provider()).map_err(|source| Error::Unusable { source })
}

/// The certificate that somebody else keeps in a directory.
///
/// # Errors
///
/// A file cannot be read, or the pair cannot be used (it may be half written: read again).
pub async fn from_directory(directory: &Path) -> Result<CertifiedKey, Error> {
    let read = async |name: &str| {
        let path = directory.join(name);
        tokio::fs::read(&path).await.map_err(|source| Error::ReadFile { path, source })
    };
    let chain = read(super::material::CERTIFICATE).await?;
    let key = read(super::material::KEY).await?;
    certified(&chain, &key)
}
