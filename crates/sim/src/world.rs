//! One world: clusters, processes, what is under way between them, and time.
//!
//! Time stands still while anything can happen at once; then it jumps to whatever is due next, be it an event of
//! the world or a timer inside a service. One thread, one seed: the same world twice.

mod excess;
mod faults;
mod gangs;
mod kubelets;
mod network;
mod owners;
mod upkeep;
mod verdict;
mod watches;

use crate::bugs::Bug;
use crate::cluster::{Backup, Object, Store};
use crate::plan::{Kind, Plan};
use crate::process::{Launch, Process, Service};
use crate::recorder::{Recorder, Violation};
use crate::wire::{ClusterId, ProcessId, Sent, Wire};
use bytes::Bytes;
use excess::Excess;
use fastrand::Rng;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubelets::Kubelet;
use network::Cut;
use owners::Owners;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use watches::Watch;

/// Namespace of all pods.
const NAMESPACE: &str = "shop";
/// Namespace of our services and of kubeconfigs.
const OURS: &str = "multicluster-scheduler";
/// A world that is not settled so long after the last fault never will be, in milliseconds.
const PATIENCE: u64 = 400_000;

/// What is due at some time.
enum Due {
    /// A request reaches its API server.
    Arrive(Box<Sent>),
    /// An answer reaches its process.
    Answer(network::Answer),
    /// A watch brings what is due of it.
    Deliver(ClusterId, u64),
    /// A kubelet looks at a pod, by UID.
    Kubelet(ClusterId, String, String),
    /// A container's time is over.
    Container(ClusterId, String, String),
    /// A fault begins.
    Begin(usize),
    /// A fault ends.
    End(usize),
    /// Others write again.
    Meddle(usize),
    /// A process starts.
    Start(Service, ClusterId),
    /// A process that overlapped with another is over.
    Stop(ProcessId),
    /// A process that stood still goes on.
    Wake(ProcessId),
    /// Autoscalers, owners, garbage collection, node controllers look around.
    Scales,
    Owners,
    Collect,
    Nodes,
    /// All faults are over.
    Heal,
    /// Is it settled?
    Look,
}

/// A cluster with all that stands around its API server.
struct Cluster {
    store: Store,
    down: bool,
    frozen: bool,
    waiting: VecDeque<Sent>,
    errors: bool,
    slow: u64,
    lag: u64,
    watches: BTreeMap<u64, Watch>,
    pumped: usize,
    kubelets: BTreeMap<String, Kubelet>,
    backup: Option<Backup>,
    /// The credentials that are taken.
    key: u32,
    /// Since when pods are seen on a node that is not there.
    stranded: BTreeMap<String, u64>,
}

/// What became of a world.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    pub violations: Vec<Violation>,
    /// Kinds of faults that took effect, and how often.
    pub faults: BTreeMap<Kind, u64>,
    /// Events handled.
    pub steps: u64,
    /// Containers started.
    pub starts: u64,
    /// Writes of our services that API servers took.
    pub writes: u64,
    /// Pods that made way for others, and nodes that were added.
    pub evictions: u64,
    pub scale_ups: u64,
    /// Length in milliseconds of the world's own time.
    pub lasted: u64,
    /// Equal for equal histories.
    pub fingerprint: u64,
    /// The story, if it was asked for.
    pub trace: Vec<String>,
}

/// How a world is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// What our services do wrong.
    pub bug: Option<Bug>,
    /// Keep the story.
    pub trace: bool,
    /// Tell it as it happens.
    pub live: bool,
    /// The process ends with it: nothing is tidied up.
    pub once: bool,
}

/// The world.
pub struct World {
    plan: Plan,
    options: Options,
    rng: Rng,
    start: Instant,
    wall: Timestamp,
    dues: BTreeMap<(u64, u64), Due>,
    serial: u64,
    clusters: Vec<Cluster>,
    processes: Vec<Process>,
    wire: Arc<Wire>,
    cuts: Vec<(usize, Cut)>,
    limbo: Vec<Sent>,
    outbox: Vec<(ProcessId, network::Held)>,
    owners: Owners,
    /// How many answers to writes are lost next.
    lose: u32,
    skewed: bool,
    healed: bool,
    recorder: Recorder,
    report: Report,
    webhook: webhook::mac::Key,
    /// What a target said last of itself, for those who do not mind how old it is.
    said: BTreeMap<ClusterId, Bytes>,
    /// Sources answer lists of pods as if there were none.
    empty: bool,
    /// Users replace pods whose bindings are under way.
    replaces: bool,
    /// Targets that were taken away, by source: pods that were elected there may end.
    removed: Vec<(ClusterId, ClusterId)>,
    excess: Excess,
    /// UIDs of pods that were ever bound, by source and group.
    placed: BTreeMap<(ClusterId, String), BTreeSet<String>>,
}

/// Runs the world of a plan to its end.
///
/// # Errors
///
/// There is no runtime to be had, or a service does not start.
pub fn run(plan: &Plan, options: Options) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let plan = plan.clone();
    let report = runtime.block_on(async move {
        let mut world = Box::new(World::new(plan, options)?);
        world.live().await?;
        let report = world.end();
        if options.once {
            Box::leak(world);
        }
        anyhow::Ok(report)
    });
    if options.once {
        Box::leak(Box::new(runtime));
    } else {
        runtime.shutdown_background();
    }
    report
}

