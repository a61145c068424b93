//! What pods name is where their delegates run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::setup::targets;
use e2e::wait::{throughout, until};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::budget::requests;
use crate::guest::{becomes, fake_pod, gone, with};
use crate::recorder::appearing;
use crate::scene::{LONG, Scene, condition, key, merge, pinned};

const KINDS: [(&str, &str); 2] = [("ConfigMap", "configmaps"), ("Secret", "secrets")];

/// The version at which each object of some kinds was first seen, by kind and name.
type Births = Arc<Mutex<BTreeMap<(String, String), u64>>>;

/// Notes when objects of a namespace come to be, in the order of the cluster's own versions.
struct Registrar {
    births: Births,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Registrar {
    async fn start(cluster: &Cluster, namespace: &str) -> Result<Self> {
        let births = Births::default();
        let mut tasks = Vec::new();
        for kind in ["ConfigMap", "Secret", "Pod"] {
            let seen = Arc::clone(&births);
            let register = move |object: &DynamicObject, version| {
                let mut births = seen.lock().unwrap_or_else(PoisonError::into_inner);
                births.entry((kind.to_owned(), object.name_any())).or_insert(version);
            };
            tasks.push(appearing(cluster.dynamic("v1", kind, Some(namespace)), register).await?);
        }
        Ok(Self { births, tasks })
    }

    fn of(&self, kind: &str) -> BTreeMap<String, u64> {
        let births = self.births.lock().unwrap_or_else(PoisonError::into_inner);
        let all = births.iter().filter(|((of, _), _)| of == kind);
        all.map(|((_, name), version)| (name.clone(), *version)).collect()
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

fn secret(name: &str, kind: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"team": "a"},
            "annotations": {"note": "n", "argocd.argoproj.io/tracking-id": "x"}},
        "type": kind, "data": {"tls.crt": "YQ==", "tls.key": "Yg=="}})
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"key": "value"}, "binaryData": {"raw": "AP8="}})
}

/// A pod that names an object of either kind in every way there is; returns their names.
fn reader(name: &str) -> Result<(Value, Vec<&'static str>, Vec<&'static str>)> {
    let maps = vec!["m-volume", "m-projected", "m-env", "m-env-from", "m-init"];
    let secrets = vec!["s-volume", "s-projected", "s-env", "s-env-from", "s-init", "s-pull"];
    let reads = |map: &str, secret: &str| {
        json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": map, "key": "key"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": secret, "key": "tls.crt"}}}])
    };
    let mut pod = with(
        fake_pod(name),
        "/spec/volumes",
        json!([
            {"name": "m", "configMap": {"name": "m-volume"}},
            {"name": "s", "secret": {"secretName": "s-volume"}},
            {"name": "p", "projected": {"sources": [{"configMap": {"name": "m-projected"}}, {"secret": {"name": "s-projected"}}]}}]),
    )?;
    pod["spec"]["containers"][0]["env"] = reads("m-env", "s-env");
    pod["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "m-env-from"}}, {"secretRef": {"name": "s-env-from"}}]);
    pod["spec"]["initContainers"] =
        json!([{"name": "init", "image": "nowhere.example/any:1", "env": reads("m-init", "s-init")}]);
    pod["spec"]["imagePullSecrets"] = json!([{"name": "s-pull"}]);
    Ok((pod, maps, secrets))
}

fn objects(cluster: &Cluster, kind: &str, namespace: &str) -> Api<DynamicObject> {
    cluster.dynamic("v1", kind, Some(namespace))
}

/// Copies in one cluster, by kind and name.
async fn copies(cluster: &Cluster, namespace: &str) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for kind in ["ConfigMap", "Secret", "Service", "PersistentVolumeClaim"] {
        let ours = ListParams::default().labels(&key("parent-uid"));
        let list = objects(cluster, kind, namespace).list(&ours).await?;
        found.extend(list.items.iter().map(|copy| (kind.to_owned(), copy.name_any())));
    }
    Ok(found)
}

