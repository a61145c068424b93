//! Chaperons whose claims are made when they are elected.

use scheduling::volumes::{Claim, PersistentVolume, StorageClass};

use super::*;
use crate::observe::StorageSeen;

fn class(name: &str, provisioner: &str, mode: &str, default: bool) -> (Name, Option<StorageClass>) {
    let raw = json!({"metadata": {"name": name, "annotations":
            {"storageclass.kubernetes.io/is-default-class": default.to_string()}},
        "provisioner": provisioner, "volumeBindingMode": mode});
    (Name::new("", name), StorageClass::parse(&raw).ok())
}

/// A volume of class `local` that only node `n2` can reach.
fn disk() -> (Name, Option<PersistentVolume>) {
    let here = json!([{"matchExpressions": [{"key": "host", "operator": "In", "values": ["n2"]}]}]);
    let raw = json!({"metadata": {"name": "disk", "uid": "disk", "resourceVersion": "1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "capacity": {"storage": "8Gi"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": here}}},
        "status": {"phase": "Available"}});
    (Name::new("", "disk"), PersistentVolume::parse(&raw).ok())
}

fn spec_of(class: Option<&str>) -> Value {
    json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": {"requests": {"storage": "5Gi"}}})
}

/// A claim of this cluster; `original` if it is a copy.
fn claim(original: Option<&str>) -> (Name, Option<Claim>) {
    let raw = json!({"metadata": {"namespace": "shop", "name": "data", "uid": "claim", "resourceVersion": "1",
            "labels": {"multicluster.admiralty.io/parent-uid": original}},
        "spec": spec_of(Some("local"))});
    let mut raw = raw;
    if original.is_none() {
        raw["metadata"]["labels"] = json!({});
    }
    (Name::new("shop", "data"), Claim::parse(&raw).ok())
}

/// A target with nodes `n1` and `n2`, storage on the second, and these claims.
fn bench(default: bool, claims: Vec<(Name, Option<Claim>)>) -> Bench {
    let settings = Settings { cluster_uid: "here".to_owned(), storage: true, ..Settings::default() };
    let mut bench = Bench { model: Model::new(settings), now: 100_000, version: 100, open: Vec::new() };
    let host = |name: &str| {
        let NodeSeen::Usable(mut info) = node(name, json!({})) else { panic!("a node") };
        info.labels.insert("host", name);
        NodeSeen::Usable(info)
    };
    bench.see(Seen::Node(Change::All(["n1", "n2"].map(host).to_vec())));
    bench.see(Seen::Pod(Change::All(vec![])));
    bench.see(Seen::Chaperon(Change::All(vec![])));
    bench.see(Seen::Budget(Change::All(vec![])));
    let wait = "WaitForFirstConsumer";
    for seen in [
        StorageSeen::Claim(Change::All(claims)),
        StorageSeen::Volume(Change::All(vec![disk()])),
        StorageSeen::Class(Change::All(vec![
            class("local", "kubernetes.io/no-provisioner", wait, default),
            class("made", "a.csi", wait, false),
            class("now", "a.csi", "Immediate", false),
        ])),
        StorageSeen::CsiNode(Change::All(vec![])),
        StorageSeen::CsiDriver(Change::All(vec![])),
        StorageSeen::Capacity(Change::All(vec![])),
        StorageSeen::Attachment(Change::All(vec![])),
    ] {
        bench.see(Seen::Storage(seen));
    }
    bench
}

/// Asks for a pod with a claim that follows it, if it has a spec.
fn ask(bench: &mut Bench, following: Option<&Value>) -> Vec<Action> {
    let claims = following.map(|spec| json!({"data": {"uid": "u", "spec": spec}}).to_string());
    let mut annotations = vec![("attempt", "1")];
    annotations.extend(claims.as_deref().map(|claims| ("claims", claims)));
    let mut raw = raw_chaperon("a", &annotations, 5);
    raw["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    bench.see(Seen::Chaperon(Change::Is(ChaperonSeen::read(
        &serde_json::from_value(raw).expect("a chaperon"),
    ))));
    bench.admit()
}

