//! WorkloadClusters and what belongs to them, as users meet them: what is refused at once and why.

use anyhow::{Context as _, Result};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::setup::SOURCE;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::installed::installed;
use crate::scene::{refused, remove_namespace, try_create};

const GROUP_VERSION: &str = "provisioning.multicluster-scheduler.io/v1alpha1";

/// A cluster as most are.
fn declared() -> Value {
    json!({
        "kubernetes": {"version": "v1.28.7"},
        "cloudRef": {"name": "gx"},
        "network": {"nodeCIDR": "10.8.0.0/20", "podCIDR": "192.168.0.0/16", "serviceCIDR": "10.96.0.0/12",
            "dnsNameservers": ["192.0.2.53"], "externalNetwork": {"name": "public"}},
        "controlPlane": {"replicas": 3, "flavor": "SCS-2V-4-20s"},
        "nodePools": [{"name": "md-0", "replicas": 3, "flavor": "SCS-2V-4-20s"}],
        "adopt": {"names": {"cluster": "x"}},
    })
}

/// Sets the field at a path such as `/a/b/0`, or removes it.
fn set(spec: &mut Value, path: &str, value: Value) {
    let mut at = spec;
    let mut words = path.split('/').skip(1).peekable();
    while let Some(word) = words.next() {
        let last = words.peek().is_none();
        at = match (at, word.parse::<usize>()) {
            (Value::Array(items), Ok(index)) => &mut items[index],
            (Value::Object(fields), _) if last && value.is_null() => {
                fields.remove(word);
                return;
            }
            (at, _) => &mut at[word],
        };
    }
    *at = value;
}

/// What is asked for, and words of the refusal; `None`: it is accepted.
type Row = (&'static str, Value, Option<&'static str>);

fn creations() -> Vec<Row> {
    let sum = "a".repeat(64);
    let operation = |path: &str| json!([{"target": {"kind": "Cluster"}, "jsonPatch": [{"op": "add", "path": path, "value": 1}]}]);
    vec![
        ("/paused", json!(false), None),
        ("/nodePools", json!([]), None),
        ("/nodePools/0/name", json!("b".repeat(24)), None),
        ("/nodePools/0/name", json!("b".repeat(25)), Some("nodePools")),
        ("/nodePools/0/autoscale", json!({"min": 1, "max": 3}), Some("either replicas or autoscale")),
        ("/nodePools/0/replicas", Value::Null, Some("either replicas or autoscale")),
        ("/nodePools/0/taints", json!([{"key": "a", "effect": "Nope"}]), Some("effect")),
        ("/network/serviceCIDR", json!("10.8.0.0/16"), Some("service and node ranges must not overlap")),
        ("/network/podCIDR", json!("10.0.0.0/8"), Some("must not overlap")),
        ("/network/nodeCIDR", json!("somewhere"), Some("must be a CIDR")),
        ("/network/dnsNameservers", json!(["name"]), Some("must be an IP address")),
        ("/network/mtu", json!(100), Some("at least 576")),
        ("/network/existing", json!({"subnets": [{"name": "s"}]}), Some("nodeCIDR cannot be combined")),
        ("/network/existing", json!({"router": {"name": "s", "id": "x"}}), Some("router")),
        ("/nodes/image", json!({"url": "https://x/y"}), Some("needs its sha256")),
        ("/nodes/image", json!({"url": "https://x/y", "sha256": sum}), None),
        ("/nodes/image", json!({"id": "xx", "name": "yy"}), Some("excludes name and url")),
        ("/credentials", json!({"lifetimeDays": 10, "rotateBeforeDays": 14}), Some("below lifetimeDays")),
        ("/credentials", json!({"lifetimeDays": 0}), None),
        ("/patches", operation("/status/x"), Some("path")),
        ("/patches", operation("/spec/x"), None),
        ("/controlPlane/replicas", json!(2), Some("odd number")),
        ("/controlPlane/etcd", json!({"defragSchedule": "25:00"}), Some("defragSchedule")),
        ("/controlPlane/audit", json!({"enabled": true}), Some("policyRef")),
        ("/controlPlane/apiAccess", json!({"mode": "CIDRs"}), Some("exactly when mode is CIDRs")),
        ("/controlPlane/apiAccess", json!({"mode": "CIDRs", "cidrs": ["192.0.2.0/24"]}), None),
        (
            "/controlPlane/apiAccess",
            json!({"mode": "CIDRs", "cidrs": ["192.0.2.0/24"], "loadBalancerProvider": "ovn"}),
            Some("cannot filter"),
        ),
        ("/addons/cni", json!({"type": "Calico", "gatewayAPI": true}), Some("needs Cilium")),
        ("/addons/harbor", json!({"enabled": true}), Some("harbor needs flux")),
        ("/addons", json!({"harbor": {"enabled": true}, "flux": {"enabled": true}}), None),
        ("/addons/cinderCSI", json!({"version": "master"}), Some("version")),
    ]
}

