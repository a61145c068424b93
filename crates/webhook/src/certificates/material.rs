//! What the Secret holds, how it is read, and how certificates are made.
//!
//! Keys of the Secret: `ca.crt` (authorities in PEM, newest first: the CA bundle), `ca.key` (their private
//! keys in the same order), `tls.crt`, `tls.key` (serving certificate), `mac.key` (bytes of the key that
//! proves manifests).

use super::plan::{Lifetimes, Plan, Seen, Serving, Signer, Validity, plan};
use crate::error::Error;
use crate::mac;
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use x509_parser::parse_x509_certificate;

/// Data of a Secret.
pub type Data = BTreeMap<String, ByteString>;

/// The CA bundle.
pub const CA_CERTIFICATES: &str = "ca.crt";
/// Private keys of the authorities in the bundle.
pub const CA_KEYS: &str = "ca.key";
/// The serving certificate.
pub const CERTIFICATE: &str = "tls.crt";
/// Its private key.
pub const KEY: &str = "tls.key";
/// The key of the proofs.
pub const MAC_KEY: &str = "mac.key";

/// An authority as kept in the Secret.
#[derive(Debug, Clone)]
struct Authority {
    certificate: String,
    key: String,
    subject: Vec<u8>,
    validity: Validity,
}

fn text<'a>(data: &'a Data, key: &str) -> &'a str {
    data.get(key).and_then(|value| std::str::from_utf8(&value.0).ok()).unwrap_or_default()
}

/// The blocks of a text in PEM, each with its own lines.
fn blocks(pem: &str) -> Vec<String> {
    pem.split("-----BEGIN ").skip(1).map(|block| format!("-----BEGIN {}\n", block.trim_end())).collect()
}

/// Authorities whose certificate and key can be read, newest first. Others are left out: they are replaced.
fn authorities(data: &Data) -> Vec<Authority> {
    let pairs = blocks(text(data, CA_CERTIFICATES)).into_iter().zip(blocks(text(data, CA_KEYS)));
    let mut found: Vec<Authority> =
        pairs.filter_map(|(certificate, key)| authority(certificate, key)).collect();
    found.sort_by_key(|authority| std::cmp::Reverse(authority.validity.not_before));
    found
}

fn authority(certificate: String, key: String) -> Option<Authority> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
    let (_, parsed) = parse_x509_certificate(&der).ok()?;
    let pair = KeyPair::from_pem(&key).ok()?;
    if parsed.public_key().subject_public_key.data.as_ref() != pair.public_key_raw() {
        return None;
    }
    let subject = parsed.subject().as_raw().to_vec();
    let validity = validity(&parsed);
    Some(Authority { certificate, key, subject, validity })
}

fn validity(certificate: &x509_parser::certificate::X509Certificate<'_>) -> Validity {
    let held = certificate.validity();
    Validity { not_before: held.not_before.timestamp(), not_after: held.not_after.timestamp() }
}

fn serving(data: &Data, names: &[String], authorities: &[Authority]) -> Option<Serving> {
    super::serving::certified(text(data, CERTIFICATE).as_bytes(), text(data, KEY).as_bytes()).ok()?;
    let der = CertificateDer::from_pem_slice(text(data, CERTIFICATE).as_bytes()).ok()?;
    let (_, parsed) = parse_x509_certificate(&der).ok()?;
    let alternatives = parsed.subject_alternative_name().ok().flatten();
    let named = |name: &String| {
        let mut given = alternatives.iter().flat_map(|alternatives| &alternatives.value.general_names);
        given.any(|given| matches!(given, x509_parser::extensions::GeneralName::DNSName(dns) if dns == name))
    };
    Some(Serving {
        validity: validity(&parsed),
        signer: authorities.iter().position(|authority| authority.subject == parsed.issuer().as_raw()),
        fits: names.iter().all(named),
    })
}

/// What of a Secret's data is to change, and after how many seconds to look again.
///
/// # Errors
///
/// A certificate or key cannot be made.
pub fn renew(data: &Data, names: &[String], lifetimes: Lifetimes, now: i64) -> Result<(Data, u64), Error> {
    let known = authorities(data);
    let validities: Vec<Validity> = known.iter().map(|authority| authority.validity).collect();
    let seen = Seen { authorities: &validities, serving: serving(data, names, &known), now };
    let Plan { keep, add_authority, sign, recheck } = plan(&seen, lifetimes);
    let mut changes = mac_key(data)?;
    let mut kept: Vec<Authority> = keep.iter().filter_map(|index| known.get(*index)).cloned().collect();
    if add_authority {
        kept.insert(0, new_authority(now, lifetimes.authority)?);
    }
    let whole = |part: fn(&Authority) -> &str| kept.iter().map(part).collect::<String>();
    let bundle = [(CA_CERTIFICATES, whole(|held| &held.certificate)), (CA_KEYS, whole(|held| &held.key))];
    for (key, value) in bundle {
        if text(data, key) != value {
            changes.insert(key.to_owned(), ByteString(value.into_bytes()));
        }
    }
    let signer = match sign {
        Some(Signer::Kept(index)) => known.get(index),
        Some(Signer::New) => kept.first(),
        None => None,
    };
    if let Some(signer) = signer {
        let (certificate, key) = new_certificate(signer, names, now, lifetimes.certificate)?;
        changes.insert(CERTIFICATE.to_owned(), ByteString(certificate.into_bytes()));
        changes.insert(KEY.to_owned(), ByteString(key.into_bytes()));
    }
    Ok((changes, recheck))
}

