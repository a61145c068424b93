//! Reading raw manifests by hand, so that an error names the field that is wrong.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

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
#[derive(Debug, Clone)]
pub(crate) struct Field<'a> {
    value: Option<&'a Value>,
    /// Empty where nothing is present: what is absent cannot be wrong.
    path: String,
}

impl<'a> Field<'a> {
    pub(crate) fn root(value: &'a Value) -> Self {
        Self { value: Some(value), path: String::new() }
    }

    pub(crate) fn present(&self) -> bool {
        self.value.is_some()
    }

    /// As it was written.
    pub(crate) fn raw(&self) -> Option<&'a Value> {
        self.value
    }

    pub(crate) fn error(&self, problem: impl Into<String>) -> FieldError {
        FieldError { path: self.path.clone(), problem: problem.into() }
    }

    pub(crate) fn get(&self, key: &str) -> Self {
        match self.value.and_then(|value| value.get(key)).filter(|value| !value.is_null()) {
            None => Self { value: None, path: String::new() },
            Some(value) if self.path.is_empty() => Self { value: Some(value), path: key.to_owned() },
            Some(value) => Self { value: Some(value), path: format!("{}.{key}", self.path) },
        }
    }

    /// The path of a field below this one, present or not.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
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
            Some(Value::Array(items)) => Ok(items
                .iter()
                .enumerate()
                .map(|(index, value)| Self { value: Some(value), path: format!("{}[{index}]", self.path) })
                .collect()),
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

    pub(crate) fn text_map(&self) -> Result<BTreeMap<String, String>, FieldError> {
        match self.value {
            None => Ok(BTreeMap::new()),
            Some(Value::Object(map)) => map
                .iter()
                .map(|(key, value)| match value {
                    Value::String(text) => Ok((key.clone(), text.clone())),
                    Value::Null => Ok((key.clone(), String::new())),
                    _ => Err(self.error(format!("the value of {key:?} must be a string"))),
                })
                .collect(),
            Some(_) => Err(self.error("must be a map of strings")),
        }
    }

    pub(crate) fn resource_list(&self) -> Result<ResourceList, FieldError> {
        match self.value {
            None | Some(Value::Object(_)) => parse_list(self.value)
                .map_err(|(name, error)| self.error(format!("the amount of {name:?} is wrong: {error}"))),
            Some(_) => Err(self.error("must be a map of quantities")),
        }
    }
}
