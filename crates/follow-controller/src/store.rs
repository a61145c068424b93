//! What the watches have shown so far.

use crate::ingresses::{Ingress, Mapping};
use crate::kinds::{Kind, Object};
use crate::link::Link;
use crate::plan::Obstacle;
use crate::services::Service;
use crate::shape::View;
use crate::views::{Block, Copied, Known, Source, User};
use api::claims::Mapping as Names;
use api::v1alpha1::LabelRewriting;
use api::{Pod, keys};
use runtime::targets::TargetMap;
use runtime::{Seen, Target, TargetKey};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

mod entrances;
mod observe;

pub(crate) use observe::{Setting, is_ours};

/// What is known of an object of the source.
#[derive(Debug, Clone)]
pub(crate) enum State {
    Unread,
    Absent,
    Present(Box<Source>),
}

/// What live reads have shown while one object is worked on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    pub(crate) read: bool,
    pub(crate) confirmed: BTreeSet<TargetKey>,
    pub(crate) looked: BTreeSet<TargetKey>,
}

/// An object that somebody uses, that has copies, or that carries a finalizer of ours.
#[derive(Debug)]
struct Entry {
    state: State,
    known: Option<Known>,
    /// How many pods use it in each target.
    uses: BTreeMap<TargetKey, usize>,
    /// Since when nobody uses it there.
    idle: BTreeMap<TargetKey, Instant>,
    blocks: BTreeMap<TargetKey, Block>,
    told: bool,
    deleting_since: Option<Instant>,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            state: State::Unread,
            known: None,
            uses: BTreeMap::new(),
            idle: BTreeMap::new(),
            blocks: BTreeMap::new(),
            told: false,
            deleting_since: None,
        }
    }
}

/// A pod, the target that its delegate runs in, and what it uses there.
#[derive(Debug)]
struct Running {
    user: User,
    at: Option<TargetKey>,
    uses: BTreeSet<Object>,
}

/// An Ingress, and where the pods run that it leads to.
#[derive(Debug)]
struct Entrance {
    ingress: Ingress,
    at: BTreeSet<TargetKey>,
}

/// All pods, objects, copies and targets that matter.
#[derive(Debug)]
pub(crate) struct Store {
    own_uid: String,
    linger: Duration,
    pods: HashMap<String, Running>,
    /// By namespace.
    services: BTreeMap<Arc<str>, BTreeMap<Object, Service>>,
    /// By namespace.
    ingresses: BTreeMap<Arc<str>, BTreeMap<Object, Entrance>>,
    pods_in_step: bool,
    entries: BTreeMap<Object, Entry>,
    copies: BTreeMap<TargetKey, BTreeMap<Object, Copied>>,
    links: BTreeMap<TargetKey, Arc<Link>>,
    targets: BTreeMap<TargetKey, Arc<Target>>,
}

impl Store {
    pub(crate) fn new(own_uid: &str, linger: Duration) -> Self {
        Self {
            own_uid: own_uid.to_owned(),
            linger,
            pods: HashMap::new(),
            services: BTreeMap::new(),
            ingresses: BTreeMap::new(),
            pods_in_step: false,
            entries: BTreeMap::new(),
            copies: BTreeMap::new(),
            links: BTreeMap::new(),
            targets: BTreeMap::new(),
        }
    }

    /// Everything.
    pub(crate) fn all(&self) -> BTreeSet<Object> {
        self.entries.keys().chain(self.copies.values().flat_map(BTreeMap::keys)).cloned().collect()
    }

    /// Takes the registry's targets in; returns what is to be looked at.
    pub(crate) fn set_targets(&mut self, map: &TargetMap) -> BTreeSet<Object> {
        self.targets = map.values().map(|target| (target.key.clone(), Arc::clone(target))).collect();
        // Pods may be behind a target that was not known before.
        let users: Vec<(String, User)> =
            self.pods.iter().map(|(uid, running)| (uid.clone(), running.user.clone())).collect();
        for (uid, user) in users {
            self.put_user(uid, Some(user));
        }
        self.all()
    }

    pub(crate) fn has_target(&self, key: &TargetKey) -> bool {
        self.targets.contains_key(key)
    }

    pub(crate) fn set_link(&mut self, link: Arc<Link>) {
        self.links.insert(link.key.clone(), link);
    }

    pub(crate) fn link(&self, key: &TargetKey) -> Option<Arc<Link>> {
        self.links.get(key).cloned()
    }

