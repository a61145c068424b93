//! What the watches and our own writes have told.

use crate::desired::{Id, Roles, Slot, SourceKey, View, named_by};
use crate::plan::{Binding, Observed, Part, Refusal};
use api::keys;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What one round of work learned that nobody else needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Round {
    /// The source was read.
    pub(crate) live: bool,
    /// What could not be made.
    pub(crate) refusals: BTreeMap<Part, Refusal>,
}

/// What RoleBindings and ClusterRoleBindings have in common.
pub(crate) trait AnyBinding {
    fn into_parts(self) -> (ObjectMeta, RoleRef, Vec<Subject>);
}

impl AnyBinding for RoleBinding {
    fn into_parts(self) -> (ObjectMeta, RoleRef, Vec<Subject>) {
        (self.metadata, self.role_ref, self.subjects.unwrap_or_default())
    }
}

impl AnyBinding for ClusterRoleBinding {
    fn into_parts(self) -> (ObjectMeta, RoleRef, Vec<Subject>) {
        (self.metadata, self.role_ref, self.subjects.unwrap_or_default())
    }
}

/// Where a binding is, whose it says it is, and the rest.
pub(crate) fn binding(object: impl AnyBinding) -> (Id, Option<SourceKey>, Binding) {
    let (metadata, role, subjects) = object.into_parts();
    let id = id_of(&metadata);
    let named = named_by(&metadata);
    let labels = metadata.labels.unwrap_or_default();
    let view = Binding {
        uid: metadata.uid.unwrap_or_default(),
        version: metadata.resource_version.unwrap_or_default(),
        source_uid: labels.get(keys::SOURCE_UID).cloned().unwrap_or_default(),
        labels,
        annotations: metadata.annotations.unwrap_or_default(),
        owners: metadata.owner_references.unwrap_or_default(),
        role,
        subjects,
        terminating: metadata.deletion_timestamp.is_some(),
    };
    (id, named, view)
}

