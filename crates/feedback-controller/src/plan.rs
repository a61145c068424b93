//! Decides what happens to one proxy pod and its PodChaperons.

use crate::failover::{self, HOLD, Outage, Successor, Why};
use crate::mirror::{Cause, Delegate, failed, mirror};
use crate::views::{Chaperon, Proxy};
use api::labels::Rewriting;
use api::raw::is_terminal;
use api::updates::{Pick, Updates};
use api::v1alpha1::LabelRewriting;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a change that nobody waits for may wait for others.
const COALESCE: Duration = Duration::from_millis(200);
/// How long the proxy scheduler has to delete the PodChaperons that lost, before this component does.
const LOSERS: Duration = Duration::from_secs(10);
/// How long a PodChaperon that may run something must have been without parent.
const ORPHAN_AGE: Duration = Duration::from_secs(5);

/// What the elected target says about a proxy pod's delegate.
///
/// `Unknown` is not `Absent`: a target that does not answer has deleted nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remote {
    /// The pod is neither bound nor granted.
    NotElected,
    /// The target cannot be asked now.
    Unknown,
    /// The target has not answered for a while.
    Silent,
    /// Not among what is watched; only a live read can tell.
    Missing,
    /// A live read has shown that it is gone.
    Absent,
    Present(Arc<Chaperon>),
    /// No Target has the pod's node; only a live read can tell.
    TargetMissing,
    /// A live read has shown that the Target is gone.
    TargetGone,
}

/// What a live read said of the parent of PodChaperons without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parent {
    NotRead,
    /// It is there, and the watch will show it.
    Alive,
    /// It is gone, or another pod has its name.
    Gone,
}

/// All that is decided on.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) proxy: Option<Arc<Proxy>>,
    /// Whether all proxy pods have been seen.
    pub(crate) pods_in_step: bool,
    pub(crate) delegate: Remote,
    /// Whether a live read has shown that the elected PodChaperon is gone.
    pub(crate) is_confirmed: bool,
    /// PodChaperons of the same parent that are not the elected one, in targets that answer.
    pub(crate) others: Vec<Arc<Chaperon>>,
    pub(crate) parent: Parent,
    /// The last status seen of an elected PodChaperon that is gone.
    pub(crate) last_status: Option<Value>,
    /// Keys of annotations that the delegate had with another value.
    pub(crate) had: BTreeSet<String>,
    /// Whether the delegate was about to be disrupted, and is not any more.
    pub(crate) was_disrupted: bool,
    /// Whether its present annotations were mirrored once.
    pub(crate) is_told: bool,
    /// What was mirrored last is all that the API server took of the delegate's present state.
    pub(crate) is_mirrored: bool,
    /// Since the first change that is not mirrored yet.
    pub(crate) waited: Duration,
    /// Since the pod was first seen elected, or without parent.
    pub(crate) age: Duration,
    /// What is known of a silent target.
    pub(crate) outage: Outage,
    /// What replaces an ended pod, or PodChaperons without parent.
    pub(crate) successor: Successor,
    /// Since the target is in step.
    pub(crate) returned: Duration,
    /// What its target does with labels.
    pub(crate) labels: LabelRewriting,
    /// RFC 3339.
    pub(crate) now: String,
}

/// One step. Writes are idempotent and safe to repeat after a crash; reads are followed by another plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    LookUpDelegate,
    LookUpTarget,
    LookUpParent,
    /// A strategic merge patch of status and annotations.
    PatchStatus(Value),
    /// Says on the pod why it ends, and whether something of it may be left in the target.
    Tell(Cause, bool),
    /// Says why the pod waits for a silent target.
    Explain(Why),
    /// Takes all our finalizers off the proxy.
    Release,
    /// Ends the proxy: a delete with grace 0 and its UID.
    DeleteProxy,
    PassGrace(Arc<Chaperon>, i64),
    /// Passes what was changed on the pod down.
    PassUpdates(Arc<Chaperon>, String),
    /// Passes ephemeral containers down.
    PassEphemeral(Arc<Chaperon>, Value),
    DeleteChaperon(Arc<Chaperon>),
    /// The same for one that is allowed and whose parent is gone: only a few in a while.
    SweepChaperon(Arc<Chaperon>),
}

