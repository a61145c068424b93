//! One call for each action; its answer goes into the cache.

use crate::cache::{Cache, Key, Round};
use crate::delegate;
use crate::error::Error;
use crate::fences::Watched;
use crate::metrics::Metrics;
use crate::patches::{hold, json_patch, release, replace_status};
use crate::plan::{Action, Delegate, Observed};
use api::references::{self, Reference};
use api::{Pod, PodChaperon, keys};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::api::{DeleteParams, ObjectMeta, Patch, PostParams, Preconditions};
use kube::{Api, Client};
use runtime::{Chain, Class, patching};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;
use tokio::time::Instant;
use tracing::{info, warn};

/// What every call needs.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) manager: String,
    pub(crate) cache: Cache,
    pub(crate) fences: Watched,
    pub(crate) common: runtime::Metrics,
    pub(crate) metrics: Metrics,
}

impl Action {
    /// The word for the metric.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Action::ReadDelegate => "read_delegate",
            Action::ReadChaperon => "read_chaperon",
            Action::ReadReferences(_) => "read_references",
            Action::HoldChaperon => "hold_chaperon",
            Action::HoldDelegate => "hold_delegate",
            Action::CreateDelegate(_) => "create_delegate",
            Action::CopyStatus(_) => "copy_status",
            Action::RecordProblem(_) => "record_problem",
            Action::RecordLost(_) => "record_lost",
            Action::CopyAnnotations(_) => "copy_annotations",
            Action::AddEphemeral(_) => "add_ephemeral",
            Action::Resize(_) => "resize_delegate",
            Action::Update(_) => "update_delegate",
            Action::DeleteDelegate(_) => "delete_delegate",
            Action::DiscardDelegate => "discard_delegate",
            Action::RevokeDelegate => "revoke_delegate",
            Action::ReleaseDelegate => "release_delegate",
            Action::ReleaseChaperon => "release_chaperon",
        }
    }
}

/// The calls about one name.
pub(crate) struct Hands<'a> {
    context: &'a Context,
    key: &'a Key,
    pods: Api<Pod>,
    chaperons: Api<PodChaperon>,
}

impl<'a> Hands<'a> {
    pub(crate) fn new(context: &'a Context, key: &'a Key) -> Self {
        Self {
            context,
            key,
            pods: Api::namespaced(context.client.clone(), &key.namespace),
            chaperons: Api::namespaced(context.client.clone(), &key.namespace),
        }
    }

    /// Carries out one action.
    pub(crate) async fn apply(
        &self,
        seen: &Observed,
        action: &Action,
        round: &mut Round,
    ) -> Result<(), Error> {
        let nobody = PodChaperon::default();
        let chaperon = seen.chaperon.as_deref().unwrap_or(&nobody);
        let nothing = Pod::default();
        let pod = match &seen.delegate {
            Delegate::Present(pod) => pod.as_ref(),
            Delegate::Unseen | Delegate::Gone(_) => &nothing,
        };
        match action {
            Action::ReadDelegate => self.read_delegate().await.map(|_found| ()),
            Action::ReadChaperon => {
                round.live = true;
                self.read_chaperon().await
            }
            Action::ReadReferences(unread) => {
                try_join_all(unread.iter().map(|reference| self.read_reference(reference))).await.map(drop)
            }
            Action::HoldChaperon => self.patch_chaperon(hold(&chaperon.metadata)).await,
            Action::HoldDelegate => self.patch_pod(hold(&pod.metadata)).await,
            Action::CreateDelegate(node) => self.create(chaperon, node.as_deref(), round).await,
            Action::CopyStatus(status) | Action::RecordProblem(status) | Action::RecordLost(status) => {
                self.note(seen, action, round);
                self.write_status(chaperon, status).await
            }
            Action::CopyAnnotations(changes) => self.copy_annotations(chaperon, changes).await,
            Action::AddEphemeral(containers) => self.add_ephemeral(pod, containers).await,
            Action::Resize(spec) => self.change(pod, Some("resize"), json!({"spec": spec})).await,
            Action::Update(patch) => self.change(pod, None, patch.clone()).await,
            Action::DeleteDelegate(grace) => self.delete(pod, *grace, None).await,
            Action::RevokeDelegate => {
                info!(namespace = self.key.namespace, chaperon = self.key.name, "revokes the delegate");
                self.delete(pod, Some(0), Some(pod.resource_version())).await
            }
            Action::DiscardDelegate => {
                self.delete(pod, Some(0), None).await?;
                self.context.cache.count_refusal(self.key);
                self.context.metrics.replacements.with_label_values(&["refused_by_node"]).inc();
                Ok(())
            }
            Action::ReleaseDelegate => match release(&pod.metadata) {
                Some(patch) => self.patch_pod(patch).await,
                None => Ok(()),
            },
            Action::ReleaseChaperon => match release(&chaperon.metadata) {
                Some(patch) => self.patch_chaperon(patch).await,
                None => Ok(()),
            },
        }
    }

