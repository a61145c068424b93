//! What a Source or ClusterSource is to have.

use api::{ClusterSource, Source, keys, names};
use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference};
use std::collections::BTreeMap;
use std::fmt;

/// The API group of roles, bindings and users.
const RBAC: &str = "rbac.authorization.k8s.io";

/// A Source (with namespace) or ClusterSource (without).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceKey {
    /// Namespace of a Source; empty for a ClusterSource.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

/// Namespace, empty where the kind has none, and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Namespace; a binding without one is a ClusterRoleBinding.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for SourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, &self.namespace, &self.name)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, &self.namespace, &self.name)
    }
}

fn write_name(f: &mut fmt::Formatter<'_>, namespace: &str, name: &str) -> fmt::Result {
    if namespace.is_empty() {
        return f.write_str(name);
    }
    write!(f, "{namespace}/{name}")
}

/// Which of the two bindings of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// To the role that runs pods here.
    Access,
    /// To the role that reads the ClusterSummary.
    Summary,
}

impl Slot {
    /// Both.
    pub const ALL: [Slot; 2] = [Slot::Access, Slot::Summary];
}

impl SourceKey {
    /// Whether it is a ClusterSource.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.namespace.is_empty()
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        if self.is_cluster() { "ClusterSource" } else { "Source" }
    }

    /// Where a binding of the source is.
    #[must_use]
    pub fn binding(&self, slot: Slot) -> Id {
        let (namespace, name) = match (slot, self.is_cluster()) {
            (Slot::Access, false) => (self.namespace.clone(), names::source_role_binding(&self.name)),
            (Slot::Access, true) => (String::new(), names::cluster_source_binding(&self.name)),
            (Slot::Summary, false) => {
                (String::new(), names::source_summary_binding(&self.namespace, &self.name))
            }
            (Slot::Summary, true) => (String::new(), names::cluster_source_summary_binding(&self.name)),
        };
        Id { namespace, name }
    }
}

/// The names of the two ClusterRoles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles {
    /// Runs pods of a source.
    pub access: String,
    /// Reads the ClusterSummary.
    pub summary: String,
}

/// Who the source is, here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// A user.
    pub user: Option<String>,
    /// A ServiceAccount.
    pub account: Option<Id>,
}

/// A Source or ClusterSource as the plan needs it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// UID of the object.
    pub uid: String,
    /// resourceVersion of the object.
    pub version: String,
    /// Its generation.
    pub generation: Option<i64>,
    /// It is being deleted.
    pub terminating: bool,
    /// Who the source is.
    pub identity: Identity,
    /// What its status says.
    pub conditions: Vec<Condition>,
}

fn view(metadata: ObjectMeta, identity: Identity, status: Option<api::SourceStatus>) -> View {
    View {
        uid: metadata.uid.unwrap_or_default(),
        version: metadata.resource_version.unwrap_or_default(),
        generation: metadata.generation,
        terminating: metadata.deletion_timestamp.is_some(),
        identity,
        conditions: status.unwrap_or_default().conditions,
    }
}

/// Key and view of a Source. Its ServiceAccount is in its own namespace.
#[must_use]
pub fn of_source(source: Source) -> (SourceKey, View) {
    let namespace = source.metadata.namespace.clone().unwrap_or_default();
    let key =
        SourceKey { namespace: namespace.clone(), name: source.metadata.name.clone().unwrap_or_default() };
    let account = source.spec.service_account_name.filter(|name| !name.is_empty());
    let identity = Identity {
        user: source.spec.user_name.filter(|name| !name.is_empty()),
        account: account.map(|name| Id { namespace, name }),
    };
    (key, view(source.metadata, identity, source.status))
}

/// Key and view of a ClusterSource. Its ServiceAccount is in the namespace that the reference names.
#[must_use]
pub fn of_cluster_source(source: ClusterSource) -> (SourceKey, View) {
    let key = SourceKey { namespace: String::new(), name: source.metadata.name.clone().unwrap_or_default() };
    let account = source.spec.service_account.filter(|account| !account.name.is_empty());
    let identity = Identity {
        user: source.spec.user_name.filter(|name| !name.is_empty()),
        account: account.map(|account| Id { namespace: account.namespace, name: account.name }),
    };
    (key, view(source.metadata, identity, source.status))
}

