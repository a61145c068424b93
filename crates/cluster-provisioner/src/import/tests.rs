//! Every setting of the older scripts: what it becomes in the object and in what is made from the object, or what is
//! said instead.

use super::{Directory, Imported, Level, Options, Release, import, known};
use crate::render::{Input, Rendered, render};
use api::provisioning::Resolved;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const LEAST: &str = "KUBERNETES_VERSION: v1.28.7\nOPENSTACK_CONTROL_PLANE_MACHINE_FLAVOR: plane\nOPENSTACK_NODE_MACHINE_FLAVOR: worker\nOPENSTACK_CLOUD: gx\n";

fn directory(lines: &str) -> Directory {
    let own: BTreeSet<&str> = lines.lines().filter_map(|line| line.split(':').next()).collect();
    let rest: Vec<&str> =
        LEAST.lines().filter(|line| !own.contains(line.split(':').next().unwrap_or_default())).collect();
    let settings = format!("{}\n{lines}\n", rest.join("\n"));
    Directory { name: "c".to_owned(), settings, ..Directory::default() }
}

fn fresh() -> Options {
    Options { namespace: "c".to_owned(), adopt: false, ..Options::default() }
}

fn made(imported: &Imported) -> Rendered {
    let resolved = Resolved {
        kubernetes_version: Some(imported.spec.kubernetes.version.replace('x', "9")),
        ..Resolved::default()
    };
    let groups = BTreeMap::new();
    let mut account = imported.account.clone();
    account.management_cidrs = vec!["203.0.113.7/32".into()];
    let input = Input {
        name: "c",
        namespace: "c",
        uid: "",
        spec: &imported.spec,
        account: &account,
        resolved: &resolved,
        server_groups: &groups,
    };
    render(&input).unwrap()
}

/// The field of the first object of a kind; `KubeadmControlPlane /spec/version`.
fn field(rendered: &Rendered, at: &str) -> Value {
    let (kind, path) = at.split_once(' ').unwrap();
    let (kind, which) = kind.split_once('#').map_or((kind, 0), |(kind, n)| (kind, n.parse().unwrap()));
    let object = rendered.objects.iter().filter(|object| object["kind"] == kind).nth(which);
    object.unwrap_or_else(|| panic!("no {kind}")).pointer(path).cloned().unwrap_or_default()
}