pub(crate) fn id_of(metadata: &ObjectMeta) -> Id {
    Id {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

#[derive(Default)]
struct State {
    sources: HashMap<SourceKey, Arc<View>>,
    bindings: HashMap<Id, Arc<Binding>>,
    accounts: HashSet<Id>,
    /// Whose a place is; known from the source, or from the binding's own annotations.
    places: HashMap<Id, SourceKey>,
}

/// The cache.
pub(crate) struct Cache {
    state: Mutex<State>,
    roles: Arc<Roles>,
}

/// Whether a state is newer than the known one. The API server guarantees that versions are numbers.
fn is_newer(new: &str, known: &str) -> bool {
    match (new.parse::<u64>(), known.parse::<u64>()) {
        (Ok(new), Ok(known)) => new > known,
        _ => true,
    }
}

impl Cache {
    pub(crate) fn new(roles: Roles) -> Self {
        Self { state: Mutex::default(), roles: Arc::new(roles) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that is known about a source.
    pub(crate) fn observe(&self, key: &SourceKey, round: &Round) -> Observed {
        let state = self.state();
        let source = state.sources.get(key).cloned();
        let account = source.as_ref().and_then(|source| source.identity.account.as_ref());
        Observed {
            account: account.is_some_and(|account| state.accounts.contains(account)),
            bindings: Slot::ALL
                .into_iter()
                .filter_map(|slot| Some((slot, Arc::clone(state.bindings.get(&key.binding(slot))?))))
                .collect(),
            key: key.clone(),
            source,
            live: round.live,
            refusals: round.refusals.clone(),
            roles: Arc::clone(&self.roles),
        }
    }

    /// All sources, and those that bindings are left of.
    pub(crate) fn keys(&self) -> HashSet<SourceKey> {
        let state = self.state();
        let left = state.bindings.keys().filter_map(|id| state.places.get(id));
        state.sources.keys().chain(left).cloned().collect()
    }

    pub(crate) fn see_source(&self, (key, view): (SourceKey, View)) -> Option<SourceKey> {
        let mut state = self.state();
        if state.sources.get(&key).is_some_and(|known| !is_newer(&view.version, &known.version)) {
            return None;
        }
        for slot in Slot::ALL {
            state.places.insert(key.binding(slot), key.clone());
        }
        state.sources.insert(key.clone(), Arc::new(view));
        Some(key)
    }

    pub(crate) fn lose_source(&self, key: SourceKey) -> SourceKey {
        self.state().sources.remove(&key);
        key
    }

    /// A list of all Sources, or of all ClusterSources: what is not in it is gone.
    pub(crate) fn replace_sources(&self, cluster: bool, all: Vec<(SourceKey, View)>) -> Vec<SourceKey> {
        let listed: HashSet<SourceKey> = all.iter().map(|(key, _)| key.clone()).collect();
        self.state().sources.retain(|key, _| key.is_cluster() != cluster || listed.contains(key));
        for source in all {
            self.see_source(source);
        }
        self.keys().into_iter().filter(|key| key.is_cluster() == cluster).collect()
    }

    /// The API server told the state of a source in its answer to us.
    /// One that the watch has not shown, or has seen go, is left to it; then the answer is `false`.
    pub(crate) fn learn_source(&self, source: (SourceKey, View)) -> bool {
        let known = self.state().sources.contains_key(&source.0);
        if known {
            self.see_source(source);
        }
        known
    }

    pub(crate) fn see_binding(&self, object: impl AnyBinding) -> Option<SourceKey> {
        let (id, named, view) = binding(object);
        let mut state = self.state();
        if state.bindings.get(&id).is_some_and(|known| !is_newer(&view.version, &known.version)) {
            return None;
        }
        state.bindings.insert(id.clone(), Arc::new(view));
        if let Some(named) = named
            && Slot::ALL.into_iter().any(|slot| named.binding(slot) == id)
        {
            state.places.entry(id.clone()).or_insert(named);
        }
        state.places.get(&id).cloned()
    }

    /// A binding of the source that lacks the label that our watch selects. It is in the cache until it has
    /// it, so that the label is given to it.
    pub(crate) fn adopt_binding(&self, object: impl AnyBinding, uid: &str) {
        let (id, _, mut view) = binding(object);
        if view.source_uid.is_empty() {
            uid.clone_into(&mut view.source_uid);
        }
        self.state().bindings.insert(id, Arc::new(view));
    }

    pub(crate) fn lose_binding(&self, object: impl AnyBinding) -> Option<SourceKey> {
        let (id, _, _) = binding(object);
        self.forget_binding(&id)
    }

    pub(crate) fn forget_binding(&self, id: &Id) -> Option<SourceKey> {
        let mut state = self.state();
        state.bindings.remove(id);
        state.places.get(id).cloned()
    }

    /// A list of all RoleBindings, or of all ClusterRoleBindings, of ours: what is not in it is gone.
    pub(crate) fn replace_bindings<B: AnyBinding>(&self, cluster: bool, all: Vec<B>) -> Vec<SourceKey> {
        self.state().bindings.retain(|id, _| id.namespace.is_empty() != cluster);
        for object in all {
            self.see_binding(object);
        }
        self.keys().into_iter().collect()
    }

    pub(crate) fn see_account(&self, id: Id) -> Vec<SourceKey> {
        let users = self.users_of(&id);
        if self.state().accounts.insert(id) { users } else { Vec::new() }
    }

    pub(crate) fn lose_account(&self, id: &Id) -> Vec<SourceKey> {
        self.state().accounts.remove(id);
        self.users_of(id)
    }

    pub(crate) fn replace_accounts(&self, all: Vec<Id>) -> Vec<SourceKey> {
        self.state().accounts = all.into_iter().collect();
        self.keys().into_iter().collect()
    }

    fn users_of(&self, id: &Id) -> Vec<SourceKey> {
        let state = self.state();
        let uses = |view: &View| view.identity.account.as_ref() == Some(id);
        state.sources.iter().filter(|(_, view)| uses(view)).map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, Round};
    use crate::desired::{Roles, Slot, SourceKey, View};
    use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
    use serde_json::json;

    fn key() -> SourceKey {
        SourceKey { namespace: "ns".to_owned(), name: "s".to_owned() }
    }

    fn cache() -> Cache {
        Cache::new(Roles { access: "a".to_owned(), summary: "b".to_owned() })
    }

    fn summary(name: &str) -> ClusterRoleBinding {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": "b", "resourceVersion": "3",
            "labels": {api::keys::SOURCE_UID: "u"},
            "annotations": {api::keys::SOURCE_NAME: "s", api::keys::SOURCE_NAMESPACE: "ns"}},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "b"}}))
        .unwrap()
    }

    #[test]
    fn w25_after_a_restart_a_binding_names_the_source_that_is_gone() {
        let cache = cache();
        let name = key().binding(Slot::Summary).name;
        assert_eq!(cache.see_binding(summary(&name)), Some(key()));
        assert_eq!(cache.keys().into_iter().collect::<Vec<_>>(), [key()]);
        assert_eq!(cache.observe(&key(), &Round::default()).bindings.len(), 1);
    }

    #[test]
    fn a_binding_in_another_place_than_it_says_is_nobody_s() {
        let cache = cache();
        assert_eq!(cache.see_binding(summary("elsewhere")), None);
        assert!(cache.observe(&key(), &Round::default()).bindings.is_empty());
    }

    #[test]
    fn an_account_wakes_those_that_name_it() {
        let cache = cache();
        let account = super::Id { namespace: "ns".to_owned(), name: "sa".to_owned() };
        let mut view = View::default();
        view.identity.account = Some(account.clone());
        cache.see_source((key(), view));
        assert_eq!(cache.see_account(account.clone()), [key()]);
        assert!(cache.observe(&key(), &Round::default()).account);
        assert_eq!(cache.see_account(account.clone()), [], "known already");
        assert_eq!(cache.lose_account(&account), [key()]);
    }

    #[test]
    fn a_late_event_does_not_undo_what_we_wrote() {
        let cache = cache();
        let at = |version: &str| (key(), View { version: version.to_owned(), ..View::default() });
        cache.see_source(at("5"));
        cache.learn_source(at("7"));
        assert_eq!(cache.see_source(at("6")), None);
        cache.lose_source(key());
        cache.learn_source(at("8"));
        assert!(cache.observe(&key(), &Round::default()).source.is_none());
    }
}
