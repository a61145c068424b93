//! What is applied of add-ons, what is removed, and what is said about them.
//!
//! The inventory is written before an object is, so that nothing is ever left that nobody remembers; an object that
//! has another UID than the one that is remembered is somebody else's and is not deleted.

use super::{Action, Draft, rollout};
use crate::addons::{Content, hash, item, place};
use api::Remote;
use api::provisioning::conditions::Stage;
use api::provisioning::{
    ADDON, AddonInventorySpec, AddonName, AddonStatus, DRIFT, GROUP_VERSION, InventoryItem, OWNER_UID,
    Removal,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// An add-on, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Addon {
    /// Which.
    pub name: AddonName,
    /// Its objects; `None`: it is not wanted; else why there are none.
    pub wanted: Option<Result<Content, String>>,
    /// What was applied.
    pub inventory: Option<AddonInventorySpec>,
    /// The objects of both, as they are in the cluster; absent ones are left out.
    pub live: BTreeMap<InventoryItem, Value>,
    /// Those that look different and of which the API server says that applying them would change nothing: it writes
    /// some values, such as quantities, in another way than a manifest does.
    pub unchanged: BTreeSet<InventoryItem>,
}

/// Kinds whose deletion takes more with it than themselves, or whose successor is not the same.
const GUARDED: &[&str] =
    &["CustomResourceDefinition", "Namespace", "StorageClass", "CSIDriver", "PersistentVolumeClaim"];

/// Names of objects in the management cluster.
pub(crate) fn inventory_name(cluster: &str, addon: AddonName) -> String {
    format!("{cluster}-{}", addon.as_str())
}

/// What became of one add-on in this round.
enum State {
    Applied,
    Applying(String),
    Failed(String),
    Blocked(String),
    Gone,
}

