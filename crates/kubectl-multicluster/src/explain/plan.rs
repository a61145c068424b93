//! From what was seen of a pod to the words for it.

use super::cures::cure;
use api::election::{Election, annotation, election, has, spec_text};
use api::{Remote, explanation, keys};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A target that serves the pod's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// `NAME` or `NAMESPACE/NAME`.
    pub(super) target: String,
    /// Its virtual node.
    pub(super) node: String,
    /// What is published about it, in words.
    pub(super) scores: String,
}

/// What the elected target has of the pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Delegate {
    /// The PodChaperon.
    pub(super) chaperon: Remote<Value>,
    /// Why it is unknown.
    pub(super) unknown: Option<String>,
}

/// All that was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Observed {
    /// The pod.
    pub(super) pod: Value,
    /// Labels of its namespace.
    pub(super) namespace: BTreeMap<String, String>,
    /// The targets that serve it.
    pub(super) places: Vec<Place>,
    /// What the elected target has of it; `None` when the pod is not bound to one.
    pub(super) delegate: Option<Delegate>,
    /// Whether a proxy-scheduler is at work; `None`: unknown.
    pub(super) scheduler_leads: Option<bool>,
}

/// What becomes of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum State {
    /// It is an ordinary pod of its own cluster.
    NotElected,
    /// It waits for its scheduling gates.
    Gated,
    /// No target has it yet.
    Waiting,
    /// A target has it.
    Elected,
    /// It has ended.
    Ended,
    /// It is being deleted.
    Terminating,
}

/// One target's part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    /// `NAME` or `NAMESPACE/NAME`.
    pub(super) target: String,
    /// `elected`, `refused` or `not asked`.
    pub(super) answer: String,
    /// Why.
    pub(super) reason: String,
    /// What would change it; empty when nothing is known to.
    pub(super) cure: String,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Explanation {
    /// `NAMESPACE/NAME`.
    pub(super) pod: String,
    /// What becomes of it.
    pub(super) state: State,
    /// One sentence.
    pub(super) headline: String,
    /// More of them.
    pub(super) details: Vec<String>,
    /// Why each target does or does not have it.
    pub(super) targets: Vec<Row>,
}

/// Finds the words.
pub(super) fn plan(seen: &Observed) -> Explanation {
    let text = |pointer: &str| seen.pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let name = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
    let with = |state, headline: String, mut details: Vec<String>, targets: Vec<Row>| {
        if !targets.is_empty() {
            details.extend(scores(seen));
        }
        Explanation { pod: name.clone(), state, headline: format!("Pod {name} {headline}"), details, targets }
    };
    if spec_text(&seen.pod, "schedulerName") != keys::PROXY_SCHEDULER {
        let (reason, cure) = not_elected(seen);
        return with(State::NotElected, format!("stays in this cluster: {reason}."), cure, Vec::new());
    }
    let phase = text("/status/phase");
    if !text("/metadata/deletionTimestamp").is_empty() {
        let headline = "is being deleted, and waits until its target confirms that it has stopped.";
        return with(State::Terminating, headline.to_owned(), progress(seen), Vec::new());
    }
    if let Some(place) = place(seen) {
        let ended = matches!(phase, "Succeeded" | "Failed");
        let state = if ended { State::Ended } else { State::Elected };
        let headline =
            format!("{} in target {}.", if ended { "has ended" } else { "was elected" }, place.target);
        return with(state, headline, progress(seen), vec![elected(seen, place)]);
    }
    if seen.pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|all| !all.is_empty())
    {
        let headline = format!("waits for its scheduling gates: {}.", gates(&seen.pod));
        return with(
            State::Gated,
            headline,
            vec!["No target is asked before they are gone.".to_owned()],
            Vec::new(),
        );
    }
    let (headline, details) = waiting(seen);
    with(State::Waiting, headline, details, rows(seen))
}

/// What others think of the targets that come into question, and how much the pod cares.
fn scores(seen: &Observed) -> Vec<String> {
    let scored: Vec<String> = seen
        .places
        .iter()
        .filter(|place| !place.scores.is_empty())
        .map(|place| format!("{} has {}", place.target, place.scores))
        .collect();
    if scored.is_empty() {
        return Vec::new();
    }
    let own = annotation(&seen.pod, keys::SCORE_WEIGHT);
    let own = own.map(|weights| format!(" (the pod weighs them {weights})")).unwrap_or_default();
    vec![format!("scores of targets now{own}: {}", scored.join("; "))]
}

fn place(seen: &Observed) -> Option<&Place> {
    let node = spec_text(&seen.pod, "nodeName");
    seen.places.iter().find(|place| place.node == node)
}

fn gates(pod: &Value) -> String {
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    let names = gates.into_iter().flatten().filter_map(|gate| gate.get("name")?.as_str());
    names.collect::<Vec<_>>().join(", ")
}

