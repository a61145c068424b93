//! What a spec becomes, and which names stay.

use super::{CONTROL_PLANE_GROUP, Fault, Input, Rendered, render};
use api::provisioning::{CloudAccountSpec, Resolved, WorkloadClusterSpec};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The least that is a spec.
fn least() -> Value {
    json!({
        "kubernetes": {"version": "v1.33.x"},
        "cloudRef": {"name": "cloud"},
        "controlPlane": {"flavor": "plane", "replicas": 3},
        "nodePools": [{"name": "md-0", "flavor": "worker", "replicas": 3}],
        "nodes": {"image": {"name": "image-${KUBERNETES_VERSION}"}},
    })
}

fn with(changes: &Value) -> Value {
    let mut spec = least();
    super::merge(&mut spec, changes);
    spec
}

fn try_render(spec: &Value, version: &str) -> Result<Rendered, Fault> {
    let spec: WorkloadClusterSpec = serde_json::from_value(spec.clone()).unwrap();
    let account: CloudAccountSpec = serde_json::from_value(json!({
        "cloudsYaml": {"name": "s", "key": "clouds.yaml"}, "dnsNameservers": ["192.0.2.53"],
    }))
    .unwrap();
    let resolved = Resolved { kubernetes_version: Some(version.to_owned()), ..Resolved::default() };
    let groups = BTreeMap::from([(CONTROL_PLANE_GROUP.to_owned(), "group-1".to_owned())]);
    render(&Input {
        name: "prod1",
        namespace: "team",
        uid: "uid-1",
        spec: &spec,
        account: &account,
        resolved: &resolved,
        server_groups: &groups,
    })
}

fn rendered(changes: &Value) -> Rendered {
    try_render(&with(changes), "v1.33.4").unwrap()
}

fn names(rendered: &Rendered) -> Vec<String> {
    let name = |object: &Value| {
        format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
    };
    rendered.objects.iter().map(name).collect()
}

fn object<'a>(rendered: &'a Rendered, kind: &str) -> &'a Value {
    rendered.objects.iter().find(|object| object["kind"] == kind).unwrap()
}

/// Which names differ from those of the least spec.
fn renamed(changes: &Value) -> Vec<String> {
    let old = names(&rendered(&json!({})));
    names(&rendered(changes)).into_iter().filter(|name| !old.contains(name)).collect()
}

/// A change of one of these lines replaces every node of every cluster of every user with the next release.
#[test]
fn golden_names_of_templates_stay() {
    let all = json!({
        "controlPlane": {
            "rootVolume": {"sizeGiB": 20}, "metadata": {"a": "b"}, "certSANs": ["api.example"],
            "audit": {"enabled": true, "policyRef": {"name": "audit", "key": "policy.yaml"}},
            "oidc": {"issuerURL": "https://issuer.example", "clientID": "id"},
            "labels": {"a": "b"}, "taints": [], "etcd": {"unsafeFilesystem": true},
        },
        "nodes": {
            "sshKeyName": "key", "registries": [{"host": "docker.io", "mirrors": ["https://m.example"]}],
            "proxy": {"http": "http://p.example:3128"}, "preKubeadmCommands": ["true"],
            "extraFiles": [{"path": "/etc/x", "valueFrom": {"name": "s", "key": "k"}}],
        },
    });
    let mut pool = all.clone();
    pool["nodePools"] = json!([{
        "name": "md-0", "flavor": "worker", "autoscale": {"min": 1, "max": 5}, "zone": "az1",
        "labels": {"a": "b", "node-role.kubernetes.io/x": ""}, "metadata": {"c": "d"},
        "taints": [{"key": "k", "effect": "NoSchedule"}],
        "additionalVolumes": [{"name": "data", "sizeGiB": 10, "type": "fast"}],
    }]);
    let shown = |changes: &Value| {
        let names = names(&rendered(changes));
        names.into_iter().filter(|name| name.contains("Template")).collect::<Vec<_>>()
    };
    assert_eq!(
        shown(&json!({})),
        [
            "OpenStackMachineTemplate prod1-control-plane-3bbc44f8",
            "OpenStackMachineTemplate prod1-md-0-042a1e54",
            "KubeadmConfigTemplate prod1-md-0-249cfaff",
        ]
    );
    assert_eq!(
        shown(&pool),
        [
            "OpenStackMachineTemplate prod1-control-plane-30e716f2",
            "OpenStackMachineTemplate prod1-md-0-86369161",
            "KubeadmConfigTemplate prod1-md-0-d914cfc8",
        ]
    );
}

