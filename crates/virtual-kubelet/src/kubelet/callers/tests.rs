use super::{Authorities, Caller, Shown};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

const NOW: u64 = 1_700_000_000;

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

fn authority(name: &str) -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = params.self_signed(&key).unwrap();
    Authority { pem: certificate.pem(), issuer: Issuer::new(params, key) }
}

fn shown(authority: &Authority, usage: ExtendedKeyUsagePurpose, until: i64) -> Shown {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![usage];
    params.not_before = OffsetDateTime::from_unix_timestamp(1_600_000_000).unwrap();
    params.not_after = OffsetDateTime::from_unix_timestamp(until).unwrap();
    let certificate = params.signed_by(&key, &authority.issuer).unwrap();
    Shown(vec![CertificateDer::from(certificate)].into())
}

fn known(authorities: &[&Authority], shown: &Shown) -> Option<Caller> {
    let known = Authorities::default();
    let pem: String = authorities.iter().map(|authority| authority.pem.as_str()).collect();
    assert_eq!(known.set(pem.as_bytes()), authorities.len());
    known.caller(shown, NOW)
}

#[test]
fn w27_a_certificate_of_the_client_authority_names_its_caller() {
    let (old, new) = (authority("old"), authority("new"));
    for issuer in [&old, &new] {
        let shown = shown(issuer, ExtendedKeyUsagePurpose::ClientAuth, 1_800_000_000);
        let caller = known(&[&old, &new], &shown).unwrap();
        assert_eq!(
            (caller.user.as_str(), caller.groups),
            ("kube-apiserver", vec!["system:masters".to_owned()])
        );
    }
}

#[test]
fn w27_no_other_certificate_names_anybody() {
    let (ours, other) = (authority("ours"), authority("other"));
    let good = ExtendedKeyUsagePurpose::ClientAuth;
    assert_eq!(known(&[&ours], &shown(&other, good.clone(), 1_800_000_000)), None);
    assert_eq!(known(&[&ours], &shown(&ours, good.clone(), 1_699_999_999)), None);
    assert_eq!(known(&[&ours], &shown(&ours, ExtendedKeyUsagePurpose::ServerAuth, 1_800_000_000)), None);
    assert_eq!(known(&[&ours], &Shown::default()), None);
    assert_eq!(known(&[], &shown(&ours, good.clone(), 1_800_000_000)), None);
    let impostor = authority("ours");
    assert_eq!(known(&[&ours], &shown(&impostor, good, 1_800_000_000)), None);
}
