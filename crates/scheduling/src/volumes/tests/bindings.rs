//! From the choice of volumes to the end of binding.

use super::*;

/// Two claims that wait, of 5 and 2 Gi; volumes `v1` and `w1` on `n1`, `v2` on `n2`.
fn local() -> Snapshot {
    let mut snapshot = cluster();
    set_claim(&mut snapshot, &claim("c", "local", json!({})));
    let small = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    set_claim(&mut snapshot, &claim("d", "local", small));
    for (name, node, size) in [("v1", "n1", "9Gi"), ("w1", "n1", "8Gi"), ("v2", "n2", "5Gi")] {
        let mut more = on_node(node);
        merge(&mut more, json!({"spec": {"capacity": {"storage": size}}}));
        set_volume(&mut snapshot, &volume(name, "local", more));
    }
    snapshot
}

fn dynamic() -> Snapshot {
    let mut snapshot = cluster();
    set_claim(&mut snapshot, &claim("c", "waits", json!({})));
    snapshot
}

fn fits(snapshot: &Snapshot, pod: &PodInfo, node: &str) -> Result<(), String> {
    let framework = Framework::builder().build();
    framework.evaluate_node(pod, snapshot, node).map_err(|refusal| refusal.message())
}

fn names(plan: &VolumePlan) -> Vec<String> {
    plan.writes()
        .iter()
        .map(|write| match write {
            VolumeWrite::Volume { name, patch } => {
                let claim = patch.pointer("/spec/claimRef/name").and_then(Value::as_str);
                format!("{name}={}", claim.unwrap_or_default())
            }
            VolumeWrite::Claim { namespace, name, .. } => format!("{namespace}/{name}"),
        })
        .collect()
}

#[test]
fn each_claim_gets_the_smallest_volume_that_is_large_enough_and_the_smallest_claim_chooses_first() {
    let snapshot = local();
    let pod = user("p", &["c", "d"]);
    assert_eq!(names(&plan(&snapshot, &pod, "n1")), ["w1=d", "v1=c"]);
    let none = "node(s) didn't find available persistent volumes to bind";
    assert_eq!(fits(&snapshot, &pod, "n2"), Err(none.to_owned()));
}

#[test]
fn a_binding_is_written_under_the_versions_that_were_seen() {
    let snapshot = local();
    let writes = plan(&snapshot, &user("p", &["c"]), "n1").writes();
    let patch = json!({
        "metadata": {
            "uid": "uid-w1", "resourceVersion": "1",
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
        },
        "spec": {"claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "c",
            "uid": "uid-c", "resourceVersion": "1",
        }},
    });
    assert_eq!(writes, [VolumeWrite::Volume { name: Arc::from("w1"), patch }]);
}

#[test]
fn a_volume_that_a_user_kept_for_the_claim_is_not_marked_as_bound_by_a_controller() {
    let mut snapshot = local();
    let kept =
        json!({"spec": {"capacity": {"storage": "90Gi"}, "claimRef": {"namespace": "default", "name": "c"}}});
    set_volume(&mut snapshot, &volume("kept", "local", kept));
    let plan = plan(&snapshot, &user("p", &["c"]), "n1");
    assert_eq!(names(&plan), ["kept=c"]);
    let VolumeWrite::Volume { patch, .. } = &plan.writes()[0] else { panic!("{plan:?}") };
    assert_eq!(patch["metadata"]["annotations"], Value::Null);
}

#[test]
fn a_volume_that_is_kept_for_the_claim_with_its_uid_needs_no_write() {
    let mut snapshot = local();
    let claim_ref = json!({"namespace": "default", "name": "c", "uid": "uid-c"});
    set_volume(&mut snapshot, &volume("kept", "local", json!({"spec": {"claimRef": claim_ref}})));
    let plan = plan(&snapshot, &user("p", &["c"]), "n1");
    assert!(plan.writes().is_empty());
    assert!(snapshot.volumes_mut().assume(&plan));
    assert_eq!(snapshot.volumes().progress(&plan, &node(&snapshot, "n1").info), Progress::Waiting);
}

#[test]
fn a_node_is_selected_under_the_version_of_the_claim_that_was_seen() {
    let snapshot = dynamic();
    let writes = plan(&snapshot, &user("p", &["c"]), "n2").writes();
    let patch = json!({"metadata": {
        "uid": "uid-c", "resourceVersion": "1",
        "annotations": {"volume.kubernetes.io/selected-node": "n2"},
    }});
    let (namespace, name) = (Arc::from("default"), Arc::from("c"));
    assert_eq!(writes, [VolumeWrite::Claim { namespace, name, patch }]);
}

#[test]
fn a_node_that_is_selected_already_is_not_written_again_and_no_other_will_do() {
    let mut snapshot = cluster();
    let selected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n2"}}});
    set_claim(&mut snapshot, &claim("c", "waits", selected));
    let pod = user("p", &["c"]);
    assert!(plan(&snapshot, &pod, "n2").writes().is_empty());
    assert!(fits(&snapshot, &pod, "n1").is_err());
}

