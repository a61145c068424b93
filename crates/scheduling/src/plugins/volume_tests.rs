//! What the volume plugins decide, and what makes them decide again.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::config::{ShapePoint, VolumeArgs};
use crate::framework::{Code, Cycle, Event, Framework, PreFilter};
use crate::pod::PodInfo;
use crate::snapshot::{Node, NodeChange, Snapshot};
use crate::volumes::tests::{
    bound_to, claim, class, cluster, merge, on_node, set_claim, set_volume, user, volume,
};
use crate::volumes::{CsiDriver, CsiNode, StorageCapacity, StorageClass, StorageEvent, VolumeAttachment};

fn with_volumes(name: &str, mut volumes: Value) -> PodInfo {
    let spec = json!({"volumes": volumes.take()});
    PodInfo::parse(&json!({"metadata": {"name": name, "uid": name}, "spec": spec})).expect("a pod")
}

fn place(snapshot: &mut Snapshot, pod: PodInfo, node: &str) {
    snapshot.assume(Arc::new(pod), &Arc::from(node));
}

/// What the first plugin that objects says about a pod on `n1`.
#[track_caller]
fn check(snapshot: &Snapshot, pod: &PodInfo, want: Result<(), (&str, Code, &str)>) {
    let verdict = Framework::builder().build().evaluate_node(pod, snapshot, "n1");
    let text = verdict.as_ref().err().map(crate::framework::Refusal::message).unwrap_or_default();
    assert_eq!(verdict.map_err(|refusal| (refusal.plugin, refusal.code, text.as_str())), want);
}

const U: Code = Code::Unschedulable;
const UU: Code = Code::UnschedulableAndUnresolvable;
const IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

fn for_one_pod() -> Snapshot {
    let mut snapshot = cluster();
    let mut more = bound_to("v");
    merge(&mut more, json!({"spec": {"accessModes": ["ReadWriteOncePod"]}}));
    set_claim(&mut snapshot, &claim("c", "waits", more));
    set_volume(&mut snapshot, &volume("v", "waits", json!({})));
    snapshot
}

#[test]
fn a_claim_for_one_pod_is_in_use_wherever_that_pod_is() {
    let mut snapshot = for_one_pod();
    check(&snapshot, &user("p", &["c"]), Ok(()));
    place(&mut snapshot, user("q", &["c"]), "n2");
    check(&snapshot, &user("p", &["c"]), Err(("VolumeRestrictions", U, IN_USE)));
    let elsewhere = PodInfo { namespace: Arc::from("other"), ..user("q", &["c"]) };
    place(&mut snapshot, elsewhere, "n2");
    check(&snapshot, &user("p", &["c"]), Ok(()));
}

/// Without the pods of `gone`, and with those of `come`, does VolumeRestrictions let the pod on `n1`?
#[track_caller]
fn check_what_if(snapshot: &Snapshot, gone: &[PodInfo], come: &[PodInfo], want: bool) {
    let pod = user("p", &["c"]);
    let node = snapshot.node("n1").expect("a node");
    let PreFilter::Filter(mut filter) = VolumeRestrictions.pre_filter(Cycle { pod: &pod, snapshot }) else {
        panic!("no filter")
    };
    gone.iter().for_each(|pod| filter.remove_pod(pod, node));
    come.iter().for_each(|pod| filter.add_pod(pod, node));
    assert_eq!(filter.filter(node).is_ok(), want);
}

#[test]
fn evicting_the_user_of_a_claim_for_one_pod_helps_until_another_comes() {
    let mut snapshot = for_one_pod();
    place(&mut snapshot, user("q", &["c"]), "n1");
    let (user_of_it, stranger) = (user("q", &["c"]), user("s", &["d"]));
    check_what_if(&snapshot, &[], &[], false);
    check_what_if(&snapshot, std::slice::from_ref(&user_of_it), &[], true);
    check_what_if(&snapshot, std::slice::from_ref(&stranger), &[], false);
    check_what_if(&snapshot, std::slice::from_ref(&user_of_it), &[stranger], true);
    check_what_if(&snapshot, std::slice::from_ref(&user_of_it), std::slice::from_ref(&user_of_it), false);
}