#[test]
fn what_is_referred_to_comes_before_what_refers_to_it() {
    let made = rendered(&json!({}));
    let kinds: Vec<_> = made.objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "OpenStackCluster",
            "OpenStackMachineTemplate",
            "KubeadmControlPlane",
            "Cluster",
            "OpenStackMachineTemplate",
            "KubeadmConfigTemplate",
            "MachineDeployment",
            "MachineHealthCheck",
            "MachineHealthCheck",
        ]
    );
    let plane = object(&made, "KubeadmControlPlane");
    let template = plane["spec"]["machineTemplate"]["spec"]["infrastructureRef"]["name"].as_str().unwrap();
    assert_eq!(made.templates[CONTROL_PLANE_GROUP], template);
}

#[test]
fn every_object_says_whose_it_is() {
    for object in rendered(&json!({})).objects {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["provisioning.multicluster-scheduler.io/cluster-uid"], "uid-1", "{object}");
        assert_eq!(object["metadata"]["namespace"], "team");
    }
    let made = rendered(&json!({}));
    assert_eq!(object(&made, "OpenStackCluster")["spec"]["tags"], json!(["multicluster-scheduler=uid-1"]));
}

#[test]
fn case_125_a_change_of_numbers_labels_or_checks_replaces_no_node() {
    for changes in [
        json!({"controlPlane": {"replicas": 5}}),
        json!({"nodePools": [{"name": "md-0", "flavor": "worker", "replicas": 9}]}),
        json!({"nodePools": [{"name": "md-0", "flavor": "worker", "replicas": 3, "labels": {"node-role.kubernetes.io/x": ""}}]}),
        json!({"nodePools": [{"name": "md-0", "flavor": "worker", "replicas": 3, "healthCheck": {"unhealthySeconds": 600}}]}),
        json!({"network": {"dnsNameservers": ["192.0.2.54"]}}),
        json!({"nodes": {"sshAccessCIDRs": ["192.0.2.0/24"]}}),
        json!({"addons": {"cinderCSI": {"enabled": false}}}),
        json!({"target": {"register": "Disabled"}, "deletion": {"protected": true}}),
    ] {
        assert_eq!(renamed(&changes), Vec::<String>::new(), "{changes}");
    }
}

#[test]
fn a_change_of_one_pool_renames_its_templates_and_no_others() {
    let changed = renamed(&json!({"nodePools": [{"name": "md-0", "flavor": "bigger", "replicas": 3}]}));
    assert_eq!(changed.len(), 1);
    assert!(changed[0].starts_with("OpenStackMachineTemplate prod1-md-0-"), "{changed:?}");
    let changed = renamed(
        &json!({"nodePools": [{"name": "md-0", "flavor": "worker", "replicas": 3, "labels": {"a": "b"}}]}),
    );
    assert!(changed.len() == 1 && changed[0].starts_with("KubeadmConfigTemplate"), "{changed:?}");
    let changed = renamed(&json!({"controlPlane": {"flavor": "bigger"}}));
    assert!(changed.len() == 1 && changed[0].contains("control-plane"), "{changed:?}");
}

#[test]
fn case_125_version_and_template_change_in_one_object() {
    let old = rendered(&json!({}));
    let new = try_render(&least(), "v1.34.0").unwrap();
    let plane = |of: &Rendered| object(of, "KubeadmControlPlane")["spec"].clone();
    assert_ne!(plane(&old)["version"], plane(&new)["version"]);
    assert_ne!(
        plane(&old)["machineTemplate"]["spec"]["infrastructureRef"],
        plane(&new)["machineTemplate"]["spec"]["infrastructureRef"]
    );
}

