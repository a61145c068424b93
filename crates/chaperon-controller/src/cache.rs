//! What the watches and our own writes have told, by name.
//!
//! The answer of each write goes in as well, so that a decision never rests on a state older than what this
//! process wrote itself. Of two states of an object the one with the higher resourceVersion counts, unless a list or
//! read that began after the one was known shows the other: then the API server has gone back to a backup.

use crate::delegate::{EPHEMERAL, belongs};
use crate::fence::{Fence, Holder, need};
use crate::plan::{Creation, Delegate, Observed, Staging};
use crate::stock::Stock;
use api::references::{References, of_chaperon};
use api::{Pod, PodChaperon, keys};
use runtime::{Class, Clock};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The pause after the first refusal by a kubelet; doubled by each that follows.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// How many that wait for room one pod that goes wakes: it rarely makes room for more, and the others come back
/// by themselves.
const WOKEN: usize = 8;

/// How long a change that was refused is not tried again.
const REFUSED_UPDATE: Duration = Duration::from_secs(30);

/// Namespace and name, of a PodChaperon and its pod alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What one round of work learned that nobody else needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Round {
    /// The PodChaperon was read.
    pub(crate) live: bool,
    /// The creation was refused.
    pub(crate) refused: Option<(Class, String)>,
}

/// A node that the candidate scheduler promised while we looked on.
struct Promise {
    node: Arc<str>,
    /// Until when nothing that was true of the node is taken to have changed.
    young_until: Instant,
}

struct Entry {
    chaperon: Option<Arc<PodChaperon>>,
    promise: Option<Promise>,
    delegate: Delegate,
    refusals: u32,
    resume: Option<Instant>,
    held_since: Option<Instant>,
    /// Since when something that the delegate names is known not to be there.
    lacks_since: Option<Instant>,
    /// Which record of changes the API server refused, why, and until when it is not tried again.
    refused_update: Option<(String, String, Instant)>,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            chaperon: None,
            promise: None,
            delegate: Delegate::Unseen,
            refusals: 0,
            resume: None,
            held_since: None,
            lacks_since: None,
            refused_update: None,
        }
    }
}

impl Entry {
    fn young_promise(&self) -> Option<&Promise> {
        self.promise.as_ref().filter(|promise| Instant::now() < promise.young_until)
    }

    fn chaperon_version(&self) -> Option<&str> {
        self.chaperon.as_ref().map(|chaperon| chaperon.resource_version())
    }

    fn pod_version(&self) -> Option<&str> {
        match &self.delegate {
            Delegate::Unseen | Delegate::Gone(None) => None,
            Delegate::Gone(Some(pod)) | Delegate::Present(pod) => Some(pod.resource_version()),
        }
    }

    fn is_empty(&self) -> bool {
        self.chaperon.is_none() && !matches!(self.delegate, Delegate::Present(_))
    }

    /// Notes a promise that is made now, and drops one that is taken back.
    fn note_promise(&mut self, chaperon: &PodChaperon) {
        let node = chaperon.annotation(keys::RESERVED_NODE).filter(|_| chaperon.is_reserved());
        let known = self.chaperon.as_ref().filter(|known| known.is_reserved());
        if node == known.and_then(|known| known.annotation(keys::RESERVED_NODE)) {
            return;
        }
        let seconds = chaperon.annotation(keys::RESERVED_SECONDS).and_then(|text| text.parse().ok());
        self.promise = node.map(|node| Promise {
            node: Arc::from(node),
            young_until: Instant::now() + Duration::from_secs(seconds.unwrap_or_default()),
        });
    }

    /// Whether what a delegate that is still to be created names is there.
    fn stage(&mut self, key: &Key, stock: &mut Stock) -> Staging {
        let Some(chaperon) = &self.chaperon else { return Staging::Complete };
        let is_due = chaperon.is_allowed() && !chaperon.is_terminating() && !self.has_delegate();
        let needs =
            if is_due || self.lacks_since.is_some() { of_chaperon(chaperon) } else { References::new() };
        if !is_due {
            stock.forget(key, &needs);
            self.lacks_since = None;
            return Staging::Complete;
        }
        let staging = stock.look(key, &needs, (&mut self.lacks_since, Instant::now()));
        if staging == Staging::Complete {
            self.lacks_since = None;
        }
        staging
    }

