mod followings;
mod late;
mod preemption;
mod profiles;
mod quotas;
mod resource_claims;
mod storage;
mod world;

use serde_json::json;

use super::refusals::REWORD_MS;
use super::*;
use crate::observe::{ChaperonSeen, PodSeen, Refusal};

/// A cluster without a network: remembers what the model wants, and lets the case answer.
struct Bench {
    model: Model,
    now: u64,
    version: u64,
    /// Calls that nobody has answered yet.
    open: Vec<Action>,
}

const PREFIX: &str = "multicluster.admiralty.io/";

impl Bench {
    /// Before anything was seen.
    fn unsynced() -> Self {
        let settings = Settings { cluster_uid: "here".to_owned(), ..Settings::default() };
        Self { model: Model::new(settings), now: 100_000, version: 100, open: Vec::new() }
    }

    /// Started, with nodes of 1 CPU each.
    fn with_nodes(names: &[&str]) -> Self {
        let mut bench = Self::unsynced();
        bench.model.see(Seen::Node(Change::All(names.iter().map(|name| node(name, json!({}))).collect())), 0);
        bench.model.see(Seen::Pod(Change::All(vec![])), 0);
        bench.model.see(Seen::Chaperon(Change::All(vec![])), 0);
        bench.model.see(Seen::Budget(Change::All(vec![])), 0);
        bench
    }

    fn see(&mut self, seen: Seen) {
        self.model.see(seen, self.now);
    }

    fn chaperon(&mut self, name: &str, annotations: &[(&str, &str)]) {
        self.version += 1;
        let seen = chaperon(name, annotations, self.version);
        self.see(Seen::Chaperon(Change::Is(seen)));
    }

    fn pod(&mut self, seen: PodSeen) {
        self.see(Seen::Pod(Change::Is(seen)));
    }

    /// What the model wants now, without dry runs and summaries.
    fn wants(&mut self) -> Vec<Action> {
        let actions = self.model.decide(self.now);
        self.rests();
        let aside = |action: &Action| {
            matches!(action, Action::DryRun { .. } | Action::CreateSummary(_) | Action::PatchSummary(_))
        };
        let (aside, wanted): (Vec<_>, Vec<_>) = actions.into_iter().partition(aside);
        self.open.extend(aside);
        wanted
    }

    /// Whoever decides does not look again at once, and so on for ever.
    #[track_caller]
    fn rests(&self) {
        let due = self.model.next_wakeup();
        assert!(due.is_none_or(|due| due > self.now), "looks again at once: {due:?} at {}", self.now);
    }

    /// Answers dry runs with the pod as it is, and says what the model wants then.
    fn admit(&mut self) -> Vec<Action> {
        self.answer_dry_runs(|manifest| {
            let pod = json!({"metadata": manifest["metadata"], "spec": manifest["spec"]});
            Outcome::Admitted(Admission::Pod(Arc::new(PodInfo::parse(&pod).expect("a pod"))))
        })
    }

    fn answer_dry_runs(&mut self, answer: impl Fn(&Value) -> Outcome) -> Vec<Action> {
        let mut wanted = self.wants();
        for action in std::mem::take(&mut self.open) {
            if let Action::DryRun { manifest, .. } = &action {
                let outcome = answer(manifest);
                self.model.finish(action, outcome, self.now);
            }
        }
        wanted.extend(self.wants());
        wanted
    }

    fn dry_runs(&mut self) -> usize {
        let wanted = self.wants();
        assert_eq!(wanted, []);
        self.open.iter().filter(|action| matches!(action, Action::DryRun { .. })).count()
    }

    fn end(&mut self, action: &Action, outcome: Outcome) {
        self.model.finish(action.clone(), outcome, self.now);
    }

    fn done(&mut self, action: &Action) {
        self.version += 1;
        let version = Some(Arc::from(self.version.to_string()));
        self.end(action, Outcome::Done { version });
    }

    /// Asks for a chaperon and carries the reservation out. Returns the node.
    fn reserve(&mut self, name: &str) -> String {
        self.chaperon(name, &[("attempt", "1")]);
        let wanted = self.admit();
        let [Action::Reserve { node, .. }] = wanted.as_slice() else { panic!("no reservation: {wanted:?}") };
        self.done(&wanted[0]);
        node.to_string()
    }

    fn held(&self, name: &str) -> Option<String> {
        self.model.snapshot.place_of(&format!("uid-{name}")).map(ToString::to_string)
    }
}

