//! Carries out actions, one API call each.

use crate::controller::{Context, is_over};
use crate::events::{of_pod, warn_about};
use crate::link::{Doubt, Link, with_uid};
use crate::mirror::{Cause, addressed, essential};
use crate::plan::{Action, Observed, Parent, Remote};
use crate::removed::look_up_target;
use crate::store::{Evidence, Key};
use crate::views::{Chaperon, Proxy, is_ours};
use api::{Pod, keys};
use kube::api::{DeleteParams, ListParams, Patch};
use kube::{Api, ResourceExt};
use runtime::{Chain, Class, class, patching};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{error, info, warn};

/// What failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot {verb} {object}")]
    Call { verb: &'static str, object: String, source: kube::Error },
    #[error("cannot be sure of the target of {object}")]
    Doubt { object: String, source: Box<Doubt> },
    #[error("the pod of {object} and the view of it do not fit")]
    Stale { object: String },
    #[error("target of {object} is not in step")]
    NoLink { object: String },
    #[error("the Targets could not be listed for {object}")]
    NoList { object: String },
    #[error("cannot make a patch for {object}")]
    Patch { object: String, source: serde_json::Error },
}

impl Error {
    pub(crate) fn class(&self) -> Class {
        match self {
            Error::Call { source, .. } => class(source),
            Error::Doubt { source, .. } => match source.as_ref() {
                Doubt::Read { source, .. } => class(source),
                Doubt::Stranger { .. } => Class::Invalid,
            },
            Error::Stale { .. } => Class::Conflict,
            Error::NoLink { .. } | Error::NoList { .. } => Class::Unreachable,
            Error::Patch { .. } => Class::Bug,
        }
    }
}

/// What came of an action.
pub(crate) enum Done {
    Wrote,
    /// A live read brought this.
    Learned(fn(Evidence) -> Evidence),
    /// Not now.
    Held(Duration),
}

pub(crate) fn failed(
    verb: &'static str,
    object: impl std::fmt::Display,
) -> impl FnOnce(kube::Error) -> Error {
    let object = object.to_string();
    move |source| Error::Call { verb, object, source }
}

/// Carries out one action.
pub(crate) async fn apply(
    context: &Context,
    key: &Key,
    seen: &Observed,
    action: &Action,
) -> Result<Done, Error> {
    if let Action::LookUpParent = action {
        return look_up_parent(context, key, seen).await;
    }
    if let Action::DeleteChaperon(chaperon) | Action::SweepChaperon(chaperon) = action {
        let sweep = matches!(action, Action::SweepChaperon(_));
        return delete_chaperon(context, chaperon, sweep).await;
    }
    let Some(proxy) = seen.proxy.as_deref() else { return Err(Error::Stale { object: key.to_string() }) };
    match action {
        Action::LookUpDelegate => look_up_delegate(context, proxy).await,
        Action::LookUpTarget => look_up_target(context, proxy).await,
        Action::PatchStatus(patch) => patch_status(context, key, seen, patch).await,
        Action::Tell(cause, remains) => Ok(tell(context, proxy, *cause, *remains).await),
        Action::Explain(why) => {
            warn_about(context, of_pod(proxy), ("NotReplaced", why.message())).await;
            Ok(Done::Wrote)
        }
        Action::Release => release(context, key, proxy).await,
        Action::DeleteProxy => delete_proxy(context, proxy).await,
        Action::PassGrace(chaperon, seconds) => {
            let annotations = json!({keys::DELETION_GRACE_SECONDS: seconds.to_string()});
            pass_down(context, chaperon, json!({"metadata": {"annotations": annotations}})).await
        }
        Action::PassUpdates(chaperon, record) => {
            let annotations = json!({keys::UPDATES: record});
            pass_down(context, chaperon, json!({"metadata": {"annotations": annotations}})).await
        }
        Action::PassEphemeral(chaperon, containers) => {
            pass_down(context, chaperon, json!({"spec": {"ephemeralContainers": containers}})).await
        }
        Action::LookUpParent | Action::DeleteChaperon(_) | Action::SweepChaperon(_) => {
            Err(Error::Stale { object: key.to_string() })
        }
    }
}

fn pods(context: &Context, namespace: &str) -> Api<Pod> {
    Api::namespaced(context.rt.client.clone(), namespace)
}

/// Notes when a target does not answer, so that other pods do not wait for it.
fn of_target<T>(link: &Link, result: Result<T, kube::Error>) -> Result<T, kube::Error> {
    if let Err(error) = &result
        && class(error) == Class::Unreachable
    {
        link.suspect();
    }
    result
}

