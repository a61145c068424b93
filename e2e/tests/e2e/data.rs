//! Pods with claims run where their data is, and never with the wrong one.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::setup::targets;
use e2e::wait::{throughout, until};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::guest::{becomes, fake_pod, gone, with};
use crate::scene::{LONG, Scene, key, merge, pinned};

/// The class of targets that makes volumes when a pod is scheduled; also for claims that name none.
pub(crate) const CLASS: &str = "default";
const PROVISIONER: &str = "example.com/e2e";
const SELECTED: &str = "volume.kubernetes.io/selected-node";

/// Plays the storage of the targets in one namespace: makes a volume for each claim for which a node is selected.
pub(crate) struct Storage(Vec<tokio::task::JoinHandle<()>>);

impl Storage {
    pub(crate) async fn start(ground: &Ground, namespace: &str) -> Result<Self> {
        let mut tasks = Vec::new();
        for target in targets(ground) {
            let class = json!({"metadata": {"name": CLASS,
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                "provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"});
            create_once::<StorageClass>(&target.client, class).await?;
            tasks.push(tokio::spawn(provision(target.client.clone(), namespace.to_owned())));
        }
        Ok(Self(tasks))
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

async fn create_once<K>(client: &kube::Client, object: Value) -> Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    match api.create(&PostParams::default(), &serde_json::from_value(object).context("not an object")?).await
    {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        other => other.map(drop).context("cannot create"),
    }
}

async fn provision(client: kube::Client, namespace: String) {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let events = watcher(claims, watcher::Config::default()).default_backoff().applied_objects();
    let mut events = std::pin::pin!(events.filter_map(|event| std::future::ready(event.ok())));
    while let Some(claim) = events.next().await {
        let spec = json!(claim.spec);
        let is_ours = spec["storageClassName"] == CLASS && spec.get("volumeName").is_none();
        let Some(node) = claim.annotations().get(SELECTED).filter(|_| is_ours) else { continue };
        let here = json!([{"matchExpressions":
            [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]);
        let volume = json!({"metadata": {"name": format!("made-{}", claim.uid().unwrap_or_default()),
                "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
            "spec": {"capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"], "storageClassName": CLASS,
                "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/nowhere"},
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace,
                    "name": claim.name_any(), "uid": claim.uid()},
                "nodeAffinity": {"required": {"nodeSelectorTerms": here}}}});
        // Made already, or the test ends.
        drop(create_once::<PersistentVolume>(&client, volume).await);
    }
}

fn claims(cluster: &Cluster, namespace: &str) -> Api<PersistentVolumeClaim> {
    cluster.api(namespace)
}

fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The cluster that has the delegate of a pod.
async fn place<'a>(scene: &Scene<'a>, pod: &str) -> Result<&'a Cluster> {
    let node = scene.pods().get(pod).await?.spec.and_then(|spec| spec.node_name).context("no node")?;
    let found = targets(scene.ground).find(|target| node.contains(&target.name));
    found.with_context(|| format!("no target behind {node}"))
}

/// UID of a cluster.
async fn uid(cluster: &Cluster) -> Result<String> {
    let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.client.clone());
    api.get("kube-system").await?.uid().context("no UID")
}

fn stateful_set(replicas: u32) -> Value {
    json!({"metadata": {"name": "db"}, "spec": {
        "serviceName": "db", "replicas": replicas, "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": fake_pod("db")["spec"]},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]}})
}

/// Scales the StatefulSet and waits until it has as many pods, all Ready.
async fn scale(scene: &Scene<'_>, replicas: usize) -> Result<()> {
    let change = json!({"spec": {"replicas": replicas}});
    merge(scene.source, Some(&scene.namespace), ("apps/v1", "StatefulSet"), "db", change).await?;
    scene.ready(replicas).await.map(drop)
}

pub(crate) async fn w30_a_stateful_set_keeps_its_data_where_it_is(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "stateful").await?;
    let _storage = Storage::start(ground, &scene.namespace).await?;
    scene.create("apps/v1", "StatefulSet", stateful_set(3)).await?;
    scene.ready(3).await?;
    let mut homes = Vec::new();
    for name in ["db-0", "db-1", "db-2"] {
        let claim = format!("data-{name}");
        let home = place(&scene, name).await?;
        let original = claims(scene.source, &scene.namespace).get(&claim).await?;
        let written = original.annotations().get(&key("claim-home"));
        ensure!(written == Some(&uid(home).await?), "{claim} is said to be in {written:?}");
        ensure!(original.finalizers().contains(&key("follow")), "{claim} is not held");
        ensure!(phase(&original) == "Pending", "{claim} of the source is {}", phase(&original));
        for target in targets(ground) {
            let copy = claims(target, &scene.namespace).get_opt(&claim).await?;
            ensure!(copy.is_some() == (target.name == home.name), "{claim} in {}", target.name);
            ensure!(copy.is_none_or(|copy| phase(&copy) == "Bound"), "{claim} is not bound");
        }
        homes.push(home.name.clone());
    }
    // A pod made anew, and one that was away for long, find their data again.
    scene.pods().delete("db-1", &DeleteParams::default()).await?;
    scene.ready(3).await?;
    scale(&scene, 0).await?;
    throughout(Duration::from_secs(13), "copies stay", async || {
        let mut left = 0;
        for target in targets(ground) {
            left += claims(target, &scene.namespace).list(&ListParams::default()).await?.items.len();
        }
        Ok(left == 3)
    })
    .await?;
    scale(&scene, 3).await?;
    for (name, home) in ["db-0", "db-1", "db-2"].iter().zip(&homes) {
        let now = &place(&scene, name).await?.name;
        ensure!(now == home, "{name} has moved from {home} to {now}");
    }
    let sets = scene.source.dynamic("apps/v1", "StatefulSet", Some(&scene.namespace));
    sets.delete("db", &DeleteParams::default()).await?;
    let all = claims(scene.source, &scene.namespace);
    all.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    until(LONG, "claims and copies are gone", async || {
        let mut left = all.list(&ListParams::default()).await?.items.len();
        for target in targets(ground) {
            left += claims(target, &scene.namespace).list(&ListParams::default()).await?.items.len();
        }
        if left == 0 { Ok(Some(())) } else { bail!("{left} are left") }
    })
    .await?;
    scene.close().await
}

