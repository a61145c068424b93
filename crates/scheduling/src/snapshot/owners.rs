//! Selectors of the objects that stand for a group of pods. From them come the selectors of default spread constraints.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::field::{Field, FieldError};
use crate::labels::Labels;
use crate::pod::PodSpec;
use crate::selector::LabelSelector;

/// A kind of object that stands for a group of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OwnerKind {
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

impl OwnerKind {
    pub const ALL: [Self; 4] =
        [Self::Service, Self::ReplicationController, Self::ReplicaSet, Self::StatefulSet];

    /// The kind of a controller by the API version and kind of an owner reference. Others say nothing about a group.
    pub(crate) fn of_controller(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version, kind) {
            ("v1", "ReplicationController") => Some(Self::ReplicationController),
            ("apps/v1", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps/v1", "StatefulSet") => Some(Self::StatefulSet),
            _ => None,
        }
    }
}

/// Such an object, reduced to whom it selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub kind: OwnerKind,
    pub namespace: String,
    pub name: String,
    selects: Selects,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Selects {
    Nothing,
    /// Services and ReplicationControllers.
    Labels(Labels),
    Selector(LabelSelector),
}

impl Owner {
    /// Reads a raw Service, ReplicationController, ReplicaSet or StatefulSet. A selector that is malformed selects
    /// nothing.
    pub fn parse(kind: OwnerKind, object: &Value) -> Result<Self, FieldError> {
        let root = Field::root(object);
        let metadata = root.get("metadata");
        let namespace = metadata.get("namespace").text()?.unwrap_or("default");
        let name = metadata.get("name").text()?.unwrap_or_default();
        let selector = object.get("spec").and_then(|spec| spec.get("selector"));
        Ok(Self::new(kind, (namespace, name), selector.unwrap_or(&Value::Null)))
    }

    /// An object of this namespace and name with the raw selector of its spec. One that is malformed selects nothing.
    pub fn new(kind: OwnerKind, (namespace, name): (&str, &str), selector: &Value) -> Self {
        let root = Field::root(selector);
        let selects = match kind {
            _ if selector.is_null() => Selects::Nothing,
            OwnerKind::Service | OwnerKind::ReplicationController => {
                root.labels().map_or(Selects::Nothing, Selects::Labels)
            }
            OwnerKind::ReplicaSet | OwnerKind::StatefulSet => match LabelSelector::parse(&root) {
                Ok(Some(selector)) => Selects::Selector(selector),
                Ok(None) | Err(_) => Selects::Nothing,
            },
        };
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned(), selects }
    }
}

/// The Services of one namespace.
#[derive(Debug, Clone, Default)]
struct Services {
    selectors: BTreeMap<String, Labels>,
    /// Names of services by one of the labels that they select, so that a pod need not be compared with each.
    by_label: HashMap<(String, String), BTreeSet<String>>,
}

impl Services {
    fn set(&mut self, name: &str, selector: Labels) {
        self.remove(name);
        // A service that selects everything adds nothing to a selector.
        let Some((key, value)) = selector.first() else { return };
        let names = self.by_label.entry((key.to_owned(), value.to_owned())).or_default();
        names.insert(name.to_owned());
        self.selectors.insert(name.to_owned(), selector);
    }

    fn remove(&mut self, name: &str) -> bool {
        let Some(old) = self.selectors.remove(name) else { return false };
        if let Some((key, value)) = old.first() {
            let label = (key.to_owned(), value.to_owned());
            if let Some(names) = self.by_label.get_mut(&label) {
                names.remove(name);
                if names.is_empty() {
                    self.by_label.remove(&label);
                }
            }
        }
        true
    }

    /// The labels that the services of a pod with these labels select, together.
    fn selected(&self, labels: &Labels) -> Labels {
        let mut selected = Labels::new();
        for (key, value) in labels {
            let names = self.by_label.get(&(key.to_owned(), value.to_owned()));
            for selector in names.into_iter().flatten().filter_map(|name| self.selectors.get(name)) {
                if selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
                    selected.extend(selector);
                }
            }
        }
        selected
    }
}

/// Whom Services, ReplicationControllers, ReplicaSets and StatefulSets select.
#[derive(Debug, Clone, Default)]
pub struct Owners {
    services: HashMap<String, Services>,
    controllers: HashMap<(OwnerKind, String, String), Selects>,
    generation: u64,
}

impl Owners {
    /// Adds or replaces an object.
    pub fn set(&mut self, owner: Owner) {
        let Owner { kind, namespace, name, selects } = owner;
        self.generation += 1;
        match (kind, selects) {
            (OwnerKind::Service, Selects::Labels(selector)) => {
                self.services.entry(namespace).or_default().set(&name, selector);
            }
            (OwnerKind::Service, _) => self.remove(kind, &namespace, &name),
            (_, selects) => {
                self.controllers.insert((kind, namespace, name), selects);
            }
        }
    }

    pub fn remove(&mut self, kind: OwnerKind, namespace: &str, name: &str) {
        self.generation += 1;
        if kind != OwnerKind::Service {
            self.controllers.remove(&(kind, namespace.to_owned(), name.to_owned()));
            return;
        }
        if let Some(services) = self.services.get_mut(namespace) {
            services.remove(name);
            if services.selectors.is_empty() {
                self.services.remove(namespace);
            }
        }
    }

