//! Calls: one function for each kind of action.

use crate::error::Error;
use crate::machine::{
    ChaperonRef, ChaperonSeen, ClaimSeen, Election, Grant, GrantKind, Id, Live, Name, PodRef, PodSeen, Seed,
};
use crate::observe::{self, Source};
use api::claims::{self, Following, Followings, Mapping as Names};
use api::delegate::{Destination, chaperon, map_account};
use api::failover::{Policy, Wish};
use api::v1alpha1::LabelRewriting;
use api::{Pod, PodChaperon, fence, keys, names};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use runtime::{Class, TargetKey, patching};
use serde_json::{Value, json};
use std::sync::Arc;

/// A target that can be called.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) key: TargetKey,
    pub(crate) id: Id,
    pub(crate) client: Client,
    pub(crate) cluster_uid: String,
    pub(crate) labels: LabelRewriting,
    /// Its ServiceAccounts.
    pub(crate) accounts: Names,
    /// Its StorageClasses.
    pub(crate) classes: Names,
    pub(crate) failover: Policy,
    /// In which epoch of its Lease pods are elected now.
    pub(crate) fence_epoch: u64,
}

impl Remote {
    fn chaperons(&self, namespace: &str) -> Api<PodChaperon> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn error(&self, verb: &'static str, name: &Name, source: kube::Error) -> Error {
        let object = format!("PodChaperon {}/{}", name.namespace, name.name);
        Error::Call { verb, object, cluster: self.key.to_string(), source: Box::new(source) }
    }

    fn seen(&self, chaperon: &PodChaperon, name: &Name) -> Result<ChaperonSeen, Error> {
        observe::podchaperon(chaperon, &self.id, &self.cluster_uid)
            .ok_or_else(|| self.foreign(name, "belongs to somebody else"))
    }

    fn foreign(&self, name: &Name, why: &'static str) -> Error {
        let object = format!("{}/{}", name.namespace, name.name);
        Error::Foreign { object, cluster: self.key.to_string(), why }
    }

    /// The PodChaperon that asks for a pod here.
    fn build(&self, seed: &Seed, source: &Source) -> Result<PodChaperon, Error> {
        let destination =
            Destination { cluster_uid: &self.cluster_uid, virtual_node: &self.id, labels: self.labels };
        if self.labels != LabelRewriting::Rewrite {
            return chaperon(&seed.pod, source.origin(), destination).map_err(|source| Error::Delegate {
                object: seed.pod.full_name(),
                source: Box::new(source),
            });
        }
        let mut ask = seed.template.clone();
        ask.metadata.name = Some(names::chaperon(seed.pod.name(), seed.pod.uid(), &self.id));
        ask.metadata.labels.get_or_insert_default().extend([
            (keys::TARGET_UID.to_owned(), self.cluster_uid.clone()),
            (keys::VIRTUAL_NODE.to_owned(), names::label_value(&self.id)),
        ]);
        Ok(ask)
    }

    /// The claims that follow a pod here, as an annotation says it.
    fn followings(&self, claims: &[ClaimSeen]) -> String {
        let following = |claim: &ClaimSeen| {
            let spec = claims::spec(&claim.raw, &self.classes);
            (claim.name.name.to_string(), Following { uid: claim.uid.to_string(), spec })
        };
        let all: Followings = claims.iter().map(following).collect();
        json!(all).to_string()
    }

    /// Asks. Also says whether the ask is the one that was sent now.
    pub(crate) async fn create(
        &self,
        (seed, claims): (&Seed, &[ClaimSeen]),
        source: &Source,
    ) -> Result<(ChaperonSeen, bool), Error> {
        // The last word before anything leaves for another cluster.
        if !self.key.serves(seed.pod.namespace()) {
            return Err(Error::Unusable { cluster: self.key.to_string() });
        }
        let mut ask = self.build(seed, source)?;
        map_account(&mut ask.spec, &self.accounts);
        if !claims.is_empty() {
            let annotations = ask.metadata.annotations.get_or_insert_default();
            annotations.insert(keys::CLAIMS.to_owned(), self.followings(claims));
        }
        // What is in force now; the target cannot ask later what somebody has changed here.
        let policy = Wish::of(&seed.pod).over(self.failover);
        ask.metadata.annotations.get_or_insert_default().extend([
            (keys::FAILOVER.to_owned(), policy.failover.as_str().to_owned()),
            (keys::FENCE.to_owned(), policy.fence.as_str().to_owned()),
        ]);
        if policy.is_leased(&seed.pod) {
            let grace = ask.spec["terminationGracePeriodSeconds"].as_u64().unwrap_or(fence::GRACE_SECONDS);
            ask.metadata.annotations.get_or_insert_default().extend([
                (keys::FENCE_EPOCH.to_owned(), self.fence_epoch.to_string()),
                (keys::FENCE_GRACE_SECONDS.to_owned(), grace.to_string()),
            ]);
        }
        let name = Name { namespace: ask.namespace().into(), name: ask.name().into() };
        let api = self.chaperons(&name.namespace);
        match api.create(&PostParams::default(), &ask).await {
            Ok(made) => Ok((self.seen(&made, &name)?, true)),
            Err(error) if runtime::class(&error) == Class::Conflict => {
                let found = api.get(&name.name).await.map_err(|source| self.error("get", &name, source))?;
                if found.is_terminating() {
                    return Err(self.foreign(&name, "of an earlier ask is still being deleted"));
                }
                let same = [keys::PARENT_UID, keys::PARENT_CLUSTER_UID, keys::TARGET_UID]
                    .iter()
                    .all(|key| found.label(key) == ask.label(key))
                    && found.annotation(keys::SPEC_HASH) == ask.annotation(keys::SPEC_HASH);
                if !same {
                    return Err(self.foreign(&name, "was not made for this pod"));
                }
                Ok((self.seen(&found, &name)?, false))
            }
            Err(error) => Err(self.error("create", &name, error)),
        }
    }

