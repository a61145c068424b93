//! Files and commands of nodes.

use super::infrastructure::ranges;
use super::{Shop, control_plane, etcd};
use api::provisioning::{EtcdProfile, Registry, SecretKey};
use serde_json::{Value, json};

const CERTS: &str = "/etc/containerd/certs.d";
/// Keeps what an image already says; older ones say nothing.
const USE_CERTS: &str = "grep -q 'config_path = \"/etc/containerd/certs.d\"' /etc/containerd/config.toml || printf '\\n[plugins.\"io.containerd.grpc.v1.cri\".registry]\\n  config_path = \"/etc/containerd/certs.d\"\\n' >> /etc/containerd/config.toml";
const CLOUD_CA: &str = "/etc/ssl/certs/cloud-cacert";
/// Where servers ask the cloud about themselves.
const METADATA_SERVICE: &str = "169.254.169.254";

/// What a node gets besides its registration.
#[derive(Default)]
pub(super) struct Provision {
    files: Vec<Value>,
    before: Vec<String>,
    after: Vec<String>,
}

impl Provision {
    /// Puts it into a kubeadm configuration.
    pub(super) fn put(self, spec: &mut Value) {
        if !self.files.is_empty() {
            spec["files"] = json!(self.files);
        }
        if !self.before.is_empty() {
            spec["preKubeadmCommands"] = json!(self.before);
        }
        if !self.after.is_empty() {
            spec["postKubeadmCommands"] = json!(self.after);
        }
    }

    fn write(&mut self, path: &str, permissions: &str, content: &str) {
        self.files.push(
            json!({"path": path, "owner": "root:root", "permissions": permissions, "content": content}),
        );
    }

    fn copy(&mut self, path: &str, permissions: &str, from: &SecretKey) {
        self.files.push(json!({"path": path, "owner": "root:root", "permissions": permissions,
            "contentFrom": {"secret": {"name": from.name, "key": from.key}}}));
    }
}

/// What all nodes get.
pub(super) fn all_nodes(shop: &Shop<'_>) -> Provision {
    let mut node = Provision::default();
    common(shop, &mut node);
    own(shop, &mut node);
    node
}

/// What nodes of the control plane get besides.
pub(super) fn control_plane(shop: &Shop<'_>) -> Provision {
    let plane = &shop.input.spec.control_plane;
    let mut node = Provision::default();
    common(shop, &mut node);
    if let Some(policy) = plane.audit.policy_ref.as_ref().filter(|_| plane.audit.enabled) {
        node.copy("/etc/kubernetes/audit/policy.yaml", "0600", policy);
    }
    if let Some(ca) = plane.oidc.as_ref().and_then(|oidc| oidc.ca_secret_ref.as_ref()) {
        node.copy(control_plane::OIDC_CA, "0644", ca);
    }
    node.write("/usr/local/sbin/etcd-maintenance", "0755", &etcd::script(plane.etcd.snapshots));
    node.write("/etc/systemd/system/etcd-maintenance.service", "0644", etcd::SERVICE);
    node.write(
        "/etc/systemd/system/etcd-maintenance.timer",
        "0644",
        &etcd::timer(&plane.etcd.defrag_schedule),
    );
    node.after.push("systemctl daemon-reload && systemctl enable --now etcd-maintenance.timer".to_owned());
    if plane.etcd.profile == EtcdProfile::SlowStorage {
        node.after.push(etcd::PRIORITY.to_owned());
    }
    if plane.etcd.unsafe_filesystem {
        node.after.push(etcd::UNSAFE_FILESYSTEM.to_owned());
    }
    own(shop, &mut node);
    node
}

fn common(shop: &Shop<'_>, node: &mut Provision) {
    let mut restart = false;
    if shop.input.account.ca_certificate.is_some() {
        let secret = SecretKey { name: shop.names.secret.clone(), key: "cacert".to_owned() };
        node.copy(CLOUD_CA, "0644", &secret);
    }
    for registry in &shop.input.spec.nodes.registries {
        mirror(registry, node);
        restart = true;
    }
    if restart {
        node.before.push(USE_CERTS.to_owned());
    }
    if let Some(drop_in) = proxy(shop) {
        node.write("/etc/systemd/system/containerd.service.d/http-proxy.conf", "0644", &drop_in);
        node.write("/etc/systemd/system/kubelet.service.d/http-proxy.conf", "0644", &drop_in);
        restart = true;
    }
    if restart {
        node.before.push("systemctl daemon-reload && systemctl restart containerd".to_owned());
    }
}

/// containerd reads one folder for each registry.
fn mirror(registry: &Registry, node: &mut Provision) {
    let hosts = format!("{CERTS}/{}/hosts.toml", registry.host);
    let authority = format!("/etc/containerd/certs/{}.crt", registry.host);
    if let Some(ca) = &registry.ca_ref {
        node.copy(&authority, "0644", ca);
    }
    if let Some(config) = &registry.config_ref {
        node.copy(&hosts, "0644", config);
        return;
    }
    let server = if registry.host == "docker.io" { "registry-1.docker.io" } else { registry.host.as_str() };
    let mut text = format!("server = \"https://{server}\"\n");
    if registry.ca_ref.is_some() {
        text = format!("{text}ca = \"{authority}\"\n");
    }
    for mirror in registry.mirrors.iter().flatten() {
        text = format!("{text}\n[host.\"{mirror}\"]\n  capabilities = [\"pull\", \"resolve\"]\n");
        if registry.ca_ref.is_some() {
            text = format!("{text}  ca = \"{authority}\"\n");
        }
    }
    node.write(&hosts, "0644", &text);
}

fn proxy(shop: &Shop<'_>) -> Option<String> {
    let proxy = shop.input.spec.nodes.proxy.as_ref()?;
    let ranges = ranges(shop.input.spec.network.as_ref());
    let mut direct = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), METADATA_SERVICE.to_owned()];
    direct.extend([ranges.nodes, ranges.pods, ranges.services]);
    direct.extend([".svc".to_owned(), ".cluster.local".to_owned()]);
    direct.extend(proxy.no_proxy.iter().cloned());
    let mut text = "[Service]\n".to_owned();
    let both = [("HTTP_PROXY", &proxy.http), ("HTTPS_PROXY", &proxy.https)];
    for (name, url) in both {
        if let Some(url) = url {
            text = format!("{text}Environment=\"{name}={url}\"\n");
        }
    }
    Some(format!("{text}Environment=\"NO_PROXY={}\"\n", direct.join(",")))
}

/// The user's own come last and so win.
fn own(shop: &Shop<'_>, node: &mut Provision) {
    let nodes = &shop.input.spec.nodes;
    for file in &nodes.extra_files {
        node.files.push(json!({
            "path": file.path,
            "owner": file.owner.as_deref().unwrap_or("root:root"),
            "permissions": file.permissions.as_deref().unwrap_or("0644"),
            "contentFrom": {"secret": {"name": file.value_from.name, "key": file.value_from.key}},
        }));
    }
    node.before.extend(nodes.pre_kubeadm_commands.iter().cloned());
    node.after.extend(nodes.post_kubeadm_commands.iter().cloned());
}
