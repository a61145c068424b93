//! What must be different in each cluster.

use api::provisioning::{AddonName, LoadBalancerChoice, TrafficPolicy, WorkloadClusterSpec};
use serde_json::{Value, json};

/// What objects of add-ons depend on.
pub(crate) struct Facts<'a> {
    /// Name of the cluster in its cloud.
    pub(crate) cluster: &'a str,
    /// The spec.
    pub(crate) spec: &'a WorkloadClusterSpec,
    /// Range of the nodes.
    pub(crate) nodes: &'a str,
    /// The credentials, as `clouds.yaml`, and the section of them.
    pub(crate) clouds: Option<(&'a str, &'a str)>,
}

/// Fits the objects of an add-on to the cluster.
pub(super) fn fit(name: AddonName, facts: &Facts<'_>, objects: &mut Vec<Value>) {
    match name {
        AddonName::CloudControllerManager => {
            cluster_name(facts, objects);
            if let Some(secret) = cloud_config(facts) {
                objects.push(secret);
            }
        }
        AddonName::CinderCsi => cluster_name(facts, objects),
        AddonName::IngressNginx => objects.iter_mut().for_each(|object| ingress(facts, object)),
        AddonName::Cilium
        | AddonName::Calico
        | AddonName::GatewayApi
        | AddonName::MetricsServer
        | AddonName::CertManager
        | AddonName::Flux
        | AddonName::Harbor
        | AddonName::SchedulingAgent => {}
    }
}

/// Load balancers and volumes in the cloud carry the name of their cluster, by which leftovers are told.
fn cluster_name(facts: &Facts<'_>, objects: &mut [Value]) {
    let containers =
        objects.iter_mut().filter_map(|object| object.pointer_mut("/spec/template/spec/containers"));
    let lists = containers.filter_map(Value::as_array_mut).flatten();
    for container in lists {
        for variable in container["env"].as_array_mut().into_iter().flatten() {
            if variable["name"] == "CLUSTER_NAME" {
                variable["value"] = json!(facts.cluster);
            }
        }
        for argument in container["args"].as_array_mut().into_iter().flatten() {
            if argument.as_str().is_some_and(|text| text.starts_with("--cluster-name=")) {
                *argument = json!(format!("--cluster-name={}", facts.cluster));
            }
        }
    }
}

/// The Secret that the controllers of the cloud read.
fn cloud_config(facts: &Facts<'_>) -> Option<Value> {
    let (text, section) = facts.clouds?;
    let clouds: Value = serde_yaml::from_str(text).ok()?;
    let cloud = &clouds["clouds"][section];
    let auth = cloud["auth"].as_object()?;
    let mut lines = vec!["[Global]".to_owned()];
    let known = [
        ("auth_url", "auth-url"),
        ("application_credential_id", "application-credential-id"),
        ("application_credential_name", "application-credential-name"),
        ("application_credential_secret", "application-credential-secret"),
        ("username", "username"),
        ("password", "password"),
        ("project_id", "tenant-id"),
        ("project_name", "tenant-name"),
        ("user_domain_name", "user-domain-name"),
        ("project_domain_name", "tenant-domain-name"),
    ];
    for (theirs, ours) in known {
        if let Some(value) = auth.get(theirs).and_then(Value::as_str) {
            lines.push(format!("{ours}={value}"));
        }
    }
    if let Some(region) = cloud["region_name"].as_str() {
        lines.push(format!("region={region}"));
    }
    let mut sections = json!({"LoadBalancer": {"use-octavia": "true", "manage-security-groups": "true",
        "enable-ingress-hostname": "true"}});
    let manager = &facts.spec.addons.cloud_controller_manager;
    if manager.load_balancer == LoadBalancerChoice::Ovn {
        let ovn = json!({"lb-provider": "ovn", "lb-method": "SOURCE_IP_PORT", "create-monitor": "true"});
        json_patch::merge(&mut sections["LoadBalancer"], &ovn);
    }
    json_patch::merge(&mut sections, &Value::Object(manager.cloud_conf_overrides.clone()));
    for (section, values) in sections.as_object().into_iter().flatten() {
        lines.push(format!("[{section}]"));
        for (key, value) in values.as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            lines.push(format!("{key}={value}"));
        }
    }
    Some(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "cloud-config", "namespace": "kube-system"},
        "stringData": {"cloud.conf": format!("{}\n", lines.join("\n"))},
    }))
}

/// With OVN the load balancer keeps the client's address, and its monitors come from cloud.conf.
fn ingress(facts: &Facts<'_>, object: &mut Value) {
    if object["metadata"]["name"] != "ingress-nginx-controller" {
        return;
    }
    let ingress = &facts.spec.addons.ingress_nginx;
    let ovn = facts.spec.addons.cloud_controller_manager.load_balancer == LoadBalancerChoice::Ovn;
    let proxy = ingress.proxy_protocol && !ovn;
    match object["kind"].as_str() {
        Some("Service") => {
            let policy = match ingress.external_traffic_policy {
                TrafficPolicy::Local => "Local",
                TrafficPolicy::Cluster => "Cluster",
            };
            object["spec"]["type"] = json!("LoadBalancer");
            object["spec"]["externalTrafficPolicy"] = json!(policy);
            let annotations = &mut object["metadata"]["annotations"];
            if proxy {
                annotations["loadbalancer.openstack.org/proxy-protocol"] = json!("true");
            }
            if ingress.health_monitor && !ovn {
                annotations["loadbalancer.openstack.org/enable-health-monitor"] = json!("true");
            }
        }
        Some("ConfigMap") if proxy => {
            object["data"]["use-proxy-protocol"] = json!("true");
            object["data"]["proxy-real-ip-cidr"] = json!(facts.nodes);
        }
        _other => {}
    }
}