fn node(name: &str, mut spec: Value) -> NodeSeen {
    let status = json!({"allocatable": {"cpu": "1", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}]});
    let raw = json!({"metadata": {"name": name}, "spec": spec.take(), "status": status});
    NodeSeen::read(&serde_json::from_value(raw).expect("a node"))
}

fn spec() -> Value {
    json!({"schedulerName": "admiralty-candidate",
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "600m"}}}]})
}

fn raw_chaperon(name: &str, annotations: &[(&str, &str)], version: u64) -> Value {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), Value::from(*value))).collect();
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
            "resourceVersion": version.to_string(), "annotations": annotations},
        "spec": spec(),
    })
}

fn chaperon(name: &str, annotations: &[(&str, &str)], version: u64) -> ChaperonSeen {
    let raw = raw_chaperon(name, annotations, version);
    ChaperonSeen::read(&serde_json::from_value(raw).expect("a chaperon"))
}

/// The delegate of chaperon `name`, or an ordinary pod, bound or not.
fn pod(name: &str, delegate: bool, node: Option<&str>) -> PodSeen {
    let mut spec = spec();
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
    }
    let owners = json!([{"apiVersion": "multicluster.admiralty.io/v1alpha1", "kind": "PodChaperon",
        "name": name, "uid": format!("uid-{name}"), "controller": true}]);
    let owners = if delegate { owners } else { json!([]) };
    let raw = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("pod-{name}"), "resourceVersion": "1",
            "ownerReferences": owners},
        "spec": spec,
    });
    PodSeen::read(&serde_json::from_value(raw).expect("a pod"))
}

fn gone(name: &str) -> Seen {
    Seen::Pod(Change::Gone(Name::new("shop", name)))
}

fn reserved_on(node: &str) -> Vec<(&'static str, String)> {
    vec![
        ("attempt", "1".to_owned()),
        ("is-reserved", "true".to_owned()),
        ("reserved-node", node.to_owned()),
        ("reserved-attempt", "1".to_owned()),
    ]
}

fn pairs<'a>(annotations: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    annotations.iter().map(|(key, value)| (*key, value.as_str())).collect()
}

#[track_caller]
fn assert_reserves(wanted: &[Action], name: &str, node: &str, attempt: u64) {
    let want = Action::Reserve {
        chaperon: Name::new("shop", name),
        uid: Arc::from(format!("uid-{name}")),
        node: Arc::from(node),
        attempt,
        seconds: 30,
    };
    assert_eq!(wanted, [want]);
}

#[track_caller]
fn assert_binds(wanted: &[Action], name: &str, node: &str) {
    let want = Action::Bind {
        pod: Name::new("shop", name),
        uid: Arc::from(format!("pod-{name}")),
        node: Arc::from(node),
    };
    assert_eq!(wanted, [want]);
}

#[test]
fn an_ask_is_answered_with_a_reservation_of_the_pod_that_admission_returns() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.chaperon("a", &[("attempt", "1")]);
    assert_eq!(bench.dry_runs(), 1);
    let wanted = bench.answer_dry_runs(|_| {
        // A sidecar was injected.
        let pod = json!({"metadata": {}, "spec": {"containers": [
            {"resources": {"requests": {"cpu": "600m"}}}, {"resources": {"requests": {"cpu": "300m"}}}]}});
        Outcome::Admitted(Admission::Pod(Arc::new(PodInfo::parse(&pod).expect("a pod"))))
    });
    assert_reserves(&wanted, "a", "n1", 1);
    assert_eq!(bench.model.snapshot.node("n1").map(|node| node.requested.milli_cpu), Some(900));
}

#[test]
fn equal_asks_share_one_dry_run() {
    let mut bench = Bench::with_nodes(&["n1", "n2", "n3"]);
    for name in ["a", "b", "c"] {
        bench.chaperon(name, &[("attempt", "1")]);
    }
    assert_eq!(bench.dry_runs(), 1);
    assert_eq!(bench.admit().len(), 3);
}

