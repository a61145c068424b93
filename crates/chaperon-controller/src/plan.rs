//! What is done about one PodChaperon and the pod of its name.

use crate::delegate::{
    belongs, has_ended, has_spec, has_stopped, is_delegate, is_refused, lacks, needs_no_scheduler,
    runs_for_ever, was_collected, was_refused,
};
use crate::fence::Fence;
use crate::mirror::{annotation_changes, copy_status, until};
use crate::status::{DELEGATE_CREATED, LOST, Problem, fenced, is_false, lost, same, without_delegate};
use crate::stock::required;
use api::raw::{confirms_revocation, is_terminal};
use api::references::{Reference, References};
use api::updates::Updates;
use api::{Pod, PodChaperon, keys};
use k8s_openapi::jiff::Timestamp;
use runtime::Class;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a delegate waits for what it can do without.
const OPTIONAL: Duration = Duration::from_secs(1);
/// How long it waits before that is written down: copies take a moment.
const SILENT: Duration = Duration::from_secs(3);
/// How soon something that no watch shows is looked for again at first.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// And at last.
const LONGEST_LOOK: Duration = Duration::from_secs(30);
/// The grace period of a pod that names none, in seconds.
const DEFAULT_GRACE: u32 = 30;

/// The pod of a PodChaperon's name.
#[derive(Debug, Clone, PartialEq)]
pub enum Delegate {
    /// Not in the cache; it may exist all the same.
    Unseen,
    /// Its deletion was seen, with its last state, or a live read found none.
    Gone(Option<Arc<Pod>>),
    /// There, with the state last seen.
    Present(Arc<Pod>),
}

/// Whether a delegate may be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Creation {
    /// Now.
    Free,
    /// After a pause: a kubelet refused the one before.
    After(Duration),
    /// Not in this round: the API server has just refused it.
    Refused(Class, String),
}

/// Whether the ConfigMaps and Secrets that the delegate names are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Staging {
    /// All, or it names none.
    Complete,
    /// Of these nobody has asked yet.
    Unread(Vec<Reference>),
    /// These are not there, and for so long they were not.
    Lacking(References, Duration),
}

/// All that is known about one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The PodChaperon; `None` when the synced cache has none.
    pub chaperon: Option<Arc<PodChaperon>>,
    /// Its pod.
    pub delegate: Delegate,
    /// Whether a delegate may be created.
    pub creation: Creation,
    /// Whether what it names is there.
    pub staging: Staging,
    /// The node that is promised to the delegate, while the promise is young: what was true of the node when
    /// it was chosen still is.
    pub promised: Option<Arc<str>>,
    /// What the Lease of its source says, if it needs one.
    pub fence: Fence,
    /// Whether the PodChaperon was read from the API server in this round.
    pub live: bool,
    /// Why the delegate could not be changed as its proxy pod was.
    pub unchanged: Option<String>,
    /// For how long a change of status has been held back.
    pub held: Option<Duration>,
    /// The time.
    pub now: Timestamp,
}

/// One call. Each may be repeated after a crash.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Looks for the pod that the cache does not have.
    ReadDelegate,
    /// Reads the PodChaperon, since a cache may lag behind its deletion.
    ReadChaperon,
    /// Asks whether these are there.
    ReadReferences(Vec<Reference>),
    /// Adds our finalizer to an adopted PodChaperon.
    HoldChaperon,
    /// Adds our finalizer to an adopted delegate.
    HoldDelegate,
    /// Creates the delegate, on the node if one is given.
    CreateDelegate(Option<Arc<str>>),
    /// Writes the delegate's status to the PodChaperon.
    CopyStatus(Value),
    /// Writes why there is no delegate.
    RecordProblem(Value),
    /// Writes the end of a delegate that vanished.
    RecordLost(Value),
    /// Changes annotations of the PodChaperon; `None` removes one.
    CopyAnnotations(BTreeMap<String, Option<String>>),
    /// Adds ephemeral containers to the delegate.
    AddEphemeral(Vec<Value>),
    /// Changes resources of the delegate in place: a strategic merge patch of its spec.
    Resize(Value),
    /// Changes the delegate as its proxy pod was: a strategic merge patch, without UID.
    Update(Value),
    /// Deletes the delegate, with a grace period in seconds instead of its own.
    DeleteDelegate(Option<u32>),
    /// Deletes a delegate that a kubelet refused.
    DiscardDelegate,
    /// Deletes a delegate that has no node, as it was seen: one that has changed is looked at again.
    RevokeDelegate,
    /// Removes our finalizer from the delegate.
    ReleaseDelegate,
    /// Removes our finalizer from the PodChaperon.
    ReleaseChaperon,
}