    /// Asks again.
    pub(crate) async fn renew(&self, chaperon: &ChaperonRef, attempt: u64) -> Result<ChaperonSeen, Error> {
        let patch = json!({"metadata": {
            "uid": &*chaperon.uid,
            "annotations": {keys::ATTEMPT: attempt.to_string()},
        }});
        self.patch("renew", &chaperon.name, &patch).await
    }

    /// Lets the delegate run.
    pub(crate) async fn allow(
        &self,
        chaperon: &ChaperonRef,
        version: &str,
        finalizers: &[String],
        (epoch, grant): (u64, Option<GrantKind>),
    ) -> Result<ChaperonSeen, Error> {
        let mut finalizers = finalizers.to_vec();
        if !finalizers.iter().any(|found| found == keys::CHAPERON_FINALIZER) {
            finalizers.push(keys::CHAPERON_FINALIZER.to_owned());
        }
        let mut patch = json!({"metadata": {
            "uid": &*chaperon.uid,
            "resourceVersion": version,
            "annotations": {keys::IS_ALLOWED: "true", keys::ELECTION_EPOCH: epoch.to_string()},
            "finalizers": finalizers,
        }});
        if let Some(kind) = grant {
            patch["metadata"]["annotations"][keys::GRANT] = kind.as_str().into();
        }
        self.patch("allow", &chaperon.name, &patch).await
    }

    /// Wants the election back, or not any more.
    pub(crate) async fn revoke(&self, chaperon: &ChaperonRef, on: bool) -> Result<ChaperonSeen, Error> {
        let patch = json!({"metadata": {
            "uid": &*chaperon.uid,
            "annotations": {keys::REVOKED: on.then_some("true")},
        }});
        self.patch("revoke", &chaperon.name, &patch).await
    }

    async fn patch(&self, verb: &'static str, name: &Name, patch: &Value) -> Result<ChaperonSeen, Error> {
        let api = self.chaperons(&name.namespace);
        let params = PatchParams::default().validation_ignore();
        let patched = api.patch(&name.name, &params, &Patch::Merge(patch)).await;
        self.seen(&patched.map_err(|source| self.error(verb, name, source))?, name)
    }

    /// What there is now.
    pub(crate) async fn read(&self, chaperon: &ChaperonRef) -> Live<ChaperonSeen> {
        match self.chaperons(&chaperon.name.namespace).get(&chaperon.name.name).await {
            Ok(found) if found.uid() != &*chaperon.uid => Live::Gone,
            Ok(found) => match self.seen(&found, &chaperon.name) {
                Ok(seen) => Live::Found(Box::new(seen)),
                Err(error) => Live::Unknown(error.to_string()),
            },
            Err(error) if runtime::class(&error) == Class::NotFound => Live::Gone,
            Err(error) => Live::Unknown(self.error("get", &chaperon.name, error).for_user()),
        }
    }

    /// Takes an ask back; one that is gone already is no error.
    pub(crate) async fn delete(&self, chaperon: &ChaperonRef) -> Result<(), Error> {
        let preconditions = Preconditions { uid: Some(chaperon.uid.to_string()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.chaperons(&chaperon.name.namespace).delete(&chaperon.name.name, &params).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(runtime::class(&error), Class::NotFound | Class::Conflict) => Ok(()),
            Err(error) => Err(self.error("delete", &chaperon.name, error)),
        }
    }
}

/// The source.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) client: Client,
    pub(crate) manager: Arc<str>,
    pub(crate) source: Arc<Source>,
    pub(crate) clock: runtime::Clock,
}