    /// Why the delegate is not as its proxy pod was changed.
    fn unchanged(&self) -> Option<String> {
        let record = self.chaperon.as_ref()?.annotation(keys::UPDATES)?;
        let (refused, message, until) = self.refused_update.as_ref()?;
        (refused == record && Instant::now() < *until).then(|| message.clone())
    }

    fn has_delegate(&self) -> bool {
        matches!(self.delegate, Delegate::Present(_))
    }

    /// A delegate that exists makes the spec superfluous: it is read again before another is created.
    fn trim(&mut self) {
        let (Some(chaperon), Delegate::Present(pod)) = (&mut self.chaperon, &self.delegate) else { return };
        if belongs(pod, chaperon) && chaperon.spec.get("containers").is_some() {
            let policy = chaperon.spec.get("restartPolicy").cloned().unwrap_or_default();
            let mut kept = json!({"restartPolicy": policy});
            // They are added to the delegate while it runs.
            if let Some(ephemeral) = chaperon.spec.get(EPHEMERAL) {
                kept[EPHEMERAL] = ephemeral.clone();
            }
            Arc::make_mut(chaperon).spec = kept;
        }
    }
}

/// Whether a state is newer than the known one. The API server guarantees that versions are numbers.
fn is_newer(new: &str, known: Option<&str>) -> bool {
    match (new.parse::<u64>(), known.map(str::parse::<u64>)) {
        (Ok(new), Some(Ok(known))) => new > known,
        _ => true,
    }
}

/// Whether a state is older than the known one. The answer to a patch that takes away the last finalizer
/// carries the version from before: the object was deleted instead of changed.
fn is_older(new: &str, known: Option<&str>) -> bool {
    Some(new) != known && !is_newer(new, known)
}

