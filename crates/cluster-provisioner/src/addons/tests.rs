//! Which add-ons a spec asks for, and what their objects become.

use super::{Facts, Wanted, content, is_sum, wanted};
use crate::catalog::Catalog;
use api::provisioning::{AddonName, AddonVersion, WorkloadClusterSpec};
use serde_json::{Value, json};

fn spec(addons: &Value) -> WorkloadClusterSpec {
    serde_json::from_value(json!({
        "kubernetes": {"version": "v1.33.4"}, "cloudRef": {"name": "c"}, "controlPlane": {"flavor": "f"},
        "addons": addons,
    }))
    .unwrap()
}

fn names(addons: &Value) -> Vec<&'static str> {
    let all = wanted(&spec(addons), &Catalog::default(), "v1.33.4");
    all.into_iter().map(|one| one.name.as_str()).collect()
}

#[test]
fn the_network_comes_first_and_the_cloud_second() {
    let usual = ["cilium", "cloud-controller-manager", "cinder-csi", "metrics-server", "ingress-nginx"];
    assert_eq!(names(&json!({})), usual);
    let all = json!({"cni": {"type": "Calico"}, "cinderCSI": {"enabled": false}, "metricsServer": {"enabled": false},
        "ingressNginx": {"enabled": false}, "certManager": {"enabled": true}});
    assert_eq!(names(&all), ["calico", "cloud-controller-manager", "cert-manager"]);
    assert_eq!(names(&json!({"cni": {"type": "None"}}))[0], "cloud-controller-manager");
    assert_eq!(names(&json!({"cni": {"gatewayAPI": true}}))[1], "gateway-api");
}

fn made(name: AddonName, addons: &Value, text: &str) -> Result<Vec<Value>, String> {
    let spec = spec(addons);
    let entry = AddonVersion { name, version: "v1.0.0".to_owned(), ..AddonVersion::default() };
    let clouds = "clouds: {gx: {auth: {auth_url: https://k, application_credential_id: i, application_credential_secret: s}, region_name: R}}";
    let facts = Facts { cluster: "prod", spec: &spec, nodes: "10.8.0.0/20", clouds: Some((clouds, "gx")) };
    let all = wanted(&spec, &Catalog::default(), "v1.33.4");
    let ask = all.into_iter().find(|one| one.name == name).unwrap_or(Wanted {
        name,
        version: "auto".to_owned(),
        values: serde_json::Map::new(),
    });
    content(&entry, &ask, &[text.to_owned()], &facts).map(|content| content.objects)
}

#[test]
fn objects_come_in_waves_and_carry_the_name_of_their_add_on() {
    let text = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
---
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: space}}
- {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: definition}}
";
    let objects = made(AddonName::Flux, &json!({}), text).unwrap();
    let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["CustomResourceDefinition", "Namespace", "Deployment"]);
    assert_eq!(objects[0]["metadata"]["labels"][api::provisioning::ADDON], "flux");
}

#[test]
fn a_manifest_that_is_none_is_refused() {
    assert!(made(AddonName::Flux, &json!({}), "kind: Nameless").is_err());
    assert!(made(AddonName::Flux, &json!({}), "a: [").is_err());
}

#[test]
fn the_users_values_are_merged_into_the_object_that_they_name() {
    let addons =
        json!({"certManager": {"enabled": true, "values": {"Deployment/d": {"spec": {"replicas": 3}}}}});
    let text =
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 1, paused: true}}";
    let objects = made(AddonName::CertManager, &addons, text).unwrap();
    assert_eq!(objects[0]["spec"], json!({"replicas": 3, "paused": true}));
}

#[test]
fn the_cloud_controllers_know_the_cluster_and_its_credentials() {
    let text = "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: occm, namespace: kube-system}, spec: {template: {spec: {containers: [{name: c, args: [--cluster-name=x, --v=1], env: [{name: CLUSTER_NAME, value: kubernetes}]}]}}}}";
    let ovn = json!({"cloudControllerManager": {"loadBalancer": "OVN", "cloudConfOverrides": {"LoadBalancer": {"max-shared-lb": "3"}}}});
    let objects = made(AddonName::CloudControllerManager, &ovn, text).unwrap();
    let secret = objects.iter().find(|object| object["kind"] == "Secret").unwrap();
    let conf = secret["stringData"]["cloud.conf"].as_str().unwrap();
    for line in
        ["application-credential-id=i", "region=R", "[LoadBalancer]", "lb-provider=ovn", "max-shared-lb=3"]
    {
        assert!(conf.lines().any(|found| found == line), "{line}: {conf}");
    }
    let set = objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"], json!(["--cluster-name=prod", "--v=1"]));
    assert_eq!(container["env"][0]["value"], "prod");
}

const INGRESS: &str =
    "{apiVersion: v1, kind: Service, metadata: {name: ingress-nginx-controller, namespace: i}, spec: {}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: ingress-nginx-controller, namespace: i}}
";

#[test]
fn the_ingress_has_the_variant_that_the_switches_say() {
    let of = |addons: Value| {
        let objects = made(AddonName::IngressNginx, &addons, INGRESS).unwrap();
        let service = objects.iter().find(|object| object["kind"] == "Service").unwrap().clone();
        let map = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap()["data"].clone();
        let has = |name: &str| {
            service["metadata"]["annotations"][format!("loadbalancer.openstack.org/{name}")] == "true"
        };
        (
            has("proxy-protocol"),
            has("enable-health-monitor"),
            service["spec"]["externalTrafficPolicy"].clone(),
            map,
        )
    };
    let data = json!({"use-proxy-protocol": "true", "proxy-real-ip-cidr": "10.8.0.0/20"});
    assert_eq!(of(json!({})), (true, true, json!("Local"), data));
    let plain = json!({"ingressNginx": {"proxyProtocol": false, "externalTrafficPolicy": "Cluster"}});
    assert_eq!(of(plain), (false, true, json!("Cluster"), Value::Null));
    let ovn = json!({"cloudControllerManager": {"loadBalancer": "OVN"}});
    assert_eq!(of(ovn), (false, false, json!("Local"), Value::Null));
}

#[test]
fn a_checksum_is_that_of_the_text() {
    assert!(is_sum("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    assert!(!is_sum("abd", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
}