/// May two pods with these disks be on one node?
#[track_caller]
fn check_disks(there: Value, wanted: Value, want: bool) {
    let named = |mut disk: Value| {
        disk["name"] = json!("disk");
        json!([disk])
    };
    let mut snapshot = cluster();
    place(&mut snapshot, with_volumes("q", named(there)), "n1");
    let refusal = Err(("VolumeRestrictions", U, "node(s) had no available disk"));
    check(&snapshot, &with_volumes("p", named(wanted)), if want { Ok(()) } else { refusal });
}

#[test]
fn a_disk_is_shared_on_a_node_only_for_reading_if_at_all() {
    let gce = |name: &str, read: bool| json!({"gcePersistentDisk": {"pdName": name, "readOnly": read}});
    check_disks(gce("a", false), gce("a", false), false);
    check_disks(gce("a", true), gce("a", false), false);
    check_disks(gce("a", true), gce("a", true), true);
    check_disks(gce("a", false), gce("b", false), true);
    let ebs = |id: &str, read: bool| json!({"awsElasticBlockStore": {"volumeID": id, "readOnly": read}});
    check_disks(ebs("a", true), ebs("a", true), false);
    check_disks(ebs("a", true), ebs("b", true), true);
    let iscsi = |iqn: &str, read: bool| json!({"iscsi": {"iqn": iqn, "readOnly": read}});
    check_disks(iscsi("a", false), iscsi("a", true), false);
    check_disks(iscsi("a", true), iscsi("a", true), true);
    check_disks(iscsi("a", false), gce("a", false), true);
}

#[test]
fn an_rbd_image_is_the_same_through_any_common_monitor() {
    let rbd = |monitors: &[&str], pool: &str, image: &str, read: bool| json!({"rbd": {"monitors": monitors, "pool": pool, "image": image, "readOnly": read}});
    let there = rbd(&["a", "b"], "p", "i", false);
    check_disks(there.clone(), rbd(&["b", "c"], "p", "i", true), false);
    check_disks(there.clone(), rbd(&["c"], "p", "i", false), true);
    check_disks(there.clone(), rbd(&["a"], "q", "i", false), true);
    check_disks(there, rbd(&["a"], "p", "j", false), true);
    check_disks(rbd(&["a"], "p", "i", true), rbd(&["a"], "p", "i", true), true);
}

/// What VolumeBinding says about a pod whose only claim looks like this.
#[track_caller]
fn check_claim(class: &str, more: Value, want: &str) {
    let mut snapshot = cluster();
    set_claim(&mut snapshot, &claim("c", class, more));
    let want = if want.is_empty() { Ok(()) } else { Err(("VolumeBinding", UU, want)) };
    check(&snapshot, &user("p", &["c"]), want);
}

#[test]
fn a_claim_must_be_there_and_of_use() {
    check_claim("waits", json!({}), "");
    let immediate = "pod has unbound immediate PersistentVolumeClaims";
    check_claim("now", json!({}), immediate);
    check_claim("unknown", json!({}), immediate);
    check_claim("", json!({}), immediate);
    check_claim("waits", json!({"spec": {"volumeName": "v"}}), immediate);
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    check_claim("waits", deleting, "persistentvolumeclaim \"c\" is being deleted");
    let lost = json!({"spec": {"volumeName": "v"}, "status": {"phase": "Lost"}});
    check_claim("waits", lost, "persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\"");
    check_claim("local", json!({}), "node(s) didn't find available persistent volumes to bind");
    let missing = "persistentvolumeclaim \"d\" not found";
    check(&cluster(), &user("p", &["d"]), Err(("VolumeRestrictions", UU, missing)));
}

