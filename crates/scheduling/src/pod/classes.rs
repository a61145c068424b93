use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::pod::{PodInfo, PodSpec};

/// Lets pods of one template share their spec, so that a thousand replicas cost little more than one.
#[derive(Debug, Default)]
pub struct Classes {
    known: HashMap<u64, Vec<Weak<PodSpec>>>,
    /// When as many classes are known, those that nobody uses any more are dropped.
    sweep_at: usize,
}

impl Classes {
    /// The same pod with the spec that equal pods share already.
    pub fn share(&mut self, pod: &Arc<PodInfo>) -> Arc<PodInfo> {
        let class = self.known.entry(pod.spec.class()).or_default();
        for spec in class.iter().filter_map(Weak::upgrade) {
            if Arc::ptr_eq(&spec, &pod.spec) {
                return Arc::clone(pod);
            }
            if spec == pod.spec {
                return Arc::new(PodInfo { spec, ..(**pod).clone() });
            }
        }
        class.retain(|spec| spec.strong_count() > 0);
        class.push(Arc::downgrade(&pod.spec));
        if self.known.len() >= self.sweep_at.max(1024) {
            self.known.retain(|_, class| class.iter().any(|spec| spec.strong_count() > 0));
            self.sweep_at = 2 * self.known.len();
        }
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
