//! Room that is made for real pods.

use super::*;
use crate::observe::BudgetSeen;

/// An ordinary pod; a node has 1000 milli CPU.
fn asking(name: &str, milli: i64, priority: i32, node: Option<&str>) -> Value {
    let requests = json!({"requests": {"cpu": format!("{milli}m")}});
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("pod-{name}"), "resourceVersion": "1",
            "labels": {"app": name}},
        "spec": {"schedulerName": "admiralty-candidate", "priority": priority, "nodeName": node.unwrap_or_default(),
            "containers": [{"name": "a", "resources": requests}]},
    })
}

fn seen(raw: Value) -> PodSeen {
    PodSeen::read(&serde_json::from_value(raw).expect("a pod"))
}

fn low(name: &str, milli: i64, node: &str) -> PodSeen {
    seen(asking(name, milli, 0, Some(node)))
}

fn urgent(name: &str) -> PodSeen {
    seen(asking(name, 900, 10, None))
}

/// What an action does to which pod.
fn brief(action: &Action) -> String {
    let pod = |name: &Name| name.name.to_string();
    match action {
        Action::RefusePod { pod: name, nomination, .. } => format!("refuse {} {nomination:?}", pod(name)),
        Action::Unnominate { pod: name, .. } => format!("unnominate {}", pod(name)),
        Action::Disrupt(eviction) => format!("disrupt {}", pod(&eviction.victim)),
        Action::Evict(eviction) => format!("evict {}", pod(&eviction.victim)),
        Action::TellVictim(eviction) => format!("tell {}", pod(&eviction.victim)),
        Action::Bind { pod: name, node, .. } => format!("bind {} {node}", pod(name)),
        other => format!("{other:?}"),
    }
}

impl Bench {
    /// What the model wants now, in words.
    #[track_caller]
    fn check(&mut self, want: &[&str]) -> Vec<Action> {
        let wanted = self.wants();
        assert_eq!(wanted.iter().map(brief).collect::<Vec<_>>(), want);
        wanted
    }

    /// The same, and all of it is done.
    #[track_caller]
    fn check_done(&mut self, want: &[&str]) {
        for action in self.check(want) {
            self.done(&action);
        }
    }
}

#[test]
fn a_pod_of_lower_priority_goes_and_the_other_takes_its_place() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(low("x", 600, "n1"));
    bench.pod(urgent("u"));
    let wanted = bench.check(&["refuse u Node(\"n1\")", "disrupt x"]);
    let [Action::RefusePod { message, .. }, Action::Disrupt(eviction)] = wanted.as_slice() else { panic!() };
    assert_eq!(
        message,
        "0/1 nodes are available: 1 Insufficient cpu. \
         preemption: found a potential placement for pod on node n1, preempting 1 victims"
    );
    let whole = Eviction {
        victim: Name::new("shop", "x"),
        uid: Arc::from("pod-x"),
        node: Arc::from("n1"),
        preemptor: Name::new("shop", "u"),
        preemptor_uid: Arc::from("pod-u"),
        scheduler: "admiralty-candidate".to_owned(),
    };
    assert_eq!(*eviction, whole);
    wanted.iter().for_each(|action| bench.done(action));
    bench.check_done(&["evict x"]);
    bench.check_done(&["tell x"]);
    bench.see(gone("x"));
    bench.check(&["bind u n1"]);
    assert_eq!((bench.model.counts.preemptions, &bench.model.counts.victims), (1, &vec![1]));
}

#[test]
fn a_pod_is_not_tried_before_all_were_asked_and_is_when_they_went_meanwhile() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(low("x", 400, "n1"));
    bench.pod(low("y", 400, "n1"));
    bench.pod(urgent("u"));
    bench.check_done(&["refuse u Node(\"n1\")", "disrupt x", "disrupt y"]);
    let evictions = bench.check(&["evict x", "evict y"]);
    bench.done(&evictions[0]);
    bench.see(gone("x"));
    bench.see(gone("y"));
    bench.now += 20_000;
    bench.check(&["tell x"]);
    bench.done(&evictions[1]);
    bench.check(&["tell y", "bind u n1"]);
}

#[test]
fn while_victims_take_their_time_the_room_is_kept_from_others_of_the_priority() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(low("x", 600, "n1"));
    bench.pod(urgent("u"));
    bench.check_done(&["refuse u Node(\"n1\")", "disrupt x"]);
    bench.check_done(&["evict x"]);
    bench.check_done(&["tell x"]);
    bench.pod(seen(asking("equal", 400, 10, None)));
    bench.check(&["refuse equal Keep"]);
    bench.pod(seen(asking("higher", 400, 11, None)));
    bench.check(&["bind higher n1"]);
}

#[test]
fn a_pod_of_lower_priority_that_waits_for_the_node_waits_no_longer() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(low("x", 900, "n1"));
    let mut waiting = asking("w", 900, 5, None);
    waiting["status"] = json!({"nominatedNodeName": "n1"});
    bench.pod(seen(waiting));
    bench.check_done(&["refuse w Keep", "disrupt x"]);
    bench.pod(urgent("u"));
    bench.check(&["evict x", "refuse u Node(\"n1\")", "disrupt x", "unnominate w"]);
    assert_eq!(bench.model.snapshot.nominator().node_of("pod-w"), None);
}

