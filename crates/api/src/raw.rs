//! Objects whose spec and status stay raw JSON, so that a field which this release does not know survives.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Defines an object with typed metadata and raw `spec` and `status`.
macro_rules! raw_kind {
    ($(#[$doc:meta])* $name:ident, $group:literal, $version:literal, $plural:literal, $scope:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        pub struct $name {
            /// Name, labels, annotations, owners.
            #[serde(default)]
            pub metadata: ObjectMeta,
            /// The spec as the API server sent it; `Null` when trimmed or absent.
            #[serde(default)]
            pub spec: Value,
            /// The status as the API server sent it; `Null` when absent.
            #[serde(default)]
            pub status: Value,
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let fields = 3 + usize::from(!self.spec.is_null()) + usize::from(!self.status.is_null());
                let mut object = serializer.serialize_struct(stringify!($name), fields)?;
                object.serialize_field("apiVersion", &<Self as kube::Resource>::api_version(&()))?;
                object.serialize_field("kind", stringify!($name))?;
                object.serialize_field("metadata", &self.metadata)?;
                if !self.spec.is_null() {
                    object.serialize_field("spec", &self.spec)?;
                }
                if !self.status.is_null() {
                    object.serialize_field("status", &self.status)?;
                }
                object.end()
            }
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = $scope;
            fn kind((): &()) -> Cow<'_, str> {
                stringify!($name).into()
            }
            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }

        impl $name {
            /// An annotation's value.
            #[must_use]
            pub fn annotation(&self, key: &str) -> Option<&str> {
                self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
            }

            /// A label's value.
            #[must_use]
            pub fn label(&self, key: &str) -> Option<&str> {
                self.metadata.labels.as_ref()?.get(key).map(String::as_str)
            }

            /// Whether the object carries a finalizer.
            #[must_use]
            pub fn has_finalizer(&self, finalizer: &str) -> bool {
                self.metadata.finalizers.iter().flatten().any(|found| found == finalizer)
            }

            /// Whether the object is being deleted.
            #[must_use]
            pub fn is_terminating(&self) -> bool {
                self.metadata.deletion_timestamp.is_some()
            }

            /// The UID; empty for an object that no API server has seen.
            #[must_use]
            pub fn uid(&self) -> &str {
                self.metadata.uid.as_deref().unwrap_or_default()
            }

            /// The name; empty when only a generated one was asked for.
            #[must_use]
            pub fn name(&self) -> &str {
                self.metadata.name.as_deref().unwrap_or_default()
            }

            /// The namespace; empty for cluster-scoped objects.
            #[must_use]
            pub fn namespace(&self) -> &str {
                self.metadata.namespace.as_deref().unwrap_or_default()
            }

            /// `namespace/name`, for people.
            #[must_use]
            pub fn full_name(&self) -> String {
                if self.namespace().is_empty() {
                    return self.name().to_owned();
                }
                format!("{}/{}", self.namespace(), self.name())
            }

            /// The resourceVersion; empty for an object that no API server has seen.
            #[must_use]
            pub fn resource_version(&self) -> &str {
                self.metadata.resource_version.as_deref().unwrap_or_default()
            }
        }
    };
}

raw_kind!(
    /// A core/v1 Pod.
    Pod, "", "v1", "pods", kube::core::NamespaceResourceScope
);
raw_kind!(
    /// A core/v1 Node.
    Node, "", "v1", "nodes", kube::core::ClusterResourceScope
);
raw_kind!(
    /// A delegate to be: the pod spec of a proxy pod, in a target cluster, and the status of its delegate.
    PodChaperon, "multicluster.admiralty.io", "v1alpha1", "podchaperons", kube::core::NamespaceResourceScope
);

/// The groups of pods of the coscheduling plugin and of others that read its kind.
pub mod coscheduling {
    use super::{Cow, Deserialize, ObjectMeta, Serialize, Value};

    raw_kind!(
        /// A scheduling.x-k8s.io/v1alpha1 PodGroup.
        PodGroup, "scheduling.x-k8s.io", "v1alpha1", "podgroups", kube::core::NamespaceResourceScope
    );

    impl PodGroup {
        /// How many of its pods must fit at once.
        #[must_use]
        pub fn min_member(&self) -> usize {
            let least = self.spec["minMember"].as_u64().and_then(|least| usize::try_from(least).ok());
            least.unwrap_or(1).max(1)
        }
    }
}

/// The groups of pods of Kubernetes itself, served where its feature gate `GenericWorkload` is on.
pub mod workload {
    use super::{Cow, Deserialize, ObjectMeta, Serialize, Value};

    raw_kind!(
        /// A scheduling.k8s.io/v1beta1 PodGroup.
        PodGroup, "scheduling.k8s.io", "v1beta1", "podgroups", kube::core::NamespaceResourceScope
    );