/// Actions in their order, and when to look again without an event.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    pub(crate) again: Option<Duration>,
}

impl Plan {
    pub(crate) fn of(actions: Vec<Action>) -> Self {
        Self { actions, again: None }
    }
}

/// Decides. A settled world yields nothing.
pub(crate) fn plan(seen: &Observed) -> Plan {
    match &seen.proxy {
        None => orphans(seen),
        Some(proxy) => match proxy.deleting {
            Some(grace) => deleted(seen, proxy, grace),
            None => alive(seen, proxy),
        },
    }
}

/// PodChaperons without a parent: the parent is read live before anything is deleted.
fn orphans(seen: &Observed) -> Plan {
    if !seen.pods_in_step || seen.others.is_empty() {
        return Plan::default();
    }
    match seen.parent {
        Parent::NotRead => Plan::of(vec![Action::LookUpParent]),
        Parent::Alive => Plan { actions: Vec::new(), again: Some(ORPHAN_AGE) },
        Parent::Gone => {
            let old_enough = seen.age >= ORPHAN_AGE;
            let doomed = seen.others.iter().filter(|orphan| !orphan.is_terminating);
            let (allowed, idle): (Vec<_>, Vec<_>) = doomed.cloned().partition(|orphan| orphan.is_allowed);
            let mut actions: Vec<Action> = idle.into_iter().map(Action::DeleteChaperon).collect();
            if !old_enough {
                let again = (!allowed.is_empty()).then_some(ORPHAN_AGE.saturating_sub(seen.age));
                return Plan { actions, again };
            }
            // A pod of the same name has replaced one that may run more than once: first it becomes ready.
            let (replaced, lost): (Vec<_>, Vec<_>) = allowed
                .into_iter()
                .partition(|orphan| orphan.may_run_twice && seen.successor != Successor::Nobody);
            let waits = !replaced.is_empty() && seen.successor == Successor::Waits && seen.age < HOLD;
            if !waits {
                actions.extend(replaced.into_iter().map(Action::DeleteChaperon));
            }
            actions.extend(lost.into_iter().map(Action::SweepChaperon));
            Plan { actions, again: waits.then_some(ORPHAN_AGE) }
        }
    }
}

