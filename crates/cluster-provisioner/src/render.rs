//! What a declared cluster is in terms of Cluster API: a pure function of the spec, the account of the cloud and
//! what has been decided.
//!
//! Cluster API replaces nodes when a template is exchanged for another one. Templates are named after a hash of
//! what this crate sets in them, so that a change of content is a change of name and nothing else is. The hash
//! covers no default of a server and no field that is unset: a new release of this crate gives an unchanged spec
//! unchanged names. `golden_names_of_templates_stay` watches over that.

mod control_plane;
pub mod etcd;
mod files;
mod hash;
mod infrastructure;
mod machines;
mod names;
mod patches;
mod topology;
mod workers;

use api::provisioning::{CloudAccountSpec, OWNER_UID, Rendering, Resolved, WorkloadClusterSpec};
pub use names::Names;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Cluster API, core.
pub const CORE: &str = "cluster.x-k8s.io";
/// Version of the core, bootstrap and control plane groups that is written.
pub const CORE_VERSION: &str = "v1beta2";
/// Cluster API, bootstrap by kubeadm.
pub const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
/// Cluster API, control planes by kubeadm.
pub const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";
/// Cluster API, infrastructure.
pub const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// Version of the infrastructure group that is written.
pub const INFRASTRUCTURE_VERSION: &str = "v1beta1";
/// The label by which Cluster API finds the objects of a cluster.
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// Key of the control plane in maps by pool.
pub const CONTROL_PLANE_GROUP: &str = "control-plane";

/// All that the objects of a cluster follow from.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Name of the WorkloadCluster.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its UID; empty when nothing is tagged with it.
    pub uid: &'a str,
    /// Its spec.
    pub spec: &'a WorkloadClusterSpec,
    /// The account of its cloud.
    pub account: &'a CloudAccountSpec,
    /// What was open in the spec and has been decided.
    pub resolved: &'a Resolved,
    /// IDs of server groups, by pool; [`CONTROL_PLANE_GROUP`] for the control plane.
    pub server_groups: &'a BTreeMap<String, String>,
}

/// Why there are no objects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The version has not been decided.
    #[error("the version {0:?} is not one of Kubernetes")]
    Version(String),
    /// A restricted API server that its own provisioner could not reach.
    #[error(
        "controlPlane.apiAccess restricts access, and the CloudAccount names no managementCIDRs: the provisioner would lock itself out"
    )]
    LockedOut,
    /// A patch that does not fit or reaches for what it may not.
    #[error("patches[{index}]: {problem}")]
    Patch {
        /// Which one.
        index: usize,
        /// What is wrong with it.
        problem: String,
    },
}

/// The objects of a cluster, in the order in which they are applied: what is referred to before what refers to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The objects.
    pub objects: Vec<Value>,
    /// Machine templates by pool; [`CONTROL_PLANE_GROUP`] for the control plane.
    pub templates: BTreeMap<String, String>,
    /// Patches in effect, as `Kind` or `Kind/pool`.
    pub patched: Vec<String>,
    /// Names of the objects that do not change.
    pub names: Names,
}

/// Makes the objects.
///
/// # Errors
///
/// When the spec cannot be met; the message is for users.
pub fn render(input: &Input<'_>) -> Result<Rendered, Fault> {
    let shop = Shop::new(*input)?;
    let cloud = infrastructure::cluster_spec(&shop)?;
    let parts = Parts {
        cloud: shop.patched("OpenStackCluster", None, json!({"spec": cloud}))?,
        control_plane: control_plane::parts(&shop)?,
        pools: workers::parts(&shop)?,
    };
    let mut templates = BTreeMap::new();
    templates.insert(CONTROL_PLANE_GROUP.to_owned(), parts.control_plane.machine.name.clone());
    for pool in &parts.pools {
        templates.insert(pool.name.clone(), pool.machine.name.clone());
    }
    let objects = match input.spec.rendering {
        Rendering::Plain => plain(&shop, &parts)?,
        Rendering::Topology => topology::objects(&shop, &parts)?,
    };
    let patched = input.spec.patches.iter().map(patches::shown).collect();
    Ok(Rendered { objects, templates, patched, names: shop.names })
}

/// A template: its object, and its name with the hash of its content.
struct Template {
    name: String,
    object: Value,
}

/// What is made for a pool.
struct Pool {
    name: String,
    machine: Template,
    bootstrap: Template,
}

/// What is made for the control plane.
struct ControlPlaneParts {
    machine: Template,
    /// `kubeadmConfigSpec`.
    kubeadm: Value,
}

