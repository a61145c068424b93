//! The smallest JSON patch for a handful of fields.

use serde_json::{Map, Value, json};

/// Operations of RFC 6902 in the order of the calls.
#[derive(Debug, Default)]
pub struct Patch(pub Vec<Value>);

impl Patch {
    /// Makes a field what it is to be; `None` removes it. Nothing happens to a field that is right already.
    pub fn put(&mut self, path: &str, have: Option<&Value>, want: Option<Value>) {
        let operation = match (have, want) {
            (Some(have), Some(want)) if *have == want => return,
            (None, None) => return,
            (Some(_), Some(want)) => json!({"op": "replace", "path": path, "value": want}),
            (None, Some(want)) => json!({"op": "add", "path": path, "value": want}),
            (Some(_), None) => json!({"op": "remove", "path": path}),
        };
        self.0.push(operation);
    }

    /// Sets entries of a map of strings, which is made if it is absent.
    pub fn put_entries(&mut self, path: &str, map: Option<&Value>, entries: &[(&str, &str)]) {
        let Some(map) = map.and_then(Value::as_object) else {
            let all: Map<String, Value> =
                entries.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
            self.0.push(json!({"op": "add", "path": path, "value": all}));
            return;
        };
        for (key, value) in entries {
            let escaped = key.replace('~', "~0").replace('/', "~1");
            self.put(&format!("{path}/{escaped}"), map.get(*key), Some(Value::from(*value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Patch;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(have: Option<&Value>, want: Option<Value>, operations: &[Value]) {
        let mut patch = Patch::default();
        patch.put("/a", have, want);
        assert_eq!(patch.0, operations);
    }

    #[test]
    fn a_field_that_is_right_is_left_alone() {
        check(Some(&json!(1)), Some(json!(1)), &[]);
        check(None, None, &[]);
    }

    #[test]
    fn a_field_is_added_replaced_or_removed() {
        check(None, Some(json!(1)), &[json!({"op": "add", "path": "/a", "value": 1})]);
        check(Some(&json!(2)), Some(json!(1)), &[json!({"op": "replace", "path": "/a", "value": 1})]);
        check(Some(&json!(2)), None, &[json!({"op": "remove", "path": "/a"})]);
    }

    #[test]
    fn an_entry_of_a_map_is_escaped() {
        let mut patch = Patch::default();
        patch.put_entries("/m", Some(&json!({})), &[("a/b~c", "1")]);
        assert_eq!(patch.0, [json!({"op": "add", "path": "/m/a~1b~0c", "value": "1"})]);
    }

    #[test]
    fn an_absent_map_is_made() {
        let mut patch = Patch::default();
        patch.put_entries("/m", None, &[("a", "1")]);
        assert_eq!(patch.0, [json!({"op": "add", "path": "/m", "value": {"a": "1"}})]);
    }
}