/// Waits until a namespace has exactly so many copies in a cluster.
async fn copies_are(cluster: &Cluster, namespace: &str, count: usize) -> Result<()> {
    until(LONG, &format!("{count} copies in {}", cluster.name), async || {
        let found = copies(cluster, namespace).await?;
        ensure!(found.len() == count, "{found:?}");
        Ok(Some(()))
    })
    .await
}

fn is_held(object: &DynamicObject) -> bool {
    object.finalizers().contains(&key("follow"))
        && object.labels().get(&key("has-finalizer")).is_some_and(|is| is == "true")
}

/// How often services wrote objects of a kind, by verb.
fn writes(cluster: &Cluster, resource: &str, namespace: &str) -> Result<BTreeMap<String, usize>> {
    let mut count = BTreeMap::new();
    for event in requests(cluster, resource, namespace)? {
        let verb = event["verb"].as_str().unwrap_or_default();
        let by_us = event["user"]["username"].as_str().unwrap_or_default().contains("multicluster-scheduler");
        if by_us && ["create", "patch", "update", "delete"].contains(&verb) {
            *count.entry(verb.to_owned()).or_default() += 1;
        }
    }
    Ok(count)
}

pub(crate) async fn w35_what_pods_name_is_there_before_their_delegates(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "staged").await?;
    let mut registrars = Vec::new();
    for target in targets(ground) {
        registrars.push((target, Registrar::start(target, &scene.namespace).await?));
    }
    let (_, maps, secrets) = reader("any")?;
    for name in &maps {
        scene.create("v1", "ConfigMap", map(name)).await?;
    }
    for name in &secrets {
        scene.create("v1", "Secret", secret(name, "kubernetes.io/tls")).await?;
    }
    for (name, target) in [("one", "target-1"), ("two", "target-1"), ("three", "target-2")] {
        scene.pod(pinned(reader(name)?.0, target)?).await?;
    }
    scene.ready(3).await?;
    for (target, registrar) in &registrars {
        copies_are(target, &scene.namespace, maps.len() + secrets.len()).await?;
        came_first(target, registrar, &[("ConfigMap", &maps), ("Secret", &secrets)])?;
    }
    for (kind, resource) in KINDS {
        let count = if kind == "ConfigMap" { maps.len() } else { secrets.len() };
        until(LONG, "originals are marked", async || {
            let list = objects(scene.source, kind, &scene.namespace).list(&ListParams::default()).await?;
            Ok((list.items.iter().filter(|one| is_held(one)).count() == count).then_some(()))
        })
        .await?;
        if ground.is_local() {
            let marked = writes(scene.source, resource, &scene.namespace)?;
            ensure!(marked == [("patch".to_owned(), count)].into(), "{kind}s of the source: {marked:?}");
            for target in targets(ground) {
                let made = writes(target, resource, &scene.namespace)?;
                ensure!(
                    made == [("create".to_owned(), count)].into(),
                    "{kind}s of {}: {made:?}",
                    target.name
                );
            }
        }
    }
    unchanged(&scene).await?;
    for name in ["one", "two", "three"] {
        scene.pods().delete(name, &DeleteParams::default()).await?;
        gone(scene.source, &scene.namespace, name).await?;
    }
    for target in targets(ground) {
        copies_are(target, &scene.namespace, 0).await?;
    }
    until(LONG, "no original is marked", async || {
        let list = objects(scene.source, "Secret", &scene.namespace).list(&ListParams::default()).await?;
        Ok(list.items.iter().all(|one| one.finalizers().is_empty() && !is_held(one)).then_some(()))
    })
    .await?;
    scene.close().await
}

/// Fails when an object came later than the first delegate.
fn came_first(target: &Cluster, registrar: &Registrar, named: &[(&str, &Vec<&str>)]) -> Result<()> {
    let first = registrar.of("Pod").into_values().min();
    let first = first.with_context(|| format!("no delegate was seen in {}", target.name))?;
    for (kind, names) in named {
        let births = registrar.of(kind);
        for name in *names {
            let born = births.get(*name).with_context(|| format!("no {kind} {name} in {}", target.name))?;
            ensure!(*born < first, "{kind} {name} came after a delegate in {}", target.name);
        }
    }
    Ok(())
}