struct Parts {
    cloud: Value,
    control_plane: ControlPlaneParts,
    pools: Vec<Pool>,
}

fn plain(shop: &Shop<'_>, parts: &Parts) -> Result<Vec<Value>, Fault> {
    let mut objects = Vec::new();
    let mut cloud = shop.object(
        (INFRASTRUCTURE, INFRASTRUCTURE_VERSION, "OpenStackCluster"),
        &shop.names.infrastructure_cluster,
    );
    merge(&mut cloud, &parts.cloud);
    objects.push(cloud);
    objects.push(parts.control_plane.machine.object.clone());
    objects.push(control_plane::object(shop, &parts.control_plane)?);
    let mut cluster = shop.object((CORE, CORE_VERSION, "Cluster"), &shop.names.cluster);
    let mut spec = infrastructure::network(shop);
    spec["infrastructureRef"] =
        reference(INFRASTRUCTURE, "OpenStackCluster", &shop.names.infrastructure_cluster);
    spec["controlPlaneRef"] = reference(CONTROL_PLANE, "KubeadmControlPlane", &shop.names.control_plane);
    merge(&mut cluster, &shop.patched("Cluster", None, json!({"spec": spec}))?);
    objects.push(cluster);
    for (pool, made) in shop.input.spec.node_pools.iter().zip(&parts.pools) {
        objects.push(made.machine.object.clone());
        objects.push(made.bootstrap.object.clone());
        objects.push(workers::deployment(shop, pool, made)?);
    }
    objects.extend(workers::health_checks(shop)?);
    Ok(objects)
}

/// What all builders share.
struct Shop<'a> {
    input: Input<'a>,
    names: Names,
    version: (u32, u32),
}

impl<'a> Shop<'a> {
    fn new(input: Input<'a>) -> Result<Self, Fault> {
        let version = input.resolved.kubernetes_version.as_deref().unwrap_or_default();
        let parsed = parse_version(version).ok_or_else(|| Fault::Version(version.to_owned()))?;
        Ok(Self { input, names: Names::of(input.name, input.spec), version: parsed })
    }

    /// The version of Kubernetes, as `v1.33.4`.
    fn version(&self) -> &str {
        self.input.resolved.kubernetes_version.as_deref().unwrap_or_default()
    }

    /// An object with name, namespace and the labels that all have.
    fn object(&self, (group, version, kind): (&str, &str, &str), name: &str) -> Value {
        let mut labels = json!({
            "app.kubernetes.io/managed-by": "multicluster-scheduler",
            CLUSTER_NAME: self.names.cluster,
        });
        if !self.input.uid.is_empty() {
            labels[OWNER_UID] = json!(self.input.uid);
        }
        json!({
            "apiVersion": format!("{group}/{version}"),
            "kind": kind,
            "metadata": {"name": name, "namespace": self.input.namespace, "labels": labels},
        })
    }

    /// The credentials of the cluster, as objects of the infrastructure provider refer to them.
    fn identity(&self) -> Value {
        let account = self.input.account;
        let mut identity =
            json!({"type": "Secret", "name": self.names.secret, "cloudName": account.cloud_name});
        if let Some(region) = &account.region {
            identity["region"] = json!(region);
        }
        identity
    }

    fn patched(&self, kind: &str, pool: Option<&str>, object: Value) -> Result<Value, Fault> {
        patches::apply(&self.input.spec.patches, kind, pool, object)
    }

    /// A template, named after what is in it.
    fn template(
        &self,
        of: (&str, &str, &str),
        (prefix, pool): (&str, Option<&str>),
        spec: &Value,
    ) -> Result<Template, Fault> {
        let body = self.patched(of.2, pool, json!({"spec": {"template": {"spec": spec}}}))?;
        let name = format!("{prefix}-{}", hash::short(&body["spec"]));
        let mut object = self.object(of, &name);
        merge(&mut object, &body);
        Ok(Template { name, object })
    }
}

/// Minor and patch of `v1.33.4`.
pub(crate) fn parse_version(version: &str) -> Option<(u32, u32)> {
    let (minor, patch) = version.strip_prefix("v1.")?.split_once('.')?;
    Some((minor.parse().ok()?, patch.parse().ok()?))
}

fn reference(group: &str, kind: &str, name: &str) -> Value {
    json!({"apiGroup": group, "kind": kind, "name": name})
}

/// Puts the fields of one object into another, depth first.
pub(crate) fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

#[cfg(test)]
mod tests;