async fn prove(link: &Link, object: String) -> Result<(), Error> {
    let proof = link.prove().await;
    if let Err(Doubt::Read { source, .. }) = &proof
        && class(source) == Class::Unreachable
    {
        link.suspect();
    }
    proof.map_err(|doubt| Error::Doubt { object, source: Box::new(doubt) })
}

/// Reads live whether the elected PodChaperon is there. Its absence counts in the right cluster only.
async fn look_up_delegate(context: &Context, proxy: &Proxy) -> Result<Done, Error> {
    let no_link = || Error::NoLink { object: proxy.full_name() };
    let link = context.store().link_of(proxy).ok_or_else(no_link)?;
    prove(&link, proxy.full_name()).await?;
    let api = link.chaperons(&proxy.namespace);
    let verb = "read the PodChaperon of";
    let found = if proxy.elected_chaperon.is_some() {
        let name = proxy.chaperon_behind(&link.key.virtual_node());
        match of_target(&link, api.get_opt(&name).await) {
            Ok(found) => found,
            Err(error) => return Err(failed(verb, proxy.full_name())(error)),
        }
    } else {
        // Only pods that an older release bound lack the annotation; their PodChaperons have random names.
        let params = ListParams::default().labels(&format!("{}={}", keys::PARENT_UID, proxy.uid));
        let list = of_target(&link, api.list(&params).await).map_err(failed(verb, proxy.full_name()))?;
        list.items.into_iter().next()
    };
    match found {
        Some(mut chaperon) if proxy.elected_chaperon.as_deref().is_none_or(|uid| uid == chaperon.uid()) => {
            // It is the elected one even if somebody took its labels off.
            let labels = chaperon.metadata.labels.get_or_insert_default();
            labels.insert(keys::PARENT_UID.to_owned(), proxy.uid.clone());
            context.store().put_chaperon(&link.key, &chaperon);
            Ok(Done::Learned(|evidence| evidence))
        }
        Some(_) | None => Ok(Done::Learned(|evidence| Evidence { delegate_absent: true, ..evidence })),
    }
}

/// Reads live whether the parent of PodChaperons is gone.
async fn look_up_parent(context: &Context, key: &Key, seen: &Observed) -> Result<Done, Error> {
    let Some(orphan) = seen.others.first() else { return Err(Error::Stale { object: key.to_string() }) };
    let object = format!("{}/{}", orphan.parent_namespace, orphan.parent_name);
    let found = pods(context, &orphan.parent_namespace).get_metadata_opt(&orphan.parent_name).await;
    let found = found.map_err(failed("read pod", object))?;
    if found.and_then(|pod| pod.uid()).as_deref() == Some(key.as_ref()) {
        return Ok(Done::Learned(|evidence| Evidence { parent: Some(Parent::Alive), ..evidence }));
    }
    Ok(Done::Learned(|evidence| Evidence { parent: Some(Parent::Gone), ..evidence }))
}

async fn patch_status(context: &Context, key: &Key, seen: &Observed, patch: &Value) -> Result<Done, Error> {
    let Some(proxy) = seen.proxy.as_deref() else { return Err(Error::Stale { object: key.to_string() }) };
    let api = pods(context, &proxy.namespace);
    let body = addressed(proxy, patch);
    let verb = "write the status of pod";
    let written = match api
        .patch_status(&proxy.name, &patching(&context.rt.manager()), &Patch::Strategic(&body))
        .await
    {
        Err(error) if class(&error) == Class::Invalid => {
            warn!(proxy_pod = %proxy.full_name(), error = %Chain(&error), "status refused; writing only its essence");
            let less = addressed(proxy, &essential(patch));
            api.patch_status(&proxy.name, &patching(&context.rt.manager()), &Patch::Strategic(&less)).await
        }
        other => other,
    };
    if let Err(error) = &written
        && class(error) == Class::NotFound
    {
        context.store().remove_pod(key);
    }
    let pod = written.map_err(failed(verb, proxy.full_name()))?;
    let mut store = context.store();
    store.refresh_pod(&pod);
    if let Remote::Present(chaperon) = &seen.delegate {
        store.set_mirrored(key, chaperon);
    }
    Ok(Done::Wrote)
}

/// An event is worth no retry: the same stands in the pod's status.
async fn tell(context: &Context, proxy: &Proxy, cause: Cause, remains: bool) -> Done {
    let place = match (&proxy.elected_target, &proxy.elected_chaperon) {
        (Some(cluster), Some(uid)) if remains => format!(
            " PodChaperon {} (UID {uid}) may remain in cluster {cluster}.",
            proxy.chaperon_behind(&proxy.node)
        ),
        (_, _) => String::new(),
    };
    let message = format!("{}{place}", cause.message());
    warn_about(context, of_pod(proxy), (cause.reason(), &message)).await;
    info!(proxy_pod = %proxy.full_name(), reason = cause.reason(), "ends a proxy pod");
    Done::Wrote
}

