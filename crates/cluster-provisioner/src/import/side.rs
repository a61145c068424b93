//! Files beside the settings.

use super::draft::{Draft, Files};
use api::provisioning::{ExtraFile, LoadBalancerChoice, Registry};
use serde_json::{Map, Value, json};

/// What the scripts wrote into every cloud.conf, and what the object says by other means.
const USUAL: &[(&str, &str)] = &[
    ("manage-security-groups", "true"),
    ("use-octavia", "true"),
    ("enable-ingress-hostname", "true"),
    ("create-monitor", "true"),
];

pub(super) fn files(draft: &mut Draft, files: &Files) {
    if let Some(text) = &files.cloud_conf {
        cloud_conf(draft, text);
    }
    registries(draft, files);
    if files.has_template {
        draft.note("", "cluster-template.yaml is not read: if you have changed it, say the same with typed fields or spec.patches");
    }
    if let Some(text) = &files.ingress {
        let live = text.contains("use-proxy-protocol: \"true\"");
        if live != draft.spec.addons.ingress_nginx.proxy_protocol {
            let text = format!(
                "the running ingress controller has PROXY protocol {}, the object says {}",
                word(live),
                word(!live)
            );
            draft.warn("NGINX_INGRESS_PROXY", text);
        }
    }
    let addons = &draft.spec.addons;
    if addons.harbor.enabled && !addons.flux.enabled {
        draft.spec.addons.flux.enabled = true;
        draft.note("DEPLOY_FLUX", "switched on, as the scripts did: harbor needs it");
    }
    let public = draft.spec.addons.harbor.enabled && draft.spec.addons.harbor.domain_name.is_some();
    if public && !(draft.spec.addons.cert_manager.enabled && draft.spec.addons.ingress_nginx.enabled) {
        draft.spec.addons.cert_manager.enabled = true;
        draft.spec.addons.ingress_nginx.enabled = true;
        draft.note(
            "DEPLOY_CERT_MANAGER",
            "switched on with the ingress, as the scripts did: a public harbor needs both",
        );
    }
    if draft.spec.addons.harbor.enabled && draft.spec.addons.harbor.persistence {
        draft.spec.addons.cinder_csi.enabled = true;
    }
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// The sections but for the credentials.
fn cloud_conf(draft: &mut Draft, text: &str) {
    let mut section = String::new();
    let mut more: Map<String, Value> = Map::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with(['#', ';'])) else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        if section == "Global" || USUAL.contains(&(key, value)) {
            continue;
        }
        if section == "LoadBalancer" && matches!(key, "lb-provider" | "lb-method") {
            if value == "ovn" {
                draft.spec.addons.cloud_controller_manager.load_balancer = LoadBalancerChoice::Ovn;
            }
            continue;
        }
        let of = more.entry(section.clone()).or_insert_with(|| json!({}));
        of[key] = json!(value);
    }
    draft.spec.addons.cloud_controller_manager.cloud_conf_overrides = more;
}

fn registries(draft: &mut Draft, files: &Files) {
    let secret = format!("{}-containerd", draft.name);
    for (host, text) in &files.registries {
        let config = draft.secret(&secret, &format!("{}.toml", host.replace(':', "-")), text);
        draft.spec.nodes.registries.push(Registry {
            host: host.clone(),
            config_ref: Some(config),
            ..Registry::default()
        });
    }
    for (file, text) in &files.certificates {
        let from = draft.secret(&secret, file, text);
        draft.spec.nodes.extra_files.push(ExtraFile {
            path: format!("/etc/containerd/certs/{file}"),
            permissions: Some("0644".to_owned()),
            owner: None,
            value_from: from,
        });
    }
}
