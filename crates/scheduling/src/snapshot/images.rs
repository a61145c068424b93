use std::collections::{BTreeMap, HashMap};

/// Which nodes have which images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Images(HashMap<String, BTreeMap<usize, i64>>);

impl Images {
    pub(super) fn set(&mut self, slot: usize, old: &BTreeMap<String, i64>, new: &BTreeMap<String, i64>) {
        for name in old.keys().filter(|name| !new.contains_key(*name)) {
            let Some(nodes) = self.0.get_mut(name) else { continue };
            nodes.remove(&slot);
            if nodes.is_empty() {
                self.0.remove(name);
            }
        }
        for (name, size) in new {
            match self.0.get_mut(name) {
                Some(nodes) => {
                    nodes.insert(slot, *size);
                }
                None => {
                    self.0.insert(name.clone(), BTreeMap::from([(slot, *size)]));
                }
            }
        }
    }

    /// The slots of the nodes that have an image, in order, with its size there. None if no node has it.
    pub(crate) fn nodes(&self, image: &str) -> Option<&BTreeMap<usize, i64>> {
        self.0.get(image)
    }
}
