use std::collections::HashMap;

/// Things by the labels under which they are looked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Postings(HashMap<String, HashMap<String, Vec<u32>>>);

impl Postings {
    pub(super) fn get(&self, key: &str, value: &str) -> &[u32] {
        self.0.get(key).and_then(|values| values.get(value)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn add(&mut self, key: &str, value: &str, id: u32) {
        if !self.0.contains_key(key) {
            self.0.insert(key.to_owned(), HashMap::new());
        }
        let Some(values) = self.0.get_mut(key) else { return };
        match values.get_mut(value) {
            Some(ids) => ids.push(id),
            None => {
                values.insert(value.to_owned(), vec![id]);
            }
        }
    }

    pub(super) fn remove(&mut self, key: &str, value: &str, id: u32) {
        let Some(values) = self.0.get_mut(key) else { return };
        let Some(ids) = values.get_mut(value) else { return };
        if let Some(place) = ids.iter().position(|other| *other == id) {
            ids.swap_remove(place);
        }
        if ids.is_empty() {
            values.remove(value);
            if values.is_empty() {
                self.0.remove(key);
            }
        }
    }
}