/// In a settled world nothing is written.
async fn unchanged(scene: &Scene<'_>) -> Result<()> {
    let versions = async || {
        let mut all = Vec::new();
        for cluster in scene.ground.clusters() {
            for (kind, _) in KINDS {
                let list = objects(cluster, kind, &scene.namespace).list(&ListParams::default()).await?;
                all.extend(list.items.iter().map(|one| (one.name_any(), one.resource_version())));
            }
        }
        anyhow::Ok(all)
    };
    let before = versions().await?;
    throughout(Duration::from_secs(8), "nothing is written", async || Ok(versions().await? == before)).await
}

pub(crate) async fn w35_a_delegate_waits_for_what_is_missing_and_says_so(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "awaits").await?;
    let target = ground.cluster("target-1")?;
    let env = json!([{"secretRef": {"name": "late"}}]);
    let pod = with(pinned(fake_pod("patient"), "target-1")?, "/spec/containers/0/envFrom", env)?;
    scene.pod(pod).await?;
    until(LONG, "the pod says what it waits for", async || {
        let status = json!(scene.pods().get("patient").await?.status);
        let said = condition(&status, "DelegateCreated").context("no condition")?;
        ensure!(said["status"] == "False" && said["reason"] == "WaitsForReferences", "{said}");
        let message = said["message"].as_str().unwrap_or_default();
        ensure!(message.contains("Secret late"), "{message}");
        Ok(Some(()))
    })
    .await?;
    let delegates = target.api::<k8s_openapi::api::core::v1::Pod>(&scene.namespace);
    ensure!(delegates.list(&ListParams::default()).await?.items.is_empty(), "there is a delegate");
    scene.create("v1", "Secret", secret("late", "Opaque")).await?;
    becomes(scene.source, &scene.namespace, "patient", "Ready").await?;
    scene.close().await
}

pub(crate) async fn case_074_what_is_optional_holds_nobody_and_follows_late(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "optional").await?;
    let target = ground.cluster("target-2")?;
    let volumes = json!([{"name": "m", "configMap": {"name": "late", "optional": true}}]);
    scene.pod(with(pinned(fake_pod("reader"), "target-2")?, "/spec/volumes", volumes)?).await?;
    becomes(scene.source, &scene.namespace, "reader", "Ready").await?;
    copies_are(target, &scene.namespace, 0).await?;
    scene.create("v1", "ConfigMap", map("late")).await?;
    copies_are(target, &scene.namespace, 1).await?;
    let change = json!({"metadata": {"labels": {"new": "label"}}, "data": {"key": null, "other": "2"}});
    merge(scene.source, Some(&scene.namespace), ("v1", "ConfigMap"), "late", change).await?;
    until(LONG, "the copy has changed", async || {
        let copy = objects(target, "ConfigMap", &scene.namespace).get("late").await?;
        let is =
            copy.data["data"] == json!({"other": "2"}) && copy.data["binaryData"] == json!({"raw": "AP8="});
        ensure!(is && copy.labels().contains_key("new"), "{}", json!(copy));
        Ok(Some(()))
    })
    .await?;
    scene.create("v1", "ConfigMap", map("unused")).await?;
    objects(scene.source, "ConfigMap", &scene.namespace).delete("late", &DeleteParams::default()).await?;
    copies_are(target, &scene.namespace, 0).await?;
    until(LONG, "the original is gone", async || {
        Ok(objects(scene.source, "ConfigMap", &scene.namespace)
            .get_opt("late")
            .await?
            .is_none()
            .then_some(()))
    })
    .await?;
    scene.close().await
}

