use std::borrow::Cow;

use crate::framework::{Code, Cycle, Event, MAX_SCORE, NodeScore, Plugin, PreFilter, Rejection};
use crate::pod::PodInfo;
use crate::resources::Resources;
use crate::snapshot::Node;

/// Keeps a node's pods within what it can give, and prefers nodes with more room left.
pub struct NodeResourcesFit;

/// Compares one request with what a node has. `name` makes the reason only where it is needed.
struct Shortage<'a> {
    name: &'a str,
    request: i64,
    allocatable: i64,
    requested: i64,
}

impl Shortage<'_> {
    fn exists(&self) -> bool {
        self.request > 0 && self.request > self.allocatable - self.requested
    }

    fn reason(&self) -> Cow<'static, str> {
        match self.name {
            "cpu" => Cow::Borrowed("Insufficient cpu"),
            "memory" => Cow::Borrowed("Insufficient memory"),
            other => Cow::Owned(format!("Insufficient {other}")),
        }
    }
}

fn shortages<'a>(
    request: &'a Resources,
    room: &'a Resources,
    taken: &'a Resources,
) -> impl Iterator<Item = Shortage<'a>> {
    let native = ["cpu", "memory", "ephemeral-storage"].into_iter();
    let scalars = request.scalars.keys().map(|name| &**name);
    native
        .chain(scalars)
        .map(|name| Shortage {
            name,
            request: request.amount(name),
            allocatable: room.amount(name),
            requested: taken.amount(name),
        })
        .filter(Shortage::exists)
}

fn fits(request: &Resources, node: &Node) -> Result<(), Rejection> {
    let mut rejection = Rejection { code: Code::Unschedulable, reasons: Vec::new() };
    if node.pod_count() + 1 > node.info.max_pods {
        rejection.reasons.push(Cow::Borrowed("Too many pods"));
    }
    if !request.is_empty() {
        for shortage in shortages(request, &node.info.room, &node.requested) {
            rejection.reasons.push(shortage.reason());
            if shortage.request > shortage.allocatable {
                rejection.code = Code::UnschedulableAndUnresolvable;
            }
        }
    }
    if rejection.reasons.is_empty() { Ok(()) } else { Err(rejection) }
}

/// Least allocated: the mean share of CPU and memory that would stay free.
struct LeastAllocated {
    request: (i64, i64),
}

impl NodeScore for LeastAllocated {
    fn score(&self, node: &Node) -> i64 {
        let pairs = [
            (node.info.room.milli_cpu, node.non_zero.0 + self.request.0),
            (node.info.room.memory, node.non_zero.1 + self.request.1),
        ];
        let (mut sum, mut count) = (0, 0);
        for (allocatable, requested) in pairs {
            if allocatable > 0 {
                sum += free_share(allocatable, requested);
                count += 1;
            }
        }
        if count == 0 { 0 } else { sum / count }
    }
}

fn free_share(allocatable: i64, requested: i64) -> i64 {
    if requested > allocatable {
        return 0;
    }
    let share = i128::from(allocatable - requested) * i128::from(MAX_SCORE) / i128::from(allocatable);
    i64::try_from(share).unwrap_or(MAX_SCORE)
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let request = cycle.pod.spec.requests();
        PreFilter::Filter(Box::new(move |node: &Node| fits(request, node)))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        Some(Box::new(LeastAllocated { request: cycle.pod.spec.requests.scoring }))
    }

    fn hint(&self, event: &Event<'_>, pod: &PodInfo) -> bool {
        match event {
            Event::PodGone(_) => true,
            Event::Node { node, change } => {
                let nothing = Resources::default();
                (change.added || change.allocatable)
                    && shortages(pod.spec.requests(), &node.room, &nothing).next().is_none()
            }
            Event::NodeGone | Event::PodPlaced(_) | Event::Namespace => false,
        }
    }
}

/// Prefers nodes whose CPU and memory the pod brings closer to equal use.
pub struct NodeResourcesBalancedAllocation;

struct Balance {
    milli_cpu: i64,
    memory: i64,
}

impl NodeScore for Balance {
    fn score(&self, node: &Node) -> i64 {
        let (room, taken) = (&node.info.room, &node.requested);
        let with = balance(&[
            (taken.milli_cpu + self.milli_cpu, room.milli_cpu),
            (taken.memory + self.memory, room.memory),
        ]);
        let without = balance(&[(taken.milli_cpu, room.milli_cpu), (taken.memory, room.memory)]);
        MAX_SCORE / 2 + (MAX_SCORE / 2 + with - without) / 2
    }
}

/// How equally resources are used, given pairs of requested and allocatable: 100 if their shares are the same.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the formula is defined in floating point, cut off to an integer in 0..=100"
)]
fn balance(pairs: &[(i64, i64)]) -> i64 {
    let shares: Vec<f64> = pairs
        .iter()
        .filter(|(_, allocatable)| *allocatable != 0)
        .map(|(requested, allocatable)| (*requested as f64 / *allocatable as f64).min(1.0))
        .collect();
    let deviation = match shares.as_slice() {
        [first, second] => ((first - second) / 2.0).abs(),
        _ => 0.0,
    };
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        let request = cycle.pod.spec.requests();
        if request.milli_cpu == 0 && request.memory == 0 {
            return None;
        }
        Some(Box::new(Balance { milli_cpu: request.milli_cpu, memory: request.memory }))
    }

    /// It never rejects.
    fn hint(&self, _event: &Event<'_>, _pod: &PodInfo) -> bool {
        false
    }
}
