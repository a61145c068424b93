//! Every decision of this service: a state machine without clock, network or log.
//!
//! The shell tells it what it saw and how writes ended, with the time in milliseconds since any fixed origin; it
//! answers with writes. One owner, no locks: what is decided is counted before the next decision.

mod binding;
mod calls;
mod chaperons;
mod claims;
mod devices;
mod kubelets;
mod owners;
mod pods;
mod preemption;
mod quotas;
mod refusals;
mod reservations;
mod resource_claims;
mod retries;
mod storage;
mod story;
mod summary;
mod templates;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use api::keys;
use scheduling::config::Config;
use scheduling::{
    Cache, Classes, Diagnosis, Event, Framework, Judge, Lengths, Nomination, OwnerKind, Plugin, PodInfo,
    PodSpec, Profiles, Queue, Snapshot, Stopwatch,
};
use serde_json::Value;

use crate::observe::{Change, Name, NodeSeen, Seen, StorageSeen, TemplateKey};
use binding::Binding;
pub use calls::{Action, Admission, Eviction, Outcome, Story};
use chaperons::Chaperon;
use pods::Pod;
use preemption::Room;
pub use quotas::QuotaSeen;
use quotas::Quotas;
use resource_claims::Grant;
pub use story::{Attempt, Ended, Waiting};
use summary::Publication;
use templates::Template;

/// A write that failed for want of an answer is repeated after this time.
const RETRY_MS: u64 = 1000;
/// A refusal of what has changed meanwhile is looked at again after this time, when the watch has brought the change.
const CHANGED_MS: u64 = 200;
/// How much longer than promised a reservation is held.
const MARGIN_MS: u64 = 10_000;

/// Calls in flight at once. Each takes a connection of its own, so that more would only wait for handshakes.
pub const CALLS: usize = 64;

/// What waits in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    Chaperon(Name),
    Pod(Name),
}

/// What the decisions depend on besides what was seen.
#[derive(Debug, Clone)]
pub struct Settings {
    /// UID of namespace kube-system.
    pub cluster_uid: String,
    /// Where our release is, which sources are told.
    pub release_namespace: String,
    pub reserved_seconds: u64,
    /// The profiles besides that of delegates, which is always there.
    pub config: Config,
    /// PodChaperons and the ClusterSummary are watched: this cluster is a target.
    pub chaperons: bool,
    /// Claims, volumes and what CSI drivers say are watched. Without, pods with claims are placed nowhere.
    pub storage: bool,
    /// Services and controllers of pods are watched, and nothing is decided before they were seen.
    pub owners: bool,
    /// DeviceClasses are watched, and nothing is decided before they were seen.
    pub devices: bool,
    /// Resource claims and what drivers have are watched (and DeviceTaintRules, if that is true), and nothing is decided
    /// before they were seen. Without, pods with resource claims are refused; promises and delegates are in any case.
    pub claims: Option<bool>,
    pub extension: Extension,
}

impl Default for Settings {
    /// A target for delegates alone.
    fn default() -> Self {
        Self {
            cluster_uid: String::new(),
            release_namespace: String::new(),
            reserved_seconds: 30,
            config: Config::of_names(&[]),
            chaperons: true,
            storage: false,
            owners: false,
            devices: false,
            claims: None,
            extension: nothing_more,
        }
    }
}

/// Plugins of somebody else for the pods of one scheduler name, with the weights of their scores. They are asked after
/// those that are built in.
pub type Extension = fn(&str) -> Vec<(Box<dyn Plugin>, i64)>;

/// No plugin besides those that are built in.
pub fn nothing_more(_scheduler_name: &str) -> Vec<(Box<dyn Plugin>, i64)> {
    Vec::new()
}

/// The rules for each scheduler name.
fn profiles(Settings { config, extension, .. }: &Settings) -> Profiles {
    let mut profiles = config.frameworks();
    if !profiles.has(keys::CANDIDATE_SCHEDULER) {
        profiles.set(keys::CANDIDATE_SCHEDULER, Framework::builder().build());
    }
    for (name, framework) in profiles.each() {
        for (plugin, weight) in extension(name) {
            framework.push(plugin, weight);
        }
    }
    profiles
}

#[derive(Debug, Default)]
struct Synced {
    nodes: bool,
    pods: bool,
    chaperons: bool,
    budgets: bool,
    storage: storage::Listed,
    owners: BTreeSet<OwnerKind>,
    devices: bool,
    claims: resource_claims::Listed,
}