#[track_caller]
fn refused(wanted: &[Action], words: &str) {
    let [Action::Refuse { message, .. }] = wanted else { panic!("{wanted:?}") };
    assert!(message.contains(words), "{message}");
}

#[test]
fn w30_a_claim_that_will_be_made_is_judged_as_if_it_were_there() {
    let wanted = ask(&mut bench(false, vec![]), Some(&spec_of(Some("local"))));
    assert_reserves(&wanted, "a", "n2", 1);
    let wanted = ask(&mut bench(true, vec![]), Some(&spec_of(None)));
    assert_reserves(&wanted, "a", "n2", 1);
    for class in ["made", "now"] {
        let wanted = ask(&mut bench(false, vec![]), Some(&spec_of(Some(class))));
        assert!(matches!(wanted.as_slice(), [Action::Reserve { .. }]), "{class}: {wanted:?}");
    }
}

#[test]
fn a_judgement_leaves_no_claim_behind() {
    let mut bench = bench(false, vec![]);
    let _reserved = ask(&mut bench, Some(&spec_of(Some("local"))));
    assert_eq!(bench.model.snapshot.volumes().claims().count(), 0);
}

#[test]
fn w30_case_072_a_claim_that_is_no_copy_is_never_taken_for_one() {
    let wanted = ask(&mut bench(false, vec![claim(None)]), Some(&spec_of(Some("local"))));
    refused(&wanted, "PersistentVolumeClaim \"data\" of this cluster is not that of the source");
    let wanted = ask(&mut bench(false, vec![claim(Some("of-another"))]), Some(&spec_of(Some("local"))));
    refused(&wanted, "is not that of the source");
    let wanted = ask(&mut bench(false, vec![claim(Some("u"))]), Some(&spec_of(Some("local"))));
    assert_reserves(&wanted, "a", "n2", 1);
}

#[test]
fn case_072_without_a_claim_in_the_source_the_targets_own_is_used() {
    let wanted = ask(&mut bench(false, vec![claim(None)]), None);
    assert_reserves(&wanted, "a", "n2", 1);
    refused(&ask(&mut bench(false, vec![]), None), "persistentvolumeclaim \"data\" not found");
}

#[test]
fn a_class_that_a_target_lacks_is_a_reason_to_refuse_until_it_comes() {
    let mut bench = bench(false, vec![]);
    let wanted = ask(&mut bench, Some(&spec_of(Some("gold"))));
    refused(&wanted, "StorageClass \"gold\" of PersistentVolumeClaim \"data\" does not exist");
    bench.done(&wanted[0]);
    let gold = class("gold", "a.csi", "WaitForFirstConsumer", false);
    bench.see(Seen::Storage(StorageSeen::Class(Change::Is(gold))));
    bench.now += 20_000;
    let wanted = bench.wants();
    assert!(matches!(wanted.as_slice(), [Action::Reserve { .. }]), "{wanted:?}");
}

#[test]
fn no_class_and_no_volume_is_said_in_words() {
    let wanted = ask(&mut bench(false, vec![]), Some(&spec_of(None)));
    refused(&wanted, "no default StorageClass in this cluster for PersistentVolumeClaim \"data\"");
}

#[test]
fn a_volume_with_a_claim_of_its_own_is_judged_by_its_template() {
    let mut bench = bench(false, vec![]);
    let mut raw = raw_chaperon("a", &[("attempt", "1")], 5);
    raw["spec"]["volumes"] =
        json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec_of(Some("local"))}}}]);
    bench.see(Seen::Chaperon(Change::Is(ChaperonSeen::read(
        &serde_json::from_value(raw).expect("a chaperon"),
    ))));
    let wanted = bench.admit();
    assert_reserves(&wanted, "a", "n2", 1);
}
