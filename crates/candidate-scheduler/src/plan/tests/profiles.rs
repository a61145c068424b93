//! Ordinary pods of other profiles, in a cluster that is a target or is none.

use scheduling::config::Config;
use scheduling::{DeviceClass, Owner, OwnerKind};

use super::*;

/// An ordinary cluster whose pods of two profiles are placed.
fn alone(names: &[&str]) -> Bench {
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "podInitialBackoffSeconds": 4, "podMaxBackoffSeconds": 4,
        "profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": "packing", "pluginConfig": [{
            "name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}},
        }]}],
    });
    let config = Config::parse(&config).expect("a configuration");
    let settings = Settings { config, chaperons: false, ..Settings::default() };
    let mut bench = Bench { model: Model::new(settings), now: 100_000, version: 100, open: Vec::new() };
    bench.see(Seen::Node(Change::All(names.iter().map(|name| node(name, json!({}))).collect())));
    bench.see(Seen::Pod(Change::All(vec![])));
    bench.see(Seen::Budget(Change::All(vec![])));
    bench
}

/// A pod of a profile that asks for some CPU.
fn ordinary(name: &str, profile: &str, cpu: &str, node: Option<&str>) -> PodSeen {
    let raw = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("pod-{name}"), "resourceVersion": "1",
            "labels": {"app": "web"}},
        "spec": {"schedulerName": profile, "nodeName": node,
            "containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]},
    });
    PodSeen::read(&serde_json::from_value(raw).expect("a pod"))
}

#[track_caller]
fn told(action: &Action) -> (&str, Result<&str, &str>) {
    let Action::Tell(story) = action else { panic!("no event: {action:?}") };
    (&story.scheduler, story.end.as_ref().map(|node| &**node).map_err(String::as_str))
}

#[test]
fn each_profile_places_its_pods_by_its_own_rules_and_others_are_left_alone() {
    let mut bench = alone(&["n1", "n2"]);
    bench.pod(ordinary("there", "other", "200m", Some("n1")));
    for (name, profile, want) in [("a", "default-scheduler", "n2"), ("b", "packing", "n1")] {
        bench.pod(ordinary(name, profile, "100m", None));
        assert_binds(&bench.wants(), name, want);
        bench.see(Seen::Pod(Change::Gone(Name::new("shop", name))));
    }
    bench.pod(ordinary("c", "other", "100m", None));
    assert_eq!(bench.wants(), []);
    assert!(bench.open.is_empty(), "no summary is published: {:?}", bench.open);
}

