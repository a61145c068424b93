//! Networks, security groups and the load balancer of the API server.

use super::{Fault, Shop};
use api::provisioning::{
    ApiAccessMode, CniMigration, CniType, LoadBalancerChoice, LoadBalancerProvider, Network, Reference,
};
use serde_json::{Value, json};

const NODES: &str = "10.8.0.0/20";
const PODS: &str = "192.168.0.0/16";
const SERVICES: &str = "10.96.0.0/12";

pub(super) struct Ranges {
    pub(super) nodes: String,
    pub(super) pods: String,
    pub(super) services: String,
}

/// The ranges of addresses, with their defaults.
pub(super) fn ranges(network: Option<&Network>) -> Ranges {
    let or = |range: Option<&api::provisioning::Cidr>, default: &str| {
        range.map_or_else(|| default.to_owned(), ToString::to_string)
    };
    Ranges {
        nodes: or(network.and_then(|network| network.node_cidr.as_ref()), NODES),
        pods: or(network.and_then(|network| network.pod_cidr.as_ref()), PODS),
        services: or(network.and_then(|network| network.service_cidr.as_ref()), SERVICES),
    }
}

/// What the Cluster says of networks.
pub(super) fn network(shop: &Shop<'_>) -> Value {
    let ranges = ranges(shop.input.spec.network.as_ref());
    let mut spec = json!({"clusterNetwork": {
        "pods": {"cidrBlocks": [ranges.pods]},
        "services": {"cidrBlocks": [ranges.services]},
        "serviceDomain": "cluster.local",
    }});
    if shop.input.spec.paused {
        spec["paused"] = json!(true);
    }
    spec
}

/// Ranges that may reach the API server; `None`: all.
///
/// # Errors
///
/// When the provisioner itself could not reach it.
pub(crate) fn allowed(shop: &Shop<'_>) -> Result<Option<Vec<String>>, Fault> {
    let access = &shop.input.spec.control_plane.api_access;
    if access.mode == ApiAccessMode::Any {
        return Ok(None);
    }
    let management = &shop.input.account.management_cidrs;
    if management.is_empty() {
        return Err(Fault::LockedOut);
    }
    let mut allowed = vec![ranges(shop.input.spec.network.as_ref()).nodes];
    allowed.extend(management.iter().chain(&access.cidrs).map(ToString::to_string));
    let mut seen = std::collections::BTreeSet::new();
    allowed.retain(|range| seen.insert(range.clone()));
    Ok(Some(allowed))
}

pub(super) fn cluster_spec(shop: &Shop<'_>) -> Result<Value, Fault> {
    let spec = shop.input.spec;
    let network = spec.network.clone().unwrap_or_default();
    let mut cloud = json!({
        "identityRef": shop.identity(),
        "apiServerLoadBalancer": load_balancer(shop)?,
        "managedSecurityGroups": security_groups(shop),
    });
    existing(shop, &network, &mut cloud);
    let outside = network.external_network.unwrap_or_default();
    if let Some(id) = shop.input.resolved.external_network_id.clone().or(outside.id) {
        cloud["externalNetwork"] = json!({"id": id});
    } else if let Some(name) = outside.name {
        cloud["externalNetwork"] = json!({"filter": {"name": name}});
    }
    if network.mtu != 0 {
        cloud["networkMTU"] = json!(network.mtu);
    }
    if !spec.control_plane.zones.is_empty() {
        cloud["controlPlaneAvailabilityZones"] = json!(spec.control_plane.zones);
    }
    // What belongs to whom in the cloud is told by this tag; names may be those of somebody else.
    if !shop.input.uid.is_empty() && spec.adopt.is_none() {
        cloud["tags"] = json!([format!("multicluster-scheduler={}", shop.input.uid)]);
    }
    Ok(cloud)
}

