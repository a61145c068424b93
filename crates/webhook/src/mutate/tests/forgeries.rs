//! W29: a manifest or an election that we did not write.

use super::{annotated, judge_as, owned, pod, proxy, refused};
use api::keys;
use serde_json::{Value, json};

#[test]
fn w29_a_manifest_of_the_user_is_refused() {
    let evil = annotated(keys::SOURCE_POD_MANIFEST, r#"{"spec":{"hostNetwork":true}}"#);
    refused(
        &pod(&evil, &json!({})),
        "sourcepod-manifest] is written by multicluster-scheduler alone; remove it",
    );
}

#[test]
fn w29_a_manifest_of_the_user_is_refused_whatever_else_the_user_sets() {
    let mut pod = proxy(&pod(&json!({}), &json!({})));
    pod["metadata"]["annotations"][keys::SOURCE_POD_MANIFEST] = r#"{"spec":{"hostNetwork":true}}"#.into();
    refused(&pod, "sourcepod-manifest]");
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove(keys::SOURCE_POD_MANIFEST);
    refused(&pod, "sourcepod-manifest-mac]");
}

#[track_caller]
fn replayed(user: &str, later: u64, change: impl Fn(&mut Value)) {
    let mut copy = proxy(&pod(&json!({}), &json!({})));
    change(&mut copy);
    assert_eq!(judge_as("CREATE", &copy, user, 1000 + later).as_str(), "denied");
}

#[test]
fn w29_a_proxy_pod_copied_by_another_user_is_refused() {
    replayed("joe", 0, |_| ());
}

#[test]
fn w29_a_proxy_pod_copied_later_is_refused() {
    replayed("jane", 301, |_| ());
}

#[test]
fn w29_a_manifest_on_a_pod_of_another_name_is_refused() {
    replayed("jane", 0, |pod| pod["metadata"]["name"] = "other".into());
}

#[test]
fn w29_an_election_written_by_a_user_is_refused() {
    for key in [keys::ELECTED_TARGET, keys::ELECTED_CHAPERON, keys::ELECTION_EPOCH, keys::GRANT] {
        refused(&pod(&annotated(key, "1"), &json!({})), key);
    }
}

#[test]
fn w29_a_pod_that_is_never_elected_cannot_pretend_to_be_a_proxy_pod() {
    let mut metadata = owned("DaemonSet");
    metadata["annotations"] = json!({keys::SOURCE_POD_MANIFEST: "{}"});
    refused(&pod(&metadata, &json!({})), "sourcepod-manifest]");
    refused(
        &pod(&owned("DaemonSet"), &json!({"schedulerName": keys::PROXY_SCHEDULER})),
        "spec.schedulerName",
    );
    refused(&pod(&json!({}), &json!({"nodeName": "admiralty-default-c2"})), "is a virtual node");
}