#[test]
fn what_became_of_an_ordinary_pod_is_recorded_in_upstreams_words() {
    let mut bench = alone(&["n1"]);
    bench.pod(ordinary("large", "default-scheduler", "2", None));
    let wanted = bench.wants();
    let [tell, Action::RefusePod { reason, message, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    let text = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
        1 Preemption is not helpful for scheduling.";
    assert_eq!(told(tell), ("default-scheduler", Err(text)));
    assert_eq!((*reason, message.as_str()), ("Unschedulable", text));
    bench.pod(ordinary("small", "packing", "100m", None));
    let wanted = bench.wants();
    assert_binds(&wanted, "small", "n1");
    bench.done(&wanted[0]);
    let wanted = bench.wants();
    assert_eq!(told(&wanted[0]), ("packing", Ok("n1")));
}

#[test]
fn a_failure_in_the_same_words_is_counted_up() {
    let mut bench = alone(&["n1"]);
    bench.pod(ordinary("large", "default-scheduler", "2", None));
    let wanted = bench.wants();
    let [Action::Tell(first), Action::RefusePod { .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    let again = |count| Action::TellAgain {
        pod: Name::new("shop", "large"),
        uid: Arc::from("pod-large"),
        event: Arc::clone(&first.event),
        count,
    };
    let later = |bench: &mut Bench| {
        bench.now += 5 * 60 * 1000 + 10_000;
        bench.wants()
    };
    assert_eq!(later(&mut bench), [again(2)]);
    // From now on the count is written every six minutes at most, and not forgotten.
    assert_eq!(later(&mut bench), []);
    bench.now = bench.model.next_wakeup().expect("something is due");
    assert_eq!(bench.wants(), [again(3)]);
    bench.end(&again(3), Outcome::NotFound);
    let wanted = later(&mut bench);
    let [Action::Tell(anew)] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!(anew.event, first.event, "the same story has the same name");
}

#[test]
fn a_failure_in_other_words_is_recorded_anew() {
    let mut bench = alone(&["n1"]);
    bench.pod(ordinary("large", "default-scheduler", "2", None));
    assert_eq!(bench.wants().len(), 2);
    bench.see(Seen::Node(Change::Is(node("n1", json!({"taints": [{"key": "k", "effect": "NoSchedule"}]})))));
    bench.now += 5 * 60 * 1000 + 10_000;
    let wanted = bench.wants();
    let end = told(&wanted[0]).1.expect_err("a failure").to_owned();
    assert!(end.starts_with("0/1 nodes are available: 1 node(s) had untolerated taint(s)."), "{end}");
}

#[test]
fn no_more_is_decided_than_can_be_sent_and_what_is_more_important_comes_first() {
    let mut bench = alone(&["n1"]);
    bench.see(Seen::Node(Change::All(
        (0..4).map(|number| node(&format!("n{number}"), json!({}))).map(with_room).collect(),
    )));
    for number in 0..CALLS + 20 {
        bench.pod(ordinary(&format!("p{number}"), "default-scheduler", "1m", None));
    }
    let wanted = bench.wants();
    assert_eq!(wanted.len(), CALLS);
    bench.pod(important("urgent"));
    assert_eq!(bench.wants(), [], "nothing has ended");
    bench.done(&wanted[0]);
    let next = bench.wants();
    assert!(matches!(&next[..], [Action::Tell(_)]), "{next:?}");
    bench.done(&next[0]);
    assert!(matches!(&bench.wants()[..], [Action::Bind { pod, .. }] if *pod.name == *"urgent"));
}

/// The same node with room for many pods.
fn with_room(node: NodeSeen) -> NodeSeen {
    match node {
        NodeSeen::Usable(mut info) => {
            info.max_pods = 1000;
            NodeSeen::Usable(info)
        }
        unusable @ NodeSeen::Unusable { .. } => unusable,
    }
}

fn important(name: &str) -> PodSeen {
    let raw = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("pod-{name}"), "resourceVersion": "1"},
        "spec": {"schedulerName": "default-scheduler", "priority": 1000, "containers": [{"name": "a"}]},
    });
    PodSeen::read(&serde_json::from_value(raw).expect("a pod"))
}

#[test]
fn a_binding_that_is_denied_is_an_error_and_waits_as_configured() {
    let mut bench = alone(&["n1"]);
    bench.pod(ordinary("a", "default-scheduler", "100m", None));
    let wanted = bench.wants();
    bench.end(&wanted[0], Outcome::Denied("no".to_owned()));
    let said = bench.wants();
    let message = "running Bind plugin \"DefaultBinder\": no";
    assert_eq!(told(&said[0]).1, Err(message));
    assert!(matches!(&said[1], Action::RefusePod { reason: "SchedulerError", .. }), "{said:?}");
    bench.now += 3999;
    assert_eq!(bench.wants(), []);
    bench.now += 1001;
    assert_binds(&bench.wants(), "a", "n1");
}

#[test]
fn a_binding_that_went_unanswered_is_recorded_when_the_watch_shows_it() {
    let mut bench = alone(&["n1"]);
    bench.pod(ordinary("a", "default-scheduler", "100m", None));
    let wanted = bench.wants();
    bench.end(&wanted[0], Outcome::Unknown);
    bench.pod(ordinary("a", "default-scheduler", "100m", Some("n1")));
    bench.now += RETRY_MS;
    let again = bench.wants();
    assert_eq!(again, wanted);
    bench.end(&again[0], Outcome::Conflict);
    assert_eq!(told(&bench.wants()[0]).1, Ok("n1"));
}

#[test]
fn a_delegate_gets_no_event() {
    let mut bench = Bench::with_nodes(&["n1"]);
    bench.pod(pod("x", false, None));
    let wanted = bench.wants();
    assert_binds(&wanted, "x", "n1");
    bench.done(&wanted[0]);
    assert_eq!(bench.wants(), []);
}

#[test]
fn every_try_is_counted_with_its_profile_and_its_end() {
    let mut bench = alone(&["n1"]);
    bench.pod(ordinary("large", "default-scheduler", "2", None));
    bench.pod(ordinary("small", "packing", "100m", None));
    let wanted = bench.wants();
    let bind = wanted.iter().find(|action| matches!(action, Action::Bind { .. })).expect("a binding");
    bench.now += 20;
    bench.done(bind);
    let attempts = bench.model.attempts();
    let brief: Vec<_> =
        attempts.iter().map(|attempt| (attempt.profile.as_str(), attempt.ended, attempt.took_ms)).collect();
    assert_eq!(brief, [("default-scheduler", Ended::Unschedulable, 0), ("packing", Ended::Scheduled, 20)]);
    let waiting = bench.model.waiting();
    assert_eq!(waiting.rejections[&("NodeResourcesFit", "default-scheduler".to_owned())], 1);
    assert_eq!(waiting.incoming[&("active", "UnscheduledPodAdd")], 2);
    assert_eq!((waiting.nodes, waiting.pods), (1, 1));
}

#[test]
fn nothing_is_decided_before_services_and_controllers_were_seen() {
    let config = Config::of_names(&["default-scheduler"]);
    let settings = Settings { config, chaperons: false, owners: true, ..Settings::default() };
    let mut bench = Bench { model: Model::new(settings), now: 100_000, version: 100, open: Vec::new() };
    let host = |name: &str| match node(name, json!({})) {
        NodeSeen::Usable(mut info) => {
            info.labels.insert("kubernetes.io/hostname", name);
            NodeSeen::Usable(info)
        }
        unusable @ NodeSeen::Unusable { .. } => unusable,
    };
    bench.see(Seen::Node(Change::All(vec![host("n1"), host("n2")])));
    bench.see(Seen::Pod(Change::All(vec![ordinary("there", "default-scheduler", "1m", Some("n1"))])));
    bench.see(Seen::Budget(Change::All(vec![])));
    bench.pod(ordinary("a", "default-scheduler", "1m", None));
    assert_eq!(bench.wants(), []);
    let service = Owner::new(OwnerKind::Service, ("shop", "web"), &json!({"app": "web"}));
    bench.see(Seen::Owners(OwnerKind::Service, Change::All(vec![service])));
    for kind in [OwnerKind::ReplicationController, OwnerKind::ReplicaSet, OwnerKind::StatefulSet] {
        assert_eq!(bench.wants(), []);
        bench.see(Seen::Owners(kind, Change::All(vec![])));
    }
    assert_binds(&bench.wants(), "a", "n2");
}

/// A DeviceClass that stands for an extended resource.
fn devices(resource: &str) -> DeviceClass {
    let raw = json!({"metadata": {"name": "gpus"}, "spec": {"extendedResourceName": resource}});
    DeviceClass::parse(&raw).expect("a DeviceClass")
}

/// A pod that asks for a graphics processor.
fn graphics(name: &str) -> PodSeen {
    let raw = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("pod-{name}"), "resourceVersion": "1"},
        "spec": {"schedulerName": "default-scheduler",
            "containers": [{"name": "a", "resources": {"requests": {"example.com/gpu": "1"}}}]},
    });
    PodSeen::read(&serde_json::from_value(raw).expect("a pod"))
}

