use serde_json::{Value, json};

use crate::devices::*;
use crate::node::NodeInfo;

fn node(name: &str, labels: Value) -> NodeInfo {
    let mut raw = json!({"metadata": {"name": name}});
    raw["metadata"]["labels"] = labels;
    NodeInfo::parse(&raw).expect("a node")
}

/// A slice of pool `p` of driver `d.example`, which is complete, on node `n1`.
fn slice(name: &str, count: usize, devices: Value) -> Value {
    let mut raw = json!({"metadata": {"name": name}, "spec": {
        "driver": "d.example", "nodeName": "n1",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": count},
    }});
    raw["spec"]["devices"] = devices;
    raw
}

fn gpu(name: &str, model: &str, memory: &str) -> Value {
    json!({"name": name, "attributes": {"model": {"string": model}, "index": {"int": 3}, "driver": {"version": "1.2.3"}},
        "capacity": {"memory": {"value": memory}}})
}

fn ask(name: &str, count: i64, selector: Option<&str>) -> Value {
    let selectors: Vec<_> = selector.iter().map(|text| json!({"cel": {"expression": text}})).collect();
    json!({"name": name, "exactly": {
        "deviceClassName": "gpus", "allocationMode": "ExactCount", "count": count, "selectors": selectors,
    }})
}

fn claim(name: &str, requests: Value) -> Value {
    let mut raw = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {}}});
    raw["spec"]["devices"]["requests"] = requests;
    raw
}

fn world(slices: &[Value]) -> Devices {
    let mut devices = Devices::default();
    let class = json!({"metadata": {"name": "gpus"}, "spec": {"selectors": [{"cel": {"expression":
        "device.driver == 'd.example'"}}]}});
    devices.classes_mut().set(DeviceClass::parse(&class).expect("a class"));
    for slice in slices {
        devices.set_slice(ResourceSlice::parse(slice).expect("a slice"));
    }
    devices
}

/// What the claims get on `n1`: for each, its requests with their devices; or the error.
fn given(devices: &Devices, claims: &[Value]) -> Result<Option<Vec<String>>, String> {
    let claims: Vec<_> = claims.iter().map(|raw| ResourceClaim::parse(raw).expect("a claim")).collect();
    let claims: Vec<_> = claims.iter().collect();
    let found = allocate(devices, &node("n1", json!({"zone": "a"})), &claims);
    let text = |allocation: &Allocation| {
        let given = allocation.given.iter().map(|one| format!("{}={}", one.request, one.device.device));
        given.collect::<Vec<_>>().join(" ")
    };
    match found {
        Ok(found) => Ok(found.map(|found| found.iter().map(text).collect())),
        Err(Failed::Node(text) | Failed::Everywhere(text)) => Err(text),
    }
}

#[track_caller]
fn check(devices: &Devices, claims: &[Value], want: &[&str]) {
    assert_eq!(given(devices, claims).map(Option::unwrap_or_default).expect("an answer"), want);
}

fn three() -> Devices {
    world(&[slice(
        "s",
        1,
        json!([gpu("g0", "small", "4Gi"), gpu("g1", "large", "8Gi"), gpu("g2", "large", "8Gi")]),
    )])
}

#[test]
fn the_first_devices_that_match_are_taken_in_order() {
    check(&three(), &[claim("c", json!([ask("r", 2, None)]))], &["r=g0 r=g1"]);
    check(
        &three(),
        &[claim("a", json!([ask("r", 1, None)])), claim("b", json!([ask("r", 1, None)]))],
        &["r=g0", "r=g1"],
    );
    check(&three(), &[claim("c", json!([ask("r", 4, None)]))], &[]);
}

#[test]
fn a_choice_that_leaves_nothing_for_later_requests_is_taken_back() {
    let requests = json!([
        ask("any", 1, None),
        ask("small", 1, Some("device.attributes['d.example'].model == 'small'"))
    ]);
    check(&three(), &[claim("c", requests)], &["any=g1 small=g0"]);
}

