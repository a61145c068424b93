//! Settings of nodes, networks and the cloud.

use super::Row;
use super::draft::{Draft, ENCODED, range};
use super::parse::{boolean, is_uuid, list, map, number};
use super::release::Release;
use api::provisioning::{
    AdoptServerGroups, AntiAffinity, ApiAccess, ApiAccessMode, Cidr, EtcdProfile, ExternalNetwork, Ip,
    Network, RootVolume,
};

pub(super) const ROWS: &[Row] = &[
    Row { key: "KUBERNETES_VERSION", apply: kubernetes_version },
    Row {
        key: "OPENSTACK_IMAGE_NAME",
        apply: |draft, value| {
            let name = value
                .replace("${KUBERNETES_VERSION}", "$KUBERNETES_VERSION")
                .replace("$KUBERNETES_VERSION", "${KUBERNETES_VERSION}");
            draft.spec.nodes.image.name = Some(name);
            Ok(())
        },
    },
    Row {
        key: "OPENSTACK_IMAGE_RAW",
        apply: |draft, value| {
            draft.spec.nodes.image.raw = boolean(value)?;
            Ok(())
        },
    },
    Row { key: "OPENSTACK_IMAGE_REGISTRATION_EXTRA_FLAGS", apply: image_flags },
    Row {
        key: "OPENSTACK_CONTROL_PLANE_MACHINE_FLAVOR",
        apply: |draft, value| {
            value.clone_into(&mut draft.spec.control_plane.flavor);
            Ok(())
        },
    },
    Row {
        key: "OPENSTACK_NODE_MACHINE_FLAVOR",
        apply: |draft, value| {
            value.clone_into(&mut draft.pool.flavor);
            Ok(())
        },
    },
    Row { key: "CONTROL_PLANE_MACHINE_COUNT", apply: control_plane_count },
    Row {
        key: "WORKER_MACHINE_COUNT",
        apply: |draft, value| {
            draft.pool.replicas = Some(number(value)?);
            Ok(())
        },
    },
    Row {
        key: "CONTROL_PLANE_MACHINE_GEN",
        apply: |draft, _| generation(draft, "CONTROL_PLANE_MACHINE_GEN"),
    },
    Row { key: "WORKER_MACHINE_GEN", apply: |draft, _| generation(draft, "WORKER_MACHINE_GEN") },
    Row { key: "OPENSTACK_CLUSTER_GEN", apply: |draft, _| generation(draft, "OPENSTACK_CLUSTER_GEN") },
    Row {
        key: "CONTROL_PLANE_ROOT_DISKSIZE",
        apply: |draft, value| {
            draft.spec.control_plane.root_volume = Some(RootVolume { size_gib: number(value)?, kind: None });
            Ok(())
        },
    },
    Row {
        key: "WORKER_ROOT_DISKSIZE",
        apply: |draft, value| {
            draft.pool.root_volume = Some(RootVolume { size_gib: number(value)?, kind: None });
            Ok(())
        },
    },
    Row {
        key: "OPENSTACK_CONTROL_PLANE_MACHINE_METADATA",
        apply: |draft, value| {
            draft.spec.control_plane.metadata = map(value)?;
            Ok(())
        },
    },
    Row {
        key: "OPENSTACK_NODE_MACHINE_METADATA",
        apply: |draft, value| {
            draft.pool.metadata = map(value)?;
            Ok(())
        },
    },
    Row {
        key: "OPENSTACK_FAILURE_DOMAIN",
        apply: |draft, value| {
            draft.pool.zone = Some(value.to_owned());
            Ok(())
        },
    },
    Row { key: "ETCD_PRIO_BOOST", apply: etcd_boost },
    Row {
        key: "ETCD_UNSAFE_FS",
        apply: |draft, value| {
            draft.spec.control_plane.etcd.unsafe_filesystem = boolean(value)?;
            Ok(())
        },
    },
    Row { key: "OPENSTACK_ANTI_AFFINITY", apply: anti_affinity },
    Row { key: "OPENSTACK_SOFT_ANTI_AFFINITY_CONTROLLER", apply: soft_anti_affinity },
    Row {
        key: "OPENSTACK_SRVGRP_CONTROLLER",
        apply: |draft, value| group(draft, value, |groups, id| groups.control_plane = id),
    },
    Row {
        key: "OPENSTACK_SRVGRP_WORKER",
        apply: |draft, value| group(draft, value, |groups, id| groups.workers = id),
    },
];