/// One setting that is mapped: its line, the field of the object, and the field that is made from it.
struct Mapped(&'static str, &'static str, Value, &'static str, Value);

/// One setting with another way: its line, and words of what is said.
struct Told(&'static str, Level, &'static str);

const PLANE: &str = "OpenStackMachineTemplate /spec/template/spec";
const CLOUD: &str = "OpenStackCluster /spec";

fn plane(path: &str) -> String {
    format!("{PLANE}{path}")
}

fn mapped() -> Vec<Mapped> {
    let mut rows = nodes();
    rows.extend(cloud());
    rows.extend(addons());
    rows
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn nodes() -> Vec<Mapped> {
    let leak = |text: String| -> &'static str { text.leak() };
    let plane = |path: &str| leak(plane(path));
    let worker = |path: &str| leak(format!("OpenStackMachineTemplate#1 /spec/template/spec{path}"));
    vec![
        Mapped(
            "KUBERNETES_VERSION: v1.28.x",
            "/kubernetes/version",
            json!("v1.28.x"),
            "KubeadmControlPlane /spec/version",
            json!("v1.28.9"),
        ),
        Mapped(
            "KUBERNETES_VERSION: v1.27.3",
            "/kubernetes/version",
            json!("v1.27.3"),
            "MachineDeployment /spec/template/spec/version",
            json!("v1.27.3"),
        ),
        Mapped(
            "OPENSTACK_IMAGE_NAME: img-$KUBERNETES_VERSION",
            "/nodes/image/name",
            json!("img-${KUBERNETES_VERSION}"),
            plane("/image/filter/name"),
            json!("img-v1.28.7"),
        ),
        Mapped(
            "OPENSTACK_IMAGE_RAW: false",
            "/nodes/image/raw",
            json!(false),
            plane("/image/filter/name"),
            json!("ubuntu-capi-image-v1.28.7"),
        ),
        Mapped(
            "OPENSTACK_IMAGE_REGISTRATION_EXTRA_FLAGS: --property a=b",
            "/nodes/image/properties",
            json!({"a": "b"}),
            plane("/flavor"),
            json!("plane"),
        ),
        Mapped(
            "OPENSTACK_IMAGE_REGISTATION_EXTRA_FLAGS: --property=a=b",
            "/nodes/image/properties",
            json!({"a": "b"}),
            plane("/flavor"),
            json!("plane"),
        ),
        Mapped(
            "OPENSTACK_CONTROL_PLANE_MACHINE_FLAVOR: SCS-2V-4-20s",
            "/controlPlane/flavor",
            json!("SCS-2V-4-20s"),
            plane("/flavor"),
            json!("SCS-2V-4-20s"),
        ),
        Mapped(
            "OPENSTACK_NODE_MACHINE_FLAVOR: SCS-2V-4",
            "/nodePools/0/flavor",
            json!("SCS-2V-4"),
            worker("/flavor"),
            json!("SCS-2V-4"),
        ),
        Mapped(
            "CONTROL_PLANE_MACHINE_COUNT: 3",
            "/controlPlane/replicas",
            json!(3),
            "KubeadmControlPlane /spec/replicas",
            json!(3),
        ),
        Mapped(
            "WORKER_MACHINE_COUNT: 0",
            "/nodePools/0/replicas",
            json!(0),
            "MachineDeployment /spec/replicas",
            json!(0),
        ),
        Mapped(
            "CONTROL_PLANE_ROOT_DISKSIZE: 20",
            "/controlPlane/rootVolume/sizeGiB",
            json!(20),
            plane("/rootVolume"),
            json!({"sizeGiB": 20, "availabilityZone": {"from": "Machine"}}),
        ),
        Mapped(
            "WORKER_ROOT_DISKSIZE: 30",
            "/nodePools/0/rootVolume/sizeGiB",
            json!(30),
            worker("/rootVolume/sizeGiB"),
            json!(30),
        ),
        Mapped(
            "OPENSTACK_CONTROL_PLANE_MACHINE_METADATA: \"{ a: b }\"",
            "/controlPlane/metadata",
            json!({"a": "b"}),
            plane("/serverMetadata"),
            json!([{"key": "a", "value": "b"}]),
        ),
        Mapped(
            "OPENSTACK_NODE_MACHINE_METADATA: \"{ a: b, 'c': \\'d\\' }\"",
            "/nodePools/0/metadata/a",
            json!("b"),
            worker("/serverMetadata/0"),
            json!({"key": "a", "value": "b"}),
        ),
        Mapped(
            "OPENSTACK_FAILURE_DOMAIN: az1",
            "/nodePools/0/zone",
            json!("az1"),
            "MachineDeployment /spec/template/spec/failureDomain",
            json!("az1"),
        ),
        Mapped(
            "ETCD_PRIO_BOOST: true",
            "/controlPlane/etcd/profile",
            json!("SlowStorage"),
            "KubeadmControlPlane /spec/kubeadmConfigSpec/clusterConfiguration/etcd/local/extraArgs/0",
            json!({"name": "heartbeat-interval", "value": "250"}),
        ),
        Mapped(
            "ETCD_PRIO_BOOST: false",
            "/controlPlane/etcd/profile",
            json!("Default"),
            "KubeadmControlPlane /spec/kubeadmConfigSpec/clusterConfiguration/etcd/local",
            json!({"dataDir": "/var/lib/etcd"}),
        ),
        Mapped(
            "ETCD_UNSAFE_FS: true\nCONTROL_PLANE_MACHINE_COUNT: 3",
            "/controlPlane/etcd/unsafeFilesystem",
            json!(true),
            "KubeadmControlPlane /spec/kubeadmConfigSpec/postKubeadmCommands/1",
            json!(crate::render::etcd::UNSAFE_FILESYSTEM),
        ),
        Mapped(
            "OPENSTACK_ANTI_AFFINITY: false",
            "/controlPlane/antiAffinity",
            json!("None"),
            plane("/serverGroup"),
            Value::Null,
        ),
        Mapped(
            "OPENSTACK_ANTIAFFINITY: false",
            "/nodePools/0/antiAffinity",
            json!("None"),
            plane("/serverGroup"),
            Value::Null,
        ),
        Mapped(
            "OPENSTACK_ANTI_AFFINITY: true",
            "/nodePools/0/antiAffinity",
            json!("Soft"),
            plane("/serverGroup"),
            Value::Null,
        ),
        Mapped(
            "OPENSTACK_SOFT_ANTI_AFFINITY_CONTROLLER: true",
            "/controlPlane/antiAffinity",
            json!("Soft"),
            plane("/serverGroup"),
            Value::Null,
        ),
        Mapped(
            "OPENSTACK_SRVGRP_CONTROLLER: nonono",
            "/adopt",
            Value::Null,
            plane("/serverGroup"),
            Value::Null,
        ),
        Mapped("OPENSTACK_SRVGRP_WORKER: nonono", "/adopt", Value::Null, plane("/serverGroup"), Value::Null),
        Mapped(
            "OPENSTACK_SSH_KEY_NAME: key",
            "/nodes/sshKeyName",
            json!("key"),
            plane("/sshKeyName"),
            json!("key"),
        ),
        Mapped(
            "OPENSTACK_SSH_KEY_NAME: key",
            "/nodes/sshAccessCIDRs",
            json!(["0.0.0.0/0"]),
            "OpenStackCluster /spec/managedSecurityGroups/allNodesSecurityGroupRules/2/remoteIPPrefix",
            json!("0.0.0.0/0"),
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn cloud() -> Vec<Mapped> {
    let cloud = |path: &str| -> &'static str { format!("{CLOUD}{path}").leak() };
    let id = "ebfe5546-f09f-4f42-ab54-094e457d42ec";
    vec![
        Mapped(
            "OPENSTACK_CLOUD: My.Cloud",
            "/cloudRef/name",
            json!("my-cloud"),
            cloud("/identityRef"),
            json!({"type": "Secret", "name": "c-cloud-config", "cloudName": "My.Cloud"}),
        ),
        Mapped(
            "NODE_CIDR: 10.0.0.0/16",
            "/network/nodeCIDR",
            json!("10.0.0.0/16"),
            cloud("/managedSubnets/0/cidr"),
            json!("10.0.0.0/16"),
        ),
        Mapped(
            "POD_CIDR: 172.16.0.0/16",
            "/network/podCIDR",
            json!("172.16.0.0/16"),
            "Cluster /spec/clusterNetwork/pods/cidrBlocks",
            json!(["172.16.0.0/16"]),
        ),
        Mapped(
            "SERVICE_CIDR: 10.97.0.0/16",
            "/network/serviceCIDR",
            json!("10.97.0.0/16"),
            "Cluster /spec/clusterNetwork/services/cidrBlocks",
            json!(["10.97.0.0/16"]),
        ),
        Mapped("MTU_VALUE: 0", "/network/mtu", json!(0), cloud("/networkMTU"), Value::Null),
        Mapped(
            "RESTRICT_KUBEAPI: \"[ ]\"",
            "/controlPlane/apiAccess/mode",
            json!("Any"),
            cloud("/apiServerLoadBalancer"),
            json!({"enabled": true}),
        ),
        Mapped(
            "RESTRICT_KUBEAPI: '[ \"none\" ]'",
            "/controlPlane/apiAccess/mode",
            json!("InternalOnly"),
            cloud("/apiServerLoadBalancer/allowedCIDRs"),
            json!(["10.8.0.0/20", "203.0.113.7/32"]),
        ),
        Mapped(
            "RESTRICT_KUBEAPI: [ 192.0.2.7, 198.51.100.0/24 ]",
            "/controlPlane/apiAccess/cidrs",
            json!(["192.0.2.7/32", "198.51.100.0/24"]),
            cloud("/apiServerLoadBalancer/allowedCIDRs/2"),
            json!("192.0.2.7/32"),
        ),
        // The restriction no longer opens the nodes to one another.
        Mapped(
            "RESTRICT_KUBEAPI: [ 192.0.2.7 ]",
            "/controlPlane/apiAccess/mode",
            json!("CIDRs"),
            cloud("/managedSecurityGroups/allowAllInClusterTraffic"),
            json!(false),
        ),
        Mapped(
            format!("OPENSTACK_EXTERNAL_NETWORK_ID: {id}").leak(),
            "/network/externalNetwork",
            json!({"id": id}),
            cloud("/externalNetwork"),
            json!({"id": id}),
        ),
        Mapped(
            "OPENSTACK_EXTERNAL_NETWORK_ID: public",
            "/network/externalNetwork",
            json!({"name": "public"}),
            cloud("/externalNetwork"),
            json!({"filter": {"name": "public"}}),
        ),
        Mapped(
            "OPENSTACK_DNS_NAMESERVERS: \"[ 192.0.2.1, 192.0.2.2 ]\"",
            "/network/dnsNameservers",
            json!(["192.0.2.1", "192.0.2.2"]),
            cloud("/managedSubnets/0/dnsNameservers"),
            json!(["192.0.2.1", "192.0.2.2"]),
        ),
        Mapped(
            "OPENSTACK_DNS_NAMESERVERS: 192.0.2.1",
            "/network/dnsNameservers",
            json!(["192.0.2.1"]),
            cloud("/managedSubnets/0/dnsNameservers"),
            json!(["192.0.2.1"]),
        ),
        Mapped(
            "OPENSTACK_DNS_NAMESERVER: 192.0.2.1",
            "/network/dnsNameservers",
            json!(["192.0.2.1"]),
            cloud("/managedSubnets/0/dnsNameservers"),
            json!(["192.0.2.1"]),
        ),
        Mapped(
            "OPENSTACK_CLOUD_YAML_B64: Y2xvdWRz",
            "/cloudRef/name",
            json!("gx"),
            cloud("/identityRef/name"),
            json!("c-cloud-config"),
        ),
        Mapped(
            "OPENSTACK_CLOUD_CACERT_B64: Y2VydA==",
            "/cloudRef/name",
            json!("gx"),
            "KubeadmConfigTemplate /spec/template/spec/files/0/contentFrom/secret",
            json!({"name": "c-cloud-config", "key": "cacert"}),
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn addons() -> Vec<Mapped> {
    let rule = |n: u8| -> &'static str {
        format!("OpenStackCluster /spec/managedSecurityGroups/allNodesSecurityGroupRules/{n}/name").leak()
    };
    let same = ("Cluster /metadata/name", json!("c"));
    let plain =
        |line: &'static str, at: &'static str, value: Value| Mapped(line, at, value, same.0, same.1.clone());
    vec![
        Mapped("USE_CILIUM: true", "/addons/cni/type", json!("Cilium"), rule(0), json!("cilium-vxlan")),
        Mapped("USE_CILIUM: false", "/addons/cni/type", json!("Calico"), rule(0), json!("calico-bgp")),
        Mapped(
            "USE_CILIUM: v1.15.1",
            "/addons/cni/version",
            json!("v1.15.1"),
            rule(2),
            json!("cilium-hubble"),
        ),
        Mapped(
            "CALICO_VERSION: v3.27.2",
            "/addons/cni/version",
            json!("v3.27.2"),
            rule(1),
            json!("calico-ipip"),
        ),
        plain("DEPLOY_OCCM: v1.28.1", "/addons/cloudControllerManager/version", json!("v1.28.1")),
        plain("DEPLOY_CINDERCSI: false", "/addons/cinderCSI/enabled", json!(false)),
        plain("DEPLOY_CINDERCSI: v1.28.1", "/addons/cinderCSI/version", json!("v1.28.1")),
        plain("DEPLOY_K8S_CINDERCSI_GIT: false", "/addons/cinderCSI/version", json!("auto")),
        plain("DEPLOY_METRICS: false", "/addons/metricsServer/enabled", json!(false)),
        plain("DEPLOY_METRICS_SERVICE: false", "/addons/metricsServer/enabled", json!(false)),
        plain("DEPLOY_NGINX_INGRESS: v1.9.6", "/addons/ingressNginx/version", json!("v1.9.6")),
        plain("DEPLOY_NGINX_INGRESS: false", "/addons/ingressNginx/enabled", json!(false)),
        plain("NGINX_INGRESS_PROXY: true", "/addons/ingressNginx/proxyProtocol", json!(true)),
        plain("NGINX_INGRESS_PROXY: false", "/addons/ingressNginx/proxyProtocol", json!(false)),
        Mapped(
            "USE_OVN_LB_PROVIDER: true",
            "/addons/cloudControllerManager/loadBalancer",
            json!("OVN"),
            "OpenStackCluster /spec/managedSecurityGroups/workerNodesSecurityGroupRules/0/portRangeMin",
            json!(30000),
        ),
        plain("USE_OVN_LB_PROVIDER: auto", "/addons/cloudControllerManager/loadBalancer", json!("Auto")),
        plain("USE_OVN_LB_PROVIDER: false", "/addons/cloudControllerManager/loadBalancer", json!("Default")),
        plain("DEPLOY_GATEWAY_API: true", "/addons/cni/gatewayAPI", json!(true)),
        plain(
            "DEPLOY_CERT_MANAGER: v1.14.2",
            "/addons/certManager",
            json!({"enabled": true, "version": "v1.14.2"}),
        ),
        plain("DEPLOY_FLUX: true", "/addons/flux/enabled", json!(true)),
        plain("DEPLOY_HARBOR: true", "/addons/flux/enabled", json!(true)),
        plain(
            "DEPLOY_HARBOR: true\nHARBOR_DOMAIN_NAME: h.example\nDEPLOY_CERT_MANAGER: false",
            "/addons/certManager/enabled",
            json!(true),
        ),
        plain("HARBOR_ISSUER_EMAIL: a@example", "/addons/harbor/issuerEmail", json!("a@example")),
        plain(
            "DEPLOY_HARBOR: true\nHARBOR_PERSISTENCE: true\nDEPLOY_CINDERCSI: false",
            "/addons/cinderCSI/enabled",
            json!(true),
        ),
        plain("HARBOR_DATABASE_SIZE: 2Gi", "/addons/harbor/databaseSize", json!("2Gi")),
        plain("HARBOR_REDIS_SIZE: 2Gi", "/addons/harbor/redisSize", json!("2Gi")),
        plain("HARBOR_TRIVY_SIZE: 9Gi", "/addons/harbor/trivySize", json!("9Gi")),
    ]
}

fn told() -> Vec<Told> {
    vec![
        Told("KUBERNETES_VERSION: 1.28", Level::Error, "is not like v1.28.7"),
        Told("OPENSTACK_IMAGE_RAW: yes", Level::Error, "neither true nor false"),
        Told("OPENSTACK_IMAGE_REGISTRATION_EXTRA_FLAGS: --public", Level::Warning, "spec.nodes.image.id"),
        Told("CONTROL_PLANE_MACHINE_COUNT: 0", Level::Error, "no cluster"),
        Told("CONTROL_PLANE_MACHINE_COUNT: 2", Level::Error, "odd number"),
        Told("WORKER_MACHINE_COUNT: many", Level::Error, "no number"),
        Told("CONTROL_PLANE_MACHINE_GEN: genc02", Level::Note, "named after their content"),
        Told("WORKER_MACHINE_GEN: genw02", Level::Note, "named after their content"),
        Told("OPENSTACK_CLUSTER_GEN: geno01", Level::Note, "named after their content"),
        Told("WORKER_MACHINE_GEN: genw02\nETCD_PRIO_BOOST: false", Level::Note, "always on"),
        Told("ETCD_UNSAFE_FS: true", Level::Warning, "at least three"),
        Told("OPENSTACK_SRVGRP_CONTROLLER: some", Level::Error, "no ID of a server group"),
        Told("MTU_VALUE: 1392", Level::Note, "not carried over"),
        Told("NODE_CIDR: 10.0.0.1", Level::Error, "no range"),
        Told("RESTRICT_KUBEAPI: [ none ]", Level::Warning, "managementCIDRs"),
        Told("OPENSTACK_SSH_KEY_NAME: key", Level::Warning, "sshAccessCIDRs"),
        Told("DEPLOY_OCCM: false", Level::Warning, "stays on"),
        Told("DEPLOY_OCCM: master", Level::Warning, "development branch"),
        Told("DEPLOY_K8S_OPENSTACK_GIT: true", Level::Warning, "development branch"),
        Told("DEPLOY_K8S_CINDERCSI_GIT: true", Level::Warning, "development branch"),
        Told("DEPLOY_FLUX: latest", Level::Error, "neither true, false nor a version"),
        Told("DEPLOY_GATEWAY_API: true\nUSE_CILIUM: false", Level::Error, "needs Cilium"),
        Told("NGINX_INGRESS_PROXY: false", Level::Warning, "although this says false"),
        Told("CALICO_VERSION: v3.27.2\nUSE_CILIUM: true", Level::Note, "was ignored"),
        Told("HARBOR_TRIVY_SIZE: big", Level::Error, "no size"),
        Told("OPENSTACK_CONTROL_PLANE_IP: 127.0.0.1", Level::Note, "never used"),
        Told("OLD_OPENSTACK_CLOUD: gx", Level::Note, "new credentials"),
        Told("OPENSTACK_CLOUD_PROVIDER_CONF_B64: eA==", Level::Note, "no template"),
        Told("CLUSTER_API_OPENSTACK_INSTANCE_CREATE_TIMEOUT: 5", Level::Note, "capo-controller-manager"),
        Told("PROXY_CMD: . /etc/profile.d/proxy.sh", Level::Warning, "spec.nodes.proxy"),
        Told("PREFIX: capi", Level::Note, "spec.adopt"),
        Told("CLUSTER_NAME: other", Level::Error, "--name"),
        Told("CILIUM_BINARIES: v0.15.23", Level::Note, "spec.addons.cni.version"),
        Told("SOMETHING_ELSE: 1", Level::Error, "spec.patches"),
        Told("OPENSTACK_ANTI_AFFINITY: y", Level::Warning, "true or false"),
    ]
}

#[test]
fn every_setting_becomes_a_field_of_the_object_and_of_what_is_made_from_it() {
    for Mapped(line, at, value, made_at, made_value) in mapped() {
        let imported = import(&directory(line), &fresh());
        let spec = serde_json::to_value(&imported.spec).unwrap();
        assert_eq!(spec.pointer(at).cloned().unwrap_or_default(), value, "{line}: {at}");
        assert!(!imported.failed(), "{line}: {:?}", imported.findings);
        assert_eq!(field(&made(&imported), made_at), made_value, "{line}: {made_at}");
    }
}

#[test]
fn a_setting_without_a_field_is_told_with_what_to_do() {
    for Told(line, level, words) in told() {
        let findings = import(&directory(line), &fresh()).findings;
        assert!(
            findings.iter().any(|finding| finding.level == level && finding.text.contains(words)),
            "{line}: {findings:?}"
        );
    }
}

#[test]
fn no_setting_is_without_a_case() {
    let lines = mapped().into_iter().map(|row| row.0).chain(told().into_iter().map(|row| row.0));
    let cases: BTreeSet<String> =
        lines.flat_map(str::lines).filter_map(|line| line.split(':').next()).map(str::to_owned).collect();
    let missing: Vec<_> = known().filter(|key| !cases.contains(*key)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[track_caller]
fn is_of(lines: &str, release: Release) {
    let findings = import(&directory(lines), &fresh()).findings;
    let words = format!("settings of {release}");
    assert!(findings.iter().any(|finding| finding.text == words), "{findings:?}");
}

#[test]
fn the_release_is_told_by_what_it_introduced() {
    is_of("OPENSTACK_DNS_NAMESERVERS: 9.9.9.9\nDEPLOY_K8S_OPENSTACK_GIT: false", Release::R1);
    is_of("OPENSTACK_ANTI_AFFINITY: true", Release::R2);
    is_of("WORKER_MACHINE_GEN: genw01", Release::R3);
    is_of("WORKER_MACHINE_GEN: genw01\nRESTRICT_KUBEAPI: [ ]", Release::R4);
    is_of("WORKER_MACHINE_GEN: genw01\nPOD_CIDR: 192.168.0.0/16", Release::R5);
    is_of("WORKER_MACHINE_GEN: genw01\nOPENSTACK_CLUSTER_GEN: geno01", Release::R6);
}

#[test]
fn what_is_absent_is_what_the_release_did() {
    let of = |lines: &str| import(&directory(lines), &fresh()).spec;
    assert_eq!(json!(of("OPENSTACK_ANTI_AFFINITY: true").addons.cni)["type"], "Calico");
    assert!(!of("OPENSTACK_ANTI_AFFINITY: true").addons.ingress_nginx.proxy_protocol);
    assert!(of("RESTRICT_KUBEAPI: [ ]").addons.ingress_nginx.proxy_protocol);
    assert_eq!(json!(of("POD_CIDR: 192.168.0.0/16").addons.cni)["type"], "Cilium");
    assert_eq!(json!(of("WORKER_MACHINE_GEN: genw01").control_plane.etcd)["profile"], "SlowStorage");
}

#[test]
fn a_running_cluster_keeps_its_names_and_is_not_touched() {
    let adopt = Options { adopt: true, ..fresh() };
    let id = "3adf4e92-bb33-4e44-8ad3-afda9dfe8ec3";
    let old =
        import(&directory(&format!("OPENSTACK_ANTI_AFFINITY: true\nOPENSTACK_SRVGRP_WORKER: {id}")), &adopt);
    let spec = json!(old.spec);
    assert_eq!(spec["adopt"]["nodePools"]["md-0"], "c-md-0-genw1");
    assert_eq!(spec["adopt"]["serverGroups"]["workers"], id);
    assert_eq!((&spec["paused"], &spec["rendering"]), (&json!(true), &json!("Plain")));
    assert_eq!(spec["credentials"]["mode"], "Shared");
    let rendered = made(&old);
    assert_eq!(field(&rendered, "MachineDeployment /metadata/name"), "c-md-0-genw1");
    assert_eq!(field(&rendered, "Cluster /spec/paused"), true);
    let new = import(&directory("OPENSTACK_CLUSTER_GEN: geno01"), &adopt);
    assert_eq!(json!(new.spec)["rendering"], "Topology");
    assert_eq!(json!(new.spec)["adopt"]["nodePools"]["md-0"], "capi-c-md-0-no1");
}

#[test]
fn the_environment_wins_over_the_file() {
    let environment = BTreeMap::from([("WORKER_MACHINE_COUNT".to_owned(), "7".to_owned())]);
    let options = Options { environment, ..fresh() };
    let imported = import(&directory("WORKER_MACHINE_COUNT: 1"), &options);
    assert_eq!(imported.spec.node_pools[0].replicas, Some(7));
}

#[test]
fn the_files_beside_the_settings_are_part_of_the_object() {
    let files = Directory {
        harbor: Some("DEPLOY_HARBOR=true\nHARBOR_DOMAIN_NAME=\"h.example\"\n".to_owned()),
        cloud_conf: Some(
            "[Global]\nauth-url=x\n[LoadBalancer]\nuse-octavia=true\nlb-provider=ovn\nmax-shared-lb=3\n"
                .to_owned(),
        ),
        registries: BTreeMap::from([("docker.io".to_owned(), "server = \"x\"\n".to_owned())]),
        certificates: BTreeMap::from([("ca.crt".to_owned(), "cert".to_owned())]),
        ingress: Some("data:\n  use-proxy-protocol: \"true\"\n".to_owned()),
        has_template: true,
        ..directory("OPENSTACK_ANTI_AFFINITY: true\nNGINX_INGRESS_PROXY: false")
    };
    let imported = import(&files, &fresh());
    let spec = json!(imported.spec);
    assert_eq!(spec["addons"]["harbor"]["domainName"], "h.example");
    assert_eq!(spec["addons"]["cloudControllerManager"]["loadBalancer"], "OVN");
    assert_eq!(
        spec["addons"]["cloudControllerManager"]["cloudConfOverrides"],
        json!({"LoadBalancer": {"max-shared-lb": "3"}})
    );
    let rendered = made(&imported);
    let files = field(&rendered, "KubeadmConfigTemplate /spec/template/spec/files");
    assert_eq!(files[0]["path"], "/etc/containerd/certs.d/docker.io/hosts.toml");
    assert_eq!(files[1]["path"], "/etc/containerd/certs/ca.crt");
    let secret = imported.objects.iter().find(|object| object["metadata"]["name"] == "c-containerd").unwrap();
    assert_eq!(secret["stringData"]["docker.io.toml"], "server = \"x\"\n");
    let said = |words: &str| imported.findings.iter().any(|finding| finding.text.contains(words));
    assert!(said("the running ingress controller has PROXY protocol on, the object says off"));
    assert!(said("cluster-template.yaml is not read"));
}

#[test]
fn what_is_encoded_stays_encoded() {
    let imported = import(&directory("OPENSTACK_CLOUD_YAML_B64: Y2xvdWRz"), &fresh());
    let secret = imported.objects.iter().find(|object| object["kind"] == "Secret").unwrap();
    assert_eq!(secret["data"], json!({"clouds.yaml": "Y2xvdWRz"}));
    assert_eq!(imported.account.clouds_yaml.name, secret["metadata"]["name"].as_str().unwrap());
}
