//! An API server in memory: objects as raw JSON with everything that the protocol leans on.
//!
//! UIDs, resourceVersions, preconditions, optimistic concurrency, finalizers, grace periods, the binding and
//! status subresources, dry run, generated names, selectors, and a history from which watches are served until
//! it is compacted. What Kubernetes does around it (kubelets, controllers) is elsewhere.

pub mod patch;
pub mod request;
pub mod select;

use bytes::Bytes;
use patch::Form;
use select::Selector;
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Plural name of a kind; ours and Kubernetes' do not clash.
pub type Kind = String;

/// An object as stored, and its text once somebody asked for it.
#[derive(Debug)]
pub struct Object {
    /// The whole object.
    pub value: Value,
    uid: String,
    text: OnceCell<Bytes>,
}

impl Object {
    fn new(value: Value) -> Rc<Self> {
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Rc::new(Self { value, uid, text: OnceCell::new() })
    }

    /// Its JSON.
    #[must_use]
    pub fn text(&self) -> Bytes {
        self.text.get_or_init(|| Bytes::from(self.value.to_string())).clone()
    }

    /// A string of its metadata; empty when absent.
    #[must_use]
    pub fn meta(&self, field: &str) -> &str {
        self.value["metadata"][field].as_str().unwrap_or_default()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.meta("name")
    }

    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        !self.meta("deletionTimestamp").is_empty()
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> &str {
        self.value["metadata"]["labels"][key].as_str().unwrap_or_default()
    }

    /// An annotation's value.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.value["metadata"]["annotations"][key].as_str()
    }

    /// The phase in its status.
    #[must_use]
    pub fn phase(&self) -> &str {
        self.value["status"]["phase"].as_str().unwrap_or_default()
    }

    /// The node of a pod.
    #[must_use]
    pub fn node(&self) -> &str {
        self.value["spec"]["nodeName"].as_str().unwrap_or_default()
    }

    /// Its finalizers.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.value["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    /// UID of the owner that controls it.
    #[must_use]
    pub fn controller(&self) -> Option<&str> {
        let owners = self.value["metadata"]["ownerReferences"].as_array()?;
        owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
    }
}

/// Namespace (empty for cluster-scoped objects) and name.
pub type Key = (String, String);

/// One change of one object.
#[derive(Debug, Clone)]
pub struct Change {
    /// The version that the change made.
    pub version: u64,
    /// Of which kind.
    pub kind: Kind,
    /// Before; `None` for a creation.
    pub old: Option<Rc<Object>>,
    /// After; for a deletion its last state.
    pub new: Rc<Object>,
    /// It is gone.
    pub deleted: bool,
}

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// Reason as API servers word it.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into() }
    }

    /// 422.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, "Conflict", message)
    }

    /// 404.
    #[must_use]
    pub fn not_found(kind: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{kind} {name:?} not found"))
    }

    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> Value {
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code})
    }
}

/// Options of a deletion.
#[derive(Debug, Clone, Default)]
pub struct Deletion {
    /// Seconds instead of the pod's own.
    pub grace: Option<i64>,
    /// The object must be this one.
    pub uid: Option<String>,
    /// And at this version.
    pub version: Option<String>,
}

/// The store of one cluster.
#[derive(Debug)]
pub struct Store {
    /// UID of namespace `kube-system`.
    pub uid: String,
    objects: BTreeMap<Kind, BTreeMap<Key, Rc<Object>>>,
    version: u64,
    history: Vec<Change>,
    /// Versions up to this one are forgotten.
    compacted: u64,
    made: u64,
    /// How many pods a namespace may hold, by namespace.
    pub quota: BTreeMap<String, usize>,
    /// RFC 3339, set before each request.
    pub now: String,
    /// The same in seconds.
    pub now_seconds: i64,
}

/// A state to which a store can be taken back.
#[derive(Debug, Clone)]
pub struct Backup(BTreeMap<Kind, BTreeMap<Key, Rc<Object>>>);

/// Kinds that have a status subresource, so that other writes leave the status alone.
fn has_status(kind: &str) -> bool {
    matches!(kind, "pods" | "nodes" | "podchaperons" | "targets" | "clustertargets")
}

fn is_same(expected: Option<&str>, found: &str) -> bool {
    expected.is_none_or(|expected| expected.is_empty() || expected == found)
}