#[test]
fn selectors_know_attributes_capacities_and_versions() {
    for (selector, want) in [
        ("device.attributes['d.example'].model == 'large'", "r=g1"),
        ("device.capacity['d.example'].memory.compareTo(quantity('6Gi')) > 0", "r=g1"),
        ("device.capacity['d.example'].memory.isGreaterThan(quantity('6Gi'))", "r=g1"),
        ("device.attributes['d.example'].driver.isLessThan(semver('2.0.0'))", "r=g0"),
        ("device.attributes['d.example'].driver == semver('1.2.3')", "r=g0"),
        ("!has(device.attributes['d.example'].none)", "r=g0"),
        ("device.attributes['other.example'].?none.orValue('x') == 'x'", "r=g0"),
        ("!('other.example' in device.attributes)", "r=g0"),
        ("'d.example' in device.attributes", "r=g0"),
        ("device.attributes['d.example'].exists(key, key == 'model')", "r=g0"),
        ("cel.bind(d, device.attributes['d.example'], d.index == 3 && d.model.startsWith('la'))", "r=g1"),
        ("!device.allowMultipleAllocations", "r=g0"),
        ("device.attributes['d.example'].model.lowerAscii() in ['large']", "r=g1"),
        ("semver('v1.2', true).major() == 1 && isSemver('1.0.0') && isQuantity('1Gi')", "r=g0"),
        ("quantity('1Gi').add(quantity('1Gi')) == quantity('2Gi') && quantity('3').asInteger() == 3", "r=g0"),
    ] {
        let found = given(&three(), &[claim("c", json!([ask("r", 1, Some(selector))]))]);
        assert_eq!(found, Ok(Some(vec![want.to_owned()])), "{selector}");
    }
}

#[test]
fn a_selector_that_fails_says_so_in_upstreams_words() {
    let at = "claim default/c: selector #0 on device d.example/p/g0: CEL runtime error: ";
    for (selector, problem) in [
        (
            "device.attributes['d.example'].none == 1",
            "no such key: none. consider using CEL optional chaining (.? followed by orValue()) or guarding the check \
             with has() for optional fields",
        ),
        ("device.attributes['d.example'].model > 3", "no such overload"),
        (
            "device.attributes['d.example'].a == 1 && device.attributes['d.example'].b == 1",
            "no such key: a. consider",
        ),
    ] {
        let found = given(&three(), &[claim("c", json!([ask("r", 1, Some(selector))]))]);
        let found = found.expect_err(selector);
        assert!(found.starts_with(&format!("{at}{problem}")), "{found}");
    }
    let unknown = given(&three(), &[claim("c", json!([ask("r", 1, Some("[1, 2].sum() == 3"))]))]);
    let problem = "claim default/c: selector #0: CEL compile error: function \"sum\" is not supported by this scheduler";
    assert_eq!(unknown, Err(problem.to_owned()));
}

#[test]
fn devices_that_somebody_has_are_not_given_again_but_to_look_at() {
    let mut devices = three();
    let mut raw = claim("other", json!([ask("r", 1, None)]));
    raw["status"] = json!({"allocation": {"devices": {"results": [
        {"request": "r", "driver": "d.example", "pool": "p", "device": "g0"},
    ]}}});
    devices.set_claim(ResourceClaim::parse(&raw).expect("a claim"));
    check(&devices, &[claim("c", json!([ask("r", 1, None)]))], &["r=g1"]);
    let mut admin = ask("r", 1, None);
    admin["exactly"]["adminAccess"] = json!(true);
    check(&devices, &[claim("c", json!([admin]))], &["r=g0"]);
    raw["status"] = json!({});
    devices.set_claim(ResourceClaim::parse(&raw).expect("a claim"));
    assert!(devices.allocated().is_empty());
    check(&devices, &[claim("c", json!([ask("r", 1, None)]))], &["r=g0"]);
}

#[test]
fn a_promise_holds_devices_until_the_claim_is_seen_with_them() {
    let mut devices = three();
    let raw = claim("c", json!([ask("r", 3, None)]));
    let parsed = ResourceClaim::parse(&raw).expect("a claim");
    devices.set_claim(parsed.clone());
    let mut found =
        allocate(&devices, &node("n1", json!({})), &[&parsed]).expect("an answer").expect("devices");
    let plan = ClaimPlan { work: vec![ClaimWork::new(&parsed, found.pop())] };
    assert!(devices.promise(&plan.promises()));
    assert!(!devices.promise(&plan.promises()), "once");
    check(&devices, &[claim("d", json!([ask("r", 1, None)]))], &[]);
    let mut written = raw.clone();
    written["status"] = json!({"allocation": plan.work[0].allocation.as_ref().expect("devices").raw});
    devices.set_claim(ResourceClaim::parse(&written).expect("a claim"));
    assert!(!devices.is_promised("default/c"));
    assert_eq!(devices.allocated().len(), 3);
    devices.remove_claim("default", "c");
    assert!(devices.allocated().is_empty());
    assert!(devices.promise(&plan.promises()));
    devices.release("default/c");
    assert!(devices.allocated().is_empty());
}