#[test]
fn an_ephemeral_volume_waits_for_its_own_claim() {
    let mut snapshot = cluster();
    let pod = with_volumes("p", json!([{"name": "scratch", "ephemeral": {}}]));
    let waiting = "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-scratch\"";
    check(&snapshot, &pod, Err(("VolumeBinding", UU, waiting)));
    set_claim(&mut snapshot, &claim("p-scratch", "waits", json!({})));
    let foreign = "PVC default/p-scratch was not created for pod default/p (pod is not owner)";
    check(&snapshot, &pod, Err(("VolumeBinding", UU, foreign)));
    let owner = json!({"metadata": {"ownerReferences": [{"uid": "p", "controller": true}]}});
    set_claim(&mut snapshot, &claim("p-scratch", "waits", owner.clone()));
    check(&snapshot, &pod, Ok(()));
    let mut bound = bound_to("v");
    merge(&mut bound, owner);
    set_claim(&mut snapshot, &claim("p-scratch", "waits", bound));
    let gone = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
    check(&snapshot, &pod, Err(("VolumeBinding", UU, gone)));
}

#[test]
fn what_is_broken_fails_the_pod_rather_than_a_node() {
    let mut snapshot = cluster();
    let nowhere = json!({"metadata": {"name": "odd"}, "provisioner": "a.csi"});
    snapshot.volumes_mut().set_class(StorageClass::parse(&nowhere).expect("a class"));
    set_claim(&mut snapshot, &claim("c", "odd", json!({})));
    let diagnosis = Framework::builder().build().evaluate(&user("p", &["c"]), &snapshot).expect_err("broken");
    let text =
        "running PreFilter plugin \"VolumeBinding\": VolumeBindingMode not set for StorageClass \"odd\"";
    assert_eq!((diagnosis.message(), diagnosis.plugins.is_empty()), (text.to_owned(), true));

    // One node is enough: what another says does not count.
    let mut snapshot = cluster();
    csi_node(&mut snapshot, "n2", json!({}));
    let disk = json!([{"name": "d", "azureDisk": {"diskURI": "/d", "kind": "Dedicated"}}]);
    let diagnosis =
        Framework::builder().build().evaluate(&with_volumes("p", disk), &snapshot).expect_err("broken");
    let text = "running \"NodeVolumeLimits\" filter plugin: converting volume(d) from inline to csi: kind(Dedicated) is not supported in csi migration";
    assert_eq!((diagnosis.error.as_deref(), diagnosis.refused.len()), (Some(text), 0));
}

fn csi_node(snapshot: &mut Snapshot, name: &str, mut more: Value) -> StorageEvent {
    let mut value = json!({"metadata": {"name": name}, "spec": {"drivers": []}});
    merge(&mut value, more.take());
    let node = CsiNode::parse(&value).expect("a CSINode");
    snapshot.volumes_mut().set_csi_node(node).expect("something new")
}

fn limit(driver: &str, count: i64) -> Value {
    json!({"spec": {"drivers": [{"name": driver, "allocatable": {"count": count}}]}})
}

/// `n1` can attach two volumes of `a.csi`; claims `c0` to `c3` are bound to such volumes.
fn limited() -> Snapshot {
    let mut snapshot = cluster();
    csi_node(&mut snapshot, "n1", limit("a.csi", 2));
    for number in 0..4 {
        let name = format!("v{number}");
        let csi = json!({"spec": {"csi": {"driver": "a.csi", "volumeHandle": format!("h{number}")}}});
        set_volume(&mut snapshot, &volume(&name, "waits", csi));
        set_claim(&mut snapshot, &claim(&format!("c{number}"), "waits", bound_to(&name)));
    }
    snapshot
}

const FULL: Result<(), (&str, Code, &str)> = Err(("NodeVolumeLimits", U, "node(s) exceed max volume count"));

#[test]
fn a_volume_that_several_pods_use_counts_once() {
    let mut snapshot = limited();
    place(&mut snapshot, user("q", &["c0", "c1"]), "n1");
    check(&snapshot, &user("p", &["c0", "c1"]), Ok(()));
    check(&snapshot, &user("p", &["c2"]), FULL);
    check(&limited(), &user("p", &["c0", "c1", "c2"]), FULL);
}

#[test]
fn a_volume_that_will_be_made_counts_for_the_driver_of_its_class() {
    let mut snapshot = limited();
    set_claim(&mut snapshot, &claim("new", "waits", json!({})));
    place(&mut snapshot, user("q", &["c0"]), "n1");
    check(&snapshot, &user("p", &["new"]), Ok(()));
    place(&mut snapshot, user("r", &["c1"]), "n1");
    check(&snapshot, &user("p", &["new"]), FULL);
}