impl Home {
    fn pods(&self, pod: &PodRef) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.name.namespace)
    }

    fn error(verb: &'static str, pod: &PodRef, source: kube::Error) -> Error {
        let object = format!("pod {}/{}", pod.name.namespace, pod.name.name);
        Error::Call { verb, object, cluster: "local".to_owned(), source: Box::new(source) }
    }

    fn post(&self) -> PostParams {
        PostParams { field_manager: Some(self.manager.to_string()), ..PostParams::default() }
    }

    /// Elects: the one write that decides where a pod goes.
    pub(crate) async fn bind(&self, pod: &PodRef, node: &str, election: &Election) -> Result<(), Error> {
        let mut binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": &*pod.name.name,
                "namespace": &*pod.name.namespace,
                "uid": &*pod.uid,
                "resourceVersion": pod.version,
                "annotations": {
                    keys::ELECTED_TARGET: &*election.target_uid,
                    keys::ELECTED_CHAPERON: &*election.chaperon_uid,
                    keys::ELECTION_EPOCH: election.epoch.to_string(),
                },
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        if let Some(lease) = election.lease {
            binding["metadata"]["annotations"][keys::FENCE_EPOCH] = lease.epoch.to_string().into();
            binding["metadata"]["annotations"][keys::FENCE_GRACE_SECONDS] = lease.grace.to_string().into();
        }
        let bound: Result<Value, kube::Error> =
            self.pods(pod).create_subresource("binding", &pod.name.name, &self.post(), &binding).await;
        bound.map(|_status| ()).map_err(|source| Self::error("bind", pod, source))
    }

    /// Writes which target is granted, or that none is, on the pod as it was seen.
    pub(crate) async fn grant(&self, pod: &PodRef, grant: Option<&Grant>) -> Result<Box<PodSeen>, Error> {
        let lease = grant.and_then(|grant| grant.election.lease);
        let mut annotations = json!({
            keys::GRANT: grant.map(|grant| grant.kind.as_str()),
            keys::ELECTED_TARGET: grant.map(|grant| &*grant.election.target_uid),
            keys::ELECTED_CHAPERON: grant.map(|grant| &*grant.election.chaperon_uid),
            keys::FENCE_EPOCH: lease.map(|lease| lease.epoch.to_string()),
            keys::FENCE_GRACE_SECONDS: lease.map(|lease| lease.grace.to_string()),
        });
        // It only ever grows.
        if let Some(grant) = grant {
            annotations[keys::ELECTION_EPOCH] = grant.election.epoch.to_string().into();
        }
        let patch = json!({
            "metadata": {"uid": &*pod.uid, "resourceVersion": pod.version, "annotations": annotations},
        });
        let params = patching(&self.manager);
        let patched = self.pods(pod).patch_status(&pod.name.name, &params, &Patch::Merge(&patch)).await;
        let patched = patched.map_err(|source| Self::error("grant", pod, source))?;
        Ok(Box::new(observe::pod(patched, &self.source)))
    }

    /// What the pod is now.
    pub(crate) async fn read(&self, pod: &PodRef) -> Live<PodSeen> {
        match self.pods(pod).get(&pod.name.name).await {
            Ok(found) => Live::Found(Box::new(observe::pod(found, &self.source))),
            Err(error) if runtime::class(&error) == Class::NotFound => Live::Gone,
            Err(error) => Live::Unknown(Self::error("get", pod, error).for_user()),
        }
    }

    /// Writes why the pod has no node; returns its new version. Fails if the pod has changed: it may be bound.
    pub(crate) async fn explain(&self, pod: &PodRef, message: &str, first: bool) -> Result<String, Error> {
        let mut condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        });
        if first {
            condition["lastTransitionTime"] = Value::from(seconds(self.clock.now()));
        }
        let patch = json!({
            "metadata": {"uid": &*pod.uid, "resourceVersion": pod.version},
            "status": {"conditions": [condition]},
        });
        let params = patching(&self.manager);
        let patched = self.pods(pod).patch_status(&pod.name.name, &params, &Patch::Strategic(&patch)).await;
        patched
            .map(|pod| pod.resource_version().to_owned())
            .map_err(|source| Self::error("write the status of", pod, source))
    }

    /// Writes an event about a pod.
    pub(crate) async fn event(
        &self,
        pod: &PodRef,
        kind: &str,
        reason: &str,
        message: &str,
    ) -> Result<(), Error> {
        let now = self.clock.now();
        let stamp = seconds(now);
        let stem: String = pod.name.name.chars().take(230).collect();
        let event = json!({
            "metadata": {
                "name": format!("{}.{:x}", stem.trim_end_matches(['-', '.']), now.as_nanosecond()),
                "namespace": &*pod.name.namespace,
            },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": &*pod.name.namespace, "name": &*pod.name.name,
                "uid": &*pod.uid, "resourceVersion": pod.version,
            },
            "type": kind,
            "reason": reason,
            "message": message.chars().take(1000).collect::<String>(),
            "source": {"component": &*self.manager},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        });
        let event =
            serde_json::from_value(event).expect("the fields of an event are spelled as the API spells them");
        let api: Api<k8s_openapi::api::core::v1::Event> =
            Api::namespaced(self.client.clone(), &pod.name.namespace);
        api.create(&self.post(), &event)
            .await
            .map(|_made| ())
            .map_err(|source| Self::error("write an event about", pod, source))
    }
}

/// A time as conditions and events carry it.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
