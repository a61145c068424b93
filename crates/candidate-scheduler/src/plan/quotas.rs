//! ResourceQuotas, with what is promised and not yet counted by the API server.
//!
//! A dry run tells whether one more pod would be admitted, and reserves nothing: of a burst, all would. So what is
//! promised is counted here as well, from the promise until the API server counts the delegate itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use scheduling::ResourceList;
use scheduling::resources::add_list;
use serde_json::Value;

use crate::observe::{Change, Name};
use crate::plan::Model;
use crate::plan::chaperons::Stand;

/// How long a delegate that was seen may not have been seen in the quota's status.
const LAG_MS: u64 = 1000;

mod usage;

pub use usage::QuotaSeen;
use usage::Usage;

/// What is promised to one chaperon.
#[derive(Debug)]
struct Promised {
    namespace: Arc<str>,
    usage: Usage,
    /// The API server counts its delegate; from then on it is not counted here any more.
    until: Option<u64>,
}

/// All quotas, and who is counted and who waits because of them.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    all: BTreeMap<Name, QuotaSeen>,
    /// By UID of the chaperon.
    promised: HashMap<Arc<str>, Promised>,
    by_namespace: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Chaperons that no quota admits, by namespace.
    waiting: BTreeMap<Arc<str>, BTreeSet<Name>>,
    /// Namespaces in which there may be more room than before.
    freed: BTreeSet<Arc<str>>,
    /// When delegates are counted by the API server for certain.
    fading: BTreeSet<(u64, Arc<str>)>,
}

impl Quotas {
    fn of<'a>(&'a self, namespace: &Arc<str>) -> impl Iterator<Item = (&'a Name, &'a QuotaSeen)> {
        let first = Name::new(namespace, "");
        let namespace = Arc::clone(namespace);
        self.all.range(first..).take_while(move |(name, _)| name.namespace == namespace)
    }

    fn has(&self, namespace: &Arc<str>) -> bool {
        self.of(namespace).next().is_some()
    }

    /// Why a pod would not be admitted, with all that is promised.
    fn objection(&self, namespace: &Arc<str>, usage: &Usage) -> Option<String> {
        for (name, quota) in self.of(namespace).filter(|(_, quota)| quota.concerns(usage)) {
            let mut promised = ResourceList::new();
            for uid in self.by_namespace.get(namespace).into_iter().flatten() {
                let other = self.promised.get(uid).map(|promised| &promised.usage);
                if let Some(other) = other.filter(|other| quota.concerns(other)) {
                    add_list(&mut promised, &other.amounts);
                }
            }
            if let Some(excess) = quota.excess(usage, &promised) {
                return Some(format!(
                    "creating the pod is forbidden: exceeded quota: {}, {excess}, with what is promised already",
                    name.name
                ));
            }
        }
        None
    }

    fn promise(&mut self, uid: &Arc<str>, namespace: &Arc<str>, usage: Usage) {
        self.forget(uid);
        let promised = Promised { namespace: Arc::clone(namespace), usage, until: None };
        self.promised.insert(Arc::clone(uid), promised);
        self.by_namespace.entry(Arc::clone(namespace)).or_default().insert(Arc::clone(uid));
    }

    /// The delegate exists: the API server has counted it, and its watch will show that in a moment.
    fn fade(&mut self, uid: &Arc<str>, now: u64) {
        let Some(promised) = self.promised.get_mut(uid).filter(|promised| promised.until.is_none()) else {
            return;
        };
        promised.until = Some(now + LAG_MS);
        self.fading.insert((now + LAG_MS, Arc::clone(uid)));
    }

    /// Nothing is promised any more.
    fn forget(&mut self, uid: &Arc<str>) {
        let Some(old) = self.promised.remove(uid) else { return };
        if let Some(until) = old.until {
            self.fading.remove(&(until, Arc::clone(uid)));
        }
        if let Some(all) = self.by_namespace.get_mut(&old.namespace) {
            all.remove(uid);
            if all.is_empty() {
                self.by_namespace.remove(&old.namespace);
            }
        }
        self.freed.insert(old.namespace);
    }

    /// Whether a chaperon waits for a quota.
    pub(super) fn keeps(&self, name: &Name) -> bool {
        self.waiting.get(&name.namespace).is_some_and(|waiting| waiting.contains(name))
    }

    pub(super) fn next_wakeup(&self) -> Option<u64> {
        if !self.freed.is_empty() && !self.waiting.is_empty() {
            return Some(0);
        }
        self.fading.first().map(|(at, _)| *at)
    }
}

