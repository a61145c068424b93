//! What becomes of a pod whose target does not answer, and of what it left there when the target is back.

use crate::mirror::{Cause, failed, unreachable};
use crate::plan::{Action, Observed, Plan, State, state};
use crate::views::Proxy;
use api::failover::Policy;
use api::{Failover, Fence};
use std::time::Duration;

/// Before a look at what keeps a pod that would be replaced by now.
const SOON: Duration = Duration::from_secs(2);
/// How long what a replaced pod left runs on for its replacement to become ready.
pub(crate) const HOLD: Duration = Duration::from_mins(5);

/// What is known of the outage of a pod's target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) policy: Policy,
    /// Since the target was found silent, whoever restarted meanwhile.
    pub(crate) lasts: Duration,
    /// Whether this process has found the same by itself, and not only for a moment.
    pub(crate) is_sure: bool,
    /// Whether another target answers that serves the pod's namespace.
    pub(crate) elsewhere: bool,
    /// Somebody vouches that the target's machines are off.
    pub(crate) is_fenced: bool,
    /// The pod has a Lease, and how that stands.
    pub(crate) lease: Option<LeaseEnd>,
}

/// What is known of the Lease of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// It may run on.
    Runs,
    /// A higher epoch has been written, and the target has stopped the pod by now.
    IsOver,
}

/// The pods that stand in for one that was replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Successor {
    /// There is none.
    #[default]
    Nobody,
    /// One of them is not ready.
    Waits,
    Ready,
}

/// Why a pod is not replaced, or not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is to wait.
    Stays,
    /// Nobody would make another one.
    NoController,
    /// Its grace period is not over.
    Grace,
    /// Nobody has confirmed that it does not run any more.
    NotConfirmed,
    /// The target may not have let its Lease run out.
    LeaseRuns,
    /// No other target answers: rather our own network is down, and there is no place to go.
    NowhereElse,
}

impl Why {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Why::Stays => "Stays",
            Why::NoController => "NoController",
            Why::Grace => "GracePeriod",
            Why::NotConfirmed => "NotConfirmed",
            Why::LeaseRuns => "LeaseRuns",
            Why::NowhereElse => "NowhereElse",
        }
    }

    pub(crate) fn message(self) -> &'static str {
        match self {
            Why::Stays => "The target cluster does not answer; the pod waits for it (failover policy Stay).",
            Why::NoController => {
                "The target cluster does not answer; the pod waits for it, since it has no controller that would \
                 replace it."
            }
            Why::Grace => {
                "The target cluster does not answer; the pod is replaced when the failover grace period is over."
            }
            Why::NotConfirmed => {
                "The target cluster does not answer; the pod is replaced when that cluster confirms that it is gone, \
                 or when the Target is fenced (failover policy MoveOnce)."
            }
            Why::LeaseRuns => {
                "The target cluster does not answer; the pod is replaced when that cluster has stopped it for want of a \
                 renewed Lease (failover policy MoveOnce, fence Lease)."
            }
            Why::NowhereElse => {
                "The target cluster does not answer, and neither does any other that could take the pod; it waits."
            }
        }
    }

    /// Whether somebody may wait in vain.
    fn is_worth_an_event(self, policy: Failover) -> bool {
        match self {
            Why::NoController | Why::NotConfirmed => policy != Failover::Stay,
            Why::Stays | Why::Grace | Why::LeaseRuns | Why::NowhereElse => false,
        }
    }
}

/// What becomes of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Waits(Why, Option<Duration>),
    Ends,
}