#[test]
fn a_full_cluster_refuses_and_a_new_node_is_a_reason_to_try_again() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    bench.chaperon("b", &[("attempt", "1")]);
    let wanted = bench.admit();
    let [Action::Refuse { message, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!(message, "0/1 nodes are available: 1 Insufficient cpu.");
    bench.done(&wanted[0]);
    assert_eq!(bench.wants(), []);
    bench.see(Seen::Node(Change::Is(node("n2", json!({})))));
    assert_reserves(&bench.wants(), "b", "n2", 1);
}

#[test]
fn the_same_refusal_is_not_written_twice_but_a_new_ask_is_answered() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    bench.chaperon("b", &[("attempt", "1")]);
    let wanted = bench.admit();
    bench.done(&wanted[0]);
    bench.see(Seen::Node(Change::Is(node("n1", json!({"taints": []})))));
    bench.chaperon("b", &[("attempt", "1"), ("other", "x")]);
    assert_eq!(bench.wants(), []);
    bench.chaperon("b", &[("attempt", "2")]);
    let wanted = bench.wants();
    assert!(matches!(wanted.as_slice(), [Action::Refuse { .. }]), "{wanted:?}");
}

#[test]
fn a_refusal_that_stands_from_before_a_restart_is_not_written_again() {
    let mut bench = Bench::with_nodes(&[]);
    let mut raw = raw_chaperon("a", &[("attempt", "1")], 7);
    raw["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "False",
        "message": "no nodes available to schedule pods"}]});
    let seen = ChaperonSeen::read(&serde_json::from_value(raw).expect("a chaperon"));
    bench.see(Seen::Chaperon(Change::Is(seen)));
    assert_eq!(bench.admit(), []);
}

#[test]
fn w3_a_reservation_names_the_ask_and_a_higher_one_renews_it() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    let mut annotations = reserved_on("n1");
    annotations[0].1 = "2".to_owned();
    bench.chaperon("a", &pairs(&annotations));
    let wanted = bench.wants();
    assert_reserves(&wanted, "a", "n1", 2);
    bench.now += 25_000;
    bench.done(&wanted[0]);
    bench.now += 39_000;
    assert_eq!(bench.wants(), []);
    assert_eq!(bench.held("a").as_deref(), Some("n1"));
}

#[test]
fn a_renewal_whose_node_is_no_longer_right_is_taken_back_and_answered_anew() {
    let mut bench = Bench::with_nodes(&["n1", "n2"]);
    let first = bench.reserve("a");
    let other = if first == "n1" { "n2" } else { "n1" };
    bench.see(Seen::Node(Change::Is(node(&first, json!({"unschedulable": true})))));
    let mut annotations = reserved_on(&first);
    annotations[0].1 = "2".to_owned();
    bench.chaperon("a", &pairs(&annotations));
    let wanted = bench.wants();
    assert!(matches!(wanted.as_slice(), [Action::Release { .. }]), "{wanted:?}");
    assert_eq!(bench.held("a").as_deref(), Some(first.as_str()));
    bench.done(&wanted[0]);
    assert_reserves(&bench.wants(), "a", other, 2);
}

#[test]
fn a_reservation_that_was_not_allowed_ends_after_its_time_and_a_margin() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    bench.chaperon("a", &pairs(&reserved_on("n1")));
    let version = bench.version;
    bench.now += 39_999;
    assert_eq!(bench.wants(), []);
    bench.now += 1;
    let wanted = bench.wants();
    let [Action::Release { version: at, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!(**at, *version.to_string());
    // Until the cluster says so it counts.
    assert_eq!(bench.held("a").as_deref(), Some("n1"));
    bench.done(&wanted[0]);
    assert_eq!((bench.held("a"), bench.wants()), (None, vec![]));
}

#[test]
fn an_expired_answer_is_not_given_again_but_a_new_ask_is() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    bench.now += 40_000;
    let wanted = bench.wants();
    bench.done(&wanted[0]);
    bench.chaperon("a", &[("attempt", "1"), ("reserved-attempt", "1")]);
    assert_eq!(bench.admit(), []);
    bench.chaperon("a", &[("attempt", "2"), ("reserved-attempt", "1")]);
    assert_reserves(&bench.admit(), "a", "n1", 2);
}

#[test]
fn w4_what_was_allowed_is_never_taken_back() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    let mut annotations = reserved_on("n1");
    annotations.push(("is-allowed", "true".to_owned()));
    bench.now += 39_000;
    bench.chaperon("a", &pairs(&annotations));
    bench.now += 3_600_000;
    assert_eq!(bench.wants(), []);
    assert_eq!(bench.held("a").as_deref(), Some("n1"));
}

#[test]
fn an_end_that_lost_the_race_against_the_permission_changes_nothing() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    bench.now += 40_000;
    let wanted = bench.wants();
    bench.end(&wanted[0], Outcome::Conflict);
    let mut annotations = reserved_on("n1");
    annotations.push(("is-allowed", "true".to_owned()));
    bench.chaperon("a", &pairs(&annotations));
    bench.now += 100_000;
    assert_eq!((bench.wants(), bench.held("a").as_deref()), (vec![], Some("n1")));
}

