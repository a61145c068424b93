//! Groups: enough of their pods are placed at once, or none.

use super::World;
use crate::cluster::{Change, Object};
use crate::plan::Kind;
use crate::recorder::Rule;
use crate::wire::ClusterId;
use api::keys;
use std::collections::BTreeSet;
use std::rc::Rc;

impl World {
    /// A pod of a group is bound: enough of the others are bound, or are promised a place.
    pub(super) fn judges_gang(&mut self, id: ClusterId, change: &Change) {
        let was_bound = change.old.as_ref().is_none_or(|old| !old.node().is_empty());
        let pod = &change.new;
        let Some(group) = pod.annotation(keys::GROUP).filter(|_| self.is_source(id) && change.kind == "pods")
        else {
            return;
        };
        if was_bound || pod.node().is_empty() || change.deleted {
            return;
        }
        let least = pod.annotation(keys::GROUP_MIN_MEMBER).and_then(|text| text.parse().ok()).unwrap_or(1);
        let mine = |other: &&Rc<Object>| other.annotation(keys::GROUP) == Some(group);
        let members: Vec<Rc<Object>> = self.cluster(id).pods().into_iter().filter(|pod| mine(&pod)).collect();
        let promised = self.promised();
        let placed = |member: &&Rc<Object>| !member.node().is_empty() || promised.contains(member.uid());
        let ever = self.placed.entry((id, group.to_owned())).or_default();
        ever.insert(pod.uid().to_owned());
        let placed = members.iter().filter(placed).count().max(ever.len());
        let at = self.now();
        if placed < least && self.is_calm() {
            let what = format!(
                "{} is bound, and only {placed} of the {least} of its group have a place",
                pod.name()
            );
            self.recorder.report(Rule::AllOrNothing, at, what);
        }
        let elsewhere = |member: &&Rc<Object>| {
            !member.node().is_empty() && member.node() != pod.node() && !member.is_terminating()
        };
        let together = pod.annotation(keys::GROUP_PLACEMENT) != Some(keys::GROUP_ANY_TARGET);
        let apart = members.iter().find(elsewhere).map(|member| member.name().to_owned());
        if let Some(other) = apart.filter(|_| together) {
            let what =
                format!("{} is bound to {}, and {other} of its group is elsewhere", pod.name(), pod.node());
            self.recorder.report(Rule::AllOrNothing, at, what);
        }
    }

    /// UIDs of pods that some target has promised a place.
    fn promised(&self) -> BTreeSet<String> {
        let targets = self.clusters.iter().skip(self.plan.sources);
        let all = targets.flat_map(|cluster| cluster.store.all("podchaperons"));
        let promised = all.filter(|chaperon| {
            chaperon.annotation(keys::RESERVED_NODE).is_some()
                || chaperon.annotation(keys::IS_ALLOWED).is_some()
        });
        promised.map(|chaperon| chaperon.label(keys::PARENT_UID).to_owned()).collect()
    }

    /// Whether nothing happens, nor has happened a moment ago, that makes a promise worthless.
    pub(super) fn is_calm(&self) -> bool {
        let now = self.now();
        let matters = |kind: Kind| {
            !matches!(
                kind,
                Kind::Scale | Kind::UserDeletes | Kind::ForceDeletes | Kind::Eviction | Kind::ClockSkew
            )
        };
        let faults = self.plan.faults.iter().filter(|fault| matters(fault.kind));
        faults.into_iter().all(|fault| now < fault.at || now > fault.at + fault.lasts + DAZED)
    }
}

/// How long after a fault nobody is blamed for not knowing, in milliseconds.
const DAZED: u64 = 6_000;
