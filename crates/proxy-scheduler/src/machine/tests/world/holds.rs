//! What must hold, whatever happens.

use super::World;
use crate::machine::Id;
use std::collections::BTreeMap;
use std::sync::Arc;

impl World {
    /// At any moment: what is allowed is what its pod's one election names.
    #[track_caller]
    pub(in crate::machine::tests) fn check_always(&self) {
        let mut allowed: BTreeMap<&Id, &Id> = BTreeMap::new();
        for ((target, parent), chaperon) in
            self.chaperons.iter().filter(|(_, chaperon)| chaperon.seen.allowed)
        {
            assert_eq!(allowed.insert(parent, target), None, "{parent} is allowed twice");
            let Some(pod) = self.pods.get(parent) else { continue };
            let (node, election) = pod.bound.as_ref().expect("allowed before the binding");
            assert_eq!((node, &election.chaperon_uid), (target, &chaperon.seen.uid), "another was elected");
        }
    }

    /// When all is quiet: every pod for which there is room runs, and nothing is left over.
    #[track_caller]
    pub(in crate::machine::tests) fn check_quiet(&self) {
        let bound = self.pods.values().filter(|pod| pod.bound.is_some()).count();
        let want = self.pods.len().min(self.targets.len() * self.room);
        assert_eq!(
            bound,
            want,
            "bound pods; asked: {:?}",
            self.chaperons.values().map(|found| &found.seen).collect::<Vec<_>>()
        );
        for ((target, parent), chaperon) in &self.chaperons {
            match self.pods.get(parent).map(|pod| &pod.bound) {
                Some(Some((node, _))) => {
                    assert!(node == target && chaperon.seen.allowed, "{parent} in {target}");
                }
                Some(None) => {
                    assert!(chaperon.seen.promise.is_none(), "{parent} waits though {target} reserved");
                }
                None => assert!(chaperon.seen.allowed, "{parent} is gone and asked for in {target}"),
            }
        }
        for (uid, pod) in &self.pods {
            let Some((node, _)) = &pod.bound else { continue };
            assert!(
                self.chaperons.contains_key(&(Arc::clone(node), Arc::clone(uid))),
                "{uid} has nothing in {node}"
            );
        }
    }
}