#[test]
fn all_devices_means_all_or_none() {
    let mut all = ask("r", 0, Some("device.attributes['d.example'].model == 'large'"));
    all["exactly"]["allocationMode"] = json!("All");
    check(&three(), &[claim("c", json!([all]))], &["r=g1 r=g2"]);
    let incomplete = world(&[slice("s", 2, json!([gpu("g0", "large", "1")]))]);
    let problem = "claim default/c, request r: asks for all devices, but resource pool d.example/p is currently being updated";
    assert_eq!(given(&incomplete, &[claim("c", json!([all]))]), Err(problem.to_owned()));
    check(&incomplete, &[claim("c", json!([ask("r", 1, None)]))], &[]);
}

#[test]
fn the_first_alternative_that_can_be_had_is_taken() {
    let alternative = |name: &str, count: i64, model: &str| {
        json!({"name": name, "deviceClassName": "gpus", "allocationMode": "ExactCount", "count": count, "selectors": [
            {"cel": {"expression": format!("device.attributes['d.example'].model == '{model}'")}}]})
    };
    let requests = json!([{"name": "r", "firstAvailable": [alternative("two", 2, "small"), alternative("one", 2, "large")]}]);
    check(&three(), &[claim("c", requests)], &["r/one=g1 r/one=g2"]);
}

#[test]
fn constraints_make_devices_match_or_differ() {
    let with = |constraint: Value| {
        let mut raw = claim("c", json!([ask("r", 2, None)]));
        raw["spec"]["devices"]["constraints"] = json!([constraint]);
        raw
    };
    check(&three(), &[with(json!({"matchAttribute": "d.example/model"}))], &["r=g1 r=g2"]);
    check(&three(), &[with(json!({"distinctAttribute": "d.example/model"}))], &["r=g0 r=g1"]);
    check(&three(), &[with(json!({"matchAttribute": "d.example/none"}))], &[]);
    let empty = given(&three(), &[with(json!({}))]);
    assert_eq!(
        empty,
        Err("claim default/c, constraint #0: empty constraint (unsupported constraint type?)".to_owned())
    );
}

#[test]
fn taints_of_devices_and_of_rules_have_to_be_tolerated() {
    let mut tainted = gpu("g0", "small", "1");
    tainted["taints"] = json!([{"key": "broken", "effect": "NoSchedule"}]);
    let mut devices = world(&[slice("s", 1, json!([tainted, gpu("g1", "small", "1")]))]);
    check(&devices, &[claim("c", json!([ask("r", 1, None)]))], &["r=g1"]);
    let mut tolerant = ask("r", 1, None);
    tolerant["exactly"]["tolerations"] = json!([{"key": "broken", "operator": "Exists"}]);
    check(&devices, &[claim("c", json!([tolerant]))], &["r=g0"]);
    let rule = json!({"metadata": {"name": "r"}, "spec": {
        "deviceSelector": {"driver": "d.example", "device": "g1"}, "taint": {"key": "x", "effect": "NoExecute"}}});
    devices.set_rule(DeviceTaintRule::parse(&rule).expect("a rule"));
    check(&devices, &[claim("c", json!([ask("r", 1, None)]))], &[]);
    devices.remove_rule("r");
    check(&devices, &[claim("c", json!([ask("r", 1, None)]))], &["r=g1"]);
}

