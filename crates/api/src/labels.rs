//! Label rewriting: delegates carry the labels of their source pods under our prefix, so that selectors of
//! the target cluster do not pick them up by accident.

use crate::keys;
use regex::Regex;
use std::collections::BTreeMap;

/// Which labels keep their keys.
#[derive(Debug, Clone, Default)]
pub struct Rewriting {
    keep: Option<Regex>,
    off: bool,
}

/// A `no-prefix-label-regexp` annotation that is no regular expression.
#[derive(Debug, thiserror::Error)]
#[error("annotation {key}: {pattern:?} is not a regular expression", key = keys::NO_PREFIX_LABEL_REGEXP)]
pub struct BadPattern {
    pattern: String,
    source: regex::Error,
}

impl Rewriting {
    /// Rewrites all labels but those whose `key=value` matches the annotation's expression (unanchored).
    ///
    /// # Errors
    ///
    /// The annotation does not compile.
    pub fn from_annotation(pattern: Option<&str>) -> Result<Self, BadPattern> {
        let keep = pattern
            .filter(|pattern| !pattern.is_empty())
            .map(|pattern| {
                Regex::new(pattern).map_err(|source| BadPattern { pattern: pattern.to_owned(), source })
            })
            .transpose()?;
        Ok(Self { keep, off: false })
    }

    /// Rewrites nothing, as a Target with `labelRewriting: Keep` asks for.
    #[must_use]
    pub fn keep_all() -> Self {
        Self { keep: None, off: true }
    }

    /// The key under which a delegate carries a label.
    #[must_use]
    pub fn key(&self, key: &str, value: &str) -> String {
        if self.off || self.keep.as_ref().is_some_and(|keep| keep.is_match(&format!("{key}={value}"))) {
            return key.to_owned();
        }
        let name = key.rsplit('/').next().unwrap_or(key);
        format!("{}{name}", keys::PREFIX)
    }

    /// The key of a label of which only the key is known (`matchLabelKeys`, `Exists`), judged by the pod's
    /// own value where it has the label.
    #[must_use]
    pub fn key_alone(&self, key: &str, labels: &BTreeMap<String, String>) -> String {
        self.key(key, labels.get(key).map_or("", String::as_str))
    }

    /// All labels rewritten. Of two keys that become one the alphabetically first wins.
    #[must_use]
    pub fn labels(&self, labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut rewritten = BTreeMap::new();
        for (key, value) in labels {
            rewritten.entry(self.key(key, value)).or_insert_with(|| value.clone());
        }
        rewritten
    }
}

#[cfg(test)]
mod tests {
    use super::Rewriting;

    #[track_caller]
    fn check(pattern: Option<&str>, label: (&str, &str), want: &str) {
        assert_eq!(Rewriting::from_annotation(pattern).unwrap().key(label.0, label.1), want);
    }

    #[test]
    fn a_plain_key_gets_the_prefix() {
        check(None, ("app", "web"), "multicluster.admiralty.io/app");
    }

    #[test]
    fn a_domain_is_replaced_by_the_prefix() {
        check(None, ("foo.com/bar", "1"), "multicluster.admiralty.io/bar");
    }

    #[test]
    fn a_prefixed_key_maps_to_itself() {
        check(None, ("multicluster.admiralty.io/app", "web"), "multicluster.admiralty.io/app");
    }

    #[test]
    fn a_label_that_matches_the_expression_keeps_its_key() {
        check(Some("^kueue.x-k8s.io/"), ("kueue.x-k8s.io/queue-name", "q"), "kueue.x-k8s.io/queue-name");
        check(Some("=web$"), ("app", "web"), "app");
        check(Some(""), ("app", "web"), "multicluster.admiralty.io/app");
    }

    #[test]
    fn an_invalid_expression_is_an_error_that_names_the_annotation() {
        let error = Rewriting::from_annotation(Some("(")).unwrap_err();
        assert!(error.to_string().contains("no-prefix-label-regexp"), "{error}");
    }

    #[test]
    fn w40_colliding_keys_always_have_the_same_winner() {
        let labels = [("a/x", "1"), ("b/x", "2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let rewritten = Rewriting::default().labels(&labels.into());
        assert_eq!(
            rewritten.into_iter().collect::<Vec<_>>(),
            [("multicluster.admiralty.io/x".into(), "1".into())]
        );
    }
}
