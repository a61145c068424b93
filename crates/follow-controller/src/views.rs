//! What is kept of pods, originals and copies.

use crate::ingresses::{Ingress, addresses};
use crate::kinds::{Kind, Marker};
use crate::kinds::{Object, Raw};
use crate::services::Service;
use crate::shape::Content;
use api::claims::{Whereabouts, whereabouts};
use api::managed::owned;
use api::references::{References, of_pod};
use api::{Pod, keys, raw};
use kube::core::ObjectMeta;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

/// A ConfigMap that every namespace of every cluster has, and that most pods name for their token.
const ROOT_CERTIFICATE: &str = "kube-root-ca.crt";

/// A proxy pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) namespace: Arc<str>,
    /// Virtual node; empty before the pod is bound.
    pub(crate) node: String,
    /// UID of the cluster that the pod was elected for or granted to.
    pub(crate) cluster: Option<String>,
    /// A delegate exists there, or is about to.
    pub(crate) is_live: bool,
    /// What it names.
    pub(crate) names: BTreeSet<Object>,
    /// By which Services select it.
    pub(crate) labels: BTreeMap<String, String>,
}

impl User {
    /// `None` for what is no proxy pod.
    pub(crate) fn new(pod: &Pod) -> Option<Self> {
        if !pod.is_proxy() {
            return None;
        }
        let namespace: Arc<str> = Arc::from(pod.namespace());
        let is_elected = !pod.node().is_empty() || pod.annotation(keys::GRANT).is_some();
        let is_live = is_elected && !raw::is_terminal(pod.phase());
        let names = if is_live { objects(&namespace, &of_pod(&pod.spec)) } else { BTreeSet::new() };
        Some(Self {
            labels: pod.metadata.labels.clone().filter(|_| is_live).unwrap_or_default(),
            node: pod.node().to_owned(),
            cluster: pod.annotation(keys::ELECTED_TARGET).map(str::to_owned),
            is_live,
            names,
            namespace,
        })
    }
}

fn objects(namespace: &Arc<str>, references: &References) -> BTreeSet<Object> {
    let object = |reference: &api::references::Reference| Object {
        kind: Kind::from(reference.kind),
        namespace: Arc::clone(namespace),
        name: Arc::from(reference.name.as_str()),
    };
    let of_every_cluster = |reference: &&api::references::Reference| {
        reference.kind == api::references::Kind::ConfigMap && reference.name == ROOT_CERTIFICATE
    };
    references.keys().filter(|reference| !of_every_cluster(reference)).map(object).collect()
}

/// An object of the source.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) resource_version: String,
    pub(crate) finalizers: Vec<String>,
    pub(crate) annotation: Option<String>,
    pub(crate) deleting: bool,
    /// Of a Service.
    pub(crate) service: Option<Service>,
    /// Of an Ingress.
    pub(crate) ingress: Option<Ingress>,
    /// Of a claim: where its data is.
    pub(crate) claim: Option<Whereabouts>,
}

impl Source {
    pub(crate) fn new(metadata: &ObjectMeta) -> Self {
        let resource_version = metadata.resource_version.clone().unwrap_or_default();
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            version: resource_version.parse().unwrap_or(0),
            resource_version,
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            annotation: metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(keys::FOLLOW))
                .cloned(),
            deleting: metadata.deletion_timestamp.is_some(),
            service: None,
            ingress: None,
            claim: None,
        }
    }

    /// With what matters of a kind's own fields.
    pub(crate) fn whole(
        kind: Kind,
        metadata: &ObjectMeta,
        whole: &Map<String, Value>,
        setting: (&str, bool),
    ) -> Self {
        let spec = whole.get("spec").unwrap_or(&Value::Null);
        Self {
            service: (kind == Kind::Service).then(|| Service::new(metadata, spec, setting)),
            ingress: (kind == Kind::Ingress)
                .then(|| Ingress::new(metadata, spec, whole.get("status").unwrap_or(&Value::Null))),
            claim: (kind == Kind::Claim).then(|| {
                whereabouts(&json!({"metadata": {"annotations": metadata.annotations}, "spec": spec}))
            }),
            ..Self::new(metadata)
        }
    }

    /// Whether it is a copy that somebody made here: no original of ours.
    pub(crate) fn is_copy(&self) -> bool {
        self.service.as_ref().is_some_and(|service| service.is_copy)
            || self.ingress.as_ref().is_some_and(|ingress| ingress.is_copy)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == keys::FOLLOW)
    }

    /// Whether it carries a finalizer that an older release put on what it had copied.
    pub(crate) fn is_legacy(&self) -> bool {
        self.finalizers.iter().any(|finalizer| is_legacy(finalizer))
    }

    /// Its finalizers with ours, or without, and in any case without those of older releases.
    pub(crate) fn finalizers(&self, held: bool) -> Vec<&str> {
        let others = self.finalizers.iter().map(String::as_str).filter(|finalizer| !keys::is_ours(finalizer));
        others.chain(held.then_some(keys::FOLLOW)).collect()
    }
}

fn is_legacy(finalizer: &str) -> bool {
    keys::is_ours(finalizer) && finalizer != keys::FOLLOW
}

/// An object of a target that says to be ours.
#[derive(Debug, Clone)]
pub(crate) struct Copied {
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) terminating: bool,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) owned: (BTreeSet<String>, BTreeSet<String>),
    pub(crate) content: Content,
    /// Of an Ingress: where it is reached.
    pub(crate) addresses: Vec<Value>,
}

impl Copied {
    pub(crate) fn new(kind: Kind, metadata: &ObjectMeta, whole: &Map<String, Value>, manager: &str) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0),
            terminating: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations: metadata.annotations.clone().unwrap_or_default(),
            owned: owned(metadata, manager),
            content: Content::of_copy(kind, metadata, whole),
            addresses: match kind {
                Kind::Ingress => addresses(whole.get("status").unwrap_or(&Value::Null)),
                Kind::ConfigMap | Kind::Secret | Kind::Service | Kind::Claim => Vec::new(),
            },
        }
    }

    pub(crate) fn of<M: Marker>(raw: &Raw<M>, manager: &str) -> (Object, Self) {
        (Object::of(M::KIND, &raw.metadata), Self::new(M::KIND, &raw.metadata, &raw.body, manager))
    }
}

/// How an original looks, as of a version.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) version: u64,
    pub(crate) content: Content,
}

/// What stands in the way in one target, until when it is left alone, and whether the user knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) kind: crate::plan::Obstacle,
    pub(crate) until: Instant,
}