#[test]
fn a_pod_that_needs_devices_is_refused_in_words_as_soon_as_their_class_is_known() {
    let mut bench = alone(&["n1"]);
    bench.pod(graphics("a"));
    let wanted = bench.wants();
    let absent = told(&wanted[0]).1.expect_err("a failure");
    assert!(absent.starts_with("0/1 nodes are available: 1 Insufficient example.com/gpu."), "{absent}");
    bench.done(&wanted[1]);
    bench.see(Seen::Devices(Change::All(vec![devices("example.com/gpu")])));
    bench.now += 10_000;
    let wanted = bench.wants();
    let [tell, Action::RefusePod { message, .. }] = wanted.as_slice() else { panic!("{wanted:?}") };
    assert_eq!(told(tell).1, Err(message.as_str()));
    let words = "0/1 nodes are available: 1 node(s) have example.com/gpu only through dynamic resources \
        (DeviceClass \"gpus\"), which are not supported yet.";
    assert!(message.starts_with(words), "{message}");
    bench.done(&wanted[1]);
    bench.see(Seen::Devices(Change::Gone(Arc::from("gpus"))));
    bench.now += 10_000;
    let wanted = bench.wants();
    assert!(
        told(&wanted[0]).1.expect_err("a failure").contains("1 Insufficient example.com/gpu"),
        "{wanted:?}"
    );
}

#[test]
fn nothing_is_decided_before_device_classes_were_seen() {
    let config = Config::of_names(&["default-scheduler"]);
    let settings = Settings { config, chaperons: false, devices: true, ..Settings::default() };
    let mut bench = Bench { model: Model::new(settings), now: 100_000, version: 100, open: Vec::new() };
    bench.see(Seen::Node(Change::All(vec![node("n1", json!({}))])));
    bench.see(Seen::Pod(Change::All(vec![ordinary("a", "default-scheduler", "1m", None)])));
    bench.see(Seen::Budget(Change::All(vec![])));
    assert_eq!(bench.wants(), []);
    bench.see(Seen::Devices(Change::All(vec![])));
    assert_binds(&bench.wants(), "a", "n1");
}
