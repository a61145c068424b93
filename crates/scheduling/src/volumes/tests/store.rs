//! What is seen, and what is assumed on top of it.

use super::*;

fn seen(version: &str, volume: &str) -> Claim {
    let more = json!({"metadata": {"resourceVersion": version}, "spec": {"volumeName": volume}});
    Claim::parse(&claim("c", "waits", more)).expect("a claim")
}

fn assumed(version: &str) -> Arc<Claim> {
    Arc::new(Claim { selected_node: Some(Arc::from("n1")), ..seen(version, "") })
}

/// Is the assumption made on version 1 still believed?
#[track_caller]
fn believed(cache: &AssumeCache<Claim>, want: bool) {
    let selected = cache.get("default", "c").and_then(|claim| claim.selected_node.as_deref());
    assert_eq!(selected.is_some(), want);
}

fn with_assumption() -> AssumeCache<Claim> {
    let mut cache = AssumeCache::default();
    assert!(cache.set(Arc::new(seen("1", ""))).is_none());
    assert!(cache.assume(assumed("1")));
    cache
}

#[test]
fn what_is_assumed_is_believed_and_what_was_seen_stays_known() {
    let cache = with_assumption();
    believed(&cache, true);
    assert_eq!(cache.seen("default", "c").map(|claim| claim.selected_node.clone()), Some(None));
}

#[test]
fn any_other_version_ends_an_assumption() {
    for version in ["2", "0"] {
        let mut cache = with_assumption();
        cache.set(Arc::new(seen(version, "")));
        believed(&cache, false);
    }
}

#[test]
fn the_same_version_again_does_not_end_an_assumption() {
    let mut cache = with_assumption();
    cache.set(Arc::new(seen("1", "")));
    believed(&cache, true);
}

#[test]
fn what_has_changed_or_is_gone_cannot_be_assumed() {
    let mut cache = with_assumption();
    cache.set(Arc::new(seen("2", "")));
    assert!(!cache.assume(assumed("1")));
    believed(&cache, false);
    assert!(cache.remove("default", "c").is_some());
    assert!(!cache.assume(assumed("2")));
    assert!(cache.get("default", "c").is_none());
}

#[test]
fn an_assumption_is_taken_back_only_by_its_own_version() {
    let mut cache = with_assumption();
    cache.restore(&assumed("2"));
    believed(&cache, true);
    cache.restore(&assumed("1"));
    believed(&cache, false);
}

#[test]
fn a_deleted_object_takes_its_assumption_along() {
    let mut cache = with_assumption();
    cache.remove("default", "c");
    cache.set(Arc::new(seen("1", "")));
    believed(&cache, false);
}

#[test]
fn an_object_seen_again_as_it_was_is_no_event() {
    let mut snapshot = cluster();
    let value = claim("c", "waits", json!({}));
    let Some(StorageEvent::Claim { old: None, .. }) = set_claim(&mut snapshot, &value) else {
        panic!("a new claim")
    };
    let changes = snapshot.volumes().changes();
    assert_eq!(set_claim(&mut snapshot, &value), None);
    assert_eq!(snapshot.volumes().changes(), changes);
    let newer = claim("c", "waits", json!({"metadata": {"resourceVersion": "2"}}));
    assert!(matches!(set_claim(&mut snapshot, &newer), Some(StorageEvent::Claim { old: Some(_), .. })));
    assert!(snapshot.volumes().changes() > changes);
}

#[test]
fn a_volume_that_changes_its_class_is_found_under_the_new_one_alone() {
    let mut snapshot = cluster();
    set_volume(&mut snapshot, &volume("v", "local", json!({})));
    set_volume(&mut snapshot, &volume("v", "waits", json!({"metadata": {"resourceVersion": "2"}})));
    assert!(!snapshot.volumes().by_class.contains_key("local"));
    snapshot.volumes_mut().remove_volume("v");
    assert!(snapshot.volumes().by_class.is_empty());
    assert_eq!(snapshot.volumes().volumes().count(), 0);
}

#[test]
fn an_attachment_counts_on_its_own_node() {
    let mut volumes = Volumes::default();
    let attachment = |node: &str| {
        let spec = json!({"attacher": "a.csi", "nodeName": node, "source": {"persistentVolumeName": "v"}});
        VolumeAttachment::parse(&json!({"metadata": {"name": "x"}, "spec": spec})).expect("an attachment")
    };
    volumes.set_attachment(attachment("n1"));
    volumes.set_attachment(attachment("n2"));
    assert_eq!((volumes.attached("n1").count(), volumes.attached("n2").count()), (0, 1));
    assert!(matches!(volumes.remove_attachment("x"), Some(StorageEvent::AttachmentGone(_))));
    assert_eq!((volumes.attached("n2").count(), volumes.remove_attachment("x")), (0, None));
}