#[test]
fn partitions_share_counters() {
    let part = |name: &str, memory: &str| json!({"name": name, "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]});
    let mut counters = slice("counters", 2, json!([]));
    counters["spec"]["sharedCounters"] = json!([{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]);
    let parts = slice("parts", 2, json!([part("big", "30Gi"), part("left", "20Gi"), part("right", "20Gi")]));
    let devices = world(&[counters, parts.clone()]);
    check(&devices, &[claim("c", json!([ask("r", 2, None)]))], &["r=left r=right"]);
    check(
        &devices,
        &[claim("a", json!([ask("r", 1, None)])), claim("b", json!([ask("r", 1, None)]))],
        &["r=left", "r=right"],
    );
    let alone = world(&[slice("parts", 1, parts["spec"]["devices"].clone())]);
    let invalid = given(&alone, &[claim("c", json!([ask("r", 1, None)]))]);
    assert_eq!(invalid, Err("invalid resource pools were encountered".to_owned()));
}

#[test]
fn parts_of_a_shared_device_are_given_until_its_capacity_is_used_up() {
    let mut nic = gpu("nic", "x", "10Gi");
    nic["allowMultipleAllocations"] = json!(true);
    nic["capacity"]["memory"]["requestPolicy"] =
        json!({"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}});
    let devices = world(&[slice("s", 1, json!([nic]))]);
    let part = |name: &str, amount: &str| {
        let mut ask = ask(name, 1, None);
        ask["exactly"]["capacity"] = json!({"requests": {"memory": amount}});
        ask
    };
    check(&devices, &[claim("c", json!([part("a", "3500Mi"), part("b", "6Gi")]))], &["a=nic b=nic"]);
    check(&devices, &[claim("c", json!([part("a", "5Gi"), part("b", "5500Mi")]))], &[]);
    let parsed =
        ResourceClaim::parse(&claim("c", json!([part("a", "3500Mi"), ask("b", 1, None)]))).expect("a claim");
    let found = allocate(&devices, &node("n1", json!({})), &[&parsed]).expect("an answer").expect("devices");
    let results = &found[0].raw["devices"]["results"];
    assert_eq!(results[0]["consumedCapacity"], json!({"memory": "4Gi"}));
    assert_eq!(results[1]["consumedCapacity"], json!({"memory": "1Gi"}));
    assert_ne!(results[0]["shareID"], results[1]["shareID"]);
    assert_eq!(results[0]["shareID"].as_str().map(str::len), Some(36));
}

#[test]
fn an_allocation_names_the_nodes_that_reach_it() {
    let mut shared = slice("s", 1, json!([gpu("g0", "small", "1")]));
    shared["spec"]["nodeName"] = Value::Null;
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]});
    shared["spec"]["nodeSelector"] = selector.clone();
    let parsed = ResourceClaim::parse(&claim("c", json!([ask("r", 1, None)]))).expect("a claim");
    let on = |devices: &Devices, zone: &str| {
        let found = allocate(devices, &node("n1", json!({"zone": zone})), &[&parsed]).expect("an answer");
        found.map(|found| found[0].raw["nodeSelector"].clone())
    };
    assert_eq!(on(&world(&[shared.clone()]), "a"), Some(selector));
    assert_eq!(on(&world(&[shared]), "b"), None);
    let local = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]});
    assert_eq!(on(&three(), "a"), Some(local));
}

#[test]
fn newer_generations_replace_older_ones() {
    let mut newer = slice("new", 1, json!([gpu("g9", "small", "1")]));
    newer["spec"]["pool"]["generation"] = json!(2);
    let old = slice("old", 1, json!([gpu("g0", "small", "1")]));
    let devices = world(&[old.clone(), newer.clone()]);
    check(&devices, &[claim("c", json!([ask("r", 1, None)]))], &["r=g9"]);
    newer["spec"]["nodeName"] = json!("n2");
    newer["spec"]["pool"]["resourceSliceCount"] = json!(2);
    check(&world(&[old, newer]), &[claim("c", json!([ask("r", 1, None)]))], &["r=g0"]);
}

#[test]
fn a_claim_is_protected_first_then_written_with_its_pod() {
    let devices = three();
    let mut raw = claim("c", json!([ask("r", 1, None)]));
    raw["metadata"]["uid"] = json!("u");
    raw["metadata"]["resourceVersion"] = json!("7");
    let parsed = ResourceClaim::parse(&raw).expect("a claim");
    let mut found =
        allocate(&devices, &node("n1", json!({})), &[&parsed]).expect("an answer").expect("devices");
    let work = ClaimWork::new(&parsed, found.pop());
    let pod = ("p", "pod-uid");
    let Ok(Step::Protect(patch)) = work.step(&raw, pod, "now") else { panic!("protect first") };
    assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7", "finalizers": [FINALIZER]}));
    raw["metadata"]["finalizers"] = json!([FINALIZER]);
    let Ok(Step::Reserve(patch)) = work.step(&raw, pod, "now") else { panic!("then reserve") };
    assert_eq!(patch["status"]["reservedFor"], json!([{"resource": "pods", "name": "p", "uid": "pod-uid"}]));
    assert_eq!(patch["status"]["allocation"]["allocationTimestamp"], "now");
    raw["status"] = patch["status"].clone();
    assert_eq!(work.step(&raw, pod, "later"), Ok(Step::Done), "an answer was lost");
    let elsewhere = work.step(&raw, ("q", "other"), "later");
    assert_eq!(elsewhere, Err("claim default/c got allocated elsewhere in the meantime".to_owned()));
    let share = ClaimWork { allocation: None, ..work.clone() };
    let Ok(Step::Reserve(patch)) = share.step(&raw, ("q", "other"), "later") else { panic!("reserve") };
    assert_eq!(patch["status"]["reservedFor"].as_array().map(Vec::len), Some(2));
    assert_eq!(patch["status"].get("allocation"), None);
    assert_eq!(deallocation(&raw, "other"), None);
    assert!(deallocation(&raw, "pod-uid").is_some());
    raw["metadata"]["uid"] = json!("another");
    assert_eq!(work.step(&raw, pod, "now"), Err("claim default/c got deleted in the meantime".to_owned()));
}