#[test]
fn nothing_is_planned_for_a_pod_whose_claims_are_bound_or_that_has_none() {
    let mut snapshot = dynamic();
    set_claim(&mut snapshot, &claim("b", "waits", bound_to("v")));
    set_volume(&mut snapshot, &volume("v", "waits", json!({})));
    let framework = Framework::builder().build();
    for claims in [&[][..], &["b"]] {
        assert_eq!(framework.volumes(&user("p", claims), &snapshot, node(&snapshot, "n1")), None);
    }
    let without = Framework::builder().without(&["VolumeBinding"]).build();
    assert_eq!(without.volumes(&user("p", &["c"]), &snapshot, node(&snapshot, "n1")), None);
}

#[test]
fn what_is_assumed_for_one_pod_is_taken_for_the_next() {
    let mut snapshot = local();
    let first = plan(&snapshot, &user("p", &["c"]), "n1");
    assert!(snapshot.volumes_mut().assume(&first));
    let second = plan(&snapshot, &user("q", &["d"]), "n1");
    assert_eq!((names(&first), names(&second)), (vec!["w1=c".to_owned()], vec!["v1=d".to_owned()]));
    snapshot.volumes_mut().forget(&first);
    assert_eq!(names(&plan(&snapshot, &user("q", &["d"]), "n1")), ["w1=d"]);
}

#[test]
fn pods_that_share_a_claim_meet_on_the_node_for_which_its_volume_is_made() {
    let mut snapshot = dynamic();
    let first = plan(&snapshot, &user("p", &["c"]), "n1");
    assert!(snapshot.volumes_mut().assume(&first));
    assert!(fits(&snapshot, &user("q", &["c"]), "n1").is_ok());
    assert!(fits(&snapshot, &user("q", &["c"]), "n2").is_err());
    snapshot.volumes_mut().forget(&first);
    assert!(fits(&snapshot, &user("q", &["c"]), "n2").is_ok());
}

#[test]
fn pods_that_share_a_claim_meet_where_the_volume_is_that_was_written_for_it_however_late_the_controller_is() {
    let mut snapshot = local();
    let mut first = plan(&snapshot, &user("p", &["c"]), "n1");
    assert!(snapshot.volumes_mut().assume(&first));
    first.written("7");
    let claim_ref = json!({"namespace": "default", "name": "c", "uid": "uid-c"});
    let mut written = on_node("n1");
    merge(&mut written, json!({"metadata": {"resourceVersion": "7"}, "spec": {"claimRef": claim_ref}}));
    set_volume(&mut snapshot, &volume("w1", "local", written));
    // What was seen does not go when the pod does.
    snapshot.volumes_mut().forget(&first);
    assert!(fits(&snapshot, &user("q", &["c"]), "n1").is_ok());
    assert!(fits(&snapshot, &user("q", &["c"]), "n2").is_err());
    // It is not for a later claim of the same name.
    set_claim(&mut snapshot, &claim("c", "local", json!({"metadata": {"uid": "another"}})));
    assert_eq!(names(&plan(&snapshot, &user("q", &["c"]), "n1")), ["v1=c"]);
    assert!(fits(&snapshot, &user("q", &["c"]), "n2").is_ok());
}

#[test]
fn a_plan_that_is_out_of_date_is_not_assumed_even_in_part() {
    let mut snapshot = local();
    let both = plan(&snapshot, &user("p", &["c", "d"]), "n1");
    set_volume(&mut snapshot, &volume("v1", "local", json!({"metadata": {"resourceVersion": "2"}})));
    assert!(!snapshot.volumes_mut().assume(&both));
    let untouched = snapshot.volumes().volumes.get("", "w1").and_then(|volume| volume.claim.clone());
    assert_eq!(untouched, None);
}

#[test]
fn what_was_written_stays_assumed_until_it_is_seen() {
    let mut snapshot = local();
    let mut plan = plan(&snapshot, &user("p", &["c", "d"]), "n1");
    assert!(snapshot.volumes_mut().assume(&plan));
    plan.written("7");
    assert_eq!(names(&plan), ["v1=c"]);
    snapshot.volumes_mut().forget(&plan);
    let taken = |snapshot: &Snapshot, name: &str| {
        snapshot.volumes().volumes.get("", name).is_some_and(|volume| volume.claim.is_some())
    };
    assert_eq!((taken(&snapshot, "w1"), taken(&snapshot, "v1")), (true, false));
}