#[test]
fn a_promise_makes_no_room_and_is_made_none() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    bench.pod(urgent("u"));
    bench.check(&["refuse u Keep"]);
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(low("x", 600, "n1"));
    let mut raw = raw_chaperon("a", &[("attempt", "1")], 7);
    raw["spec"]["priority"] = json!(10);
    bench.see(Seen::Chaperon(Change::Is(ChaperonSeen::read(&serde_json::from_value(raw).expect("one")))));
    let wanted = bench.admit();
    let [Action::Refuse { message, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!(
        message,
        "0/1 nodes are available: 1 Insufficient cpu. Pods of lower priority could make way."
    );
}

#[test]
fn a_refusal_of_a_real_pod_does_not_speak_for_chaperons_like_it() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(low("x", 600, "n1"));
    bench.pod(pod("y", false, None));
    bench.chaperon("a", &[("attempt", "1")]);
    for action in bench.admit() {
        if let Action::Refuse { message, .. } = action {
            assert_eq!(message, "0/1 nodes are available: 1 Insufficient cpu.");
        }
    }
}

#[test]
fn a_delegate_without_a_place_makes_others_go() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(low("x", 600, "n1"));
    bench.chaperon("a", &[("is-allowed", "true"), ("grant", "here")]);
    let mut delegate = pod("a", true, None);
    let raw = asking("a", 900, 10, None);
    delegate.info = Some(Arc::new(PodInfo::parse(&raw).expect("a pod")));
    bench.pod(delegate);
    bench.check(&["refuse a Node(\"n1\")", "disrupt x"]);
}

#[test]
fn whom_a_budget_protects_is_spared_if_others_can_go() {
    let mut bench = Bench::with_nodes(&["n1", "n2"]);
    bench.pod(low("protected", 600, "n1"));
    bench.pod(seen(asking("other", 600, 5, Some("n2"))));
    let budget = json!({"metadata": {"namespace": "shop", "name": "b"},
        "spec": {"selector": {"matchLabels": {"app": "protected"}}}, "status": {"disruptionsAllowed": 0}});
    bench.see(Seen::Budget(Change::Is(BudgetSeen::read(Name::new("shop", "b"), &budget))));
    bench.pod(urgent("u"));
    bench.check(&["refuse u Node(\"n2\")", "disrupt other"]);
    bench.see(Seen::Budget(Change::Gone(Name::new("shop", "b"))));
    bench.pod(urgent("v"));
    bench.check(&["refuse v Node(\"n1\")", "disrupt protected"]);
}

#[test]
fn nothing_is_decided_before_budgets_are_known() {
    let mut bench = Bench::unsynced();
    bench.see(Seen::Node(Change::All(vec![node("n1", json!({}))])));
    bench.see(Seen::Chaperon(Change::All(vec![])));
    bench.see(Seen::Pod(Change::All(vec![low("x", 600, "n1"), urgent("u")])));
    assert_eq!(bench.wants(), []);
    bench.see(Seen::Budget(Change::All(vec![])));
    bench.check(&["refuse u Node(\"n1\")", "disrupt x"]);
}

#[test]
fn who_is_on_the_way_out_is_not_asked_again_after_a_restart() {
    let mut bench = Bench::with_nodes(&["n1"]);
    let mut leaving = asking("x", 600, 0, Some("n1"));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    leaving["status"] = json!({"conditions": [{"type": "DisruptionTarget", "status": "True",
        "reason": "PreemptionByScheduler"}]});
    bench.pod(seen(leaving));
    let mut waiting = asking("u", 900, 10, None);
    waiting["status"] = json!({"nominatedNodeName": "n1"});
    bench.pod(seen(waiting));
    bench.check(&["refuse u Keep"]);
    bench.see(gone("x"));
    bench.now += 20_000;
    bench.check(&["bind u n1"]);
}

#[test]
fn a_call_without_an_answer_is_repeated_as_long_as_the_room_is_needed() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(low("x", 600, "n1"));
    bench.pod(urgent("u"));
    let wanted = bench.check(&["refuse u Node(\"n1\")", "disrupt x"]);
    bench.done(&wanted[0]);
    bench.end(&wanted[1], Outcome::Unknown);
    bench.now += RETRY_MS;
    let wanted = bench.check(&["disrupt x"]);
    bench.end(&wanted[0], Outcome::Unknown);
    bench.see(gone("u"));
    bench.now += RETRY_MS;
    bench.check(&[]);
}

#[test]
fn who_may_not_be_told_is_not_deleted() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(low("x", 600, "n1"));
    bench.pod(urgent("u"));
    let wanted = bench.check(&["refuse u Node(\"n1\")", "disrupt x"]);
    bench.done(&wanted[0]);
    bench.end(&wanted[1], Outcome::Denied("no".to_owned()));
    bench.check(&[]);
    assert!(!bench.model.snapshot.nominator().is_making_room("pod-u"));
}

#[test]
fn a_pod_for_which_no_room_can_be_made_any_more_waits_for_no_node() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(seen(asking("x", 600, 20, Some("n1"))));
    let mut waiting = asking("u", 900, 10, None);
    waiting["status"] = json!({"nominatedNodeName": "n1"});
    bench.pod(seen(waiting));
    bench.check(&["refuse u Clear"]);
    assert!(bench.model.snapshot.nominator().is_empty());
}

#[test]
fn what_is_said_while_something_is_being_said_is_said_next() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(seen(asking("x", 600, 20, Some("n1"))));
    bench.pod(urgent("u"));
    let first = bench.check(&["refuse u Keep"]);
    bench.pod(low("y", 300, "n1"));
    bench.see(gone("x"));
    bench.now += 20_000;
    bench.check(&["disrupt y"]);
    bench.done(&first[0]);
    bench.check(&["refuse u Node(\"n1\")"]);
}
