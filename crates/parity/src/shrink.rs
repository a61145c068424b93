//! Makes a document that shows a difference as small as possible.

use serde_json::Value;

/// A way to a value inside a document: keys of objects and indexes of lists.
type Way = Vec<Step>;

/// Fields that an API server fills in where they are missing.
const KEPT: [&str; 1] = ["allocatable"];

#[derive(Debug, Clone)]
enum Step {
    Key(String),
    Index(usize),
}

/// Takes away all that can be taken away while `differs` stays true. `differs` is asked at most `tries` times.
#[must_use]
pub fn shrink(document: Value, tries: usize, differs: &mut dyn FnMut(&Value) -> bool) -> Value {
    let mut left = tries;
    let mut ask = |document: &Value| {
        left = left.saturating_sub(1);
        left > 0 && differs(document)
    };
    let mut document = document;
    loop {
        let before = document.clone();
        document = fewer_objects(document, &mut ask);
        document = fewer_fields(document, &mut ask);
        if document == before {
            return document;
        }
    }
}

/// Takes objects out of the document's lists, many at once first.
fn fewer_objects(mut document: Value, differs: &mut dyn FnMut(&Value) -> bool) -> Value {
    let lists: Vec<String> = document
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| value.is_array())
        .map(|(name, _)| name.clone())
        .collect();
    for name in lists {
        let mut size = document[&name].as_array().map_or(0, Vec::len);
        while size > 0 {
            document = without_chunks(document, &name, size, differs);
            size /= 2;
        }
    }
    document
}

fn without_chunks(
    mut document: Value,
    name: &str,
    size: usize,
    differs: &mut dyn FnMut(&Value) -> bool,
) -> Value {
    let mut start = 0;
    loop {
        let mut smaller = document.clone();
        let Some(list) = smaller[name].as_array_mut().filter(|list| start < list.len()) else {
            return document;
        };
        let end = list.len().min(start + size);
        list.drain(start..end);
        if differs(&smaller) {
            document = smaller;
        } else {
            start += size;
        }
    }
}

/// Takes single fields and elements away, the outer ones first.
fn fewer_fields(mut document: Value, differs: &mut dyn FnMut(&Value) -> bool) -> Value {
    let mut ways = Vec::new();
    collect(&document, &mut Vec::new(), &mut ways);
    ways.sort_by_key(Vec::len);
    for way in ways {
        let mut smaller = document.clone();
        if remove(&mut smaller, &way) && differs(&smaller) {
            document = smaller;
        }
    }
    document
}

fn collect(value: &Value, way: &mut Way, ways: &mut Vec<Way>) {
    let steps: Vec<(Step, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (Step::Key(key.clone()), value)).collect(),
        // From the end, so that an index still means the same after a later one is gone.
        Value::Array(list) => {
            list.iter().enumerate().rev().map(|(i, value)| (Step::Index(i), value)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    for (step, inner) in steps {
        way.push(step);
        // Whole objects are left to the other half of the work.
        let kept = matches!(way.last(), Some(Step::Key(key)) if KEPT.contains(&key.as_str()));
        if way.len() > 2 && !kept {
            ways.push(way.clone());
        }
        collect(inner, way, ways);
        way.pop();
    }
}

fn remove(document: &mut Value, way: &[Step]) -> bool {
    let Some((last, before)) = way.split_last() else { return false };
    let mut place = document;
    for step in before {
        let next = match step {
            Step::Key(key) => place.get_mut(key),
            Step::Index(index) => place.get_mut(index),
        };
        let Some(next) = next else { return false };
        place = next;
    }
    match (place, last) {
        (Value::Object(fields), Step::Key(key)) => fields.remove(key).is_some(),
        (Value::Array(list), Step::Index(index)) if *index < list.len() => {
            list.remove(*index);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_difference_needs_is_left() {
        let nodes: Vec<_> = (0..20).map(|i| json!({"name": i, "labels": {"a": "b", "c": "d"}})).collect();
        let document = json!({"name": "x", "nodes": nodes, "pods": [{"name": 1}, {"name": 2}]});
        let shrunk = shrink(document, 1000, &mut |document| {
            let nodes = document["nodes"].as_array().unwrap();
            nodes.iter().any(|node| node["name"] == 13 && node["labels"]["c"] == "d")
        });
        assert_eq!(shrunk, json!({"name": "x", "nodes": [{"name": 13, "labels": {"c": "d"}}], "pods": []}));
    }
}