fn claim(annotations: &Value, spec: &Value) -> Value {
    let mut all = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    json!({"metadata": {"name": "data", "annotations": annotations}, "spec": all})
}

fn user(name: &str, target: &str) -> Result<Value> {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    pinned(with(fake_pod(name), "/spec/volumes", volumes)?, target)
}

/// Makes a volume by hand, bound to claim `data` of a namespace.
async fn volume(cluster: &Cluster, namespace: &str) -> Result<String> {
    let name = format!("by-hand-{namespace}");
    let volume = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand", "hostPath": {"path": "/nowhere"},
        "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": namespace, "name": "data"}}});
    create_once::<PersistentVolume>(&cluster.client, volume).await?;
    Ok(name)
}

async fn bound(cluster: &Cluster, namespace: &str) -> Result<()> {
    until(LONG, &format!("claim data is bound in {}", cluster.name), async || {
        Ok((phase(&claims(cluster, namespace).get("data").await?) == "Bound").then_some(()))
    })
    .await
}

pub(crate) async fn case_072_another_claim_of_the_same_name_is_never_used(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "same-name").await?;
    let _storage = Storage::start(ground, &scene.namespace).await?;
    let target = ground.cluster("target-1")?;
    let by_hand = json!({"storageClassName": "by-hand"});
    volume(target, &scene.namespace).await?;
    let own = claim(&json!({}), &by_hand);
    crate::scene::create(target, Some(&scene.namespace), ("v1", "PersistentVolumeClaim"), own).await?;
    bound(target, &scene.namespace).await?;
    // Without a claim in the source there is one claim of this name, and no doubt about it.
    scene.pod(user("first", "target-1")?).await?;
    becomes(scene.source, &scene.namespace, "first", "Ready").await?;
    scene.pods().delete("first", &DeleteParams::default()).await?;
    gone(scene.source, &scene.namespace, "first").await?;
    // With one, that of the target is another.
    scene.create("v1", "PersistentVolumeClaim", claim(&json!({}), &json!({}))).await?;
    scene.pod(user("second", "target-1")?).await?;
    scene.event("second", "is not that of the source").await?;
    let untouched = claims(target, &scene.namespace).get("data").await?;
    ensure!(untouched.labels().is_empty(), "{:?}", untouched.labels());
    // The user may say that they are meant to stand for each other.
    let never = json!({"metadata": {"annotations": {key("follow"): "never"}}});
    merge(scene.source, Some(&scene.namespace), ("v1", "PersistentVolumeClaim"), "data", never).await?;
    becomes(scene.source, &scene.namespace, "second", "Ready").await?;
    scene.close().await
}

pub(crate) async fn case_072_data_of_the_source_is_not_left_behind_unasked(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "source-data").await?;
    let _storage = Storage::start(ground, &scene.namespace).await?;
    let target = ground.cluster("target-2")?;
    volume(scene.source, &scene.namespace).await?;
    let by_hand = json!({"storageClassName": "by-hand"});
    scene.create("v1", "PersistentVolumeClaim", claim(&json!({}), &by_hand)).await?;
    bound(scene.source, &scene.namespace).await?;
    scene.pod(user("reader", "target-2")?).await?;
    scene.event("reader", "has its data in the source").await?;
    ensure!(scene.chaperons().await?.is_empty(), "a target was asked");
    // A class of another name stands for that of the source, once the user gives the data up.
    let classes = json!({"metadata": {"annotations": {key("storage-classes"): format!("by-hand={CLASS}")}}});
    merge(scene.source, None, (crate::scene::GROUP_VERSION, "ClusterTarget"), "target-2", classes).await?;
    let allowed = json!({"metadata": {"annotations": {key("follow"): "allowed"}}});
    merge(scene.source, Some(&scene.namespace), ("v1", "PersistentVolumeClaim"), "data", allowed).await?;
    becomes(scene.source, &scene.namespace, "reader", "Ready").await?;
    let copy = claims(target, &scene.namespace).get("data").await?;
    let class = copy.spec.and_then(|spec| spec.storage_class_name);
    ensure!(class.as_deref() == Some(CLASS), "{class:?}");
    let delegates: Api<Pod> = target.api(&scene.namespace);
    ensure!(delegates.list(&ListParams::default()).await?.items.len() == 1, "not one delegate");
    scene.close().await
}
