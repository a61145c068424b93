//! What plugins can be told, with upstream's defaults.

use std::collections::BTreeSet;

use thin_vec::ThinVec;

use crate::pod::{Policy, SpreadConstraint, Weighted};
use crate::selector::NodeTerm;
use crate::text::shared;

/// Arguments of every plugin that has some.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginArgs {
    pub fit: FitArgs,
    pub balance: BalanceArgs,
    pub node_affinity: NodeAffinityArgs,
    pub spread: SpreadArgs,
    pub company: CompanyArgs,
    pub preemption: PreemptionArgs,
    pub volumes: VolumeArgs,
}

/// A resource and how much it weighs, `1..=100`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceWeight {
    pub name: String,
    pub weight: i64,
}

/// CPU and memory, equally.
fn cpu_and_memory() -> Vec<ResourceWeight> {
    ["cpu", "memory"].map(|name| ResourceWeight { name: name.to_owned(), weight: 1 }).into()
}

/// A point of a broken line: a utilisation in percent and the score for it, `0..=10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapePoint {
    pub utilization: i64,
    pub score: i64,
}

/// How NodeResourcesFit scores a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ScoringStrategy {
    /// The more stays free, the better.
    #[default]
    LeastAllocated,
    /// The less stays free, the better.
    MostAllocated,
    /// By a broken line over the utilisation; points in rising order.
    RequestedToCapacityRatio(Vec<ShapePoint>),
}

/// `NodeResourcesFitArgs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FitArgs {
    /// Extended resources that the filter does not look at, by name and by what stands before the slash.
    pub ignored_resources: BTreeSet<String>,
    pub ignored_groups: BTreeSet<String>,
    pub strategy: ScoringStrategy,
    pub resources: Vec<ResourceWeight>,
}

impl Default for FitArgs {
    fn default() -> Self {
        Self {
            ignored_resources: BTreeSet::new(),
            ignored_groups: BTreeSet::new(),
            strategy: ScoringStrategy::default(),
            resources: cpu_and_memory(),
        }
    }
}

/// `NodeResourcesBalancedAllocationArgs`: the resources whose use is balanced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalanceArgs {
    pub resources: Vec<String>,
}

impl Default for BalanceArgs {
    fn default() -> Self {
        Self { resources: ["cpu", "memory"].map(str::to_owned).into() }
    }
}

/// `NodeAffinityArgs`: what every pod of the profile wants besides what it says itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeAffinityArgs {
    /// One of the terms must match.
    pub required: Option<ThinVec<NodeTerm>>,
    pub preferred: ThinVec<Weighted<NodeTerm>>,
}

/// `PodTopologySpreadArgs`: the constraints of pods that have none of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpreadArgs {
    /// The built-in constraints, for which a node without a zone counts too.
    pub system: bool,
    /// Without selectors: these come from what the pod belongs to.
    pub constraints: Vec<SpreadConstraint>,
}

impl Default for SpreadArgs {
    /// `defaultingType: System`.
    fn default() -> Self {
        let prefer = |topology_key: &str, max_skew| SpreadConstraint {
            max_skew,
            topology_key: shared(topology_key),
            required: false,
            selector: None,
            min_domains: 1,
            affinity_policy: Policy::Honor,
            taints_policy: Policy::Ignore,
        };
        Self {
            system: true,
            constraints: vec![prefer("kubernetes.io/hostname", 3), prefer("topology.kubernetes.io/zone", 5)],
        }
    }
}

/// `InterPodAffinityArgs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompanyArgs {
    /// What a required affinity of a pod that runs already weighs for a pod that it wants, `0..=100`.
    pub hard_weight: i64,
    /// Preferences of pods that run already do not count for a pod without preferences of its own.
    pub ignore_preferred_of_existing: bool,
}

impl Default for CompanyArgs {
    fn default() -> Self {
        Self { hard_weight: 1, ignore_preferred_of_existing: false }
    }
}

/// `DefaultPreemptionArgs`: how many nodes are looked at before one is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptionArgs {
    pub min_candidate_percentage: i64,
    pub min_candidates: i64,
}

impl Default for PreemptionArgs {
    fn default() -> Self {
        Self { min_candidate_percentage: 10, min_candidates: 100 }
    }
}

/// `VolumeBindingArgs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeArgs {
    pub bind_timeout_seconds: i64,
    /// Score by the utilisation of the storage that a pod's claims would take.
    pub shape: Vec<ShapePoint>,
}

impl Default for VolumeArgs {
    fn default() -> Self {
        let shape = vec![ShapePoint { utilization: 0, score: 10 }, ShapePoint { utilization: 100, score: 0 }];
        Self { bind_timeout_seconds: 600, shape }
    }
}