    impl PodGroup {
        /// How many of its pods must fit at once; `None` for a group whose pods are placed one by one.
        #[must_use]
        pub fn min_count(&self) -> Option<usize> {
            let gang = self.spec.pointer("/schedulingPolicy/gang")?;
            let least = gang["minCount"].as_u64().and_then(|least| usize::try_from(least).ok());
            Some(least.unwrap_or(1).max(1))
        }
    }
}

/// What can be asked of everything that has a pod's status.
fn phase_of(status: &Value) -> &str {
    status.get("phase").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a phase is an end.
#[must_use]
pub fn is_terminal(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// Texts by key, as labels, annotations and selectors are; what is no text is left out.
#[must_use]
pub fn text_map(value: &Value) -> BTreeMap<String, String> {
    let fields = value.as_object().into_iter().flatten();
    fields.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// A condition of a pod's status, by its type.
#[must_use]
pub fn pod_condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status.get("conditions")?.as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Whether the status of a PodChaperon confirms that it was revoked: it has no delegate and gets none.
#[must_use]
pub fn confirms_revocation(status: &Value) -> bool {
    pod_condition(status, crate::keys::DELEGATE_CREATED).is_some_and(|created| {
        created["status"] == "False" && created["reason"] == crate::keys::DELEGATE_REVOKED
    })
}

impl Pod {
    /// The node that the pod is bound to; empty while it is not.
    #[must_use]
    pub fn node(&self) -> &str {
        self.spec.get("nodeName").and_then(Value::as_str).unwrap_or_default()
    }

    /// The phase; empty when the status has none.
    #[must_use]
    pub fn phase(&self) -> &str {
        phase_of(&self.status)
    }

    /// The scheduler that is to place the pod.
    #[must_use]
    pub fn scheduler(&self) -> &str {
        self.spec.get("schedulerName").and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether the pod is one that the webhook turned into a proxy pod.
    #[must_use]
    pub fn is_proxy(&self) -> bool {
        self.scheduler() == crate::keys::PROXY_SCHEDULER
            && self.annotation(crate::keys::SOURCE_POD_MANIFEST).is_some()
    }

    /// The owner that controls the pod, as kind, name and UID.
    #[must_use]
    pub fn controller(&self) -> Option<(&str, &str, &str)> {
        self.metadata
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true))
            .map(|owner| (owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()))
    }
}

impl PodChaperon {
    /// The phase of the delegate as far as recorded; empty before there was one.
    #[must_use]
    pub fn phase(&self) -> &str {
        phase_of(&self.status)
    }

    /// Whether the source elected this PodChaperon.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.annotation(crate::keys::IS_ALLOWED).is_some()
    }

    /// Whether the delegate may exist without a reservation.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        self.annotation(crate::keys::GRANT).is_some()
    }

    /// Whether the source has taken back its election, should the delegate have no node yet.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.annotation(crate::keys::REVOKED).is_some()
    }

    /// Whether a node is reserved, whatever the ask that the reservation answers.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.annotation(crate::keys::IS_RESERVED).is_some()
    }

    /// Number of the ask; 0 where the annotation is absent or no number.
    #[must_use]
    pub fn attempt(&self) -> u64 {
        self.number(crate::keys::ATTEMPT)
    }

    /// Number of the ask that the reservation answers; 0 where absent.
    #[must_use]
    pub fn reserved_attempt(&self) -> u64 {
        self.number(crate::keys::RESERVED_ATTEMPT)
    }

    fn number(&self, key: &str) -> u64 {
        self.annotation(key).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// Namespace and name of the proxy pod in the source.
    #[must_use]
    pub fn parent(&self) -> (&str, &str) {
        (
            self.annotation(crate::keys::PARENT_NAMESPACE).unwrap_or(self.namespace()),
            self.annotation(crate::keys::PARENT_NAME).unwrap_or(self.name()),
        )
    }

    /// UID of the proxy pod in the source; empty where the label is absent.
    #[must_use]
    pub fn parent_uid(&self) -> &str {
        self.label(crate::keys::PARENT_UID).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Pod, PodChaperon};
    use serde_json::json;

    #[test]
    fn w34_a_field_that_nobody_knows_survives_a_round_trip() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"futureField": {"x": 1}, "containers": [{"name": "c", "futureField": true}]}});
        let read: Pod = serde_json::from_value(pod.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), pod);
    }

    #[test]
    fn a_chaperon_says_its_kind_and_version() {
        let written = serde_json::to_value(PodChaperon::default()).unwrap();
        assert_eq!(written["apiVersion"], "multicluster.admiralty.io/v1alpha1");
        assert_eq!(written["kind"], "PodChaperon");
    }

    #[test]
    fn an_absent_attempt_is_zero() {
        assert_eq!(PodChaperon::default().attempt(), 0);
    }
}