/// Takes off our finalizers in one patch that tests for each of them and for the pod itself.
pub(crate) async fn release(context: &Context, key: &Key, proxy: &Proxy) -> Result<Done, Error> {
    let mut operations = vec![json!({"op": "test", "path": "/metadata/uid", "value": proxy.uid})];
    // From the last to the first, so that no index moves.
    for (at, finalizer) in
        proxy.finalizers.iter().enumerate().rev().filter(|(_, finalizer)| is_ours(finalizer))
    {
        let path = format!("/metadata/finalizers/{at}");
        operations.push(json!({"op": "test", "path": path, "value": finalizer}));
        operations.push(json!({"op": "remove", "path": path}));
    }
    let broken = |source| Error::Patch { object: proxy.full_name(), source };
    let patch: json_patch::Patch = serde_json::from_value(Value::Array(operations)).map_err(broken)?;
    let api = pods(context, &proxy.namespace);
    match api.patch(&proxy.name, &patching(&context.rt.manager()), &Patch::Json::<()>(patch)).await {
        Ok(pod) => {
            info!(proxy_pod = %proxy.full_name(), "released a proxy pod");
            context.store().refresh_pod(&pod);
        }
        Err(error) if class(&error) == Class::NotFound => {
            context.store().remove_pod(key);
        }
        // A test failed: the view of the pod is behind.
        Err(error) if class(&error) == Class::Invalid => {
            return Err(Error::Stale { object: proxy.full_name() });
        }
        Err(error) => return Err(failed("take the finalizer off pod", proxy.full_name())(error)),
    }
    Ok(Done::Wrote)
}

async fn delete_proxy(context: &Context, proxy: &Proxy) -> Result<Done, Error> {
    let params = DeleteParams { grace_period_seconds: Some(0), ..with_uid(&proxy.uid) };
    match pods(context, &proxy.namespace).delete(&proxy.name, &params).await {
        Ok(_) => Ok(Done::Wrote),
        Err(error) if is_over(&error) => Ok(Done::Wrote),
        Err(error) => Err(failed("delete pod", proxy.full_name())(error)),
    }
}

fn link(context: &Context, chaperon: &Chaperon) -> Result<std::sync::Arc<Link>, Error> {
    let found = context.store().link(&chaperon.target).filter(|link| link.is_in_step());
    found.ok_or_else(|| Error::NoLink { object: format!("{}/{}", chaperon.namespace, chaperon.name) })
}

/// Changes a PodChaperon by a merge patch.
async fn pass_down(context: &Context, chaperon: &Chaperon, mut patch: Value) -> Result<Done, Error> {
    let link = link(context, chaperon)?;
    patch["metadata"]["uid"] = json!(chaperon.uid);
    let api = link.chaperons(&chaperon.namespace);
    match of_target(
        &link,
        api.patch(&chaperon.name, &patching(&context.rt.manager()), &Patch::Merge(patch)).await,
    ) {
        Ok(patched) => {
            context.store().refresh_chaperon(&link.key, &patched);
            Ok(Done::Wrote)
        }
        Err(error) if is_over(&error) => Ok(Done::Wrote),
        Err(error) => Err(failed("pass a change to PodChaperon", &chaperon.name)(error)),
    }
}

async fn delete_chaperon(context: &Context, chaperon: &Chaperon, sweep: bool) -> Result<Done, Error> {
    let link = link(context, chaperon)?;
    // What is left in a fenced target is known to be superfluous.
    if sweep && !context.store().is_fenced(&chaperon.target) {
        let known = context.store().count(&chaperon.target);
        if let Err(pause) = context.budget.take(&chaperon.target, known, Instant::now()) {
            error!(
                cluster = %chaperon.target, chaperon = %chaperon.name,
                "too many PodChaperons that run something have lost their pod; keeping the rest for a while"
            );
            return Ok(Done::Held(pause));
        }
    }
    if sweep {
        prove(&link, chaperon.name.clone()).await?;
    }
    let api = link.chaperons(&chaperon.namespace);
    match of_target(&link, api.delete(&chaperon.name, &with_uid(&chaperon.uid)).await) {
        Ok(answer) => {
            if let Some(terminating) = answer.left() {
                context.store().refresh_chaperon(&link.key, &terminating);
            }
        }
        Err(error) if is_over(&error) => {
            // The watch has missed its end, or shows it in a moment.
            let key = context.store().remove_chaperon(&link.key, &chaperon.uid);
            key.iter().for_each(|key| context.queue.add(key));
        }
        Err(error) => return Err(failed("delete PodChaperon", &chaperon.name)(error)),
    }
    info!(cluster = %chaperon.target, chaperon = %chaperon.name, "deleted a PodChaperon");
    Ok(Done::Wrote)
}
