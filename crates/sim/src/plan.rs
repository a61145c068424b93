//! What happens in a world: its clusters, its workloads and its faults, all from one seed.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A process dies before one of its next writes, or after that write was applied.
    Crash,
    /// Another replica leads while the former one still acts.
    LeaderOverlap,
    /// A leader stands still, another takes over, and the first wakes up.
    PausedLeader,
    /// Source and target are cut from one another.
    Partition,
    /// Requests arrive, answers do not.
    AnswersLost,
    /// A single answer is lost after the write was applied.
    AnswerLost,
    /// An API server is down.
    ApiDown,
    /// An API server takes requests and applies them later.
    ApiFrozen,
    /// An API server answers with errors.
    ApiErrors,
    /// A cluster is slow.
    Slow,
    /// Watches are cut.
    WatchCut,
    /// The history is forgotten: watches are cut and must list again.
    Compaction,
    /// Watches lag behind.
    StaleWatch,
    /// A cluster is full.
    Full,
    /// A node dies and comes back.
    NodeCrash,
    /// A kubelet loses its API server.
    NodeCut,
    /// A node is taken away.
    NodeRemoved,
    /// Kubelets refuse what they are given.
    Refusals,
    /// Somebody deletes delegates in a target.
    Eviction,
    /// Users delete pods.
    UserDeletes,
    /// Users delete pods without grace.
    ForceDeletes,
    /// Owners are scaled.
    Scale,
    /// A target is added late.
    TargetAdded,
    /// A target's credentials change.
    TargetRekeyed,
    /// A target is removed.
    TargetRemoved,
    /// A target's etcd is restored from a backup.
    EtcdRestored,
    /// Others write to the same objects.
    Meddling,
    /// A namespace is missing in a target.
    NamespaceMissing,
    /// A quota is exhausted.
    Quota,
    /// Processes have wrong clocks.
    ClockSkew,
    /// A source answers lists of pods as if there were none.
    EmptyList,
    /// Users replace pods by others of the same name while bindings are under way, which arrive late.
    Replaced,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 32] = [
        Kind::Crash,
        Kind::LeaderOverlap,
        Kind::PausedLeader,
        Kind::Partition,
        Kind::AnswersLost,
        Kind::AnswerLost,
        Kind::ApiDown,
        Kind::ApiFrozen,
        Kind::ApiErrors,
        Kind::Slow,
        Kind::WatchCut,
        Kind::Compaction,
        Kind::StaleWatch,
        Kind::Full,
        Kind::NodeCrash,
        Kind::NodeCut,
        Kind::NodeRemoved,
        Kind::Refusals,
        Kind::Eviction,
        Kind::UserDeletes,
        Kind::ForceDeletes,
        Kind::Scale,
        Kind::TargetAdded,
        Kind::TargetRekeyed,
        Kind::TargetRemoved,
        Kind::EtcdRestored,
        Kind::Meddling,
        Kind::NamespaceMissing,
        Kind::Quota,
        Kind::ClockSkew,
        Kind::EmptyList,
        Kind::Replaced,
    ];
    /// Those that any fault of a world may be; the others come besides, so that a seed goes on meaning what it meant.
    const COMMON: usize = 31;
}

/// One fault. What it hits follows from `pick`, so that it hits the same when other faults are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    /// Milliseconds since the beginning.
    pub at: u64,
    /// Milliseconds.
    pub lasts: u64,
    pub pick: u64,
}

/// Who owns pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    ReplicaSet,
    StatefulSet,
    Job,
    /// Nobody: what ends is not replaced.
    Nobody,
}

/// Equal pods of one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    pub name: String,
    /// Number of the source.
    pub source: usize,
    pub owner: Owner,
    pub pods: u64,
    /// Thousandths of a CPU.
    pub cpu: u64,
    /// `Always`, `OnFailure` or `Never`.
    pub policy: &'static str,
    /// How many targets are asked; empty for the default.
    pub ask: &'static str,
    /// When it is created, in milliseconds.
    pub at: u64,
    /// Seconds for which a pod that is to end runs.
    pub seconds: u64,
    /// Grace period in seconds.
    pub grace: u64,
    /// May make others go.
    pub high: bool,
    /// Nobody reserves for it.
    pub direct: bool,
    /// So many of its pods are placed at once or none, and whether all in one target.
    pub gang: Option<(u64, bool)>,
    /// Seconds after which a delegate without node is taken back, if it says so.
    pub deadline: Option<u64>,
}

/// A world before it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub pace: Pace,
    /// One or two.
    pub sources: usize,
    /// At least three.
    pub targets: usize,
    /// Nodes in each target.
    pub nodes: usize,
    /// Thousandths of a CPU of each node.
    pub cpu: u64,
    /// How many nodes each target may add.
    pub autoscale: u64,
    pub workloads: Vec<Workload>,
    pub faults: Vec<Fault>,
}

/// How long things go on and how patient Kubernetes is, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// From then on nothing goes wrong any more.
    pub healed: u64,
    /// When the last workload is created at the latest.
    pub created: u64,
    /// The longest fault.
    pub fault: u64,
    /// Seconds for which a pod that is to end runs at most.
    pub seconds: u64,
    /// After so long a silent node counts as unreachable.
    pub silent: u64,
    /// How long pods stay on an unreachable node.
    pub tolerated: u64,
    /// How long a pod's node must have been missing before the collector ends the pod.
    pub stranded: u64,
    /// Between two looks at whether the world is settled.
    pub look: u64,
}

