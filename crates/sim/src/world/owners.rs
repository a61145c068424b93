//! Who creates pods, and creates them again: ReplicaSets, StatefulSets, Jobs and users.

use super::kubelets::{is_over, pod};
use super::{NAMESPACE, World};
use crate::cluster::{Deletion, Object};
use crate::plan::{Owner, Plan, Workload};
use crate::recorder::Rule;
use crate::wire::ClusterId;
use api::keys;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::rc::Rc;
use webhook::mutate::{Setting, mutate};
use webhook::review::{Request, Resource, User, Verdict};

/// One owner and what it has done so far.
struct Controller {
    workload: Workload,
    wanted: u64,
    made: u64,
    /// UIDs of pods of a Job that have succeeded.
    succeeded: BTreeSet<String>,
    begun: bool,
}

/// All of them.
pub(super) struct Owners(Vec<Controller>);

impl Owners {
    pub(super) fn new(plan: &Plan) -> Self {
        let controller = |workload: &Workload| Controller {
            workload: workload.clone(),
            wanted: workload.pods,
            made: 0,
            succeeded: BTreeSet::new(),
            begun: false,
        };
        Self(plan.workloads.iter().map(controller).collect())
    }
}

impl World {
    /// Owners look at their pods and put right what is not as they want it.
    pub(super) fn owners_look(&mut self) {
        let now = self.now();
        let mut owners = std::mem::replace(&mut self.owners, Owners(Vec::new()));
        for owner in owners.0.iter_mut().filter(|owner| owner.workload.at <= now) {
            let source = owner.workload.source;
            if !self.cluster(source).serves() {
                continue;
            }
            let mine: Vec<Rc<Object>> = self
                .cluster(source)
                .pods()
                .into_iter()
                .filter(|pod| pod.label("app") == owner.workload.name)
                .collect();
            match owner.workload.owner {
                Owner::ReplicaSet => self.replica_set(owner, &mine),
                Owner::StatefulSet => self.stateful_set(owner, &mine),
                Owner::Job => self.job(owner, &mine),
                Owner::Nobody => {
                    let first = !std::mem::replace(&mut owner.begun, true);
                    for index in 0..if first { owner.wanted } else { 0 } {
                        self.create(owner, &format!("{}-{index}", owner.workload.name), "");
                    }
                }
            }
        }
        self.owners = owners;
    }

    fn replica_set(&mut self, owner: &mut Controller, mine: &[Rc<Object>]) {
        let active: Vec<&Rc<Object>> =
            mine.iter().filter(|pod| !pod.is_terminating() && !is_over(pod)).collect();
        let count = u64::try_from(active.len()).unwrap_or(u64::MAX);
        for _ in count..owner.wanted {
            owner.made += 1;
            let name = format!("{}-{:04}", owner.workload.name, owner.made);
            self.create(owner, &name, "");
        }
        let surplus = usize::try_from(count.saturating_sub(owner.wanted)).unwrap_or_default();
        for pod in active.iter().rev().take(surplus) {
            self.user_deletes(owner.workload.source, pod, None);
        }
        // As the collector of terminated pods does, only sooner.
        for pod in mine.iter().filter(|pod| is_over(pod) && !pod.is_terminating()) {
            self.user_deletes(owner.workload.source, pod, None);
        }
    }

    fn stateful_set(&mut self, owner: &mut Controller, mine: &[Rc<Object>]) {
        for index in 0..owner.workload.pods {
            let name = format!("{}-{index}", owner.workload.name);
            let found = mine.iter().find(|pod| pod.name() == name);
            match found {
                Some(pod) if is_over(pod) && !pod.is_terminating() => {
                    self.user_deletes(owner.workload.source, pod, None);
                }
                Some(pod) if index >= owner.wanted && !pod.is_terminating() => {
                    self.user_deletes(owner.workload.source, pod, None);
                }
                None if index < owner.wanted => self.create(owner, &name, &name),
                Some(_) | None => {}
            }
        }
    }

    fn job(&mut self, owner: &mut Controller, mine: &[Rc<Object>]) {
        for pod in mine.iter().filter(|pod| pod.phase() == "Succeeded") {
            owner.succeeded.insert(pod.uid().to_owned());
        }
        let done = u64::try_from(owner.succeeded.len()).unwrap_or(u64::MAX);
        let active = mine.iter().filter(|pod| !is_over(pod) && !pod.is_terminating()).count();
        let active = u64::try_from(active).unwrap_or(u64::MAX);
        for _ in (done + active)..owner.workload.pods {
            owner.made += 1;
            let name = format!("{}-{:04}", owner.workload.name, owner.made);
            self.create(owner, &name, "");
        }
        for pod in mine.iter().filter(|pod| pod.phase() == "Failed" && !pod.is_terminating()) {
            self.user_deletes(owner.workload.source, pod, None);
        }
    }

