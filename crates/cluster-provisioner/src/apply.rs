//! One call for each action.

use crate::clients::{Side, Workload};
use crate::error::Error;
use crate::openstack::{self, Session};
use crate::plan::cloud::{CREDENTIAL, ISSUED, Purpose};
use crate::plan::registration::{ACCOUNT, EXPIRES_KEY, TARGETS, TOKEN_SECONDS, secret_name, source};
use crate::plan::{Action, Doomed, View};
use api::provisioning::{FINALIZER, GROUP_VERSION, InventoryItem, OWNER_UID, WorkloadClusterStatus};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{
    DeleteParams, EvictParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use runtime::Class;
use serde_json::{Value, json};
use std::sync::Arc;
use tracing::info;

/// The way into the cloud.
pub(crate) struct Way {
    pub(crate) session: Arc<Session>,
    /// Section of the `clouds.yaml` that Cluster API reads.
    pub(crate) section: String,
    /// The cloud's authority, in PEM; empty for a public one.
    pub(crate) authority: String,
    pub(crate) now: Timestamp,
}

/// The calls about one cluster.
pub(crate) struct Hands<'a> {
    pub(crate) here: &'a Side,
    pub(crate) workload: Option<&'a Workload>,
    pub(crate) cloud: Option<&'a Way>,
    pub(crate) manager: &'a str,
    pub(crate) cluster: &'a View,
    /// resourceVersion of the WorkloadCluster that was looked at.
    pub(crate) version: &'a str,
}

impl Action {
    /// The word for the metric.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Apply(_) => "apply",
            Self::Delete(_) => "delete",
            Self::Invite => "invite",
            Self::IssueToken => "issue_token",
            Self::Cordon(_) => "cordon",
            Self::Evict(_) => "evict",
            Self::DeleteBalancer(_) => "delete_balancer",
            Self::DeleteClaim(_) => "delete_claim",
            Self::RetainVolume(_) => "retain_volume",
            Self::IssueCredential { .. } => "issue_credential",
            Self::DeleteCredential(_) => "delete_credential",
            Self::CreateGroup(..) => "create_group",
            Self::DeleteGroup(_) => "delete_group",
            Self::ApplyInside(_) => "apply_inside",
            Self::DeleteInside(_) => "delete_inside",
            Self::DeleteInventory(_) => "delete_inventory",
        }
    }
}

fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("", name))
}

/// What is gone need not be deleted.
fn gone_is_good<T>(outcome: Result<T, Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if error.class() == Class::NotFound => Ok(()),
        other => other.map(drop),
    }
}

