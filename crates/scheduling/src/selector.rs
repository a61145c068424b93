//! Selectors over labels, and over nodes.

use std::collections::BTreeSet;
use std::slice;

use thin_vec::ThinVec;

use crate::field::{Field, FieldError};
use crate::labels::Labels;
use crate::text::{Text, exact, shared};

/// What a requirement says about one value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Test {
    /// The only value that [`Self::In`] would name.
    Is(Text),
    /// In order, each once, and so below.
    In(ThinVec<Text>),
    NotIn(ThinVec<Text>),
    Exists,
    DoesNotExist,
    Greater(i64),
    Less(i64),
}

/// One requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirement {
    key: Text,
    test: Test,
}

/// The values in order, each once.
fn set(mut values: Vec<Text>) -> ThinVec<Text> {
    values.sort_unstable();
    values.dedup();
    exact(values)
}

impl Test {
    /// One of these values.
    fn one_of(values: Vec<Text>) -> Self {
        let values = set(values);
        match values.as_slice() {
            [only] => Self::Is(only.clone()),
            _ => Self::In(values),
        }
    }

    /// The values of which one is wanted. None if it is not a matter of a few values.
    fn wanted(&self) -> Option<&[Text]> {
        match self {
            Self::Is(value) => Some(slice::from_ref(value)),
            Self::In(values) => Some(values),
            Self::NotIn(_) | Self::Exists | Self::DoesNotExist | Self::Greater(_) | Self::Less(_) => None,
        }
    }
}

/// True if a value is one of these.
fn has(values: &[Text], value: &str) -> bool {
    values.iter().any(|known| known.as_str() == value)
}

impl Requirement {
    /// None if the requirement is malformed (an unknown operator, a wrong number of values).
    fn parse(field: &Field<'_>) -> Result<Option<Self>, FieldError> {
        let key = shared(field.get("key").text()?.unwrap_or_default());
        let values: Vec<_> = field.get("values").texts()?.iter().map(|value| shared(value)).collect();
        let number = || match values.as_slice() {
            [only] => only.parse().ok(),
            _ => None,
        };
        let test = match field.get("operator").text()?.unwrap_or_default() {
            "In" if !values.is_empty() => Some(Test::one_of(values)),
            "NotIn" if !values.is_empty() => Some(Test::NotIn(set(values))),
            "Exists" if values.is_empty() => Some(Test::Exists),
            "DoesNotExist" if values.is_empty() => Some(Test::DoesNotExist),
            "Gt" => number().map(Test::Greater),
            "Lt" => number().map(Test::Less),
            _ => None,
        };
        Ok(test.map(|test| Self { key, test }))
    }