#[test]
fn a_reservation_counts_until_its_chaperon_is_gone() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    bench.chaperon("b", &[("attempt", "1")]);
    let wanted = bench.admit();
    assert!(matches!(wanted.as_slice(), [Action::Refuse { .. }]));
    bench.see(Seen::Chaperon(Change::Gone(Name::new("shop", "a"))));
    assert_reserves(&bench.wants(), "b", "n1", 1);
}

#[test]
fn a_state_older_than_our_own_write_is_not_believed() {
    let mut bench = Bench::with_nodes(&["n1", "n2"]);
    bench.chaperon("a", &[("attempt", "1")]);
    let older = chaperon("a", &[("attempt", "1"), ("other", "x")], bench.version + 1);
    bench.version += 1;
    let wanted = bench.admit();
    bench.done(&wanted[0]);
    bench.see(Seen::Chaperon(Change::Is(older)));
    assert_eq!(bench.admit(), []);
    assert!(bench.held("a").is_some());
}

#[test]
fn a_reservation_whose_write_was_not_answered_is_written_again_and_counts_meanwhile() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.chaperon("a", &[("attempt", "1")]);
    let wanted = bench.admit();
    bench.end(&wanted[0], Outcome::Unknown);
    assert_eq!((bench.wants(), bench.held("a").as_deref()), (vec![], Some("n1")));
    bench.now += RETRY_MS;
    assert_eq!(bench.wants(), wanted);
}

#[test]
fn a_reservation_that_cannot_be_written_is_tried_again_after_a_pause() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.chaperon("a", &[("attempt", "1")]);
    let wanted = bench.admit();
    bench.end(&wanted[0], Outcome::Denied("no".to_owned()));
    assert_eq!((bench.wants(), bench.held("a")), (vec![], None));
    bench.now += 2000;
    assert_eq!(bench.wants(), wanted);
}

#[test]
fn after_a_restart_promises_are_counted_before_anything_is_decided() {
    let mut bench = Bench::unsynced();
    bench.see(Seen::Summary(None));
    let mut allowed = reserved_on("n2");
    allowed.push(("is-allowed", "true".to_owned()));
    let chaperons = vec![
        chaperon("new", &[("attempt", "1")], 1),
        chaperon("promised", &pairs(&reserved_on("n1")), 2),
        chaperon("elected", &pairs(&allowed), 3),
    ];
    bench.see(Seen::Chaperon(Change::All(chaperons)));
    bench.see(Seen::Pod(Change::All(vec![])));
    assert_eq!(bench.wants(), []);
    bench.see(Seen::Node(Change::All(vec![node("n1", json!({})), node("n2", json!({}))])));
    bench.see(Seen::Budget(Change::All(vec![])));
    assert_eq!(bench.wants(), []);
    assert!(!bench.model.ready());
    let wanted = bench.admit();
    assert!(bench.model.ready());
    let [Action::Refuse { chaperon, message, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!((&*chaperon.name, message.as_str()), ("new", "0/2 nodes are available: 2 Insufficient cpu."));
    // The promise runs anew.
    bench.now += 39_000;
    assert_eq!(bench.wants(), []);
    bench.now += 1000;
    assert!(matches!(bench.wants().as_slice(), [Action::Release { .. }]));
}

#[test]
fn a_delegate_is_bound_to_the_node_that_was_reserved_for_it_although_that_is_full() {
    let mut bench = Bench::with_nodes(&["n1", "n2"]);
    let node = bench.reserve("a");
    let mut annotations = reserved_on(&node);
    annotations.push(("is-allowed", "true".to_owned()));
    bench.chaperon("a", &pairs(&annotations));
    bench.pod(pod("a", true, None));
    let wanted = bench.wants();
    assert_binds(&wanted, "a", &node);
    assert_eq!(bench.held("a"), None);
    bench.done(&wanted[0]);
    bench.pod(pod("a", true, None));
    assert_eq!(bench.wants(), []);
    bench.pod(pod("a", true, Some(&node)));
    assert_eq!(bench.wants(), []);
    assert_eq!(bench.model.snapshot.node(&node).map(|node| node.requested.milli_cpu), Some(600));
}

#[test]
fn a_delegate_whose_reserved_node_is_no_longer_right_is_scheduled_anew() {
    let mut bench = Bench::with_nodes(&["n1", "n2"]);
    let first = bench.reserve("a");
    let other = if first == "n1" { "n2" } else { "n1" };
    bench.see(Seen::Node(Change::Is(node(&first, json!({"unschedulable": true})))));
    bench.pod(pod("a", true, None));
    assert_binds(&bench.wants(), "a", other);
}

#[test]
fn a_delegate_that_was_lost_finds_its_node_kept() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    let mut annotations = reserved_on("n1");
    annotations.push(("is-allowed", "true".to_owned()));
    bench.chaperon("a", &pairs(&annotations));
    bench.pod(pod("a", true, Some("n1")));
    assert_eq!(bench.held("a"), None);
    bench.see(gone("a"));
    assert_eq!(bench.held("a").as_deref(), Some("n1"));
    bench.chaperon("b", &[("attempt", "1")]);
    assert!(matches!(bench.admit().as_slice(), [Action::Refuse { .. }]));
}

#[test]
fn a_lost_delegate_keeps_no_node_that_is_being_drained() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    let mut annotations = reserved_on("n1");
    annotations.push(("is-allowed", "true".to_owned()));
    bench.chaperon("a", &pairs(&annotations));
    bench.pod(pod("a", true, Some("n1")));
    bench.see(Seen::Node(Change::Is(node("n1", json!({"unschedulable": true})))));
    bench.see(gone("a"));
    assert_eq!(bench.held("a"), None);
}

