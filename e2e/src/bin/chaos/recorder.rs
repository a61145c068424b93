//! Watches the pods of one namespace in all clusters by itself, over the ways of the test ground that no partition
//! touches, and remembers when each ran. It shares no code with what it judges.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use e2e::cluster::Cluster;
use e2e::ground::Ground;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use tokio::time::{sleep, timeout};

const PAUSE: Duration = Duration::from_millis(500);
/// An API server that is frozen closes no watch.
const SILENCE: Duration = Duration::from_secs(20);

/// One pod in one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) cluster: String,
    pub(crate) name: String,
    /// The UID of the pod for which it runs; empty for a pod that is no delegate.
    pub(crate) parent: String,
    /// What it takes the only place of among its siblings: the name of a StatefulSet's pod, the index of a Job's.
    pub(crate) place: String,
    /// The Deployment that it belongs to, or nothing.
    pub(crate) app: String,
    pub(crate) restarts: bool,
    /// As the kubelet says, in whole seconds.
    pub(crate) started: Option<Timestamp>,
    pub(crate) ended: Option<Timestamp>,
    pub(crate) gone: Option<Timestamp>,
    /// When somebody asked for its end.
    pub(crate) deleted: Option<Timestamp>,
    pub(crate) succeeded: bool,
}

type Book = Arc<Mutex<BTreeMap<String, Life>>>;

/// All pods since the start.
#[derive(Debug)]
pub(crate) struct Recorder {
    book: Book,
    gaps: Arc<Mutex<usize>>,
}

impl Recorder {
    pub(crate) fn start(ground: &Ground, namespace: &str) -> Self {
        let (book, gaps) = (Book::default(), Arc::new(Mutex::new(0)));
        for cluster in ground.clusters() {
            tokio::spawn(record(
                pods(cluster, namespace),
                cluster.name.clone(),
                Arc::clone(&book),
                Arc::clone(&gaps),
            ));
        }
        Self { book, gaps }
    }

    pub(crate) fn lives(&self) -> BTreeMap<String, Life> {
        lock(&self.book).clone()
    }

    /// How often a watch could not go on where it had ended, so that something may have been missed.
    pub(crate) fn gaps(&self) -> usize {
        *lock(&self.gaps)
    }
}

fn pods(cluster: &Cluster, namespace: &str) -> Api<Pod> {
    cluster.api(namespace)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn record(pods: Api<Pod>, cluster: String, book: Book, gaps: Arc<Mutex<usize>>) {
    let mut version: Option<String> = None;
    let mut first = true;
    loop {
        let from = match version.take() {
            Some(version) => version,
            None => match timeout(SILENCE, pods.list(&ListParams::default())).await {
                Ok(Ok(list)) => {
                    *lock(&gaps) += usize::from(!std::mem::take(&mut first));
                    let listed: Vec<String> = list.items.iter().filter_map(Pod::uid).collect();
                    list.items.iter().for_each(|pod| note(&book, &cluster, pod, false));
                    let now = Timestamp::now();
                    for (uid, life) in lock(&book).iter_mut() {
                        if life.cluster == cluster && !listed.contains(uid) {
                            life.gone.get_or_insert(now);
                        }
                    }
                    list.metadata.resource_version.unwrap_or_default()
                }
                _ => {
                    sleep(PAUSE).await;
                    continue;
                }
            },
        };
        version = follow(&pods, (&cluster, &book), from).await;
        sleep(PAUSE).await;
    }
}

/// Watches until the watch ends; returns where to go on, if that is possible.
async fn follow(pods: &Api<Pod>, (cluster, book): (&str, &Book), from: String) -> Option<String> {
    let mut version = from;
    let params = WatchParams::default().timeout(60);
    let Ok(Ok(stream)) = timeout(SILENCE, pods.watch(&params, &version)).await else { return Some(version) };
    let mut stream = std::pin::pin!(stream);
    while let Ok(Some(event)) = timeout(SILENCE, stream.next()).await {
        match event {
            Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                version = pod.resource_version().unwrap_or(version);
                note(book, cluster, &pod, false);
            }
            Ok(WatchEvent::Deleted(pod)) => {
                version = pod.resource_version().unwrap_or(version);
                note(book, cluster, &pod, true);
            }
            Ok(WatchEvent::Bookmark(mark)) => version = mark.metadata.resource_version,
            Ok(WatchEvent::Error(status)) if status.code == 410 => return None,
            Ok(WatchEvent::Error(_)) | Err(_) => return Some(version),
        }
    }
    Some(version)
}

fn note(book: &Book, cluster: &str, pod: &Pod, gone: bool) {
    let Some(uid) = pod.uid() else { return };
    let label = |key: &str| pod.labels().get(&format!("multicluster.admiralty.io/{key}")).cloned();
    let places = [("pod-name", "set"), ("job-completion-index", "job")];
    let mut book = lock(book);
    let life = book.entry(uid).or_insert_with(|| Life {
        cluster: cluster.to_owned(),
        name: pod.name_any(),
        parent: label("parent-uid").unwrap_or_default(),
        place: places
            .into_iter()
            .find_map(|(key, kind)| {
                Some(format!("{kind} {} {}", label("job-name").unwrap_or_default(), label(key)?))
            })
            .unwrap_or_default(),
        app: label("app").unwrap_or_default(),
        restarts: pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("Always"),
        started: None,
        ended: None,
        gone: None,
        deleted: None,
        succeeded: false,
    });
    if let Some(until) = &pod.metadata.deletion_timestamp {
        let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default());
        life.deleted.get_or_insert(until.0 - grace);
    }
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    for container in status.iter().filter_map(|status| status.container_statuses.as_ref()).flatten() {
        let Some(state) = &container.state else { continue };
        let running = state.running.as_ref().and_then(|running| running.started_at.as_ref());
        let ended = state.terminated.as_ref();
        let started = running.or_else(|| ended.and_then(|ended| ended.started_at.as_ref()));
        if life.started.is_none() {
            life.started = started.map(|time| time.0);
        }
        if let Some(at) = ended.and_then(|ended| ended.finished_at.as_ref()) {
            life.ended.get_or_insert(at.0);
        }
    }
    life.succeeded |= phase == "Succeeded";
    if gone {
        life.gone.get_or_insert(Timestamp::now());
    }
}
