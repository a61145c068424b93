//! Settings of add-ons, and settings without a successor.

use super::Row;
use super::draft::Draft;
use super::parse::{Switch, boolean, switch};
use super::release::Release;
use api::provisioning::{Addon, CniType, LoadBalancerChoice};

pub(super) const ROWS: &[Row] = &[
    Row { key: "USE_CILIUM", apply: use_cilium },
    Row { key: "CALICO_VERSION", apply: calico_version },
    Row { key: "DEPLOY_OCCM", apply: |draft, value| controller_manager(draft, "DEPLOY_OCCM", value) },
    Row {
        key: "DEPLOY_K8S_OPENSTACK_GIT",
        apply: |draft, value| {
            let old = if value == "true" { "master" } else { "true" };
            controller_manager(draft, "DEPLOY_K8S_OPENSTACK_GIT", old)
        },
    },
    Row {
        key: "DEPLOY_CINDERCSI",
        apply: |draft, value| {
            addon(draft, "DEPLOY_CINDERCSI", value, |draft| &mut draft.spec.addons.cinder_csi)
        },
    },
    Row {
        key: "DEPLOY_K8S_CINDERCSI_GIT",
        apply: |draft, value| {
            let old = if value == "true" { "master" } else { "true" };
            addon(draft, "DEPLOY_K8S_CINDERCSI_GIT", old, |draft| &mut draft.spec.addons.cinder_csi)
        },
    },
    Row {
        key: "DEPLOY_METRICS",
        apply: |draft, value| {
            addon(draft, "DEPLOY_METRICS", value, |draft| &mut draft.spec.addons.metrics_server)
        },
    },
    Row { key: "DEPLOY_NGINX_INGRESS", apply: ingress },
    Row { key: "NGINX_INGRESS_PROXY", apply: ingress_proxy },
    Row { key: "USE_OVN_LB_PROVIDER", apply: ovn },
    Row {
        key: "DEPLOY_GATEWAY_API",
        apply: |draft, value| {
            let wanted = boolean(value)?;
            if wanted && draft.settings.get("USE_CILIUM") == Some("false") {
                return Err("the Gateway API needs Cilium".to_owned());
            }
            draft.spec.addons.cni.gateway_api = wanted;
            Ok(())
        },
    },
    Row {
        key: "DEPLOY_CERT_MANAGER",
        apply: |draft, value| {
            addon(draft, "DEPLOY_CERT_MANAGER", value, |draft| &mut draft.spec.addons.cert_manager)
        },
    },
    Row {
        key: "DEPLOY_FLUX",
        apply: |draft, value| addon(draft, "DEPLOY_FLUX", value, |draft| &mut draft.spec.addons.flux),
    },
    Row {
        key: "DEPLOY_HARBOR",
        apply: |draft, value| {
            draft.spec.addons.harbor.enabled = boolean(value)?;
            Ok(())
        },
    },
    Row {
        key: "HARBOR_DOMAIN_NAME",
        apply: |draft, value| {
            draft.spec.addons.harbor.domain_name = (!value.is_empty()).then(|| value.to_owned());
            Ok(())
        },
    },
    Row {
        key: "HARBOR_ISSUER_EMAIL",
        apply: |draft, value| {
            draft.spec.addons.harbor.issuer_email = (!value.is_empty()).then(|| value.to_owned());
            Ok(())
        },
    },
    Row {
        key: "HARBOR_PERSISTENCE",
        apply: |draft, value| {
            draft.spec.addons.harbor.persistence = boolean(value)?;
            Ok(())
        },
    },
    Row {
        key: "HARBOR_DATABASE_SIZE",
        apply: |draft, value| size(&mut draft.spec.addons.harbor.database_size, value),
    },
    Row {
        key: "HARBOR_REDIS_SIZE",
        apply: |draft, value| size(&mut draft.spec.addons.harbor.redis_size, value),
    },
    Row {
        key: "HARBOR_TRIVY_SIZE",
        apply: |draft, value| size(&mut draft.spec.addons.harbor.trivy_size, value),
    },
];

