use super::{Action, Binding, Observed, Part, Refusal, plan};
use crate::desired::{
    Id, Identity, Roles, Slot, SourceKey, View, annotations, labels, owners, role, subjects,
};
use api::conditions::{Reason, merge};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use runtime::Class;
use std::collections::BTreeMap;
use std::sync::Arc;

fn id(namespace: &str, name: &str) -> Id {
    Id { namespace: namespace.to_owned(), name: name.to_owned() }
}

/// A Source, or, without namespace, a ClusterSource, of which nothing is made yet.
fn fresh(namespace: &str) -> Observed {
    let view = View {
        uid: "u".to_owned(),
        generation: Some(1),
        identity: Identity { user: Some("jane".to_owned()), account: Some(id("ns", "sa")) },
        ..View::default()
    };
    Observed {
        key: SourceKey { namespace: namespace.to_owned(), name: "s".to_owned() },
        source: Some(Arc::new(view)),
        live: false,
        account: false,
        bindings: BTreeMap::new(),
        refusals: BTreeMap::new(),
        roles: Arc::new(Roles { access: "x-source".to_owned(), summary: "x-viewer".to_owned() }),
    }
}

fn settled(namespace: &str) -> Observed {
    converge(fresh(namespace)).1
}

impl Observed {
    fn with_source(mut self, change: impl FnOnce(&mut View)) -> Self {
        change(Arc::make_mut(self.source.as_mut().unwrap()));
        self
    }

    fn with_binding(mut self, slot: Slot, change: impl FnOnce(&mut Binding)) -> Self {
        change(Arc::make_mut(self.bindings.get_mut(&slot).unwrap()));
        self
    }

    fn restarted(self) -> Self {
        Self { live: false, refusals: BTreeMap::new(), ..self }
    }

    /// A binding as it should be.
    fn good(&self, slot: Slot) -> Binding {
        let source = self.source.as_ref().unwrap();
        let place = self.key.binding(slot);
        Binding {
            uid: "b".to_owned(),
            version: "1".to_owned(),
            source_uid: source.uid.clone(),
            labels: labels(&source.uid),
            annotations: annotations(&self.key),
            owners: owners(&self.key, &source.uid, &place, &[]),
            role: role(&self.roles, slot),
            subjects: subjects(&source.identity),
            terminating: false,
        }
    }
}

/// What the API server does.
fn obey(mut seen: Observed, action: &Action) -> Observed {
    match action {
        Action::ReadSource => Observed { live: true, ..seen },
        Action::CreateAccount => Observed { account: true, ..seen },
        Action::CreateBinding(slot) | Action::MendBinding(slot) => {
            let binding = seen.good(*slot);
            seen.bindings.insert(*slot, Arc::new(binding));
            seen
        }
        Action::DeleteBinding(slot) => {
            seen.bindings.remove(slot);
            seen
        }
        Action::SetReady(verdict) => seen.with_source(|source| {
            let now = Time(Timestamp::UNIX_EPOCH);
            merge(&mut source.conditions, std::slice::from_ref(verdict), source.generation, &now);
        }),
    }
}

fn converge(mut seen: Observed) -> (Vec<Action>, Observed) {
    let mut done = Vec::new();
    for _ in 0..10 {
        let actions = plan(&seen);
        if actions.is_empty() {
            return (done, seen);
        }
        for action in actions {
            seen = obey(seen, &action);
            done.push(action);
        }
    }
    panic!("no end: {done:?}");
}

/// The names of all calls until nothing is left to do, and the same end after a crash between any two.
#[track_caller]
fn check(seen: &Observed, want: &[&str]) -> Observed {
    let (actions, end) = converge(seen.clone());
    assert_eq!(actions.iter().map(Action::name).collect::<Vec<_>>(), want);
    for crash in 0..actions.len() {
        let halfway = actions.iter().take(crash).fold(seen.clone(), obey).restarted();
        let (_, again) = converge(halfway);
        assert_eq!(again.bindings, end.bindings, "after a crash behind {crash} of {actions:?}");
        assert_eq!(again.account, end.account);
    }
    end
}

#[track_caller]
fn check_reason(seen: &Observed, want: Reason) {
    let (actions, _) = converge(seen.clone());
    let Some(Action::SetReady(verdict)) = actions.last() else { panic!("no verdict: {actions:?}") };
    assert_eq!((verdict.status == Some(true), verdict.reason), (want == Reason::Ok, want));
}

#[test]
fn a_source_gets_its_identity_and_both_bindings() {
    let want = ["create_account", "create_binding", "create_binding", "set_ready"];
    check(&fresh("ns"), &want);
    check(&fresh(""), &want);
    check_reason(&fresh("ns"), Reason::Ok);
}

#[test]
fn w24_the_account_of_a_cluster_source_is_in_the_namespace_that_it_names() {
    let source: api::ClusterSource = serde_json::from_value(serde_json::json!({"metadata": {"name": "s"},
        "spec": {"serviceAccount": {"name": "sa", "namespace": "elsewhere"}}}))
    .unwrap();
    let (key, view) = crate::desired::of_cluster_source(source);
    let account = view.identity.account.unwrap();
    let made = crate::desired::metadata(&key, "u", &account);
    assert_eq!((made.namespace.as_deref(), made.name.as_deref()), (Some("elsewhere"), Some("sa")));
    assert_eq!(made.owner_references.unwrap()[0].kind, "ClusterSource");
}