    /// Forgets the link; the copies as well when the target is no more.
    pub(crate) fn drop_link(&mut self, key: &TargetKey) -> BTreeSet<Object> {
        self.links.remove(key);
        let objects = self.copies.get(key).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        if !self.has_target(key) {
            self.copies.remove(key);
            return self.all().into_iter().chain(objects).collect();
        }
        objects
    }

    /// The target that a pod's delegate runs in.
    fn place(&self, user: &User) -> Option<TargetKey> {
        if !user.is_live {
            return None;
        }
        let behind = |target: &&Arc<Target>| {
            if !user.node.is_empty() {
                return target.virtual_node() == user.node;
            }
            user.cluster.is_some()
                && target.status.cluster_uid == user.cluster
                && target.key.serves(&user.namespace)
        };
        self.targets.values().find(behind).map(|target| target.key.clone())
    }

    /// Takes in what the watch of pods saw; returns what is to be looked at.
    pub(crate) fn take_pods(&mut self, seen: Seen<Pod>) -> BTreeSet<Object> {
        match seen {
            Seen::Replaced(all) => {
                let there: HashSet<&str> = all.iter().map(Pod::uid).collect();
                let gone: Vec<String> =
                    self.pods.keys().filter(|uid| !there.contains(uid.as_str())).cloned().collect();
                for uid in gone {
                    self.put_user(uid, None);
                }
                for pod in &all {
                    self.put_user(pod.uid().to_owned(), User::new(pod));
                }
                self.pods_in_step = true;
                self.all()
            }
            Seen::Applied(pod) => self.put_user(pod.uid().to_owned(), User::new(&pod)),
            Seen::Deleted(pod) => self.put_user(pod.uid().to_owned(), None),
            Seen::Failed(_) => BTreeSet::new(),
        }
    }

    /// Replaces what is known of one pod; returns the objects that are now used somewhere where they were not,
    /// or no longer.
    pub(crate) fn put_user(&mut self, uid: String, user: Option<User>) -> BTreeSet<Object> {
        let place = user.as_ref().and_then(|user| self.place(user));
        let new = match (&user, &place) {
            (Some(user), Some(at)) => self.uses(user, self.is_self(at)),
            (_, _) => BTreeSet::new(),
        };
        let before = match user {
            Some(user) => {
                let running = Running { user, at: place.clone(), uses: new.clone() };
                self.pods.insert(uid, running)
            }
            None => self.pods.remove(&uid),
        };
        let mut changed = BTreeSet::new();
        let old = before.and_then(|running| Some((running.uses, running.at?)));
        if let (Some((uses, at)), Some(place)) = (&old, &place)
            && *uses == new
            && at == place
        {
            return changed;
        }
        if let Some(place) = place {
            for object in new {
                if self.begin_use(&object, &place) {
                    changed.insert(object);
                }
            }
        }
        if let Some((uses, at)) = old {
            for object in uses {
                if self.end_use(&object, &at) {
                    changed.insert(object);
                }
            }
        }
        for service in changed.clone().iter().filter(|object| object.kind == Kind::Service) {
            changed.extend(self.follow_service(service));
        }
        changed
    }

    /// What a pod uses: what it names, and the Services that select it. In the source itself all that it names is
    /// there.
    fn uses(&self, user: &User, is_self: bool) -> BTreeSet<Object> {
        let mut uses = if is_self { BTreeSet::new() } else { user.names.clone() };
        let services = self.services.get(&user.namespace).into_iter().flatten();
        uses.extend(
            services.filter(|(_, service)| service.selects(&user.labels)).map(|(object, _)| object.clone()),
        );
        uses
    }

    /// Whether a target is the source itself.
    pub(crate) fn is_self(&self, key: &TargetKey) -> bool {
        self.targets.get(key).is_some_and(|target| {
            target.settings.is_self
                || target.status.cluster_uid.as_ref().is_some_and(|uid| *uid == self.own_uid)
        })
    }

    /// A Service was seen, or is gone; returns what is to be looked at.
    pub(crate) fn put_service(&mut self, object: &Object, service: Option<Service>) -> BTreeSet<Object> {
        let service = service.filter(|service| !service.is_copy);
        let of_namespace = self.services.entry(Arc::clone(&object.namespace)).or_default();
        let selector = service.as_ref().map(|service| service.selector.clone());
        let old = match service {
            Some(service) => of_namespace.insert(object.clone(), service),
            None => of_namespace.remove(object),
        };
        if old.map(|old| old.selector) == selector {
            return BTreeSet::new();
        }
        let users: Vec<(String, User)> = self
            .pods
            .iter()
            .filter(|(_, running)| running.user.namespace == object.namespace && running.at.is_some())
            .map(|(uid, running)| (uid.clone(), running.user.clone()))
            .collect();
        users.into_iter().flat_map(|(uid, user)| self.put_user(uid, Some(user))).collect()
    }