pub(crate) async fn case_073_type_and_immutability_of_a_secret_follow(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "retyped").await?;
    let target = ground.cluster("target-1")?;
    let secrets = objects(scene.source, "Secret", &scene.namespace);
    scene.create("v1", "Secret", secret("key", "Opaque")).await?;
    let volumes = json!([{"name": "s", "secret": {"secretName": "key"}}]);
    scene.pod(with(pinned(fake_pod("reader"), "target-1")?, "/spec/volumes", volumes)?).await?;
    becomes(scene.source, &scene.namespace, "reader", "Ready").await?;
    for (kind, immutable, value) in [("kubernetes.io/tls", true, "Yw=="), ("kubernetes.io/tls", true, "ZA==")]
    {
        secrets.delete("key", &DeleteParams::default()).await?;
        until(LONG, "the original is gone", async || {
            Ok(secrets.get_opt("key").await?.is_none().then_some(()))
        })
        .await?;
        let mut next = secret("key", kind);
        next["immutable"] = json!(immutable);
        next["data"]["tls.key"] = json!(value);
        scene.create("v1", "Secret", next).await?;
        until(LONG, "the copy is as the original", async || {
            let copy =
                objects(target, "Secret", &scene.namespace).get_opt("key").await?.context("no copy")?;
            let is = copy.data["type"] == kind && copy.data["immutable"] == immutable;
            ensure!(is && copy.data["data"]["tls.key"] == value, "{}", copy.data);
            ensure!(
                copy.annotations().get("note").is_some_and(|note| note == "n"),
                "{:?}",
                copy.annotations()
            );
            let stripped = !copy.annotations().contains_key("argocd.argoproj.io/tracking-id");
            ensure!(stripped, "case_131: {:?}", copy.annotations());
            Ok(Some(()))
        })
        .await?;
    }
    scene.close().await
}

pub(crate) async fn w07_an_object_of_the_target_itself_is_used_and_never_touched(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "foreign").await?;
    let target = ground.cluster("target-1")?;
    let own = json!({"metadata": {"name": "settings"}, "data": {"of": "target"}});
    crate::scene::create(target, Some(&scene.namespace), ("v1", "ConfigMap"), own).await?;
    let before = objects(target, "ConfigMap", &scene.namespace).get("settings").await?;
    scene.create("v1", "ConfigMap", map("settings")).await?;
    let volumes = json!([{"name": "m", "configMap": {"name": "settings"}}]);
    scene.pod(with(pinned(fake_pod("reader"), "target-1")?, "/spec/volumes", volumes)?).await?;
    becomes(scene.source, &scene.namespace, "reader", "Ready").await?;
    let events: Api<Event> = scene.source.api(&scene.namespace);
    until(LONG, "an event says what is in the way", async || {
        let about = ListParams::default().fields("involvedObject.name=settings");
        let said: Vec<String> =
            events.list(&about).await?.items.into_iter().filter_map(|event| event.message).collect();
        if said.iter().any(|message| message.contains("target-1") && message.contains("no copy of it")) {
            return Ok(Some(()));
        }
        bail!("{said:?}")
    })
    .await?;
    scene.pods().delete("reader", &DeleteParams::default()).await?;
    gone(scene.source, &scene.namespace, "reader").await?;
    throughout(Duration::from_secs(3), "nothing is touched", async || {
        let now = objects(target, "ConfigMap", &scene.namespace).get("settings").await?;
        let original = objects(scene.source, "ConfigMap", &scene.namespace).get("settings").await?;
        Ok(now.resource_version() == before.resource_version() && original.finalizers().is_empty())
    })
    .await?;
    scene.close().await
}

pub(crate) async fn an_original_can_refuse_to_follow(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "refuses").await?;
    let target = ground.cluster("target-1")?;
    let mut stays = map("stays");
    stays["metadata"]["annotations"] = json!({key("follow"): "never"});
    scene.create("v1", "ConfigMap", stays).await?;
    let volumes = json!([{"name": "m", "configMap": {"name": "stays"}}]);
    scene.pod(with(pinned(fake_pod("reader"), "target-1")?, "/spec/volumes", volumes)?).await?;
    throughout(Duration::from_secs(5), "nothing follows", async || {
        Ok(copies(target, &scene.namespace).await?.is_empty())
    })
    .await?;
    let change = json!({"metadata": {"annotations": {key("follow"): null}}});
    merge(scene.source, Some(&scene.namespace), ("v1", "ConfigMap"), "stays", change).await?;
    becomes(scene.source, &scene.namespace, "reader", "Ready").await?;
    scene.close().await
}

