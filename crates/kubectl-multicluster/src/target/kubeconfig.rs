//! The kubeconfig that a source gets: an address, an authority and a token, and nothing else.

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Config;
use serde_json::{Value, json};

/// The text of a kubeconfig with one context.
///
/// # Errors
/// When the address does not begin with `https://`, or the connection has no authority: the components would
/// refuse either.
pub(super) fn build(config: &Config, server: Option<&str>, token: &str) -> Result<String> {
    let own = config.cluster_url.to_string();
    let server = server.unwrap_or(&own).trim_end_matches('/');
    if !server.starts_with("https://") {
        bail!("--server {server}: the address must begin with https://");
    }
    let authority = config
        .root_cert
        .as_ref()
        .filter(|certificates| !certificates.is_empty())
        .context("the target's context has no certificate authority; it must name one")?;
    let pem: String = authority.iter().map(|der| pem(der)).collect();
    let mut cluster = json!({"server": server, "certificate-authority-data": STANDARD.encode(pem)});
    if let Some(name) = &config.tls_server_name {
        cluster["tls-server-name"] = Value::from(name.as_str());
    }
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "target", "cluster": cluster}],
        "users": [{"name": "source", "user": {"token": token}}],
        "contexts": [{"name": "target", "context": {"cluster": "target", "user": "source"}}],
        "current-context": "target",
    });
    serde_yaml::to_string(&kubeconfig).context("cannot write a kubeconfig")
}

/// A kubeconfig with another token for its user.
///
/// # Errors
/// When the text is no kubeconfig with exactly one user: which one to give the token to would be a guess.
pub(super) fn with_token(kubeconfig: &str, token: &str) -> Result<String> {
    let mut value: Value = serde_yaml::from_str(kubeconfig).context("the Secret's value is no kubeconfig")?;
    let users = value.get_mut("users").and_then(Value::as_array_mut);
    let Some([user]) = users.map(Vec::as_mut_slice) else {
        bail!("the Secret's kubeconfig does not have exactly one user; write the new token yourself");
    };
    user["user"] = json!({"token": token});
    serde_yaml::to_string(&value).context("cannot write a kubeconfig")
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned() + "\n");
    format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{build, with_token};
    use kube::config::Config;

    fn config() -> Config {
        let mut config = Config::new("https://target:6443/".parse().unwrap());
        config.root_cert = Some(vec![vec![1, 2, 3]]);
        config
    }

    #[tokio::test]
    async fn the_components_accept_what_is_built() {
        let text = build(&config(), None, "t0ken").unwrap();
        let read = runtime::kubeconfig::config(&text, None).await.unwrap();
        assert_eq!(read.cluster_url, config().cluster_url);
        assert_eq!(read.root_cert, config().root_cert);
    }

    #[test]
    fn another_address_can_be_given() {
        let text = build(&config(), Some("https://10.0.0.1:6443"), "t").unwrap();
        assert!(text.contains("https://10.0.0.1:6443") && !text.contains("https://target"));
    }

    #[test]
    fn w28_what_the_components_would_refuse_is_not_built() {
        assert!(build(&config(), Some("http://10.0.0.1"), "t").is_err());
        let mut unsure = config();
        unsure.root_cert = None;
        assert!(build(&unsure, None, "t").is_err());
    }

    #[test]
    fn a_new_token_replaces_the_old_credentials_and_nothing_else() {
        let old = build(&config(), None, "old").unwrap();
        assert_eq!(with_token(&old, "new").unwrap(), build(&config(), None, "new").unwrap());
    }

    #[test]
    fn of_two_users_none_is_guessed() {
        let text = "users: [{name: a, user: {}}, {name: b, user: {}}]";
        assert!(with_token(text, "t").is_err());
    }
}
