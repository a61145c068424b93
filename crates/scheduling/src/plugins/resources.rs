use std::borrow::Cow;

use crate::config::{BalanceArgs, FitArgs, ScoringStrategy, ShapePoint};
use crate::framework::{
    Code, Cycle, Event, MAX_SCORE, NodeFilter, NodeScore, Plugin, PreFilter, Rejection, Scale, Scope,
};
use crate::node::NodeInfo;
use crate::resources::{Kind, Resources, is_extended, is_scalar};
use crate::snapshot::Node;

/// Keeps a node's pods within what it can give, and prefers nodes with more or with less room left.
#[derive(Default)]
pub struct NodeResourcesFit {
    args: FitArgs,
}

impl NodeResourcesFit {
    pub fn new(args: FitArgs) -> Self {
        Self { args }
    }

    /// True for an extended resource that somebody else looks after.
    fn ignores(&self, name: &str) -> bool {
        let FitArgs { ignored_resources, ignored_groups, .. } = &self.args;
        if ignored_resources.is_empty() && ignored_groups.is_empty() {
            return false;
        }
        let group = name.split_once('/').map_or(name, |(group, _)| group);
        is_extended(name) && (ignored_resources.contains(name) || ignored_groups.contains(group))
    }

    /// What a pod asks for that this plugin looks after.
    fn asks<'a>(&self, request: &'a Resources) -> Vec<(Kind<'a>, i64)> {
        request.asks().filter(|(kind, _)| !self.ignores(kind.name())).collect()
    }
}

/// The room that a pod needs.
struct Fit<'a> {
    asks: Vec<(Kind<'a>, i64)>,
}

impl NodeFilter for Fit<'_> {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        let mut rejection = Rejection { code: Code::Unschedulable, reasons: Vec::new() };
        if node.pod_count() + 1 > node.info.max_pods {
            rejection.reasons.push(Cow::Borrowed("Too many pods"));
        }
        for (kind, request) in shortages(&self.asks, &node.info.room, &node.requested) {
            rejection.reasons.push(match kind {
                Kind::Cpu => Cow::Borrowed("Insufficient cpu"),
                Kind::Memory => Cow::Borrowed("Insufficient memory"),
                other => Cow::Owned(format!("Insufficient {}", other.name())),
            });
            if request > node.info.room.of(kind) {
                rejection.code = Code::UnschedulableAndUnresolvable;
            }
        }
        if rejection.reasons.is_empty() { Ok(()) } else { Err(rejection) }
    }

    fn admits(&self, node: &Node) -> bool {
        let mut shortages = shortages(&self.asks, &node.info.room, &node.requested);
        node.pod_count() < node.info.max_pods && shortages.next().is_none()
    }
}

/// What is asked for and there is not enough of.
fn shortages<'a>(
    asks: &'a [(Kind<'a>, i64)],
    room: &'a Resources,
    taken: &'a Resources,
) -> impl Iterator<Item = (Kind<'a>, i64)> {
    asks.iter().copied().filter(|(kind, request)| *request > room.of(*kind) - taken.of(*kind))
}

/// One resource of a scoring strategy, and what the pod asks of it.
struct Ask<'a> {
    kind: Kind<'a>,
    weight: i64,
    request: i64,
}

impl Ask<'_> {
    /// What the node has of the resource and what is asked of it with the pod. None if the node has none.
    fn on(&self, node: &Node) -> Option<(i64, i64)> {
        let taken = match self.kind {
            Kind::Cpu => node.non_zero.0,
            Kind::Memory => node.non_zero.1,
            other => node.requested.of(other),
        };
        let allocatable = node.info.room.of(self.kind);
        if allocatable == 0 { None } else { Some((allocatable, taken + self.request)) }
    }
}

/// Resources that are counted in pieces do not count for pods that ask for none.
fn counts(kind: Kind<'_>, request: i64) -> bool {
    request != 0 || !is_scalar(kind.name())
}

struct Allocation<'a> {
    strategy: &'a ScoringStrategy,
    asks: Vec<Ask<'a>>,
}

impl NodeScore for Allocation<'_> {
    fn score(&self, node: &Node) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for ask in &self.asks {
            let Some((allocatable, requested)) = ask.on(node) else { continue };
            let score = match self.strategy {
                ScoringStrategy::LeastAllocated => share(allocatable - requested, allocatable),
                ScoringStrategy::MostAllocated => share(requested.min(allocatable), allocatable),
                ScoringStrategy::RequestedToCapacityRatio(shape) => {
                    ratio_score(shape, requested, allocatable)
                }
            };
            let by_ratio = matches!(self.strategy, ScoringStrategy::RequestedToCapacityRatio(_));
            if score > 0 || !by_ratio {
                sum += score * ask.weight;
                weights += ask.weight;
            }
        }
        match (weights, self.strategy) {
            (0, _) => 0,
            (weights, ScoringStrategy::RequestedToCapacityRatio(_)) => rounded(sum, weights),
            (weights, _) => sum / weights,
        }
    }

    fn scale(&self) -> Scale {
        Scale::Identity
    }
}

/// `part` in hundredths of `whole`, cut off; 0 if negative.
fn share(part: i64, whole: i64) -> i64 {
    let part = part.max(0);
    if let Some(hundredfold) = part.checked_mul(MAX_SCORE) {
        return hundredfold / whole;
    }
    let share = i128::from(part) * i128::from(MAX_SCORE) / i128::from(whole);
    i64::try_from(share).unwrap_or(MAX_SCORE)
}

/// The mean, halves rounded up; neither is negative.
pub(super) fn rounded(sum: i64, weights: i64) -> i64 {
    (2 * sum + weights) / (2 * weights)
}