pub(crate) async fn a_copy_is_mended_and_an_orphan_collected(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "mended").await?;
    let target = ground.cluster("target-2")?;
    scene.create("v1", "ConfigMap", map("settings")).await?;
    let volumes = json!([{"name": "m", "configMap": {"name": "settings"}}]);
    scene.pod(with(pinned(fake_pod("reader"), "target-2")?, "/spec/volumes", volumes)?).await?;
    becomes(scene.source, &scene.namespace, "reader", "Ready").await?;
    let maps = objects(target, "ConfigMap", &scene.namespace);
    let spoilt = json!({"metadata": {"annotations": {"of-others": "1"}}, "data": {"key": "wrong"}});
    merge(target, Some(&scene.namespace), ("v1", "ConfigMap"), "settings", spoilt).await?;
    until(LONG, "the copy is mended", async || {
        let copy = maps.get("settings").await?;
        Ok((copy.data["data"]["key"] == "value" && copy.annotations().contains_key("of-others"))
            .then_some(()))
    })
    .await?;
    maps.delete("settings", &DeleteParams::default()).await?;
    copies_are(target, &scene.namespace, 1).await?;
    // One whose original is gone: nothing in the source knows of it.
    let real = maps.get("settings").await?;
    let mut labels = real.labels().clone();
    labels.insert(key("parent-uid"), "11111111-1111-1111-1111-111111111111".to_owned());
    let orphan = json!({"metadata": {"name": "orphan", "labels": labels}});
    crate::scene::create(target, Some(&scene.namespace), ("v1", "ConfigMap"), orphan).await?;
    until(LONG, "the orphan is gone", async || Ok(maps.get_opt("orphan").await?.is_none().then_some(())))
        .await?;
    scene.close().await
}

/// How many objects one pod names.
const BURST: usize = 500;

pub(crate) async fn a_burst_of_objects_is_written_once_each(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "burst-of-maps").await?;
    let target = ground.cluster("target-1")?;
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = scene.source.api(&scene.namespace);
    let names: Vec<String> = (0..BURST).map(|number| format!("map-{number}")).collect();
    let creations = names.iter().map(async |name| {
        let map = serde_json::from_value(map(name))?;
        maps.create(&kube::api::PostParams::default(), &map).await?;
        anyhow::Ok(())
    });
    futures::stream::iter(creations)
        .buffer_unordered(16)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect::<Result<()>>()?;
    let sources: Vec<Value> = names.iter().map(|name| json!({"configMap": {"name": name}})).collect();
    let volumes = json!([{"name": "all", "projected": {"sources": sources}}]);
    let started = std::time::Instant::now();
    scene.pod(with(pinned(fake_pod("reader"), "target-1")?, "/spec/volumes", volumes)?).await?;
    becomes(scene.source, &scene.namespace, "reader", "Ready").await?;
    eprintln!("a pod that names {BURST} objects was Ready after {:.1?}", started.elapsed());
    copies_are(target, &scene.namespace, BURST).await?;
    until(LONG, "all originals are marked", async || {
        let list = objects(scene.source, "ConfigMap", &scene.namespace).list(&ListParams::default()).await?;
        Ok((list.items.iter().filter(|one| is_held(one)).count() == BURST).then_some(()))
    })
    .await?;
    eprintln!("all {BURST} originals were marked after {:.1?}", started.elapsed());
    if ground.is_local() {
        let made = writes(target, "configmaps", &scene.namespace)?;
        ensure!(made == [("create".to_owned(), BURST)].into(), "in the target: {made:?}");
        let marked = writes(scene.source, "configmaps", &scene.namespace)?;
        ensure!(marked == [("patch".to_owned(), BURST)].into(), "in the source: {marked:?}");
    }
    scene.close().await
}

/// Fails when anything that was copied for a namespace is left in a target.
pub(crate) async fn nothing_is_left(ground: &Ground, namespace: &str) -> Result<()> {
    for target in targets(ground) {
        copies_are(target, namespace, 0).await?;
    }
    Ok(())
}
