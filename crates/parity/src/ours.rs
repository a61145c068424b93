//! What this project's scheduling framework says about the pods of a document.

use std::cmp::Reverse;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use scheduling::{Code, Diagnosis, Framework, NodeInfo, NodeRefusal, PodInfo, Selection, Snapshot};
use serde_json::Value;

use crate::answer::{Answer, Refusal, Refused, Verdict};

/// The list of a document that has this name; empty if it is absent.
pub(crate) fn list<'a>(document: &'a Value, name: &str) -> &'a [Value] {
    document[name].as_array().map_or(&[], Vec::as_slice)
}

/// Answers for the pending pods of a document, in the order in which the referee answers.
///
/// # Errors
/// When an object of the document cannot be read.
pub fn answers(document: &Value) -> Result<Vec<Answer>> {
    let framework = Framework::builder().build();
    let mut snapshot = snapshot(document)?;
    let sequence = document["sequence"].as_bool().unwrap_or_default();
    let mut pods = Vec::new();
    for raw in list(document, "pending") {
        pods.push(PodInfo::parse(raw).with_context(|| format!("cannot read {}", raw["metadata"]["name"]))?);
    }
    if sequence {
        pods.sort_by_key(|pod| Reverse(pod.spec.priority));
    }
    let mut answers = Vec::with_capacity(pods.len());
    for pod in pods {
        let mut answer = answer(&framework, &pod, &snapshot);
        answer.pod = format!("{}/{}", pod.namespace, pod.name);
        if sequence && let Some(best) = answer.best.first().filter(|_| answer.verdict == Verdict::Schedulable)
        {
            answer.node.clone_from(best);
            snapshot.assume(Arc::new(pod), &Arc::from(best.as_str()));
        }
        answers.push(answer.sorted());
    }
    Ok(answers)
}

fn snapshot(document: &Value) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    for raw in list(document, "nodes") {
        let node =
            NodeInfo::parse(raw).with_context(|| format!("cannot read {}", raw["metadata"]["name"]))?;
        snapshot.set_node(node);
    }
    for raw in list(document, "namespaces") {
        let labels = raw["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
        snapshot.set_namespace(raw["metadata"]["name"].as_str().unwrap_or_default(), labels.collect());
    }
    for raw in list(document, "pods") {
        let pod = PodInfo::parse(raw).with_context(|| format!("cannot read {}", raw["metadata"]["name"]))?;
        snapshot.add_pod(Arc::new(pod));
    }
    Ok(snapshot)
}

fn answer(framework: &Framework, pod: &PodInfo, snapshot: &Snapshot) -> Answer {
    if let Err(no) = framework.pre_enqueue(pod) {
        let mut answer = Answer::new(Verdict::Gated);
        answer.message = no.message();
        answer.gate = Some(refusal(&no));
        return answer;
    }
    match framework.evaluate(pod, snapshot) {
        Ok(selection) => selected(&selection),
        Err(diagnosis) => refused(&diagnosis),
    }
}

fn selected(selection: &Selection) -> Answer {
    let mut answer = Answer::new(Verdict::Schedulable);
    answer.refused = group(&selection.refused);
    answer.feasible = selection.ranked.iter().map(|ranked| ranked.node.to_string()).collect();
    answer.feasible.sort_unstable();
    if selection.ranked.len() > 1 {
        answer.totals =
            selection.ranked.iter().map(|ranked| (ranked.node.to_string(), ranked.score)).collect();
    }
    let best = selection.ranked.iter().filter(|ranked| ranked.score == selection.score);
    answer.best = best.map(|ranked| ranked.node.to_string()).collect();
    // The chosen node is one of them, or the comparison fails.
    if !answer.best.iter().any(|node| **node == *selection.node) {
        answer.best = vec![selection.node.to_string()];
    }
    answer.best.sort_unstable();
    answer
}

fn refused(diagnosis: &Diagnosis) -> Answer {
    let mut answer = Answer::new(Verdict::Unschedulable);
    answer.message = diagnosis.message();
    answer.refused = group(&diagnosis.refused);
    if let Some(message) = &diagnosis.pre_filter {
        answer.pre_filter = Some(Refusal {
            plugin: diagnosis.plugins.iter().copied().collect::<Vec<_>>().join(" "),
            code: String::new(),
            reasons: vec![message.clone()],
        });
    }
    answer
}

fn refusal(no: &scheduling::Refusal) -> Refusal {
    let code = match no.code {
        Code::Unschedulable => "Unschedulable",
        Code::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
    };
    Refusal {
        plugin: no.plugin.to_owned(),
        code: code.to_owned(),
        reasons: no.reasons.iter().map(ToString::to_string).collect(),
    }
}

/// Refusals as the referee prints them, not yet grouped.
fn group(refusals: &[NodeRefusal]) -> Vec<Refused> {
    refusals
        .iter()
        .map(|no| Refused { refusal: refusal(&no.refusal), nodes: vec![no.node.to_string()] })
        .collect()
}