impl Synced {
    fn all(&self, settings: &Settings) -> bool {
        let chaperons = self.chaperons || !settings.chaperons;
        let owners = !settings.owners || OwnerKind::ALL.iter().all(|kind| self.owners.contains(kind));
        let storage = !settings.storage || self.storage.len() == StorageSeen::KINDS;
        let devices = self.devices || !settings.devices;
        let claims = settings.claims.is_none_or(|rules| self.claims.len() == 2 + usize::from(rules));
        self.nodes && self.pods && claims && chaperons && owners && storage && devices && self.budgets
    }
}

/// Decisions since the last call of [`Model::counts`], for metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    pub placed: u64,
    pub refused: u64,
    pub expired: u64,
    /// How often it was looked for room that others could make.
    pub preemptions: u64,
    /// How many had to go each time that it was found.
    pub victims: Vec<usize>,
    /// How many of them a budget protects.
    pub violations: u64,
    /// How often all were asked that had to go: `success`, or `error` if one of the calls failed.
    pub evictions: BTreeMap<&'static str, u64>,
    /// Storage that could not be judged, assumed or bound: `predicate`, `assume`, `bind`.
    pub storage_errors: BTreeMap<&'static str, u64>,
    /// Plans for storage that were counted on (`add`) and not any more (`delete`).
    pub storage_plans: BTreeMap<&'static str, u64>,
    /// Pods that were placed after no event but time had moved them.
    pub placed_after_flush: u64,
}

/// Everything that is known, decided and under way.
pub struct Model {
    settings: Settings,
    /// The rules, by scheduler name. Chaperons are scheduled like the delegates that they become.
    profiles: Profiles,
    /// What is known of nodes for classes of pods.
    cache: Cache,
    snapshot: Snapshot,
    queue: Queue<Key>,
    chaperons: HashMap<Name, Chaperon>,
    pods: HashMap<Name, Pod>,
    /// The delegate of each chaperon, by the chaperon's UID.
    delegates: HashMap<Arc<str>, Name>,
    /// Resource claims that pods wait for, by the pod's UID.
    grants: HashMap<Arc<str>, Grant>,
    /// Storage that pods wait for.
    bindings: BTreeMap<Name, Binding>,
    /// What they wait for may have happened.
    storage_touched: bool,
    /// Room that is being made, by the UID of the pod that needs it.
    rooms: HashMap<Arc<str>, Room>,
    templates: BTreeMap<TemplateKey, Template>,
    quotas: Quotas,
    synced: Synced,
    /// Everything was seen once, and what was promised before is counted again.
    started: bool,
    /// Templates of promises made before this process started, whose dry run is not answered yet.
    recalling: HashSet<TemplateKey>,
    /// When reservations end.
    deadlines: BTreeSet<(u64, Name)>,
    /// Refusals that wait to be written in other words, and when.
    rewordings: BTreeSet<(u64, Name)>,
    /// Failures that were repeated, and when to say how often.
    series: BTreeSet<(u64, Name)>,
    /// Calls that were asked for and have not ended.
    open: usize,
    /// Calls to repeat, and when.
    retries: BTreeMap<(u64, u64), Action>,
    retry_ticket: u64,
    publication: Publication,
    classes: Classes,
    /// Stands for the manifests that nobody needs any more.
    no_manifest: Arc<Value>,
    /// Why pods of a class (by the address of their common spec, which is kept alive) fit nowhere as things stand.
    memo: HashMap<usize, (Arc<PodSpec>, Arc<Diagnosis>)>,
    counts: Counts,
    attempts: Vec<Attempt>,
    actions: Vec<Action>,
}