#[test]
fn an_attachment_counts_even_when_its_pod_is_gone() {
    let mut snapshot = limited();
    for (name, volume, attacher) in [("x", "v0", "a.csi"), ("y", "v1", "a.csi"), ("z", "v2", "b.csi")] {
        let spec =
            json!({"attacher": attacher, "nodeName": "n1", "source": {"persistentVolumeName": volume}});
        let attachment = VolumeAttachment::parse(&json!({"metadata": {"name": name}, "spec": spec}));
        snapshot.volumes_mut().set_attachment(attachment.expect("an attachment"));
    }
    check(&snapshot, &user("p", &["c3"]), FULL);
    snapshot.volumes_mut().remove_attachment("x");
    check(&snapshot, &user("p", &["c3"]), Ok(()));
    // It is not counted twice.
    place(&mut snapshot, user("q", &["c1"]), "n1");
    check(&snapshot, &user("p", &["c3"]), Ok(()));
}

#[test]
fn without_a_limit_any_number_will_do() {
    let mut snapshot = limited();
    csi_node(&mut snapshot, "n1", limit("other.csi", 0));
    check(&snapshot, &user("p", &["c0", "c1", "c2", "c3"]), Ok(()));
    snapshot.volumes_mut().remove_csi_node("n1");
    check(&snapshot, &user("p", &["c0", "c1", "c2", "c3"]), Ok(()));
}

#[test]
fn a_driver_that_says_so_must_be_installed() {
    let mut snapshot = limited();
    let driver = |strict: bool| {
        let spec = json!({"preventPodSchedulingIfMissing": strict});
        CsiDriver::parse(&json!({"metadata": {"name": "a.csi"}, "spec": spec})).expect("a driver")
    };
    snapshot.volumes_mut().set_csi_driver(driver(true));
    check(&snapshot, &user("p", &["c0"]), Ok(()));
    let missing = Err(("NodeVolumeLimits", U, "a.csi CSI driver is not installed on the node"));
    csi_node(&mut snapshot, "n1", limit("other.csi", 5));
    check(&snapshot, &user("p", &["c0"]), missing);
    snapshot.volumes_mut().remove_csi_node("n1");
    check(&snapshot, &user("p", &["c0"]), missing);
    snapshot.volumes_mut().set_csi_driver(driver(false));
    check(&snapshot, &user("p", &["c0"]), Ok(()));
}

#[test]
fn a_disk_of_the_pod_itself_counts_for_the_driver_that_serves_it_today() {
    let mut snapshot = cluster();
    csi_node(&mut snapshot, "n1", limit("ebs.csi.aws.com", 1));
    let ebs = |id: &str| json!([{"name": "d", "awsElasticBlockStore": {"volumeID": id}}]);
    place(&mut snapshot, with_volumes("q", ebs("vol-1")), "n1");
    check(&snapshot, &with_volumes("p", ebs("vol-2")), FULL);
    csi_node(&mut snapshot, "n1", limit("ebs.csi.aws.com", 2));
    check(&snapshot, &with_volumes("p", ebs("vol-2")), Ok(()));
}

/// May a pod with a volume that has these labels be on `n1`, which is in zone `a`?
#[track_caller]
fn check_zone(labels: &Value, want: bool) {
    let mut snapshot = cluster();
    set_claim(&mut snapshot, &claim("c", "waits", bound_to("v")));
    set_volume(&mut snapshot, &volume("v", "waits", json!({"metadata": {"labels": labels}})));
    let refusal = Err(("VolumeZone", UU, "node(s) had no available volume zone"));
    check(&snapshot, &user("p", &["c"]), if want { Ok(()) } else { refusal });
}