    /// `key` must have exactly `value`.
    fn equal(key: &str, value: &str) -> Self {
        Self { key: shared(key), test: Test::Is(shared(value)) }
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::Is(wanted) => value.is_some_and(|value| wanted.as_str() == value),
            Test::In(values) => value.is_some_and(|value| has(values, value)),
            Test::NotIn(values) => value.is_none_or(|value| !has(values, value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Greater(bound) => number().is_some_and(|number| number > *bound),
            Test::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// A selector over labels. `None` where a manifest has no selector at all, which matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LabelSelector(ThinVec<Requirement>);

impl LabelSelector {
    pub(crate) fn parse(field: &Field<'_>) -> Result<Option<Self>, FieldError> {
        if !field.present() {
            return Ok(None);
        }
        let labels = field.get("matchLabels").labels()?;
        let mut requirements: Vec<_> =
            labels.iter().map(|(key, value)| Requirement::equal(key, value)).collect();
        for expression in field.get("matchExpressions").items()? {
            let requirement = Requirement::parse(&expression)?;
            requirements.push(requirement.ok_or_else(|| expression.error("is not a valid requirement"))?);
        }
        Ok(Some(Self(exact(requirements))))
    }

    /// Selects what has all of these labels.
    pub(crate) fn of_labels(labels: &Labels) -> Self {
        Self(labels.iter().map(|(key, value)| Requirement::equal(key, value)).collect())
    }

    /// The same, without room to spare.
    pub(crate) fn shrunk(mut self) -> Self {
        self.0.shrink_to_fit();
        self
    }

    /// Adds the requirements of another selector.
    pub(crate) fn require_all(&mut self, more: &Self) {
        for requirement in &more.0 {
            if !self.0.contains(requirement) {
                self.0.push(requirement.clone());
            }
        }
    }

    /// Adds the requirement that `key` has `value`.
    pub(crate) fn require(&mut self, key: &str, value: &str) {
        let requirement = Requirement::equal(key, value);
        if !self.0.contains(&requirement) {
            self.0.push(requirement);
        }
    }

    /// Adds the requirement that `key` has any other value, or is absent.
    pub(crate) fn refuse(&mut self, key: &str, value: &str) {
        let requirement =
            Requirement { key: shared(key), test: Test::NotIn(set(Vec::from([shared(value)]))) };
        if !self.0.contains(&requirement) {
            self.0.push(requirement);
        }
    }

    /// True if there is no requirement, so that everything matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A key and the values of which everything that matches has one. None if the selector names no such key.
    pub(crate) fn anchor(&self) -> Option<(&str, &[Text])> {
        let mut anchors = self.0.iter().filter_map(|requirement| {
            requirement.test.wanted().map(|values| (requirement.key.as_str(), values))
        });
        anchors.next()
    }

    /// True if [`Self::anchor`] has this label.
    pub(crate) fn is_anchored_at(&self, key: &str, value: &str) -> bool {
        self.anchor().is_some_and(|(anchor, values)| anchor == key && has(values, value))
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }
}

/// One term of a node selector: all of its requirements must hold. A term without any matches no node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    labels: ThinVec<Requirement>,
    /// Requirements on the node's name, the only field that can be selected.
    names: ThinVec<Requirement>,
    /// A malformed term matches no node.
    malformed: bool,
}

const NAME_FIELD: &str = "metadata.name";

impl NodeTerm {
    pub(crate) fn parse(field: &Field<'_>) -> Result<Self, FieldError> {
        let mut term = Self { labels: ThinVec::new(), names: ThinVec::new(), malformed: false };
        for expression in field.get("matchExpressions").items()? {
            match Requirement::parse(&expression)? {
                Some(requirement) => term.labels.push(requirement),
                None => term.malformed = true,
            }
        }
        for expression in field.get("matchFields").items()? {
            let one_value = expression.get("values").items()?.len() == 1;
            match Requirement::parse(&expression)? {
                Some(requirement @ Requirement { test: Test::Is(_) | Test::NotIn(_), .. }) if one_value => {
                    term.names.push(requirement);
                }
                _ => term.malformed = true,
            }
        }
        term.labels.shrink_to_fit();
        term.names.shrink_to_fit();
        Ok(term)
    }

    pub(crate) fn is_malformed(&self) -> bool {
        self.malformed
    }

    /// True for a term that says nothing, which matches no node.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.names.is_empty() && !self.malformed
    }

    pub fn matches(&self, node: &str, labels: &Labels) -> bool {
        if self.malformed || self.is_empty() {
            return false;
        }
        let by_label = self.labels.iter().all(|requirement| requirement.matches(labels));
        by_label && self.names.iter().all(|requirement| name_matches(requirement, node))
    }

    /// As [`Self::matches`], of a node whose name is not known: what is asked of the name does not count.
    pub(crate) fn matches_labels(&self, labels: &Labels) -> bool {
        let by_label = self.labels.iter().all(|requirement| requirement.matches(labels));
        by_label && !self.malformed && !self.is_empty()
    }

    /// The node names to which `metadata.name In …` restricts this term, None if it does not.
    pub(crate) fn names(&self) -> Option<BTreeSet<String>> {
        let by_name = self.names.iter().filter(|requirement| requirement.key == NAME_FIELD);
        let mut sets = by_name.filter_map(|requirement| requirement.test.wanted());
        let names = |values: &[Text]| values.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let first = names(sets.next()?);
        Some(sets.fold(first, |known, set| &known & &names(set)))
    }
}

fn name_matches(requirement: &Requirement, node: &str) -> bool {
    // A field that does not exist reads as the empty text.
    let value = if requirement.key == NAME_FIELD { node } else { "" };
    match &requirement.test {
        Test::Is(wanted) => wanted.as_str() == value,
        Test::In(values) => has(values, value),
        Test::NotIn(values) => !has(values, value),
        Test::Exists | Test::DoesNotExist | Test::Greater(_) | Test::Less(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().copied().collect()
    }

    #[track_caller]
    fn check(term: &Value, node: &[(&str, &str)], want: bool) {
        let term = NodeTerm::parse(&Field::root(term)).expect("a term");
        assert_eq!(term.matches("n1", &labels(node)), want, "{term:?}");
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn each_operator_does_what_kubernetes_says() {
        check(&expression("a", "In", &["x", "y"]), &[("a", "y")], true);
        check(&expression("a", "In", &["x"]), &[], false);
        check(&expression("a", "NotIn", &["x"]), &[], true);
        check(&expression("a", "NotIn", &["x"]), &[("a", "x")], false);
        check(&expression("a", "Exists", &[]), &[("a", "")], true);
        check(&expression("a", "DoesNotExist", &[]), &[], true);
        check(&expression("a", "Gt", &["5"]), &[("a", "6")], true);
        check(&expression("a", "Gt", &["5"]), &[("a", "5")], false);
        check(&expression("a", "Lt", &["5"]), &[("a", "-6")], true);
        check(&expression("a", "Lt", &["5"]), &[("a", "few")], false);
        check(&expression("a", "Lt", &["5"]), &[], false);
    }

    #[test]
    fn an_empty_or_malformed_term_matches_nothing() {
        check(&json!({}), &[("a", "x")], false);
        check(&expression("a", "Gt", &["many"]), &[("a", "6")], false);
        check(&expression("a", "In", &[]), &[("a", "6")], false);
        check(&expression("a", "Near", &["6"]), &[("a", "6")], false);
    }

    #[test]
    fn a_name_is_matched_as_a_field() {
        let field = |operator, name| json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]});
        check(&field("In", "n1"), &[], true);
        check(&field("In", "n2"), &[], false);
        check(&field("NotIn", "n2"), &[], true);
        check(&field("Exists", "n1"), &[], false);
    }
}
