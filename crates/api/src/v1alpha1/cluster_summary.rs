//! ClusterSummary: what a cluster offers, for the virtual nodes that stand for it elsewhere.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The sums over the nodes of a cluster that can take pods. Its labels are the nodes' common labels.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct ClusterSummary {
    /// Name `singleton`; labels are those that nodes agree on; annotations say identity and protocol.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Resource name to quantity, over all nodes that can take pods.
    #[serde(default)]
    pub capacity: BTreeMap<String, String>,
    /// Resource name to quantity, over the same nodes.
    #[serde(default)]
    pub allocatable: BTreeMap<String, String>,
    /// What of `allocatable` nobody has asked for yet; empty from writers that do not know.
    #[serde(default)]
    pub free: BTreeMap<String, String>,
}

impl Serialize for ClusterSummary {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut object = serializer.serialize_struct("ClusterSummary", 6)?;
        object.serialize_field("apiVersion", &<Self as kube::Resource>::api_version(&()))?;
        object.serialize_field("kind", "ClusterSummary")?;
        object.serialize_field("metadata", &self.metadata)?;
        object.serialize_field("capacity", &self.capacity)?;
        object.serialize_field("allocatable", &self.allocatable)?;
        object.serialize_field("free", &self.free)?;
        object.end()
    }
}

impl kube::Resource for ClusterSummary {
    type DynamicType = ();
    type Scope = kube::core::ClusterResourceScope;
    fn kind((): &()) -> Cow<'_, str> {
        "ClusterSummary".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "multicluster.admiralty.io".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1alpha1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "clustersummaries".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