#[test]
fn a_pod_stays_in_the_zones_of_its_volumes() {
    check_zone(&json!({}), true);
    check_zone(&json!({"topology.kubernetes.io/zone": "a"}), true);
    check_zone(&json!({"topology.kubernetes.io/zone": "b"}), false);
    check_zone(&json!({"topology.kubernetes.io/zone": "b__a"}), true);
    check_zone(&json!({"topology.kubernetes.io/zone": "b__c"}), false);
    check_zone(&json!({"failure-domain.beta.kubernetes.io/zone": "a"}), true);
    check_zone(&json!({"failure-domain.beta.kubernetes.io/zone": "b"}), false);
    // The node does not say in which region it is.
    check_zone(&json!({"topology.kubernetes.io/region": "r"}), false);
    // A label with an empty zone says nothing.
    check_zone(&json!({"topology.kubernetes.io/zone": "b__"}), true);
}

#[test]
fn without_volume_binding_the_zones_still_need_volumes_that_exist() {
    let framework =
        Framework::builder().without(&["VolumeBinding", "VolumeRestrictions", "NodeVolumeLimits"]).build();
    let says = |class: &str, more: Value| {
        let mut snapshot = cluster();
        set_claim(&mut snapshot, &claim("c", class, more));
        let verdict = framework.evaluate_node(&user("p", &["c"]), &snapshot, "n1");
        verdict.map_err(|refusal| refusal.message()).err().unwrap_or_default()
    };
    assert_eq!(says("waits", json!({})), "");
    assert_eq!(says("waits", bound_to("v")), "persistentvolume \"v\" not found");
    assert_eq!(says("now", json!({})), "PersistentVolume had no name");
    assert_eq!(says("", json!({})), "PersistentVolumeClaim had no pv name and storageClass name");
    assert_eq!(says("odd", json!({})), "storageclass.storage.k8s.io \"odd\" not found");
    let snapshot = cluster();
    let missing = framework.evaluate_node(&user("p", &["d"]), &snapshot, "n1").expect_err("no claim");
    assert_eq!(
        (missing.plugin, &*missing.message()),
        ("VolumeZone", "persistentvolumeclaim \"d\" not found")
    );
    let unnamed = framework.evaluate_node(&user("p", &[""]), &snapshot, "n1").expect_err("no name");
    assert_eq!(unnamed.message(), "PersistentVolumeClaim had no name");
}

fn capacity(name: &str, zone: &str, mut more: Value) -> StorageCapacity {
    let topology = json!({"matchLabels": {"topology.kubernetes.io/zone": zone}});
    let mut value = json!({
        "metadata": {"namespace": "kube-system", "name": name}, "storageClassName": "waits",
        "nodeTopology": topology, "capacity": "10Gi",
    });
    merge(&mut value, more.take());
    StorageCapacity::parse(&value).expect("a capacity")
}

/// Claims `c` (5 Gi) and `d` (5 Gi) of a driver that tells how much storage is left.
fn telling(capacities: Vec<StorageCapacity>) -> Snapshot {
    let mut snapshot = cluster();
    set_claim(&mut snapshot, &claim("c", "waits", json!({})));
    set_claim(&mut snapshot, &claim("d", "waits", json!({})));
    let driver = json!({"metadata": {"name": "a.csi"}, "spec": {"storageCapacity": true}});
    snapshot.volumes_mut().set_csi_driver(CsiDriver::parse(&driver).expect("a driver"));
    for capacity in capacities {
        snapshot.volumes_mut().set_capacity(capacity);
    }
    snapshot
}

#[test]
fn a_volume_is_made_only_where_the_driver_has_room_for_it() {
    let full = Err(("VolumeBinding", UU, "node(s) did not have enough free storage"));
    let pod = user("p", &["c"]);
    check(&telling(vec![capacity("x", "a", json!({}))]), &pod, Ok(()));
    check(&telling(vec![]), &pod, full);
    check(&telling(vec![capacity("x", "b", json!({}))]), &pod, full);
    check(&telling(vec![capacity("x", "a", json!({"capacity": "4Gi"}))]), &pod, full);
    check(&telling(vec![capacity("x", "a", json!({"maximumVolumeSize": "4Gi"}))]), &pod, full);
    check(&telling(vec![capacity("x", "a", json!({"capacity": null}))]), &pod, full);
    check(&telling(vec![capacity("x", "a", json!({"nodeTopology": null}))]), &pod, full);
    check(&telling(vec![capacity("x", "a", json!({"storageClassName": "local"}))]), &pod, full);
}