fn changes() -> Vec<Row> {
    vec![
        ("/kubernetes/version", json!("v1.28.9"), None),
        ("/kubernetes/version", json!("v1.29.x"), None),
        ("/kubernetes/version", json!("v1.30.x"), Some("one minor version at a time")),
        ("/kubernetes/version", json!("v1.27.x"), Some("one minor version at a time")),
        ("/kubernetes/version", json!("v1.28.3"), Some("cannot go back")),
        ("/network/podCIDR", Value::Null, Some("cannot be added or removed")),
        ("/network/podCIDR", json!("172.16.0.0/16"), Some("podCIDR cannot be changed")),
        ("/network", Value::Null, Some("network cannot be removed")),
        ("/cloudRef/name", json!("other"), Some("the cloud cannot be changed")),
        ("/adopt/names/cluster", json!("yy"), Some("adopt cannot be changed")),
        ("/addons/cni", json!({"type": "Calico"}), Some("needs migration")),
        ("/addons/cni", json!({"type": "Calico", "migration": "Disruptive"}), None),
        ("/addons/ingressNginx", json!({"enabled": false}), None),
        ("/rendering", json!("Topology"), None),
        ("/controlPlane/replicas", json!(5), None),
    ]
}

async fn change(cluster: &Cluster, namespace: &str, spec: &Value) -> Result<()> {
    let api = cluster.dynamic(GROUP_VERSION, "WorkloadCluster", Some(namespace));
    let object = json!({"apiVersion": GROUP_VERSION, "kind": "WorkloadCluster", "metadata": {"name": "old"}, "spec": spec});
    let mut parameters = PatchParams::apply("e2e").force();
    parameters.dry_run = true;
    Ok(api.patch("old", &parameters, &Patch::Apply(object)).await.map(drop)?)
}

pub(crate) async fn declared_clusters_are_accepted_or_refused_with_their_reason(
    ground: &Ground,
) -> Result<()> {
    installed(ground).await?;
    let (source, namespace) = (ground.cluster(SOURCE)?, "declared");
    source.create_namespace(namespace, &[]).await?;
    let kind = (GROUP_VERSION, "WorkloadCluster");
    for (path, value, wrong) in creations() {
        let shown = format!("a cluster with {path} {value}");
        let mut spec = declared();
        set(&mut spec, path, value);
        let object = json!({"metadata": {"name": "new"}, "spec": spec});
        judge(try_create(source, Some(namespace), kind, object).await.map(drop), wrong).context(shown)?;
    }
    let long = json!({"metadata": {"name": "a".repeat(40)}, "spec": {
        "kubernetes": {"version": "v1.28.7"}, "cloudRef": {"name": "gx"}, "controlPlane": {"flavor": "f"},
        "nodePools": [{"name": "elevenchars", "replicas": 1, "flavor": "f"}],
    }});
    refused(try_create(source, Some(namespace), kind, long).await, &["must not exceed 50"])?;
    let api = source.dynamic(GROUP_VERSION, "WorkloadCluster", Some(namespace));
    let object = json!({"apiVersion": GROUP_VERSION, "kind": "WorkloadCluster", "metadata": {"name": "old"}, "spec": declared()});
    api.patch("old", &PatchParams::apply("e2e"), &Patch::Apply(object)).await.context("the old one")?;
    for (path, value, wrong) in changes() {
        let shown = format!("{path} becomes {value}");
        let mut spec = declared();
        set(&mut spec, path, value);
        judge(change(source, namespace, &spec).await, wrong).context(shown)?;
    }
    remove_namespace(source, namespace).await
}

fn judge(outcome: Result<()>, wrong: Option<&str>) -> Result<()> {
    match wrong {
        None => outcome.context("it was refused"),
        Some(words) => refused(outcome, &[words]),
    }
}

pub(crate) async fn images_accounts_and_catalogues_are_refused_with_their_reason(
    ground: &Ground,
) -> Result<()> {
    installed(ground).await?;
    let source = ground.cluster(SOURCE)?;
    let sum = "a".repeat(64);
    let of = |manifest: Value| json!({"addons": [{"name": "cilium", "version": "v1.15.1", "manifests": [manifest]}]});
    let cases: [(&str, Value, Option<&str>); 9] = [
        ("CloudAccount", json!({"cloudsYaml": {"name": "s", "key": "clouds.yaml"}}), None),
        ("CloudAccount", json!({"cloudName": "gx"}), Some("cloudsYaml")),
        ("NodeImage", json!({"cloudRef": {"name": "gx"}, "name": "img"}), None),
        (
            "NodeImage",
            json!({"cloudRef": {"name": "gx"}, "name": "img", "url": "https://x/y"}),
            Some("needs its sha256"),
        ),
        ("ReleaseCatalog", json!({"kubernetes": [{"version": "v1.33.4"}]}), None),
        ("ReleaseCatalog", json!({"kubernetes": [{"version": "v1.33.x"}]}), Some("version")),
        ("ReleaseCatalog", of(json!({"url": "https://x/y", "sha256": sum})), None),
        ("ReleaseCatalog", of(json!({"url": "https://x/y"})), Some("needs its sha256")),
        ("ReleaseCatalog", of(json!({})), Some("either url or configMap")),
    ];
    for (kind, spec, wrong) in cases {
        let namespace = (kind != "ReleaseCatalog").then_some("default");
        let shown = format!("{kind} with {spec}");
        let object = json!({"metadata": {"name": "tried"}, "spec": spec});
        let outcome = try_create(source, namespace, (GROUP_VERSION, kind), object).await.map(drop);
        judge(outcome, wrong).context(shown)?;
    }
    Ok(())
}