pub(super) const CLOUD: &[Row] = &[
    Row {
        key: "NODE_CIDR",
        apply: |draft, value| cidr(draft, value, |network, cidr| network.node_cidr = cidr),
    },
    Row {
        key: "POD_CIDR",
        apply: |draft, value| cidr(draft, value, |network, cidr| network.pod_cidr = cidr),
    },
    Row {
        key: "SERVICE_CIDR",
        apply: |draft, value| cidr(draft, value, |network, cidr| network.service_cidr = cidr),
    },
    Row {
        key: "MTU_VALUE",
        apply: |draft, value| {
            if number(value)? != 0 {
                draft.note("MTU_VALUE", "not carried over: it was the MTU of Calico's pods, which follows from the network's; spec.network.mtu is that of the network");
            }
            Ok(())
        },
    },
    Row { key: "RESTRICT_KUBEAPI", apply: restrict },
    Row {
        key: "OPENSTACK_EXTERNAL_NETWORK_ID",
        apply: |draft, value| {
            let outside = if is_uuid(value) {
                ExternalNetwork { id: Some(value.to_owned()), name: None }
            } else {
                ExternalNetwork { id: None, name: Some(value.to_owned()) }
            };
            draft.network().external_network = Some(outside);
            Ok(())
        },
    },
    Row {
        key: "OPENSTACK_DNS_NAMESERVERS",
        apply: |draft, value| {
            let servers = list(value).into_iter().map(Ip).collect();
            draft.network().dns_nameservers = Some(servers);
            Ok(())
        },
    },
    Row {
        key: "OPENSTACK_SSH_KEY_NAME",
        apply: |draft, value| {
            draft.spec.nodes.ssh_key_name = Some(value.to_owned());
            draft.spec.nodes.ssh_access_cidrs = vec![Cidr::from("0.0.0.0/0")];
            draft.warn(
                "OPENSTACK_SSH_KEY_NAME",
                "port 22 stays open to everybody, as before; narrow spec.nodes.sshAccessCIDRs",
            );
            Ok(())
        },
    },
    Row {
        key: "OPENSTACK_CLOUD",
        apply: |draft, value| {
            value.clone_into(&mut draft.account.cloud_name);
            Ok(())
        },
    },
    Row { key: "OPENSTACK_CLOUD_YAML_B64", apply: |draft, value| cloud_secret(draft, value, "clouds.yaml") },
    Row { key: "OPENSTACK_CLOUD_CACERT_B64", apply: |draft, value| cloud_secret(draft, value, "cacert") },
];

impl Draft {
    /// The network, which the defaults of every release have filled.
    fn network(&mut self) -> &mut Network {
        self.spec.network.get_or_insert_default()
    }
}

fn kubernetes_version(draft: &mut Draft, value: &str) -> Result<(), String> {
    let parts: Vec<&str> = value.strip_prefix("v1.").unwrap_or_default().split('.').collect();
    let number = |text: &&str| text.parse::<u32>().is_ok();
    match parts.as_slice() {
        [minor, patch] if number(minor) && (number(patch) || *patch == "x") => {
            value.clone_into(&mut draft.spec.kubernetes.version);
            Ok(())
        }
        _ => Err(format!("{value:?} is not like v1.28.7 or v1.28.x")),
    }
}

/// Properties are kept; what else the command was given has no place in an image that is described.
fn image_flags(draft: &mut Draft, value: &str) -> Result<(), String> {
    let mut words = value.split_whitespace();
    while let Some(word) = words.next() {
        let pair = match word.strip_prefix("--property") {
            Some("") => words.next().unwrap_or_default(),
            Some(rest) => rest.trim_start_matches('='),
            None => {
                let text = format!(
                    "{word} is not carried over: register the image yourself and set spec.nodes.image.id"
                );
                draft.warn("OPENSTACK_IMAGE_REGISTRATION_EXTRA_FLAGS", text);
                continue;
            }
        };
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is no property"))?;
        draft.spec.nodes.image.properties.insert(key.to_owned(), value.to_owned());
    }
    Ok(())
}