/// Writes a plan, and shows what the controller did with it.
#[track_caller]
fn check_progress(snapshot: &mut Snapshot, after: &[(&str, Value)], want: &Progress) {
    let mut plan = plan(snapshot, &user("p", &["c"]), "n1");
    assert!(snapshot.volumes_mut().assume(&plan));
    plan.written("7");
    assert!(plan.writes().is_empty());
    for (kind, value) in after {
        match *kind {
            "claim" => set_claim(snapshot, value),
            "volume" => set_volume(snapshot, value),
            name => {
                snapshot.volumes_mut().remove_claim("default", name);
                snapshot.volumes_mut().remove_volume(name);
                None
            }
        };
    }
    assert_eq!(&snapshot.volumes().progress(&plan, &node(snapshot, "n1").info), want);
}

fn written_volume(mut more: Value) -> Value {
    let mut value = on_node("n1");
    let claim_ref = json!({"namespace": "default", "name": "c", "uid": "uid-c"});
    merge(&mut value, json!({"metadata": {"resourceVersion": "7"}, "spec": {"claimRef": claim_ref}}));
    merge(&mut value, more.take());
    volume("w1", "local", value)
}

fn bound_claim(version: &str, volume: &str) -> Value {
    let mut more = bound_to(volume);
    merge(&mut more, json!({"metadata": {"resourceVersion": version}}));
    more
}

#[test]
fn a_binding_is_done_when_the_controller_has_completed_it() {
    let claim = claim("c", "local", bound_claim("8", "w1"));
    let after = [("volume", written_volume(json!({}))), ("claim", claim)];
    check_progress(&mut local(), &after, &Progress::Bound);
}

#[test]
fn a_binding_waits_for_our_own_write_and_for_the_claim() {
    check_progress(&mut local(), &[], &Progress::Waiting);
    let claim = claim("c", "local", bound_claim("8", "w1"));
    check_progress(&mut local(), &[("claim", claim)], &Progress::Waiting);
    check_progress(&mut local(), &[("volume", written_volume(json!({})))], &Progress::Waiting);
}

#[test]
fn a_binding_fails_if_it_is_undone_or_its_objects_are_gone() {
    let reset = written_volume(json!({"metadata": {"resourceVersion": "9"}, "spec": {"claimRef": null}}));
    let failed = |text: &str| Progress::Failed(text.to_owned());
    check_progress(&mut local(), &[("volume", reset)], &failed("ClaimRef got reset for pv \"w1\""));
    let text = "failed to check binding: persistentvolumes \"w1\" not found";
    check_progress(&mut local(), &[("w1", json!({}))], &failed(text));
    let text = "failed to check binding: persistentvolumeclaims \"default/c\" not found";
    check_progress(&mut local(), &[("c", json!({}))], &failed(text));
}

#[test]
fn a_binding_fails_if_the_volume_is_out_of_reach_by_now() {
    let away = written_volume(on_node("n9"));
    let text = "pv \"w1\" node affinity doesn't match node \"n1\": no matching NodeSelectorTerms";
    check_progress(&mut local(), &[("volume", away)], &Progress::Failed(text.to_owned()));
}

fn selected(version: &str, node: &str, mut more: Value) -> Value {
    let annotations = json!({"volume.kubernetes.io/selected-node": node});
    merge(&mut more, json!({"metadata": {"resourceVersion": version, "annotations": annotations}}));
    claim("c", "waits", more)
}

#[test]
fn provisioning_is_done_when_the_claim_is_bound_to_a_volume_in_reach() {
    let made = volume("made", "waits", on_node("n1"));
    let claim = selected("8", "n1", bound_to("made"));
    check_progress(&mut dynamic(), &[("volume", made), ("claim", claim.clone())], &Progress::Bound);
    // The volume may be seen later than the claim.
    check_progress(&mut dynamic(), &[("claim", claim.clone())], &Progress::Waiting);
    let elsewhere = volume("made", "waits", on_node("n2"));
    let text = "pv \"made\" node affinity doesn't match node \"n1\": no matching NodeSelectorTerms";
    let after = [("volume", elsewhere), ("claim", claim)];
    check_progress(&mut dynamic(), &after, &Progress::Failed(text.to_owned()));
}

#[test]
fn provisioning_waits_for_our_own_write_and_for_the_provisioner() {
    check_progress(&mut dynamic(), &[], &Progress::Waiting);
    check_progress(&mut dynamic(), &[("claim", selected("7", "n1", json!({})))], &Progress::Waiting);
}

#[test]
fn a_provisioner_that_gives_up_takes_the_node_away() {
    let failed = Progress::Failed("provisioning failed for PVC \"c\"".to_owned());
    let without = claim("c", "waits", json!({"metadata": {"resourceVersion": "9"}}));
    check_progress(&mut dynamic(), &[("claim", without)], &failed);
    check_progress(&mut dynamic(), &[("claim", selected("9", "n2", json!({})))], &failed);
    let text = "failed to check provisioning pvc: persistentvolumeclaims \"default/c\" not found";
    check_progress(&mut dynamic(), &[("c", json!({}))], &Progress::Failed(text.to_owned()));
}
