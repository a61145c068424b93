//! Resource claims that a pod needs before it can be bound.

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DynamicObject, Patch};
use kube::core::ApiResource;
use runtime::{Class, patching};
use scheduling::{ClaimWork, Step, deallocation};
use serde_json::Value;
use tracing::info;

use crate::apply::{Context, call};
use crate::error::Error;
use crate::observe::Name;
use crate::plan::Outcome;

/// How often a claim is read again because somebody else changed it.
const TRIES: usize = 5;

/// Claims as they are: what this release does not know of them stays.
fn claims(context: &Context, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<ResourceClaim>(&());
    Api::namespaced_with(context.client.clone(), namespace, &kind)
}

fn object(work: &ClaimWork) -> String {
    format!("{}/{}", work.namespace, work.name)
}

/// Writes the devices of a claim and the pod that may use them, each upon the claim as it was just read.
pub(super) async fn bind(
    context: &Context,
    pod: &Name,
    uid: &str,
    work: &ClaimWork,
) -> Result<Outcome, Error> {
    let api = claims(context, &work.namespace);
    let mut tries = 0;
    loop {
        let claim = api.get(&work.name).await.map_err(call("read resource claim", object(work)))?;
        let raw = serde_json::to_value(&claim).unwrap_or_default();
        let now = format!("{:.0}", context.clock.now());
        let written = match work.step(&raw, (&pod.name, uid), &now) {
            Err(problem) => return Ok(Outcome::Denied(problem)),
            Ok(Step::Done) => {
                info!(object = %pod, claim = %object(work), "a resource claim has its devices");
                let version = claim.metadata.resource_version.as_deref();
                return Ok(Outcome::Done { version: version.map(std::sync::Arc::from) });
            }
            Ok(Step::Protect(patch)) => {
                let patched = api.patch(&work.name, &patching(&context.manager), &Patch::Merge(&patch)).await;
                patched.map_err(call("protect resource claim", object(work)))
            }
            Ok(Step::Reserve(patch)) => {
                let params = patching(&context.manager);
                let patched = api.patch_status(&work.name, &params, &Patch::Merge(&patch)).await;
                patched.map_err(call("give devices to resource claim", object(work)))
            }
        };
        match written {
            Ok(_) => {}
            Err(error) if error.class() == Class::Conflict && tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Takes devices back from a claim that nobody but this pod may use.
pub(super) async fn deallocate(context: &Context, claim: &Name, uid: &str) -> Result<Option<String>, Error> {
    let api = claims(context, &claim.namespace);
    let read = api.get(&claim.name).await.map_err(call("read resource claim", claim))?;
    let raw: Value = serde_json::to_value(&read).unwrap_or_default();
    let Some(patch) = deallocation(&raw, uid) else { return Ok(None) };
    let patched = api.patch_status(&claim.name, &patching(&context.manager), &Patch::Merge(&patch)).await;
    patched.map_err(call("take devices back from resource claim", claim))?;
    info!(claim = %claim, "took devices back that no node of a waiting pod can reach");
    Ok(None)
}