/// What to do now and when to look again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Calls, in order.
    pub actions: Vec<Action>,
    /// Look again after this, even if nothing happens.
    pub recheck: Option<Duration>,
    /// A change of status is held back.
    pub holds: bool,
}

impl Plan {
    fn just(action: Action) -> Self {
        Self { actions: vec![action], ..Self::default() }
    }

    fn push_if(&mut self, condition: bool, action: Action) {
        if condition {
            self.actions.push(action);
        }
    }

    pub(crate) fn look_again(&mut self, after: Duration) {
        self.recheck = Some(self.recheck.map_or(after, |set| set.min(after)));
    }
}

/// Decides.
#[must_use]
pub fn plan(seen: &Observed) -> Plan {
    let (chaperon, delegate) = match (&seen.chaperon, &seen.delegate) {
        (None, Delegate::Present(pod)) => return orphan(pod, seen.now),
        (None, Delegate::Unseen | Delegate::Gone(_)) => return Plan::default(),
        (Some(chaperon), delegate) => (chaperon.as_ref(), delegate),
    };
    match delegate {
        Delegate::Present(pod) if !belongs(pod, chaperon) => name_taken(chaperon, pod, seen.now),
        Delegate::Present(pod) if chaperon.is_terminating() => stop(chaperon, pod, seen),
        Delegate::Present(pod) => keep(chaperon, pod, seen),
        Delegate::Unseen | Delegate::Gone(_) if chaperon.is_terminating() => leave(chaperon, delegate),
        Delegate::Unseen | Delegate::Gone(_) => create(chaperon, delegate, seen),
    }
}

fn is_held(chaperon: &PodChaperon) -> bool {
    chaperon.has_finalizer(keys::CHAPERON_FINALIZER)
}

fn has_recorded_end(chaperon: &PodChaperon) -> bool {
    is_terminal(chaperon.phase())
}

/// A delegate whose PodChaperon is gone. The garbage collector deletes it; we let go once it has stopped.
fn orphan(pod: &Pod, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if !is_delegate(pod) || !pod.is_terminating() || !pod.has_finalizer(keys::CHAPERON_FINALIZER) {
        return plan;
    }
    if has_stopped(pod, now) {
        plan.actions.push(Action::ReleaseDelegate);
    } else if let Some(wait) = until(pod, now, 0) {
        plan.look_again(wait);
    }
    plan
}

/// Another pod has the name.
fn name_taken(chaperon: &PodChaperon, pod: &Pod, now: Timestamp) -> Plan {
    let mut plan = orphan(pod, now);
    if chaperon.is_terminating() {
        plan.push_if(is_held(chaperon), Action::ReleaseChaperon);
    } else if chaperon.is_allowed() && !has_recorded_end(chaperon) {
        let (reason, message) = if is_delegate(pod) {
            ("PredecessorStopping", "the delegate of an earlier PodChaperon of this name has not stopped yet")
        } else {
            ("NameTaken", "another pod of this name exists that is not ours")
        };
        record(&mut plan, chaperon, &not_created(reason, message), now);
    }
    plan
}

fn not_created(reason: &str, message: &str) -> Problem {
    Problem { kind: DELEGATE_CREATED, reason: reason.to_owned(), message: message.to_owned() }
}

fn record(plan: &mut Plan, chaperon: &PodChaperon, problem: &Problem, now: Timestamp) {
    let status = without_delegate(&chaperon.status, problem, now);
    plan.push_if(!same(&chaperon.status, &status), Action::RecordProblem(status));
}

/// The grace period with which a delegate is stopped whose source counts on it: the one that the source knows.
fn agreed_grace(chaperon: &PodChaperon) -> u32 {
    let seconds = chaperon.annotation(keys::FENCE_GRACE_SECONDS).and_then(|seconds| seconds.parse().ok());
    seconds.unwrap_or(DEFAULT_GRACE)
}