    /// Forgets all objects of a kind.
    pub fn clear(&mut self, kind: OwnerKind) {
        self.generation += 1;
        match kind {
            OwnerKind::Service => self.services.clear(),
            _ => self.controllers.retain(|(known, ..), _| *known != kind),
        }
    }

    /// Changes with every change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whom the Services of a pod and its controller select, all of them. None if they select nobody in particular.
    pub fn selector(&self, pod: &PodSpec) -> Option<LabelSelector> {
        let services = self.services.get(pod.namespace.as_str());
        let mut labels = services.map(|services| services.selected(&pod.labels)).unwrap_or_default();
        let controller = pod.controller.as_ref().and_then(|(kind, name)| {
            self.controllers.get(&(*kind, pod.namespace.to_string(), name.to_string()))
        });
        let mut more = None;
        match controller {
            Some(Selects::Labels(selected)) => labels.extend(selected),
            Some(Selects::Selector(selector)) => more = Some(selector),
            Some(Selects::Nothing) | None => {}
        }
        let mut selector = LabelSelector::of_labels(&labels);
        if let Some(more) = more {
            selector.require_all(more);
        }
        if selector.is_empty() { None } else { Some(selector) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::PodInfo;

    fn owner(kind: OwnerKind, name: &str, selector: &Value) -> Owner {
        let object = json!({"metadata": {"name": name}, "spec": {"selector": selector}});
        Owner::parse(kind, &object).expect("an owner")
    }

    fn pod(labels: &Value, owner: Option<(&str, &str, &str)>) -> PodInfo {
        let owners: Vec<_> = owner
            .iter()
            .map(|(version, kind, name)| {
                json!({"apiVersion": version, "kind": kind, "name": name, "controller": true})
            })
            .collect();
        let raw = json!({"metadata": {"name": "p", "labels": labels, "ownerReferences": owners}, "spec": {}});
        PodInfo::parse(&raw).expect("a pod")
    }

    /// Whether the default selector of `pod` selects pods with these labels; None if it has none.
    #[track_caller]
    fn check(owners: &Owners, pod: &PodInfo, other: &[(&str, &str)], want: Option<bool>) {
        let labels = other.iter().copied().collect();
        assert_eq!(owners.selector(&pod.spec).map(|selector| selector.matches(&labels)), want);
    }

    #[test]
    fn all_services_of_a_pod_narrow_the_selector() {
        let mut owners = Owners::default();
        owners.set(owner(OwnerKind::Service, "web", &json!({"app": "web"})));
        owners.set(owner(OwnerKind::Service, "one", &json!({"app": "web", "ver": "1"})));
        owners.set(owner(OwnerKind::Service, "db", &json!({"app": "db"})));
        let pod = pod(&json!({"app": "web", "ver": "1"}), None);
        check(&owners, &pod, &[("app", "web"), ("ver", "1")], Some(true));
        check(&owners, &pod, &[("app", "web")], Some(false));
        owners.remove(OwnerKind::Service, "default", "one");
        check(&owners, &pod, &[("app", "web")], Some(true));
        owners.clear(OwnerKind::Service);
        check(&owners, &pod, &[], None);
    }

    #[test]
    fn a_service_without_a_selector_and_one_that_selects_everything_say_nothing() {
        let mut owners = Owners::default();
        owners.set(owner(OwnerKind::Service, "external", &Value::Null));
        owners.set(owner(OwnerKind::Service, "all", &json!({})));
        check(&owners, &pod(&json!({"app": "web"}), None), &[], None);
    }

    #[test]
    fn only_a_controller_of_the_right_version_and_name_counts() {
        let mut owners = Owners::default();
        let selector =
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "api"]}]});
        owners.set(owner(OwnerKind::ReplicaSet, "web-1", &selector));
        let labels = json!({"app": "web"});
        let owned = |version, kind, name| pod(&labels, Some((version, kind, name)));
        check(&owners, &owned("apps/v1", "ReplicaSet", "web-1"), &[("app", "api")], Some(true));
        check(&owners, &owned("apps/v1", "ReplicaSet", "web-2"), &[], None);
        check(&owners, &owned("extensions/v1beta1", "ReplicaSet", "web-1"), &[], None);
        check(&owners, &owned("apps/v1", "StatefulSet", "web-1"), &[], None);
    }

    #[test]
    fn a_replication_controller_overrides_the_labels_of_services() {
        let mut owners = Owners::default();
        owners.set(owner(OwnerKind::Service, "web", &json!({"app": "web", "ver": "1"})));
        owners.set(owner(OwnerKind::ReplicationController, "web", &json!({"ver": "2"})));
        let pod = pod(&json!({"app": "web", "ver": "1"}), Some(("v1", "ReplicationController", "web")));
        check(&owners, &pod, &[("app", "web"), ("ver", "2")], Some(true));
        check(&owners, &pod, &[("app", "web"), ("ver", "1")], Some(false));
    }
}
