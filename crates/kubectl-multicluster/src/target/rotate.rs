//! A new token in a target's Secret. It is tried before it is stored.

use super::{kubeconfig, token};
use crate::access::{self, Cluster, through};
use crate::args::{Access, Rotate};
use crate::expiry::expiry;
use crate::fleet;
use crate::output::Steps;
use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

pub(super) async fn run(access: &Access, rotate: &Rotate) -> Result<()> {
    let steps = Steps::default();
    let source = access::source(access).await?;
    let member = fleet::member(&source, &rotate.name).await?;
    let place = member.secret.clone().with_context(|| format!("target {} names no Secret", rotate.name))?;
    let old = member.kubeconfig(&source.client).await?;
    let inside = through(&old, place.context.as_deref()).await?;
    let (namespace, account) = account(&inside).await?;
    let target = match &rotate.target_context {
        Some(context) => access::cluster(access, Some(context)).await?,
        None => inside,
    };
    let token = token(&target, &namespace, &account, rotate.duration).await?;
    let new = kubeconfig::with_token(&old, &token)?;
    let same = self::account(&through(&new, place.context.as_deref()).await?).await?;
    anyhow::ensure!(same == (namespace, account), "the new token is of another identity: {same:?}");
    steps.done("the target accepts the new token");
    let secrets: Api<Secret> = Api::namespaced(source.client.clone(), &place.namespace);
    let patch = json!({"stringData": {place.key.as_str(): new}});
    secrets
        .patch(&place.name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .with_context(|| format!("cannot write Secret {}/{}", place.namespace, place.name))?;
    let holds = expiry(&new).map_or_else(String::new, |end| format!(", which holds until {end}"));
    steps.done(&format!("stored it in Secret {}/{}{holds}", place.namespace, place.name));
    Ok(())
}

/// The ServiceAccount that credentials stand for: namespace and name.
async fn account(cluster: &Cluster) -> Result<(String, String)> {
    let reviews: Api<SelfSubjectReview> = Api::all(cluster.client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let user = review
        .context("the target does not say who the credentials stand for")?
        .status
        .and_then(|status| status.user_info?.username)
        .unwrap_or_default();
    let account = user.strip_prefix("system:serviceaccount:").and_then(|name| name.split_once(':'));
    let (namespace, name) =
        account.with_context(|| format!("the credentials are of {user:?}, which is no ServiceAccount"))?;
    Ok((namespace.to_owned(), name.to_owned()))
}