/// Whether the delegate must not run any more, whatever else is true of it.
fn is_over(fence: Fence) -> bool {
    match fence {
        Fence::Open | Fence::Unsure => false,
        Fence::Expired | Fence::Past => true,
    }
}

/// The PodChaperon is deleted: its delegate is stopped, and both are let go in that order.
fn stop(chaperon: &PodChaperon, pod: &Pod, seen: &Observed) -> Plan {
    let stopped = has_stopped(pod, seen.now);
    let mut plan = Plan::default();
    copy_status(&mut plan, chaperon, pod, seen);
    let asked = chaperon.annotation(keys::DELETION_GRACE_SECONDS).and_then(|text| text.parse::<u32>().ok());
    // Who waits for the Lease to run out counts on no more than this.
    let agreed = is_over(seen.fence).then(|| agreed_grace(chaperon));
    let grace = asked.into_iter().chain(agreed).min();
    if !pod.is_terminating() {
        plan.actions.push(Action::DeleteDelegate(grace));
    } else if stopped {
        plan.push_if(pod.has_finalizer(keys::CHAPERON_FINALIZER), Action::ReleaseDelegate);
    } else if grace.is_some_and(|grace| i64::from(grace) < granted(pod)) {
        plan.actions.push(Action::DeleteDelegate(grace));
    }
    plan
}

/// The grace period of a terminating pod, in seconds.
fn granted(pod: &Pod) -> i64 {
    pod.metadata.deletion_grace_period_seconds.unwrap_or(0)
}

/// The PodChaperon is deleted and has no delegate, as far as is known.
fn leave(chaperon: &PodChaperon, delegate: &Delegate) -> Plan {
    if !is_held(chaperon) {
        return Plan::default();
    }
    match delegate {
        Delegate::Gone(_) => Plan::just(Action::ReleaseChaperon),
        Delegate::Unseen | Delegate::Present(_) => Plan::just(Action::ReadDelegate),
    }
}

/// The PodChaperon lives and has a delegate.
fn keep(chaperon: &PodChaperon, pod: &Pod, seen: &Observed) -> Plan {
    let mut plan = Plan::default();
    let ended = has_recorded_end(chaperon);
    let held = pod.has_finalizer(keys::CHAPERON_FINALIZER);
    plan.push_if(!is_held(chaperon), Action::HoldChaperon);
    if !ended && was_refused(pod, &chaperon.status) {
        let why = pod.status.get("message").and_then(Value::as_str).unwrap_or_default();
        let reason = pod.status.get("reason").and_then(Value::as_str).unwrap_or_default();
        let message = format!("the kubelet of node {} refused the delegate: {reason}: {why}", pod.node());
        record(&mut plan, chaperon, &not_created("RefusedByNode", &message), seen.now);
        plan.push_if(!pod.is_terminating(), Action::DiscardDelegate);
        plan.push_if(pod.is_terminating() && held, Action::ReleaseDelegate);
        return plan;
    }
    if !ended && chaperon.is_revoked() && pod.node().is_empty() {
        revoke(&mut plan, chaperon, pod, seen);
        return plan;
    }
    if !ended && is_over(seen.fence) && stop_fenced(&mut plan, chaperon, pod, seen) {
        return plan;
    }
    if pod.is_terminating() {
        disrupted(&mut plan, chaperon, pod, seen);
        return plan;
    }
    if ended && !is_terminal(pod.phase()) {
        // Finished work never runs again.
        plan.actions.push(Action::DeleteDelegate(None));
        return plan;
    }
    if !ended && runs_for_ever(chaperon) && was_collected(pod) {
        // Its end is only that of its node. The collector may have failed to delete it after that.
        plan.actions.push(Action::DeleteDelegate(Some(0)));
        return plan;
    }
    plan.push_if(!held, Action::HoldDelegate);
    copy_status(&mut plan, chaperon, pod, seen);
    let changes = annotation_changes(chaperon, pod);
    plan.push_if(!changes.is_empty(), Action::CopyAnnotations(changes));
    if !ended && !is_terminal(pod.phase()) {
        update(&mut plan, chaperon, pod, seen);
    }
    let ephemeral = lacks(chaperon, pod);
    plan.push_if(
        !ended && !is_terminal(pod.phase()) && !ephemeral.is_empty(),
        Action::AddEphemeral(ephemeral),
    );
    plan
}