#[test]
fn an_account_that_exists_is_used_as_it_is() {
    let seen = Observed { account: true, ..fresh("ns") };
    check(&seen, &["create_binding", "create_binding", "set_ready"]);
}

#[test]
fn a_user_alone_needs_no_account() {
    let seen = fresh("ns").with_source(|source| source.identity.account = None);
    check(&seen, &["create_binding", "create_binding", "set_ready"]);
}

#[test]
fn w25_what_is_as_it_should_be_is_not_written_again() {
    for namespace in ["ns", ""] {
        check(&settled(namespace), &[]);
    }
    let defaulted = settled("ns").with_binding(Slot::Access, |binding| {
        binding.subjects[0].api_group = Some(String::new());
        binding.subjects[1].api_group = None;
    });
    check(&defaulted, &[]);
}

#[test]
fn w25_subjects_are_the_account_first_and_then_the_user_with_its_group() {
    let all = subjects(&fresh("ns").source.unwrap().identity);
    assert_eq!(
        all.iter().map(|subject| subject.kind.as_str()).collect::<Vec<_>>(),
        ["ServiceAccount", "User"]
    );
    assert_eq!(all[1].api_group.as_deref(), Some("rbac.authorization.k8s.io"));
}

#[test]
fn w25_no_cluster_scoped_object_is_owned_by_a_namespaced_one() {
    assert!(settled("ns").bindings[&Slot::Summary].owners.is_empty());
    assert_eq!(settled("ns").bindings[&Slot::Access].owners.len(), 1);
    assert_eq!(settled("").bindings[&Slot::Summary].owners.len(), 1);
}

#[test]
fn w25_an_owner_that_kubernetes_cannot_honour_is_taken_away() {
    let older = settled("ns").with_binding(Slot::Summary, |binding| {
        binding.owners = settled("ns").bindings[&Slot::Access].owners.clone();
    });
    check(&older, &["mend_binding"]);
}

#[test]
fn w25_the_bindings_of_a_source_that_is_gone_are_deleted_after_a_live_read() {
    let gone = Observed { source: None, ..settled("ns") };
    check(&gone, &["read_source", "delete_binding", "delete_binding"]);
}

#[test]
fn w25_the_bindings_of_a_predecessor_are_replaced() {
    let renewed = settled("ns").with_source(|source| source.uid = "successor".to_owned());
    let end = check(
        &renewed,
        &["read_source", "delete_binding", "delete_binding", "create_binding", "create_binding"],
    );
    assert_eq!(end.bindings[&Slot::Access].source_uid, "successor");
}

#[test]
fn changes_by_hand_are_undone() {
    let subjects = settled("ns").with_binding(Slot::Access, |binding| binding.subjects.clear());
    check(&subjects, &["mend_binding"]);
    let labels = settled("").with_binding(Slot::Summary, |binding| binding.labels.clear());
    check(&labels, &["mend_binding"]);
    let owners = settled("ns").with_binding(Slot::Access, |binding| binding.owners.clear());
    check(&owners, &["mend_binding"]);
    let deleted = Observed { account: false, ..settled("ns") };
    check(&deleted, &["create_account"]);
}

#[test]
fn owners_that_others_added_stay() {
    let shared = settled("ns").with_binding(Slot::Access, |binding| {
        let mut other = binding.owners[0].clone();
        other.uid = "other".to_owned();
        other.controller = None;
        binding.owners.push(other);
    });
    check(&shared, &[]);
}

#[test]
fn a_binding_to_another_role_is_made_anew() {
    let bent =
        settled("ns").with_binding(Slot::Access, |binding| binding.role.name = "cluster-admin".to_owned());
    check(&bent, &["read_source", "delete_binding", "create_binding"]);
}

#[test]
fn a_source_without_identity_loses_its_rights() {
    let seen = settled("ns").with_source(|source| source.identity = Identity::default());
    check(&seen, &["read_source", "delete_binding", "delete_binding", "set_ready"]);
    check_reason(&seen, Reason::SpecInvalid);
}

#[test]
fn a_source_that_is_being_deleted_is_left_alone() {
    check(&fresh("ns").with_source(|source| source.terminating = true), &[]);
    check(&settled("ns").with_source(|source| source.terminating = true), &[]);
}

#[test]
fn a_new_identity_is_followed() {
    let seen = settled("ns").with_source(|source| {
        source.identity.user = Some("john".to_owned());
        source.generation = Some(2);
    });
    check(&seen, &["mend_binding", "mend_binding", "set_ready"]);
}

#[test]
fn what_could_not_be_made_is_said_and_keeps_nothing_else_from_being_made() {
    let refused = |part, refusal| Observed { refusals: BTreeMap::from([(part, refusal)]), ..fresh("ns") };
    let no = |class| Refusal::Refused(class, "no".to_owned());
    let seen = refused(Part::Account, no(Class::NotFound));
    let (actions, _) = converge(seen.clone());
    assert_eq!(actions.len(), 3);
    check_reason(&seen, Reason::NamespaceNotFound);
    check_reason(&refused(Part::Binding(Slot::Access), no(Class::Forbidden)), Reason::Forbidden);
    check_reason(&refused(Part::Binding(Slot::Access), no(Class::Invalid)), Reason::Failed);
    let taken = Refusal::NameTaken("taken".to_owned());
    check_reason(&refused(Part::Binding(Slot::Summary), taken), Reason::NameTaken);
}

#[test]
fn a_binding_on_its_way_out_is_waited_for() {
    let seen = settled("ns").with_binding(Slot::Access, |binding| binding.terminating = true);
    check_reason(&seen, Reason::Pending);
}
