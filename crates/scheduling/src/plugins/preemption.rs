mod rank;
#[cfg(test)]
mod tests;
mod victims;

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::config::PreemptionArgs;
use crate::framework::{
    Candidate, Code, Cycle, Diagnosis, Event, Plugin, PostFilter, Rejection, Trials, histogram,
};
use crate::pod::PodInfo;
use crate::snapshot::Node;
pub use rank::Cost;
use victims::Failure;

/// Makes room for a pod that fits nowhere at the cost of pods with lower priority.
///
/// It only says where, and who would have to go; the pod waits for that node until they have gone. Room that was
/// promised is nobody's to take, and pods that are only promised ask nobody to go.
#[derive(Debug, Clone, Default)]
pub struct DefaultPreemption {
    pub args: PreemptionArgs,
}

impl PreemptionArgs {
    /// How many ways to make room are found before the best of them is taken, where `nodes` come into question.
    fn wanted(&self, nodes: usize) -> usize {
        let count = i64::try_from(nodes).unwrap_or(i64::MAX);
        let share = count.saturating_mul(self.min_candidate_percentage) / 100;
        usize::try_from(share.max(self.min_candidates).min(count)).unwrap_or_default()
    }
}

/// What a search for room came to.
#[derive(Default)]
struct Found {
    candidates: Vec<Candidate>,
    failures: Vec<Failure>,
}

impl Found {
    /// Enough ways were found, and one of them breaks no budget.
    fn suffices(&self, wanted: usize) -> bool {
        self.candidates.len() >= wanted && self.candidates.iter().any(|candidate| candidate.violations == 0)
    }
}

impl DefaultPreemption {
    fn search<'a>(&self, cycle: Cycle<'a>, nodes: &[&Node], trials: &mut Trials<'_, 'a>) -> Found {
        let mut found = Found::default();
        let wanted = self.args.wanted(nodes.len());
        // Each pod begins elsewhere, so that the first nodes are not always the ones that pay.
        let (begin, rest) = nodes.split_at(start(cycle.pod, nodes.len()));
        for node in rest.iter().chain(begin) {
            match victims::select(cycle, node, trials) {
                Ok(candidate) => found.candidates.push(candidate),
                Err(failure) => found.failures.push(failure),
            }
            if found.suffices(wanted) {
                break;
            }
        }
        found
    }
}

/// A number below `count`, or 0, that is the pod's own.
fn start(pod: &PodInfo, count: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    pod.uid.hash(&mut hasher);
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    usize::try_from(hasher.finish().checked_rem(count).unwrap_or_default()).unwrap_or_default()
}

/// May others be asked to make way for the pod now? If not, why.
fn eligible(cycle: Cycle<'_>, diagnosis: &Diagnosis) -> Result<(), &'static str> {
    let pod = cycle.pod;
    if pod.spec.never_preempts {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let Some(nominated) = &pod.nominated else { return Ok(()) };
    let refused = diagnosis.refused.iter().find(|refused| refused.node == *nominated);
    // On a node that no victim can free for the pod there is nothing to wait for.
    if refused.is_none_or(|refused| refused.refusal.code == Code::UnschedulableAndUnresolvable) {
        return Ok(());
    }
    let leaving = |other: &PodInfo| other.preempted && other.spec.priority < pod.spec.priority;
    let node = cycle.snapshot.node(nominated);
    if node.is_some_and(|node| node.pods().any(|other| leaving(other))) {
        return Err("not eligible due to a terminating pod on the nominated node.");
    }
    Ok(())
}

/// Why no way was found.
fn nowhere(node_count: usize, failures: &[Failure]) -> PostFilter {
    let broken: Vec<_> = failures.iter().filter_map(Failure::slip).collect();
    match broken.as_slice() {
        [] => {}
        [only] => return PostFilter::Wait(format!("preemption: {only}")),
        several => return PostFilter::Wait(format!("preemption: [{}]", several.join(", "))),
    }
    let reasons = failures.iter().map(Failure::reasons);
    let absent = Some("Preemption is not helpful for scheduling".to_owned());
    let histogram = histogram(node_count, reasons, absent);
    PostFilter::Nowhere(format!("preemption: 0/{node_count} nodes are available: {histogram}."))
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        "DefaultPreemption"
    }

    /// Held back while others are being asked to go for it.
    fn pre_enqueue(&self, cycle: Cycle<'_>) -> Result<(), Rejection> {
        if cycle.snapshot.nominator().is_making_room(&cycle.pod.uid) {
            let reason = "waiting for the preemption for this pod to be finished";
            return Err(Rejection::unresolvable(reason));
        }
        Ok(())
    }

    fn may_open(&self, event: &Event) -> bool {
        matches!(event, Event::PodGone(_))
    }

    fn prefers(&self, _cycle: Cycle<'_>) -> bool {
        false
    }

    fn post_filter<'a>(
        &self,
        cycle: Cycle<'a>,
        diagnosis: &Diagnosis,
        trials: &mut Trials<'_, 'a>,
    ) -> PostFilter {
        if cycle.pod.promise {
            return PostFilter::Nothing;
        }
        if let Err(reason) = eligible(cycle, diagnosis) {
            return PostFilter::Wait(format!("preemption: {reason}"));
        }
        let helped = diagnosis.refused.iter().filter(|node| node.refusal.code == Code::Unschedulable);
        let nodes: Vec<_> = helped.filter_map(|refused| cycle.snapshot.node(&refused.node)).collect();
        let Found { mut candidates, failures } = self.search(cycle, &nodes, trials);
        candidates.sort_by_cached_key(Candidate::rank);
        let Some(best) = candidates.first() else { return nowhere(diagnosis.node_count, &failures) };
        let message = format!(
            "preemption: found a potential placement for pod on node {}, preempting {} victims",
            best.node,
            best.victims.len()
        );
        PostFilter::Room { candidates, message }
    }

    /// It rejects nobody itself.
    fn hint(&self, _event: &Event, _cycle: Cycle<'_>) -> bool {
        false
    }
}
