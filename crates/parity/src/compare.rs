//! Where two answers about one pod differ.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::answer::{Answer, Preemption, Verdict};

/// Says in one line each where the project's answer differs from upstream's; empty if nowhere.
#[must_use]
pub fn differences(document: &Value, ours: &Answer, upstream: &Answer) -> Vec<String> {
    let mut found = Vec::new();
    if !ours.contradiction.is_empty() {
        found.push(format!("contradiction: {}", ours.contradiction));
    }
    if ours.pod != upstream.pod {
        found.push(format!("answered about {}, upstream about {}", ours.pod, upstream.pod));
        return found;
    }
    if broken_for_preemption(ours, upstream) {
        return found;
    }
    if ours.verdict != upstream.verdict {
        let says = |answer: &Answer| format!("{:?} {}", answer.verdict, answer.message);
        found.push(format!("verdict: {}; upstream: {}", says(ours), says(upstream)));
        return found;
    }
    let message = message(ours, upstream);
    let mut check = |what: &str, ours: &dyn std::fmt::Debug, upstream: &dyn std::fmt::Debug| {
        let (ours, upstream) = (format!("{ours:?}"), format!("{upstream:?}"));
        if ours != upstream {
            found.push(format!("{what}: {ours}; upstream: {upstream}"));
        }
    };
    // Which of several nodes is asked first is chance, or in another order.
    if !ours.errors.contains(&message) {
        check("message", &ours.message, &message);
    }
    check("gate", &ours.gate, &upstream.gate);
    check("refused before nodes by", &pre_filter(ours), &pre_filter(upstream));
    if ours.verdict == Verdict::Schedulable {
        check("best", &ours.best, &upstream.best);
        check("placed on", &ours.node, &upstream.node);
        check("written", &ours.writes, &upstream.writes);
        check("storage", &ours.binding, &upstream.binding);
        if ours.totals != upstream.totals {
            found.push(totals(ours, upstream));
        }
    }
    found.extend(nodes(ours, upstream));
    found.extend(preemption(document, ours, upstream));
    found
}

/// The plugin's error that ends upstream's search for room when it meets a claim that is broken on one node. Here that
/// node is one where no room can be made. Upstream lists the errors of several nodes in brackets, in any order.
const BROKEN_CLAIM: &str = "running \"DynamicResources\" filter plugin: ";

fn broken_for_preemption(ours: &Answer, upstream: &Answer) -> bool {
    let problems = upstream.message.trim_start_matches('[').strip_prefix(BROKEN_CLAIM);
    let first = problems.and_then(|problems| problems.split(BROKEN_CLAIM).next());
    let first = first.map(|first| first.trim_end_matches(", ").trim_end_matches(']'));
    first.filter(|_| upstream.verdict == Verdict::Error).is_some_and(|problem| {
        let told = ours.message.split_once(" preemption: ").is_some_and(|(_, told)| told.contains(problem));
        told && ours.verdict == Verdict::Unschedulable
    })
}

/// Upstream's text, apart from what is chance or a defect in it.
fn message(ours: &Answer, upstream: &Answer) -> String {
    let (Some(our), Some(their)) = (&ours.preemption, &upstream.preemption) else {
        return upstream.message.clone();
    };
    let words = |text: String| upstream.message.replace(&placement(their, their), &text);
    match &upstream.pre_filter {
        Some(_) => with_preemption(&ours.message, &upstream.message),
        None => words(placement(our, their)),
    }
}

/// The part of the text that names the node on which room is made. Where there is nothing to choose, that is any of
/// several.
fn placement(chosen: &Preemption, known: &Preemption) -> String {
    let node = &chosen.nominated;
    let victims = known.candidates.iter().find(|candidate| candidate.node == *node);
    let count = victims.map_or(0, |candidate| candidate.victims.len());
    format!("on node {node}, preempting {count} victims")
}

/// Upstream's PostFilter of `DynamicResources` fails with "not found" when another plugin's PreFilter refuses the pod
/// before its own has run; what `DefaultPreemption` would say, which is asked next, is then missing.
fn with_preemption(ours: &str, upstream: &str) -> String {
    let start = upstream.strip_suffix(" not found").filter(|start| start.ends_with('.'));
    let said =
        start.and_then(|start| ours.strip_prefix(start)).is_some_and(|end| end.starts_with(" preemption: "));
    if said { ours.to_owned() } else { upstream.to_owned() }
}

/// From this many nodes on, upstream looks at some of them only when it makes room, and begins at a random one. Our
/// configurations say that it has to look at all.
const SOME_NODES: usize = 100;

fn preemption(document: &Value, ours: &Answer, upstream: &Answer) -> Option<String> {
    let (our, their) = match (&ours.preemption, &upstream.preemption) {
        (None, None) => return None,
        (Some(our), Some(their)) => (our, their),
        _ => return Some("room was made on one side only".to_owned()),
    };
    let nodes: usize = upstream.refused.iter().map(|group| group.nodes.len()).sum();
    let right = if nodes > SOME_NODES && document.get("config").is_none() {
        our.candidates.iter().all(|candidate| their.candidates.contains(candidate))
            && our.nominated.is_empty() == their.nominated.is_empty()
    } else {
        our.candidates == their.candidates
            && our.best == their.best
            && (our.nominated == their.nominated || their.best.contains(&our.nominated))
    };
    (!right).then(|| format!("room is made by {our:?}; upstream: {their:?}"))
}

/// What a difference is about: its first word.
#[must_use]
pub fn subject(difference: &str) -> &str {
    difference.split([':', ' ']).next().unwrap_or_default()
}

/// Upstream names the plugin of a no to all nodes, unless several restrictions had nothing in common.
fn pre_filter(answer: &Answer) -> Option<String> {
    answer.pre_filter.as_ref().map(|no| no.reasons.join(", "))
}

fn totals(ours: &Answer, upstream: &Answer) -> String {
    let mut parts = Vec::new();
    for node in
        ours.totals.keys().chain(upstream.totals.keys().filter(|node| !ours.totals.contains_key(*node)))
    {
        let (ours, upstream) = (ours.totals.get(node), upstream.totals.get(node));
        if ours != upstream {
            parts.push(format!("{node} {ours:?} upstream {upstream:?}"));
        }
    }
    format!("totals of {} nodes: {}", parts.len(), parts.into_iter().take(4).collect::<Vec<_>>().join(", "))
}

fn nodes(ours: &Answer, upstream: &Answer) -> Option<String> {
    if ours.refused == upstream.refused {
        return None;
    }
    let (ours, upstream) = (by_node(ours), by_node(upstream));
    let mut parts = Vec::new();
    for node in ours.keys().chain(upstream.keys().filter(|node| !ours.contains_key(*node))) {
        let (ours, upstream) = (ours.get(node), upstream.get(node));
        if ours != upstream {
            parts.push(format!("{node} {ours:?} upstream {upstream:?}"));
        }
    }
    let shown = parts.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
    Some(format!("{} nodes refused otherwise: {shown}", parts.len()))
}

fn by_node(answer: &Answer) -> BTreeMap<&str, String> {
    let mut nodes = BTreeMap::new();
    for group in &answer.refused {
        let no = &group.refusal;
        for node in &group.nodes {
            nodes.insert(node.as_str(), format!("{} {} {:?}", no.plugin, no.code, no.reasons));
        }
    }
    nodes
}