    fn begin_use(&mut self, object: &Object, at: &TargetKey) -> bool {
        let entry = self.entries.entry(object.clone()).or_default();
        entry.idle.remove(at);
        let count = entry.uses.entry(at.clone()).or_default();
        *count += 1;
        *count == 1
    }

    fn end_use(&mut self, object: &Object, at: &TargetKey) -> bool {
        let Some(entry) = self.entries.get_mut(object) else { return false };
        let Some(count) = entry.uses.get_mut(at) else { return false };
        *count = count.saturating_sub(1);
        if *count > 0 {
            return false;
        }
        entry.uses.remove(at);
        entry.blocks.remove(at);
        entry.idle.insert(at.clone(), Instant::now());
        true
    }

    /// Whether the object matters to us, apart from its own finalizers.
    fn is_tracked(&self, object: &Object) -> bool {
        self.entries.contains_key(object) || self.copies.values().any(|copies| copies.contains_key(object))
    }

    /// A watch or an answer showed an object of the source; returns whether it matters.
    pub(crate) fn put_source(&mut self, object: &Object, source: Source) -> bool {
        let is_shared = source.service.as_ref().is_some_and(|service| service.declared_global);
        let matters = source.is_held() || source.is_legacy() || is_shared || self.is_tracked(object);
        if source.is_copy() || !matters {
            return false;
        }
        let entry = self.entries.entry(object.clone()).or_default();
        if let State::Present(known) = &entry.state
            && known.uid == source.uid
            && known.version > source.version
        {
            return false;
        }
        entry.deleting_since =
            if source.deleting { entry.deleting_since.or_else(|| Some(Instant::now())) } else { None };
        if !matches!(&entry.state, State::Present(known) if known.uid == source.uid) {
            entry.told = false;
        }
        entry.state = State::Present(Box::new(source));
        true
    }

    /// An object of the source is gone.
    pub(crate) fn lose_source(&mut self, object: &Object, uid: Option<&str>) -> bool {
        let tracked = self.is_tracked(object);
        let Some(entry) = self.entries.get_mut(object) else { return tracked };
        if let (State::Present(known), Some(uid)) = (&entry.state, uid)
            && known.uid != uid
        {
            return false;
        }
        entry.state = State::Absent;
        entry.known = None;
        entry.told = false;
        entry.deleting_since = None;
        true
    }

    /// The complete list of one kind in the source.
    pub(crate) fn replace_sources(&mut self, kind: Kind, all: Vec<(Object, Source)>) -> BTreeSet<Object> {
        let there: HashSet<Object> = all.iter().map(|(object, _)| object.clone()).collect();
        let known: Vec<Object> = self.entries.keys().filter(|object| object.kind == kind).cloned().collect();
        self.drop_entrances(kind, &there);
        if kind == Kind::Service {
            let services = self.services.values().flat_map(BTreeMap::keys).cloned();
            for gone in services.filter(|object| !there.contains(object)).collect::<Vec<_>>() {
                self.put_service(&gone, None);
            }
        }
        for object in known.iter().filter(|object| !there.contains(*object)) {
            self.lose_source(object, None);
        }
        for (object, source) in all {
            self.put_leader(&object, &source);
            self.put_source(&object, source);
        }
        self.entries.keys().filter(|object| object.kind == kind).cloned().collect()
    }

    pub(crate) fn source(&self, object: &Object) -> Option<Source> {
        match &self.entries.get(object)?.state {
            State::Present(source) => Some(Source::clone(source)),
            State::Unread | State::Absent => None,
        }
    }

    /// How an original looks is known.
    pub(crate) fn set_known(&mut self, object: &Object, known: Known) {
        let entry = self.entries.entry(object.clone()).or_default();
        if entry.known.as_ref().is_none_or(|old| old.version <= known.version) {
            entry.known = Some(known);
        }
    }

    /// Our own patch of metadata has made a new version; how copies look is as it was.
    pub(crate) fn renew(&mut self, object: &Object, seen: u64, now: Source) {
        let version = now.version;
        self.put_source(object, now);
        let known = self.entries.get_mut(object).and_then(|entry| entry.known.as_mut());
        if let Some(known) = known.filter(|known| known.version == seen) {
            known.version = version;
        }
    }