    /// A strategic merge adds them by their names beside those that are there.
    async fn add_ephemeral(&self, pod: &Pod, containers: &[Value]) -> Result<(), Error> {
        let patch = Patch::Strategic(
            json!({"metadata": {"uid": pod.uid()}, "spec": {delegate::EPHEMERAL: containers}}),
        );
        let params = patching(&self.context.manager);
        let patched =
            self.pods.patch_subresource("ephemeralcontainers", &self.key.name, &params, &patch).await;
        let failed = |source| Error::Write {
            verb: "add ephemeral containers to",
            kind: "pod",
            object: self.key.to_string(),
            source,
        };
        self.context.cache.learn_pod(patched.map_err(failed)?);
        Ok(())
    }

    /// Changes the delegate, or notes why the API server does not let us.
    async fn change(&self, pod: &Pod, subresource: Option<&str>, mut patch: Value) -> Result<(), Error> {
        patch["metadata"]["uid"] = json!(pod.uid());
        let params = patching(&self.context.manager);
        let failed = |source| Error::Patch { kind: "pod", object: self.key.to_string(), source };
        if let Some(added) = patch["spec"].get("tolerations").and_then(Value::as_array).cloned() {
            // A merge would replace those that are there.
            let live = self.pods.get(&self.key.name).await.map_err(failed)?;
            let mut all = live.spec["tolerations"].as_array().cloned().unwrap_or_default();
            all.extend(added.into_iter().filter(|toleration| !all.contains(toleration)).collect::<Vec<_>>());
            patch["spec"]["tolerations"] = Value::Array(all);
        }
        let patch = Patch::Strategic(patch);
        let changed = match subresource {
            Some(name) => self.pods.patch_subresource(name, &self.key.name, &params, &patch).await,
            None => self.pods.patch(&self.key.name, &params, &patch).await,
        };
        match changed {
            Ok(pod) => {
                info!(namespace = self.key.namespace, chaperon = self.key.name, "changed the delegate");
                self.context.cache.learn_pod(pod);
                Ok(())
            }
            Err(kube::Error::Api(status)) if [400, 403, 404, 422].contains(&status.code) => {
                self.context.cache.refuse_update(self.key, &status.message);
                Err(failed(kube::Error::Api(status)))
            }
            Err(source) => Err(failed(source)),
        }
    }

    /// Logs and counts what a new status means.
    fn note(&self, seen: &Observed, action: &Action, round: &Round) {
        let Key { namespace, name: chaperon } = self.key;
        if let Action::CopyStatus(status) = action
            && delegate::has_run(status)
        {
            self.context.cache.forgive(self.key);
        }
        if let (Action::RecordProblem(_), Some((_, reason))) = (action, &round.refused) {
            info!(namespace, chaperon, reason, "the delegate was refused");
        } else if let (Action::RecordProblem(_), Delegate::Gone(_)) = (action, &seen.delegate) {
            info!(namespace, chaperon, "the delegate was lost; it is created again");
            self.context.metrics.replacements.with_label_values(&["lost"]).inc();
        }
        if let Action::RecordLost(_) = action {
            info!(namespace, chaperon, "the delegate was lost; that is its end");
        }
    }