fn control_plane_count(draft: &mut Draft, value: &str) -> Result<(), String> {
    let count = number(value)?;
    draft.spec.control_plane.replicas = count;
    match count {
        0 => Err("0 made a management host and no cluster; there is nothing to declare".to_owned()),
        odd if odd % 2 == 1 => Ok(()),
        even => Err(format!("{even} is even; an etcd quorum needs an odd number")),
    }
}

/// Counters that people had to raise.
fn generation(draft: &mut Draft, key: &str) -> Result<(), String> {
    let old = draft.settings.get(key).unwrap_or_default().to_owned();
    if old.is_empty() {
        return Err("is empty".to_owned());
    }
    draft.note(key, "not needed any more: templates are named after their content");
    Ok(())
}

fn etcd_boost(draft: &mut Draft, value: &str) -> Result<(), String> {
    let boost = boolean(value)?;
    if draft.release >= Release::R3 {
        draft.note("ETCD_PRIO_BOOST", "was ignored from R3 on: it was always on");
        return Ok(());
    }
    draft.spec.control_plane.etcd.profile =
        if boost { EtcdProfile::SlowStorage } else { EtcdProfile::Default };
    Ok(())
}

fn anti_affinity(draft: &mut Draft, value: &str) -> Result<(), String> {
    let (plane, pool) = if boolean(value)? {
        (AntiAffinity::Hard, AntiAffinity::Soft)
    } else {
        (AntiAffinity::None, AntiAffinity::None)
    };
    draft.spec.control_plane.anti_affinity = plane;
    draft.pool.anti_affinity = pool;
    Ok(())
}

/// Comes after the setting that switches anti-affinity on, by its name.
fn soft_anti_affinity(draft: &mut Draft, value: &str) -> Result<(), String> {
    if boolean(value)? && draft.spec.control_plane.anti_affinity == AntiAffinity::Hard {
        draft.spec.control_plane.anti_affinity = AntiAffinity::Soft;
    }
    Ok(())
}

fn group(
    draft: &mut Draft,
    value: &str,
    set: fn(&mut AdoptServerGroups, Option<String>),
) -> Result<(), String> {
    if value == "nonono" || value.is_empty() {
        return Ok(());
    }
    if !is_uuid(value) {
        return Err(format!("{value:?} is no ID of a server group"));
    }
    let adopt = draft.spec.adopt.get_or_insert_default();
    set(adopt.server_groups.get_or_insert_default(), Some(value.to_owned()));
    Ok(())
}

fn cidr(draft: &mut Draft, value: &str, set: fn(&mut Network, Option<Cidr>)) -> Result<(), String> {
    if !value.contains('/') {
        return Err(format!("{value:?} is no range of addresses"));
    }
    set(draft.network(), Some(Cidr::from(value)));
    Ok(())
}

/// The scripts let everything in the cluster through as a side effect, and could not take the restriction back.
fn restrict(draft: &mut Draft, value: &str) -> Result<(), String> {
    let items = list(value);
    if items.is_empty() {
        return Ok(());
    }
    let cidrs: Vec<Cidr> = items.iter().filter(|item| *item != "none").map(|item| range(item)).collect();
    let mode = if cidrs.is_empty() { ApiAccessMode::InternalOnly } else { ApiAccessMode::Cidrs };
    draft.spec.control_plane.api_access = ApiAccess { mode, cidrs, ..ApiAccess::default() };
    draft.warn("RESTRICT_KUBEAPI", "write the addresses from which the management cluster goes out into managementCIDRs of the CloudAccount; the scripts added that of their host");
    Ok(())
}

fn cloud_secret(draft: &mut Draft, value: &str, key: &str) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    // The content stays encoded: it is not looked at, and a Secret takes it as it is.
    let name = draft.account.clouds_yaml.name.clone();
    let of = draft.secret(&name, &format!("{key}{ENCODED}"), value);
    if key == "cacert" {
        draft.account.ca_certificate =
            Some(api::provisioning::SecretKey { name: of.name, key: key.to_owned() });
    }
    Ok(())
}
