//! The kinds that follow, as raw objects whose unknown fields survive.

use api::references;
use k8s_openapi::NamespaceResourceScope;
use kube::api::ApiResource;
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A kind of object that follows pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// core/v1 ConfigMap.
    ConfigMap,
    /// core/v1 Secret.
    Secret,
    /// core/v1 Service.
    Service,
    /// networking.k8s.io/v1 Ingress.
    Ingress,
    /// core/v1 PersistentVolumeClaim.
    Claim,
}

/// All of them.
pub(crate) const ALL: [Kind; 5] = [Kind::ConfigMap, Kind::Secret, Kind::Service, Kind::Ingress, Kind::Claim];

impl Kind {
    /// The word in `kind`.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::ConfigMap => "ConfigMap",
            Kind::Secret => "Secret",
            Kind::Service => "Service",
            Kind::Ingress => "Ingress",
            Kind::Claim => "PersistentVolumeClaim",
        }
    }

    /// The word in a path, and in allow and deny lists.
    #[must_use]
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Kind::ConfigMap => "configmaps",
            Kind::Secret => "secrets",
            Kind::Service => "services",
            Kind::Ingress => "ingresses",
            Kind::Claim => "persistentvolumeclaims",
        }
    }

    /// Whether copies hold what their originals do not: they stay when nobody uses them, are in one target alone, and
    /// go with their original only.
    #[must_use]
    pub(crate) fn holds_data(self) -> bool {
        self == Kind::Claim
    }

    /// For calls.
    #[must_use]
    pub(crate) fn resource(self) -> ApiResource {
        let (group, api_version) = match self {
            Kind::ConfigMap | Kind::Secret | Kind::Service | Kind::Claim => ("", "v1"),
            Kind::Ingress => ("networking.k8s.io", "networking.k8s.io/v1"),
        };
        ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: api_version.to_owned(),
            kind: self.as_str().to_owned(),
            plural: self.plural().to_owned(),
        }
    }
}

impl From<references::Kind> for Kind {
    fn from(kind: references::Kind) -> Self {
        match kind {
            references::Kind::ConfigMap => Kind::ConfigMap,
            references::Kind::Secret => Kind::Secret,
            references::Kind::Claim => Kind::Claim,
        }
    }
}

/// An object by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Object {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its namespace, in all clusters.
    pub(crate) namespace: Arc<str>,
    /// Its name, in all clusters.
    pub(crate) name: Arc<str>,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

impl Object {
    pub(crate) fn of(kind: Kind, metadata: &ObjectMeta) -> Self {
        Self {
            kind,
            namespace: Arc::from(metadata.namespace.as_deref().unwrap_or_default()),
            name: Arc::from(metadata.name.as_deref().unwrap_or_default()),
        }
    }
}

/// Which kind a [`Raw`] object is.
pub(crate) trait Marker: Clone + fmt::Debug + Send + Sync + 'static {
    const KIND: Kind;
}

/// Marks ConfigMaps.
#[derive(Debug, Clone)]
pub(crate) struct ConfigMaps;

impl Marker for ConfigMaps {
    const KIND: Kind = Kind::ConfigMap;
}

/// Marks Secrets.
#[derive(Debug, Clone)]
pub(crate) struct Secrets;

impl Marker for Secrets {
    const KIND: Kind = Kind::Secret;
}

/// Marks Services.
#[derive(Debug, Clone)]
pub(crate) struct Services;

impl Marker for Services {
    const KIND: Kind = Kind::Service;
}

/// Marks Ingresses.
#[derive(Debug, Clone)]
pub(crate) struct Ingresses;

impl Marker for Ingresses {
    const KIND: Kind = Kind::Ingress;
}

/// Marks PersistentVolumeClaims.
#[derive(Debug, Clone)]
pub(crate) struct Claims;

impl Marker for Claims {
    const KIND: Kind = Kind::Claim;
}

/// An object with typed metadata; everything else as the API server sent it.
#[derive(Clone, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Raw<M: Marker> {
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    #[serde(flatten)]
    pub(crate) body: Map<String, Value>,
    #[serde(skip)]
    marker: PhantomData<M>,
}

/// The body may be secret.
impl<M: Marker> fmt::Debug for Raw<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(M::KIND.as_str()).field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

impl<M: Marker> kube::Resource for Raw<M> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;
    fn kind((): &()) -> Cow<'_, str> {
        M::KIND.as_str().into()
    }
    fn group((): &()) -> Cow<'_, str> {
        M::KIND.resource().group.into()
    }
    fn version((): &()) -> Cow<'_, str> {
        M::KIND.resource().version.into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        M::KIND.plural().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