/// An outage alone ends nobody: the policy has to say so, and for pods that run once the fence.
fn fate(proxy: &Proxy, outage: Outage) -> Fate {
    let policy = outage.policy;
    if policy.failover == Failover::Stay {
        return Fate::Waits(Why::Stays, None);
    }
    if proxy.controller.is_none() {
        return Fate::Waits(Why::NoController, None);
    }
    if outage.is_fenced {
        return Fate::Ends;
    }
    if policy.failover == Failover::MoveOnce {
        return match outage.lease.filter(|_| policy.fence == Fence::Lease) {
            None => Fate::Waits(Why::NotConfirmed, None),
            Some(LeaseEnd::Runs) => Fate::Waits(Why::LeaseRuns, Some(SOON)),
            Some(LeaseEnd::IsOver) => Fate::Ends,
        };
    }
    let left = policy.grace.saturating_sub(outage.lasts);
    if !left.is_zero() {
        return Fate::Waits(Why::Grace, Some(left.max(SOON)));
    }
    if !outage.is_sure {
        return Fate::Waits(Why::Grace, Some(SOON));
    }
    if outage.elsewhere { Fate::Ends } else { Fate::Waits(Why::NowhereElse, Some(SOON)) }
}

/// Whether a pod was ended here because its target did not answer: it may run there.
pub(crate) fn is_moved(proxy: &Proxy) -> bool {
    state(proxy) == State::EndedByUs && proxy.status.value()["reason"] == Cause::TargetUnreachable.reason()
}

/// A pod that nobody deleted and whose target is silent.
pub(crate) fn alive(seen: &Observed, proxy: &Proxy) -> Plan {
    match state(proxy) {
        State::Finished => Plan::default(),
        // An earlier run did not get to the end.
        State::EndedByUs => Plan::of(leave(seen, proxy)),
        State::Running => match fate(proxy, seen.outage) {
            Fate::Ends => {
                let cause = Cause::TargetUnreachable;
                let mut actions =
                    vec![Action::PatchStatus(failed(proxy, cause, &seen.now)), Action::Tell(cause, true)];
                actions.extend(leave(seen, proxy));
                Plan::of(actions)
            }
            Fate::Waits(why, again) => {
                let mut actions = Vec::new();
                if let Some(patch) = unreachable(proxy, (why.reason(), why.message()), &seen.now) {
                    let is_new = patch["status"]["conditions"].to_string().contains("TargetReachable");
                    actions.push(Action::PatchStatus(patch));
                    if is_new && why.is_worth_an_event(seen.outage.policy.failover) {
                        actions.push(Action::Explain(why));
                    }
                }
                Plan { actions, again }
            }
        },
    }
}

/// The end of a pod that may run on. As long as nobody knows, it stays as a deleted one that holds our finalizer: the
/// record of what is to be removed when the target is back. One whose replacement must have its name cannot stay.
fn leave(seen: &Observed, proxy: &Proxy) -> Vec<Action> {
    let goes = seen.outage.is_fenced || proxy.is_named;
    let release = (goes && proxy.is_held()).then_some(Action::Release);
    release.into_iter().chain([Action::DeleteProxy]).collect()
}

/// A pod that is being deleted and whose target is silent: it is held until somebody knows what became of it, or
/// until its policy says not to wait.
pub(crate) fn deleted(seen: &Observed, proxy: &Proxy, grace: i64) -> Plan {
    let ends = fate(proxy, seen.outage) == Fate::Ends;
    let fenced = seen.outage.is_fenced;
    let mut actions = Vec::new();
    if state(proxy) == State::Running && (ends || fenced) {
        let cause = if ends { Cause::TargetUnreachable } else { Cause::Deleted };
        actions.push(Action::PatchStatus(failed(proxy, cause, &seen.now)));
        actions.push(Action::Tell(cause, true));
    }
    let is_given = fenced || proxy.is_named && (ends || is_moved(proxy));
    if is_given {
        actions.extend(proxy.is_held().then_some(Action::Release));
        actions.extend((grace > 0).then_some(Action::DeleteProxy));
    }
    Plan::of(actions)
}

/// Whether what a replaced pod left in a target that is back runs on for a while.
pub(crate) fn is_kept_for_its_successor(seen: &Observed, proxy: &Proxy) -> bool {
    is_moved(proxy) && seen.successor == Successor::Waits && seen.returned < HOLD
}