/// A world that has time.
pub const LONG: Pace = Pace {
    healed: 50_000,
    created: 20_000,
    fault: 30_000,
    seconds: 25,
    silent: 20_000,
    tolerated: 15_000,
    stranded: 10_000,
    look: 10_000,
};

/// A world in a hurry, of which there can be many.
pub const SHORT: Pace = Pace {
    healed: 18_000,
    created: 7_000,
    fault: 12_000,
    seconds: 9,
    silent: 4_000,
    tolerated: 3_000,
    stranded: 3_000,
    look: 2_000,
};

impl Plan {
    /// The long world of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self::at(seed, LONG)
    }

    /// The short world of a seed; nothing like the long one.
    #[must_use]
    pub fn short(seed: u64) -> Self {
        Self::at(seed, SHORT)
    }

    fn at(seed: u64, pace: Pace) -> Self {
        let mut rng = Rng::with_seed(seed);
        let sources = if rng.u64(..8) == 0 { 2 } else { 1 };
        let nodes = rng.usize(1..=2);
        let mut workloads = workloads(&mut rng, sources, pace);
        let asked: u64 = workloads.iter().map(|workload| workload.pods * workload.cpu).sum();
        let slots = u64::try_from(3 * nodes).unwrap_or(3);
        // Between scarce and plenty.
        let cpu = (asked * rng.u64(70..=300) / 100 / slots).max(500);
        let count = rng.usize(5..=8);
        let mut faults: Vec<Fault> = (0..count).map(|_| fault(&mut rng, pace)).collect();
        faults.extend(replaced(seed, pace));
        let autoscale = costs(seed, &mut workloads);
        Self { seed, pace, sources, targets: 3, nodes, cpu, autoscale, workloads, faults }
    }

    /// How many pods are asked for.
    #[must_use]
    pub fn pods(&self) -> u64 {
        self.workloads.iter().map(|workload| workload.pods).sum()
    }
}

fn fault(rng: &mut Rng, pace: Pace) -> Fault {
    let kind = *rng.choice(Kind::ALL.iter().take(Kind::COMMON)).unwrap_or(&Kind::Crash);
    let at = rng.u64(500..pace.healed * 7 / 10);
    let lasts = match rng.u64(..4) {
        0 => rng.u64(100..2_000),
        1 | 2 => rng.u64(2_000..pace.fault / 3),
        _ => rng.u64(pace.fault / 3..pace.fault),
    };
    Fault { kind, at, lasts: lasts.min(pace.healed - at), pick: rng.u64(..) }
}

/// In every second world users replace pods whose bindings are under way, from numbers of its own.
fn replaced(seed: u64, pace: Pace) -> Option<Fault> {
    let mut rng = Rng::with_seed(seed ^ 0x1a7e);
    let at = rng.u64(500..pace.created);
    let fault = Fault { kind: Kind::Replaced, at, lasts: pace.healed - at, pick: rng.u64(..) };
    rng.bool().then_some(fault)
}

/// What workloads may do at the cost of others, from numbers of its own; says how many nodes each target may add.
fn costs(seed: u64, workloads: &mut [Workload]) -> u64 {
    let mut rng = Rng::with_seed(seed ^ 0xc057);
    for workload in workloads {
        workload.high = rng.u64(..4) == 0;
        workload.direct = rng.u64(..10) == 0;
        let member = rng.u64(..6) == 0 && workload.pods > 1 && !workload.direct;
        workload.gang = member.then(|| (rng.u64(2..=workload.pods), rng.bool()));
        workload.deadline = (rng.u64(..3) == 0).then(|| rng.u64(2..10));
    }
    rng.choice(&[0, 0, 1, 2]).copied().unwrap_or_default()
}

fn workloads(rng: &mut Rng, sources: usize, pace: Pace) -> Vec<Workload> {
    let mut all: Vec<Workload> = Vec::new();
    let mut pods = 0;
    while pods < 20 {
        let owner = match rng.u64(..10) {
            0..=2 => Owner::ReplicaSet,
            3..=4 => Owner::StatefulSet,
            5..=6 => Owner::Job,
            _ => Owner::Nobody,
        };
        let count = if owner == Owner::Nobody { rng.u64(1..=3) } else { rng.u64(2..=7) };
        let policy = match owner {
            Owner::ReplicaSet | Owner::StatefulSet => "Always",
            Owner::Job => *rng.choice(&["Never", "OnFailure"]).unwrap_or(&"Never"),
            Owner::Nobody => *rng.choice(&["Always", "Never", "OnFailure"]).unwrap_or(&"Never"),
        };
        all.push(Workload {
            name: format!("w{}", all.len()),
            source: rng.usize(..sources),
            owner,
            pods: count,
            cpu: rng.u64(1..=5) * 100,
            policy,
            ask: rng.choice(&["", "", "", "2", "all"]).copied().unwrap_or_default(),
            at: rng.u64(1_000..pace.created),
            seconds: rng.u64(1..=pace.seconds),
            grace: *rng.choice(&[0, 1, 5, 10]).unwrap_or(&5),
            high: false,
            direct: false,
            gang: None,
            deadline: None,
        });
        pods += count;
    }
    all
}