impl Model {
    pub(super) fn see_quotas(&mut self, change: Change<QuotaSeen, Name>, now: u64) {
        match change {
            Change::All(quotas) => {
                let first = self.quotas.all.is_empty();
                let namespaces: BTreeSet<Arc<str>> = self
                    .quotas
                    .all
                    .keys()
                    .map(|name| Arc::clone(&name.namespace))
                    .chain(quotas.iter().map(|quota| Arc::clone(&quota.name.namespace)))
                    .collect();
                self.quotas.all = quotas.into_iter().map(|quota| (quota.name.clone(), quota)).collect();
                for namespace in &namespaces {
                    self.quota_changed(namespace, !first, now);
                }
            }
            Change::Is(quota) => {
                let name = quota.name.clone();
                let known = self.quotas.has(&name.namespace);
                self.quotas.all.insert(name.clone(), quota);
                self.quota_changed(&name.namespace, true, now);
                if !known {
                    self.promise_all(&name.namespace);
                }
            }
            Change::Gone(name) => {
                self.quotas.all.remove(&name);
                self.quota_changed(&name.namespace, true, now);
            }
        }
    }

    /// `news`: what admission said before may be wrong now.
    fn quota_changed(&mut self, namespace: &Arc<str>, news: bool, now: u64) {
        if news {
            self.forget_admission(Some(namespace));
        } else {
            self.promise_all(namespace);
        }
        self.quotas.freed.insert(Arc::clone(namespace));
        self.settle_quotas(now);
    }

    /// The first quota of a namespace: what was promised before counts as well.
    fn promise_all(&mut self, namespace: &Arc<str>) {
        let names: Vec<Name> =
            self.chaperons.keys().filter(|name| name.namespace == *namespace).cloned().collect();
        for name in &names {
            self.promise_quota(name);
        }
    }

    /// Counts what is promised to a chaperon, if it is promised and not counted yet.
    pub(super) fn promise_quota(&mut self, name: &Name) {
        if !self.quotas.has(&name.namespace) {
            return;
        }
        let Some(chaperon) = self.chaperons.get(name) else { return };
        let uid = Arc::clone(chaperon.uid());
        let held = self.snapshot.place_of(&uid).is_some();
        let open = matches!(self.stand(chaperon), Stand::Reserved(_) | Stand::Allowed(_) | Stand::Asked);
        if !held || !open || self.quotas.promised.contains_key(&uid) {
            return;
        }
        let raw = chaperon.seen.pod.as_ref().ok();
        let Some(pod) = chaperon.pod.as_ref().or(raw) else { return };
        let usage = Usage::of(&pod.spec.request_list(), &chaperon.seen.manifest["spec"]);
        self.quotas.promise(&uid, &name.namespace, usage);
    }

    /// Brings what is counted for a chaperon in line with what it is owed.
    pub(super) fn settle_quota(&mut self, name: &Name, now: u64) {
        let Some(chaperon) = self.chaperons.get(name) else { return };
        let (uid, stand) = (Arc::clone(chaperon.uid()), self.stand(chaperon));
        match stand {
            Stand::Reserved(_) | Stand::Allowed(_) => self.promise_quota(name),
            Stand::Delegated | Stand::Bound => self.quotas.fade(&uid, now),
            Stand::Asked if self.snapshot.place_of(&uid).is_some() => self.promise_quota(name),
            Stand::Over | Stand::Expired | Stand::Asked => self.quotas.forget(&uid),
        }
    }

    /// A chaperon is gone.
    pub(super) fn forget_quota(&mut self, name: &Name, uid: &Arc<str>) {
        self.stop_waiting_for_quota(name);
        self.quotas.forget(uid);
    }

    pub(super) fn stop_waiting_for_quota(&mut self, name: &Name) {
        if let Some(waiting) = self.quotas.waiting.get_mut(&name.namespace) {
            waiting.remove(name);
            if waiting.is_empty() {
                self.quotas.waiting.remove(&name.namespace);
            }
        }
    }

    /// Why no quota of its namespace has room for a chaperon; it is looked at again when one may.
    pub(super) fn quota_objection(&mut self, name: &Name, requests: &ResourceList) -> Option<String> {
        if !self.quotas.has(&name.namespace) {
            return None;
        }
        let spec: &Value = &self.chaperons.get(name)?.seen.manifest["spec"];
        let objection = self.quotas.objection(&name.namespace, &Usage::of(requests, spec))?;
        self.quotas.waiting.entry(Arc::clone(&name.namespace)).or_default().insert(name.clone());
        Some(objection)
    }

    /// Lets those look again for whom there may be room by now.
    pub(super) fn settle_quotas(&mut self, now: u64) {
        while let Some((at, uid)) = self.quotas.fading.first().cloned() {
            if at > now {
                break;
            }
            self.quotas.forget(&uid);
        }
        for namespace in std::mem::take(&mut self.quotas.freed) {
            for name in self.quotas.waiting.remove(&namespace).unwrap_or_default() {
                self.settle(&name, now);
            }
        }
    }
}