/// Why the webhook let a pod be.
fn not_elected(seen: &Observed) -> (String, Vec<String>) {
    if let Election::Never(reason) = election(&seen.pod) {
        return (reason.to_owned(), Vec::new());
    }
    let label = |key: &str| seen.namespace.get(key).map(String::as_str);
    if label(keys::NAMESPACE) != Some(keys::ENABLED) {
        let reason = format!("its namespace lacks the label {}={}", keys::NAMESPACE, keys::ENABLED);
        return (reason, vec!["Label the namespace, then create the pod anew.".to_owned()]);
    }
    if label(keys::ELECT) != Some(keys::ALL) && !has(&seen.pod, keys::ELECT) {
        let reason = format!("neither it nor its namespace elects (annotation or label {})", keys::ELECT);
        return (reason, vec!["Annotate the pod's template, or label the namespace.".to_owned()]);
    }
    let reason = "the webhook did not see its creation".to_owned();
    let cure = "It was created before the namespace elected, or while no webhook ran: create it anew.";
    (reason, vec![cure.to_owned()])
}

/// The condition of a type: status, reason and message.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let all = object.pointer("/status/conditions")?.as_array()?;
    let found = all.iter().find(|condition| condition["type"] == kind)?;
    let text = |field: &str| found.get(field).and_then(Value::as_str).unwrap_or_default();
    Some((text("status"), text("reason"), text("message")))
}

fn waiting(seen: &Observed) -> (String, Vec<String>) {
    let mut details = Vec::new();
    if let Some(grant) = annotation(&seen.pod, keys::GRANT) {
        details.push(format!("No target has room; one at a time may make it: {grant}."));
    }
    if seen.scheduler_leads == Some(false) {
        details.push("No proxy-scheduler is at work: see kubectl multicluster status.".to_owned());
    }
    let headline = match condition(&seen.pod, "PodScheduled") {
        Some(("False", _, message)) if explanation::parse(message, &nodes(seen)).is_none() => {
            format!("waits: {message}")
        }
        Some(("False", ..)) if seen.places.is_empty() => {
            "waits: no Target or ClusterTarget serves its namespace.".to_owned()
        }
        Some(("False", ..)) => "waits: no target takes it.".to_owned(),
        Some(_) | None => "waits, and nobody has said yet why.".to_owned(),
    };
    (headline, details)
}

fn nodes(seen: &Observed) -> Vec<&str> {
    seen.places.iter().map(|place| place.node.as_str()).collect()
}

fn rows(seen: &Observed) -> Vec<Row> {
    let reasons = condition(&seen.pod, "PodScheduled")
        .filter(|(status, ..)| *status == "False")
        .and_then(|(_, _, message)| explanation::parse(message, &nodes(seen)))
        .unwrap_or_default();
    let row = |place: &Place| {
        let found = reasons.iter().find(|reason| reason.node == place.node);
        let reason = found.map_or_else(|| "no answer yet".to_owned(), |reason| reason.text.clone());
        let answer = if found.is_some() { "refused" } else { "not asked" };
        Row { target: place.target.clone(), answer: answer.to_owned(), cure: cure(&reason), reason }
    };
    seen.places.iter().map(row).collect()
}

/// What the elected target says of the pod.
fn elected(seen: &Observed, place: &Place) -> Row {
    let chaperon = seen.delegate.as_ref().map(|delegate| (&delegate.chaperon, delegate.unknown.as_deref()));
    let reason = match chaperon {
        Some((Remote::Present(chaperon), _)) => delegate_says(chaperon),
        Some((Remote::Absent, _)) => "its PodChaperon is not there (any more)".to_owned(),
        Some((Remote::Unknown, Some(why))) => format!("the target was not asked: {why}"),
        Some((Remote::Unknown, None)) | None => "the target was not asked".to_owned(),
    };
    let cure = cure(&reason);
    Row { target: place.target.clone(), answer: "elected".to_owned(), reason, cure }
}

fn delegate_says(chaperon: &Value) -> String {
    if let Some(("False", _, message)) = condition(chaperon, "DelegateCreated") {
        return format!("the delegate cannot be created: {message}");
    }
    match condition(chaperon, "PodScheduled") {
        Some(("False", _, message)) => format!("the delegate waits for a node: {message}"),
        _ => {
            let phase = chaperon.pointer("/status/phase").and_then(Value::as_str).unwrap_or("unknown");
            format!("the delegate is {phase}")
        }
    }
}

/// What stands on the pod itself.
fn progress(seen: &Observed) -> Vec<String> {
    let mut lines = Vec::new();
    for kind in ["PodScheduled", "Ready"] {
        if let Some((status, reason, message)) = condition(&seen.pod, kind) {
            let because = [reason, message].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
            let because =
                if because.is_empty() { String::new() } else { format!(": {}", because.join(", ")) };
            lines.push(format!("{kind} is {status}{because}"));
        }
    }
    if let Some(epoch) = annotation(&seen.pod, keys::ELECTION_EPOCH) {
        lines.push(format!("election number {epoch}"));
    }
    lines
}

#[cfg(test)]
mod tests;