/// A pod that nobody deleted.
fn alive(seen: &Observed, proxy: &Proxy) -> Plan {
    match &seen.delegate {
        // Waiting is the proxy scheduler's business.
        Remote::NotElected | Remote::Unknown => Plan::default(),
        Remote::Silent => failover::alive(seen, proxy),
        Remote::Missing => Plan::of(vec![Action::LookUpDelegate]),
        Remote::TargetMissing => Plan::of(vec![Action::LookUpTarget]),
        // Whether a granted pod is bound is the proxy scheduler's business; its status is ours from then on.
        Remote::Present(_) if proxy.node.is_empty() => Plan::default(),
        Remote::Present(chaperon) if chaperon.is_revoked && !is_over(proxy) => Plan::of(vec![
            Action::PatchStatus(failed(proxy, Cause::NotStarted, &seen.now)),
            Action::Tell(Cause::NotStarted, false),
            Action::DeleteProxy,
        ]),
        Remote::Present(chaperon) if chaperon.is_fenced_off && !is_over(proxy) => Plan::of(vec![
            Action::PatchStatus(failed(proxy, Cause::LeaseExpired, &seen.now)),
            Action::Tell(Cause::LeaseExpired, false),
            Action::DeleteProxy,
        ]),
        // Its end was decided while the target was silent.
        Remote::Present(_) if state(proxy) == State::EndedByUs => Plan::of(vec![Action::DeleteProxy]),
        Remote::Present(chaperon) => {
            let mut plan = copy(seen, proxy, chaperon, COALESCE);
            if !proxy.ephemeral.is_empty() && proxy.ephemeral != chaperon.ephemeral && !is_over(proxy) {
                plan.actions.push(Action::PassEphemeral(Arc::clone(chaperon), proxy.ephemeral.value()));
            }
            let updates = passing(seen, proxy, chaperon).filter(|_| !is_over(proxy));
            plan.actions.extend(updates.map(|text| Action::PassUpdates(Arc::clone(chaperon), text)));
            let losers = doomed(seen);
            if seen.age >= LOSERS {
                plan.actions.extend(losers);
            } else if !losers.is_empty() {
                plan.again = Some(plan.again.unwrap_or(LOSERS).min(LOSERS.saturating_sub(seen.age)));
            }
            plan
        }
        Remote::Absent => match (state(proxy), last_change(seen, proxy)) {
            // Finished pods stay until somebody deletes them.
            (State::Finished, _) => Plan::default(),
            (State::EndedByUs, _) => Plan::of(vec![Action::DeleteProxy]),
            (State::Running, Some(end)) => Plan::of(vec![Action::PatchStatus(end)]),
            (State::Running, None) => Plan::of(vec![
                Action::PatchStatus(failed(proxy, Cause::DelegateLost, &seen.now)),
                Action::Tell(Cause::DelegateLost, false),
                Action::DeleteProxy,
            ]),
        },
        Remote::TargetGone => {
            let mut actions = Vec::new();
            // The end of one that runs for ever is our doing.
            let own_end = if proxy.is_endless { None } else { last_change(seen, proxy) };
            let is_finished = state(proxy) == State::Finished || own_end.is_some();
            if state(proxy) == State::Running {
                let end = own_end.unwrap_or_else(|| failed(proxy, Cause::TargetRemoved, &seen.now));
                actions.push(Action::PatchStatus(end));
                actions.push(Action::Tell(Cause::TargetRemoved, !seen.is_confirmed));
            }
            // A finished pod is left alone, but nothing holds it any more.
            if proxy.is_held() {
                actions.push(Action::Release);
            }
            if !is_finished {
                actions.push(Action::DeleteProxy);
            }
            Plan::of(actions)
        }
    }
}

/// The record of changes that the PodChaperon lacks.
fn passing(seen: &Observed, proxy: &Proxy, chaperon: &Chaperon) -> Option<String> {
    if proxy.updates.is_none() && chaperon.updates.is_none() {
        return None;
    }
    let rewriting = match seen.labels {
        LabelRewriting::Keep => Rewriting::keep_all(),
        LabelRewriting::Rewrite => {
            Rewriting::from_annotation(proxy.label_pattern.as_deref()).unwrap_or_default()
        }
    };
    let before = Updates::read(chaperon.updates.as_deref());
    let now = proxy.updates.as_deref().cloned().unwrap_or_default().rewritten(&rewriting);
    let pick =
        Pick { annotations: &proxy.annotations, labels: &chaperon.labels, known: &chaperon.annotations };
    let now = now.after(&before, &pick);
    (now != before).then(|| now.text())
}

