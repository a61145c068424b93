//! Kubeconfigs that tenants wrote: inline credentials only.
//!
//! A path, a command or a plugin in such a file would be followed with this process's rights, so that whoever
//! may write a Secret could read our own token.

use api::conditions::Reason;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Why a kubeconfig is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The word for a condition.
    pub reason: Reason,
    /// What the user can do about it.
    pub message: String,
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault { reason: Reason::KubeconfigInvalid, message: message.into() }
}

fn forbidden(field: &str, cure: &str) -> Fault {
    let message = format!("the kubeconfig sets {field}, which is not allowed in a Secret: {cure}");
    Fault { reason: Reason::KubeconfigForbidden, message }
}

/// A client configuration from the text of a kubeconfig; its current context counts unless one is named.
///
/// # Errors
/// When the text is no kubeconfig, or asks for what would run with this process's rights.
pub async fn config(text: &str, context: Option<&str>) -> Result<kube::Config, Fault> {
    let kubeconfig = parse(text, context)?;
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| invalid(format!("the kubeconfig cannot be used: {}", crate::Chain(&error))))
}

/// The kubeconfig with only the chosen context, checked field by field.
fn parse(text: &str, context: Option<&str>) -> Result<Kubeconfig, Fault> {
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| {
        invalid(format!("the Secret's value is not a kubeconfig: {}", crate::Chain(&error)))
    })?;
    let name = context
        .or(kubeconfig.current_context.as_deref())
        .ok_or_else(|| invalid("the kubeconfig has no current-context; set spec.kubeconfigSecret.context"))?;
    let found = kubeconfig.contexts.iter().find(|known| known.name == name);
    let chosen = found
        .and_then(|known| known.context.as_ref())
        .ok_or_else(|| invalid(format!("the kubeconfig has no context {name:?}")))?;
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|known| known.name == chosen.cluster)
        .and_then(|known| known.cluster.as_ref())
        .ok_or_else(|| invalid(format!("the kubeconfig has no cluster {:?}", chosen.cluster)))?;
    check_cluster(cluster)?;
    let user = chosen.user.as_deref().unwrap_or_default();
    let user = kubeconfig
        .auth_infos
        .iter()
        .find(|known| known.name == user)
        .and_then(|known| known.auth_info.as_ref())
        .ok_or_else(|| invalid(format!("the kubeconfig has no user {user:?}")))?;
    check_user(user)?;
    Ok(kubeconfig)
}

fn check_cluster(cluster: &kube::config::Cluster) -> Result<(), Fault> {
    if cluster.server.as_deref().is_none_or(|server| !server.starts_with("https://")) {
        return Err(invalid("the kubeconfig's cluster has no server that begins with https://"));
    }
    if cluster.insecure_skip_tls_verify == Some(true) {
        return Err(forbidden("insecure-skip-tls-verify", "give certificate-authority-data"));
    }
    if cluster.certificate_authority.is_some() {
        return Err(forbidden("certificate-authority (a file)", "give certificate-authority-data"));
    }
    if cluster.proxy_url.is_some() {
        return Err(forbidden("proxy-url", "make the API server reachable"));
    }
    Ok(())
}

fn check_user(user: &kube::config::AuthInfo) -> Result<(), Fault> {
    if user.exec.is_some() {
        return Err(forbidden("exec", "give a token or client certificate data"));
    }
    if user.auth_provider.is_some() {
        return Err(forbidden("auth-provider", "give a token or client certificate data"));
    }
    if user.token_file.is_some() {
        return Err(forbidden("tokenFile", "give the token itself"));
    }
    if user.client_certificate.is_some() {
        return Err(forbidden("client-certificate (a file)", "give client-certificate-data"));
    }
    if user.client_key.is_some() {
        return Err(forbidden("client-key (a file)", "give client-key-data"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::parse;
    use api::conditions::Reason;

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://a:6443', {cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    #[track_caller]
    fn check(cluster: &str, user: &str, reason: Reason, word: &str) {
        let fault = parse(&kubeconfig(cluster, user), None).unwrap_err();
        assert_eq!(fault.reason, reason, "{}", fault.message);
        assert!(fault.message.contains(word), "{}", fault.message);
    }

    #[test]
    fn inline_credentials_are_accepted() {
        assert!(parse(&kubeconfig("certificate-authority-data: YQ==", "token: t"), None).is_ok());
    }

    #[test]
    fn w28_a_file_of_ours_is_never_read_for_a_tenant() {
        check(
            "",
            "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
            Reason::KubeconfigForbidden,
            "tokenFile",
        );
        check(
            "certificate-authority: /etc/passwd",
            "token: t",
            Reason::KubeconfigForbidden,
            "certificate-authority-data",
        );
        check("", "client-certificate: /a", Reason::KubeconfigForbidden, "client-certificate-data");
        check("", "client-key: /a", Reason::KubeconfigForbidden, "client-key-data");
    }

    #[test]
    fn w28_no_command_is_run_for_a_tenant() {
        check(
            "",
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}",
            Reason::KubeconfigForbidden,
            "exec",
        );
    }

    #[test]
    fn w28_a_connection_without_verification_is_refused() {
        check(
            "insecure-skip-tls-verify: true",
            "token: t",
            Reason::KubeconfigForbidden,
            "insecure-skip-tls-verify",
        );
    }

    #[test]
    fn what_is_no_kubeconfig_is_said_so() {
        assert_eq!(parse("[1, 2]", None).unwrap_err().reason, Reason::KubeconfigInvalid);
        let unknown = parse(&kubeconfig("", "token: t"), Some("other")).unwrap_err();
        assert!(unknown.message.contains("other"), "{}", unknown.message);
    }
}
