//! Watches in, decisions by [`Model`], calls out. Nothing is decided here.

use std::sync::Arc;
use std::time::Duration;

use api::{ClusterSummary, Node, Pod, PodChaperon, keys};
use futures::StreamExt;
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
use kube::runtime::watcher::Config;
use kube::{Api, Resource, ResourceExt};
use runtime::{CancellationToken, Chain, Runtime, watch};
use scheduling::{Labels, Owner, OwnerKind, volumes};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::apply::{Context, apply};
use crate::metrics::Metrics;
use crate::observe::{
    BudgetSeen, Change, ChaperonSeen, ClaimsSeen, Name, NodeSeen, PodSeen, Read, Seen, StorageSeen,
};
use crate::plan::{Action, CALLS, Model, Outcome, QuotaSeen, Settings};
use runtime::standby::Term;

/// Changes that may wait between the watches and the decisions.
const BUFFER: usize = 4096;
/// Changes taken in before the next decisions.
const BATCH: usize = 512;
/// Pause before another try to read the cluster's identity.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest sleep when nothing is due; metrics are brought up to date then.
const IDLE_MS: u64 = 15_000;
/// How often what waits is counted for metrics, at most.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Acts as the scheduler until leadership ends.
///
/// # Errors
///
/// Never.
pub async fn lead(
    runtime: Runtime,
    settings: Settings,
    metrics: Metrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let term = Term::begin(&runtime.readiness);
    let context = Context {
        client: runtime.client.clone(),
        manager: runtime.manager(),
        instance: runtime.args.pod_name.clone(),
        shared: runtime.metrics.clone(),
        metrics,
        clock: runtime.clock,
    };
    let Some(cluster_uid) = cluster_uid(&context, &settings, &stop).await else { return Ok(()) };
    let (seen, inbox) = mpsc::channel(BUFFER);
    let watches = Watches { runtime: &runtime, stop: &stop, seen };
    let mut tasks = watches.start(&settings);
    let release_namespace = runtime.args.pod_namespace.clone();
    let mut model = Model::new(Settings { cluster_uid, release_namespace, ..settings });
    model.measure(|profile| context.metrics.stopwatch(profile));
    schedule((&context, &term), model, inbox, &stop).await;
    tasks.shutdown().await;
    Ok(())
}

/// UID of namespace kube-system, which identifies the cluster to sources. None if we were stopped before it could be
/// read.
async fn cluster_uid(context: &Context, settings: &Settings, stop: &CancellationToken) -> Option<String> {
    if !settings.chaperons {
        return Some(String::new());
    }
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    loop {
        let read = tokio::select! {
            () = stop.cancelled() => return None,
            read = namespaces.get("kube-system") => read,
        };
        match read {
            Ok(namespace) => return namespace.metadata.uid,
            Err(error) => warn!(error = %Chain(&error), "cannot read the identity of the cluster"),
        }
        tokio::select! { () = stop.cancelled() => return None, () = tokio::time::sleep(PAUSE) => {} }
    }
}

/// The one owner of the model: takes in what is seen and how calls ended, and sends calls on their way.
async fn schedule(
    (context, term): (&Context, &Term),
    mut model: Model,
    mut inbox: mpsc::Receiver<Seen>,
    stop: &CancellationToken,
) {
    let start = Instant::now();
    let now = || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut calls: JoinSet<(Action, Outcome)> = JoinSet::new();
    let (mut ready, mut counted) = (false, start);
    let slots = Arc::new(Semaphore::new(CALLS));
    loop {
        let wakeup = model.next_wakeup().map_or(u64::MAX / 2, |time| time.saturating_sub(now()));
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(seen) = inbox.recv() => model.see(seen, now()),
            Some(ended) = calls.join_next() => take_in(&mut model, ended, now()),
            () = tokio::time::sleep(Duration::from_millis(wakeup.min(IDLE_MS))) => {}
        }
        for _ in 0..BATCH {
            let Ok(seen) = inbox.try_recv() else { break };
            model.see(seen, now());
        }
        while let Some(ended) = calls.try_join_next() {
            take_in(&mut model, ended, now());
        }
        let begin = Instant::now();
        let actions = model.decide(now());
        let seconds = begin.elapsed().as_secs_f64();
        context.metrics.decided(seconds, &model.counts());
        context.metrics.attempted(seconds, &model.attempts());
        if counted.elapsed() >= COUNT_EVERY {
            counted = Instant::now();
            context.metrics.waiting(model.lengths(), model.reservations(), &model.waiting());
        }
        for action in actions {
            let (context, slots) = (context.clone(), Arc::clone(&slots));
            calls.spawn(async move {
                // The semaphore is never closed.
                let _slot = slots.acquire().await;
                let outcome = apply(&context, &action).await;
                (action, outcome)
            });
        }
        if model.ready() && !ready {
            ready = true;
            term.in_step();
            info!(
                reservations = model.reservations(),
                "counted what was promised before; decides from now on"
            );
        }
    }
    calls.shutdown().await;
}

