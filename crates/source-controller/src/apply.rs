//! One call for each action; its answer goes into the cache.

use crate::cache::{AnyBinding, Cache, Round};
use crate::desired::{
    self, Id, Slot, SourceKey, View, annotations, labels, metadata, owners, role, subjects,
};
use crate::error::Error;
use crate::plan::{Action, Binding, Observed, Part, Refusal};
use api::conditions::{self, Verdict};
use api::{ClusterSource, Source, SourceStatus};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use runtime::Class;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use tracing::info;

/// What every call needs.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) manager: String,
    pub(crate) cache: Cache,
    pub(crate) common: runtime::Metrics,
}

impl Action {
    /// The word for the metric.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Action::ReadSource => "read_source",
            Action::CreateAccount => "create_account",
            Action::CreateBinding(_) => "create_binding",
            Action::MendBinding(_) => "mend_binding",
            Action::DeleteBinding(_) => "delete_binding",
            Action::SetReady(_) => "set_ready",
        }
    }
}

impl Slot {
    fn kind(id: &Id) -> &'static str {
        if id.namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" }
    }
}

/// The calls about one source.
pub(crate) struct Hands<'a> {
    pub(crate) context: &'a Context,
    pub(crate) key: &'a SourceKey,
}

impl Hands<'_> {
    /// Carries out one action. What the API server refuses to be made goes into the round; an error ends it.
    pub(crate) async fn apply(
        &self,
        seen: &Observed,
        action: &Action,
        round: &mut Round,
    ) -> Result<(), Error> {
        let nobody = View::default();
        let source = seen.source.as_deref().unwrap_or(&nobody);
        let (part, result) = match action {
            Action::ReadSource => return self.read_source(round).await,
            Action::SetReady(verdict) => return self.set_ready(source, verdict).await,
            Action::CreateAccount => (Part::Account, self.create_account(source).await),
            Action::CreateBinding(slot) => {
                let id = self.key.binding(*slot);
                let created = if id.namespace.is_empty() {
                    self.create_binding(&Api::<ClusterRoleBinding>::all(self.client()), seen, *slot, round)
                        .await
                } else {
                    let api = Api::<RoleBinding>::namespaced(self.client(), &id.namespace);
                    self.create_binding(&api, seen, *slot, round).await
                };
                (Part::Binding(*slot), created)
            }
            Action::MendBinding(slot) => (Part::Binding(*slot), self.mend(source, seen, *slot).await),
            Action::DeleteBinding(slot) => (Part::Binding(*slot), self.delete(seen, *slot).await),
        };
        match result {
            Err(error) if is_refusal(part, error.class()) => {
                round.refusals.insert(part, Refusal::Refused(error.class(), error.answer()));
                Ok(())
            }
            other => other,
        }
    }

    fn client(&self) -> Client {
        self.context.client.clone()
    }

    fn params(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.context.manager.clone()), ..PatchParams::default() }
    }

    fn post(&self) -> PostParams {
        PostParams { dry_run: false, field_manager: Some(self.context.manager.clone()) }
    }

    fn failed(&self, verb: &'static str) -> impl Fn(kube::Error) -> Error {
        let (kind, object) = (self.key.kind(), self.key.to_string());
        move |source| Error { verb, kind, object: object.clone(), source }
    }

    async fn read_source(&self, round: &mut Round) -> Result<(), Error> {
        let failed = self.failed("read");
        let found = if self.key.is_cluster() {
            let api = Api::<ClusterSource>::all(self.client());
            api.get_opt(&self.key.name).await.map_err(failed)?.map(desired::of_cluster_source)
        } else {
            let api = Api::<Source>::namespaced(self.client(), &self.key.namespace);
            api.get_opt(&self.key.name).await.map_err(failed)?.map(desired::of_source)
        };
        match found {
            Some(found) => round.live = self.context.cache.learn_source(found),
            None => {
                self.context.cache.lose_source(self.key.clone());
                round.live = true;
            }
        }
        Ok(())
    }

    async fn create_account(&self, source: &View) -> Result<(), Error> {
        let Some(id) = &source.identity.account else { return Ok(()) };
        let account =
            ServiceAccount { metadata: metadata(self.key, &source.uid, id), ..ServiceAccount::default() };
        let api = Api::<ServiceAccount>::namespaced(self.client(), &id.namespace);
        match api.create(&self.post(), &account).await {
            Ok(_) => info!(namespace = id.namespace, object = id.name, "created the ServiceAccount"),
            // Somebody else made it: an identity is not ours alone, and it may be used as it is.
            Err(error) if runtime::class(&error) == Class::Conflict => {}
            Err(source) => {
                return Err(Error { verb: "create", kind: "ServiceAccount", object: id.to_string(), source });
            }
        }
        self.context.cache.see_account(id.clone());
        Ok(())
    }

    async fn create_binding<B>(
        &self,
        api: &Api<B>,
        seen: &Observed,
        slot: Slot,
        round: &mut Round,
    ) -> Result<(), Error>
    where
        B: Resource + AnyBinding + Serialize + DeserializeOwned + Clone + Debug,
    {
        let Some(source) = &seen.source else { return Ok(()) };
        let id = self.key.binding(slot);
        let failed =
            |verb| move |source| Error { verb, kind: Slot::kind(&id), object: id.to_string(), source };
        let id = self.key.binding(slot);
        let manifest = json!({
            "metadata": metadata(self.key, &source.uid, &id),
            "roleRef": role(&seen.roles, slot),
            "subjects": subjects(&source.identity),
        });
        let object = parse::<B>(manifest).map_err(failed.clone()("build"))?;
        match api.create(&self.post(), &object).await {
            Ok(created) => {
                info!(namespace = id.namespace, object = id.name, "created the binding");
                self.context.cache.see_binding(created);
                return Ok(());
            }
            Err(error) if runtime::class(&error) == Class::Conflict => {}
            Err(error) => return Err(failed("create")(error)),
        }
        let Some(found) = api.get_opt(&id.name).await.map_err(failed("read"))? else { return Ok(()) };
        let (_, named, view) = crate::cache::binding(found.clone());
        let is_ours = !view.source_uid.is_empty()
            || named.as_ref() == Some(self.key)
            || view.owners.iter().any(|owner| owner.uid == source.uid);
        if is_ours {
            self.context.cache.adopt_binding(found, &source.uid);
        } else {
            let kind = Slot::kind(&id);
            let message = format!("{kind} {id} exists and was not made for this {}", self.key.kind());
            round.refusals.insert(Part::Binding(slot), Refusal::NameTaken(message));
        }
        Ok(())
    }

    async fn mend(&self, source: &View, seen: &Observed, slot: Slot) -> Result<(), Error> {
        let Some(binding) = seen.bindings.get(&slot) else { return Ok(()) };
        let id = self.key.binding(slot);
        let patch = Patch::Merge(mended(self.key, source, &id, binding));
        let failed = |source| Error { verb: "patch", kind: Slot::kind(&id), object: id.to_string(), source };
        if id.namespace.is_empty() {
            let api = Api::<ClusterRoleBinding>::all(self.client());
            self.context
                .cache
                .see_binding(api.patch(&id.name, &self.params(), &patch).await.map_err(failed)?);
        } else {
            let api = Api::<RoleBinding>::namespaced(self.client(), &id.namespace);
            self.context
                .cache
                .see_binding(api.patch(&id.name, &self.params(), &patch).await.map_err(failed)?);
        }
        info!(namespace = id.namespace, object = id.name, "brought the binding back to what it should be");
        Ok(())
    }

    async fn delete(&self, seen: &Observed, slot: Slot) -> Result<(), Error> {
        let Some(binding) = seen.bindings.get(&slot) else { return Ok(()) };
        let id = self.key.binding(slot);
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(binding.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        let deleted = if id.namespace.is_empty() {
            Api::<ClusterRoleBinding>::all(self.client()).delete(&id.name, &params).await.map(|_| ())
        } else {
            let api = Api::<RoleBinding>::namespaced(self.client(), &id.namespace);
            api.delete(&id.name, &params).await.map(|_| ())
        };
        match deleted {
            Ok(()) => info!(namespace = id.namespace, object = id.name, "deleted the binding"),
            Err(error) if runtime::class(&error) == Class::NotFound => {}
            Err(source) => {
                return Err(Error { verb: "delete", kind: Slot::kind(&id), object: id.to_string(), source });
            }
        }
        self.context.cache.forget_binding(&id);
        Ok(())
    }

    async fn set_ready(&self, source: &View, verdict: &Verdict) -> Result<(), Error> {
        let mut all = source.conditions.clone();
        conditions::merge(
            &mut all,
            std::slice::from_ref(verdict),
            source.generation,
            &Time(Timestamp::now()),
        );
        let status = SourceStatus { conditions: all };
        let patch = Patch::Merge(json!({"metadata": {"uid": source.uid}, "status": status}));
        let failed = self.failed("write the status of");
        let written = if self.key.is_cluster() {
            let api = Api::<ClusterSource>::all(self.client());
            let written = api.patch_status(&self.key.name, &self.params(), &patch).await;
            desired::of_cluster_source(written.map_err(failed)?)
        } else {
            let api = Api::<Source>::namespaced(self.client(), &self.key.namespace);
            let written = api.patch_status(&self.key.name, &self.params(), &patch).await;
            desired::of_source(written.map_err(failed)?)
        };
        self.context.cache.learn_source(written);
        Ok(())
    }
}

/// Whether an answer is one that users must know of.
fn is_refusal(part: Part, class: Class) -> bool {
    match class {
        Class::Forbidden | Class::Invalid => true,
        // Of an account it is the namespace that is missing; a binding was there a moment ago.
        Class::NotFound => part == Part::Account,
        Class::Conflict | Class::Unreachable | Class::Overloaded | Class::Bug => false,
    }
}

fn parse<B: DeserializeOwned>(manifest: Value) -> kube::Result<B> {
    serde_json::from_value(manifest).map_err(kube::Error::SerdeError)
}

/// The patch that brings a binding back, if nobody has changed it since.
fn mended(key: &SourceKey, source: &View, id: &Id, binding: &Binding) -> Value {
    json!({
        "metadata": {
            "uid": binding.uid,
            "resourceVersion": binding.version,
            "labels": labels(&source.uid),
            "annotations": annotations(key),
            "ownerReferences": owners(key, &source.uid, id, &binding.owners),
        },
        "subjects": subjects(&source.identity),
    })
}
