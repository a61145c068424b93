//! Pods whose resource claims get their devices before the pods are bound.

use scheduling::config::Config;
use scheduling::{DeviceClass, FINALIZER, ResourceClaim, ResourceSlice, Step};

use super::*;
use crate::observe::{ClaimsSeen, Read};

fn claim(name: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
            "finalizers": [FINALIZER]},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
            "deviceClassName": "gpus", "allocationMode": "ExactCount", "count": 1}}]}},
    })
}

fn read(raw: &Value) -> Read<ResourceClaim> {
    let claim = ResourceClaim::parse(raw).expect("a claim");
    (Name::new(&claim.namespace, &claim.name), Some(claim))
}

fn is(raw: &Value) -> Seen {
    Seen::Claims(ClaimsSeen::Claim(Change::Is(read(raw))))
}

fn user(name: &str, claim: &str) -> PodSeen {
    let raw = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("pod-{name}"), "resourceVersion": "1"},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "a"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]},
    });
    PodSeen::read(&serde_json::from_value(raw).expect("a pod"))
}

/// A pod without claims.
fn plain(name: &str) -> PodSeen {
    let raw = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("pod-{name}"), "resourceVersion": "1"},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "a"}]},
    });
    PodSeen::read(&serde_json::from_value(raw).expect("a pod"))
}

/// A scheduler of one node with one device, that knows these claims.
fn bench(claims: &[&Value]) -> Bench {
    let config = Config::of_names(&["default-scheduler"]);
    let settings =
        Settings { config, chaperons: false, devices: true, claims: Some(false), ..Settings::default() };
    let mut bench = Bench { model: Model::new(settings), now: 100_000, version: 100, open: Vec::new() };
    bench.see(Seen::Node(Change::All(vec![node("n1", json!({}))])));
    bench.see(Seen::Pod(Change::All(vec![])));
    bench.see(Seen::Budget(Change::All(vec![])));
    let class = json!({"metadata": {"name": "gpus"}});
    bench.see(Seen::Devices(Change::All(vec![DeviceClass::parse(&class).expect("a class")])));
    let slice = json!({"metadata": {"name": "s"}, "spec": {
        "driver": "d", "nodeName": "n1", "devices": [{"name": "g0"}],
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}});
    let slice = (Name::new("", "s"), ResourceSlice::parse(&slice).ok());
    bench.see(Seen::Claims(ClaimsSeen::Slice(Change::All(vec![slice]))));
    bench.see(Seen::Claims(ClaimsSeen::Claim(Change::All(claims.iter().map(|raw| read(raw)).collect()))));
    bench
}

/// The one write for a claim among what is asked for.
#[track_caller]
fn write_of(actions: &[Action]) -> Action {
    let mut writes = actions.iter().filter(|action| matches!(action, Action::BindClaim { .. }));
    let write = writes.next().unwrap_or_else(|| panic!("no claim is written: {actions:?}")).clone();
    assert!(writes.next().is_none(), "{actions:?}");
    write
}

/// The claim as that write leaves it.
fn written(raw: &Value, action: &Action) -> Value {
    let Action::BindClaim { pod, uid, work } = action else { panic!("{action:?}") };
    let Ok(Step::Reserve(patch)) = work.step(raw, (&pod.name, uid), "now") else {
        panic!("nothing to write")
    };
    let mut raw = raw.clone();
    raw["status"] = patch["status"].clone();
    raw["metadata"]["resourceVersion"] = json!("7");
    raw
}

fn done() -> Outcome {
    Outcome::Done { version: Some(Arc::from("7")) }
}

fn binds(actions: &[Action], name: &str) -> bool {
    actions.iter().any(|action| matches!(action, Action::Bind { pod, .. } if *pod.name == *name))
}

#[test]
fn a_pod_is_bound_once_its_claim_is_written() {
    let raw = claim("c");
    let mut bench = bench(&[&raw]);
    bench.pod(user("a", "c"));
    let wanted = bench.wants();
    assert!(!binds(&wanted, "a"), "{wanted:?}");
    let write = write_of(&wanted);
    bench.end(&write, done());
    assert!(binds(&bench.wants(), "a"));
}