    /// Whether there is a pod.
    async fn read_delegate(&self) -> Result<bool, Error> {
        let (_, before) = self.context.cache.versions(self.key);
        let read = self.pods.get_opt(&self.key.name).await;
        match read.map_err(|source| Error::Read { kind: "pod", object: self.key.to_string(), source })? {
            Some(pod) => {
                self.context.cache.learn_read_pod(pod, before.as_deref());
                Ok(true)
            }
            None => {
                self.context.cache.learn_no_pod(self.key);
                Ok(false)
            }
        }
    }

    /// Whether an object that the delegate names is there. Where that may not be read, the kubelet finds out.
    async fn read_reference(&self, reference: &Reference) -> Result<(), Error> {
        let (client, namespace) = (self.context.client.clone(), &self.key.namespace);
        let found = match reference.kind {
            references::Kind::ConfigMap => {
                is_there(&Api::<ConfigMap>::namespaced(client, namespace), reference).await
            }
            references::Kind::Secret => {
                is_there(&Api::<Secret>::namespaced(client, namespace), reference).await
            }
            references::Kind::Claim => {
                is_there(&Api::<PersistentVolumeClaim>::namespaced(client, namespace), reference).await
            }
        };
        let found = match found {
            // Nobody may take another's data for its own.
            Err(source) if runtime::class(&source) == Class::Forbidden && reference.original.is_empty() => {
                warn!(namespace, object = %reference, error = %Chain(&source), "may not read what a delegate names; creating it all the same");
                true
            }
            other => other.map_err(|source| Error::Read {
                kind: reference.kind.as_str(),
                object: format!("{namespace}/{}", reference.name),
                source,
            })?,
        };
        self.context.cache.stock(|stock| stock.learn((namespace, reference), found, Instant::now()));
        Ok(())
    }

    async fn read_chaperon(&self) -> Result<(), Error> {
        let (before, _) = self.context.cache.versions(self.key);
        let read = self.chaperons.get_opt(&self.key.name).await;
        match read.map_err(|source| Error::Read {
            kind: "PodChaperon",
            object: self.key.to_string(),
            source,
        })? {
            Some(chaperon) => self.context.cache.learn_read_chaperon(chaperon, before.as_deref()),
            None => self.context.cache.learn_no_chaperon(self.key),
        }
        Ok(())
    }

    async fn create(
        &self,
        chaperon: &PodChaperon,
        node: Option<&str>,
        round: &mut Round,
    ) -> Result<(), Error> {
        let params = PostParams { dry_run: false, field_manager: Some(self.context.manager.clone()) };
        let source = match self.pods.create(&params, &delegate::build(chaperon, node)).await {
            Ok(pod) => {
                info!(namespace = self.key.namespace, chaperon = self.key.name, node, "created the delegate");
                self.context.cache.learn_pod(pod);
                return Ok(());
            }
            Err(source) => source,
        };
        let class = runtime::class(&source);
        if node.is_some() && matches!(class, Class::Forbidden | Class::Invalid) {
            // Admission may have added a gate, or want no pod that names its node: then the scheduler binds it.
            self.context.cache.break_promise(self.key);
            return Ok(());
        }
        if class == Class::Conflict {
            match self.read_conflicting().await? {
                Conflicting::Known => return Ok(()),
                Conflicting::Foreign => {
                    let message = "another pod of this name exists that is not ours";
                    round.refused = Some((Class::Conflict, message.to_owned()));
                    return Ok(());
                }
                Conflicting::Nothing => {}
            }
        }
        match (class, &source) {
            (
                Class::Forbidden | Class::Invalid | Class::NotFound | Class::Overloaded,
                kube::Error::Api(status),
            ) => {
                self.context.metrics.refusals.with_label_values(&[class.as_str()]).inc();
                self.context.cache.wait_for_room(self.key);
                round.refused = Some((class, status.message.clone()));
                Ok(())
            }
            _ => Err(Error::Write { verb: "create", kind: "pod", object: self.key.to_string(), source }),
        }
    }

