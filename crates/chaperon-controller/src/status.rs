//! Statuses as raw JSON: when two say the same, and what is written when no pod says anything.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use api::keys::DELEGATE_CREATED;

/// Type of the condition that says that a deleted delegate's containers were not reported as stopped.
pub const DELEGATE_STOPPED: &str = "DelegateStopped";
/// Type of the condition by which Kubernetes says that a pod ended for no fault of its own.
const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Reason of a delegate that vanished without a recorded end.
pub const LOST: &str = "Lost";

/// Whether two statuses say the same: absent, null and empty are one, and lists keyed by type, name or
/// address have no order.
#[must_use]
pub fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let covered = |of: &Map<String, Value>, by: &Map<String, Value>| {
                of.iter().all(|(key, value)| same(value, by.get(key).unwrap_or(&Value::Null)))
            };
            covered(one, other) && covered(other, one)
        }
        (Value::Array(one), Value::Array(other)) => {
            if one.len() != other.len() {
                return false;
            }
            match one.first().and_then(list_key) {
                Some(key) => one.iter().all(|item| {
                    other
                        .iter()
                        .find(|found| found.get(key) == item.get(key))
                        .is_some_and(|found| same(item, found))
                }),
                None => one.iter().zip(other).all(|(one, other)| same(one, other)),
            }
        }
        _ => one == other || (is_empty(one) && is_empty(other)),
    }
}

fn list_key(item: &Value) -> Option<&'static str> {
    ["type", "name", "ip"].into_iter().find(|key| item.get(key).is_some_and(Value::is_string))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() || fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether a condition is there and `True`.
