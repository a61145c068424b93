use std::sync::{Arc, Weak};

use hashbrown::HashTable;

use crate::pod::{PodInfo, PodSpec};

/// Lets pods of one template share their spec, so that a thousand replicas cost little more than one.
#[derive(Debug, Default)]
pub struct Classes {
    known: HashTable<Known>,
    /// When as many classes are known, those that nobody uses any more are dropped.
    sweep_at: usize,
}

#[derive(Debug)]
struct Known {
    class: u64,
    spec: Weak<PodSpec>,
}

impl Classes {
    /// The same pod with the spec that equal pods share already.
    pub fn share(&mut self, pod: &Arc<PodInfo>) -> Arc<PodInfo> {
        let class = pod.spec.class();
        let equal = |known: &Known| {
            let same = || known.spec.upgrade().is_some_and(|spec| spec == pod.spec);
            known.class == class && same()
        };
        if let Some(spec) = self.known.find(class, equal).and_then(|known| known.spec.upgrade()) {
            if Arc::ptr_eq(&spec, &pod.spec) {
                return Arc::clone(pod);
            }
            return Arc::new(PodInfo { spec, ..(**pod).clone() });
        }
        if self.known.len() >= self.sweep_at.max(1024) {
            self.known.retain(|known| known.spec.strong_count() > 0);
            self.sweep_at = 2 * self.known.len();
        }
        let known = Known { class, spec: Arc::downgrade(&pod.spec) };
        self.known.insert_unique(class, known, |known| known.class);
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
