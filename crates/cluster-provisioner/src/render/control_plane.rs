//! The control plane and how kubeadm sets it up.

use super::machines::{self, Servers};
use super::workers::{registration, synced};
use super::{
    CONTROL_PLANE, CORE_VERSION, ControlPlaneParts, Fault, INFRASTRUCTURE, Shop, files, merge, reference,
};
use api::provisioning::{EtcdProfile, Oidc};
use serde_json::{Value, json};

/// From this minor version on an API server refuses to start with a flag for the cloud.
const NO_CLOUD_PROVIDER_FLAG: u32 = 33;

const AUDIT_POLICY: &str = "/etc/kubernetes/audit";
const AUDIT_LOG: &str = "/var/log/kubernetes/audit";
/// The API server's pod sees this folder anyway.
pub(super) const OIDC_CA: &str = "/etc/kubernetes/pki/oidc-ca.crt";

pub(super) fn parts(shop: &Shop<'_>) -> Result<ControlPlaneParts, Fault> {
    let plane = &shop.input.spec.control_plane;
    let servers = Servers {
        pool: None,
        prefix: &shop.names.control_plane,
        flavor: &plane.flavor,
        root_volume: plane.root_volume.as_ref(),
        volumes: &[],
        metadata: &plane.metadata,
    };
    Ok(ControlPlaneParts { machine: machines::template(shop, &servers)?, kubeadm: kubeadm(shop) })
}

fn argument(name: &str, value: impl Into<String>) -> Value {
    json!({"name": name, "value": value.into()})
}

fn kubeadm(shop: &Shop<'_>) -> Value {
    let plane = &shop.input.spec.control_plane;
    let node = registration(&plane.labels, plane.taints.as_deref());
    let mut etcd = json!({"dataDir": "/var/lib/etcd"});
    if plane.etcd.profile == EtcdProfile::SlowStorage {
        etcd["extraArgs"] = json!([
            argument("heartbeat-interval", "250"),
            argument("election-timeout", "2500"),
            argument("snapshot-count", "6400"),
            argument("auto-compaction-mode", "periodic"),
            argument("auto-compaction-retention", "8h"),
        ]);
    }
    let mut spec = json!({
        "clusterConfiguration": {
            "imageRepository": "registry.k8s.io",
            "dns": {"imageRepository": "registry.k8s.io/coredns"},
            "controllerManager": {"extraArgs": [argument("cloud-provider", "external")]},
            "etcd": {"local": etcd},
        },
        "initConfiguration": {"nodeRegistration": node},
        "joinConfiguration": {"nodeRegistration": node},
    });
    // An empty object is refused.
    let server = api_server(shop);
    if server != json!({}) {
        spec["clusterConfiguration"]["apiServer"] = server;
    }
    files::control_plane(shop).put(&mut spec);
    spec
}

fn api_server(shop: &Shop<'_>) -> Value {
    let plane = &shop.input.spec.control_plane;
    let mut arguments = Vec::new();
    let mut volumes = Vec::new();
    if shop.version.0 < NO_CLOUD_PROVIDER_FLAG {
        arguments.push(argument("cloud-provider", "external"));
    }
    if plane.audit.enabled {
        arguments.extend([
            argument("audit-policy-file", format!("{AUDIT_POLICY}/policy.yaml")),
            argument("audit-log-path", format!("{AUDIT_LOG}/audit.log")),
            argument("audit-log-maxage", plane.audit.max_age_days.to_string()),
            argument("audit-log-maxbackup", plane.audit.max_backups.to_string()),
            argument("audit-log-maxsize", plane.audit.max_size_mib.to_string()),
        ]);
        volumes.extend([
            json!({"name": "audit-policy", "hostPath": AUDIT_POLICY, "mountPath": AUDIT_POLICY,
                "readOnly": true, "pathType": "DirectoryOrCreate"}),
            json!({"name": "audit-log", "hostPath": AUDIT_LOG, "mountPath": AUDIT_LOG,
                "pathType": "DirectoryOrCreate"}),
        ]);
    }
    if let Some(oidc) = &plane.oidc {
        arguments.extend(issuer(oidc));
    }
    let mut server = json!({});
    if !arguments.is_empty() {
        server["extraArgs"] = json!(arguments);
    }
    if !volumes.is_empty() {
        server["extraVolumes"] = json!(volumes);
    }
    if !plane.cert_sans.is_empty() {
        server["certSANs"] = json!(plane.cert_sans);
    }
    server
}

fn issuer(oidc: &Oidc) -> Vec<Value> {
    let mut arguments = vec![
        argument("oidc-issuer-url", &oidc.issuer_url),
        argument("oidc-client-id", &oidc.client_id),
        argument("oidc-username-claim", &oidc.username_claim),
    ];
    let optional = [
        ("oidc-username-prefix", &oidc.username_prefix),
        ("oidc-groups-claim", &oidc.groups_claim),
        ("oidc-groups-prefix", &oidc.groups_prefix),
    ];
    for (name, value) in optional {
        arguments.extend(value.as_ref().map(|value| argument(name, value)));
    }
    if oidc.ca_secret_ref.is_some() {
        arguments.push(argument("oidc-ca-file", OIDC_CA));
    }
    arguments
}

/// Cluster API rolls nodes by itself whenever this object changes in a way that matters to them.
pub(super) fn object(shop: &Shop<'_>, parts: &ControlPlaneParts) -> Result<Value, Fault> {
    let plane = &shop.input.spec.control_plane;
    let kind = (CONTROL_PLANE, CORE_VERSION, "KubeadmControlPlane");
    let mut object = shop.object(kind, &shop.names.control_plane);
    let mut template = json!({"spec": {
        "infrastructureRef": reference(INFRASTRUCTURE, "OpenStackMachineTemplate", &parts.machine.name),
        "deletion": {"nodeDrainTimeoutSeconds": 300},
    }});
    if let Some(labels) = synced(&plane.labels) {
        template["metadata"] = json!({"labels": labels});
    }
    let body = json!({"spec": {
        "replicas": plane.replicas,
        "version": shop.version(),
        "rollout": rollout(shop),
        "remediation": remediation(),
        "machineTemplate": template,
        "kubeadmConfigSpec": parts.kubeadm,
    }});
    merge(&mut object, &shop.patched("KubeadmControlPlane", None, body)?);
    Ok(object)
}

pub(super) fn rollout(shop: &Shop<'_>) -> Value {
    let days = shop.input.spec.control_plane.certificates.renew_before_days;
    json!({
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "before": {"certificatesExpiryDays": days},
    })
}

pub(super) fn remediation() -> Value {
    json!({"maxRetry": 3, "retryPeriodSeconds": 1200, "minHealthyPeriodSeconds": 3600})
}