/// Makes the delegate what its proxy pod was changed into.
fn update(plan: &mut Plan, chaperon: &PodChaperon, pod: &Pod, seen: &Observed) {
    let Some(text) = chaperon.annotation(keys::UPDATES) else { return };
    let record = Updates::read(Some(text));
    let is_done = pod.annotation(keys::UPDATES) == Some(text);
    let (mut annotations, labels) = record.lacking(pod);
    if is_done && annotations.is_empty() && labels.is_empty() {
        return;
    }
    if seen.unchanged.is_some() {
        plan.look_again(LONGEST_LOOK);
        return;
    }
    let mut patch = json!({});
    if !is_done {
        plan.push_if(!record.resources.is_empty(), Action::Resize(json!(record.resources)));
        annotations.insert(keys::UPDATES.to_owned(), Some(text.to_owned()));
        if !record.spec.is_empty() {
            patch["spec"] = json!(record.spec);
        }
    }
    patch["metadata"] = json!({"annotations": annotations, "labels": labels});
    plan.actions.push(Action::Update(patch));
}

/// The source cannot be told from one that has replaced this delegate. Returns whether that is all for now.
fn stop_fenced(plan: &mut Plan, chaperon: &PodChaperon, pod: &Pod, seen: &Observed) -> bool {
    if is_terminal(pod.phase()) {
        // It has ended by itself.
        return false;
    }
    let grace = agreed_grace(chaperon);
    let is_slow = pod.is_terminating() && granted(pod) > i64::from(grace) && !has_stopped(pod, seen.now);
    if pod.is_terminating() && !is_slow {
        return false;
    }
    plan.actions.push(Action::DeleteDelegate(Some(grace)));
    true
}

/// The source wants back what has no node: the API server binds no pod that is being deleted, so that the
/// delegate's end is certain once its deletion has begun.
fn revoke(plan: &mut Plan, chaperon: &PodChaperon, pod: &Pod, seen: &Observed) {
    if !pod.is_terminating() {
        plan.actions.push(Action::RevokeDelegate);
        return;
    }
    record(plan, chaperon, &revoked(), seen.now);
    plan.push_if(pod.has_finalizer(keys::CHAPERON_FINALIZER), Action::ReleaseDelegate);
}

fn revoked() -> Problem {
    not_created(keys::DELEGATE_REVOKED, "the source took back its election before the delegate had a node")
}

/// Somebody deleted the delegate of a PodChaperon that lives: a drain, an eviction, a preemption, a person.
fn disrupted(plan: &mut Plan, chaperon: &PodChaperon, pod: &Pod, seen: &Observed) {
    if !has_stopped(pod, seen.now) {
        copy_status(plan, chaperon, pod, seen);
        return;
    }
    let for_ever = runs_for_ever(chaperon);
    if has_recorded_end(chaperon) || is_refused(pod) && is_false(&chaperon.status, DELEGATE_CREATED) {
        // Nothing more to learn from it.
    } else if has_ended(pod, for_ever) {
        plan.push_if(!same(&chaperon.status, &pod.status), Action::CopyStatus(pod.status.clone()));
    } else if !for_ever {
        plan.actions.push(Action::RecordLost(lost(&pod.status, seen.now)));
    }
    plan.push_if(pod.has_finalizer(keys::CHAPERON_FINALIZER), Action::ReleaseDelegate);
}

