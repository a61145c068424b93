//! What of a delegate is written to its PodChaperon, and when.

use crate::delegate::has_stopped;
use crate::plan::{Action, Observed, Plan};
use crate::status::{DELEGATE_STOPPED, Problem, is_quiet, is_true, is_urgent, same, with_problem};
use api::raw::is_terminal;
use api::updates::Updates;
use api::{Pod, PodChaperon, keys};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a change of status waits for others that follow it.
const COALESCE: Duration = Duration::from_millis(200);
/// How long a first status that says nothing new waits.
const QUIET: Duration = Duration::from_secs(10);
/// How long after its deadline a deleted delegate's containers may be silent before we say so, in seconds.
const OVERDUE_SECONDS: i64 = 30;

/// How long until some seconds after a terminating pod's deadline.
pub(crate) fn until(pod: &Pod, now: Timestamp, seconds: i64) -> Option<Duration> {
    let deadline = pod.metadata.deletion_timestamp.as_ref()?.0.as_second();
    // One second more, since the deadline is rounded down.
    u64::try_from(deadline + seconds + 1 - now.as_second())
        .ok()
        .filter(|wait| *wait > 0)
        .map(Duration::from_secs)
}

/// Copies a status that says something else than what is recorded, never out of a recorded end.
pub(crate) fn copy_status(plan: &mut Plan, chaperon: &PodChaperon, pod: &Pod, seen: &Observed) {
    let mut status = pod.status.clone();
    let stopped = has_stopped(pod, seen.now);
    if pod.is_terminating() && !stopped {
        if let Some(wait) = until(pod, seen.now, 0) {
            plan.look_again(wait);
        }
        match until(pod, seen.now, OVERDUE_SECONDS) {
            Some(wait) => plan.look_again(wait),
            None => status = with_problem(&status, &chaperon.status, &overdue(pod), seen.now),
        }
    }
    if let Some(message) = &seen.unchanged {
        let (kind, reason) = (keys::DELEGATE_UPDATED, "Refused".to_owned());
        let problem = Problem { kind, reason, message: message.clone() };
        status = with_problem(&status, &chaperon.status, &problem, seen.now);
    }
    let phase = status.get("phase").and_then(Value::as_str).unwrap_or_default();
    let out_of_end = is_terminal(chaperon.phase()) && phase != chaperon.phase();
    if out_of_end || same(&chaperon.status, &status) {
        return;
    }
    // The source of a granted delegate waits to learn of its node; it knows that of every other.
    let granted = chaperon.is_granted();
    let placed = granted && is_true(&status, "PodScheduled") && !is_true(&chaperon.status, "PodScheduled");
    let patience = if is_quiet(&chaperon.status, &status) && !granted { QUIET } else { COALESCE };
    let left = patience.saturating_sub(seen.held.unwrap_or_default());
    if left.is_zero() || stopped || placed || is_urgent(&chaperon.status, &status) {
        plan.actions.push(Action::CopyStatus(status));
    } else {
        plan.holds = true;
        plan.look_again(left);
    }
}

fn overdue(pod: &Pod) -> Problem {
    let message = format!(
        "node {} has not reported that the containers stopped; the source waits for it, or for the node's removal",
        pod.node()
    );
    Problem { kind: DELEGATE_STOPPED, reason: "NodeSilent".to_owned(), message }
}

/// The annotations of the delegate that are not the contract's, against those of its PodChaperon. What somebody wrote
/// in the source is not the delegate's.
pub(crate) fn annotation_changes(chaperon: &PodChaperon, pod: &Pod) -> BTreeMap<String, Option<String>> {
    let of_source = Updates::read(chaperon.annotation(keys::UPDATES)).annotations;
    let old = chaperon.metadata.annotations.as_ref();
    let new = pod.metadata.annotations.as_ref();
    let set =
        new.into_iter().flatten().filter(|(key, value)| old.and_then(|old| old.get(*key)) != Some(*value));
    let unset = old.into_iter().flatten().filter(|(key, _)| !new.is_some_and(|new| new.contains_key(*key)));
    set.map(|(key, value)| (key.clone(), Some(value.clone())))
        .chain(unset.map(|(key, _)| (key.clone(), None)))
        .filter(|(key, _)| !keys::is_ours(key) && !of_source.contains_key(key))
        .collect()
}
