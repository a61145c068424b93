//! What is decided on for one pod.

use super::{Evidence, Key, Store};
use crate::failover::Outage;
use crate::plan::{Observed, Parent, Remote};
use crate::views::{Chaperon, Proxy, fingerprint, fingerprint_of};
use api::conditions::{Kind, Reason};
use api::v1alpha1::LabelRewriting;
use runtime::{Target, TargetKey};
use std::sync::Arc;
use tokio::time::Instant;

impl Store {
    /// Nothing of the delegate's changes is left to mirror.
    pub(crate) fn set_settled(&mut self, key: &Key) {
        if let Some(memory) = self.memory.get_mut(key) {
            memory.changed = None;
        }
    }

    /// The last write made the proxy equal to this state of its delegate, as far as the API server lets it.
    pub(crate) fn set_mirrored(&mut self, key: &Key, chaperon: &Chaperon) {
        let Some(proxy) = self.pods.get(key) else { return };
        let written = fingerprints(chaperon, proxy);
        let current = self.chaperons.get(key).into_iter().flatten().find(|other| other.uid == chaperon.uid);
        let newer = current.is_some_and(|current| fingerprints(current, proxy) != written);
        let memory = self.memory.entry(Arc::clone(key)).or_default();
        memory.mirrored = Some(written);
        memory.told = Some(fingerprint_of(&chaperon.annotations));
        memory.changed = newer.then(Instant::now);
        if !newer {
            memory.had.clear();
            memory.was_disrupted = false;
        }
    }

    /// Everything that is decided on for one pod; `None` when nothing of it is left.
    pub(crate) fn observe(&mut self, key: &Key, evidence: Evidence, now: String) -> Option<Observed> {
        let proxy = self.pods.get(key).cloned();
        // A PodChaperon without parent UID belongs to nobody, and so not to us.
        if key.is_empty() || proxy.is_none() && !self.chaperons.contains_key(key) {
            self.memory.remove(key);
            return None;
        }
        let delegate = match &proxy {
            Some(proxy) => self.delegate(key, proxy, evidence),
            None => Remote::NotElected,
        };
        let elected = proxy.as_ref().and_then(|proxy| proxy.elected_chaperon.clone());
        let present =
            if let Remote::Present(chaperon) = &delegate { Some(chaperon.uid.clone()) } else { None };
        let others = self.others(key, [elected.as_deref(), present.as_deref()]);
        let successor = self.successor(key, proxy.as_deref());
        let link = proxy.as_deref().and_then(|proxy| self.link_of(proxy));
        let labels = self.labels(proxy.as_deref());
        let returned = link.map(|link| link.returned_for()).unwrap_or_default();
        let memory = self.memory.entry(Arc::clone(key)).or_default();
        let waits = proxy.as_ref().is_none_or(|proxy| !proxy.node.is_empty());
        if !waits {
            memory.since = None;
        }
        let since = *memory.since.get_or_insert_with(Instant::now);
        let is_mirrored = match (&delegate, &proxy) {
            (Remote::Present(chaperon), Some(proxy)) => {
                memory.mirrored == Some(fingerprints(chaperon, proxy))
            }
            (_, _) => false,
        };
        let is_told = match &delegate {
            Remote::Present(chaperon) => memory.told == Some(fingerprint_of(&chaperon.annotations)),
            _ => false,
        };
        let last = memory.last.as_ref().filter(|(uid, _)| Some(uid) == elected.as_ref());
        let mut seen = Observed {
            pods_in_step: self.pods_in_step,
            is_confirmed: evidence.delegate_absent,
            delegate,
            others,
            parent: evidence.parent.unwrap_or(Parent::NotRead),
            last_status: last.map(|(_, status)| status.value()),
            had: memory.had.clone(),
            was_disrupted: memory.was_disrupted,
            is_told,
            is_mirrored,
            // A difference that no event of the delegate explains has waited for ever.
            outage: Outage::default(),
            successor,
            returned,
            waited: memory.changed.map_or(std::time::Duration::MAX, |at| at.elapsed()),
            age: since.elapsed(),
            labels,
            proxy,
            now,
        };
        if let (Remote::Silent, Some(proxy)) = (&seen.delegate, &seen.proxy) {
            seen.outage = self.outage(proxy, &seen.now);
        }
        Some(seen)
    }

    /// What the target of a bound pod does with labels.
    fn labels(&self, proxy: Option<&Proxy>) -> LabelRewriting {
        let target = proxy.and_then(|proxy| self.targets.as_ref()?.get(&proxy.node));
        target.map(|target| target.settings.label_rewriting).unwrap_or_default()
    }