#[test]
fn an_older_annotation_for_the_class_beats_the_field() {
    let beta = json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}});
    assert_eq!(Claim::parse(&claim("c", "new", beta.clone())).expect("a claim").class, "old");
    let volume = PersistentVolume::parse(&volume("v", "new", beta)).expect("a volume");
    assert_eq!((&*volume.class, volume.spec_class()), ("old", "new"));
}

/// As what the driver of a disk sees it, and in which words it names the zone.
#[track_caller]
fn check_migrated(more: Value, want: Result<(&str, Value), &str>) {
    let parsed = PersistentVolume::parse(&volume("v", "", more)).expect("a volume");
    let VolumeSource::InTree { migrated, .. } = parsed.source else { panic!("{parsed:?}") };
    let want = want
        .map(|(handle, terms)| {
            let spec = json!({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}});
            let with_terms = volume("w", "", json!({"spec": if terms.is_null() { json!({}) } else { spec }}));
            let node_terms = PersistentVolume::parse(&with_terms).expect("a volume").node_terms;
            Migrated { handle: handle.to_owned(), node_terms }
        })
        .map_err(str::to_owned);
    assert_eq!(migrated, want);
}

fn zone_terms(key: &str, zones: &[&str]) -> Value {
    json!([{"matchExpressions": [{"key": key, "operator": "In", "values": zones}]}])
}

#[test]
fn a_disk_that_kubernetes_served_itself_has_the_name_that_its_driver_gives_it() {
    let ebs = |id: &str| json!({"spec": {"awsElasticBlockStore": {"volumeID": id}}});
    check_migrated(ebs("vol-1"), Ok(("vol-1", Value::Null)));
    check_migrated(ebs("aws://us-east1-a/vol-1"), Ok(("vol-1", Value::Null)));
    check_migrated(ebs("aws:///vol-1"), Ok(("vol-1", Value::Null)));
    let problem =
        "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://a/disk)";
    check_migrated(ebs("aws://a/disk"), Err(problem));
    let azure = |kind: &str| json!({"spec": {"azureDisk": {"diskURI": "/d", "kind": kind}}});
    check_migrated(azure("Managed"), Ok(("/d", Value::Null)));
    check_migrated(azure("Dedicated"), Err("kind(Dedicated) is not supported in csi migration"));
    check_migrated(json!({"spec": {"cinder": {"volumeID": "c"}}}), Ok(("c", Value::Null)));
    check_migrated(json!({"spec": {"portworxVolume": {"volumeID": "p"}}}), Ok(("p", Value::Null)));
}

#[test]
fn a_gce_disk_is_named_by_its_zone_or_region() {
    let disk = |labels: Value| json!({"metadata": {"labels": labels}, "spec": {"gcePersistentDisk": {"pdName": "d"}}});
    let key = "topology.gke.io/zone";
    let (zone, beta) = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone");
    check_migrated(disk(json!({})), Ok(("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", Value::Null)));
    let handle = "projects/UNSPECIFIED/zones/us-east1-a/disks/d";
    check_migrated(disk(json!({zone: "us-east1-a"})), Ok((handle, zone_terms(key, &["us-east1-a"]))));
    let handle = "projects/UNSPECIFIED/regions/us-east1/disks/d";
    let zones = zone_terms(key, &["us-east1-a", "us-east1-b"]);
    check_migrated(disk(json!({beta: "us-east1-a__us-east1-b"})), Ok((handle, zones)));
    let problem = "failed to get region from zones: multiple or no regions gotten from zones, got: map[us-east1:{} us-west1:{}]";
    check_migrated(disk(json!({zone: "us-east1-a__us-west1-a"})), Err(problem));
}

#[test]
fn the_drivers_name_for_a_zone_replaces_the_old_one_in_node_affinity() {
    let disk = |terms: Value| json!({"spec": {"cinder": {"volumeID": "c"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    let key = "topology.cinder.csi.openstack.org/zone";
    let old = json!([{"matchExpressions": [
        {"key": "failure-domain.beta.kubernetes.io/zone", "operator": "In", "values": ["a"]},
        {"key": "failure-domain.beta.kubernetes.io/region", "operator": "In", "values": ["r"]},
    ]}]);
    let new = json!([{"matchExpressions": [
        {"key": key, "operator": "In", "values": ["a"]},
        {"key": "topology.kubernetes.io/region", "operator": "In", "values": ["r"]},
    ]}]);
    check_migrated(disk(old), Ok(("c", new)));
    let other = json!([{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]);
    check_migrated(disk(other.clone()), Ok(("c", other.clone())));
    let mut labelled = disk(other);
    labelled["metadata"] = json!({"labels": {"topology.kubernetes.io/zone": "a"}});
    let both = json!([{"matchExpressions": [
        {"key": "disk", "operator": "Exists"}, {"key": key, "operator": "In", "values": ["a"]},
    ]}]);
    check_migrated(labelled, Ok(("c", both)));
}