fn key_of(metadata: &kube::api::ObjectMeta) -> Key {
    Key {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

fn trimmed_pod(mut pod: Pod) -> Arc<Pod> {
    pod.metadata.managed_fields = None;
    let mut kept = json!({"nodeName": pod.node()});
    let ephemeral = pod.spec.get(EPHEMERAL).and_then(serde_json::Value::as_array).into_iter().flatten();
    let names: Vec<_> = ephemeral.map(|container| json!({"name": container["name"]})).collect();
    if !names.is_empty() {
        kept[EPHEMERAL] = json!(names);
    }
    pod.spec = kept;
    Arc::new(pod)
}

fn trimmed_chaperon(mut chaperon: PodChaperon) -> Arc<PodChaperon> {
    chaperon.metadata.managed_fields = None;
    Arc::new(chaperon)
}

/// Names of which something was learned since a list was asked for: the only ones of which it may show less.
#[derive(Default)]
struct Listing(Option<BTreeSet<Key>>);

impl Listing {
    fn learned(&mut self, key: &Key) {
        if let Some(names) = &mut self.0 {
            names.insert(key.clone());
        }
    }
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Key, Entry>,
    /// Keys whose delegate the API server refused, by namespace.
    refused: BTreeMap<String, BTreeSet<Key>>,
    stock: Stock,
    listing_chaperons: Listing,
    listing_pods: Listing,
}

/// The cache.
#[derive(Default)]
pub(crate) struct Cache(Mutex<State>, Clock);

impl Cache {
    pub(crate) fn new(clock: Clock) -> Self {
        Self(Mutex::default(), clock)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that is known about a name.
    pub(crate) fn observe(&self, key: &Key, round: &Round) -> Observed {
        let mut state = self.state();
        let State { entries, stock, .. } = &mut *state;
        let mut nothing = Entry::default();
        let entry = entries.get_mut(key).unwrap_or(&mut nothing);
        let staging = entry.stage(key, stock);
        let pause = entry.resume.map(|at| at.saturating_duration_since(Instant::now()));
        let creation = match (&round.refused, pause) {
            (Some((class, message)), _) => Creation::Refused(*class, message.clone()),
            (None, Some(pause)) if !pause.is_zero() => Creation::After(pause),
            (None, _) => Creation::Free,
        };
        Observed {
            chaperon: entry.chaperon.clone(),
            delegate: entry.delegate.clone(),
            creation,
            staging,
            promised: entry.young_promise().map(|promise| Arc::clone(&promise.node)),
            fence: Fence::Open,
            live: round.live,
            unchanged: entry.unchanged(),
            held: entry.held_since.map(|since| since.elapsed()),
            now: self.1.now(),
        }
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.state().entries.keys().cloned().collect()
    }

    /// The allowed PodChaperons without end that need a Lease, by what they need.
    pub(crate) fn needs(&self) -> BTreeMap<(Holder, u64), Vec<Key>> {
        let mut needs: BTreeMap<_, Vec<Key>> = BTreeMap::new();
        for (key, entry) in &self.state().entries {
            let chaperon = entry.chaperon.as_deref().filter(|chaperon| chaperon.is_allowed());
            let chaperon = chaperon.filter(|chaperon| !api::raw::is_terminal(chaperon.phase()));
            if let Some(needed) = chaperon.and_then(need) {
                needs.entry(needed).or_default().push(key.clone());
            }
        }
        needs
    }

    /// A watch saw a PodChaperon as it changed.
    pub(crate) fn see_chaperon(&self, chaperon: PodChaperon) -> Option<Key> {
        let key = key_of(&chaperon.metadata);
        let mut state = self.state();
        let entry = state.entries.entry(key.clone()).or_default();
        if !is_newer(chaperon.resource_version(), entry.chaperon_version()) {
            return None;
        }
        entry.note_promise(&chaperon);
        entry.chaperon = Some(trimmed_chaperon(chaperon));
        entry.trim();
        Some(key)
    }

    /// A watch saw that a PodChaperon is gone.
    pub(crate) fn lose_chaperon(&self, last: &PodChaperon) -> Option<Key> {
        let key = key_of(&last.metadata);
        let mut state = self.state();
        let entry = state.entries.get_mut(&key)?;
        if is_older(last.resource_version(), entry.chaperon_version()) {
            return None;
        }
        entry.chaperon = None;
        state.forget_if_empty(&key);
        Some(key)
    }

    /// All PodChaperons are asked for.
    pub(crate) fn list_chaperons(&self) {
        self.state().listing_chaperons = Listing(Some(BTreeSet::new()));
    }

    /// A list of all PodChaperons: what is not in it is gone.
    pub(crate) fn replace_chaperons(&self, all: Vec<PodChaperon>) -> Vec<Key> {
        let listed: BTreeSet<Key> = all.iter().map(|chaperon| key_of(&chaperon.metadata)).collect();
        let mut state = self.state();
        let learned = state.listing_chaperons.0.take().unwrap_or_default();
        for chaperon in all {
            let key = key_of(&chaperon.metadata);
            let is_learned = learned.contains(&key);
            let entry = state.entries.entry(key).or_default();
            let is_same = entry.chaperon_version() == Some(chaperon.resource_version());
            if is_same || is_learned && !is_newer(chaperon.resource_version(), entry.chaperon_version()) {
                continue;
            }
            // A promise that is listed may be old.
            entry.promise = None;
            entry.chaperon = Some(trimmed_chaperon(chaperon));
            entry.trim();
        }
        let keys: Vec<Key> = state.entries.keys().cloned().collect();
        for key in keys.iter().filter(|key| !listed.contains(key)) {
            if let Some(entry) = state.entries.get_mut(key) {
                entry.chaperon = None;
            }
            state.forget_if_empty(key);
        }
        keys
    }

    /// The API server told the state of a PodChaperon in its answer to us. One that the watch has seen go
    /// must not come back.
    pub(crate) fn learn_chaperon(&self, chaperon: PodChaperon) {
        self.learn_read_chaperon(chaperon, None);
    }

    /// The same for a read that began when this version was known: what it shows is no older than that.
    pub(crate) fn learn_read_chaperon(&self, chaperon: PodChaperon, before: Option<&str>) {
        let mut state = self.state();
        let key = key_of(&chaperon.metadata);
        let Some(entry) = state.entries.get_mut(&key).filter(|entry| entry.chaperon.is_some()) else {
            return;
        };
        let known = entry.chaperon_version();
        if before.is_some() && before == known || !is_older(chaperon.resource_version(), known) {
            entry.chaperon = Some(trimmed_chaperon(chaperon));
            entry.trim();
            state.listing_chaperons.learned(&key);
        }
    }

    /// The versions that are known of a PodChaperon and of the pod of its name.
    pub(crate) fn versions(&self, key: &Key) -> (Option<String>, Option<String>) {
        let state = self.state();
        let Some(entry) = state.entries.get(key) else { return (None, None) };
        (entry.chaperon_version().map(str::to_owned), entry.pod_version().map(str::to_owned))
    }

    /// The API server told us that there is no such PodChaperon.
    pub(crate) fn learn_no_chaperon(&self, key: &Key) {
        let mut state = self.state();
        if let Some(entry) = state.entries.get_mut(key) {
            entry.chaperon = None;
        }
        state.forget_if_empty(key);
    }

    /// A watch saw a pod.
    pub(crate) fn see_pod(&self, pod: Pod) -> Option<Key> {
        let key = key_of(&pod.metadata);
        let mut state = self.state();
        let entry = state.entries.entry(key.clone()).or_default();
        if !is_newer(pod.resource_version(), entry.pod_version()) {
            return None;
        }
        entry.delegate = Delegate::Present(trimmed_pod(pod));
        entry.trim();
        Some(key)
    }

    /// A watch saw that a pod is gone.
    pub(crate) fn lose_pod(&self, last: Pod) -> Option<Key> {
        let key = key_of(&last.metadata);
        let mut state = self.state();
        let entry = state.entries.get_mut(&key)?;
        if is_older(last.resource_version(), entry.pod_version()) {
            return None;
        }
        entry.delegate = Delegate::Gone(Some(trimmed_pod(last)));
        entry.held_since = None;
        state.forget_if_empty(&key);
        Some(key)
    }

    /// All pods are asked for.
    pub(crate) fn list_pods(&self) {
        self.state().listing_pods = Listing(Some(BTreeSet::new()));
    }

    /// A list of all pods. What is not in it may have been created after it was made.
    pub(crate) fn replace_pods(&self, all: Vec<Pod>) -> Vec<Key> {
        let listed: BTreeSet<Key> = all.iter().map(|pod| key_of(&pod.metadata)).collect();
        let mut state = self.state();
        let learned = state.listing_pods.0.take().unwrap_or_default();
        for pod in all {
            let key = key_of(&pod.metadata);
            let is_learned = learned.contains(&key);
            let entry = state.entries.entry(key).or_default();
            if is_learned && !is_newer(pod.resource_version(), entry.pod_version()) {
                continue;
            }
            entry.delegate = Delegate::Present(trimmed_pod(pod));
            entry.trim();
        }
        let keys: Vec<Key> = state.entries.keys().cloned().collect();
        for key in keys.iter().filter(|key| !listed.contains(key)) {
            if let Some(entry) = state.entries.get_mut(key)
                && matches!(entry.delegate, Delegate::Present(_))
            {
                entry.delegate = Delegate::Unseen;
            }
            state.forget_if_empty(key);
        }
        keys
    }

    /// The API server told the state of a pod in its answer to us.
    pub(crate) fn learn_pod(&self, pod: Pod) {
        self.learn_read_pod(pod, None);
    }

    /// The same for a read that began when this version was known: what it shows is no older than that.
    pub(crate) fn learn_read_pod(&self, pod: Pod, before: Option<&str>) {
        let mut state = self.state();
        let key = key_of(&pod.metadata);
        let Some(entry) = state.entries.get_mut(&key) else { return };
        let known = entry.pod_version();
        if before.is_some() && before == known || !is_older(pod.resource_version(), known) {
            entry.delegate = Delegate::Present(trimmed_pod(pod));
            entry.trim();
            state.listing_pods.learned(&key);
            state.no_longer_refused(&key);
        }
    }

    /// The API server told us that there is no such pod.
    pub(crate) fn learn_no_pod(&self, key: &Key) {
        let mut state = self.state();
        state.listing_pods.learned(key);
        if let Some(entry) = state.entries.get_mut(key) {
            entry.delegate = match std::mem::replace(&mut entry.delegate, Delegate::Unseen) {
                Delegate::Gone(last) => Delegate::Gone(last),
                Delegate::Present(last) => Delegate::Gone(Some(last)),
                Delegate::Unseen => Delegate::Gone(None),
            };
        }
        state.forget_if_empty(key);
    }

    /// Whether a change of status is held back.
    pub(crate) fn hold(&self, key: &Key, holds: bool) {
        if let Some(entry) = self.state().entries.get_mut(key) {
            entry.held_since = if holds { entry.held_since.or_else(|| Some(Instant::now())) } else { None };
        }
    }

    /// The delegate cannot be created on the node that was promised to it.
    pub(crate) fn break_promise(&self, key: &Key) {
        if let Some(entry) = self.state().entries.get_mut(key) {
            entry.promise = None;
        }
    }

    /// Changes what is known of ConfigMaps, Secrets and claims.
    pub(crate) fn stock<T>(&self, change: impl FnOnce(&mut Stock) -> T) -> T {
        change(&mut self.state().stock)
    }

    /// The API server refused to change the delegate as its proxy pod was.
    pub(crate) fn refuse_update(&self, key: &Key, message: &str) {
        if let Some(entry) = self.state().entries.get_mut(key)
            && let Some(chaperon) = &entry.chaperon
        {
            let record = chaperon.annotation(keys::UPDATES).unwrap_or_default().to_owned();
            entry.refused_update = Some((record, message.to_owned(), Instant::now() + REFUSED_UPDATE));
        }
    }

    /// A kubelet refused the delegate.
    pub(crate) fn count_refusal(&self, key: &Key) {
        if let Some(entry) = self.state().entries.get_mut(key) {
            let pause =
                FIRST_PAUSE.saturating_mul(2u32.saturating_pow(entry.refusals.min(20))).min(LONGEST_PAUSE);
            entry.refusals = entry.refusals.saturating_add(1);
            entry.resume = Some(Instant::now() + runtime::queue::jitter(pause, key));
        }
    }

    /// The delegate runs or has run.
    pub(crate) fn forgive(&self, key: &Key) {
        if let Some(entry) = self.state().entries.get_mut(key) {
            entry.refusals = 0;
            entry.resume = None;
        }
    }

    /// The API server refused the delegate: it is tried again when a pod of the namespace goes.
    pub(crate) fn wait_for_room(&self, key: &Key) {
        self.state().refused.entry(key.namespace.clone()).or_default().insert(key.clone());
    }

    /// Some of the keys that wait for room in a namespace; those wait no longer.
    pub(crate) fn waiting(&self, namespace: &str) -> Vec<Key> {
        let mut state = self.state();
        let Some(waiting) = state.refused.get(namespace) else { return Vec::new() };
        let woken: Vec<Key> = waiting.iter().take(WOKEN).cloned().collect();
        for key in &woken {
            state.no_longer_refused(key);
        }
        woken
    }
}

impl State {
    fn forget_if_empty(&mut self, key: &Key) {
        if self.entries.get(key).is_some_and(Entry::is_empty) {
            self.entries.remove(key);
            self.no_longer_refused(key);
        }
    }

    fn no_longer_refused(&mut self, key: &Key) {
        let Some(waiting) = self.refused.get_mut(&key.namespace) else { return };
        waiting.remove(key);
        if waiting.is_empty() {
            self.refused.remove(&key.namespace);
        }
    }
}

#[cfg(test)]
mod tests;
