//! What a replica must be able to list and watch before it is ready.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Debug;

use api::{ClusterSummary, Node, Pod, PodChaperon};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    LimitRange, Namespace, PersistentVolume, PersistentVolumeClaim, ReplicationController, ResourceQuota,
    Service, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use kube::{Client, Resource};
use runtime::admin::Readiness;
use runtime::standby;
use serde::de::DeserializeOwned;

/// A kind that is watched, as `/readyz` names it.
fn name<K: Resource<DynamicType = ()>>() -> &'static str {
    match K::plural(&()) {
        Cow::Borrowed(name) => name,
        Cow::Owned(_) => "objects",
    }
}

/// What a replica is checked with.
pub(crate) struct Standby<'a> {
    pub(crate) client: &'a Client,
    pub(crate) readiness: &'a Readiness,
    /// This cluster is a target.
    pub(crate) chaperons: bool,
    /// Claims and volumes are watched.
    pub(crate) storage: bool,
    /// The cluster has DeviceClasses.
    pub(crate) devices: bool,
    /// Resource claims are watched; and DeviceTaintRules, if that is true.
    pub(crate) claims: Option<bool>,
}

impl Standby<'_> {
    /// Nothing was listed yet.
    pub(crate) fn begin(&self) {
        let everywhere = [
            name::<Node>(),
            name::<Pod>(),
            name::<Namespace>(),
            name::<PodDisruptionBudget>(),
            name::<Service>(),
            name::<ReplicationController>(),
            name::<ReplicaSet>(),
            name::<StatefulSet>(),
        ];
        let target = [
            name::<PodChaperon>(),
            name::<ClusterSummary>(),
            name::<ServiceAccount>(),
            name::<ResourceQuota>(),
            name::<LimitRange>(),
            name::<MutatingWebhookConfiguration>(),
            name::<ValidatingWebhookConfiguration>(),
        ];
        let storage = [
            name::<PersistentVolumeClaim>(),
            name::<PersistentVolume>(),
            name::<StorageClass>(),
            name::<CSINode>(),
            name::<CSIDriver>(),
            name::<CSIStorageCapacity>(),
            name::<VolumeAttachment>(),
        ];
        let target = target.into_iter().filter(|_| self.chaperons);
        let storage = storage.into_iter().filter(|_| self.storage);
        let devices = self.devices.then(name::<DeviceClass>);
        let claims = [name::<ResourceClaim>(), name::<ResourceSlice>()];
        let claims = claims.into_iter().filter(|_| self.claims.is_some());
        let rules = (self.claims == Some(true)).then(name::<DeviceTaintRule>);
        let devices = devices.into_iter().chain(claims).chain(rules);
        for kind in everywhere.into_iter().chain(target).chain(storage).chain(devices) {
            self.readiness.set(kind, false);
        }
    }

    /// Checks until all can be listed and watched, then waits for ever.
    pub(crate) async fn stand_by(&self) -> Infallible {
        standby::stand_by(self.readiness, async || self.check().await).await
    }

    /// What is not watched is not checked either.
    async fn check(&self) {
        self.check_kind::<Node>().await;
        self.check_kind::<Pod>().await;
        self.check_kind::<Namespace>().await;
        self.check_kind::<PodDisruptionBudget>().await;
        self.check_kind::<Service>().await;
        self.check_kind::<ReplicationController>().await;
        self.check_kind::<ReplicaSet>().await;
        self.check_kind::<StatefulSet>().await;
        self.check_kind::<DeviceClass>().await;
        self.check_kind::<ResourceClaim>().await;
        self.check_kind::<ResourceSlice>().await;
        self.check_kind::<DeviceTaintRule>().await;
        self.check_kind::<PersistentVolumeClaim>().await;
        self.check_kind::<PersistentVolume>().await;
        self.check_kind::<StorageClass>().await;
        self.check_kind::<CSINode>().await;
        self.check_kind::<CSIDriver>().await;
        self.check_kind::<CSIStorageCapacity>().await;
        self.check_kind::<VolumeAttachment>().await;
        self.check_kind::<PodChaperon>().await;
        self.check_kind::<ClusterSummary>().await;
        self.check_kind::<ServiceAccount>().await;
        self.check_kind::<ResourceQuota>().await;
        self.check_kind::<LimitRange>().await;
        self.check_kind::<MutatingWebhookConfiguration>().await;
        self.check_kind::<ValidatingWebhookConfiguration>().await;
    }

    async fn check_kind<K>(&self)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        standby::check_kind::<K>(self.client, self.readiness, name::<K>()).await;
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A cluster that refuses requests with all of these words in their path and query.
    fn refusing(words: &'static [&'static str]) -> Client {
        let answer = move |request: http::Request<Body>| async move {
            let uri = request.uri().to_string();
            let refused = words.iter().all(|word| uri.contains(word));
            let (code, body) = if refused {
                (403, json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden"}))
            } else {
                (200, json!({"metadata": {"resourceVersion": "7"}, "items": []}))
            };
            http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[track_caller]
    fn missing(words: &'static [&'static str]) -> Vec<&'static str> {
        missing_where([true; 3], words)
    }

    #[track_caller]
    fn missing_where(
        [chaperons, storage, devices]: [bool; 3],
        words: &'static [&'static str],
    ) -> Vec<&'static str> {
        let readiness = Readiness::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = refusing(words);
            let claims = devices.then_some(true);
            let standby =
                Standby { client: &client, readiness: &readiness, chaperons, storage, devices, claims };
            standby.begin();
            standby.check().await;
        });
        readiness.missing()
    }

    #[test]
    fn a_replica_is_ready_when_it_could_list_and_watch_everything() {
        assert!(missing(&["nothing"]).is_empty());
        assert_eq!(missing(&["podchaperons"]), ["podchaperons"]);
        assert_eq!(missing(&["/nodes", "watch="]), ["nodes"], "a right to list alone is too little");
        assert_eq!(missing(&["/"]).len(), 26, "every watch has a condition of its own");
    }

    #[test]
    fn a_cluster_that_is_no_target_needs_none_of_our_kinds() {
        let missing = missing_where([false; 3], &["/"]);
        assert_eq!(missing.len(), 8);
        assert!(!missing.contains(&"podchaperons") && !missing.contains(&"clustersummaries"), "{missing:?}");
    }
}
