//! The certificates of one cluster, from an authority of its own.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// The authority of one cluster and the folder where its files lie.
pub struct Pki {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    /// The authority's certificate, in PEM.
    pub authority: String,
}

impl Pki {
    /// Makes an authority and writes `<name>.crt` and `<name>.key` into `folder`.
    ///
    /// # Errors
    /// When a key cannot be made or a file cannot be written.
    pub fn create(folder: &Path, name: &str) -> Result<Self> {
        std::fs::create_dir_all(folder).context("cannot make the folder for certificates")?;
        let mut params = CertificateParams::new(Vec::new()).context("cannot describe the authority")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().context("cannot make the authority's key")?;
        let authority = params.self_signed(&key).context("cannot sign the authority")?.pem();
        let identity = Identity { certificate: authority.clone(), key: key.serialize_pem() };
        write(folder, name, &identity)?;
        Ok(Self { folder: folder.to_path_buf(), issuer: Issuer::new(params, key), authority })
    }

    /// Makes the certificate of a server and writes it as `<name>.crt` and `<name>.key`.
    ///
    /// # Errors
    /// When it cannot be signed or written.
    pub fn server(&self, name: &str, names: &[&str], addresses: &[Ipv4Addr]) -> Result<Identity> {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).context("cannot describe a server")?;
        let addresses = addresses.iter().map(|address| SanType::IpAddress(IpAddr::V4(*address)));
        params.subject_alt_names.extend(addresses);
        params.distinguished_name.push(DnType::CommonName, name);
        self.sign(name, params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Makes the certificate of a client, which is known as `user` in `group`, and writes it like a server's.
    ///
    /// # Errors
    /// When it cannot be signed or written.
    pub fn client(&self, name: &str, user: &str, group: &str) -> Result<Identity> {
        let mut params = CertificateParams::new(Vec::new()).context("cannot describe a client")?;
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        self.sign(name, params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(
        &self,
        name: &str,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().with_context(|| format!("cannot make the key of {name}"))?;
        let certificate =
            params.signed_by(&key, &self.issuer).with_context(|| format!("cannot sign {name}"))?;
        let identity = Identity { certificate: certificate.pem(), key: key.serialize_pem() };
        write(&self.folder, name, &identity)?;
        Ok(identity)
    }

    /// Writes a key pair for ServiceAccount tokens as `<name>.key` and `<name>.pub`.
    ///
    /// # Errors
    /// When it cannot be made or written.
    pub fn signing_key(&self, name: &str) -> Result<()> {
        let key = KeyPair::generate().context("cannot make a signing key")?;
        let write = |kind: &str, text: String| {
            std::fs::write(self.folder.join(format!("{name}.{kind}")), text)
                .context("cannot write a signing key")
        };
        write("key", key.serialize_pem())?;
        write("pub", key.public_key_pem())
    }

    /// A kubeconfig for a client of this authority's server, as JSON, which is YAML too.
    #[must_use]
    pub fn kubeconfig(&self, server: &str, client: &Identity) -> String {
        let user = json!({
            "client-certificate-data": STANDARD.encode(&client.certificate),
            "client-key-data": STANDARD.encode(&client.key),
        });
        kubeconfig(server, &self.authority, &user)
    }
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pki").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// A kubeconfig with one cluster and one user, as JSON, which is YAML too.
#[must_use]
pub fn kubeconfig(server: &str, authority: &str, user: &serde_json::Value) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "default",
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        "clusters": [{"name": "default", "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "users": [{"name": "default", "user": user}],
    })
    .to_string()
}

fn write(folder: &Path, name: &str, identity: &Identity) -> Result<()> {
    let certificate = folder.join(format!("{name}.crt"));
    std::fs::write(&certificate, &identity.certificate)
        .with_context(|| format!("cannot write {}", certificate.display()))?;
    let key = folder.join(format!("{name}.key"));
    std::fs::write(&key, &identity.key).with_context(|| format!("cannot write {}", key.display()))
}