impl Store {
    /// An empty cluster.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            uid: format!("{name}-cluster"),
            objects: BTreeMap::new(),
            version: 1000,
            history: Vec::new(),
            compacted: 0,
            made: 0,
            quota: BTreeMap::new(),
            now: String::new(),
            now_seconds: 0,
        }
    }

    /// The current version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All changes that are still known.
    #[must_use]
    pub fn history(&self) -> &[Change] {
        &self.history
    }

    /// The first change after a version; `None` when changes since then are forgotten.
    #[must_use]
    pub fn since(&self, version: u64) -> Option<usize> {
        if version < self.compacted || version > self.version {
            return None;
        }
        Some(self.history.partition_point(|change| change.version <= version))
    }

    /// Forgets the history: whoever resumes from before must list again. Something that nobody watches has changed
    /// meanwhile, as always.
    pub fn compact(&mut self) {
        self.version += 1;
        self.compacted = self.version;
    }

    /// A copy to go back to.
    #[must_use]
    pub fn backup(&self) -> Backup {
        Backup(self.objects.clone())
    }

    /// Goes back, as a restored etcd does: objects are as they were, and versions jump ahead.
    pub fn restore(&mut self, backup: Backup) {
        self.objects = backup.0;
        self.version += 1000;
        self.compacted = self.version;
    }

    /// The values of a label of objects that are not now as they were then.
    #[must_use]
    pub fn differing(&self, backup: &Backup, label: &str) -> BTreeSet<String> {
        let states = |objects: &BTreeMap<Kind, BTreeMap<Key, Rc<Object>>>| {
            let all = objects.values().flat_map(BTreeMap::values);
            let marked = all.filter(|object| !object.label(label).is_empty());
            marked
                .map(|object| (object.label(label).to_owned(), object.meta("resourceVersion").to_owned()))
                .collect::<BTreeSet<_>>()
        };
        let (now, then) = (states(&self.objects), states(&backup.0));
        now.symmetric_difference(&then).map(|(value, _)| value.clone()).collect()
    }

    /// One object.
    #[must_use]
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Rc<Object>> {
        self.objects.get(kind)?.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// All objects of a kind.
    pub fn all(&self, kind: &str) -> impl Iterator<Item = &Rc<Object>> {
        self.objects.get(kind).into_iter().flat_map(BTreeMap::values)
    }

    /// Those of them that are asked for.
    #[must_use]
    pub fn list(&self, kind: &str, selector: &Selector) -> Vec<Rc<Object>> {
        self.all(kind).filter(|object| selector.matches(&object.value)).cloned().collect()
    }

    /// A pod by its UID.
    #[must_use]
    pub fn pod(&self, uid: &str) -> Option<&Rc<Object>> {
        self.all("pods").find(|pod| pod.uid() == uid)
    }

    fn record(&mut self, kind: &str, old: Option<Rc<Object>>, new: Rc<Object>, deleted: bool) {
        self.history.push(Change { version: self.version, kind: kind.to_owned(), old, new, deleted });
    }

    fn key_of(value: &Value) -> Key {
        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
        (text("namespace"), text("name"))
    }

    fn put(&mut self, kind: &str, mut value: Value) -> Rc<Object> {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Object::new(value);
        let key = Self::key_of(&object.value);
        let old = self.objects.entry(kind.to_owned()).or_default().insert(key, Rc::clone(&object));
        self.record(kind, old, Rc::clone(&object), false);
        object
    }

    fn remove(&mut self, kind: &str, object: &Rc<Object>, mut last: Value) -> Rc<Object> {
        self.version += 1;
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let key = Self::key_of(&object.value);
        if let Some(all) = self.objects.get_mut(kind) {
            all.remove(&key);
        }
        let last = Object::new(last);
        self.record(kind, Some(Rc::clone(object)), Rc::clone(&last), true);
        last
    }

    /// Creates an object, or only says what would be created.
    ///
    /// # Errors
    ///
    /// It exists, its namespace does not, or a quota is exhausted.
    pub fn create(&mut self, kind: &str, mut value: Value, dry_run: bool) -> Result<Rc<Object>, Refusal> {
        self.made += 1;
        if value["metadata"]["name"].as_str().unwrap_or_default().is_empty() {
            let stem = value["metadata"]["generateName"].as_str().unwrap_or_default();
            value["metadata"]["name"] = json!(format!("{stem}{:05x}", self.made));
        }
        let key = Self::key_of(&value);
        let (namespace, name) = (key.0.clone(), key.1.clone());
        if !namespace.is_empty() && self.get("namespaces", "", &namespace).is_none() {
            return Err(Refusal::not_found("namespaces", &namespace));
        }
        if self.objects.get(kind).is_some_and(|all| all.contains_key(&key)) && !dry_run {
            return Err(Refusal::new(409, "AlreadyExists", format!("{kind} {name:?} already exists")));
        }
        if kind == "pods" {
            self.check_quota(&namespace, &name)?;
            fill_in(&mut value);
        } else if has_status(kind)
            && let Some(fields) = value.as_object_mut()
        {
            fields.remove("status");
        }
        if !value["metadata"]["uid"].is_string() {
            value["metadata"]["uid"] = json!(format!("{}-{}-{}", self.uid, kind, self.made));
        }
        value["metadata"]["creationTimestamp"] = json!(self.now);
        value["metadata"]["generation"] = json!(1);
        if dry_run {
            return Ok(Object::new(value));
        }
        Ok(self.put(kind, value))
    }

    fn check_quota(&self, namespace: &str, name: &str) -> Result<(), Refusal> {
        let Some(limit) = self.quota.get(namespace) else { return Ok(()) };
        let counts = |pod: &&Rc<Object>| {
            pod.meta("namespace") == namespace && !matches!(pod.phase(), "Succeeded" | "Failed")
        };
        if self.all("pods").filter(counts).count() < *limit {
            return Ok(());
        }
        let message = format!("pods {name:?} is forbidden: exceeded quota: q, limited: pods={limit}");
        Err(Refusal::new(403, "Forbidden", message))
    }

    /// Patches an object or its status.
    ///
    /// # Errors
    ///
    /// It is gone, a precondition failed, or the change is not allowed.
    pub fn patch(
        &mut self,
        kind: &str,
        key: &Key,
        body: (&Value, Form),
        status: bool,
    ) -> Result<Rc<Object>, Refusal> {
        let Some(old) = self.get(kind, &key.0, &key.1).cloned() else {
            if body.1 == Form::Apply && !status {
                return self.create(kind, body.0.clone(), false);
            }
            return Err(Refusal::not_found(kind, &key.1));
        };
        if body.1 != Form::Json {
            check(&old, body.0["metadata"]["uid"].as_str(), body.0["metadata"]["resourceVersion"].as_str())?;
        }
        let mut new = patch::patched(&old.value, body.0, body.1)?;
        for fixed in ["uid", "resourceVersion", "name", "namespace", "creationTimestamp", "deletionTimestamp"]
        {
            keep(&mut new["metadata"], &old.value["metadata"], fixed);
        }
        if status {
            keep(&mut new, &old.value, "spec");
            if kind != "pods" {
                keep(&mut new, &old.value, "metadata");
            }
        } else if has_status(kind) {
            keep(&mut new, &old.value, "status");
        }
        self.update(kind, &old, new)
    }

    /// Stores a new state of an object, with all that follows from it.
    ///
    /// # Errors
    ///
    /// A finalizer was added to what is being deleted.
    pub fn update(&mut self, kind: &str, old: &Rc<Object>, new: Value) -> Result<Rc<Object>, Refusal> {
        if new == old.value {
            return Ok(Rc::clone(old));
        }
        let finalizers =
            |value: &Value| value["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let (before, after) = (finalizers(&old.value), finalizers(&new));
        if old.is_terminating() {
            if after.iter().any(|finalizer| !before.contains(finalizer)) {
                let message = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted";
                return Err(Refusal::invalid(message));
            }
            let grace = new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            if after.is_empty() && grace == 0 {
                // The answer shows the object as it was changed, under the version from before.
                self.remove(kind, old, new.clone());
                return Ok(Object::new(new));
            }
        }
        Ok(self.put(kind, new))
    }

    /// Changes an object in place, for those who act on the store directly.
    pub fn edit(&mut self, kind: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) -> bool {
        let Some(old) = self.get(kind, namespace, name).cloned() else { return false };
        let mut new = old.value.clone();
        change(&mut new);
        self.update(kind, &old, new).is_ok()
    }

    /// Binds a pod to a node.
    ///
    /// # Errors
    ///
    /// It is gone, bound or being deleted, or a precondition failed.
    pub fn bind(&mut self, key: &Key, binding: &Value) -> Result<(), Refusal> {
        let Some(old) = self.get("pods", &key.0, &key.1).cloned() else {
            return Err(Refusal::not_found("pods", &key.1));
        };
        let metadata = &binding["metadata"];
        check(&old, metadata["uid"].as_str(), metadata["resourceVersion"].as_str())?;
        if old.is_terminating() {
            return Err(Refusal::conflict("pod is being deleted, cannot be assigned to a host"));
        }
        if !old.node().is_empty() {
            return Err(Refusal::conflict(format!("pod is already assigned to node {:?}", old.node())));
        }
        if old.value["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            return Err(Refusal::conflict("pod has non-empty .spec.schedulingGates"));
        }
        let mut new = old.value.clone();
        new["spec"]["nodeName"] = binding["target"]["name"].clone();
        for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
            new["metadata"]["annotations"][key] = value.clone();
        }
        let scheduled = json!({"status": {"conditions": [{"type": "PodScheduled", "status": "True",
            "reason": null, "message": null, "lastTransitionTime": self.now}]}});
        new = patch::patched(&new, &scheduled, Form::Strategic)?;
        self.put("pods", new);
        Ok(())
    }

    /// Deletes an object; `None` when it is gone at once.
    ///
    /// # Errors
    ///
    /// It is gone already, or a precondition failed.
    pub fn delete(
        &mut self,
        kind: &str,
        key: &Key,
        options: &Deletion,
    ) -> Result<Option<Rc<Object>>, Refusal> {
        let Some(old) = self.get(kind, &key.0, &key.1).cloned() else {
            return Err(Refusal::not_found(kind, &key.1));
        };
        check(&old, options.uid.as_deref(), options.version.as_deref())?;
        let grace = if kind == "pods" { self.grace(&old, options) } else { 0 };
        let held = old.finalizers().next().is_some();
        if grace == 0 && !held {
            self.remove(kind, &old, old.value.clone());
            return Ok(None);
        }
        let current = old.value["metadata"]["deletionGracePeriodSeconds"].as_i64();
        if old.is_terminating() && (kind != "pods" || current.is_some_and(|current| grace >= current)) {
            return Ok(Some(old));
        }
        let mut new = old.value.clone();
        let deadline =
            k8s_openapi::jiff::Timestamp::from_second(self.now_seconds + grace).unwrap_or_default();
        new["metadata"]["deletionTimestamp"] = json!(deadline.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        new["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        Ok(Some(self.put(kind, new)))
    }

    /// What a pod is granted: none if no kubelet has to stop it.
    fn grace(&self, pod: &Object, options: &Deletion) -> i64 {
        let own = pod.value["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        if pod.node().is_empty() || matches!(pod.phase(), "Succeeded" | "Failed") {
            return 0;
        }
        options.grace.unwrap_or(own)
    }
}

fn check(object: &Object, uid: Option<&str>, version: Option<&str>) -> Result<(), Refusal> {
    if !is_same(uid, object.uid()) {
        return Err(Refusal::conflict("Precondition failed: UID in precondition and in object differ"));
    }
    if !is_same(version, object.meta("resourceVersion")) {
        return Err(Refusal::conflict(
            "the object has been modified; please apply your changes to the latest",
        ));
    }
    Ok(())
}

/// Takes a field over from the old state, its absence included.
fn keep(new: &mut Value, old: &Value, field: &str) {
    let Some(fields) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

/// Defaults of a new pod.
fn fill_in(pod: &mut Value) {
    let spec = &mut pod["spec"];
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("schedulerName", json!("default-scheduler")),
    ] {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
    let high = spec["priorityClassName"] == "high";
    spec["priority"] = json!(if high { 100 } else { 0 });
    spec["preemptionPolicy"] = json!("PreemptLowerPriority");
    pod["status"] = json!({"phase": "Pending", "qosClass": "Burstable"});
}

#[cfg(test)]
mod tests;
