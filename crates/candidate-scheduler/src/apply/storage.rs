//! Claims and volumes that a pod needs before it can be bound.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::Patch;
use kube::{Api, Resource};
use runtime::patching;
use scheduling::VolumeWrite;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::info;

use crate::apply::{Context, call, version};
use crate::error::Error;
use crate::observe::Name;

/// Carries out one write. The patch applies to the object only as it was seen.
pub(super) async fn bind(
    context: &Context,
    pod: &Name,
    write: &VolumeWrite,
) -> Result<Option<String>, Error> {
    match write {
        VolumeWrite::Volume { name, patch } => {
            let api: Api<PersistentVolume> = Api::all(context.client.clone());
            let done = merge(context, api, ("bind volume", name.to_string()), patch).await?;
            info!(object = %pod, volume = %name, "bound a volume to a claim");
            Ok(done)
        }
        VolumeWrite::Claim { namespace, name, patch } => {
            let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), namespace);
            let object = format!("{namespace}/{name}");
            let done = merge(context, api, ("select a node for claim", object), patch).await?;
            info!(object = %pod, claim = %name, "selected the node for which a volume is made");
            Ok(done)
        }
    }
}

async fn merge<K>(
    context: &Context,
    api: Api<K>,
    (verb, object): (&'static str, String),
    patch: &Value,
) -> Result<Option<String>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let name = object.rsplit('/').next().unwrap_or_default();
    let patched = api.patch(name, &patching(&context.manager), &Patch::Merge(patch)).await;
    patched.map(|object| version(&object)).map_err(call(verb, &object))
}
