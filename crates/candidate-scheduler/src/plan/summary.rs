//! What the cluster offers, for the virtual nodes that stand for it elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use api::{ClusterSummary, keys};
use scheduling::resources::add_list;
use scheduling::{Node, ResourceList, Snapshot};
use serde_json::{Map, Value, json};

use crate::plan::{Action, Model, Outcome};

/// The summary is written at most once in this time.
const PAUSE_MS: u64 = 1000;
/// After a failed write it waits longer.
const FAILED_PAUSE_MS: u64 = 5000;

/// What is published, and what is known of it.
#[derive(Debug, Default)]
pub(super) struct Publication {
    /// What the cluster holds; None until the watch has said so.
    standing: Option<Standing>,
    /// The state that is being written.
    writing: Option<ClusterSummary>,
    /// Something changed since it was last computed.
    dirty: bool,
    /// Not before this time.
    next: u64,
}

#[derive(Debug)]
enum Standing {
    Absent,
    Present(Box<ClusterSummary>),
}

impl Publication {
    /// The nodes, or what is placed on them, may be other than before.
    pub(super) fn touch(&mut self) {
        self.dirty = true;
    }

    pub(super) fn seen(&mut self, summary: Option<Box<ClusterSummary>>) {
        self.standing = Some(summary.map_or(Standing::Absent, Standing::Present));
        self.dirty = true;
    }