#[test]
fn a_finished_chaperon_holds_nothing() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    let mut annotations = reserved_on("n1");
    annotations.push(("is-allowed", "true".to_owned()));
    let mut raw = raw_chaperon("a", &pairs(&annotations), bench.version + 5);
    raw["status"] = json!({"phase": "Succeeded"});
    let seen = ChaperonSeen::read(&serde_json::from_value(raw).expect("a chaperon"));
    bench.see(Seen::Chaperon(Change::Is(seen)));
    assert_eq!((bench.held("a"), bench.wants()), (None, vec![]));
}

#[test]
fn an_ordinary_pod_of_the_scheduler_is_placed_and_one_that_fits_nowhere_is_told_once() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(pod("x", false, None));
    let wanted = bench.wants();
    assert_binds(&wanted, "x", "n1");
    bench.done(&wanted[0]);
    bench.pod(pod("y", false, None));
    let wanted = bench.wants();
    let [Action::RefusePod { message, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    let sentence = "0/1 nodes are available: 1 Insufficient cpu. \
        preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    assert_eq!(message, sentence);
    bench.done(&wanted[0]);
    bench.pod(PodSeen {
        refusal: Some(Refusal { message: message.clone(), since: None }),
        ..pod("y", false, None)
    });
    assert_eq!(bench.wants(), []);
    bench.see(gone("x"));
    assert_binds(&bench.wants(), "y", "n1");
}

#[test]
fn a_binding_that_somebody_was_faster_with_keeps_its_room_until_the_watch_tells() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(pod("x", false, None));
    let wanted = bench.wants();
    bench.end(&wanted[0], Outcome::Conflict);
    assert!(bench.model.snapshot.place_of("pod-x").is_some());
    bench.see(gone("x"));
    assert_eq!((bench.wants(), bench.model.snapshot.place_of("pod-x")), (vec![], None));
}

#[test]
fn a_binding_that_was_denied_gives_its_room_back_and_is_tried_again_after_a_pause() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(pod("x", false, None));
    let wanted = bench.wants();
    bench.end(&wanted[0], Outcome::Denied("no".to_owned()));
    assert_eq!((bench.wants(), bench.model.snapshot.place_of("pod-x")), (vec![], None));
    bench.now += 2000;
    assert_binds(&bench.wants(), "x", "n1");
}

#[test]
fn a_pod_of_another_scheduler_counts_once_it_is_bound() {
    let mut bench = Bench::with_nodes(&["n1"]);
    let other = |node: Option<&str>| {
        let mut pod = pod("x", false, node);
        let info = Arc::make_mut(pod.info.as_mut().expect("a pod"));
        Arc::make_mut(&mut info.spec).scheduler_name = "default-scheduler".into();
        pod
    };
    bench.pod(other(None));
    assert_eq!(bench.wants(), []);
    bench.pod(other(Some("n1")));
    bench.chaperon("a", &[("attempt", "1")]);
    assert!(matches!(bench.admit().as_slice(), [Action::Refuse { .. }]));
    bench.see(Seen::Pod(Change::All(vec![])));
    assert_reserves(&bench.wants(), "a", "n1", 1);
}