/// What has no successor in the object, with what to do instead.
pub(super) const DROPPED: &[Row] = &[
    Row {
        key: "OPENSTACK_CONTROL_PLANE_IP",
        apply: |draft, _| told(draft, "OPENSTACK_CONTROL_PLANE_IP", "was never used"),
    },
    Row {
        key: "OLD_OPENSTACK_CLOUD",
        apply: |draft, _| {
            told(
                draft,
                "OLD_OPENSTACK_CLOUD",
                "the section from which the cluster's own credential was made; put it into the Secret of the CloudAccount if new credentials are to be made",
            )
        },
    },
    Row {
        key: "OPENSTACK_CLOUD_PROVIDER_CONF_B64",
        apply: |draft, _| {
            told(
                draft,
                "OPENSTACK_CLOUD_PROVIDER_CONF_B64",
                "no template used it; cloud.conf is read from its own file",
            )
        },
    },
    Row {
        key: "CLUSTER_API_OPENSTACK_INSTANCE_CREATE_TIMEOUT",
        apply: |draft, _| {
            told(
                draft,
                "CLUSTER_API_OPENSTACK_INSTANCE_CREATE_TIMEOUT",
                "belongs to the installation of the infrastructure provider, not to a cluster: set it in the environment of capo-controller-manager",
            )
        },
    },
    Row {
        key: "PROXY_CMD",
        apply: |draft, value| {
            if !value.is_empty() {
                draft.warn("PROXY_CMD", "write the proxy of /etc/profile.d/proxy.sh into spec.nodes.proxy");
            }
            Ok(())
        },
    },
    Row {
        key: "PREFIX",
        apply: |draft, _| {
            told(
                draft,
                "PREFIX",
                "names carry no prefix any more; those of a running cluster are in spec.adopt",
            )
        },
    },
    Row {
        key: "CLUSTER_NAME",
        apply: |draft, value| {
            if value == draft.name {
                return Ok(());
            }
            Err(format!("is {value}, but the directory is that of {}; say which with --name", draft.name))
        },
    },
    Row {
        key: "CILIUM_BINARIES",
        apply: |draft, _| {
            told(
                draft,
                "CILIUM_BINARIES",
                "no program is fetched any more; the version is spec.addons.cni.version",
            )
        },
    },
];

fn told(draft: &mut Draft, key: &str, text: &str) -> Result<(), String> {
    draft.note(key, text);
    if draft.settings.get(key).is_none() {
        return Err("is not there".to_owned());
    }
    Ok(())
}

fn size(field: &mut String, value: &str) -> Result<(), String> {
    if !value.ends_with('i') {
        return Err(format!("{value:?} is no size such as 5Gi"));
    }
    value.clone_into(field);
    Ok(())
}

fn addon(draft: &mut Draft, key: &str, value: &str, of: fn(&mut Draft) -> &mut Addon) -> Result<(), String> {
    let parsed = switch(value)?;
    let field = of(draft);
    field.enabled = parsed != Switch::Off;
    match parsed {
        Switch::On | Switch::Off => {}
        Switch::Version(version) => field.version = version,
        Switch::Master => draft.master(key),
    }
    Ok(())
}

fn use_cilium(draft: &mut Draft, value: &str) -> Result<(), String> {
    let parsed = switch(value)?;
    let cni = &mut draft.spec.addons.cni;
    cni.kind = if parsed == Switch::Off { CniType::Calico } else { CniType::Cilium };
    if let Switch::Version(version) = parsed {
        cni.version = version;
    }
    Ok(())
}

fn calico_version(draft: &mut Draft, value: &str) -> Result<(), String> {
    let Switch::Version(version) = switch(value)? else {
        return Err(format!("{value:?} is no version"));
    };
    // Cilium is the default from R5 on, and then this setting was ignored.
    let cilium = match draft.settings.get("USE_CILIUM") {
        Some(value) => switch(value)? != Switch::Off,
        None => draft.release >= Release::R5,
    };
    if cilium {
        draft.note("CALICO_VERSION", "was ignored, since Cilium is the pod network");
    } else {
        draft.spec.addons.cni.version = version;
    }
    Ok(())
}

/// Without it nodes stay unusable; the scripts stopped half-way.
fn controller_manager(draft: &mut Draft, key: &str, value: &str) -> Result<(), String> {
    match switch(value)? {
        Switch::On => {}
        Switch::Off => draft.warn(key, "stays on: without the cloud controller manager no node takes pods"),
        Switch::Master => draft.master(key),
        Switch::Version(version) => draft.spec.addons.cloud_controller_manager.version = version,
    }
    Ok(())
}

fn ingress(draft: &mut Draft, value: &str) -> Result<(), String> {
    let parsed = switch(value)?;
    let ingress = &mut draft.spec.addons.ingress_nginx;
    ingress.enabled = parsed != Switch::Off;
    if let Switch::Version(version) = parsed {
        ingress.version = version;
    }
    Ok(())
}

/// R2 deployed the other variant by a mistake of its shell; what is documented counts.
fn ingress_proxy(draft: &mut Draft, value: &str) -> Result<(), String> {
    let proxy = boolean(value)?;
    draft.spec.addons.ingress_nginx.proxy_protocol = proxy;
    if !proxy && draft.release == Release::R2 {
        draft.warn("NGINX_INGRESS_PROXY", "R2 used the PROXY protocol although this says false; from now on false means false, so that clients of the load balancer see a change");
    }
    Ok(())
}

fn ovn(draft: &mut Draft, value: &str) -> Result<(), String> {
    let choice = match value {
        "auto" => LoadBalancerChoice::Auto,
        _ if boolean(value)? => LoadBalancerChoice::Ovn,
        _ => LoadBalancerChoice::Default,
    };
    draft.spec.addons.cloud_controller_manager.load_balancer = choice;
    if choice != LoadBalancerChoice::Default {
        // OVN keeps the address of the client, so that neither protocol nor monitor annotation is needed.
        draft.spec.addons.ingress_nginx.health_monitor = false;
    }
    Ok(())
}