/// The scores of `n1` and `n2`.
#[track_caller]
fn check_scores(snapshot: &Snapshot, plugin: &VolumeBinding, claims: &[&str], want: &[i64]) {
    let pod = user("p", claims);
    let nodes: Vec<&Node> = snapshot.nodes().collect();
    let scorer = plugin.pre_score(Cycle { pod: &pod, snapshot }, &nodes).expect("a preference");
    let scores: Vec<_> = nodes.iter().map(|node| scorer.score(node)).collect();
    assert_eq!(scores, want);
}

/// Points `(utilisation in percent, score up to 10)`.
fn shaped(points: &[(i64, i64)]) -> VolumeBinding {
    let point = |&(utilization, score): &(i64, i64)| ShapePoint { utilization, score };
    let shape = points.iter().map(point).collect();
    VolumeBinding::new(VolumeArgs { shape, ..VolumeArgs::default() })
}

#[test]
fn the_node_with_more_storage_left_scores_higher() {
    let small = capacity("y", "b", json!({"capacity": "20Gi"}));
    let snapshot = telling(vec![capacity("x", "a", json!({})), small]);
    let usual = VolumeBinding::default();
    check_scores(&snapshot, &usual, &["c"], &[50, 75]);
    check_scores(&snapshot, &usual, &["c", "d"], &[0, 50]);
    let packing = shaped(&[(0, 0), (100, 10)]);
    check_scores(&snapshot, &packing, &["c"], &[50, 25]);
    let steps = shaped(&[(30, 2), (50, 10), (70, 4)]);
    check_scores(&snapshot, &steps, &["c"], &[100, 20]);
}

#[test]
fn storage_of_which_only_the_largest_volume_is_known_counts_as_full() {
    // Upstream's scheduler crashes on this.
    let unknown = capacity("x", "a", json!({"capacity": null, "maximumVolumeSize": "10Gi"}));
    check_scores(&telling(vec![unknown]), &VolumeBinding::default(), &["c"], &[0, 0]);
}

#[test]
fn volumes_that_exist_are_scored_by_how_well_they_are_used() {
    let mut snapshot = cluster();
    set_claim(&mut snapshot, &claim("c", "local", json!({})));
    for (name, node, size) in [("v1", "n1", "10Gi"), ("v2", "n2", "6Gi")] {
        let mut more = on_node(node);
        merge(&mut more, json!({"spec": {"capacity": {"storage": size}}}));
        set_volume(&mut snapshot, &volume(name, "local", more));
    }
    check_scores(&snapshot, &VolumeBinding::default(), &["c"], &[50, 17]);
}

#[test]
fn a_pod_whose_claims_are_bound_has_no_preference() {
    let mut snapshot = cluster();
    set_claim(&mut snapshot, &claim("c", "waits", bound_to("v")));
    set_volume(&mut snapshot, &volume("v", "waits", json!({})));
    let pod = user("p", &["c"]);
    let nodes: Vec<&Node> = snapshot.nodes().collect();
    let cycle = Cycle { pod: &pod, snapshot: &snapshot };
    assert!(VolumeBinding::default().pre_score(cycle, &nodes).is_none());
}

const PLUGINS: [&str; 4] = ["VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"];

/// Which of the plugins look at a pod again upon an event, by their first letters.
#[track_caller]
fn check_hints(pod: &PodInfo, event: &Event, want: &[&str]) {
    let (framework, snapshot) = (Framework::builder().build(), cluster());
    let cycle = Cycle { pod, snapshot: &snapshot };
    let heeds = |name: &&'static str| framework.hint(event, cycle, &[*name].into());
    let got: Vec<_> = PLUGINS.into_iter().filter(heeds).collect();
    assert_eq!(got, want);
}

fn claim_event(name: &str, new: bool) -> Event {
    let mut snapshot = cluster();
    let first = set_claim(&mut snapshot, &claim(name, "waits", json!({})));
    let newer = json!({"metadata": {"resourceVersion": "2"}});
    let second = set_claim(&mut snapshot, &claim(name, "waits", newer));
    Event::Storage(if new { first } else { second }.expect("an event"))
}

