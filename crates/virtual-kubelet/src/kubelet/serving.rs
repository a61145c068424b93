//! The certificate that the listeners show, replaced while they serve.

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::{Arc, PoisonError, RwLock};

/// The certificate in use. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hot(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl Hot {
    /// Shows another certificate from the next handshake on.
    pub(crate) fn set(&self, certified: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certified));
    }
}

impl ResolvesServerCert for Hot {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A chain and its key, both in PEM, checked to belong together; why not otherwise.
pub(crate) fn certified(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, String> {
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| format!("the certificate is no PEM: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key is no PEM: {error}"))?;
    CertifiedKey::from_der(chain, key, &default_provider()).map_err(|error| error.to_string())
}
