use std::sync::{Arc, Weak};

use hashbrown::HashTable;

use crate::pod::{PodInfo, PodSpec};

/// Lets pods of one template share their spec, so that a thousand replicas cost little more than one.
#[derive(Debug, Default)]
pub struct Classes {
    known: HashTable<Weak<PodSpec>>,
    /// When as many classes are known, those that nobody uses any more are dropped.
    sweep_at: usize,
}

/// What a spec is kept under. One that is gone is not looked for any more.
fn class(spec: &Weak<PodSpec>) -> u64 {
    spec.upgrade().map_or(0, |spec| spec.class())
}

impl Classes {
    /// The same pod with the spec that equal pods share already.
    pub fn share(&mut self, pod: &Arc<PodInfo>) -> Arc<PodInfo> {
        let key = pod.spec.class();
        let equal = |known: &Weak<PodSpec>| known.upgrade().is_some_and(|spec| spec == pod.spec);
        if let Some(spec) = self.known.find(key, equal).and_then(Weak::upgrade) {
            if Arc::ptr_eq(&spec, &pod.spec) {
                return Arc::clone(pod);
            }
            return Arc::new(PodInfo { spec, ..(**pod).clone() });
        }
        if self.known.len() >= self.sweep_at.max(1024) {
            self.known.retain(|known| known.strong_count() > 0);
            self.sweep_at = 2 * self.known.len();
        }
        self.known.insert_unique(key, Arc::downgrade(&pod.spec), class);
        Arc::clone(pod)
    }

    /// How many classes are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