fn scratch() -> PodInfo {
    with_volumes("p", json!([{"name": "scratch", "ephemeral": {}}]))
}

#[test]
fn a_pod_is_tried_again_for_its_own_claims() {
    let pod = user("p", &["c"]);
    check_hints(&pod, &claim_event("c", true), &PLUGINS);
    check_hints(&pod, &claim_event("c", false), &["VolumeBinding", "VolumeZone"]);
    check_hints(&pod, &claim_event("d", true), &[]);
    check_hints(&scratch(), &claim_event("p-scratch", true), &["NodeVolumeLimits", "VolumeBinding"]);
    let elsewhere = PodInfo { namespace: Arc::from("other"), ..user("p", &["c"]) };
    check_hints(&elsewhere, &claim_event("c", true), &[]);
}

fn volume_event(labels: Option<Value>) -> Event {
    let mut snapshot = cluster();
    let first = set_volume(&mut snapshot, &volume("v", "waits", json!({})));
    let Some(labels) = labels else { return Event::Storage(first.expect("an event")) };
    let newer = json!({"metadata": {"resourceVersion": "2", "labels": labels}});
    let second = set_volume(&mut snapshot, &volume("v", "waits", newer));
    Event::Storage(second.expect("an event"))
}

#[test]
fn a_volume_may_help_any_pod_and_its_zone_only_if_it_is_new() {
    let pod = user("p", &["c"]);
    check_hints(&pod, &volume_event(None), &["VolumeBinding", "VolumeZone"]);
    check_hints(&pod, &volume_event(Some(json!({"x": "y"}))), &["VolumeBinding"]);
    let zone = json!({"topology.kubernetes.io/zone": "a"});
    check_hints(&pod, &volume_event(Some(zone)), &["VolumeBinding", "VolumeZone"]);
}

#[test]
fn a_class_helps_if_it_is_new_or_reaches_other_nodes() {
    let pod = user("p", &["c"]);
    let mut volumes = crate::volumes::Volumes::default();
    let mut set = |class: StorageClass| Event::Storage(volumes.set_class(class).expect("an event"));
    let waits = class("x", "a.csi", "WaitForFirstConsumer");
    check_hints(&pod, &set(waits.clone()), &["VolumeBinding", "VolumeZone"]);
    check_hints(&pod, &set(class("y", "a.csi", "Immediate")), &["VolumeBinding"]);
    check_hints(&pod, &set(StorageClass { provisioner: "b.csi".to_owned(), ..waits.clone() }), &[]);
    let topologies = vec![vec![("zone".to_owned(), ["a".to_owned()].into())]];
    check_hints(&pod, &set(StorageClass { topologies, ..waits }), &["VolumeBinding"]);
}

#[test]
fn a_csi_node_helps_if_it_is_new_takes_more_or_serves_other_disks() {
    let pod = user("p", &["c"]);
    let mut snapshot = cluster();
    let mut set = |more: Value| Event::Storage(csi_node(&mut snapshot, "n1", more));
    check_hints(&pod, &set(limit("a.csi", 2)), &["NodeVolumeLimits", "VolumeBinding"]);
    check_hints(&pod, &set(limit("a.csi", 3)), &["NodeVolumeLimits"]);
    check_hints(&pod, &set(limit("a.csi", 1)), &[]);
    check_hints(&pod, &set(limit("b.csi", 1)), &["NodeVolumeLimits"]);
    let mut more = limit("b.csi", 1);
    let migrated = json!({"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"});
    merge(&mut more, json!({"metadata": {"annotations": migrated}}));
    check_hints(&pod, &set(more), &["VolumeBinding"]);
}

#[test]
fn a_driver_helps_its_own_volumes_when_it_stops_to_tell_of_capacity() {
    let named = with_volumes("p", json!([{"name": "x", "csi": {"driver": "a.csi"}}]));
    let event = |tells: [bool; 2]| {
        let mut volumes = crate::volumes::Volumes::default();
        let driver = |storage_capacity| CsiDriver {
            name: "a.csi".to_owned(),
            storage_capacity,
            must_be_installed: storage_capacity,
        };
        volumes.set_csi_driver(driver(tells[0]));
        Event::Storage(volumes.set_csi_driver(driver(tells[1])).expect("an event"))
    };
    check_hints(&named, &event([true, false]), &["VolumeBinding"]);
    check_hints(&named, &event([false, true]), &[]);
    check_hints(&user("p", &["c"]), &event([true, false]), &[]);
}

