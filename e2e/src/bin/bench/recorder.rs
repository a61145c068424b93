//! Watches pods and keeps when what happened to each, independently of the code that is measured.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use e2e::cluster::Cluster;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use tokio::task::JoinHandle;

const PARENT: &str = "multicluster.admiralty.io/parent-uid";

/// What happened to one pod, as times of arrival of the watch's events.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) seen: Instant,
    pub(crate) scheduled: Option<Instant>,
    /// The node that it is bound to.
    pub(crate) node: Option<String>,
    pub(crate) ready: Option<Instant>,
    pub(crate) gone: bool,
    /// The UID of the pod for which it runs, on delegates.
    pub(crate) parent: Option<String>,
}

/// All pods of one namespace in one cluster, from the moment of [`Recorder::start`] on.
#[derive(Debug)]
pub(crate) struct Recorder {
    records: Arc<Mutex<BTreeMap<String, Record>>>,
    task: JoinHandle<()>,
}

impl Recorder {
    pub(crate) fn start(cluster: &Cluster, namespace: &str) -> Self {
        let records = Arc::new(Mutex::new(BTreeMap::new()));
        let (pods, book): (Api<Pod>, _) = (cluster.api(namespace), Arc::clone(&records));
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()));
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                        note(&book, &pod, false);
                    }
                    Ok(watcher::Event::Delete(pod)) => note(&book, &pod, true),
                    // The watch goes on by itself; what was missed shows as a pod that never got Ready.
                    Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
                }
            }
        });
        Self { records, task }
    }

    pub(crate) fn records(&self) -> Vec<(String, Record)> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.iter().map(|(uid, record)| (uid.clone(), record.clone())).collect()
    }

    /// How many pods are Ready and not gone.
    pub(crate) fn ready(&self) -> usize {
        self.records().iter().filter(|(_, record)| record.ready.is_some() && !record.gone).count()
    }

    /// How many pods are there.
    pub(crate) fn present(&self) -> usize {
        self.records().iter().filter(|(_, record)| !record.gone).count()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn note(book: &Mutex<BTreeMap<String, Record>>, pod: &Pod, gone: bool) {
    let now = Instant::now();
    let Some(uid) = pod.uid() else { return };
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is =
        |kind: &str| conditions.into_iter().flatten().any(|has| has.type_ == kind && has.status == "True");
    let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
    let record = book.entry(uid).or_insert_with(|| Record {
        seen: now,
        scheduled: None,
        node: None,
        ready: None,
        gone: false,
        parent: pod.labels().get(PARENT).cloned(),
    });
    record.gone = gone;
    record.node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    if record.node.is_some() {
        record.scheduled.get_or_insert(now);
    }
    if is("Ready") {
        record.ready.get_or_insert(now);
    }
}

/// The value at a share of a sorted list, such as 0.99.
pub(crate) fn percentile(sorted: &[Duration], share: f64) -> Duration {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length fits it"
    )]
    #[expect(clippy::cast_precision_loss, reason = "no list here has 2^52 entries")]
    let at = ((sorted.len() as f64) * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let list: Vec<Duration> = (1..=100).map(Duration::from_secs).collect();
        assert_eq!(percentile(&list, 0.5), Duration::from_secs(50));
        assert_eq!(percentile(&list, 0.99), Duration::from_secs(99));
        assert_eq!(percentile(&list, 1.0), Duration::from_secs(100));
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }
}