    /// Creates a pod, which the webhook turns into a proxy pod.
    fn create(&mut self, owner: &Controller, name: &str, identity: &str) {
        let Workload { source, cpu, policy, ask, seconds, grace, .. } = owner.workload.clone();
        let failing = owner.workload.owner == Owner::Job && self.rng.u64(..8) == 0;
        let mut annotations = json!({keys::ELECT: "", "sim/seconds": seconds.to_string(), "sim/policy": policy,
            "sim/code": if failing { "1" } else { "0" }});
        if !identity.is_empty() {
            annotations["sim/identity"] = json!(format!("{source}/{identity}"));
        }
        if !ask.is_empty() {
            annotations[keys::ASK] = json!(ask);
        }
        let Workload { high, direct, deadline, .. } = owner.workload;
        if let Some((least, together)) = owner.workload.gang {
            annotations[keys::GROUP] = json!(owner.workload.name);
            annotations[keys::GROUP_MIN_MEMBER] = json!(least.to_string());
            annotations[keys::GROUP_PLACEMENT] =
                json!(if together { keys::GROUP_ONE_TARGET } else { keys::GROUP_ANY_TARGET });
        }
        if direct {
            annotations[keys::NO_RESERVATION] = json!("");
        }
        if let Some(seconds) = deadline {
            annotations[keys::START_DEADLINE] = json!(format!("{seconds}s"));
        }
        let mut spec = json!({"restartPolicy": policy, "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": "1Mi"}}}]});
        if high {
            spec["priorityClassName"] = json!("high");
        }
        let mut value = pod(name, &json!({"app": owner.workload.name}), &annotations, &spec);
        if owner.workload.owner != Owner::Nobody {
            let kind = format!("{:?}", owner.workload.owner);
            value["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": kind,
                "name": owner.workload.name, "uid": format!("owner-{}", owner.workload.name), "controller": true}]);
        }
        let value = match self.admitted(&value) {
            Ok(value) => value,
            Err(why) => {
                let at = self.now();
                return self.recorder.report(
                    Rule::Progress,
                    at,
                    format!("the webhook refuses {name}: {why}"),
                );
            }
        };
        let made = self.store(source).create("pods", value, false);
        let uid = made.map(|pod| pod.uid().to_owned()).unwrap_or_default();
        self.tell(|| format!("c{source} pod {name} {uid} is created"));
    }

    /// What the webhook makes of a pod.
    fn admitted(&self, value: &Value) -> Result<Value, String> {
        let text = value.to_string();
        let raw = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let request = Request {
            uid: String::new(),
            operation: "CREATE".to_owned(),
            resource: Resource { group: String::new(), resource: "pods".to_owned() },
            sub_resource: String::new(),
            namespace: NAMESPACE.to_owned(),
            name: String::new(),
            user_info: User { username: "owner".to_owned() },
            object: Some(raw),
            old_object: None,
        };
        let now = u64::try_from(self.wall().as_second()).unwrap_or_default();
        let setting = Setting { key: &self.webhook, own_namespace: super::OURS, now };
        match mutate(&request, &setting) {
            Verdict::Allowed { patch, .. } => {
                let operations: json_patch::Patch =
                    serde_json::from_value(Value::Array(patch)).map_err(|error| error.to_string())?;
                let mut value = value.clone();
                json_patch::patch(&mut value, &operations).map_err(|error| error.to_string())?;
                if self.options.bug == Some(crate::bugs::Bug::NoFinalizerOnProxy) {
                    value["metadata"]["finalizers"] = json!(null);
                }
                Ok(value)
            }
            Verdict::Denied { message, .. } => Err(message),
        }
    }

    /// Somebody who may deletes a pod.
    pub(super) fn user_deletes(&mut self, source: ClusterId, pod: &Rc<Object>, grace: Option<i64>) {
        self.recorder.excuse(pod.uid());
        let options = Deletion { grace, uid: Some(pod.uid().to_owned()), version: None };
        let key = (pod.meta("namespace").to_owned(), pod.name().to_owned());
        let left = self.store(source).delete("pods", &key, &options);
        let name = pod.name().to_owned();
        self.tell(|| {
            format!("c{source} pod {name} is deleted ({})", if left.is_ok() { "ok" } else { "refused" })
        });
    }

    /// Changes how many pods an owner wants.
    pub(super) fn scale(&mut self, pick: u64) {
        let index = self.pick(pick, self.owners.0.len());
        let Some(owner) = self.owners.0.get_mut(index) else { return };
        if matches!(owner.workload.owner, Owner::ReplicaSet | Owner::StatefulSet) {
            owner.wanted = (pick / 7) % (owner.workload.pods + 1);
        }
    }

    /// Back to what was wanted at first.
    pub(super) fn unscale(&mut self) {
        for owner in &mut self.owners.0 {
            owner.wanted = owner.workload.pods;
        }
    }
}
