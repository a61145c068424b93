//! The user's own changes to what is made.

use super::Fault;
use api::provisioning::Patch;
use serde_json::{Value, json};

/// Where a patch would change which object is which, or who may do what.
const FORBIDDEN: &[&str] = &[
    "/spec/infrastructureRef",
    "/spec/controlPlaneRef",
    "/spec/controlPlaneEndpoint",
    "/spec/identityRef",
    "/spec/clusterName",
    "/spec/selector",
    "/spec/version",
    "/spec/paused",
    "/spec/machineTemplate/spec/infrastructureRef",
    "/spec/template/spec/infrastructureRef",
    "/spec/template/spec/bootstrap",
    "/spec/template/spec/clusterName",
    "/spec/template/spec/version",
    "/spec/template/spec/identityRef",
    "/spec/topology/classRef",
    "/metadata/labels/provisioning.multicluster-scheduler.io",
    "/metadata/labels/cluster.x-k8s.io",
];

/// How a patch is named in the status.
pub(super) fn shown(patch: &Patch) -> String {
    match &patch.target.node_pool {
        None => patch.target.kind.clone(),
        Some(pool) => format!("{}/{pool}", patch.target.kind),
    }
}

/// Applies the patches that are for this object.
pub(super) fn apply(
    patches: &[Patch],
    kind: &str,
    pool: Option<&str>,
    mut object: Value,
) -> Result<Value, Fault> {
    for (index, patch) in patches.iter().enumerate() {
        if patch.target.kind != kind || patch.target.node_pool.as_deref() != pool {
            continue;
        }
        for operation in &patch.json_patch {
            if let Some(path) = FORBIDDEN.iter().find(|path| reaches(&operation.path, path)) {
                let problem = format!("{} is not for patches, since it says which object is which", *path);
                return Err(Fault::Patch { index, problem });
            }
            one(&mut object, operation).map_err(|problem| Fault::Patch { index, problem })?;
        }
    }
    Ok(object)
}

/// A prefix of a path reaches whatever lies below it.
fn reaches(path: &str, forbidden: &str) -> bool {
    let below = |longer: &str, shorter: &str| {
        longer.strip_prefix(shorter).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '~']))
    };
    below(path, forbidden) || below(forbidden, path)
}

fn one(object: &mut Value, operation: &api::provisioning::PatchOperation) -> Result<(), String> {
    if operation.op == "add" {
        make_room(object, &operation.path);
    }
    let mut text = json!({"op": operation.op, "path": operation.path});
    if operation.op != "remove" {
        text["value"] = operation.value.clone().unwrap_or_default();
    }
    let operation: json_patch::PatchOperation =
        serde_json::from_value(text).map_err(|error| error.to_string())?;
    json_patch::patch(object, &[operation]).map_err(|error| error.to_string())
}

/// What is added may lie in an object that nothing else has made.
fn make_room(object: &mut Value, path: &str) {
    let mut at = object;
    let mut words: Vec<String> =
        path.split('/').skip(1).map(|word| word.replace("~1", "/").replace("~0", "~")).collect();
    words.pop();
    for word in words {
        at = match at {
            Value::Object(fields) => fields.entry(word).or_insert_with(|| json!({})),
            Value::Array(items) => {
                let Some(item) = word.parse::<usize>().ok().and_then(|index| items.get_mut(index)) else {
                    return;
                };
                item
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
        };
    }
}
