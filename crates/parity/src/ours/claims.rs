//! Resource claims of a document, and what becomes of them while its pods are bound in turn.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow, bail};
use scheduling::{Framework, PodInfo, ResourceClaim, Snapshot, Step, deallocation};
use serde_json::Value;

use super::list;

/// Claims as an API server has them, by namespace and name.
pub(super) struct Claims {
    raw: BTreeMap<(String, String), Value>,
    writes: u64,
}

impl Claims {
    pub(super) fn read(document: &Value) -> Self {
        let raw = list(document, "resourceClaims").iter().map(|claim| {
            let text = |key: &str| claim["metadata"][key].as_str().unwrap_or_default().to_owned();
            let mut claim = claim.clone();
            let (namespace, name) = (text("namespace"), text("name"));
            claim["metadata"]["uid"] = Value::from(format!("{namespace}/{name}"));
            ((namespace, name), claim)
        });
        Self { raw: raw.collect(), writes: 1000 }
    }

    /// Does what the pod's claims need before it is bound to a node. Says which devices were written, and for whom.
    pub(super) fn bind(
        &mut self,
        framework: &Framework,
        snapshot: &mut Snapshot,
        pod: &PodInfo,
        node: &str,
    ) -> Result<Vec<String>> {
        let node = snapshot.node(node).context("the chosen node does not exist")?;
        let plan = framework.claims(pod, snapshot, node).map_err(|no| anyhow!("{}", no.message()))?;
        let Some(plan) = plan else { return Ok(Vec::new()) };
        if !snapshot.devices_mut().promise(&plan.promises()) {
            bail!("a claim of {}/{} has devices already", pod.namespace, pod.name);
        }
        let mut writes = Vec::new();
        for work in &plan.work {
            let key = (work.namespace.to_string(), work.name.to_string());
            loop {
                let raw = self.raw.get(&key).context("a claim that does not exist")?;
                match work
                    .step(raw, (&pod.name, &pod.uid), "2026-01-01T00:00:00Z")
                    .map_err(|error| anyhow!(error))?
                {
                    Step::Done => break,
                    Step::Protect(patch) => self.write(snapshot, &key, &patch)?,
                    Step::Reserve(patch) => {
                        self.write(snapshot, &key, &patch)?;
                        writes.extend(self.raw.get(&key).map(describe));
                    }
                }
            }
        }
        Ok(writes)
    }

    /// Takes the devices of a claim back.
    pub(super) fn take_back(
        &mut self,
        snapshot: &mut Snapshot,
        claim: &(String, String),
        pod: &PodInfo,
    ) -> Result<()> {
        let raw = self.raw.get(claim).context("a claim that does not exist")?;
        let patch = deallocation(raw, &pod.uid).context("the claim is in use")?;
        self.write(snapshot, claim, &patch)
    }

    fn write(&mut self, snapshot: &mut Snapshot, key: &(String, String), patch: &Value) -> Result<()> {
        self.writes += 1;
        let raw = self.raw.get_mut(key).context("a claim that does not exist")?;
        merge(raw, patch);
        raw["metadata"]["resourceVersion"] = Value::from(self.writes.to_string());
        snapshot.devices_mut().set_claim(ResourceClaim::parse(raw)?);
        Ok(())
    }
}

/// As an API server applies a merge patch.
fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        object.clone_from(patch);
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    for (key, value) in fields {
        if value.is_null() {
            object.as_object_mut().map(|object| object.remove(key));
        } else {
            merge(&mut object[key.as_str()], value);
        }
    }
}

/// The devices of a claim, and whose they are, as the referee says it.
fn describe(claim: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &claim["metadata"];
    let users = claim["status"]["reservedFor"].as_array().map_or(&[][..], Vec::as_slice);
    let users: Vec<_> = users.iter().map(|user| text(&user["name"])).collect();
    let mut allocation = claim["status"]["allocation"].clone();
    if let Some(fields) = allocation.as_object_mut() {
        fields.remove("allocationTimestamp");
    }
    let results = allocation.pointer_mut("/devices/results").and_then(Value::as_array_mut);
    for result in results.into_iter().flatten() {
        result.as_object_mut().map(|fields| fields.remove("shareID"));
    }
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    format!("devices of {namespace}/{name} for {}: {}", users.join(" "), canonical(&allocation))
}

/// JSON with sorted keys.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<_, _> = fields.iter().collect();
            let fields: Vec<_> = sorted
                .iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string(),
    }
}