impl Hands<'_> {
    /// Carries out one action.
    pub(crate) async fn apply(&self, action: &Action) -> Result<(), Error> {
        match action {
            Action::Hold => self.finalizer("add").await,
            Action::Release => self.finalizer("remove").await,
            Action::Apply(object) => self.put(self.here, object).await,
            Action::Delete(doomed) => self.delete(doomed).await,
            Action::Invite => self.invite().await,
            Action::IssueToken => self.issue_token().await,
            Action::Cordon(node) => {
                let patch = json!({"spec": {"unschedulable": true}});
                self.patch(self.here, ("v1", "Node"), node, &patch).await
            }
            Action::Evict(pod) => self.evict(pod).await,
            Action::DeleteBalancer(name) => self.delete_inside("Service", name).await,
            Action::DeleteClaim(name) => self.delete_inside("PersistentVolumeClaim", name).await,
            Action::IssueCredential { purpose, name, expires } => {
                self.issue_credential(*purpose, name, *expires).await
            }
            Action::DeleteCredential(id) => Ok(self.session()?.delete_credential(id).await?),
            Action::CreateGroup(name, policy) => {
                let made = self.session()?.create_group(name, policy).await?;
                info!(cluster = self.cluster.name, object = made.id, "made a server group");
                Ok(())
            }
            Action::DeleteGroup(id) => Ok(self.session()?.delete_group(id).await?),
            Action::ApplyInside(object) => match self.workload {
                Some(workload) => self.put(&workload.side, object).await,
                None => Ok(()),
            },
            Action::DeleteInside(item) => self.delete_item(item).await,
            Action::DeleteInventory(name) => {
                let api = self.here.api(GROUP_VERSION, "AddonInventory", Some(&self.cluster.namespace));
                let outcome = api.delete(name, &DeleteParams::default()).await;
                gone_is_good(outcome.map_err(self.here.failed("delete", "AddonInventory", name)))
            }
            Action::RetainVolume(name) => {
                let patch = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
                let Some(workload) = self.workload else { return Ok(()) };
                self.patch(&workload.side, ("v1", "PersistentVolume"), name, &patch).await
            }
        }
    }

    fn session(&self) -> Result<&Session, Error> {
        let none = || openstack::Error::Config("there is no session with the cloud".to_owned());
        Ok(&self.cloud.ok_or_else(none)?.session)
    }

    /// The secret of a credential is told once: what cannot be written down is deleted again.
    async fn issue_credential(
        &self,
        purpose: Purpose,
        name: &str,
        expires: Option<Timestamp>,
    ) -> Result<(), Error> {
        let Some(way) = self.cloud else { return self.session().map(drop) };
        let expires = expires.map(|time| time.to_string());
        let (id, secret) = way.session.create_credential(name, expires.as_deref()).await?;
        let clouds = way.session.config().clouds_yaml(&way.section, (&id, &secret));
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": purpose.secret(self.cluster),
                "namespace": self.cluster.namespace,
                "labels": {OWNER_UID: self.cluster.uid, "clusterctl.cluster.x-k8s.io/move": "true"},
                "annotations": {CREDENTIAL: id, EXPIRES_KEY: expires.unwrap_or_default(), ISSUED: way.now.to_string()},
            },
            // A file of nodes refers to the second key; without it their configuration is never made.
            "stringData": {"clouds.yaml": clouds, "cacert": way.authority},
        });
        let written = self.put(self.here, &secret).await;
        if written.is_err() {
            way.session.delete_credential(&id).await?;
        }
        written
    }

    fn own(&self) -> Api<kube::api::DynamicObject> {
        self.here.api(GROUP_VERSION, "WorkloadCluster", Some(&self.cluster.namespace))
    }

    /// Merges the finalizer in, or tests for it and takes it out; either way of the version that was looked at.
    async fn finalizer(&self, verb: &'static str) -> Result<(), Error> {
        let object = self.own().get(&self.cluster.name).await;
        let object = gone(object.map_err(self.here.failed("get", "WorkloadCluster", &self.cluster.name)))?;
        let Some(object) = object else { return Ok(()) };
        let mut finalizers = object.metadata.finalizers.unwrap_or_default();
        finalizers.retain(|one| one != FINALIZER);
        if verb == "add" {
            finalizers.push(FINALIZER.to_owned());
        }
        let patch = json!({"metadata": {
            "uid": self.cluster.uid, "resourceVersion": self.version, "finalizers": finalizers,
        }});
        let outcome = self
            .own()
            .patch(&self.cluster.name, &runtime::patching(self.manager), &Patch::Merge(patch))
            .await;
        gone_is_good(outcome.map_err(self.here.failed("patch", "WorkloadCluster", &self.cluster.name)))
    }

    /// Writes the status.
    pub(crate) async fn tell(&self, status: &WorkloadClusterStatus) -> Result<(), Error> {
        // Absent fields of a merge patch stay; those that are gone must be said to be.
        let mut wanted = serde_json::to_value(status).unwrap_or_default();
        let old = serde_json::to_value(&self.cluster.status).unwrap_or_default();
        for field in old.as_object().into_iter().flat_map(|fields| fields.keys()) {
            if wanted.get(field).is_none() {
                wanted[field] = Value::Null;
            }
        }
        let patch = json!({"metadata": {"uid": self.cluster.uid}, "status": wanted});
        let parameters = runtime::patching(self.manager);
        let outcome = self.own().patch_status(&self.cluster.name, &parameters, &Patch::Merge(patch)).await;
        gone_is_good(outcome.map_err(self.here.failed(
            "patch the status of",
            "WorkloadCluster",
            &self.cluster.name,
        )))
    }

    async fn put(&self, side: &Side, object: &Value) -> Result<(), Error> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (word(&object["kind"]), word(&object["metadata"]["name"]));
        let namespace = object["metadata"]["namespace"].as_str();
        let api = side.api(&word(&object["apiVersion"]), &kind, namespace);
        let parameters = PatchParams::apply(self.manager).force();
        api.patch(&name, &parameters, &Patch::Apply(object))
            .await
            .map_err(side.failed("apply", &kind, &name))?;
        info!(cluster = self.cluster.name, namespace, object = format!("{kind} {name}"), "applied");
        Ok(())
    }

    async fn patch(
        &self,
        side: &Side,
        (api_version, kind): (&str, &str),
        name: &str,
        patch: &Value,
    ) -> Result<(), Error> {
        let api = side.api(api_version, kind, None);
        let outcome = api.patch(name, &runtime::patching(self.manager), &Patch::Merge(patch)).await;
        gone_is_good(outcome.map_err(side.failed("patch", kind, name)))
    }

    async fn delete(&self, doomed: &Doomed) -> Result<(), Error> {
        let api = self.here.api(&doomed.api_version, &doomed.kind, doomed.namespace.as_deref());
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(doomed.uid.clone()), resource_version: None }),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let outcome = api.delete(&doomed.name, &parameters).await;
        info!(cluster = self.cluster.name, object = format!("{} {}", doomed.kind, doomed.name), "deleting");
        gone_is_good(outcome.map_err(self.here.failed("delete", &doomed.kind, &doomed.name)))
    }

    async fn delete_item(&self, item: &InventoryItem) -> Result<(), Error> {
        let Some(workload) = self.workload else { return Ok(()) };
        let api = workload.side.api(&item.api_version, &item.kind, item.namespace.as_deref());
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: item.uid.clone(), resource_version: None }),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        info!(
            cluster = self.cluster.name,
            object = format!("{} {}", item.kind, item.name),
            "deleting inside"
        );
        let outcome = api.delete(&item.name, &parameters).await;
        gone_is_good(outcome.map_err(workload.side.failed("delete", &item.kind, &item.name)))
    }

    async fn delete_inside(&self, kind: &str, full_name: &str) -> Result<(), Error> {
        let Some(workload) = self.workload else { return Ok(()) };
        let (namespace, name) = split(full_name);
        let api = workload.side.api("v1", kind, Some(namespace));
        let outcome = api.delete(name, &DeleteParams::default()).await;
        gone_is_good(outcome.map_err(workload.side.failed("delete", kind, full_name)))
    }

    /// A budget may refuse; the pod is asked again in the next round.
    async fn evict(&self, full_name: &str) -> Result<(), Error> {
        let (namespace, name) = split(full_name);
        let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(self.here.client.clone(), namespace);
        let outcome = api.evict(name, &EvictParams::default()).await;
        match outcome.map_err(self.here.failed("evict", "Pod", full_name)) {
            Err(error) if matches!(error.class(), Class::NotFound | Class::Overloaded) => Ok(()),
            other => other.map(drop),
        }
    }

    async fn invite(&self) -> Result<(), Error> {
        let Some(workload) = self.workload else { return Ok(()) };
        let (kind, namespace) = source(self.cluster);
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        self.put(&workload.side, &space).await?;
        let mut metadata = json!({"name": ACCOUNT, "labels": {OWNER_UID: self.cluster.uid}});
        let spec = if kind == "Source" {
            metadata["namespace"] = json!(namespace);
            json!({"serviceAccountName": ACCOUNT})
        } else {
            json!({"serviceAccount": {"name": ACCOUNT, "namespace": namespace}})
        };
        self.put(
            &workload.side,
            &json!({"apiVersion": TARGETS, "kind": kind, "metadata": metadata, "spec": spec}),
        )
        .await
    }

    async fn issue_token(&self) -> Result<(), Error> {
        let Some(workload) = self.workload else { return Ok(()) };
        let (_, namespace) = source(self.cluster);
        let accounts: Api<ServiceAccount> = Api::namespaced(workload.side.client.clone(), &namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let answer = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
        let answer = answer.map_err(workload.side.failed("create a token of", "ServiceAccount", ACCOUNT))?;
        let Some(status) = answer.status else { return Ok(()) };
        // Without a time it is taken for one that ends at once, and another is asked for.
        let expires = status.expiration_timestamp.map(|time| time.0.to_string()).unwrap_or_default();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "target",
            "clusters": [{"name": "target", "cluster": {
                "server": workload.server, "certificate-authority-data": workload.authority,
            }}],
            "users": [{"name": "target", "user": {"token": status.token}}],
            "contexts": [{"name": "target", "context": {"cluster": "target", "user": "target"}}],
        });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": secret_name(&self.cluster.name),
                "namespace": self.cluster.namespace,
                "labels": {OWNER_UID: self.cluster.uid},
                "annotations": {EXPIRES_KEY: expires},
            },
            "stringData": {"config": kubeconfig.to_string()},
        });
        self.put(self.here, &secret).await
    }
}

fn gone<T>(outcome: Result<T, Error>) -> Result<Option<T>, Error> {
    match outcome {
        Err(error) if error.class() == Class::NotFound => Ok(None),
        other => other.map(Some),
    }
}