/// The PodChaperon lives and has no delegate, as far as is known.
fn create(chaperon: &PodChaperon, delegate: &Delegate, seen: &Observed) -> Plan {
    if has_recorded_end(chaperon) || !chaperon.is_allowed() {
        return Plan::default();
    }
    // Whoever took the delegate away on purpose recorded so first.
    let expected = is_false(&chaperon.status, DELEGATE_CREATED);
    let had_one = !chaperon.phase().is_empty();
    let is_lost = match delegate {
        Delegate::Unseen if had_one && !expected => return Plan::just(Action::ReadDelegate),
        Delegate::Gone(Some(last)) if belongs(last, chaperon) => {
            if !expected && has_ended(last, runs_for_ever(chaperon)) {
                return Plan::just(Action::CopyStatus(last.status.clone()));
            }
            !expected
        }
        Delegate::Gone(_) => had_one && !expected,
        Delegate::Unseen | Delegate::Present(_) => false,
    };
    let is_revoked = chaperon.is_revoked();
    if is_revoked && confirms_revocation(&chaperon.status) {
        return Plan::default();
    }
    let needs_live = is_lost || is_revoked || !has_spec(chaperon);
    if needs_live && !seen.live {
        // The deletion of a pod that merely lost its label looks the same in a watch.
        let mut plan = Plan::default();
        plan.push_if(is_lost || is_revoked, Action::ReadDelegate);
        plan.actions.push(Action::ReadChaperon);
        return plan;
    }
    if is_lost && !runs_for_ever(chaperon) {
        return Plan::just(Action::RecordLost(lost(&chaperon.status, seen.now)));
    }
    // One that has not begun waits for another epoch: its source may go on to that without having replaced it.
    if seen.fence == Fence::Past || seen.fence == Fence::Expired && is_lost {
        return Plan::just(Action::RecordLost(fenced(&chaperon.status, seen.now)));
    }
    if is_revoked {
        let mut plan = Plan::default();
        match delegate {
            Delegate::Gone(_) => record(&mut plan, chaperon, &revoked(), seen.now),
            Delegate::Unseen | Delegate::Present(_) => plan.actions.push(Action::ReadDelegate),
        }
        return plan;
    }
    if is_lost {
        let mut plan = Plan::default();
        let message = "the delegate was removed; it is created again";
        record(&mut plan, chaperon, &not_created(LOST, message), seen.now);
        return plan;
    }
    begin(chaperon, seen)
}

/// The node on which the first delegate is created. Whatever comes after the first is scheduled anew.
fn first_node(chaperon: &PodChaperon, seen: &Observed) -> Option<Arc<str>> {
    let is_first = chaperon.phase().is_empty() && !is_false(&chaperon.status, DELEGATE_CREATED);
    seen.promised.clone().filter(|_| is_first && !chaperon.is_granted() && needs_no_scheduler(chaperon))
}

/// Holds the delegate back while something that it names is not there: a container that finds it missing would
/// only be tried again much later. `None` when nothing holds it.
fn hold(chaperon: &PodChaperon, seen: &Observed) -> Option<Plan> {
    let (lacking, waited) = match &seen.staging {
        Staging::Complete => return None,
        Staging::Unread(unread) => return Some(Plan::just(Action::ReadReferences(unread.clone()))),
        Staging::Lacking(lacking, waited) => (lacking, *waited),
    };
    let mut plan = Plan::default();
    let missing: Vec<String> = required(lacking).map(ToString::to_string).collect();
    if missing.is_empty() {
        plan.look_again(OPTIONAL.checked_sub(waited).filter(|left| !left.is_zero())?);
        return Some(plan);
    }
    if waited >= SILENT {
        let message = format!("the delegate waits for {} in this cluster", missing.join(", "));
        record(&mut plan, chaperon, &not_created(keys::WAITS_FOR_REFERENCES, &message), seen.now);
        plan.look_again(waited.min(LONGEST_LOOK));
    } else {
        plan.look_again(SILENT.saturating_sub(waited).min(FIRST_LOOK));
    }
    Some(plan)
}

fn begin(chaperon: &PodChaperon, seen: &Observed) -> Plan {
    let mut plan = Plan::default();
    if seen.fence != Fence::Open {
        let message = "the Lease of the source is not known to hold; the delegate waits for its renewal";
        record(&mut plan, chaperon, &not_created("LeaseNotHeld", message), seen.now);
        return plan;
    }
    if seen.creation == Creation::Free
        && let Some(held) = hold(chaperon, seen)
    {
        return held;
    }
    match &seen.creation {
        Creation::Free => {
            plan.push_if(!is_held(chaperon), Action::HoldChaperon);
            plan.actions.push(Action::CreateDelegate(first_node(chaperon, seen)));
        }
        Creation::After(pause) => plan.look_again(*pause),
        Creation::Refused(class, message) => {
            let reason = match class {
                Class::Conflict => "NameTaken",
                Class::NotFound => "NamespaceNotFound",
                Class::Forbidden => "Forbidden",
                Class::Invalid => "Invalid",
                Class::Unreachable | Class::Overloaded => "Unavailable",
                Class::Bug => "Unexpected",
            };
            record(&mut plan, chaperon, &not_created(reason, message), seen.now);
        }
    }
    plan
}

#[cfg(test)]
mod tests;
