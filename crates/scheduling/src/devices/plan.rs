//! What must be written into claims before a pod can be bound.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::devices::allocation::Allocation;
use crate::devices::claim::{FINALIZER, ResourceClaim};

/// What a pod needs of one claim.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimWork {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
    /// None: the claim has its devices already.
    pub allocation: Option<Arc<Allocation>>,
}

/// What a pod needs of its claims on the node that was chosen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClaimPlan {
    pub work: Vec<ClaimWork>,
}

/// The next thing to do for a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Merge-patch the claim: add the finalizer.
    Protect(Value),
    /// Merge-patch the claim's status: its devices, and the pod that may use them.
    Reserve(Value),
    /// All is written.
    Done,
}

impl ClaimPlan {
    /// Devices that are promised until they are written, by the UID of their claim.
    pub fn promises(&self) -> Vec<(Arc<str>, Arc<Allocation>)> {
        let promise = |work: &ClaimWork| Some((Arc::clone(&work.uid), Arc::clone(work.allocation.as_ref()?)));
        self.work.iter().filter_map(promise).collect()
    }
}

impl ClaimWork {
    pub(crate) fn new(claim: &ResourceClaim, allocation: Option<Allocation>) -> Self {
        Self {
            namespace: Arc::clone(&claim.namespace),
            name: Arc::clone(&claim.name),
            uid: Arc::clone(&claim.uid),
            allocation: allocation.map(Arc::new),
        }
    }

    /// The claim as if it had the devices that it was to get.
    pub fn allocated(&self, claim: &ResourceClaim) -> Option<Arc<ResourceClaim>> {
        let allocation = self.allocation.clone();
        allocation.map(|allocation| Arc::new(ResourceClaim { allocation: Some(allocation), ..claim.clone() }))
    }

    /// What is to be written next, given the claim as it was just read, for the pod of this name and UID. Every patch
    /// names the version that it is for. `now` is the time of the allocation, as text.
    ///
    /// # Errors
    /// In upstream's words, when the claim is no longer the one that the plan was made for.
    pub fn step(&self, claim: &Value, pod: (&str, &str), now: &str) -> Result<Step, String> {
        let key = format!("{}/{}", self.namespace, self.name);
        let metadata = &claim["metadata"];
        if metadata["uid"].as_str() != Some(&*self.uid) || !metadata["deletionTimestamp"].is_null() {
            return Err(format!("claim {key} got deleted in the meantime"));
        }
        let (name, uid) = pod;
        let version = json!({"uid": &*self.uid, "resourceVersion": metadata["resourceVersion"]});
        let status = &claim["status"];
        let mut consumers = status["reservedFor"].as_array().cloned().unwrap_or_default();
        let reserved = consumers.iter().any(|consumer| consumer["uid"] == *uid);
        let allocated = status["allocation"].is_object();
        match &self.allocation {
            // What a write of ours did whose answer was lost.
            Some(allocation) if allocated && reserved && same(&status["allocation"], &allocation.raw) => {
                return Ok(Step::Done);
            }
            Some(_) if allocated => {
                return Err(format!("claim {key} got allocated elsewhere in the meantime"));
            }
            Some(_) => {
                let mut finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
                if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
                    finalizers.push(json!(FINALIZER));
                    let mut metadata = version;
                    metadata["finalizers"] = json!(finalizers);
                    return Ok(Step::Protect(json!({"metadata": metadata})));
                }
            }
            None if !allocated => {
                return Err(format!("claim {key} got deallocated elsewhere in the meantime"));
            }
            None if reserved => return Ok(Step::Done),
            None => {}
        }
        consumers.push(json!({"resource": "pods", "name": name, "uid": uid}));
        let mut patch = json!({"metadata": version, "status": {"reservedFor": consumers}});
        if let Some(allocation) = &self.allocation {
            patch["status"]["allocation"] = allocation.raw.clone();
        }
        if status["allocation"]["allocationTimestamp"].is_null() {
            patch["status"]["allocation"]["allocationTimestamp"] = json!(now);
        }
        Ok(Step::Reserve(patch))
    }
}

/// Is what stands there what we would write, but for what the API server adds?
fn same(stands: &Value, ours: &Value) -> bool {
    let results = |allocation: &Value| {
        let results = allocation["devices"]["results"].as_array().map_or(&[][..], Vec::as_slice);
        let name = |result: &Value| ["request", "driver", "pool", "device"].map(|key| result[key].clone());
        results.iter().map(name).collect::<Vec<_>>()
    };
    results(stands) == results(ours)
}

/// Takes the devices of a claim back that nobody uses: a merge patch of its status. None if somebody may use it, but
/// for the pod of this UID.
pub fn deallocation(claim: &Value, pod: &str) -> Option<Value> {
    let (metadata, status) = (&claim["metadata"], &claim["status"]);
    let consumers = status["reservedFor"].as_array().map_or(&[][..], Vec::as_slice);
    let free = consumers.iter().all(|consumer| consumer["uid"] == *pod) && consumers.len() < 2;
    (free && status["allocation"].is_object()).then(|| {
        json!({
            "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            // What drivers said of the devices goes with them.
            "status": {"allocation": null, "reservedFor": null},
        })
    })
}