/// A pod that is being deleted.
fn deleted(seen: &Observed, proxy: &Proxy, grace: i64) -> Plan {
    let release = || proxy.is_held().then_some(Action::Release);
    // A pod without our finalizers may still wait for its kubelet: nobody but us confirms its end.
    let confirm = || (grace > 0).then_some(Action::DeleteProxy);
    let mut plan = match &seen.delegate {
        Remote::NotElected => Plan::of(release().into_iter().chain(confirm()).collect()),
        Remote::Unknown => Plan::default(),
        Remote::Silent => failover::deleted(seen, proxy, grace),
        // Already released: the API server removes it in a moment, or a finalizer of others holds it.
        Remote::Missing | Remote::TargetMissing if !proxy.is_held() && grace == 0 => Plan::default(),
        Remote::Missing => Plan::of(vec![Action::LookUpDelegate]),
        Remote::TargetMissing => Plan::of(vec![Action::LookUpTarget]),
        Remote::Present(chaperon)
            if chaperon.may_run_twice && failover::is_kept_for_its_successor(seen, proxy) =>
        {
            Plan { actions: Vec::new(), again: Some(ORPHAN_AGE) }
        }
        Remote::Present(chaperon) => {
            let mut plan = copy(seen, proxy, chaperon, Duration::ZERO);
            // The webhook gives proxies no grace of their own: a longer one was asked for.
            if grace > 0 && chaperon.grace != Some(grace) {
                plan.actions.push(Action::PassGrace(Arc::clone(chaperon), grace));
            }
            if !chaperon.is_terminating {
                plan.actions.push(Action::DeleteChaperon(Arc::clone(chaperon)));
            }
            plan
        }
        Remote::Absent | Remote::TargetGone => {
            let cause = if seen.delegate == Remote::Absent { Cause::Deleted } else { Cause::TargetRemoved };
            let mut actions = Vec::new();
            if state(proxy) == State::Running {
                let end = last_change(seen, proxy).unwrap_or_else(|| failed(proxy, cause, &seen.now));
                actions.push(Action::PatchStatus(end));
                if cause == Cause::TargetRemoved {
                    actions.push(Action::Tell(cause, !seen.is_confirmed));
                }
            }
            Plan::of(actions.into_iter().chain(release()).chain(confirm()).collect())
        }
    };
    // The others come last, so that their targets delay nothing.
    plan.actions.extend(doomed(seen));
    plan
}

fn doomed(seen: &Observed) -> Vec<Action> {
    let others = seen.others.iter().filter(|other| !other.is_terminating);
    others.map(|other| Action::DeleteChaperon(Arc::clone(other))).collect()
}

/// Mirrors status and annotations, at once or when the change has waited long enough.
fn copy(seen: &Observed, proxy: &Proxy, chaperon: &Chaperon, patience: Duration) -> Plan {
    if seen.is_mirrored {
        return Plan::default();
    }
    let status = chaperon.status.value();
    let delegate = Delegate {
        status: &status,
        annotations: &chaperon.annotations,
        had: &seen.had,
        was_disrupted: seen.was_disrupted,
        is_told: seen.is_told,
    };
    match mirror(proxy, delegate, &seen.now) {
        None => Plan::default(),
        Some(change) if change.is_urgent || seen.waited >= patience => {
            Plan::of(vec![Action::PatchStatus(change.patch)])
        }
        Some(_) => Plan { actions: Vec::new(), again: Some(patience.saturating_sub(seen.waited)) },
    }
}

/// The delegate's own end, when it was seen before its PodChaperon went.
fn last_change(seen: &Observed, proxy: &Proxy) -> Option<Value> {
    let status = seen.last_status.as_ref()?;
    if !is_terminal(status["phase"].as_str().unwrap_or_default()) {
        return None;
    }
    let none = BTreeSet::new();
    let delegate =
        Delegate { status, annotations: &proxy.annotations, had: &none, was_disrupted: false, is_told: true };
    Some(mirror(proxy, delegate, &seen.now)?.patch)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Finished,
    /// Failed by an earlier run of this component that did not get to delete it.
    EndedByUs,
}

fn is_over(proxy: &Proxy) -> bool {
    state(proxy) != State::Running
}

pub(crate) fn state(proxy: &Proxy) -> State {
    let status = proxy.status.value();
    if !is_terminal(status["phase"].as_str().unwrap_or_default()) {
        return State::Running;
    }
    let reason = status["reason"].as_str().unwrap_or_default();
    let causes = [
        Cause::DelegateLost,
        Cause::TargetRemoved,
        Cause::NotStarted,
        Cause::TargetUnreachable,
        Cause::LeaseExpired,
    ];
    let ours = causes.iter().any(|cause| cause.reason() == reason);
    if ours { State::EndedByUs } else { State::Finished }
}

#[cfg(test)]
mod tests;
