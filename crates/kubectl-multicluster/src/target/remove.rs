//! A target less: its pods first, then the Target, its Secret, and the identity in the target.

use super::until;
use crate::access::{self, Cluster};
use crate::args::{Access, Drain, Remove};
use crate::fleet::{self, Member};
use crate::nodes;
use crate::output::Steps;
use anyhow::{Context as _, Result};
use api::v1alpha1::{ClusterSource, ClusterTarget, Source, Target};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

pub(super) async fn run(access: &Access, remove: &Remove) -> Result<()> {
    let steps = Steps::default();
    let source = access::source(access).await?;
    let member = fleet::member(&source, &remove.name).await?;
    // What cannot be reached is learnt before anything is taken away.
    let target = match &remove.target_context {
        Some(context) => Some(access::cluster(access, Some(context)).await?),
        None => None,
    };
    if !remove.force {
        let drain = Drain { target: remove.name.clone(), force: false, timeout: remove.timeout };
        nodes::empty(&source, &member.node(), &drain).await?;
    }
    delete(&source, &member, remove, &steps).await?;
    if let Some(place) = &member.secret {
        let secrets: Api<Secret> = Api::namespaced(source.client.clone(), &place.namespace);
        gone(&secrets, &place.name).await?;
        steps.done(&format!("deleted Secret {}/{}", place.namespace, place.name));
    }
    let Some(target) = target else {
        steps.warn("this cluster's identity in the target stays; name --target-context to remove it too");
        return Ok(());
    };
    disinvite(&target, &member, &remove.source_name, &steps).await
}

/// Deletes the Target and waits until it is gone, with all that the components hold of it.
async fn delete(source: &Cluster, member: &Member, remove: &Remove, steps: &Steps) -> Result<()> {
    let client = source.client.clone();
    let what = format!("the end of target {}", remove.name);
    steps.doing(&format!("waiting for {what}"));
    match &member.namespace {
        Some(namespace) => {
            let api = Api::<Target>::namespaced(client, namespace);
            gone(&api, &member.name).await?;
            until(remove.timeout, &what, || left(&api, &member.name)).await?;
        }
        None => {
            let api = Api::<ClusterTarget>::all(client);
            gone(&api, &member.name).await?;
            until(remove.timeout, &what, || left(&api, &member.name)).await?;
        }
    }
    steps.done(&format!("deleted target {}", remove.name));
    Ok(())
}

/// Asks for a deletion; what is not there is deleted.
async fn gone<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot delete {} {name}", K::kind(&()))),
    }
}

async fn left<K>(api: &Api<K>, name: &str) -> Result<Result<(), String>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let left = api.get_metadata_opt(name).await?;
    Ok(left.map_or(Ok(()), |object| {
        Err(format!("it has finalizers {:?}", object.metadata.finalizers.unwrap_or_default()))
    }))
}

async fn disinvite(target: &Cluster, member: &Member, source_name: &str, steps: &Steps) -> Result<()> {
    let client = target.client.clone();
    match &member.namespace {
        Some(namespace) => {
            gone(&Api::<Source>::namespaced(client, namespace), source_name).await?;
            steps.done(&format!("deleted Source {namespace}/{source_name} in the target"));
        }
        None => {
            gone(&Api::<ClusterSource>::all(client), source_name).await?;
            steps.done(&format!("deleted ClusterSource {source_name} in the target"));
        }
    }
    Ok(())
}