#[test]
fn no_claim_gets_more_than_thirty_two_devices() {
    let many: Vec<_> = (0..40).map(|index| gpu(&format!("g{index:02}"), "large", "1")).collect();
    let devices = world(&[slice("s", 1, json!(many))]);
    let over = given(&devices, &[claim("c", json!([ask("a", 20, None), ask("b", 13, None)]))]);
    let problem = "claim default/c, request b: adding 13 devices exceeds the claim limit of 32, with 20 already accounted for";
    assert_eq!(over, Err(problem.to_owned()));
    let alternative = |name: &str, count: i64| json!({"name": name, "deviceClassName": "gpus", "allocationMode": "ExactCount", "count": count});
    // What the first alternative would take is too much together with what comes first.
    let requests = json!([ask("a", 30, None), {"name": "b", "firstAvailable": [alternative("x", 3), alternative("y", 2)]}]);
    let found = given(&devices, &[claim("c", requests)]).expect("an answer").expect("devices");
    assert!(found[0].ends_with("b/y=g30 b/y=g31"), "{found:?}");
}

#[test]
fn configuration_is_handed_on_for_the_requests_that_it_concerns() {
    let class =
        json!({"metadata": {"name": "gpus"}, "spec": {"config": [{"opaque": {"driver": "d.example"}}]}});
    let mut devices = three();
    devices.classes_mut().set(DeviceClass::parse(&class).expect("a class"));
    let mut raw = claim("c", json!([ask("a", 1, None), ask("b", 1, None)]));
    raw["spec"]["devices"]["config"] = json!([
        {"requests": ["b"], "opaque": {"driver": "one"}}, {"opaque": {"driver": "all"}},
        {"requests": ["none"], "opaque": {"driver": "nobody"}}, {"requests": ["a", "b"], "opaque": {"driver": "both"}},
    ]);
    let parsed = ResourceClaim::parse(&raw).expect("a claim");
    let found = allocate(&devices, &node("n1", json!({})), &[&parsed]).expect("an answer").expect("devices");
    assert_eq!(
        found[0].raw["devices"]["config"],
        json!([
            {"source": "FromClass", "opaque": {"driver": "d.example"}},
            {"source": "FromClaim", "requests": ["b"], "opaque": {"driver": "one"}},
            {"source": "FromClaim", "opaque": {"driver": "all"}},
            {"source": "FromClaim", "opaque": {"driver": "both"}},
        ])
    );
}

#[test]
fn amounts_are_rounded_up_to_what_may_be_asked_for() {
    let nic = |policy: Value| {
        let mut nic = gpu("nic", "x", "10Gi");
        nic["allowMultipleAllocations"] = json!(true);
        nic["capacity"]["memory"]["requestPolicy"] = policy;
        world(&[slice("s", 1, json!([nic]))])
    };
    let takes = |devices: &Devices, amount: &str| {
        let mut ask = ask("r", 1, None);
        ask["exactly"]["capacity"] = json!({"requests": {"memory": amount}});
        let parsed = ResourceClaim::parse(&claim("c", json!([ask]))).expect("a claim");
        let found = allocate(devices, &node("n1", json!({})), &[&parsed]).expect("an answer");
        found.map(|found| found[0].raw["devices"]["results"][0]["consumedCapacity"]["memory"].clone())
    };
    let values = nic(json!({"default": "1Gi", "validValues": ["1Gi", "4Gi"]}));
    assert_eq!(takes(&values, "2Gi"), Some(json!("4Gi")));
    assert_eq!(takes(&values, "5Gi"), None, "none of the values");
    let range = nic(json!({"default": "1Gi", "validRange": {"min": "1Gi", "max": "3Gi", "step": "512Mi"}}));
    assert_eq!(takes(&range, "100Mi"), Some(json!("1Gi")));
    assert_eq!(takes(&range, "1100Mi"), Some(json!("1536Mi")));
    assert_eq!(takes(&range, "3500Mi"), None, "more than the most");
    let fraction = nic(json!({"default": "1", "validRange": {"min": "500m", "step": "250m"}}));
    assert_eq!(takes(&fraction, "600m"), Some(json!("750m")));
}