#[test]
fn what_admission_refuses_is_said_on_the_chaperon_and_asked_again_when_something_changed() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.chaperon("a", &[("attempt", "1")]);
    let wanted = bench.answer_dry_runs(|_| {
        Outcome::Admitted(Admission::Refused("creating the pod is forbidden: quota".to_owned()))
    });
    let [Action::Refuse { message, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!(message, "creating the pod is forbidden: quota");
    bench.done(&wanted[0]);
    assert_eq!(bench.dry_runs(), 0);
    bench.see(Seen::Admission(Some(Arc::from("elsewhere"))));
    assert_eq!(bench.dry_runs(), 0);
    bench.see(Seen::Admission(Some(Arc::from("shop"))));
    assert_eq!(bench.dry_runs(), 1);
    assert_reserves(&bench.admit(), "a", "n1", 1);
}

#[test]
fn admission_that_cannot_tell_does_not_stop_an_ask() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.chaperon("a", &[("attempt", "1")]);
    let wanted = bench.answer_dry_runs(|_| Outcome::Admitted(Admission::Undecided));
    assert_reserves(&wanted, "a", "n1", 1);
}

#[test]
fn admission_that_does_not_answer_is_asked_again() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.chaperon("a", &[("attempt", "1")]);
    assert_eq!(bench.answer_dry_runs(|_| Outcome::Unknown), []);
    assert_eq!(bench.dry_runs(), 0);
    bench.now += RETRY_MS;
    assert_reserves(&bench.admit(), "a", "n1", 1);
}

#[test]
fn an_answer_is_believed_for_a_minute() {
    let mut bench = Bench::with_nodes(&["n1", "n2", "n3"]);
    bench.reserve("a");
    bench.now += 30_000;
    bench.chaperon("b", &[("attempt", "1")]);
    assert!(matches!(bench.wants().as_slice(), [Action::Reserve { .. }]));
    bench.now += 30_000;
    bench.chaperon("c", &[("attempt", "1")]);
    let _releases = bench.wants();
    assert_eq!(bench.open.iter().filter(|action| matches!(action, Action::DryRun { .. })).count(), 1);
}

#[test]
fn a_pod_with_a_claim_is_refused_in_words() {
    let mut bench = Bench::with_nodes(&["n1"]);
    let mut raw = raw_chaperon("a", &[("attempt", "1")], 5);
    raw["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}]);
    let seen = ChaperonSeen::read(&serde_json::from_value(raw).expect("a chaperon"));
    bench.see(Seen::Chaperon(Change::Is(seen)));
    let wanted = bench.admit();
    let [Action::Refuse { message, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!(
        message,
        "0/1 nodes are available: PersistentVolumeClaims are not supported yet (volume \"data\")."
    );
}

#[test]
fn a_chaperon_that_cannot_be_read_is_refused_in_words() {
    let mut bench = Bench::with_nodes(&["n1"]);
    let mut raw = raw_chaperon("a", &[("attempt", "1")], 5);
    raw["spec"]["priority"] = json!("high");
    let seen = ChaperonSeen::read(&serde_json::from_value(raw).expect("a chaperon"));
    bench.see(Seen::Chaperon(Change::Is(seen)));
    let wanted = bench.wants();
    let [Action::Refuse { message, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!(message, "the spec cannot be read: spec.priority: must be an integer of at most 64 bits");
}

#[test]
fn a_settled_world_wants_nothing_and_sleeps() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.see(Seen::Summary(None));
    let _summary = bench.wants();
    for action in std::mem::take(&mut bench.open) {
        bench.done(&action);
    }
    assert_eq!((bench.wants(), bench.open.len(), bench.model.next_wakeup()), (vec![], 0, None));
}

#[test]
fn other_words_for_the_same_refusal_wait_and_only_the_last_are_written() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    bench.chaperon("b", &[("attempt", "1")]);
    let wanted = bench.admit();
    bench.done(&wanted[0]);
    for name in ["n2", "n3"] {
        bench.see(Seen::Node(Change::Is(node(name, json!({"unschedulable": true})))));
        assert_eq!(bench.wants(), []);
    }
    bench.now += REWORD_MS;
    let wanted = bench.wants();
    let [Action::Refuse { message, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!(message, "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.");
}
