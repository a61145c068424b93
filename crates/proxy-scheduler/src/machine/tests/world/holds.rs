//! What must hold, whatever happens.

use super::World;
use crate::machine::{ChaperonSeen, Id, Stage};
use std::collections::BTreeMap;
use std::sync::Arc;

impl ChaperonSeen {
    /// Whether its delegate runs or may yet.
    fn may_run(&self) -> bool {
        self.allowed && self.stage != Stage::Revoked
    }
}

impl World {
    /// At any moment: what is allowed is what its pod's one election names.
    #[track_caller]
    pub(in crate::machine::tests) fn check_always(&self) {
        let mut allowed: BTreeMap<&Id, &Id> = BTreeMap::new();
        for ((target, parent), chaperon) in
            self.chaperons.iter().filter(|(_, chaperon)| chaperon.seen.may_run())
        {
            assert_eq!(allowed.insert(parent, target), None, "{parent} is allowed twice");
            let Some(pod) = self.pods.get(parent) else { continue };
            let bound = pod.bound.as_ref().map(|(_, election)| election);
            let election = bound.or(pod.grant.as_ref().map(|grant| &grant.election));
            let election = election.expect("allowed before the election");
            assert_eq!(election.chaperon_uid, chaperon.seen.uid, "another was elected");
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
