//! What is done about one Source or ClusterSource.

use crate::desired::{
    Identity, Roles, Slot, SourceKey, View, annotations, labels, owners, role, same_subjects, subjects,
};
use api::conditions::{Kind, Reason, Verdict};
use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
use runtime::Class;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A RoleBinding or ClusterRoleBinding in the place of one of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// UID of the object.
    pub uid: String,
    /// resourceVersion of the object.
    pub version: String,
    /// UID of the source that it says it is for.
    pub source_uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its owners.
    pub owners: Vec<OwnerReference>,
    /// The role that it names.
    pub role: RoleRef,
    /// Who gets it.
    pub subjects: Vec<Subject>,
    /// It is being deleted.
    pub terminating: bool,
}

/// A part of what a source has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The ServiceAccount.
    Account,
    /// A binding.
    Binding(Slot),
}

/// Why a part could not be made in this round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Another object has the name.
    NameTaken(String),
    /// The API server refused.
    Refused(Class, String),
}

/// All that is known about one source.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// Which source.
    pub key: SourceKey,
    /// The object; `None` when the synced cache has none.
    pub source: Option<Arc<View>>,
    /// Whether it was read from the API server in this round.
    pub live: bool,
    /// Whether the named ServiceAccount exists.
    pub account: bool,
    /// What is in the places of its bindings and says that it is ours.
    pub bindings: BTreeMap<Slot, Arc<Binding>>,
    /// What could not be made in this round.
    pub refusals: BTreeMap<Part, Refusal>,
    /// The roles.
    pub roles: Arc<Roles>,
}

/// One call. Each may be repeated after a crash.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Reads the source, since a cache may lag behind.
    ReadSource,
    /// Creates the ServiceAccount.
    CreateAccount,
    /// Creates a binding.
    CreateBinding(Slot),
    /// Brings subjects, labels, annotations and owners of a binding back.
    MendBinding(Slot),
    /// Deletes a binding.
    DeleteBinding(Slot),
    /// Writes the condition.
    SetReady(Verdict),
}

/// Decides. The calls are in order; an empty list means that all is as it should be.
#[must_use]
pub fn plan(seen: &Observed) -> Vec<Action> {
    let Some(source) = &seen.source else {
        return remove(seen, |_binding| true);
    };
    if source.terminating {
        return Vec::new();
    }
    if source.identity == Identity::default() {
        let revoked = remove(seen, |_binding| true);
        return if revoked.is_empty() { ready(seen, source) } else { revoked };
    }
    // A role cannot be changed, and what is another's, of a source of this name that is gone, is not adopted.
    let misfits = remove(seen, |(slot, binding)| {
        let wanted = role(&seen.roles, slot);
        binding.source_uid != source.uid
            || binding.role.kind != wanted.kind
            || binding.role.name != wanted.name
    });
    if !misfits.is_empty() {
        return misfits;
    }
    let mut actions = Vec::new();
    if source.identity.account.is_some() && !seen.account && !seen.refusals.contains_key(&Part::Account) {
        actions.push(Action::CreateAccount);
    }
    for slot in Slot::ALL {
        if seen.refusals.contains_key(&Part::Binding(slot)) {
            continue;
        }
        match seen.bindings.get(&slot) {
            None => actions.push(Action::CreateBinding(slot)),
            Some(binding) if binding.terminating || is_in_order(seen, source, slot, binding) => {}
            Some(_) => actions.push(Action::MendBinding(slot)),
        }
    }
    if actions.is_empty() { ready(seen, source) } else { actions }
}

/// Deletes bindings, after the source was read live: a right that is taken away by mistake stops a cluster.
fn remove(seen: &Observed, which: impl Fn((Slot, &Binding)) -> bool) -> Vec<Action> {
    let gone: Vec<Action> = seen
        .bindings
        .iter()
        .filter(|(slot, binding)| !binding.terminating && which((**slot, binding)))
        .filter(|(slot, _)| !seen.refusals.contains_key(&Part::Binding(**slot)))
        .map(|(slot, _)| Action::DeleteBinding(*slot))
        .collect();
    if gone.is_empty() || seen.live { gone } else { vec![Action::ReadSource] }
}

fn is_in_order(seen: &Observed, source: &View, slot: Slot, binding: &Binding) -> bool {
    let contains = |have: &BTreeMap<String, String>, want: BTreeMap<String, String>| {
        want.iter().all(|(key, value)| have.get(key) == Some(value))
    };
    same_subjects(&binding.subjects, &subjects(&source.identity))
        && contains(&binding.labels, labels(&source.uid))
        && contains(&binding.annotations, annotations(&seen.key))
        && same_owners(
            &binding.owners,
            &owners(&seen.key, &source.uid, &seen.key.binding(slot), &binding.owners),
        )
}

fn same_owners(one: &[OwnerReference], other: &[OwnerReference]) -> bool {
    one.len() == other.len() && one.iter().all(|owner| other.contains(owner))
}

fn ready(seen: &Observed, source: &View) -> Vec<Action> {
    let verdict = verdict(seen, source);
    if says(&source.conditions, &verdict, source.generation) {
        return Vec::new();
    }
    vec![Action::SetReady(verdict)]
}

fn verdict(seen: &Observed, source: &View) -> Verdict {
    let (reason, message) = if source.identity == Identity::default() {
        (Reason::SpecInvalid, "spec: name a userName or a ServiceAccount".to_owned())
    } else if let Some((part, refusal)) = seen.refusals.first_key_value() {
        match refusal {
            Refusal::NameTaken(message) => (Reason::NameTaken, message.clone()),
            Refusal::Refused(Class::Forbidden, message) => (Reason::Forbidden, message.clone()),
            Refusal::Refused(Class::NotFound, message) if *part == Part::Account => {
                (Reason::NamespaceNotFound, message.clone())
            }
            Refusal::Refused(_, message) => (Reason::Failed, message.clone()),
        }
    } else if seen.bindings.values().any(|binding| binding.terminating) {
        (Reason::Pending, "a binding is being deleted; it is created again".to_owned())
    } else {
        let message = "the identity and its bindings are in place".to_owned();
        return Verdict { kind: Kind::Ready, status: Some(true), reason: Reason::Ok, message };
    };
    Verdict { kind: Kind::Ready, status: Some(false), reason, message }
}

fn says(conditions: &[Condition], verdict: &Verdict, generation: Option<i64>) -> bool {
    let status = if verdict.status == Some(true) { "True" } else { "False" };
    conditions.iter().any(|condition| {
        condition.type_ == verdict.kind.as_str()
            && condition.status == status
            && condition.reason == verdict.reason.as_str()
            && condition.message == verdict.message
            && condition.observed_generation == generation
    })
}

#[cfg(test)]
mod tests;