#[test]
fn the_order_of_keys_does_not_count() {
    let one = json!({"nodes": {"sshKeyName": "k"}, "controlPlane": {"metadata": {"a": "1", "b": "2"}}});
    let other = json!({"controlPlane": {"metadata": {"b": "2", "a": "1"}}, "nodes": {"sshKeyName": "k"}});
    assert_eq!(names(&rendered(&one)), names(&rendered(&other)));
}

#[test]
fn an_api_server_of_today_does_not_get_the_flag_of_the_cloud() {
    let flags = |version: &str| {
        let made = try_render(&least(), version).unwrap();
        let server = &object(&made, "KubeadmControlPlane")["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]
            ["apiServer"];
        server["extraArgs"].clone()
    };
    assert_eq!(flags("v1.32.9"), json!([{"name": "cloud-provider", "value": "external"}]));
    assert_eq!(flags("v1.33.0"), Value::Null);
}

#[test]
fn an_autoscaler_sets_the_number_of_nodes_itself() {
    let pool =
        json!({"nodePools": [{"name": "md-0", "flavor": "worker", "autoscale": {"min": 1, "max": 5}}]});
    let made = rendered(&pool);
    let deployment = object(&made, "MachineDeployment");
    assert_eq!(deployment["spec"].get("replicas"), None);
    let annotations = &deployment["metadata"]["annotations"];
    assert_eq!(annotations["cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"], "5");
}

#[test]
fn both_pod_networks_get_through_while_one_is_exchanged() {
    let rules = |cni: Value| {
        let made = rendered(&json!({"addons": {"cni": cni}}));
        let groups = &object(&made, "OpenStackCluster")["spec"]["managedSecurityGroups"];
        groups["allNodesSecurityGroupRules"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(rules(json!({"type": "Cilium"})), 3);
    assert_eq!(rules(json!({"type": "Calico"})), 2);
    assert_eq!(rules(json!({"type": "Calico", "migration": "Disruptive"})), 5);
    assert_eq!(rules(json!({"type": "None"})), 0);
}

#[test]
fn a_restriction_that_would_lock_the_provisioner_out_is_refused() {
    let spec = with(&json!({"controlPlane": {"apiAccess": {"mode": "InternalOnly"}}}));
    assert_eq!(try_render(&spec, "v1.33.4"), Err(Fault::LockedOut));
}

#[test]
fn the_audit_log_has_its_policy_its_flags_and_its_folders() {
    let made = rendered(
        &json!({"controlPlane": {"audit": {"enabled": true, "policyRef": {"name": "a", "key": "p"}}}}),
    );
    let kubeadm = &object(&made, "KubeadmControlPlane")["spec"]["kubeadmConfigSpec"];
    let server = &kubeadm["clusterConfiguration"]["apiServer"];
    assert_eq!(
        server["extraArgs"][0],
        json!({"name": "audit-policy-file", "value": "/etc/kubernetes/audit/policy.yaml"})
    );
    assert_eq!(server["extraVolumes"].as_array().unwrap().len(), 2);
    assert_eq!(kubeadm["files"][0]["contentFrom"]["secret"], json!({"name": "a", "key": "p"}));
}

#[test]
fn a_proxy_is_not_used_for_the_clusters_own_addresses() {
    let made = rendered(&json!({"nodes": {"proxy": {"http": "http://p:3128", "noProxy": ["own.example"]}}}));
    let file =
        object(&made, "KubeadmConfigTemplate")["spec"]["template"]["spec"]["files"][0]["content"].clone();
    let file = file.as_str().unwrap();
    for range in ["10.8.0.0/20", "192.168.0.0/16", "10.96.0.0/12", "169.254.169.254", "own.example"] {
        assert!(file.contains(range), "{file}");
    }
}

fn patch(kind: &str, operation: &Value) -> Value {
    json!({"patches": [{"target": {"kind": kind}, "jsonPatch": [operation]}]})
}

#[test]
fn a_patch_is_the_last_word_and_part_of_the_name() {
    let configuration = json!({"op": "add", "path": "/spec/template/spec/configDrive", "value": true});
    let changed = renamed(&patch("OpenStackMachineTemplate", &configuration));
    assert!(changed.len() == 1 && changed[0].contains("control-plane"), "{changed:?}");
    let made = rendered(&patch("OpenStackMachineTemplate", &configuration));
    assert_eq!(object(&made, "OpenStackMachineTemplate")["spec"]["template"]["spec"]["configDrive"], true);
    assert_eq!(made.patched, ["OpenStackMachineTemplate"]);
    let deep = json!({"op": "add", "path": "/metadata/annotations/own.example~1a", "value": "b"});
    let made = rendered(&patch("Cluster", &deep));
    assert_eq!(object(&made, "Cluster")["metadata"]["annotations"]["own.example/a"], "b");
}

#[test]
fn a_patch_may_not_say_which_object_is_which() {
    for path in ["/spec/infrastructureRef/name", "/spec/controlPlaneRef", "/spec/paused"] {
        let operation = json!({"op": "add", "path": path, "value": "x"});
        let outcome = try_render(&with(&patch("Cluster", &operation)), "v1.33.4");
        assert!(matches!(outcome, Err(Fault::Patch { index: 0, .. })), "{path}: {outcome:?}");
    }
    let whole = json!({"op": "replace", "path": "/spec/machineTemplate", "value": {}});
    let outcome = try_render(&with(&patch("KubeadmControlPlane", &whole)), "v1.33.4");
    assert!(matches!(outcome, Err(Fault::Patch { .. })), "{outcome:?}");
}

#[test]
fn case_128_what_exists_is_referred_to_and_not_made() {
    let made = rendered(&json!({"network": {"existing": {
        "network": {"id": "n"}, "router": {"name": "r"}, "subnets": [{"id": "s"}],
    }}}));
    let cloud = &object(&made, "OpenStackCluster")["spec"];
    assert_eq!(cloud["router"], json!({"filter": {"name": "r"}}));
    assert_eq!(cloud["subnets"], json!([{"id": "s"}]));
    assert_eq!(cloud.get("managedSubnets"), None);
}

#[test]
fn a_topology_has_the_same_machines() {
    let plain = rendered(&json!({}));
    let topology = rendered(&json!({"rendering": "Topology"}));
    assert_eq!(plain.templates, topology.templates);
    let class = object(&topology, "ClusterClass");
    let machines = &class["spec"]["controlPlane"]["machineInfrastructure"]["templateRef"]["name"];
    assert_eq!(*machines, plain.templates[CONTROL_PLANE_GROUP]);
    assert_eq!(object(&topology, "Cluster")["spec"]["topology"]["version"], "v1.33.4");
}

/// The script runs in a world of fake programs; what it would do is written down.
#[test]
fn etcd_is_defragmented_follower_by_follower_and_the_leader_last() {
    let folder = std::env::temp_dir().join(format!("etcd-maintenance-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let fake = r#"#!/bin/sh
if [ "$1" = ps ]; then echo c1; exit 0; fi
shift 3
said=
while [ $# -gt 0 ]; do
  case $1 in --cacert=*|--cert=*|--key=*|--command-timeout=*) ;; *) said="$said $1" ;; esac
  shift
done
case $said in
  *"status -w fields") printf '"MemberID" : 10\n"Leader" : 10\n"Endpoint" : "https://127.0.0.1:2379"\n' ;;
  *"status --cluster -w fields")
    printf '"MemberID" : 10\n"Endpoint" : "https://a:2379"\n"MemberID" : 255\n"Endpoint" : "https://b:2379"\n' ;;
  *) echo "$said" >> "$FOLDER/log" ;;
esac
"#;
    std::fs::write(folder.join("crictl"), fake).unwrap();
    std::fs::write(folder.join("script"), super::etcd::script(false)).unwrap();
    let run = "chmod +x \"$FOLDER/crictl\"; PATH=\"$FOLDER:$PATH\" sh \"$FOLDER/script\"";
    let status = std::process::Command::new("sh").args(["-c", run]).env("FOLDER", &folder).status().unwrap();
    assert!(status.success());
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    let lines: Vec<&str> = log.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "--endpoints=https://127.0.0.1:2379 endpoint health --cluster",
            "--endpoints=https://b:2379 defrag",
            "--endpoints=https://a:2379 move-leader ff",
            "--endpoints=https://a:2379 defrag",
        ]
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