/// The key of the proofs, if the Secret has none.
///
/// # Errors
///
/// The system gives no random bytes.
pub fn mac_key(data: &Data) -> Result<Data, Error> {
    if data.get(MAC_KEY).is_some_and(|key| key.0.len() >= mac::KEY_BYTES) {
        return Ok(Data::new());
    }
    let bytes = mac::random_key().ok_or(Error::Random)?;
    Ok([(MAC_KEY.to_owned(), ByteString(bytes))].into())
}

fn issue(source: rcgen::Error) -> Error {
    Error::Issue { source }
}

fn params(validity: Validity, names: Vec<String>, common_name: String) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(names).map_err(issue)?;
    let moment =
        |seconds: i64| OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    params.not_before = moment(validity.not_before);
    params.not_after = moment(validity.not_after);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

fn new_authority(now: i64, lifetime: i64) -> Result<Authority, Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(issue)?;
    let random = mac::random_key().ok_or(Error::Random)?;
    // Authorities are told apart by their names, so no two have one.
    let number: String = random.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let validity = Validity::starting(now, lifetime, None);
    let mut params = params(validity, Vec::new(), format!("multicluster-webhook authority {number}"))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(issue)?;
    let unix = |pem: String| blocks(&pem.replace('\r', "")).concat();
    authority(unix(certificate.pem()), unix(key.serialize_pem()))
        .ok_or_else(|| issue(rcgen::Error::CouldNotParseCertificate))
}

fn new_certificate(
    signer: &Authority,
    names: &[String],
    now: i64,
    lifetime: i64,
) -> Result<(String, String), Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(issue)?;
    let validity = Validity::starting(now, lifetime, Some(signer.validity));
    let mut params = params(validity, names.to_vec(), "multicluster-webhook".to_owned())?;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let signer_key = KeyPair::from_pem(&signer.key).map_err(issue)?;
    let issuer = Issuer::from_ca_cert_pem(&signer.certificate, signer_key).map_err(issue)?;
    let certificate = params.signed_by(&key, &issuer).map_err(issue)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{CA_CERTIFICATES, CA_KEYS, CERTIFICATE, Data, KEY, Lifetimes, MAC_KEY, blocks, renew};
    use k8s_openapi::ByteString;

    /// The names of the certificates in tests.
    pub(crate) fn names() -> Vec<String> {
        vec!["hook.ns.svc".to_owned()]
    }

    fn after(data: &Data, now: i64) -> (Data, Data) {
        let lifetimes = Lifetimes { authority: 9000, certificate: 900 };
        let (changes, _) = renew(data, &names(), lifetimes, now).unwrap();
        let mut all = data.clone();
        all.extend(changes.clone());
        (all, changes)
    }

    /// A complete Secret made at a moment.
    pub(crate) fn made(now: i64) -> Data {
        after(&Data::new(), now).0
    }

    fn changed(data: &Data, now: i64) -> Vec<String> {
        after(data, now).1.into_keys().collect()
    }

    fn authorities(data: &Data) -> usize {
        blocks(std::str::from_utf8(&data[CA_CERTIFICATES].0).unwrap()).len()
    }

    #[test]
    fn an_empty_secret_is_filled_once() {
        let full = made(10_000);
        assert_eq!(full.keys().collect::<Vec<_>>(), [CA_CERTIFICATES, CA_KEYS, MAC_KEY, CERTIFICATE, KEY]);
        assert!(changed(&full, 10_010).is_empty());
    }

    #[test]
    fn a_serving_certificate_is_renewed_alone() {
        assert_eq!(changed(&made(10_000), 10_600), [CERTIFICATE, KEY]);
    }

    #[test]
    fn an_authority_is_joined_by_the_next_and_both_are_published() {
        let (both, changes) = after(&made(10_000), 16_200);
        assert_eq!(authorities(&both), 2);
        assert!(changes.contains_key(CA_CERTIFICATES) && changes.contains_key(CA_KEYS));
        let (settled, changes) = after(&both, 16_300);
        assert_eq!(
            (authorities(&settled), changes.into_keys().collect::<Vec<_>>()),
            (2, vec![CERTIFICATE.into(), KEY.into()])
        );
        assert_eq!(authorities(&after(&settled, 19_100).0), 1);
    }

    #[test]
    fn what_cannot_be_read_is_made_anew() {
        for key in [CA_CERTIFICATES, CA_KEYS, CERTIFICATE, KEY] {
            let mut broken = made(10_000);
            broken.insert(key.to_owned(), ByteString(b"no certificate".to_vec()));
            let (repaired, changes) = after(&broken, 10_010);
            assert!(changes.contains_key(key), "{key}");
            assert!(changed(&repaired, 10_020).is_empty(), "{key}");
        }
    }

    #[test]
    fn a_key_that_belongs_to_another_certificate_is_replaced() {
        let mut mixed = made(10_000);
        mixed.insert(KEY.to_owned(), made(10_000)[KEY].clone());
        assert_eq!(changed(&mixed, 10_010), [CERTIFICATE, KEY]);
    }

    #[test]
    fn the_key_of_the_proofs_survives_every_rotation() {
        let first = made(10_000);
        assert_eq!(after(&first, 19_500).0[MAC_KEY], first[MAC_KEY]);
        assert!(changed(&first, 19_500).contains(&CA_CERTIFICATES.to_owned()));
    }
}
