//! Keys, requests and certificates of our own.

use super::plan::Validity;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// What of a key one asks a signer for. An elliptic one enciphers no keys.
pub(crate) const USAGES: &[&str] = &["digital signature", "server auth"];

/// A private key and the request that goes with it, both in PEM.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) key: String,
    pub(crate) pem: String,
}

fn params(addresses: &[IpAddr]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, "system:node:multicluster-virtual-kubelet");
    Ok(params)
}

/// A new key and a request for a certificate of these addresses.
pub(crate) fn request(addresses: &[IpAddr]) -> Result<Request, rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let pem = params(addresses)?.serialize_request(&key)?.pem()?;
    Ok(Request { key: key.serialize_pem(), pem })
}

/// A key and a certificate that it signs itself, in PEM: key, certificate.
pub(crate) fn own(addresses: &[IpAddr]) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = params(addresses)?;
    params.not_before = date_time_ymd(2020, 1, 1);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.self_signed(&key)?;
    Ok((key.serialize_pem(), certificate.pem()))
}

/// When the first certificate of a chain in PEM holds.
pub(crate) fn validity(chain: &[u8]) -> Option<Validity> {
    let der = CertificateDer::from_pem_slice(chain).ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
    let held = parsed.validity();
    Some(Validity { not_before: held.not_before.timestamp(), not_after: held.not_after.timestamp() })
}

/// Whether a chain in PEM holds for an address now, by these authorities, in DER.
pub(crate) fn trusted(chain: &[u8], address: IpAddr, authorities: &[Vec<u8>], now: i64) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().map(|der| CertificateDer::from(der.clone())));
    let provider = Arc::new(default_provider());
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build() else {
        return false;
    };
    let chain: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(chain).flatten().collect();
    let Some((own, others)) = chain.split_first() else { return false };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).unwrap_or_default()));
    verifier.verify_server_cert(own, others, &ServerName::from(address), &[], now).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{USAGES, own, request, trusted, validity};
    use std::net::{IpAddr, Ipv4Addr};
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension};

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));

    #[test]
    fn case_068_a_request_is_as_the_signer_of_kubelets_demands() {
        let made = request(&[ADDRESS]).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(made.pem.as_bytes()).unwrap();
        let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).unwrap();
        let subject = &parsed.certification_request_info.subject;
        let organizations: Vec<_> =
            subject.iter_organization().map(|one| one.as_str().unwrap().to_owned()).collect();
        assert_eq!(organizations, ["system:nodes"]);
        let name = subject.iter_common_name().next().unwrap().as_str().unwrap();
        assert!(name.starts_with("system:node:"), "{name}");
        let names: Vec<_> = parsed
            .requested_extensions()
            .unwrap()
            .filter_map(|extension| match extension {
                ParsedExtension::SubjectAlternativeName(names) => Some(names.general_names.clone()),
                _ => None,
            })
            .flatten()
            .collect();
        assert_eq!(names, [GeneralName::IPAddress(&[10, 1, 2, 3])]);
        assert_eq!(USAGES, ["digital signature", "server auth"]);
    }

    #[test]
    fn case_067_a_chain_is_trusted_only_by_its_authority_and_for_its_address() {
        let (key, chain) = own(&[ADDRESS]).unwrap();
        crate::kubelet::serving::certified(chain.as_bytes(), key.as_bytes()).unwrap();
        let held = validity(chain.as_bytes()).unwrap();
        let (_, other) = own(&[ADDRESS]).unwrap();
        let der = |pem: &str| x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap().1.contents;
        let now = held.not_before + 1;
        assert!(!trusted(chain.as_bytes(), ADDRESS, &[der(&other)], now));
        assert!(!trusted(chain.as_bytes(), ADDRESS, &[], now));
        assert!(!trusted(b"", ADDRESS, &[der(&chain)], now));
    }
}
