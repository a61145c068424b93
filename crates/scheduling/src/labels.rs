//! Labels of objects, close together.

use std::slice;

use thin_vec::ThinVec;

use crate::text::{Text, exact, shared};

/// Labels of a pod, node or namespace: values by key, in order of the keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(ThinVec<(Text, Text)>);

impl Labels {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.text(key).map(Text::as_str)
    }

    /// [`Self::get`], to be kept.
    pub(crate) fn text(&self, key: &str) -> Option<&Text> {
        self.0.get(self.find(key).ok()?).map(|(_, value)| value)
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_ok()
    }

    pub fn iter(&self) -> Iter<'_> {
        self.into_iter()
    }

    /// The label with the smallest key.
    pub(crate) fn first(&self) -> Option<(&str, &str)> {
        self.iter().next()
    }

    /// Adds or replaces a label.
    pub fn insert(&mut self, key: impl AsRef<str>, value: impl AsRef<str>) {
        let (key, value) = (key.as_ref(), shared(value.as_ref()));
        match self.find(key) {
            Ok(place) => {
                if let Some(label) = self.0.get_mut(place) {
                    label.1 = value;
                }
            }
            Err(place) => self.0.insert(place, (shared(key), value)),
        }
    }

    /// Takes away the labels of which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(&str, &str) -> bool) {
        self.0.retain(|(key, value)| keep(key, value));
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(key))
    }
}

/// Goes through labels as pairs of key and value.
#[derive(Debug, Clone)]
pub struct Iter<'a>(slice::Iter<'a, (Text, Text)>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl<'a> IntoIterator for &'a Labels {
    type Item = (&'a str, &'a str);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        Iter(self.0.iter())
    }
}

impl<K: AsRef<str>, V: AsRef<str>> Extend<(K, V)> for Labels {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, labels: I) {
        labels.into_iter().for_each(|(key, value)| self.insert(key, value));
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    /// Of several values for one key, the last counts.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let labels = labels.into_iter();
        let mut list: Vec<_> =
            labels.map(|(key, value)| (shared(key.as_ref()), shared(value.as_ref()))).collect();
        if !list.is_sorted_by(|(one, _), (two, _)| one < two) {
            // Stable, so that the last of equal keys is the last still.
            list.sort_by(|(one, _), (two, _)| one.cmp(two));
            list.reverse();
            list.dedup_by(|(one, _), (two, _)| one == two);
            list.reverse();
        }
        Self(exact(list))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn labels_are_a_map(pairs in prop::collection::vec(("[a-d]{1,2}", "[x-z]"), 0..12), more in "[a-d]") {
            let mut map: BTreeMap<String, String> = pairs.iter().cloned().collect();
            let mut labels: Labels = pairs.iter().map(|(key, value)| (key, value)).collect();
            prop_assert!(labels.iter().eq(map.iter().map(|(key, value)| (key.as_str(), value.as_str()))));
            labels.insert(&more, "new");
            map.insert(more, "new".to_owned());
            map.retain(|_, value| value != "x");
            labels.retain(|_, value| value != "x");
            prop_assert_eq!(labels.len(), map.len());
            for (key, value) in &map {
                prop_assert_eq!(labels.get(key), Some(value.as_str()));
            }
            prop_assert!(!labels.contains_key("zz"));
        }
    }
}