fn load_balancer(shop: &Shop<'_>) -> Result<Value, Fault> {
    let mut balancer = json!({"enabled": true});
    match shop.input.spec.control_plane.api_access.load_balancer_provider {
        LoadBalancerProvider::Default => {}
        LoadBalancerProvider::Amphora => balancer["provider"] = json!("amphora"),
        LoadBalancerProvider::Ovn => balancer["provider"] = json!("ovn"),
    }
    if let Some(allowed) = allowed(shop)? {
        balancer["allowedCIDRs"] = json!(allowed);
    }
    Ok(balancer)
}

/// Networks of the user's are used as they are; otherwise one subnet is made.
fn existing(shop: &Shop<'_>, network: &Network, cloud: &mut Value) {
    let by = |reference: &Reference| match (&reference.id, &reference.name) {
        (Some(id), _) => json!({"id": id}),
        (None, name) => json!({"filter": {"name": name}}),
    };
    let existing = network.existing.clone().unwrap_or_default();
    if let Some(reference) = &existing.network {
        cloud["network"] = by(reference);
    }
    if let Some(reference) = &existing.router {
        cloud["router"] = by(reference);
    }
    if let Some(subnets) = existing.subnets {
        cloud["subnets"] = subnets.iter().map(by).collect();
        return;
    }
    let mut subnet = json!({"cidr": ranges(Some(network)).nodes});
    let servers = network.dns_nameservers.clone().unwrap_or_default();
    let servers = if servers.is_empty() { shop.input.account.dns_nameservers.clone() } else { servers };
    if !servers.is_empty() {
        subnet["dnsNameservers"] = json!(servers);
    }
    cloud["managedSubnets"] = json!([subnet]);
}

/// One rule for incoming packets.
fn rule(name: &str, protocol: &str, ports: Option<(u16, u16)>) -> Value {
    let mut rule = json!({"name": name, "direction": "ingress", "etherType": "IPv4", "protocol": protocol});
    if let Some((first, last)) = ports {
        rule["portRangeMin"] = json!(first);
        rule["portRangeMax"] = json!(last);
    }
    rule
}

fn from_nodes(name: &str, protocol: &str, port: Option<u16>) -> Value {
    let mut rule = rule(name, protocol, port.map(|port| (port, port)));
    rule["remoteManagedGroups"] = json!(["controlplane", "worker"]);
    rule
}

fn from_range(name: &str, (protocol, ports): (&str, Option<(u16, u16)>), range: &str) -> Value {
    let mut rule = rule(name, protocol, ports);
    rule["remoteIPPrefix"] = json!(range);
    rule
}

/// The pod network's own packets; while one network is exchanged for another, those of both.
fn security_groups(shop: &Shop<'_>) -> Value {
    let spec = shop.input.spec;
    let cni = &spec.addons.cni;
    let both = cni.migration != CniMigration::Forbid && cni.kind != CniType::None;
    let mut all = Vec::new();
    if both || cni.kind == CniType::Cilium {
        all.push(from_nodes("cilium-vxlan", "udp", Some(8472)));
        all.push(from_nodes("cilium-health", "tcp", Some(4240)));
        all.push(from_nodes("cilium-hubble", "tcp", Some(4244)));
    }
    if both || cni.kind == CniType::Calico {
        all.push(from_nodes("calico-bgp", "tcp", Some(179)));
        // IP in IP has no name that Neutron knows everywhere.
        all.push(from_nodes("calico-ipip", "4", None));
    }
    for (index, range) in spec.nodes.ssh_access_cidrs.iter().enumerate() {
        all.push(from_range(&format!("ssh-{index}"), ("tcp", Some((22, 22))), &range.0));
        all.push(from_range(&format!("icmp-{index}"), ("icmp", None), &range.0));
    }
    let mut groups = json!({"allowAllInClusterTraffic": cni.kind == CniType::None});
    if !all.is_empty() {
        groups["allNodesSecurityGroupRules"] = json!(all);
    }
    // OVN keeps the address of the client, so that node ports must be open to everybody.
    if spec.addons.cloud_controller_manager.load_balancer == LoadBalancerChoice::Ovn {
        let ports = from_range("node-ports", ("tcp", Some((30000, 32767))), "0.0.0.0/0");
        groups["workerNodesSecurityGroupRules"] = json!([ports]);
    }
    groups
}
