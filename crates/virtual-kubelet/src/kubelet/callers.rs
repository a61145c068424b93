//! Who calls: by a certificate of the API server's client CA, or by a token that TokenReview knows.
//!
//! A TLS handshake accepts any certificate whose key the caller holds; whether it means anybody is decided for
//! each request, by the authorities of that moment. So a stranger gets an answer, 401, and a rotated authority
//! needs no restart.

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use runtime::Chain;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// How long a token that was found good is not looked up again.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Most tokens that are remembered.
const MOST: usize = 1024;

/// Whom a request comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) user: String,
    pub(crate) uid: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// The certificates that a caller showed in the handshake, its own first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown(pub(crate) Arc<[CertificateDer<'static>]>);

/// The authorities whose certificates name callers. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Authorities(Arc<RwLock<Option<Arc<dyn ClientCertVerifier>>>>);

impl Authorities {
    /// Takes these authorities, in PEM, from now on; says how many there are.
    pub(crate) fn set(&self, pem: &[u8]) -> usize {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem).flatten() {
            if let Err(error) = roots.add(certificate) {
                warn!(%error, "an authority for callers cannot be used");
            }
        }
        let count = roots.len();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), default_provider().into());
        // It fails for no authorities at all: then nobody is known by a certificate.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = verifier.build().ok();
        count
    }

    /// Whom shown certificates name at a moment, in Unix seconds.
    pub(crate) fn caller(&self, shown: &Shown, now: u64) -> Option<Caller> {
        let verifier = self.0.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        let (own, others) = shown.0.split_first()?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        verifier.verify_client_cert(own, others, now).ok()?;
        let (_, certificate) = x509_parser::parse_x509_certificate(own).ok()?;
        let subject = certificate.subject();
        let user = subject.iter_common_name().last()?.as_str().ok()?.to_owned();
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
        (!user.is_empty()).then(|| Caller { user, groups: groups.collect(), ..Caller::default() })
    }
}

/// Asks callers for a certificate and only checks that they hold its key.
#[derive(Debug)]
pub(crate) struct AnyCertificate(WebPkiSupportedAlgorithms);

impl Default for AnyCertificate {
    fn default() -> Self {
        Self(default_provider().signature_verification_algorithms)
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _own: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, own, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, own, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Why nobody is behind a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// Neither certificate nor token say who it is.
    Unknown,
    /// The API server could not be asked.
    Unasked(String),
}

/// Looks up tokens.
pub(crate) struct Tokens {
    client: Client,
    known: Mutex<HashMap<[u8; 32], (Instant, Caller)>>,
}

impl Tokens {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// Whom a token means.
    pub(crate) async fn caller(&self, token: &str) -> Result<Caller, Stranger> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.known(&key) {
            return Ok(known);
        }
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let reviews = Api::<TokenReview>::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await;
        let status = match answer {
            Ok(review) => review.status.unwrap_or_default(),
            Err(error) => return Err(Stranger::Unasked(Chain(&error).to_string())),
        };
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let Some(user) = user else { return Err(Stranger::Unknown) };
        let caller = Caller {
            user: user.username.unwrap_or_default(),
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, (Instant::now(), caller.clone()));
        Ok(caller)
    }

    fn known(&self, key: &[u8; 32]) -> Option<Caller> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (since, _)| since.elapsed() < REMEMBERED);
        known.get(key).map(|(_, caller)| caller.clone())
    }
}

#[cfg(test)]
mod tests;
