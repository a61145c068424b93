//! Reading raw manifests by hand, so that an error names the field that is wrong.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::labels::Labels;
use crate::quantity::Quantity;
use crate::resources::{ResourceList, parse_list};

/// What is wrong with a manifest, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct FieldError {
    /// Path of the field, such as `spec.containers[0].resources`.
    pub path: String,
    pub problem: String,
}

/// One field of a manifest, present or not. Null counts as absent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field<'a> {
    value: Option<&'a Value>,
    /// The manifest, in which the path is looked for when something is wrong.
    root: &'a Value,
}

impl<'a> Field<'a> {
    pub(crate) fn root(value: &'a Value) -> Self {
        Self { value: Some(value), root: value }
    }

    pub(crate) fn present(&self) -> bool {
        self.value.is_some()
    }

    /// As it was written.
    pub(crate) fn raw(&self) -> Option<&'a Value> {
        self.value
    }

    pub(crate) fn error(&self, problem: impl Into<String>) -> FieldError {
        FieldError { path: self.path(), problem: problem.into() }
    }

    pub(crate) fn get(&self, key: &str) -> Self {
        let value = self.value.and_then(|value| value.get(key)).filter(|value| !value.is_null());
        Self { value, root: self.root }
    }

    /// The path of a field below this one, present or not.
    pub(crate) fn path_of(&self, key: &str) -> String {
        let path = self.path();
        if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
    }

    /// Empty where nothing is present: what is absent cannot be wrong.
    pub(crate) fn path(&self) -> String {
        let mut path = String::new();
        if let Some(value) = self.value {
            find(self.root, value, &mut path);
        }
        path
    }

    /// An error about a field below this one, present or not.
    pub(crate) fn error_at(&self, key: &str, problem: impl Into<String>) -> FieldError {
        FieldError { path: self.path_of(key), problem: problem.into() }
    }

    /// The names of the fields below this one that are not among these; null counts as present.
    pub(crate) fn unknown(&self, known: &[&str]) -> Result<Vec<&'a str>, FieldError> {
        match self.value {
            None => Ok(Vec::new()),
            Some(Value::Object(map)) => {
                Ok(map.keys().map(String::as_str).filter(|key| !known.contains(key)).collect())
            }
            Some(_) => Err(self.error("must be a map")),
        }
    }

    pub(crate) fn number(&self) -> Result<Option<f64>, FieldError> {
        match self.value {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| self.error("must be a number")),
        }
    }

    /// The fields of a list; absent is the empty list.
    pub(crate) fn items(&self) -> Result<Vec<Self>, FieldError> {
        match self.value {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                Ok(items.iter().map(|value| Self { value: Some(value), root: self.root }).collect())
            }
            Some(_) => Err(self.error("must be a list")),
        }
    }

    pub(crate) fn text(&self) -> Result<Option<&'a str>, FieldError> {
        match self.value {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.error("must be a string")),
        }
    }

    pub(crate) fn texts(&self) -> Result<Vec<String>, FieldError> {
        self.items()?
            .iter()
            .map(|item| item.text()?.map(str::to_owned).ok_or_else(|| item.error("must be a string")))
            .collect()
    }

    pub(crate) fn flag(&self) -> Result<bool, FieldError> {
        match self.value {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.error("must be true or false")),
        }
    }

    pub(crate) fn integer(&self) -> Result<Option<i64>, FieldError> {
        match self.value {
            None => Ok(None),
            Some(value) => {
                value.as_i64().map(Some).ok_or_else(|| self.error("must be an integer of at most 64 bits"))
            }
        }
    }

    pub(crate) fn integer32(&self) -> Result<Option<i32>, FieldError> {
        self.integer()?
            .map(|number| {
                i32::try_from(number).ok().ok_or_else(|| self.error("must be an integer of 32 bits"))
            })
            .transpose()
    }

    pub(crate) fn quantity(&self) -> Result<Option<Quantity>, FieldError> {
        let quantity = self.value.map(Quantity::from_json).transpose();
        quantity.map_err(|error| self.error(error.to_string()))
    }

    /// A time, as nanoseconds since 1970.
    pub(crate) fn time(&self) -> Result<Option<i64>, FieldError> {
        let Some(text) = self.text()? else { return Ok(None) };
        let time: jiff::Timestamp =
            text.parse().map_err(|error| self.error(format!("is not a time: {error}")))?;
        Ok(Some(i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)))
    }

    /// The keys of a map.
    pub(crate) fn keys(&self) -> Result<BTreeSet<String>, FieldError> {
        match self.value {
            None => Ok(BTreeSet::new()),
            Some(Value::Object(map)) => Ok(map.keys().cloned().collect()),
            Some(_) => Err(self.error("must be a map")),
        }
    }

    /// A map of texts, as labels are.
    pub(crate) fn labels(&self) -> Result<Labels, FieldError> {
        match self.value {
            None => Ok(Labels::new()),
            Some(Value::Object(map)) => map
                .iter()
                .map(|(key, value)| match value {
                    Value::String(text) => Ok((key.as_str(), text.as_str())),
                    Value::Null => Ok((key.as_str(), "")),
                    _ => Err(self.error(format!("the value of {key:?} must be a string"))),
                })
                .collect(),
            Some(_) => Err(self.error("must be a map of strings")),
        }
    }

    pub(crate) fn text_map(&self) -> Result<BTreeMap<String, String>, FieldError> {
        Ok(self.labels()?.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    pub(crate) fn resource_list(&self) -> Result<ResourceList, FieldError> {
        match self.value {
            None | Some(Value::Object(_)) => parse_list(self.value)
                .map_err(|(name, error)| self.error(format!("the amount of {name:?} is wrong: {error}"))),
            Some(_) => Err(self.error("must be a map of quantities")),
        }
    }
}

/// Extends the path of a value to that of `wanted`, which is in it. False if it is not.
fn find(value: &Value, wanted: &Value, path: &mut String) -> bool {
    if std::ptr::eq(value, wanted) {
        return true;
    }
    let length = path.len();
    let mut follow = |step: &str, value: &Value| {
        path.push_str(step);
        let found = find(value, wanted, path);
        if !found {
            path.truncate(length);
        }
        found
    };
    match value {
        Value::Object(map) if length == 0 => map.iter().any(|(key, value)| follow(key, value)),
        Value::Object(map) => map.iter().any(|(key, value)| follow(&format!(".{key}"), value)),
        Value::Array(items) => {
            items.iter().enumerate().any(|(index, value)| follow(&format!("[{index}]"), value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_names_the_field_by_its_path() {
        let manifest = json!({"spec": {"a": ["x", "x"], "b": {"c": [{"d": "x"}, {"d": 1}]}}});
        let spec = Field::root(&manifest).get("spec");
        let items = spec.get("b").get("c").items().expect("a list");
        let error = items[1].get("d").text().expect_err("no text");
        assert_eq!(error.to_string(), "spec.b.c[1].d: must be a string");
        assert_eq!(spec.get("a").items().expect("a list")[1].path(), "spec.a[1]");
        assert_eq!(spec.path_of("e"), "spec.e");
        assert_eq!(spec.get("e").path(), "");
        assert_eq!(Field::root(&manifest).path_of("spec"), "spec");
    }
}
