//! What leaves a cluster in a bundle.

use api::keys;
use serde_json::{Map, Value};

const REDACTED: &str = "REDACTED";
/// Annotations that hold whole objects.
const WHOLE: [&str; 3] = [
    keys::SOURCE_POD_MANIFEST,
    keys::SOURCE_POD_MANIFEST_MAC,
    "kubectl.kubernetes.io/last-applied-configuration",
];
/// Fields of a container in which people write passwords.
const WRITTEN: [&str; 3] = ["command", "args", "lifecycle"];

/// Removes what an object's owner may have written in confidence: values of environment variables, commands,
/// whole objects in annotations; and managed fields, which nobody reads.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("managedFields");
            annotations(object);
            container(object);
            object.values_mut().for_each(redact);
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

fn annotations(object: &mut Map<String, Value>) {
    let Some(Value::Object(annotations)) = object.get_mut("annotations") else { return };
    for key in WHOLE {
        if let Some(value) = annotations.get_mut(key) {
            *value = Value::from(REDACTED);
        }
    }
}

/// A container is what has an image and a name.
fn container(object: &mut Map<String, Value>) {
    if !object.contains_key("image") || !object.contains_key("name") {
        return;
    }
    for field in WRITTEN {
        if let Some(value) = object.get_mut(field) {
            *value = Value::from(REDACTED);
        }
    }
    let env = object.get_mut("env").and_then(Value::as_array_mut);
    for variable in env.into_iter().flatten() {
        if let Some(value) = variable.get_mut("value") {
            *value = Value::from(REDACTED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::redact;
    use api::keys;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(mut given: Value, want: &Value) {
        redact(&mut given);
        assert_eq!(given, *want);
    }

    #[test]
    fn values_and_commands_of_containers_are_left_out() {
        check(
            json!({"spec": {"initContainers": [
                {"name": "a", "image": "i", "args": ["--password=x"], "env": [{"name": "P", "value": "secret"}]},
            ]}}),
            &json!({"spec": {"initContainers": [
                {"name": "a", "image": "i", "args": "REDACTED", "env": [{"name": "P", "value": "REDACTED"}]},
            ]}}),
        );
    }

    #[test]
    fn references_stay() {
        let env = json!({"name": "a", "image": "i", "env": [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "s"}}}]});
        check(env.clone(), &env);
    }

    #[test]
    fn whole_objects_in_annotations_are_left_out() {
        check(
            json!({"metadata": {"annotations": {keys::SOURCE_POD_MANIFEST: "kind: Pod", "a": "b"}, "managedFields": []}}),
            &json!({"metadata": {"annotations": {keys::SOURCE_POD_MANIFEST: "REDACTED", "a": "b"}}}),
        );
    }
}