    pub(super) fn ended(&mut self, outcome: &Outcome, now: u64) {
        let Some(written) = self.writing.take() else { return };
        match outcome {
            Outcome::Done { .. } => self.standing = Some(Standing::Present(Box::new(written))),
            Outcome::NotFound => {
                self.standing = Some(Standing::Absent);
                self.dirty = true;
            }
            Outcome::Admitted(_) | Outcome::Unknown | Outcome::Conflict | Outcome::Denied(_) => {
                self.dirty = true;
                self.next = now + FAILED_PAUSE_MS;
            }
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<u64> {
        (self.dirty && self.writing.is_none() && self.standing.is_some()).then_some(self.next)
    }

    /// The write that brings the cluster in line with `wanted`, if one is due and needed.
    fn write(&mut self, wanted: ClusterSummary, now: u64) -> Option<Action> {
        self.dirty = false;
        let action = match self.standing.as_ref()? {
            Standing::Absent => Action::CreateSummary(serde_json::to_value(&wanted).ok()?),
            Standing::Present(standing) => Action::PatchSummary(difference(standing, &wanted)?),
        };
        self.writing = Some(wanted);
        self.next = now + PAUSE_MS;
        Some(action)
    }
}

impl Model {
    /// Publishes what has changed, not too often.
    pub(super) fn publish(&mut self, now: u64) {
        if !self.recalling.is_empty() || self.publication.next_wakeup().is_none_or(|due| due > now) {
            return;
        }
        let wanted = summary(&self.snapshot, &self.settings.cluster_uid, &self.settings.release_namespace);
        self.actions.extend(self.publication.write(wanted, now));
    }
}

/// Sums over the nodes that ordinary pods can be placed on.
pub(super) fn summary(snapshot: &Snapshot, cluster_uid: &str, release_namespace: &str) -> ClusterSummary {
    let counted: Vec<_> = snapshot.nodes().filter(|node| counts(node)).collect();
    let sum = |amounts: &dyn Fn(&Node) -> ResourceList| {
        let mut sum = ResourceList::new();
        for node in &counted {
            add_list(&mut sum, &amounts(node));
        }
        sum.into_iter().map(|(name, amount)| (name, amount.to_string())).collect::<BTreeMap<_, _>>()
    };
    let mut summary = ClusterSummary {
        capacity: sum(&|node| (*node.info.capacity).clone()),
        allocatable: sum(&|node| (*node.info.allocatable).clone()),
        free: sum(&Node::free),
        ..ClusterSummary::default()
    };
    summary.metadata.name = Some(keys::SINGLETON.to_owned());
    summary.metadata.labels = Some(common_labels(&counted));
    summary.metadata.annotations = Some(BTreeMap::from([
        (keys::CLUSTER_UID.to_owned(), cluster_uid.to_owned()),
        (keys::PROTOCOL.to_owned(), keys::PROTOCOL_VERSION.to_owned()),
        (keys::RELEASE_NAMESPACE.to_owned(), release_namespace.to_owned()),
        (keys::DECLARED_FEATURES.to_owned(), common_features(&counted)),
    ]));
    summary
}

/// The features that all nodes declare, separated by commas.
fn common_features(nodes: &[&Node]) -> String {
    let sets =
        nodes.iter().map(|node| node.info.features.iter().map(String::as_str).collect::<BTreeSet<_>>());
    let common = sets.reduce(|common, own| common.intersection(&own).copied().collect());
    common.unwrap_or_default().into_iter().collect::<Vec<_>>().join(",")
}

fn counts(node: &Node) -> bool {
    node.info.ready && !node.info.unschedulable && !node.info.is_control_plane()
}

/// Labels with one value among the nodes that carry them, but for those that name a node or its role.
fn common_labels(nodes: &[&Node]) -> BTreeMap<String, String> {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut naming = BTreeSet::new();
    for node in nodes {
        for (key, value) in &node.info.labels {
            values.entry(key).or_default().insert(value);
            if *value == *node.info.name {
                naming.insert(key);
            }
        }
    }
    let of_one_node = |key: &str| {
        naming.contains(key)
            || key == "hostname"
            || key.ends_with("/hostname")
            || key.starts_with("node-role.kubernetes.io/")
            || key == "kubernetes.io/role"
            || key == keys::PROVIDER
            || keys::is_ours(key)
    };
    values
        .into_iter()
        .filter(|(key, values)| values.len() == 1 && !of_one_node(key))
        .filter_map(|(key, values)| Some((key.to_owned(), (*values.first()?).to_owned())))
        .collect()
}

/// The merge patch from one summary to another; None if there is nothing to change. Annotations of others stay.
fn difference(old: &ClusterSummary, new: &ClusterSummary) -> Option<Value> {
    let empty = BTreeMap::new();
    let (old_labels, new_labels) = (&old.metadata.labels, &new.metadata.labels);
    let labels = changed(old_labels.as_ref().unwrap_or(&empty), new_labels.as_ref().unwrap_or(&empty), true);
    let (old_notes, new_notes) = (&old.metadata.annotations, &new.metadata.annotations);
    let notes = changed(old_notes.as_ref().unwrap_or(&empty), new_notes.as_ref().unwrap_or(&empty), false);
    let mut patch = Map::new();
    let mut metadata = Map::new();
    for (key, changes) in [("labels", labels), ("annotations", notes)] {
        if !changes.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(changes));
        }
    }
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(metadata));
    }
    for (key, old, new) in [
        ("capacity", &old.capacity, &new.capacity),
        ("allocatable", &old.allocatable, &new.allocatable),
        ("free", &old.free, &new.free),
    ] {
        let changes = changed(old, new, true);
        if !changes.is_empty() {
            patch.insert(key.to_owned(), Value::Object(changes));
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn changed(
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
    remove: bool,
) -> Map<String, Value> {
    let mut changes = Map::new();
    for (key, value) in new.iter().filter(|(key, value)| old.get(*key) != Some(*value)) {
        changes.insert(key.clone(), json!(value));
    }
    for key in old.keys().filter(|key| remove && !new.contains_key(*key)) {
        changes.insert(key.clone(), Value::Null);
    }
    changes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use scheduling::{NodeInfo, PodInfo};

    use super::*;

    fn node(name: &str, mut labels: Value, mut spec: Value, ready: bool) -> NodeInfo {
        let ready = if ready { "True" } else { "False" };
        NodeInfo::parse(&json!({
            "metadata": {"name": name, "labels": labels.take()}, "spec": spec.take(),
            "status": {
                "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"},
                "allocatable": {"cpu": "3500m", "memory": "7Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }))
        .expect("a node")
    }

    fn of(nodes: Vec<NodeInfo>) -> ClusterSummary {
        let mut snapshot = Snapshot::default();
        for node in nodes {
            snapshot.set_node(node);
        }
        summary(&snapshot, "u", "r")
    }

    fn plain(name: &str) -> NodeInfo {
        node(name, json!({}), json!({}), true)
    }

    #[test]
    fn amounts_are_summed_and_free_is_what_pods_leave() {
        let mut snapshot = Snapshot::default();
        snapshot.set_node(plain("n1"));
        snapshot.set_node(plain("n2"));
        let pod = json!({"metadata": {"uid": "p"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "250m"}}}]}});
        snapshot.assume(Arc::new(PodInfo::parse(&pod).expect("a pod")), &Arc::from("n1"));
        let summary = summary(&snapshot, "u", "r");
        assert_eq!(summary.capacity["cpu"], "8");
        assert_eq!(summary.allocatable["cpu"], "7");
        assert_eq!(summary.allocatable["memory"], "14Gi");
        assert_eq!(summary.free["cpu"], "6750m");
        assert_eq!(summary.free["pods"], "19");
    }

    #[test]
    fn w39_cordoned_unready_and_control_plane_nodes_do_not_count() {
        let taint = json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
        let summary = of(vec![
            plain("n1"),
            node("n2", json!({}), json!({"unschedulable": true}), true),
            node("n3", json!({}), json!({}), false),
            node("n4", json!({}), json!({"taints": taint}), true),
        ]);
        assert_eq!(summary.capacity["cpu"], "4");
        assert_eq!(of(vec![]).capacity, BTreeMap::new());
    }

    #[test]
    fn w39_labels_that_nodes_agree_on_are_published_and_those_of_a_single_node_are_not() {
        let labels = |name: &str, zone: &str| {
            json!({
                "kubernetes.io/hostname": name, "example.com/host": name, "zone": zone, "region": "eu",
                "node-role.kubernetes.io/worker": "", "virtual-kubelet.io/provider": "other",
            })
        };
        let summary = of(vec![
            node("n1", labels("n1", "a"), json!({}), true),
            node("n2", labels("n2", "b"), json!({}), true),
            node("n3", json!({"gpu": "yes"}), json!({}), true),
        ]);
        let want =
            BTreeMap::from([("gpu".to_owned(), "yes".to_owned()), ("region".to_owned(), "eu".to_owned())]);
        assert_eq!(summary.metadata.labels, Some(want));
    }

    #[test]
    fn identity_and_protocol_ride_along() {
        let notes = of(vec![]).metadata.annotations.expect("annotations");
        assert_eq!((notes[keys::CLUSTER_UID].as_str(), notes[keys::PROTOCOL].as_str()), ("u", "1"));
        assert_eq!(notes[keys::RELEASE_NAMESPACE], "r");
    }

    #[test]
    fn features_that_all_nodes_declare_are_published() {
        let declaring = |name: &str, features: &[&str]| {
            NodeInfo::parse(&json!({
                "metadata": {"name": name},
                "status": {"declaredFeatures": features, "conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .expect("a node")
        };
        let published =
            |nodes| of(nodes).metadata.annotations.expect("annotations")[keys::DECLARED_FEATURES].clone();
        assert_eq!(published(vec![declaring("n1", &["B", "A", "C"]), declaring("n2", &["C", "B"])]), "B,C");
        assert_eq!(published(vec![declaring("n1", &["A"]), plain("n2")]), "");
        assert_eq!(published(vec![]), "");
    }

    #[test]
    fn only_what_changed_is_written_and_what_vanished_is_removed() {
        let old = of(vec![node("n1", json!({"a": "1", "b": "2"}), json!({}), true)]);
        let new = of(vec![node("n1", json!({"a": "1"}), json!({}), true), plain("n2")]);
        assert_eq!(difference(&old, &old), None);
        let patch = difference(&old, &new).expect("a patch");
        assert_eq!(patch["metadata"], json!({"labels": {"b": null}}));
        assert_eq!(patch["capacity"], json!({"cpu": "8", "memory": "16Gi", "pods": "20"}));
        let none = difference(&new, &of(vec![])).expect("a patch");
        assert_eq!(none["free"], json!({"cpu": null, "memory": null, "pods": null}));
    }

    #[test]
    fn writes_are_a_second_apart_and_a_summary_that_stands_is_not_written() {
        let mut publication = Publication::default();
        publication.touch();
        assert_eq!(publication.next_wakeup(), None);
        publication.seen(None);
        assert_eq!(publication.next_wakeup(), Some(0));
        let wanted = of(vec![plain("n1")]);
        assert!(matches!(publication.write(wanted.clone(), 50), Some(Action::CreateSummary(_))));
        publication.touch();
        assert_eq!(publication.next_wakeup(), None);
        publication.ended(&Outcome::Done { version: None }, 60);
        assert_eq!(publication.next_wakeup(), Some(1050));
        assert_eq!(publication.write(wanted, 1050), None);
        assert_eq!(publication.next_wakeup(), None);
    }

    #[test]
    fn a_summary_that_somebody_deleted_is_created_again() {
        let mut publication = Publication::default();
        let wanted = of(vec![plain("n1")]);
        publication.seen(Some(Box::new(of(vec![]))));
        assert!(matches!(publication.write(wanted.clone(), 0), Some(Action::PatchSummary(_))));
        publication.ended(&Outcome::NotFound, 10);
        assert_eq!(publication.next_wakeup(), Some(1000));
        assert!(matches!(publication.write(wanted, 1000), Some(Action::CreateSummary(_))));
    }
}
