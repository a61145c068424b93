//! The four kinds of patches.

use super::Refusal;
use serde_json::{Map, Value, json};

/// How a patch is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// RFC 7396.
    Merge,
    /// RFC 6902.
    Json,
    /// Kubernetes' own merge, which merges some lists by key.
    Strategic,
    /// Server-side apply: what it names is set, without remembering whose it is.
    Apply,
}

impl Form {
    /// The form of a content type.
    #[must_use]
    pub fn of(content_type: &str) -> Option<Self> {
        match content_type {
            "application/merge-patch+json" => Some(Form::Merge),
            "application/json-patch+json" => Some(Form::Json),
            "application/strategic-merge-patch+json" => Some(Form::Strategic),
            "application/apply-patch+yaml" => Some(Form::Apply),
            _ => None,
        }
    }
}

/// Lists that are merged, with their key; the empty key stands for plain values.
const MERGED: &[(&str, &str)] =
    &[("conditions", "type"), ("podIPs", "ip"), ("hostIPs", "ip"), ("addresses", "type"), ("finalizers", "")];

/// An object with a patch applied.
///
/// # Errors
///
/// A test of a JSON patch failed, or the patch makes no sense.
pub fn patched(object: &Value, patch: &Value, form: Form) -> Result<Value, Refusal> {
    let mut result = object.clone();
    match form {
        Form::Merge => json_patch::merge(&mut result, patch),
        Form::Json => {
            let operations: json_patch::Patch = serde_json::from_value(patch.clone())
                .map_err(|error| Refusal::invalid(format!("no JSON patch: {error}")))?;
            json_patch::patch(&mut result, &operations)
                .map_err(|error| Refusal::invalid(format!("the server rejected our request: {error}")))?;
        }
        Form::Strategic | Form::Apply => strategic(&mut result, patch),
    }
    Ok(result)
}

fn strategic(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Value::Object(fields) = target else { return };
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
            continue;
        }
        let merged = MERGED.iter().find(|(list, _)| list == key).map(|(_, by)| *by);
        match (change, merged) {
            (Value::Array(items), Some(by)) => merge_list(fields, key, items, by),
            (Value::Object(_), _) => {
                strategic(fields.entry(key.clone()).or_insert_with(|| json!({})), change);
            }
            _ => {
                fields.insert(key.clone(), change.clone());
            }
        }
    }
}

fn merge_list(fields: &mut Map<String, Value>, key: &str, items: &[Value], by: &str) {
    let mut list = fields.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    for item in items {
        let directive = item.get("$patch").and_then(Value::as_str);
        if directive == Some("replace") {
            list.clear();
            continue;
        }
        let same = |found: &Value| if by.is_empty() { found == item } else { found.get(by) == item.get(by) };
        if directive == Some("delete") {
            list.retain(|found| !same(found));
            continue;
        }
        match list.iter_mut().find(|found| same(found)) {
            Some(found) if !by.is_empty() => strategic(found, item),
            Some(_) => {}
            None => {
                let mut new = json!({});
                strategic(&mut new, item);
                list.push(if by.is_empty() { item.clone() } else { new });
            }
        }
    }
    fields.insert(key.to_owned(), Value::Array(list));
}

#[cfg(test)]
mod tests {
    use super::{Form, patched};
    use serde_json::json;

    #[test]
    fn a_strategic_patch_merges_conditions_by_type() {
        let old = json!({"status": {"conditions": [{"type": "A", "status": "True", "reason": "r"}, {"type": "B"}]}});
        let patch = json!({"status": {"conditions": [
            {"type": "A", "status": "False", "reason": null}, {"$patch": "delete", "type": "B"}, {"type": "C"}]}});
        let new = patched(&old, &patch, Form::Strategic).unwrap();
        assert_eq!(new["status"]["conditions"], json!([{"type": "A", "status": "False"}, {"type": "C"}]));
    }

    #[test]
    fn a_list_can_be_replaced_as_a_whole() {
        let old = json!({"podIPs": [{"ip": "1"}]});
        let patch = json!({"podIPs": [{"$patch": "replace"}, {"ip": "2"}]});
        assert_eq!(patched(&old, &patch, Form::Strategic).unwrap(), json!({"podIPs": [{"ip": "2"}]}));
    }

    #[test]
    fn a_failed_test_refuses_the_whole_patch() {
        let patch =
            json!([{"op": "add", "path": "/b", "value": 1}, {"op": "test", "path": "/a", "value": 2}]);
        assert_eq!(patched(&json!({"a": 1}), &patch, Form::Json).unwrap_err().code, 422);
    }
}