fn take_in(model: &mut Model, ended: Result<(Action, Outcome), tokio::task::JoinError>, now: u64) {
    match ended {
        Ok((action, outcome)) => model.finish(action, outcome, now),
        Err(error) => {
            warn!(error = %Chain(&error), "a call ended without an outcome");
            model.lost();
        }
    }
}

/// Starts the watches, each in a task of its own that reduces objects to what decisions need.
struct Watches<'a> {
    runtime: &'a Runtime,
    stop: &'a CancellationToken,
    seen: mpsc::Sender<Seen>,
}

impl Watches<'_> {
    fn start(self, settings: &Settings) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let unfinished = Config::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        self.objects::<Node>(&mut tasks, Config::default());
        self.objects::<Pod>(&mut tasks, unfinished);
        self.objects::<Namespace>(&mut tasks, Config::default());
        self.objects::<PodDisruptionBudget>(&mut tasks, Config::default());
        self.objects::<Service>(&mut tasks, Config::default());
        self.objects::<ReplicationController>(&mut tasks, Config::default());
        self.objects::<ReplicaSet>(&mut tasks, Config::default());
        self.objects::<StatefulSet>(&mut tasks, Config::default());
        if settings.devices {
            self.objects::<DeviceClass>(&mut tasks, Config::default());
        }
        if let Some(rules) = settings.claims {
            self.objects::<ResourceClaim>(&mut tasks, Config::default());
            self.objects::<ResourceSlice>(&mut tasks, Config::default());
            if rules {
                self.objects::<DeviceTaintRule>(&mut tasks, Config::default());
            }
        }
        if settings.storage {
            self.storage(&mut tasks);
        }
        if settings.chaperons {
            self.target(&mut tasks);
        }
        tasks
    }

    /// What says where storage is.
    fn storage(&self, tasks: &mut JoinSet<()>) {
        self.objects::<PersistentVolumeClaim>(tasks, Config::default());
        self.objects::<PersistentVolume>(tasks, Config::default());
        self.objects::<StorageClass>(tasks, Config::default());
        self.objects::<CSINode>(tasks, Config::default());
        self.objects::<CSIDriver>(tasks, Config::default());
        self.objects::<CSIStorageCapacity>(tasks, Config::default());
        self.objects::<VolumeAttachment>(tasks, Config::default());
    }

    /// What a target watches besides.
    fn target(&self, tasks: &mut JoinSet<()>) {
        self.objects::<PodChaperon>(tasks, Config::default());
        self.summary(tasks);
        self.admission::<ServiceAccount>(tasks);
        self.objects::<ResourceQuota>(tasks, Config::default());
        self.admission::<LimitRange>(tasks);
        self.admission::<MutatingWebhookConfiguration>(tasks);
        self.admission::<ValidatingWebhookConfiguration>(tasks);
    }

    /// Watches a kind whose objects matter.
    fn objects<K: Reduce>(&self, tasks: &mut JoinSet<()>, config: Config) {
        self.spawn(tasks, config, |seen: runtime::Seen<K>| match seen {
            runtime::Seen::Replaced(list) => {
                vec![K::wrap(Change::All(list.iter().map(K::reduce).collect()))]
            }
            runtime::Seen::Applied(object) => vec![K::wrap(Change::Is(object.reduce()))],
            runtime::Seen::Deleted(object) => vec![K::wrap(Change::Gone(object.key()))],
            runtime::Seen::Failed(_) => Vec::new(),
        });
    }

    /// Watches the one ClusterSummary.
    fn summary(&self, tasks: &mut JoinSet<()>) {
        let config = Config::default().fields(&format!("metadata.name={}", keys::SINGLETON));
        self.spawn(tasks, config, |seen: runtime::Seen<ClusterSummary>| match seen {
            runtime::Seen::Replaced(list) => vec![Seen::Summary(list.into_iter().next().map(Box::new))],
            runtime::Seen::Applied(summary) => vec![Seen::Summary(Some(Box::new(summary)))],
            runtime::Seen::Deleted(_) => vec![Seen::Summary(None)],
            runtime::Seen::Failed(_) => Vec::new(),
        });
    }

    /// Watches a kind of which only matters that something changed.
    fn admission<K>(&self, tasks: &mut JoinSet<()>)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let concerns = |object: &K| Seen::Admission(object.namespace().map(Arc::from));
        let mut first = true;
        self.spawn(tasks, Config::default(), move |seen: runtime::Seen<K>| match seen {
            // The first list is how things are, not a change.
            runtime::Seen::Replaced(_) if std::mem::take(&mut first) => Vec::new(),
            runtime::Seen::Replaced(_) => vec![Seen::Admission(None)],
            runtime::Seen::Applied(object) | runtime::Seen::Deleted(object) => vec![concerns(&object)],
            runtime::Seen::Failed(_) => Vec::new(),
        });
    }

    fn spawn<K, F>(&self, tasks: &mut JoinSet<()>, config: Config, mut reduce: F)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
        F: FnMut(runtime::Seen<K>) -> Vec<Seen> + Send + 'static,
    {
        let api: Api<K> = Api::all(self.runtime.client.clone());
        let mut stream = Box::pin(watch(api, config, "local", &self.runtime.metrics));
        let (stop, sender) = (self.stop.clone(), self.seen.clone());
        tasks.spawn(async move {
            loop {
                let seen = tokio::select! { () = stop.cancelled() => break, seen = stream.next() => seen };
                let Some(seen) = seen else { break };
                if forward(&sender, reduce(seen)).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// A kind whose objects matter, and what is left of each.
trait Reduce: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static {
    type Left: Send + 'static;
    type Key: Send + 'static;

    fn reduce(&self) -> Self::Left;
    fn key(&self) -> Self::Key;
    fn wrap(change: Change<Self::Left, Self::Key>) -> Seen;
}

impl Reduce for Node {
    type Left = NodeSeen;
    type Key = Arc<str>;

    fn reduce(&self) -> NodeSeen {
        NodeSeen::read(self)
    }

    fn key(&self) -> Arc<str> {
        Arc::from(self.name())
    }

    fn wrap(change: Change<NodeSeen, Arc<str>>) -> Seen {
        Seen::Node(change)
    }
}

impl Reduce for Pod {
    type Left = PodSeen;
    type Key = Name;

    fn reduce(&self) -> PodSeen {
        PodSeen::read(self)
    }

    fn key(&self) -> Name {
        Name::new(self.namespace(), self.name())
    }

    fn wrap(change: Change<PodSeen, Name>) -> Seen {
        Seen::Pod(change)
    }
}

impl Reduce for PodChaperon {
    type Left = ChaperonSeen;
    type Key = Name;

    fn reduce(&self) -> ChaperonSeen {
        ChaperonSeen::read(self)
    }

    fn key(&self) -> Name {
        Name::new(self.namespace(), self.name())
    }

    fn wrap(change: Change<ChaperonSeen, Name>) -> Seen {
        Seen::Chaperon(change)
    }
}

impl Reduce for Namespace {
    type Left = (Arc<str>, Labels);
    type Key = Arc<str>;

    fn reduce(&self) -> (Arc<str>, Labels) {
        (self.key(), self.metadata.labels.iter().flatten().collect())
    }

    fn key(&self) -> Arc<str> {
        Arc::from(self.name_any())
    }

    fn wrap(change: Change<(Arc<str>, Labels), Arc<str>>) -> Seen {
        Seen::Namespace(change)
    }
}

impl Reduce for PodDisruptionBudget {
    type Left = BudgetSeen;
    type Key = Name;

    fn reduce(&self) -> BudgetSeen {
        BudgetSeen::read(self.key(), &serde_json::to_value(self).unwrap_or_default())
    }

    fn key(&self) -> Name {
        Name::new(&self.namespace().unwrap_or_default(), &self.name_any())
    }

    fn wrap(change: Change<BudgetSeen, Name>) -> Seen {
        Seen::Budget(change)
    }
}

impl Reduce for ResourceQuota {
    type Left = QuotaSeen;
    type Key = Name;

    fn reduce(&self) -> QuotaSeen {
        QuotaSeen::read(self.key(), &serde_json::to_value(self).unwrap_or_default())
    }

    fn key(&self) -> Name {
        Name::new(&self.namespace().unwrap_or_default(), &self.name_any())
    }

    fn wrap(change: Change<QuotaSeen, Name>) -> Seen {
        Seen::Quota(change)
    }
}

impl Reduce for DeviceClass {
    type Left = scheduling::DeviceClass;
    type Key = Arc<str>;

    fn reduce(&self) -> scheduling::DeviceClass {
        let value = serde_json::to_value(self).unwrap_or_default();
        scheduling::DeviceClass::parse(&value).unwrap_or_else(|error| {
            warn!(object = %self.name_any(), error = %Chain(&error), "cannot be read; no device belongs to it");
            scheduling::DeviceClass::unreadable(&self.name_any(), &error)
        })
    }

    fn key(&self) -> Arc<str> {
        Arc::from(self.name_any())
    }

    fn wrap(change: Change<scheduling::DeviceClass, Arc<str>>) -> Seen {
        Seen::Devices(change)
    }
}

/// Kinds whose objects stand for a group of pods.
macro_rules! owners {
    ($($kind:ident: $selector:expr),*) => {$(
        impl Reduce for $kind {
            type Left = Owner;
            type Key = Name;

            fn reduce(&self) -> Owner {
                let selector: fn(&Self) -> Value = $selector;
                let (namespace, name) = (self.namespace().unwrap_or_default(), self.name_any());
                Owner::new(OwnerKind::$kind, (&namespace, &name), &selector(self))
            }

            fn key(&self) -> Name {
                Name::new(&self.namespace().unwrap_or_default(), &self.name_any())
            }

            fn wrap(change: Change<Owner, Name>) -> Seen {
                Seen::Owners(OwnerKind::$kind, change)
            }
        }
    )*};
}

owners!(
    Service: |service| json!(service.spec.as_ref().map(|spec| &spec.selector)),
    ReplicationController: |controller| json!(controller.spec.as_ref().map(|spec| &spec.selector)),
    ReplicaSet: |set| json!(set.spec.selector),
    StatefulSet: |set| json!(set.spec.selector)
);

/// Kinds of which a part may not be readable.
macro_rules! readable {
    ($($kind:ident: $left:ty, $seen:expr),*) => {$(
        impl Reduce for $kind {
            type Left = Read<$left>;
            type Key = Name;

            fn reduce(&self) -> Read<$left> {
                let value = serde_json::to_value(self).unwrap_or_default();
                let read = <$left>::parse(&value);
                if let Err(error) = &read {
                    warn!(object = %self.key(), error = %Chain(error), "cannot be read; it is as if it did not exist");
                }
                (self.key(), read.ok())
            }

            fn key(&self) -> Name {
                Name::new(&self.namespace().unwrap_or_default(), &self.name_any())
            }

            fn wrap(change: Change<Read<$left>, Name>) -> Seen {
                let wrap: fn(Change<Read<$left>, Name>) -> Seen = $seen;
                wrap(change)
            }
        }
    )*};
}

readable!(
    PersistentVolumeClaim: volumes::Claim, |change| Seen::Storage(StorageSeen::Claim(change)),
    PersistentVolume: volumes::PersistentVolume, |change| Seen::Storage(StorageSeen::Volume(change)),
    StorageClass: volumes::StorageClass, |change| Seen::Storage(StorageSeen::Class(change)),
    CSINode: volumes::CsiNode, |change| Seen::Storage(StorageSeen::CsiNode(change)),
    CSIDriver: volumes::CsiDriver, |change| Seen::Storage(StorageSeen::CsiDriver(change)),
    CSIStorageCapacity: volumes::StorageCapacity, |change| Seen::Storage(StorageSeen::Capacity(change)),
    VolumeAttachment: volumes::VolumeAttachment, |change| Seen::Storage(StorageSeen::Attachment(change)),
    ResourceClaim: scheduling::ResourceClaim, |change| Seen::Claims(ClaimsSeen::Claim(change)),
    ResourceSlice: scheduling::ResourceSlice, |change| Seen::Claims(ClaimsSeen::Slice(change)),
    DeviceTaintRule: scheduling::DeviceTaintRule, |change| Seen::Claims(ClaimsSeen::Rule(change))
);

async fn forward(
    sender: &mpsc::Sender<Seen>,
    changes: Vec<Seen>,
) -> Result<(), mpsc::error::SendError<Seen>> {
    for change in changes {
        sender.send(change).await?;
    }
    Ok(())
}