    /// What was in the way of a creation.
    async fn read_conflicting(&self) -> Result<Conflicting, Error> {
        let read = self.pods.get_opt(&self.key.name).await;
        match read.map_err(|source| Error::Read { kind: "pod", object: self.key.to_string(), source })? {
            // Quota also answers so, when it is contended for.
            None => Ok(Conflicting::Nothing),
            Some(pod) if pod.label(keys::PARENT_UID).is_some() || delegate::is_delegate(&pod) => {
                self.context.cache.learn_pod(pod);
                Ok(Conflicting::Known)
            }
            // No watch of ours would show its end.
            Some(_) => Ok(Conflicting::Foreign),
        }
    }

    async fn write_status(&self, chaperon: &PodChaperon, status: &Value) -> Result<(), Error> {
        let patch = json_patch(replace_status(chaperon, status));
        let written =
            self.chaperons.patch_status(&self.key.name, &patching(&self.context.manager), &patch).await;
        self.learn(written)
    }

    async fn copy_annotations(
        &self,
        chaperon: &PodChaperon,
        changes: &BTreeMap<String, Option<String>>,
    ) -> Result<(), Error> {
        let patch = Patch::Merge(json!({"metadata": {"uid": chaperon.uid(), "annotations": changes}}));
        let written = self.chaperons.patch(&self.key.name, &patching(&self.context.manager), &patch).await;
        self.learn(written)
    }

    async fn patch_chaperon(&self, ops: Value) -> Result<(), Error> {
        let written =
            self.chaperons.patch(&self.key.name, &patching(&self.context.manager), &json_patch(ops)).await;
        self.learn(written)
    }

    fn learn(&self, written: kube::Result<PodChaperon>) -> Result<(), Error> {
        let failed = |source| Error::Patch { kind: "PodChaperon", object: self.key.to_string(), source };
        self.context.cache.learn_chaperon(written.map_err(failed)?);
        Ok(())
    }

    async fn patch_pod(&self, ops: Value) -> Result<(), Error> {
        let written =
            self.pods.patch(&self.key.name, &patching(&self.context.manager), &json_patch(ops)).await;
        let failed = |source| Error::Patch { kind: "pod", object: self.key.to_string(), source };
        self.context.cache.learn_pod(written.map_err(failed)?);
        Ok(())
    }

    /// Deletes this very pod; with a version only as it was seen.
    async fn delete(&self, pod: &Pod, grace: Option<u32>, version: Option<&str>) -> Result<(), Error> {
        let params = DeleteParams {
            grace_period_seconds: grace,
            preconditions: Some(Preconditions {
                uid: Some(pod.uid().to_owned()),
                resource_version: version.map(str::to_owned),
            }),
            ..DeleteParams::default()
        };
        let deleted = self.pods.delete(&self.key.name, &params).await;
        let failed =
            |source| Error::Write { verb: "delete", kind: "pod", object: self.key.to_string(), source };
        if let Some(pod) = deleted.map_err(failed)?.left() {
            self.context.cache.learn_pod(pod);
        }
        info!(namespace = self.key.namespace, chaperon = self.key.name, "deleted the delegate");
        Ok(())
    }
}

async fn is_there<K>(api: &Api<K>, reference: &Reference) -> kube::Result<bool>
where
    K: Clone + DeserializeOwned + Debug,
{
    let found = api.get_metadata_opt(&reference.name).await?;
    Ok(found.is_some_and(|object| {
        let is_it = reference.original.is_empty() || reference.original == original(&object.metadata);
        is_it && object.metadata.deletion_timestamp.is_none()
    }))
}

/// UID of the object in the source whose copy this is.
pub(crate) fn original(metadata: &ObjectMeta) -> String {
    let labels = metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(keys::PARENT_UID)).cloned().unwrap_or_default()
}

/// What a creation ran into.
enum Conflicting {
    /// A pod that the cache now shows.
    Known,
    /// A pod that nobody watches.
    Foreign,
    /// No pod.
    Nothing,
}