/// The subjects of both bindings: the ServiceAccount first, then the user.
#[must_use]
pub fn subjects(identity: &Identity) -> Vec<Subject> {
    let account = identity.account.as_ref().map(|account| Subject {
        kind: "ServiceAccount".to_owned(),
        api_group: None,
        name: account.name.clone(),
        namespace: Some(account.namespace.clone()),
    });
    let user = identity.user.as_ref().map(|user| Subject {
        kind: "User".to_owned(),
        api_group: Some(RBAC.to_owned()),
        name: user.clone(),
        namespace: None,
    });
    account.into_iter().chain(user).collect()
}

/// Whether two lists of subjects are one, whatever defaults the API server filled in.
#[must_use]
pub fn same_subjects(one: &[Subject], other: &[Subject]) -> bool {
    fn plain(subject: &Subject) -> (&str, &str, &str, &str) {
        let default = if subject.kind == "ServiceAccount" { "" } else { RBAC };
        let group = subject.api_group.as_deref().filter(|group| !group.is_empty()).unwrap_or(default);
        (&subject.kind, group, subject.namespace.as_deref().unwrap_or_default(), &subject.name)
    }
    one.iter().map(plain).eq(other.iter().map(plain))
}

/// The role that a binding is to name.
#[must_use]
pub fn role(roles: &Roles, slot: Slot) -> RoleRef {
    let name = match slot {
        Slot::Access => roles.access.clone(),
        Slot::Summary => roles.summary.clone(),
    };
    RoleRef { api_group: Some(RBAC.to_owned()), kind: "ClusterRole".to_owned(), name }
}

/// The owner reference of an object in a namespace (empty: cluster-scoped), where Kubernetes honours one: an
/// owner with a namespace owns only there.
#[must_use]
pub fn owner(key: &SourceKey, uid: &str, namespace: &str) -> Option<OwnerReference> {
    let legal = key.is_cluster() || key.namespace == namespace;
    legal.then(|| OwnerReference {
        api_version: "multicluster.admiralty.io/v1alpha1".to_owned(),
        kind: key.kind().to_owned(),
        name: key.name.clone(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

/// The labels of everything that is created for a source.
#[must_use]
pub fn labels(uid: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("app.kubernetes.io/managed-by".to_owned(), "multicluster-source-controller".to_owned()),
        (keys::SOURCE_UID.to_owned(), uid.to_owned()),
    ])
}

/// The annotations of everything that is created for a source. They may be longer than a label.
#[must_use]
pub fn annotations(key: &SourceKey) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([(keys::SOURCE_NAME.to_owned(), key.name.clone())]);
    if !key.is_cluster() {
        all.insert(keys::SOURCE_NAMESPACE.to_owned(), key.namespace.clone());
    }
    all
}

/// Whose a binding says it is.
#[must_use]
pub fn named_by(metadata: &ObjectMeta) -> Option<SourceKey> {
    let annotations = metadata.annotations.as_ref()?;
    Some(SourceKey {
        namespace: annotations.get(keys::SOURCE_NAMESPACE).cloned().unwrap_or_default(),
        name: annotations.get(keys::SOURCE_NAME)?.clone(),
    })
}

/// The metadata of an object that is created for a source.
#[must_use]
pub fn metadata(key: &SourceKey, uid: &str, id: &Id) -> ObjectMeta {
    ObjectMeta {
        name: Some(id.name.clone()),
        namespace: Some(id.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        labels: Some(labels(uid)),
        annotations: Some(annotations(key)),
        owner_references: owner(key, uid, &id.namespace).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// The owners that a binding of the source is to have: others' are kept, and ours is where it is honoured.
#[must_use]
pub fn owners(key: &SourceKey, uid: &str, id: &Id, have: &[OwnerReference]) -> Vec<OwnerReference> {
    let mut owners: Vec<OwnerReference> = have.iter().filter(|owner| owner.uid != uid).cloned().collect();
    owners.extend(owner(key, uid, &id.namespace));
    owners
}
