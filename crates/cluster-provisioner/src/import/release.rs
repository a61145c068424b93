//! Which release's settings these are, and what that release did when a setting was absent.

use super::draft::Draft;
use super::parse::{Settings, list};
use api::provisioning::{
    AntiAffinity, CniType, ControlPlane, EtcdProfile, Image, IngressNginx, Ip, Network, NodePool,
};
use std::fmt;

/// A release of the older scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// R1.
    R1,
    /// R2.
    R2,
    /// R3.
    R3,
    /// R4.
    R4,
    /// R5.
    R5,
    /// R6 and what came after.
    R6,
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The first release that had one of the settings that are there.
pub(super) fn detect(settings: &Settings) -> Release {
    let has = |keys: &[&str]| keys.iter().any(|key| settings.get(key).is_some());
    if has(&["OPENSTACK_CLUSTER_GEN", "PROXY_CMD", "OPENSTACK_CONTROL_PLANE_MACHINE_METADATA"]) {
        return Release::R6;
    }
    if has(&[
        "POD_CIDR",
        "SERVICE_CIDR",
        "DEPLOY_GATEWAY_API",
        "CLUSTER_API_OPENSTACK_INSTANCE_CREATE_TIMEOUT",
    ]) {
        return Release::R5;
    }
    if has(&["RESTRICT_KUBEAPI", "USE_OVN_LB_PROVIDER", "CALICO_VERSION"]) {
        return Release::R4;
    }
    if has(&["CONTROL_PLANE_MACHINE_GEN", "WORKER_MACHINE_GEN"]) {
        return Release::R3;
    }
    let one_server = settings
        .get("OPENSTACK_DNS_NAMESERVERS")
        .is_some_and(|value| !value.contains('[') && list(value).len() == 1);
    if has(&["OPENSTACK_ANTI_AFFINITY", "USE_CILIUM", "DEPLOY_OCCM", "NGINX_INGRESS_PROXY"]) && !one_server {
        return Release::R2;
    }
    if one_server || has(&["DEPLOY_K8S_OPENSTACK_GIT", "DEPLOY_K8S_CINDERCSI_GIT"]) {
        return Release::R1;
    }
    Release::R2
}

/// What the release did when a setting was absent, where it is not what a new cluster does.
pub(super) fn defaults(draft: &mut Draft) {
    let release = draft.release;
    draft.spec.control_plane = ControlPlane { replicas: 1, ..ControlPlane::default() };
    draft.spec.control_plane.etcd.profile =
        if release >= Release::R3 { EtcdProfile::SlowStorage } else { EtcdProfile::Default };
    draft.spec.control_plane.anti_affinity =
        if release >= Release::R2 { AntiAffinity::Hard } else { AntiAffinity::None };
    draft.pool = NodePool {
        replicas: Some(3),
        anti_affinity: if release >= Release::R2 { AntiAffinity::Soft } else { AntiAffinity::None },
        ..NodePool::default()
    };
    let servers = if release == Release::R1 { vec!["9.9.9.9"] } else { vec!["5.1.66.255", "185.150.99.255"] };
    // Ranges are always said: they can be neither added nor changed later.
    draft.spec.network = Some(Network {
        node_cidr: Some("10.8.0.0/20".into()),
        pod_cidr: Some("192.168.0.0/16".into()),
        service_cidr: Some("10.96.0.0/12".into()),
        dns_nameservers: Some(servers.into_iter().map(Ip::from).collect()),
        ..Network::default()
    });
    draft.spec.nodes.image = Image {
        name: Some("ubuntu-capi-image-${KUBERNETES_VERSION}".to_owned()),
        raw: release >= Release::R2,
        ..Image::default()
    };
    draft.spec.addons.cni.kind = if release >= Release::R5 { CniType::Cilium } else { CniType::Calico };
    draft.spec.addons.ingress_nginx =
        IngressNginx { proxy_protocol: release >= Release::R4, ..IngressNginx::default() };
    // A metrics-server of the scripts talks to kubelets whose certificates nobody has signed, and the add-on is
    // theirs until it is switched off and on again; what is removed by hand stays removed.
}
