//! Label and field selectors, as far as lists and watches use them.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Is(String),
    IsNot(String),
    Exists,
    Absent,
}

/// What a list or watch asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// Empty for all.
    pub namespace: String,
    labels: Vec<(String, Test)>,
    fields: Vec<(String, Test)>,
}

fn tests(text: &str) -> Vec<(String, Test)> {
    let terms = text.split(',').map(str::trim).filter(|term| !term.is_empty());
    let test = |term: &str| {
        if let Some((key, value)) = term.split_once("!=") {
            return (key.to_owned(), Test::IsNot(value.to_owned()));
        }
        if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            return (key.to_owned(), Test::Is(value.to_owned()));
        }
        match term.strip_prefix('!') {
            Some(key) => (key.to_owned(), Test::Absent),
            None => (term.to_owned(), Test::Exists),
        }
    };
    terms.map(test).collect()
}

fn holds(test: &Test, value: Option<&str>) -> bool {
    match test {
        Test::Is(wanted) => value.unwrap_or_default() == wanted,
        Test::IsNot(unwanted) => value.unwrap_or_default() != unwanted,
        Test::Exists => value.is_some(),
        Test::Absent => value.is_none(),
    }
}

impl Selector {
    /// Reads the selectors of a query.
    #[must_use]
    pub fn new(namespace: &str, labels: &str, fields: &str) -> Self {
        Self { namespace: namespace.to_owned(), labels: tests(labels), fields: tests(fields) }
    }

    /// Whether an object is asked for.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        if !self.namespace.is_empty() && metadata["namespace"] != self.namespace.as_str() {
            return false;
        }
        let label = |key: &str| metadata.get("labels")?.get(key)?.as_str();
        let field = |path: &str| path.split('.').try_fold(object, |at, key| at.get(key))?.as_str();
        self.labels.iter().all(|(key, test)| holds(test, label(key)))
            && self.fields.iter().all(|(path, test)| holds(test, field(path)))
    }
}
