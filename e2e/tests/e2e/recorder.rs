//! Watches the pods of one namespace in all clusters, independently of the code under test, and tells how many
//! ran at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, bail};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, ListParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::scene::key;

/// Labels by which owners tell their pods apart, as delegates carry them.
const ORDINALS: [&str; 2] = ["pod-name", "job-completion-index"];

/// Watches objects, once the API server has answered, and tells of each that is there, appears or changes, with its
/// resource version.
pub(crate) async fn appearing(
    api: Api<DynamicObject>,
    tell: impl Fn(&DynamicObject, u64) + Send + 'static,
) -> Result<JoinHandle<()>> {
    let _settled = api.list(&ListParams::default()).await?;
    Ok(tokio::spawn(async move {
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events.filter_map(|event| std::future::ready(event.ok())));
        while let Some(event) = events.next().await {
            if let watcher::Event::Apply(object) | watcher::Event::InitApply(object) = event {
                let version = object.resource_version().and_then(|text| text.parse().ok());
                tell(&object, version.unwrap_or_default());
            }
        }
    }))
}

/// What happened to one pod. Times are those at which the watch told.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) cluster: String,
    pub(crate) name: String,
    pub(crate) node: String,
    /// The UID of the pod for which it runs; empty for a pod that is no delegate.
    pub(crate) parent: String,
    /// The place among its siblings that only one of them may hold at a time; empty when it has none.
    pub(crate) ordinal: String,
    /// Its containers have started.
    pub(crate) started: Option<Instant>,
    /// Its containers have ended, or it is gone.
    pub(crate) ended: Option<Instant>,
    pub(crate) gone: bool,
    /// All phases that were seen, in their order.
    pub(crate) phases: Vec<String>,
    /// The longest grace period with which it was deleted, in seconds.
    pub(crate) grace: Option<i64>,
    /// Whether it carried condition DisruptionTarget at any time.
    pub(crate) disrupted: bool,
}

impl Life {
    pub(crate) fn runs(&self) -> bool {
        self.started.is_some() && self.ended.is_none()
    }

    pub(crate) fn is_delegate(&self) -> bool {
        !self.parent.is_empty()
    }

    pub(crate) fn was(&self, phase: &str) -> bool {
        self.phases.iter().any(|seen| seen == phase)
    }
}

type Book = Arc<Mutex<BTreeMap<String, Life>>>;

/// All pods of a namespace from the moment of [`Recorder::start`] on.
#[derive(Debug)]
pub(crate) struct Recorder {
    book: Book,
    tasks: Vec<JoinHandle<()>>,
}

impl Recorder {
    pub(crate) fn start(ground: &Ground, namespace: &str) -> Self {
        let book = Book::default();
        let watch = |cluster: &Cluster| {
            let (pods, book, name): (Api<Pod>, _, _) =
                (cluster.api(namespace), Arc::clone(&book), cluster.name.clone());
            tokio::spawn(record(pods, book, name))
        };
        let tasks = ground.clusters().map(watch).collect();
        Self { book, tasks }
    }

    /// All lives by UID.
    pub(crate) fn lives(&self) -> BTreeMap<String, Life> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those that ran for pods of other clusters.
    pub(crate) fn delegates(&self) -> Vec<Life> {
        self.lives().into_values().filter(Life::is_delegate).collect()
    }

    /// Fails when two delegates ran at once for one proxy pod, or when finished work ran again.
    pub(crate) fn check_parents(&self) -> Result<()> {
        let lives = self.delegates();
        alone(&lives, "proxy pod", |life| life.parent.clone())?;
        for done in lives.iter().filter(|life| life.was("Succeeded")) {
            let again = lives.iter().find(|life| life.parent == done.parent && life.started > done.started);
            if let Some(again) = again {
                bail!("{} had finished and ran again as {again:?}", done.name);
            }
        }
        Ok(())
    }

    /// Fails when two delegates ran at once for one ordinal.
    pub(crate) fn check_ordinals(&self) -> Result<()> {
        alone(&self.delegates(), "ordinal", |life| life.ordinal.clone())
    }

    /// Fails when any two delegates ran at once.
    pub(crate) fn check_single(&self) -> Result<()> {
        alone(&self.delegates(), "namespace", |_| "all".to_owned())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Fails when the times of two lives of one group overlap.
fn alone(lives: &[Life], group: &str, name: impl Fn(&Life) -> String) -> Result<()> {
    let started: Vec<&Life> =
        lives.iter().filter(|life| life.started.is_some() && !name(life).is_empty()).collect();
    for (at, one) in started.iter().enumerate() {
        let others = started.iter().skip(at + 1).filter(|other| name(other) == name(one));
        for other in others {
            let (first, second) = if one.started <= other.started { (one, other) } else { (other, one) };
            if first.ended.is_none_or(|ended| Some(ended) > second.started) {
                bail!("two delegates ran at once for {group} {}: {first:?} and {second:?}", name(one));
            }
        }
    }
    Ok(())
}

async fn record(pods: Api<Pod>, book: Book, cluster: String) {
    let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()).default_backoff());
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(pod)) => {
                listed.extend(pod.uid());
                note(&book, &cluster, &pod, false);
            }
            Ok(watcher::Event::InitDone) => end_unlisted(&book, &cluster, &listed),
            Ok(watcher::Event::Apply(pod)) => note(&book, &cluster, &pod, false),
            Ok(watcher::Event::Delete(pod)) => note(&book, &cluster, &pod, true),
            // The watch goes on by itself.
            Err(_) => {}
        }
    }
}

fn end_unlisted(book: &Book, cluster: &str, listed: &[String]) {
    let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
    let missing = book.iter_mut().filter(|(uid, life)| life.cluster == cluster && !listed.contains(uid));
    for (_, life) in missing {
        life.ended.get_or_insert_with(Instant::now);
        life.gone = true;
    }
}

fn note(book: &Book, cluster: &str, pod: &Pod, gone: bool) {
    let Some(uid) = pod.uid() else { return };
    let now = Instant::now();
    let label = |name: &str| pod.labels().get(&key(name)).cloned();
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
    let life = book.entry(uid).or_insert_with(|| Life {
        cluster: cluster.to_owned(),
        name: pod.name_any(),
        node: String::new(),
        parent: label("parent-uid").unwrap_or_default(),
        ordinal: ORDINALS.into_iter().find_map(label).unwrap_or_default(),
        started: None,
        ended: None,
        gone: false,
        phases: Vec::new(),
        grace: None,
        disrupted: false,
    });
    life.gone |= gone;
    life.node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    life.grace = life.grace.max(pod.metadata.deletion_grace_period_seconds);
    let status = json!(pod.status);
    let conditions = status.pointer("/conditions").and_then(|list| list.as_array());
    life.disrupted |= conditions.into_iter().flatten().any(|has| has["type"] == "DisruptionTarget");
    if phase == "Running" {
        life.started.get_or_insert(now);
    }
    if gone || phase == "Succeeded" || phase == "Failed" {
        life.ended.get_or_insert(now);
    }
    if life.phases.last() != Some(&phase) {
        life.phases.push(phase);
    }
}