/// Highest score of a point of a shape.
const MAX_SHAPE_SCORE: i64 = 10;

/// The score of a utilisation by a broken line, `0..=MAX_SCORE`.
fn ratio_score(shape: &[ShapePoint], requested: i64, allocatable: i64) -> i64 {
    let utilization = if requested > allocatable { 100 } else { share(requested, allocatable) };
    height_at(shape, utilization)
}

/// The score that a broken line gives to a utilisation in percent.
pub(super) fn height_at(shape: &[ShapePoint], utilization: i64) -> i64 {
    let height = |point: &ShapePoint| point.score * (MAX_SCORE / MAX_SHAPE_SCORE);
    let next = shape.iter().position(|point| utilization <= point.utilization);
    match next.map(|next| (next.checked_sub(1).and_then(|last| shape.get(last)), shape.get(next))) {
        Some((Some(last), Some(next))) => {
            let rise = (height(next) - height(last)) * (utilization - last.utilization);
            height(last) + rise / (next.utilization - last.utilization)
        }
        Some((None, Some(first))) => height(first),
        Some((_, None)) | None => shape.last().map(height).unwrap_or_default(),
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn scope(&self) -> Scope {
        Scope::Node
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        PreFilter::Filter(Box::new(Fit { asks: self.asks(cycle.pod.spec.requests()) }))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        let requests = &cycle.pod.spec.requests;
        let asks = self.args.resources.iter().map(|resource| {
            let kind = Kind::of(&resource.name);
            Ask { kind, weight: resource.weight, request: requests.to_score(kind) }
        });
        let asks = asks.filter(|ask| counts(ask.kind, ask.request)).collect();
        Some(Box::new(Allocation { strategy: &self.args.strategy, asks }))
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        let request = cycle.pod.spec.requests();
        match event {
            Event::PodGone(_) => true,
            Event::PodChanged { old, pod, change } => {
                change.scaled_down && grows(request, pod.spec.requests(), old.spec.requests())
            }
            Event::Itself { change, .. } => change.scaled_down,
            Event::Node { old, node, change } if change.added || change.allocatable => {
                let fits = node.max_pods >= 1 && request.asks().all(|(kind, ask)| ask <= node.room.of(kind));
                let grown =
                    |old: &NodeInfo| node.max_pods > old.max_pods || grows(request, &old.room, &node.room);
                fits && old.as_ref().is_none_or(|old| grown(old))
            }
            Event::Node { .. }
            | Event::NodeGone(_)
            | Event::PodPlaced(_)
            | Event::Namespace
            | Event::Storage(_)
            | Event::Claims(_)
            | Event::Devices { new: None, .. } => false,
            // The class may stand for what the node lacks.
            Event::Devices { old, new: Some(new) } => old.as_ref() != Some(new) && new.concerns(cycle.pod),
        }
    }
}

/// True if there is more of a resource that is asked for.
fn grows(request: &Resources, old: &Resources, new: &Resources) -> bool {
    request.asks().any(|(kind, _)| new.of(kind) > old.of(kind))
}

/// Prefers nodes whose resources the pod brings closer to equal use.
#[derive(Default)]
pub struct NodeResourcesBalancedAllocation {
    args: BalanceArgs,
}

impl NodeResourcesBalancedAllocation {
    pub fn new(args: BalanceArgs) -> Self {
        Self { args }
    }
}

struct Balance<'a> {
    /// Resources and what the pod asks of them.
    asks: Vec<(Kind<'a>, i64)>,
}

impl NodeScore for Balance<'_> {
    fn score(&self, node: &Node) -> i64 {
        let (room, taken) = (&node.info.room, &node.requested);
        let counted = self
            .asks
            .iter()
            .map(|(kind, ask)| (taken.of(*kind), *ask, room.of(*kind)))
            .filter(|(.., allocatable)| *allocatable != 0);
        let with = balance(counted.clone().map(|(taken, ask, room)| (taken + ask, room)));
        let without = balance(counted.map(|(taken, _, room)| (taken, room)));
        MAX_SCORE / 2 + (MAX_SCORE / 2 + with - without) / 2
    }

    fn scale(&self) -> Scale {
        Scale::Identity
    }
}

/// How equally resources are used, given pairs of requested and allocatable: 100 if their shares are the same.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the formula is defined in floating point, cut off to an integer in 0..=100"
)]
fn balance(pairs: impl Iterator<Item = (i64, i64)> + Clone) -> i64 {
    let shares = pairs.map(|(requested, allocatable)| (requested as f64 / allocatable as f64).min(1.0));
    let mut first = shares.clone();
    let deviation = match (first.next(), first.next(), first.next()) {
        (None, ..) | (Some(_), None, _) => 0.0,
        (Some(first), Some(second), None) => ((first - second) / 2.0).abs(),
        (Some(_), Some(_), Some(_)) => {
            let count = shares.clone().count() as f64;
            let mean = shares.clone().fold(0.0, |sum, share| sum + share) / count;
            let squares = shares.fold(0.0, |sum, share| sum + (share - mean) * (share - mean));
            (squares / count).sqrt()
        }
    };
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn scope(&self) -> Scope {
        Scope::Node
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        let request = cycle.pod.spec.requests();
        let asks = self.args.resources.iter().map(|name| (Kind::of(name), request.amount(name)));
        let asks: Vec<_> = asks.filter(|(kind, ask)| counts(*kind, *ask)).collect();
        if asks.iter().all(|(_, ask)| *ask == 0) { None } else { Some(Box::new(Balance { asks })) }
    }

    /// It never rejects.
    fn hint(&self, _event: &Event, _cycle: Cycle<'_>) -> bool {
        false
    }
}