pub(super) fn plan(draft: &mut Draft<'_>) {
    let seen = draft.seen;
    if seen.workload == Remote::Absent {
        return draft.say(
            Stage::AddonsReady,
            Some(false),
            "Waiting",
            "waits for the API server of the cluster",
        );
    }
    let Remote::Present(_) = &seen.workload else {
        return draft.say(
            Stage::AddonsReady,
            None,
            "Unreachable",
            "the API server does not answer the provisioner",
        );
    };
    let mut problems: Vec<(&'static str, String)> = Vec::new();
    for addon in &seen.addons {
        let name = addon.name.as_str().to_owned();
        let (state, status) = one(draft, addon);
        match &state {
            State::Applied | State::Gone => {}
            State::Applying(what) => problems.push(("Applying", format!("{name}: {what}"))),
            State::Failed(what) => problems.push(("Failed", format!("{name}: {what}"))),
            State::Blocked(what) => problems.push(("PruneBlocked", format!("{name}: {what}"))),
        }
        match state {
            State::Gone => drop(draft.status.addons.remove(&name)),
            _there => drop(draft.status.addons.insert(name, status)),
        }
    }
    match problems.first() {
        None => draft.through(Stage::AddonsReady, "all add-ons are as declared"),
        Some((reason, _)) => {
            let all: Vec<&str> = problems.iter().map(|(_, message)| message.as_str()).collect();
            draft.say(Stage::AddonsReady, Some(false), reason, &all.join("; "));
        }
    }
}

fn one(draft: &mut Draft<'_>, addon: &Addon) -> (State, AddonStatus) {
    let old = addon.inventory.clone().unwrap_or_default();
    let told = |state: &State, version: &str, objects: usize| {
        let (word, message) = match state {
            State::Applied | State::Gone => ("Applied", None),
            State::Applying(text) => ("Applying", Some(text.clone())),
            State::Failed(text) | State::Blocked(text) => ("Failed", Some(text.clone())),
        };
        let objects = i64::try_from(objects).unwrap_or(i64::MAX);
        AddonStatus { version: version.to_owned(), objects, state: word.to_owned(), message }
    };
    let content = match &addon.wanted {
        Some(Ok(content)) => content.clone(),
        Some(Err(problem)) => {
            let state = State::Failed(problem.clone());
            let status = told(&state, &old.version, old.items.len());
            return (state, status);
        }
        None => Content { version: old.version.clone(), objects: Vec::new() },
    };
    let state = bring(draft, addon, &content, &old);
    let status = told(&state, &content.version, content.objects.len());
    (state, status)
}

fn bring(draft: &mut Draft<'_>, addon: &Addon, content: &Content, old: &AddonInventorySpec) -> State {
    let wanted: Vec<InventoryItem> = content.objects.iter().map(|object| place(&item(object))).collect();
    let surplus: Vec<&InventoryItem> =
        old.items.iter().filter(|item| !wanted.contains(&place(item))).collect();
    let known = |place_of: &InventoryItem| old.items.iter().any(|item| place(item) == *place_of);
    // Remembered before it is made.
    if wanted.iter().any(|place| !known(place)) {
        let mut items = wanted.clone();
        items.extend(surplus.iter().map(|item| (*item).clone()));
        draft.actions.push(write(draft, addon, content, (items, "")));
    }
    let mut waits = Vec::new();
    for object in &content.objects {
        bring_object(draft, addon, object, &mut waits);
    }
    let (left, blocked) = prune(draft, addon, &surplus);
    if !blocked.is_empty() {
        return State::Blocked(format!(
            "{} would take more with them; annotate the WorkloadCluster with {CONFIRM}={}",
            blocked.join(", "),
            addon.name.as_str()
        ));
    }
    if addon.wanted.is_none() && left.is_empty() {
        if addon.inventory.is_some() {
            draft.actions.push(Action::DeleteInventory(inventory_name(&draft.seen.cluster.name, addon.name)));
        }
        return State::Gone;
    }
    let mut items: Vec<InventoryItem> = wanted.iter().map(|place| with_uid(addon, place)).collect();
    items.extend(left);
    let complete = items.iter().all(|item| item.uid.is_some());
    let sum = hash(content);
    let removing = addon.wanted.is_none();
    if !removing
        && complete
        && waits.is_empty()
        && (old.items != items || old.hash != sum || old.version != content.version)
    {
        draft.actions.push(write(draft, addon, content, (items, &sum)));
    }
    match waits.into_iter().next() {
        Some(what) => State::Applying(what),
        None if removing => State::Applying("objects are being removed".to_owned()),
        None if complete => State::Applied,
        None => State::Applying("objects are being made".to_owned()),
    }
}

/// On a WorkloadCluster: add-ons, by comma, whose guarded objects may be deleted.
pub(crate) const CONFIRM: &str = "provisioning.multicluster-scheduler.io/confirm-removal";

fn with_uid(addon: &Addon, place: &InventoryItem) -> InventoryItem {
    let uid = addon.live.get(place).and_then(|live| live["metadata"]["uid"].as_str()).map(str::to_owned);
    InventoryItem { uid, ..place.clone() }
}

fn bring_object(draft: &mut Draft<'_>, addon: &Addon, object: &Value, waits: &mut Vec<String>) {
    let place = place(&item(object));
    let mark = rollout::marked(object);
    let shown = || format!("{} {}", place.kind, place.name);
    let Some(live) = addon.live.get(&place) else {
        draft.actions.push(Action::ApplyInside(mark));
        return waits.push(format!("{} is being made", shown()));
    };
    if live["metadata"]["annotations"][DRIFT] == "Ignore" {
        return;
    }
    if !rollout::contains(live, &mark) && !addon.unchanged.contains(&place) {
        // What a job runs cannot be changed; it runs again as it should.
        if place.kind == "Job" {
            draft.actions.push(Action::DeleteInside(Box::new(with_uid(addon, &place))));
        } else {
            draft.actions.push(Action::ApplyInside(mark));
        }
        return waits.push(format!("{} is being changed", shown()));
    }
    if let Some(lack) = lacking(live) {
        waits.push(format!("{} {lack}", shown()));
    }
}

/// Why a workload does not run yet.
fn lacking(live: &Value) -> Option<String> {
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let (have, want) = match live["kind"].as_str()? {
        "Deployment" => {
            (number(&live["status"]["availableReplicas"]), live["spec"]["replicas"].as_i64().unwrap_or(1))
        }
        "DaemonSet" => {
            (number(&live["status"]["numberReady"]), number(&live["status"]["desiredNumberScheduled"]))
        }
        _other => return None,
    };
    (have < want).then(|| format!("has {have} of {want} pods"))
}

/// Removes what is no longer wanted; gives what is still there and what a person must confirm.
fn prune(
    draft: &mut Draft<'_>,
    addon: &Addon,
    surplus: &[&InventoryItem],
) -> (Vec<InventoryItem>, Vec<String>) {
    if draft.seen.cluster.spec.addons.removal == Removal::Orphan {
        return (Vec::new(), Vec::new());
    }
    let confirmed = draft.seen.cluster.confirmed.iter().any(|name| name == addon.name.as_str());
    let (mut left, mut blocked) = (Vec::new(), Vec::new());
    // The last that was made goes first.
    for item in surplus.iter().rev() {
        let Some(live) = addon.live.get(&place(item)) else { continue };
        let same = item.uid.is_none() || live["metadata"]["uid"].as_str() == item.uid.as_deref();
        let ours = live["metadata"]["labels"][ADDON] == addon.name.as_str();
        if !same || !ours {
            continue;
        }
        left.push((*item).clone());
        if is_guarded(item, live) && !confirmed {
            blocked.push(format!("{} {}", item.kind, item.name));
        } else if live["metadata"]["deletionTimestamp"].is_null() {
            let uid = live["metadata"]["uid"].as_str().map(str::to_owned);
            draft.actions.push(Action::DeleteInside(Box::new(InventoryItem { uid, ..(*item).clone() })));
        }
    }
    left.reverse();
    (left, blocked)
}

/// The address of a load balancer is lost with its Service.
fn is_guarded(item: &InventoryItem, live: &Value) -> bool {
    GUARDED.contains(&item.kind.as_str())
        || (item.kind == "Service" && live["spec"]["type"] == "LoadBalancer")
}

fn write(
    draft: &Draft<'_>,
    addon: &Addon,
    content: &Content,
    (items, hash): (Vec<InventoryItem>, &str),
) -> Action {
    let cluster = &draft.seen.cluster;
    let spec = AddonInventorySpec {
        cluster: cluster.name.clone(),
        addon: addon.name.as_str().to_owned(),
        version: content.version.clone(),
        hash: hash.to_owned(),
        items,
    };
    Action::Apply(json!({
        "apiVersion": GROUP_VERSION,
        "kind": "AddonInventory",
        "metadata": {
            "name": inventory_name(&cluster.name, addon.name),
            "namespace": cluster.namespace,
            "labels": {OWNER_UID: cluster.uid},
        },
        "spec": spec,
    }))
}
