//! What comes too late, or again: refusals by kubelets, and our own that were not answered.

use super::*;

fn allowed_on(node: &str) -> Vec<(&'static str, String)> {
    let mut annotations = reserved_on(node);
    annotations.push(("is-allowed", "true".to_owned()));
    annotations
}

impl Bench {
    fn with_status(&mut self, name: &str, node: &str, status: Value) {
        self.version += 1;
        let mut raw = raw_chaperon(name, &pairs(&allowed_on(node)), self.version);
        raw["status"] = status;
        let seen = ChaperonSeen::read(&serde_json::from_value(raw).expect("a chaperon"));
        self.see(Seen::Chaperon(Change::Is(seen)));
    }

    fn refused_by_node(&mut self, name: &str, node: &str) {
        let condition = json!({"type": "DelegateCreated", "status": "False", "reason": "RefusedByNode"});
        self.with_status(name, node, json!({"conditions": [condition]}));
    }

    /// A chaperon whose delegate is bound. Returns its node.
    fn bound(&mut self, name: &str) -> String {
        let node = self.reserve(name);
        self.chaperon(name, &pairs(&allowed_on(&node)));
        self.pod(pod(name, true, Some(&node)));
        node
    }

    fn avoided(&self, name: &str) -> usize {
        let uid = Arc::from(format!("uid-{name}"));
        self.model.avoided(&Name::new("shop", name), Some(&uid)).len()
    }
}

fn other(node: &str) -> &'static str {
    if node == "n1" { "n2" } else { "n1" }
}

#[test]
fn a_delegate_that_a_kubelet_refused_goes_elsewhere_next() {
    let mut bench = Bench::with_nodes(&["n1", "n2"]);
    let first = bench.bound("a");
    bench.see(gone("a"));
    assert_eq!(bench.held("a").as_deref(), Some(first.as_str()), "not known yet");
    bench.refused_by_node("a", &first);
    assert_eq!(bench.held("a"), None);
    bench.pod(pod("a", true, None));
    assert_binds(&bench.wants(), "a", other(&first));
}

#[test]
fn a_refusal_by_a_kubelet_counts_also_if_it_is_seen_before_the_pod_goes() {
    let mut bench = Bench::with_nodes(&["n1", "n2"]);
    let first = bench.bound("a");
    bench.refused_by_node("a", &first);
    bench.see(gone("a"));
    assert_eq!(bench.held("a"), None);
    bench.pod(pod("a", true, None));
    assert_binds(&bench.wants(), "a", other(&first));
}

#[test]
fn after_a_restart_a_node_that_refused_is_not_held() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.refused_by_node("a", "n1");
    assert_eq!(bench.held("a"), None);
}

#[test]
fn a_node_that_refused_is_tried_again_when_no_other_fits() {
    let mut bench = Bench::with_nodes(&["n1"]);
    let first = bench.bound("a");
    bench.see(gone("a"));
    bench.refused_by_node("a", &first);
    bench.pod(pod("a", true, None));
    assert_binds(&bench.wants(), "a", "n1");
}

#[test]
fn a_delegate_that_runs_makes_old_refusals_by_kubelets_forgotten() {
    let mut bench = Bench::with_nodes(&["n1", "n2"]);
    let first = bench.bound("a");
    bench.see(gone("a"));
    bench.refused_by_node("a", &first);
    bench.pod(pod("a", true, Some(other(&first))));
    assert_eq!(bench.avoided("a"), 1);
    bench.with_status("a", &first, json!({"phase": "Running"}));
    assert_eq!(bench.avoided("a"), 0);
    bench.see(gone("a"));
    assert_eq!(bench.held("a").as_deref(), Some(other(&first)), "lost, not refused");
}

#[test]
fn a_refusal_that_was_not_answered_is_not_repeated_once_there_was_room() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    bench.chaperon("b", &[("attempt", "1")]);
    let wanted = bench.admit();
    bench.end(&wanted[0], Outcome::Unknown);
    bench.see(Seen::Node(Change::Is(node("n2", json!({})))));
    let wanted = bench.wants();
    assert_reserves(&wanted, "b", "n2", 1);
    bench.now += RETRY_MS;
    assert_eq!(bench.wants(), [], "the reservation is being written");
    bench.done(&wanted[0]);
    assert_eq!(bench.wants(), []);
}

#[test]
fn a_refusal_of_a_state_that_changed_is_said_again_of_the_new_one() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.reserve("a");
    bench.chaperon("b", &[("attempt", "1")]);
    let wanted = bench.admit();
    let [Action::Refuse { version: old, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!(**old, *bench.version.to_string());
    bench.end(&wanted[0], Outcome::Conflict);
    bench.chaperon("b", &[("attempt", "1"), ("other", "x")]);
    bench.now += CHANGED_MS;
    let wanted = bench.wants();
    let [Action::Refuse { version, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!(**version, *bench.version.to_string());
}

#[test]
fn a_pod_that_was_placed_meanwhile_is_not_refused_again() {
    let mut bench = Bench::with_nodes(&[]);
    bench.pod(pod("x", false, None));
    let wanted = bench.wants();
    let [Action::RefusePod { version, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!(&**version, "1");
    bench.end(&wanted[0], Outcome::Unknown);
    bench.see(Seen::Node(Change::Is(node("n1", json!({})))));
    let bind = bench.wants();
    assert_binds(&bind, "x", "n1");
    bench.done(&bind[0]);
    bench.now += RETRY_MS;
    assert_eq!(bench.wants(), []);
}

#[test]
fn a_chaperon_whose_delegate_is_bound_keeps_no_manifest_and_shares_its_spec() {
    let mut bench = Bench::with_nodes(&["n1", "n2"]);
    for name in ["a", "b"] {
        let node = bench.bound(name);
        // When nobody asks for the template any more.
        bench.model.templates.clear();
        bench.with_status(name, &node, json!({"phase": "Running"}));
    }
    let specs: Vec<_> = bench
        .model
        .chaperons
        .values()
        .map(|chaperon| {
            assert!(chaperon.seen.manifest.is_null());
            Arc::clone(&chaperon.seen.pod.as_ref().expect("a pod").spec)
        })
        .collect();
    assert!(Arc::ptr_eq(&specs[0], &specs[1]));
}
