use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use crate::framework::{Candidate, Cycle, Refusal, Trial, Trials};
use crate::pod::PodInfo;
use crate::snapshot::Node;

/// Why room cannot be made on a node.
pub(super) enum Failure {
    /// No pod there has a lower priority.
    NoVictims,
    /// What filters say even without the pods of lower priority.
    Refused(Refusal),
    /// The filters, which said no before, find room without anybody having gone.
    Slip(Arc<str>),
}

impl Failure {
    pub(super) fn reasons(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::NoVictims => vec![Cow::Borrowed("No preemption victims found for incoming pod")],
            Self::Refused(refusal) => refusal.reasons.clone(),
            Self::Slip(_) => self.slip().into_iter().map(Cow::Owned).collect(),
        }
    }

    pub(super) fn slip(&self) -> Option<String> {
        match self {
            Self::NoVictims | Self::Refused(_) => None,
            Self::Slip(node) => Some(format!("expected at least one victim pod on node {node:?}")),
        }
    }
}

/// A pod that may have to leave.
#[derive(Clone)]
struct Lower {
    pod: Arc<PodInfo>,
    /// Its place among the pods of the node.
    index: usize,
}

impl Lower {
    /// Smaller is more important: the higher priority, then the one that runs for longer. Those that do not run yet
    /// come last, in their order.
    fn importance(&self) -> (Reverse<i32>, i64, usize) {
        let (started, index) = self.pod.started.map_or((i64::MAX, self.index), |started| (started, 0));
        (Reverse(self.pod.spec.priority), started, index)
    }
}

/// Finds out who has to leave a node for the pod of the cycle, and no more than have to.
///
/// Whether the pod wants one of them near is not considered.
pub(super) fn select<'a>(
    cycle: Cycle<'a>,
    node: &Node,
    trials: &mut Trials<'_, 'a>,
) -> Result<Candidate, Failure> {
    let lower = |pod: &&Arc<PodInfo>| !pod.promise && pod.spec.priority < cycle.pod.spec.priority;
    let lower = node.pods().filter(lower).cloned().enumerate();
    let mut lower: Vec<_> = lower.map(|(index, pod)| Lower { pod, index }).collect();
    if lower.is_empty() {
        return Err(Failure::NoVictims);
    }
    let mut trial = trials.on(node);
    for lower in &lower {
        trial.take_away(&lower.pod.uid);
    }
    trial.judge().map_err(Failure::Refused)?;
    lower.sort_by_key(Lower::importance);
    let broken = cycle.snapshot.budgets().broken_by(lower.iter().map(|lower| &lower.pod));
    let (protected, others): (Vec<_>, Vec<_>) =
        lower.into_iter().zip(broken).partition(|(_, breaks)| *breaks);
    // Whom a budget protects may stay first. Equals stay in this order.
    let mut victims = leaving(protected, &mut trial);
    let violations = victims.len();
    victims.extend(leaving(others, &mut trial));
    if victims.is_empty() {
        return Err(Failure::Slip(Arc::clone(&node.info.name)));
    }
    victims.sort_by_key(Lower::importance);
    let victims = victims.into_iter().map(|victim| victim.pod).collect();
    Ok(Candidate { node: Arc::clone(&node.info.name), victims, violations })
}

/// Lets one after the other back if there is still room, and says who has to go.
fn leaving(pods: Vec<(Lower, bool)>, trial: &mut Trial<'_, '_>) -> Vec<Lower> {
    let leaves = |lower: &Lower| {
        trial.put_back(&lower.pod.uid);
        let leaves = !trial.admits();
        if leaves {
            trial.take_away(&lower.pod.uid);
        }
        leaves
    };
    pods.into_iter().map(|(lower, _)| lower).filter(leaves).collect()
}