#[must_use]
pub fn is_true(status: &Value, kind: &str) -> bool {
    api::raw::pod_condition(status, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Whether a condition is there and `False`.
#[must_use]
pub fn is_false(status: &Value, kind: &str) -> bool {
    api::raw::pod_condition(status, kind).is_some_and(|condition| condition["status"] == "False")
}

/// Whether users wait for the change: the first Running or Ready, an end, a disruption.
#[must_use]
pub fn is_urgent(recorded: &Value, new: &Value) -> bool {
    let phase = |status: &Value| status.get("phase").and_then(Value::as_str).unwrap_or_default().to_owned();
    let turned = |kind: &str| is_true(new, kind) && !is_true(recorded, kind);
    api::raw::is_terminal(&phase(new))
        || (phase(new) == "Running" && phase(recorded) != "Running")
        || turned("Ready")
        || turned(DISRUPTION_TARGET)
}

/// Whether a first status says nothing that the source does not know: created, and on its way.
#[must_use]
pub fn is_quiet(recorded: &Value, new: &Value) -> bool {
    let conditions = new.get("conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    is_empty(recorded)
        && new.get("phase").and_then(Value::as_str).is_none_or(|phase| phase == "Pending")
        && new.get("containerStatuses").is_none_or(is_empty)
        && conditions.iter().all(|condition| condition["status"] == "True")
}

/// A condition that is to be in a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its type; its status is `False`.
    pub kind: &'static str,
    /// One word for machines.
    pub reason: String,
    /// What a user can do about it.
    pub message: String,
}

/// A status with a problem in it. The transition time of one that is recorded already stays.
#[must_use]
pub fn with_problem(status: &Value, recorded: &Value, problem: &Problem, now: Timestamp) -> Value {
    let known =
        api::raw::pod_condition(recorded, problem.kind).filter(|condition| condition["status"] == "False");
    let since =
        known.map_or_else(|| json!(now.to_string()), |condition| condition["lastTransitionTime"].clone());
    let condition = json!({"type": problem.kind, "status": "False", "reason": problem.reason,
        "message": problem.message, "lastTransitionTime": since});
    set_condition(status, condition)
}

/// The status of a PodChaperon that has no delegate: nothing runs, and why. What a scheduler said about it
/// before stays.
#[must_use]
pub fn without_delegate(recorded: &Value, problem: &Problem, now: Timestamp) -> Value {
    let mut status = Map::new();
    let had_phase = recorded.get("phase").is_some_and(Value::is_string);
    if had_phase {
        status.insert("phase".to_owned(), json!("Pending"));
    }
    let kept: Vec<Value> = recorded
        .get("conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|condition| !had_phase && condition["type"] == "PodScheduled")
        .cloned()
        .collect();
    status.insert("conditions".to_owned(), Value::Array(kept));
    with_problem(&Value::Object(status), recorded, problem, now)
}

/// The end of a delegate that vanished: what was recorded of it, failed for no fault of its own.
#[must_use]
pub fn lost(recorded: &Value, now: Timestamp) -> Value {
    let message = "the delegate was removed before its end was seen";
    let mut status = recorded.clone();
    if !status.is_object() {
        status = json!({});
    }
    status["phase"] = json!("Failed");
    status["reason"] = json!(LOST);
    status["message"] = json!(message);
    for kind in ["Ready", "ContainersReady"] {
        if is_true(&status, kind) {
            status = set_condition(
                &status,
                json!({"type": kind, "status": "False", "reason": "PodFailed",
                "lastTransitionTime": now.to_string()}),
            );
        }
    }
    set_condition(
        &status,
        json!({"type": DISRUPTION_TARGET, "status": "True", "reason": LOST,
        "message": message, "lastTransitionTime": now.to_string()}),
    )
}

/// The end of a delegate that was stopped because its source was not heard of.
#[must_use]
pub fn fenced(recorded: &Value, now: Timestamp) -> Value {
    let message =
        "the Lease of the source ran out; the delegate was stopped, since the source may have replaced it";
    let mut status = lost(recorded, now);
    status["reason"] = json!(api::keys::LEASE_EXPIRED);
    status["message"] = json!(message);
    status
}

fn set_condition(status: &Value, condition: Value) -> Value {
    let mut status = status.clone();
    let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    match conditions.iter_mut().find(|found| found["type"] == condition["type"]) {
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
    if !status.is_object() {
        status = json!({});
    }
    status["conditions"] = Value::Array(conditions);
    status
}

#[cfg(test)]
mod tests {
    use super::{
        DELEGATE_CREATED, Problem, is_quiet, is_true, is_urgent, lost, same, with_problem, without_delegate,
    };
    use serde_json::{Value, json};

    fn problem() -> Problem {
        Problem {
            kind: DELEGATE_CREATED,
            reason: "Forbidden".to_owned(),
            message: "exceeded quota".to_owned(),
        }
    }

    #[track_caller]
    fn check_same(one: &Value, other: &Value, want: bool) {
        assert_eq!(same(one, other), want);
        assert_eq!(same(other, one), want);
    }

    #[test]
    fn case_035_null_absent_and_empty_say_the_same() {
        check_same(&json!({"a": 1, "b": null, "c": [], "d": {"e": null}}), &json!({"a": 1}), true);
        check_same(&json!({"a": 1}), &json!({"a": 1, "b": 0}), false);
    }

    #[test]
    fn case_035_the_order_of_conditions_says_nothing() {
        let (a, b) = (json!({"type": "A", "status": "True"}), json!({"type": "B", "status": "True"}));
        check_same(&json!({"conditions": [a, b]}), &json!({"conditions": [b, a]}), true);
        check_same(&json!({"conditions": [a]}), &json!({"conditions": [b]}), false);
        check_same(&json!({"l": [1, 2]}), &json!({"l": [2, 1]}), false);
    }

    #[test]
    fn the_first_running_and_ready_and_every_end_are_urgent() {
        let running = json!({"phase": "Running"});
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        assert!(is_urgent(&json!({"phase": "Pending"}), &running));
        assert!(is_urgent(&running, &ready));
        assert!(!is_urgent(&ready, &running));
        assert!(is_urgent(&running, &json!({"phase": "Failed"})));
        assert!(!is_urgent(&Value::Null, &json!({"phase": "Pending"})));
    }

    #[test]
    fn a_fresh_pending_pod_is_no_news_but_a_refused_one_is() {
        let fresh = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]});
        let refused =
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]});
        assert!(is_quiet(&Value::Null, &fresh));
        assert!(!is_quiet(&Value::Null, &refused));
        assert!(!is_quiet(&refused, &fresh), "w3: an old refusal must go at once");
    }

    #[test]
    fn the_same_problem_again_changes_nothing() {
        let (first, second) =
            ("2026-01-01T00:00:00Z".parse().unwrap(), "2026-01-01T00:01:00Z".parse().unwrap());
        let once = with_problem(&Value::Null, &Value::Null, &problem(), first);
        assert_eq!(with_problem(&Value::Null, &once, &problem(), second), once);
        assert_eq!(without_delegate(&once, &problem(), second), once);
    }

    #[test]
    fn case_032_a_refused_create_is_no_end_of_the_work() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert!(without_delegate(&Value::Null, &problem(), now).get("phase").is_none());
        let again = without_delegate(
            &json!({"phase": "Running", "podIP": "1.2.3.4", "containerStatuses": [{"name": "c"}],
            "conditions": [{"type": "Ready", "status": "True"}]}),
            &problem(),
            now,
        );
        assert_eq!(again["phase"], "Pending");
        assert!(again.get("podIP").is_none() && !is_true(&again, "Ready"), "nothing runs: {again}");
    }

    #[test]
    fn case_020_a_lost_delegate_fails_for_no_fault_of_its_own() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let status =
            lost(&json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}), now);
        assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("Lost")));
        assert!(is_true(&status, "DisruptionTarget") && !is_true(&status, "Ready"));
    }
}
