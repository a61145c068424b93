//! JSON patches that name what they believe to be there.

use api::{PodChaperon, keys};
use kube::api::{ObjectMeta, Patch};
use serde_json::{Value, json};

/// A JSON patch from its operations, which are always of that shape.
pub(crate) fn json_patch(ops: Value) -> Patch<()> {
    Patch::Json(serde_json::from_value(ops).unwrap_or_default())
}

/// Adds our finalizer. Where there is no list yet, the resourceVersion proves that there still is none.
pub(crate) fn hold(metadata: &ObjectMeta) -> Value {
    let uid = json!({"op": "test", "path": "/metadata/uid", "value": metadata.uid});
    if metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()) {
        return json!([uid, {"op": "add", "path": "/metadata/finalizers/-", "value": keys::CHAPERON_FINALIZER}]);
    }
    json!([
        uid,
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
        {"op": "add", "path": "/metadata/finalizers", "value": [keys::CHAPERON_FINALIZER]},
    ])
}

/// Removes our finalizer from where it was seen, if it is still there.
pub(crate) fn release(metadata: &ObjectMeta) -> Option<Value> {
    let at =
        metadata.finalizers.iter().flatten().position(|finalizer| finalizer == keys::CHAPERON_FINALIZER)?;
    let path = format!("/metadata/finalizers/{at}");
    Some(json!([
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {"op": "test", "path": path, "value": keys::CHAPERON_FINALIZER},
        {"op": "remove", "path": path},
    ]))
}

/// Replaces the status that was seen. Whoever decided on an older one, perhaps while another replica led, must
/// not undo an end that was recorded since: the phase is still the one that was seen, and where there was none
/// yet, nothing at all has changed.
pub(crate) fn replace_status(seen: &PodChaperon, status: &Value) -> Value {
    let guard = if seen.phase().is_empty() {
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": seen.resource_version()})
    } else {
        json!({"op": "test", "path": "/status/phase", "value": seen.phase()})
    };
    json!([
        {"op": "test", "path": "/metadata/uid", "value": seen.uid()},
        guard,
        {"op": "add", "path": "/status", "value": status},
    ])
}

#[cfg(test)]
mod tests {
    use super::{hold, json_patch, release, replace_status};
    use kube::api::{ObjectMeta, Patch};
    use serde_json::json;

    fn held(finalizers: &[&str]) -> ObjectMeta {
        ObjectMeta {
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            finalizers: Some(finalizers.iter().map(|&name| name.to_owned()).collect()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_finalizer_is_removed_only_from_where_it_was_seen() {
        let ops = release(&held(&["other", api::keys::CHAPERON_FINALIZER])).unwrap();
        assert_eq!(ops[0], json!({"op": "test", "path": "/metadata/uid", "value": "u"}));
        assert_eq!(ops[1]["path"], "/metadata/finalizers/1");
        assert_eq!(ops[2], json!({"op": "remove", "path": "/metadata/finalizers/1"}));
        assert!(release(&held(&["other"])).is_none());
    }

    #[test]
    fn a_finalizer_is_added_beside_those_of_others() {
        assert_eq!(hold(&held(&["other"]))[1]["path"], "/metadata/finalizers/-");
        assert_eq!(
            hold(&held(&[]))[1],
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"})
        );
    }

    #[test]
    fn a_status_decided_in_another_phase_is_not_written() {
        let mut seen: api::PodChaperon = serde_json::from_value(
            json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "status": {"phase": "Running"}}),
        )
        .unwrap();
        let ops = replace_status(&seen, &json!({"phase": "Running"}));
        assert_eq!(ops[0], json!({"op": "test", "path": "/metadata/uid", "value": "u"}));
        assert_eq!(ops[1], json!({"op": "test", "path": "/status/phase", "value": "Running"}));
        seen.status = json!({"conditions": []});
        let ops = replace_status(&seen, &json!({"phase": "Running"}));
        assert_eq!(ops[1], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"}));
        assert_eq!(ops[2]["op"], "add");
    }

    #[test]
    fn operations_become_a_patch_of_as_many() {
        let Patch::Json(patch) = json_patch(hold(&held(&[]))) else { panic!("no JSON patch") };
        assert_eq!(patch.0.len(), 3);
    }
}
