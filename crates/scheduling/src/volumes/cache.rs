use std::collections::HashMap;
use std::sync::Arc;

/// An object whose versions can be told apart.
pub(super) trait Versioned {
    /// `(namespace, name)`; the namespace is empty for objects of the whole cluster.
    fn key(&self) -> (&str, &str);
    fn resource_version(&self) -> &str;
}

#[derive(Debug, Clone)]
struct Entry<T> {
    seen: Arc<T>,
    /// What we are about to write. It holds as long as the object that was seen is the one it was made from.
    assumed: Option<Arc<T>>,
}

/// Objects as they were seen, and as we assume them to be once our own writes have arrived.
#[derive(Debug, Clone)]
pub(super) struct AssumeCache<T> {
    entries: HashMap<String, HashMap<String, Entry<T>>>,
}

impl<T> Default for AssumeCache<T> {
    fn default() -> Self {
        Self { entries: HashMap::new() }
    }
}

impl<T: Versioned> AssumeCache<T> {
    fn entry(&self, namespace: &str, name: &str) -> Option<&Entry<T>> {
        self.entries.get(namespace)?.get(name)
    }

    fn entry_mut(&mut self, object: &T) -> Option<&mut Entry<T>> {
        let (namespace, name) = object.key();
        self.entries.get_mut(namespace)?.get_mut(name)
    }

    /// What was seen last.
    pub(super) fn seen(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.entry(namespace, name).map(|entry| &entry.seen)
    }

    /// What is assumed, otherwise what was seen.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.entry(namespace, name).map(|entry| entry.assumed.as_ref().unwrap_or(&entry.seen))
    }

    /// Every object, as [`Self::seen`].
    pub(super) fn all_seen(&self) -> impl Iterator<Item = &Arc<T>> {
        self.entries.values().flat_map(|names| names.values().map(|entry| &entry.seen))
    }

    /// Takes in what was seen; answers with what was seen before. Any other version ends an assumption.
    pub(super) fn set(&mut self, object: Arc<T>) -> Option<Arc<T>> {
        if let Some(entry) = self.entry_mut(&object) {
            if entry.seen.resource_version() != object.resource_version() {
                entry.assumed = None;
            }
            return Some(std::mem::replace(&mut entry.seen, object));
        }
        let (namespace, name) = object.key();
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.entries.entry(namespace).or_default().insert(name, Entry { seen: object, assumed: None });
        None
    }

    pub(super) fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let names = self.entries.get_mut(namespace)?;
        let gone = names.remove(name)?;
        if names.is_empty() {
            self.entries.remove(namespace);
        }
        Some(gone.seen)
    }

    /// Counts on a write that is about to be made. False if `object` was not made from what was seen last.
    pub(super) fn assume(&mut self, object: Arc<T>) -> bool {
        let Some(entry) = self.entry_mut(&object) else { return false };
        if entry.seen.resource_version() != object.resource_version() {
            return false;
        }
        entry.assumed = Some(object);
        true
    }

    /// Takes back an assumption, unless another one has replaced it.
    pub(super) fn restore(&mut self, object: &T) {
        if let Some(entry) = self.entry_mut(object) {
            entry.assumed.take_if(|assumed| assumed.resource_version() == object.resource_version());
        }
    }
}
