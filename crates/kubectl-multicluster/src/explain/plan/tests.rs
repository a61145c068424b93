use super::{Delegate, Observed, Place, State, plan};
use api::{Remote, keys};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn waiting(message: &str) -> Observed {
    let place = |name: &str| Place {
        target: name.to_owned(),
        node: format!("admiralty-{name}"),
        scores: String::new(),
    };
    Observed {
        pod: json!({
            "metadata": {"namespace": "ns", "name": "p"},
            "spec": {"schedulerName": keys::PROXY_SCHEDULER},
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
            ]},
        }),
        namespace: BTreeMap::from([
            (keys::NAMESPACE.to_owned(), keys::ENABLED.to_owned()),
            (keys::ELECT.to_owned(), keys::ALL.to_owned()),
        ]),
        places: vec![place("a"), place("b")],
        delegate: None,
        scheduler_leads: Some(true),
    }
}

fn bound(chaperon: Remote<Value>, unknown: Option<&str>) -> Observed {
    let mut seen = waiting("");
    seen.pod["spec"]["nodeName"] = json!("admiralty-b");
    seen.delegate = Some(Delegate { chaperon, unknown: unknown.map(ToOwned::to_owned) });
    seen
}

fn ordinary(labels: &[(&str, &str)], annotations: &Value) -> Observed {
    let mut seen = waiting("");
    seen.pod["spec"] = json!({"schedulerName": "default-scheduler"});
    seen.pod["metadata"]["annotations"] = annotations.clone();
    seen.namespace = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    seen
}

#[track_caller]
fn check(seen: &Observed, state: State, headline: &str, rows: &[&str]) {
    let got = plan(seen);
    assert_eq!((got.state, got.headline.as_str()), (state, headline), "{:?}", got.details);
    let got: Vec<String> = got
        .targets
        .iter()
        .map(|row| format!("{} {}: {} -> {}", row.target, row.answer, row.reason, row.cure))
        .collect();
    assert_eq!(got, rows);
}

#[test]
fn each_target_has_its_reason_and_its_cure() {
    let message = "0/2 virtual nodes are available: 1 admiralty-a: 0/1 nodes are available: 1 Insufficient cpu; \
                   1 admiralty-b: namespaces \"ns\" not found.";
    check(
        &waiting(message),
        State::Waiting,
        "Pod ns/p waits: no target takes it.",
        &[
            "a refused: 0/1 nodes are available: 1 Insufficient cpu -> ask for less, add nodes there, or remove pods",
            "b refused: namespaces \"ns\" not found -> create the namespace in that cluster",
        ],
    );
}

#[test]
fn a_message_that_is_not_about_targets_is_passed_on() {
    check(
        &waiting("claims are not supported yet"),
        State::Waiting,
        "Pod ns/p waits: claims are not supported yet",
        &["a not asked: no answer yet -> ", "b not asked: no answer yet -> "],
    );
}

#[test]
fn gates_are_named() {
    let mut seen = waiting("");
    seen.pod["spec"]["schedulingGates"] = json!([{"name": "example.com/a"}, {"name": "example.com/b"}]);
    let headline = "Pod ns/p waits for its scheduling gates: example.com/a, example.com/b.";
    check(&seen, State::Gated, headline, &[]);
}

#[test]
fn an_elected_target_is_named_with_what_it_says() {
    let refused = json!({"status": {"conditions": [
        {"type": "DelegateCreated", "status": "False", "reason": "Forbidden", "message": "exceeded quota: q"},
    ]}});
    check(
        &bound(Remote::Present(refused), None),
        State::Elected,
        "Pod ns/p was elected in target b.",
        &[
            "b elected: the delegate cannot be created: exceeded quota: q -> raise the ResourceQuota there, or remove pods",
        ],
    );
    let runs = json!({"status": {"phase": "Running"}});
    check(
        &bound(Remote::Present(runs), None),
        State::Elected,
        "Pod ns/p was elected in target b.",
        &["b elected: the delegate is Running -> "],
    );
}

#[test]
fn a_target_that_cannot_be_asked_is_not_said_to_have_nothing() {
    check(
        &bound(Remote::Unknown, Some("no route")),
        State::Elected,
        "Pod ns/p was elected in target b.",
        &["b elected: the target was not asked: no route -> "],
    );
}

#[test]
fn a_pod_that_is_not_elected_says_why() {
    let enabled = (keys::NAMESPACE, keys::ENABLED);
    let not = State::NotElected;
    check(
        &ordinary(&[], &json!({})),
        not,
        "Pod ns/p stays in this cluster: its namespace lacks the label multicluster-scheduler=enabled.",
        &[],
    );
    check(
        &ordinary(&[enabled], &json!({})),
        not,
        "Pod ns/p stays in this cluster: neither it nor its namespace elects (annotation or label multicluster.admiralty.io/elect).",
        &[],
    );
    check(
        &ordinary(&[enabled], &json!({keys::ELECT: keys::NEVER})),
        not,
        "Pod ns/p stays in this cluster: it opts out.",
        &[],
    );
    check(
        &ordinary(&[enabled], &json!({keys::ELECT: ""})),
        not,
        "Pod ns/p stays in this cluster: the webhook did not see its creation.",
        &[],
    );
}

#[test]
fn a_terminating_pod_says_for_what_it_waits() {
    let mut seen = bound(Remote::Absent, None);
    seen.pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let headline = "Pod ns/p is being deleted, and waits until its target confirms that it has stopped.";
    check(&seen, State::Terminating, headline, &[]);
}

#[test]
fn what_is_published_about_targets_is_told_with_the_weights_of_the_pod() {
    let mut seen = waiting("");
    seen.places[0].scores = "cost 80".to_owned();
    assert_eq!(plan(&seen).details, ["scores of targets now: a has cost 80"]);
    seen.places[1].scores = "cost 20 (too old)".to_owned();
    seen.pod["metadata"]["annotations"] = json!({keys::SCORE_WEIGHT: "cost=5"});
    let want = "scores of targets now (the pod weighs them cost=5): a has cost 80; b has cost 20 (too old)";
    assert_eq!(plan(&seen).details, [want]);
}