    /// PodChaperons of the same parent but for some, in targets that answer.
    fn others(&self, key: &Key, but: [Option<&str>; 2]) -> Vec<Arc<Chaperon>> {
        let all = self.chaperons.get(key).into_iter().flatten();
        all.filter(|other| !but.contains(&Some(other.uid.as_str())))
            .filter(|other| self.links.get(&other.target).is_some_and(|link| link.is_in_step()))
            .cloned()
            .collect()
    }

    fn delegate(&self, key: &Key, proxy: &Proxy, evidence: Evidence) -> Remote {
        if proxy.node.is_empty() && !proxy.is_granted {
            return Remote::NotElected;
        }
        let Some(targets) = &self.targets else { return Remote::Unknown };
        let elected = proxy.elected_target.as_deref();
        let found = if proxy.node.is_empty() {
            targets
                .values()
                .find(|target| elected.is_some() && target.status.cluster_uid.as_deref() == elected)
        } else {
            targets.get(&proxy.node)
        };
        let Some(target) = found else {
            let gone = if evidence.target_gone { Remote::TargetGone } else { Remote::TargetMissing };
            return self.removed(key, proxy, evidence).unwrap_or(gone);
        };
        let stands_for = target.status.cluster_uid.as_deref();
        if target.deleting && elected.is_none_or(|elected| Some(elected) == stands_for) {
            return self.departing_delegate(key, proxy, evidence, target);
        }
        // Somebody vouches for what cannot be asked.
        let unknown = || if target.is_fenced() { Remote::Silent } else { Remote::Unknown };
        let Some((_, cluster_uid)) = target.usable() else { return unknown() };
        if elected.is_some_and(|elected| elected != cluster_uid) {
            // A Target keeps its identity for life, so that the elected one was deleted and made anew.
            return self.removed(key, proxy, evidence).unwrap_or(Remote::TargetGone);
        }
        match reach(target) {
            // What is known of a silent target is old.
            Reach::Silent => return Remote::Silent,
            Reach::Trouble => return unknown(),
            Reach::Fine => {}
        }
        let link = self.links.get(&target.key).filter(|link| link.cluster_uid == cluster_uid);
        if !link.is_some_and(|link| link.is_in_step()) {
            return unknown();
        }
        match self.elected(key, proxy, &target.key) {
            Some(chaperon) => Remote::Present(Arc::clone(chaperon)),
            None if evidence.delegate_absent => Remote::Absent,
            None => Remote::Missing,
        }
    }

    pub(super) fn elected(&self, key: &Key, proxy: &Proxy, target: &TargetKey) -> Option<&Arc<Chaperon>> {
        let mut there = self.chaperons.get(key).into_iter().flatten().filter(|c| c.target == *target);
        match &proxy.elected_chaperon {
            Some(uid) => there.find(|chaperon| chaperon.uid == *uid),
            None => there.next(),
        }
    }

    /// What is left of the delegate of a pod whose Target was removed; `None` when nothing is, or when nobody
    /// can tell any more. Until then the pod waits: its successor must not run beside it.
    fn removed(&self, key: &Key, proxy: &Proxy, evidence: Evidence) -> Option<Remote> {
        let link = self.link_of(proxy)?;
        if !link.is_in_step() {
            return Some(Remote::Unknown);
        }
        match self.elected(key, proxy, &link.key) {
            Some(chaperon) if proxy.deleting.is_some() => Some(Remote::Present(Arc::clone(chaperon))),
            Some(_) => Some(Remote::Unknown),
            None if evidence.delegate_absent => None,
            None => Some(Remote::Missing),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Fine,
    /// It does not answer.
    Silent,
    /// It answers, but lets us do nothing.
    Trouble,
}

/// What virtual-kubelet found.
pub(super) fn reach(target: &Target) -> Reach {
    let conditions = &target.status.conditions;
    let reachable = conditions.iter().find(|condition| condition.type_ == Kind::Reachable.as_str());
    match reachable.filter(|condition| condition.status == "False") {
        None => Reach::Fine,
        Some(condition) if condition.reason == Reason::Unreachable.as_str() => Reach::Silent,
        Some(_) => Reach::Trouble,
    }
}

fn fingerprints(chaperon: &Chaperon, proxy: &Proxy) -> (u64, u64) {
    (fingerprint(&chaperon.status, &chaperon.annotations), fingerprint(&proxy.status, &proxy.annotations))
}