impl World {
    fn new(plan: Plan, options: Options) -> anyhow::Result<Self> {
        let wall: Timestamp = "2026-01-01T00:00:00Z".parse()?;
        let rng = Rng::with_seed(plan.seed ^ 0x5eed);
        let count = plan.sources + plan.targets;
        let clusters = (0..count).map(|id| Cluster::new(&format!("c{id}"))).collect();
        let owners = Owners::new(&plan);
        let mut world = Self {
            plan,
            options,
            rng,
            start: Instant::now(),
            wall,
            dues: BTreeMap::new(),
            serial: 0,
            clusters,
            processes: Vec::new(),
            wire: Arc::default(),
            cuts: Vec::new(),
            limbo: Vec::new(),
            outbox: Vec::new(),
            owners,
            lose: 0,
            skewed: false,
            healed: false,
            recorder: Recorder::default(),
            report: Report::default(),
            webhook: webhook::mac::Key::new(b"0123456789abcdef0123456789abcdef"),
            said: BTreeMap::new(),
            empty: false,
            replaces: false,
            removed: Vec::new(),
            excess: Excess::default(),
            placed: BTreeMap::new(),
        };
        world.found()?;
        Ok(world)
    }

    /// Milliseconds since the beginning.
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn wall(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.start.elapsed()).unwrap_or_default();
        self.wall.saturating_add(passed).unwrap_or(self.wall)
    }

    fn stamp(&self) -> String {
        self.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn after(&mut self, pause: u64, due: Due) {
        self.at(self.now() + pause, due);
    }

    fn at(&mut self, at: u64, due: Due) {
        self.serial += 1;
        self.dues.insert((at, self.serial), due);
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.options.trace {
            let now = self.now();
            let line = format!("{:>4}.{:03} {}", now / 1000, now % 1000, what());
            if self.options.live {
                // Where nobody reads, nothing is lost.
                let _unread = writeln!(std::io::stderr(), "{line}");
            }
            self.report.trace.push(line);
        }
    }

    fn is_source(&self, cluster: ClusterId) -> bool {
        cluster < self.plan.sources
    }

    /// Objects that are there before anything begins, and what is to happen.
    fn found(&mut self) -> anyhow::Result<()> {
        self.tick_stores();
        for id in 0..self.clusters.len() {
            self.found_cluster(id)?;
        }
        for source in 0..self.plan.sources {
            for target in 0..self.plan.targets {
                // The second source shares all targets but the last.
                if source == 0 || target + 1 < self.plan.targets {
                    self.add_target(source, self.plan.sources + target);
                }
            }
            for service in Service::OF_SOURCE {
                self.at(0, Due::Start(service, source));
            }
        }
        for target in self.plan.sources..self.clusters.len() {
            for service in Service::OF_TARGET {
                self.at(0, Due::Start(service, target));
            }
        }
        for index in 0..self.plan.faults.len() {
            let Some(fault) = self.plan.faults.get(index).copied() else { continue };
            self.at(fault.at, Due::Begin(index));
            self.at(fault.at + fault.lasts, Due::End(index));
            // What comes late was not there before.
            if fault.kind == Kind::TargetAdded {
                let (source, target) = (0, self.plan.sources + self.pick(fault.pick, self.plan.targets));
                self.remove_target(source, target);
            }
            self.skewed |= fault.kind == Kind::ClockSkew;
        }
        self.at(500, Due::Scales);
        self.at(700, Due::Owners);
        self.at(1_100, Due::Collect);
        self.at(1_300, Due::Nodes);
        let pace = self.plan.pace;
        self.at(pace.healed, Due::Heal);
        self.at(pace.healed + pace.look, Due::Look);
        Ok(())
    }

    fn pick(&self, pick: u64, of: usize) -> usize {
        usize::try_from(pick % u64::try_from(of.max(1)).unwrap_or(1)).unwrap_or_default()
    }

    fn found_cluster(&mut self, id: ClusterId) -> anyhow::Result<()> {
        let (nodes, cpu, is_source) = (self.plan.nodes, self.plan.cpu, self.is_source(id));
        let cluster = self.cluster(id);
        let uid = cluster.store.uid.clone();
        for name in ["kube-system", OURS, NAMESPACE, "kube-node-lease"] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name,
                "uid": if name == "kube-system" { json!(uid) } else { json!(null) }}});
            cluster
                .store
                .create("namespaces", object, false)
                .map_err(|refusal| anyhow::anyhow!(refusal.message))?;
        }
        if is_source {
            return Ok(());
        }
        for node in 0..nodes {
            let name = format!("c{id}-n{node}");
            cluster.add_node(&name, cpu);
        }
        // Of somebody else: nobody of ours may touch it.
        let foreign = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "local", "namespace": NAMESPACE,
            "labels": {"app": "local"}}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": format!("c{id}-n0")}});
        cluster.store.create("pods", foreign, false).map_err(|refusal| anyhow::anyhow!(refusal.message))?;
        Ok(())
    }

    #[expect(clippy::expect_used, reason = "ids are made here and clusters never go")]
    fn cluster(&mut self, id: ClusterId) -> &mut Cluster {
        self.clusters.get_mut(id).expect("every id stands for a cluster")
    }

    fn store(&mut self, id: ClusterId) -> &mut Store {
        &mut self.cluster(id).store
    }

    /// The store of a cluster, for those who lie about it.
    pub(crate) fn seen_store(&mut self, id: ClusterId) -> &mut Store {
        self.store(id)
    }

    /// How many clusters there are.
    pub(crate) fn cluster_count(&self) -> usize {
        self.clusters.len()
    }

    /// Tells the API servers the time.
    fn tick_stores(&mut self) {
        let seconds = self.wall().as_second();
        if self.clusters.first().is_some_and(|cluster| cluster.store.now_seconds == seconds) {
            return;
        }
        let stamp = self.stamp();
        for cluster in &mut self.clusters {
            cluster.store.now.clone_from(&stamp);
            cluster.store.now_seconds = seconds;
        }
    }

    async fn live(&mut self) -> anyhow::Result<()> {
        let wire = Arc::clone(&self.wire);
        loop {
            for sent in self.wire.take() {
                self.leaves(Box::new(sent));
            }
            let Some(((at, _), _)) = self.dues.first_key_value() else { return Ok(()) };
            let at = *at;
            if at > self.now() {
                let until = self.start + Duration::from_millis(at);
                tokio::select! {
                    biased;
                    () = wire.bell.notified() => tokio::task::yield_now().await,
                    () = tokio::time::sleep_until(until) => {}
                }
                continue;
            }
            let Some((_, due)) = self.dues.pop_first() else { return Ok(()) };
            self.report.steps += 1;
            self.tick_stores();
            if self.handle(due)? {
                return Ok(());
            }
            self.pump();
            // What was told to processes may lead to something that happens before the next event.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Lets one thing happen; whether that was the last.
    fn handle(&mut self, due: Due) -> anyhow::Result<bool> {
        match due {
            Due::Arrive(sent) => self.arrives(sent),
            Due::Answer(answer) => self.answers(answer),
            Due::Deliver(cluster, watch) => self.delivers(cluster, watch),
            Due::Kubelet(cluster, node, pod) => self.kubelet(cluster, &node, &pod),
            Due::Container(cluster, node, pod) => self.container(cluster, &node, &pod),
            Due::Begin(fault) => self.begins(fault),
            Due::End(fault) => self.ends(fault),
            Due::Meddle(fault) => self.meddles(fault),
            Due::Start(service, home) => self.starts(service, home)?,
            Due::Stop(process) => {
                if let Some(process) = self.processes.get_mut(process) {
                    process.stop();
                    // What it still does in the time that is left counts.
                }
            }
            Due::Wake(process) => self.wakes(process),
            Due::Scales => self.scales(),
            Due::Owners => {
                self.owners_look();
                self.after(500, Due::Owners);
            }
            Due::Collect => {
                self.collect();
                let ended = self.processes.iter().enumerate().filter(|(_, process)| process.has_ended());
                for id in ended.map(|(id, _)| id).collect::<Vec<_>>() {
                    self.kills(id);
                }
                self.after(2_000, Due::Collect);
            }
            Due::Nodes => {
                self.watch_nodes();
                self.after(5_000, Due::Nodes);
            }
            Due::Heal => self.heal(),
            Due::Look => return Ok(self.look()),
        }
        Ok(!self.recorder.violations.is_empty() && !self.options.trace)
    }

    fn starts(&mut self, service: Service, home: ClusterId) -> anyhow::Result<()> {
        let id = self.processes.len();
        let skew = if self.skewed { self.rng.i64(-20..=20) } else { 0 };
        let launch = Launch { id, service, home, skew };
        let process = Process::start(&launch, &self.wire, (self.start, self.wall))?;
        self.processes.push(process);
        self.tell(|| format!("c{home} {} starts as p{id}", service.name()));
        Ok(())
    }

    fn end(&mut self) -> Report {
        self.report.violations = std::mem::take(&mut self.recorder.violations);
        self.report.starts = self.recorder.starts;
        self.report.lasted = self.now();
        if !self.options.once {
            self.processes.iter_mut().for_each(Process::kill);
        }
        std::mem::take(&mut self.report)
    }
}

impl Cluster {
    fn new(name: &str) -> Self {
        Self {
            store: Store::new(name),
            down: false,
            frozen: false,
            waiting: VecDeque::new(),
            errors: false,
            slow: 0,
            lag: 0,
            watches: BTreeMap::new(),
            pumped: 0,
            kubelets: BTreeMap::new(),
            backup: None,
            key: 1,
            stranded: BTreeMap::new(),
        }
    }

    /// Whether those who act on the store directly can.
    fn serves(&self) -> bool {
        !self.down && !self.frozen
    }

    fn pods(&self) -> Vec<Rc<Object>> {
        self.store.all("pods").cloned().collect()
    }
}