#[test]
fn storage_that_is_new_or_has_grown_helps() {
    let pod = user("p", &["c"]);
    let event = |old: Option<Value>, new: Value| {
        let mut volumes = crate::volumes::Volumes::default();
        if let Some(old) = old {
            volumes.set_capacity(capacity("x", "a", old));
        }
        Event::Storage(volumes.set_capacity(capacity("x", "a", new)).expect("an event"))
    };
    let of = |amount: &str| json!({"capacity": amount});
    check_hints(&pod, &event(None, of("1Gi")), &["VolumeBinding"]);
    check_hints(&pod, &event(Some(of("1Gi")), of("2Gi")), &["VolumeBinding"]);
    check_hints(&pod, &event(Some(of("2Gi")), of("1Gi")), &[]);
    check_hints(&pod, &event(Some(json!({"capacity": null})), of("1Gi")), &["VolumeBinding"]);
    check_hints(&pod, &event(Some(of("1Gi")), json!({"capacity": null})), &[]);
    let small = json!({"capacity": "9Gi", "maximumVolumeSize": "1Gi"});
    check_hints(&pod, &event(Some(of("1Gi")), small), &[]);
}

#[test]
fn an_attachment_that_is_gone_helps_pods_with_claims() {
    let gone = |attacher: &str| {
        let spec = json!({"attacher": attacher, "nodeName": "n1", "source": {}});
        let attachment = VolumeAttachment::parse(&json!({"metadata": {"name": "x"}, "spec": spec}));
        Event::Storage(StorageEvent::AttachmentGone(Arc::new(attachment.expect("an attachment"))))
    };
    check_hints(&user("p", &["c"]), &gone("a.csi"), &["NodeVolumeLimits"]);
    check_hints(&scratch(), &gone("a.csi"), &[]);
    let disk = with_volumes("p", json!([{"name": "d", "awsElasticBlockStore": {"volumeID": "vol-1"}}]));
    check_hints(&disk, &gone("ebs.csi.aws.com"), &["NodeVolumeLimits"]);
    check_hints(&disk, &gone("a.csi"), &[]);
}

#[test]
fn a_pod_that_is_gone_helps_who_wants_its_volumes_or_its_place() {
    let pod = user("p", &["c"]);
    let gone = |pod: PodInfo| Event::PodGone(Arc::new(pod));
    check_hints(&pod, &gone(user("q", &["c"])), &["VolumeRestrictions", "NodeVolumeLimits"]);
    check_hints(&pod, &gone(user("q", &["d"])), &["NodeVolumeLimits"]);
    check_hints(&pod, &gone(user("q", &[])), &[]);
    let elsewhere = PodInfo { namespace: Arc::from("other"), ..user("q", &["c"]) };
    check_hints(&pod, &gone(elsewhere), &["NodeVolumeLimits"]);
    let disk = |name: &str| with_volumes(name, json!([{"name": "d", "iscsi": {"iqn": "a"}}]));
    check_hints(&disk("p"), &gone(disk("q")), &["VolumeRestrictions"]);
}

#[test]
fn a_node_helps_if_it_is_new_or_has_other_labels() {
    let pod = user("p", &["c"]);
    let node = Arc::clone(&cluster().node("n1").expect("a node").info);
    let event = |change: NodeChange| {
        let old = (!change.added).then(|| Arc::clone(&node));
        Event::Node { old, node: Arc::clone(&node), change }
    };
    let added = NodeChange { added: true, ..NodeChange::default() };
    check_hints(&pod, &event(added), &["VolumeRestrictions", "VolumeBinding", "VolumeZone"]);
    let labels = NodeChange { labels: true, ..NodeChange::default() };
    check_hints(&pod, &event(labels), &["VolumeBinding", "VolumeZone"]);
    let taints = NodeChange { taints: true, ..NodeChange::default() };
    check_hints(&pod, &event(taints), &[]);
}