#[test]
fn devices_are_promised_until_the_claim_is_seen_with_them_and_free_once_it_is_gone() {
    let (first, second) = (claim("c"), claim("d"));
    let mut bench = bench(&[&first, &second]);
    bench.pod(user("a", "c"));
    let write = write_of(&bench.wants());
    bench.pod(user("b", "d"));
    let refused = bench.wants();
    assert!(
        refused.iter().any(|action| matches!(action, Action::RefusePod { message, .. }
        if message.starts_with("0/1 nodes are available: 1 cannot allocate all claims."))),
        "{refused:?}"
    );
    let allocated = written(&first, &write);
    bench.end(&write, done());
    bench.see(is(&allocated));
    bench.now += 20_000;
    assert!(!bench.wants().iter().any(|action| matches!(action, Action::BindClaim { .. })));
    bench.see(Seen::Claims(ClaimsSeen::Claim(Change::Gone(Name::new("shop", "c")))));
    bench.now += 20_000;
    write_of(&bench.wants());
}

#[test]
fn what_is_being_written_for_a_pod_that_is_gone_is_not_given_to_another() {
    let (first, second) = (claim("c"), claim("d"));
    let mut bench = bench(&[&first, &second]);
    bench.pod(user("a", "c"));
    let write = write_of(&bench.wants());
    bench.see(Seen::Pod(Change::Gone(Name::new("shop", "a"))));
    bench.pod(user("b", "d"));
    assert!(!bench.wants().iter().any(|action| matches!(action, Action::BindClaim { .. })));
    bench.end(&write, Outcome::Denied("claim shop/c got deleted in the meantime".to_owned()));
    bench.now += 20_000;
    let Action::BindClaim { pod, .. } = write_of(&bench.wants()) else { panic!("a write") };
    assert_eq!(&*pod.name, "b");
}

#[test]
fn a_claim_that_cannot_be_written_is_told_and_tried_again() {
    let raw = claim("c");
    let mut bench = bench(&[&raw]);
    bench.pod(user("a", "c"));
    let write = write_of(&bench.wants());
    bench.end(&write, Outcome::Denied("claim shop/c got allocated elsewhere in the meantime".to_owned()));
    let wanted = bench.wants();
    let text =
        "running PreBind plugin \"DynamicResources\": claim shop/c got allocated elsewhere in the meantime";
    assert!(
        wanted.iter().any(|action| matches!(action, Action::RefusePod { message, .. } if message == text)),
        "{wanted:?}"
    );
    bench.now += 20_000;
    write_of(&bench.wants());
}

#[test]
fn a_pod_waits_unseen_for_a_claim_that_does_not_exist() {
    let raw = claim("c");
    let mut bench = bench(&[]);
    bench.pod(user("a", "c"));
    assert_eq!(bench.wants(), []);
    bench.see(is(&raw));
    write_of(&bench.wants());
}

#[test]
fn nothing_is_decided_before_claims_were_seen() {
    let config = Config::of_names(&["default-scheduler"]);
    let settings = Settings { config, chaperons: false, claims: Some(true), ..Settings::default() };
    let mut bench = Bench { model: Model::new(settings), now: 100_000, version: 100, open: Vec::new() };
    bench.see(Seen::Node(Change::All(vec![node("n1", json!({}))])));
    bench.see(Seen::Pod(Change::All(vec![plain("a")])));
    bench.see(Seen::Budget(Change::All(vec![])));
    bench.see(Seen::Claims(ClaimsSeen::Claim(Change::All(vec![]))));
    bench.see(Seen::Claims(ClaimsSeen::Slice(Change::All(vec![]))));
    assert_eq!(bench.wants(), []);
    bench.see(Seen::Claims(ClaimsSeen::Rule(Change::All(vec![]))));
    assert!(binds(&bench.wants(), "a"));
}

#[test]
fn a_delegate_with_resource_claims_is_refused_in_words() {
    let raw = claim("c");
    let mut bench = bench(&[&raw]);
    let pod = json!({
        "metadata": {"name": "a", "namespace": "shop", "uid": "pod-a", "resourceVersion": "1"},
        "spec": {"schedulerName": "admiralty-candidate", "containers": [{"name": "a"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
    });
    bench.pod(PodSeen::read(&serde_json::from_value(pod).expect("a pod")));
    let wanted = bench.wants();
    let text = "0/1 nodes are available: resource claims are not supported yet (claim \"gpu\").";
    assert!(
        wanted.iter().any(|action| matches!(action, Action::RefusePod { message, .. } if message == text)),
        "{wanted:?}"
    );
}