impl Model {
    pub fn new(settings: Settings) -> Self {
        let mut snapshot = Snapshot::default();
        if settings.claims.is_some() {
            snapshot.devices_mut().follow();
        }
        Self {
            profiles: profiles(&settings),
            cache: Cache::default(),
            snapshot,
            queue: Queue::new(settings.config.backoff),
            settings,
            chaperons: HashMap::new(),
            pods: HashMap::new(),
            delegates: HashMap::new(),
            grants: HashMap::new(),
            bindings: BTreeMap::new(),
            storage_touched: false,
            rooms: HashMap::new(),
            templates: BTreeMap::new(),
            quotas: Quotas::default(),
            synced: Synced::default(),
            started: false,
            recalling: HashSet::new(),
            deadlines: BTreeSet::new(),
            rewordings: BTreeSet::new(),
            series: BTreeSet::new(),
            open: 0,
            retries: BTreeMap::new(),
            retry_ticket: 0,
            publication: Publication::default(),
            classes: Classes::default(),
            no_manifest: Arc::default(),
            memo: HashMap::new(),
            counts: Counts::default(),
            attempts: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// Measures what plugins take, by scheduler name.
    pub fn measure(&mut self, stopwatch: impl Fn(&str) -> Arc<dyn Stopwatch>) {
        for (name, framework) in self.profiles.each() {
            framework.measure(stopwatch(name));
        }
    }

    /// Takes in what a watch saw. Decisions wait for [`Self::decide`].
    pub fn see(&mut self, seen: Seen, now: u64) {
        match seen {
            Seen::Node(change) => self.see_nodes(change, now),
            Seen::Pod(change) => self.see_pods(change, now),
            Seen::Chaperon(change) => self.see_chaperons(change, now),
            Seen::Namespace(change) => self.see_namespaces(change, now),
            Seen::Budget(change) => self.see_budgets(change),
            Seen::Storage(seen) => self.see_storage(seen, now),
            Seen::Owners(kind, change) => self.see_owners(kind, change),
            Seen::Devices(change) => self.see_devices(change, now),
            Seen::Claims(seen) => self.see_claims(seen, now),
            Seen::Summary(summary) => self.publication.seen(summary),
            Seen::Quota(change) => self.see_quotas(change, now),
            Seen::Admission(namespace) => self.forget_admission(namespace.as_deref()),
        }
        if !self.started && self.synced.all(&self.settings) {
            self.started = true;
            self.recall(now);
        }
    }

    /// Takes in how a call ended.
    pub fn finish(&mut self, action: Action, outcome: Outcome, now: u64) {
        self.open = self.open.saturating_sub(1);
        match (action, outcome) {
            (Action::DryRun { template, .. }, outcome) => self.admission_answered(&template, outcome, now),
            (
                action @ (Action::Reserve { .. }
                | Action::Release { .. }
                | Action::Refuse { .. }
                | Action::Bind { .. }
                | Action::BindStorage { .. }
                | Action::BindClaim { .. }
                | Action::RefusePod { .. }
                | Action::Unnominate { .. }
                | Action::Disrupt(_)
                | Action::Evict(_)),
                Outcome::Unknown,
            ) => {
                self.repeat_later(action, now + RETRY_MS);
            }
            (
                action @ (Action::Refuse { .. } | Action::RefusePod { .. } | Action::BindClaim { .. }),
                Outcome::Conflict,
            ) => {
                self.repeat_later(action, now + CHANGED_MS);
            }
            (Action::Reserve { chaperon, uid, node, attempt, .. }, outcome) => {
                self.reserve_ended((&chaperon, &uid), (node, attempt), outcome, now);
            }
            (Action::Release { chaperon, uid, .. }, outcome) => {
                self.release_ended(&chaperon, &uid, outcome, now);
            }
            (Action::Refuse { chaperon, uid, .. }, outcome) => {
                self.refuse_ended(&chaperon, &uid, &outcome, now);
            }
            (Action::Bind { pod, uid, node }, outcome) => self.bind_ended((&pod, &uid), &node, &outcome, now),
            (Action::BindStorage { pod, uid, write }, outcome) => {
                self.storage_written((&pod, &uid), &write, outcome, now);
            }
            (Action::BindClaim { uid, work, .. }, outcome) => self.claim_written(&uid, &work, outcome, now),
            (Action::RefusePod { pod, uid, .. }, outcome) => self.pod_refusal_ended(&pod, &uid, &outcome),
            (Action::Disrupt(eviction), outcome) => self.disrupt_ended(eviction, &outcome, now),
            (Action::Evict(eviction), outcome) => self.evict_ended(eviction, &outcome, now),
            (Action::Tell(story), outcome) => self.telling_ended(&story.pod, &story.event, &outcome),
            (Action::TellAgain { pod, event, .. }, outcome) => self.telling_ended(&pod, &event, &outcome),
            (Action::Unnominate { .. } | Action::TellVictim(_) | Action::Deallocate { .. }, _) => {}
            (Action::CreateSummary(_) | Action::PatchSummary(_), outcome) => {
                self.publication.ended(&outcome, now);
            }
        }
    }

    /// A call ended, and nobody knows which and how.
    pub fn lost(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Decides everything that can be decided now.
    pub fn decide(&mut self, now: u64) -> Vec<Action> {
        self.repeat(now);
        if self.started {
            self.expire(now);
            self.settle_quotas(now);
            if std::mem::take(&mut self.storage_touched) || self.next_binding().is_some_and(|due| due <= now)
            {
                self.check_bindings(now);
            }
            self.refresh_templates(now);
            if self.recalling.is_empty() {
                while self.has_room()
                    && let Some(queued) = self.queue.pop(now, Judge::new(&self.profiles, &self.snapshot))
                {
                    match queued.key.clone() {
                        Key::Chaperon(name) => self.schedule_chaperon(&name, queued, now),
                        Key::Pod(name) => self.schedule_pod(&name, queued, now),
                    }
                }
            }
            self.reword(now);
            self.count_up(now);
            if self.settings.chaperons {
                self.publish(now);
            }
        }
        self.open = self.open.saturating_add(self.actions.len());
        std::mem::take(&mut self.actions)
    }

    /// Whether another decision's call could be sent at once. What waits for its turn here is decided on later knowledge,
    /// and behind what is more important.
    fn has_room(&self) -> bool {
        self.open.saturating_add(self.actions.len()) < CALLS
    }

    /// When [`Self::decide`] has something to do although nothing was seen; None if never.
    pub fn next_wakeup(&self) -> Option<u64> {
        let retry = self.retries.keys().next().map(|(time, _)| *time);
        if !self.started {
            // Whatever else is due waits for the watches.
            return retry;
        }
        // What waits for the answers about earlier promises is not due before they come.
        let recalled = self.recalling.is_empty();
        // Nor is what waits for a call to end.
        let queue = self.queue.next_wakeup().filter(|_| recalled && self.has_room());
        let summary = self.publication.next_wakeup().filter(|_| recalled);
        let deadline = self.deadlines.first().map(|(time, _)| *time);
        let rewording = self.rewordings.first().map(|(time, _)| *time);
        let series = self.series.first().map(|(time, _)| *time);
        let storage = self.next_binding();
        let quotas = self.quotas.next_wakeup();
        [series, queue, summary, deadline, rewording, retry, storage, quotas, self.next_template()]
            .into_iter()
            .flatten()
            .min()
    }

    /// True once promises made before this process started are counted.
    pub fn ready(&self) -> bool {
        self.started && self.recalling.is_empty()
    }

    pub fn lengths(&self) -> Lengths {
        self.queue.lengths()
    }

    /// The scheduler names whose pods are placed.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.names()
    }

    /// How many reservations are held.
    pub fn reservations(&self) -> usize {
        self.chaperons.values().filter(|chaperon| self.snapshot.place_of(chaperon.uid()).is_some()).count()
    }

    /// Decisions since the last call.
    pub fn counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    fn see_nodes(&mut self, change: Change<NodeSeen, Arc<str>>, now: u64) {
        match change {
            Change::All(nodes) => {
                let names: HashSet<_> = nodes.iter().map(|node| Arc::clone(node.name())).collect();
                let known: Vec<_> = self.snapshot.nodes().map(|node| Arc::clone(&node.info.name)).collect();
                for gone in known.iter().filter(|name| !names.contains(*name)) {
                    self.node_gone(gone, now);
                }
                for node in nodes {
                    self.node_is(node, now);
                }
                self.synced.nodes = true;
            }
            Change::Is(node) => self.node_is(node, now),
            Change::Gone(name) => self.node_gone(&name, now),
        }
    }

    fn node_is(&mut self, node: NodeSeen, now: u64) {
        let info = match node {
            NodeSeen::Usable(info) => info,
            NodeSeen::Unusable { name, .. } => return self.node_gone(&name, now),
        };
        let name = Arc::clone(&info.name);
        let old = self.snapshot.node(&name).map(|node| Arc::clone(&node.info));
        let change = self.snapshot.set_node(*info);
        self.storage_touched = true;
        self.memo.clear();
        self.publication.touch();
        let node = self.snapshot.node(&name).filter(|_| !change.is_empty());
        if let Some(node) = node.map(|node| Arc::clone(&node.info)) {
            self.happened(&Event::Node { old, node, change }, now);
        }
    }

    fn node_gone(&mut self, name: &str, now: u64) {
        let old = self.snapshot.node(name).map(|node| Arc::clone(&node.info));
        self.snapshot.remove_node(name);
        self.storage_touched = true;
        self.memo.clear();
        self.publication.touch();
        if let Some(old) = old {
            self.happened(&Event::NodeGone(old), now);
        }
    }

    fn see_namespaces(&mut self, change: Change<(Arc<str>, scheduling::Labels), Arc<str>>, now: u64) {
        let names: Vec<Arc<str>> = match change {
            Change::All(namespaces) => namespaces
                .into_iter()
                .map(|(name, labels)| {
                    self.snapshot.set_namespace(&name, labels);
                    name
                })
                .collect(),
            Change::Is((name, labels)) => {
                self.snapshot.set_namespace(&name, labels);
                vec![name]
            }
            Change::Gone(name) => {
                self.snapshot.remove_namespace(&name);
                vec![name]
            }
        };
        self.memo.clear();
        for name in names {
            self.forget_admission(Some(&name));
        }
        self.happened(&Event::Namespace, now);
    }

    /// The best node for a chaperon. A refusal holds for all equal pods until something changes.
    fn evaluate(&mut self, pod: &PodInfo) -> Result<Arc<str>, Arc<Diagnosis>> {
        if let Some(diagnosis) = self.refuse_storage(pod).or_else(|| self.refuse_devices(pod)) {
            return Err(Arc::new(diagnosis));
        }
        let class = Arc::as_ptr(&pod.spec) as usize;
        if let Some((_, diagnosis)) = self.memo.get(&class) {
            return Err(Arc::clone(diagnosis));
        }
        self.choose(pod, &BTreeSet::new()).map_err(|mut diagnosis| {
            if pod.promise {
                diagnosis.nomination = self.room_at_the_cost_of_others(pod);
            }
            let diagnosis = Arc::new(*diagnosis);
            self.memo.insert(class, (Arc::clone(&pod.spec), Arc::clone(&diagnosis)));
            diagnosis
        })
    }

    /// Where a pod would be placed if others made way for it. Nobody is asked to: that takes a grant.
    fn room_at_the_cost_of_others(&mut self, pod: &PodInfo) -> Nomination {
        let real = PodInfo { promise: false, ..pod.clone() };
        if self.refuse_storage(&real).is_some() {
            return Nomination::Clear;
        }
        let judged = self.profiles.of(&real).schedule(&mut self.cache, &real, &self.snapshot);
        judged.err().map_or(Nomination::Clear, |diagnosis| diagnosis.nomination)
    }

    /// The best node for one pod, one of `avoided` only if no other fits.
    fn choose(&mut self, pod: &PodInfo, avoided: &BTreeSet<Arc<str>>) -> Result<Arc<str>, Box<Diagnosis>> {
        if let Some(diagnosis) = self.refuse_storage(pod).or_else(|| self.refuse_devices(pod)) {
            return Err(Box::new(diagnosis));
        }
        let framework = self.profiles.of(pod);
        let best = framework.schedule(&mut self.cache, pod, &self.snapshot)?;
        if !avoided.contains(&best.node) {
            return Ok(best.node);
        }
        let selection = framework.evaluate(pod, &self.snapshot)?;
        let mut ranked = selection.ranked.into_iter().map(|ranked| ranked.node);
        Ok(ranked.find(|node| !avoided.contains(node)).unwrap_or(selection.node))
    }

    /// Where storage is not watched, a pod that has some is placed nowhere, rather than wrongly.
    fn refuse_storage(&self, pod: &PodInfo) -> Option<Diagnosis> {
        let refusals = if self.settings.storage { Vec::new() } else { pod.spec.storage_refusals() };
        if refusals.is_empty() {
            return None;
        }
        Some(self.refused_by("Supported", refusals.join(", ")))
    }

    /// Of promises and delegates, resource claims are not understood between clusters.
    fn refuse_devices(&self, pod: &PodInfo) -> Option<Diagnosis> {
        let foreign = pod.promise || pod.spec.scheduler_name == keys::CANDIDATE_SCHEDULER;
        let refusal = pod.spec.claim_refusal().filter(|_| foreign);
        refusal.map(|reason| self.refused_by("Supported", reason))
    }

    /// A refusal of the whole cluster by one plugin.
    fn refused_by(&self, plugin: &'static str, reason: String) -> Diagnosis {
        let mut diagnosis = Diagnosis::default();
        diagnosis.node_count = self.snapshot.node_count();
        diagnosis.pre_filter = Some(reason);
        diagnosis.plugins = BTreeSet::from([plugin]);
        diagnosis
    }

    /// Moves what waits for such an event.
    fn happened(&mut self, event: &Event, now: u64) {
        self.queue.event(event, now, Judge::new(&self.profiles, &self.snapshot));
    }

    /// Can `node` take the pod as things stand?
    fn fits(&self, pod: &PodInfo, node: &str) -> bool {
        self.profiles.of(pod).evaluate_node(pod, &self.snapshot, node).is_ok()
    }

    /// Counts a pod or reservation on a node.
    fn place(&mut self, pod: Arc<PodInfo>, node: &Arc<str>) {
        self.memo.clear();
        self.snapshot.assume(pod, node);
        self.publication.touch();
    }

    /// Ends what [`Self::place`] began, and tries again what may fit now.
    fn unplace(&mut self, uid: &str, now: u64) {
        if let Some(pod) = self.snapshot.remove_pod(uid) {
            self.memo.clear();
            self.publication.touch();
            self.happened(&Event::PodGone(pod), now);
        }
    }
}