    /// How originals change on their way into a target.
    pub(crate) fn view(&self, key: &TargetKey) -> View {
        let Some(target) = self.targets.get(key) else { return View::default() };
        View {
            keeps_labels: target.settings.label_rewriting == LabelRewriting::Keep,
            mapping: Mapping::new(&target.annotations),
            classes: Names::new(&target.annotations, keys::STORAGE_CLASSES),
        }
    }

    /// Whether pods elsewhere use the object, or did a moment ago.
    pub(crate) fn has_users(&self, object: &Object) -> bool {
        self.entries.get(object).is_some_and(|entry| !entry.uses.is_empty())
    }

    pub(crate) fn set_told(&mut self, object: &Object) {
        self.entries.entry(object.clone()).or_default().told = true;
    }

    /// Something stands in the way in a target; returns whether that is news.
    pub(crate) fn block(
        &mut self,
        object: &Object,
        at: &TargetKey,
        block: Option<(Obstacle, Duration)>,
    ) -> bool {
        let entry = self.entries.entry(object.clone()).or_default();
        let Some((kind, pause)) = block else {
            entry.blocks.remove(at);
            return false;
        };
        let old = entry.blocks.insert(at.clone(), Block { kind, until: Instant::now() + pause });
        old.is_none_or(|old| old.kind != kind)
    }

    /// A copy was seen.
    pub(crate) fn put_copy(&mut self, at: &TargetKey, object: &Object, copy: Copied) {
        let copies = self.copies.entry(at.clone()).or_default();
        if copies.get(object).is_some_and(|old| old.uid == copy.uid && old.version > copy.version) {
            return;
        }
        copies.insert(object.clone(), copy);
        if let Some(entry) = self.entries.get_mut(object) {
            entry.blocks.remove(at);
        }
    }

    pub(crate) fn copy(&self, at: &TargetKey, object: &Object) -> Option<Copied> {
        self.copies.get(at)?.get(object).cloned()
    }

    /// A copy is gone.
    pub(crate) fn lose_copy(&mut self, at: &TargetKey, object: &Object, uid: &str) {
        let Some(copies) = self.copies.get_mut(at) else { return };
        if copies.get(object).is_some_and(|copy| copy.uid == uid) {
            copies.remove(object);
        }
    }

    /// The complete list of copies of one kind in a target.
    pub(crate) fn replace_copies(
        &mut self,
        at: &TargetKey,
        kind: Kind,
        all: Vec<(Object, Copied)>,
    ) -> BTreeSet<Object> {
        let copies = self.copies.entry(at.clone()).or_default();
        let gone: Vec<Object> = copies.keys().filter(|object| object.kind == kind).cloned().collect();
        copies.retain(|object, _| object.kind != kind);
        let mut changed: BTreeSet<Object> = gone.into_iter().collect();
        for (object, copy) in all {
            changed.insert(object.clone());
            self.put_copy(at, &object, copy);
        }
        changed.extend(self.entries.keys().filter(|object| object.kind == kind).cloned());
        changed
    }

    /// Copies behind a target's own virtual node.
    pub(crate) fn behind(&self, at: &TargetKey) -> Vec<(Object, Copied)> {
        let node = api::names::label_value(&at.virtual_node());
        let all = self.copies.get(at).into_iter().flatten();
        // What holds data stays where it is.
        let own = all
            .filter(|(object, _)| !object.kind.holds_data())
            .filter(|(_, copy)| copy.labels.get(keys::VIRTUAL_NODE).is_some_and(|of| *of == node));
        own.map(|(object, copy)| (object.clone(), copy.clone())).collect()
    }

    /// How many copies are known in a target.
    pub(crate) fn count(&self, at: &TargetKey) -> usize {
        self.copies.get(at).map_or(0, BTreeMap::len)
    }

    /// Whether all these pods are known to run behind a virtual node.
    pub(crate) fn knows_pods(&self, uids: &[String]) -> bool {
        uids.iter().all(|uid| self.pods.contains_key(uid))
    }

    /// Forgets what nobody uses and what carries nothing of ours.
    pub(crate) fn forget(&mut self, object: &Object) {
        let copied = self.copies.values().any(|copies| copies.contains_key(object));
        let Some(entry) = self.entries.get(object) else { return };
        let held = matches!(&entry.state, State::Present(source) if source.is_held() || source.is_legacy());
        if !copied && !held && entry.uses.is_empty() {
            self.entries.remove(object);
        }
    }
}

#[cfg(test)]
mod tests;
