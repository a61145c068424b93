//! One call per action.

mod claims;
mod evict;
mod storage;
mod tell;

use std::sync::Arc;

use api::{ClusterSummary, Pod, PodChaperon, keys};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PostParams};
use kube::{Api, Client, Resource};
use runtime::{Chain, Class, patching};
use scheduling::PodInfo;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::error::Error;
use crate::observe::{self, Name, TemplateKey};
use crate::plan::{Action, Admission, Outcome};

/// What calls need.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub manager: String,
    /// Which replica this is.
    pub instance: String,
    pub shared: runtime::Metrics,
    pub metrics: crate::metrics::Metrics,
    pub clock: runtime::Clock,
}

/// Carries out one action and says how it ended.
pub async fn apply(context: &Context, action: &Action) -> Outcome {
    let kind = kind(action);
    context.shared.actions.with_label_values(&["candidate", kind]).inc();
    let result = match action {
        Action::DryRun { template, manifest } => return dry_run(context, template, manifest).await,
        Action::Reserve { chaperon, uid, node, attempt, seconds } => {
            let patch = reservation(uid, node, *attempt, *seconds);
            let result = patch_chaperon(context, chaperon, "reserve a node for", &patch).await;
            if result.is_ok() {
                info!(chaperon = %chaperon, node = %node, "reserved a node");
            }
            result
        }
        Action::Release { chaperon, uid, version } => {
            let patch = release(uid, version);
            let result = patch_chaperon(context, chaperon, "release the reservation of", &patch).await;
            if result.is_ok() {
                info!(chaperon = %chaperon, "a reservation expired");
            }
            result
        }
        Action::Refuse { chaperon, uid, version, message, since, preempts } => {
            info!(chaperon = %chaperon, reason = %message, "fits nowhere");
            let mut patch = refusal(context.clock.now(), (uid, version), message, since.as_deref());
            if *preempts {
                patch["status"]["conditions"][0]["reason"] = keys::PREEMPTION_HELPS.into();
            }
            refuse_chaperon(context, chaperon, &patch).await
        }
        Action::Bind { pod, uid, node } => {
            let result = bind(context, pod, uid, node).await;
            if result.is_ok() {
                info!(object = %pod, node = %node, "bound a pod");
            }
            result
        }
        Action::BindStorage { pod, write, .. } => storage::bind(context, pod, write).await,
        Action::BindClaim { pod, uid, work } => match Box::pin(claims::bind(context, pod, uid, work)).await {
            Ok(outcome) => return outcome,
            Err(error) => Err(error),
        },
        Action::Deallocate { claim, uid } => Box::pin(claims::deallocate(context, claim, uid)).await,
        Action::RefusePod { .. } => refuse_waiting(context, action).await,
        Action::Unnominate { pod, uid } => evict::unnominate(context, pod, uid).await,
        Action::Disrupt(eviction) => evict::disrupt(context, eviction).await,
        Action::Evict(eviction) => evict::delete(context, eviction).await,
        Action::TellVictim(eviction) => evict::tell(context, eviction).await,
        Action::Tell(story) => tell::tell(context, story).await,
        Action::TellAgain { pod, event, count, .. } => tell::again(context, pod, event, *count).await,
        Action::CreateSummary(summary) => create_summary(context, summary).await,
        Action::PatchSummary(patch) => patch_summary(context, patch).await,
    };
    match result {
        Ok(version) => Outcome::Done { version: version.map(Arc::from) },
        Err(error) => failed(context, kind, &error),
    }
}

/// Says on a pod why it waits, and for which node.
async fn refuse_waiting(context: &Context, action: &Action) -> Result<Option<String>, Error> {
    let Action::RefusePod { pod, uid, version, reason, message, since, nomination } = action else {
        return Ok(None);
    };
    info!(object = %pod, reason = %message, "fits nowhere");
    let mut patch = refusal(context.clock.now(), (uid, version), message, since.as_deref());
    patch["status"]["conditions"][0]["reason"] = json!(reason);
    if let Some(status) = patch["status"].as_object_mut() {
        status.extend(evict::nominated(nomination));
    }
    refuse_pod(context, pod, &patch).await
}

fn kind(action: &Action) -> &'static str {
    match action {
        Action::DryRun { .. } => "dry_run",
        Action::Reserve { .. } => "reserve",
        Action::Release { .. } => "release",
        Action::Refuse { .. } => "refuse",
        Action::Bind { .. } => "bind",
        Action::BindStorage { .. } => "bind_storage",
        Action::BindClaim { .. } => "bind_claim",
        Action::Deallocate { .. } => "deallocate",
        Action::RefusePod { .. } => "refuse_pod",
        Action::Unnominate { .. } => "unnominate",
        Action::Disrupt(_) => "disrupt",
        Action::Evict(_) => "evict",
        Action::TellVictim(_) => "tell_victim",
        Action::Tell(_) => "tell",
        Action::TellAgain { .. } => "tell_again",
        Action::CreateSummary(_) => "create_summary",
        Action::PatchSummary(_) => "patch_summary",
    }
}

fn failed(context: &Context, kind: &'static str, error: &Error) -> Outcome {
    let class = error.class();
    context.shared.failures.with_label_values(&["candidate", class.as_str()]).inc();
    match class {
        Class::Conflict | Class::NotFound => debug!(action = kind, error = %Chain(error), "lost a race"),
        Class::Forbidden | Class::Invalid | Class::Unreachable | Class::Overloaded | Class::Bug => {
            warn!(action = kind, error = %Chain(error), "a call failed");
        }
    }
    match class {
        Class::Conflict => Outcome::Conflict,
        Class::NotFound => Outcome::NotFound,
        Class::Unreachable | Class::Overloaded => Outcome::Unknown,
        Class::Forbidden | Class::Invalid | Class::Bug => Outcome::Denied(error.answer()),
    }
}

/// The annotations that promise a node, in one merge patch.
///
/// It also ends the server's bookkeeping of who wrote which field, as the API allows by one empty entry: of a
/// PodChaperon every field has one writer, and the bookkeeping is larger than the object, read and written with
/// every change.
fn reservation(uid: &str, node: &str, attempt: u64, seconds: u64) -> Value {
    json!({"metadata": {"uid": uid, "managedFields": [{}], "annotations": {
        keys::IS_RESERVED: "true",
        keys::RESERVED_NODE: node,
        keys::RESERVED_SECONDS: seconds.to_string(),
        keys::RESERVED_ATTEMPT: attempt.to_string(),
    }}})
}

/// Takes the promise back; which ask was answered stays written. The version makes sure that it was not allowed.
fn release(uid: &str, version: &str) -> Value {
    json!({"metadata": {"uid": uid, "resourceVersion": version, "annotations": {
        keys::IS_RESERVED: null, keys::RESERVED_NODE: null, keys::RESERVED_SECONDS: null,
    }}})
}

/// The condition that says why nothing fits. The version makes sure that nobody has answered or started it since.
fn refusal(time: Timestamp, (uid, version): (&str, &str), message: &str, since: Option<&str>) -> Value {
    let now = format!("{time:.0}");
    json!({"metadata": {"uid": uid, "resourceVersion": version}, "status": {"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        // Fine enough that answers to two asks never look the same.
        "lastProbeTime": format!("{time:.6}"), "lastTransitionTime": since.unwrap_or(&now),
    }]}})
}

fn chaperons(context: &Context, namespace: &str) -> Api<PodChaperon> {
    Api::namespaced(context.client.clone(), namespace)
}

fn pods(context: &Context, namespace: &str) -> Api<Pod> {
    Api::namespaced(context.client.clone(), namespace)
}

fn version<K: Resource>(object: &K) -> Option<String> {
    object.meta().resource_version.clone()
}

fn call(verb: &'static str, object: impl ToString) -> impl FnOnce(kube::Error) -> Error {
    move |source| Error::Call { verb, object: object.to_string(), source }
}

async fn patch_chaperon(
    context: &Context,
    name: &Name,
    verb: &'static str,
    patch: &Value,
) -> Result<Option<String>, Error> {
    let api = chaperons(context, &name.namespace);
    let patched = api.patch(&name.name, &patching(&context.manager), &Patch::Merge(patch)).await;
    patched.map(|chaperon| version(&chaperon)).map_err(call(verb, name))
}

async fn refuse_chaperon(context: &Context, name: &Name, patch: &Value) -> Result<Option<String>, Error> {
    let api = chaperons(context, &name.namespace);
    let patched = api.patch_status(&name.name, &patching(&context.manager), &Patch::Merge(patch)).await;
    patched.map(|chaperon| version(&chaperon)).map_err(call("refuse", name))
}

async fn refuse_pod(context: &Context, name: &Name, patch: &Value) -> Result<Option<String>, Error> {
    let api = pods(context, &name.namespace);
    // Strategic: the conditions of others stay.
    let patched = api.patch_status(&name.name, &patching(&context.manager), &Patch::Strategic(patch)).await;
    patched.map(|pod| version(&pod)).map_err(call("refuse pod", name))
}

async fn bind(context: &Context, name: &Name, uid: &str, node: &str) -> Result<Option<String>, Error> {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": &*name.name, "namespace": &*name.namespace, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let post = PostParams { field_manager: Some(context.manager.clone()), dry_run: false };
    let api = pods(context, &name.namespace);
    let bound: Result<Value, _> = api.create_subresource("binding", &name.name, &post, &binding).await;
    bound.map(|_status| None).map_err(call("bind pod", name))
}

async fn create_summary(context: &Context, summary: &Value) -> Result<Option<String>, Error> {
    let api: Api<ClusterSummary> = Api::all(context.client.clone());
    let post = PostParams { field_manager: Some(context.manager.clone()), dry_run: false };
    let summary = serde_json::from_value(summary.clone())
        .map_err(|source| Error::Manifest { namespace: String::new(), source })?;
    let created = api.create(&post, &summary).await;
    created.map(|summary| version(&summary)).map_err(call("create the ClusterSummary", keys::SINGLETON))
}

async fn patch_summary(context: &Context, patch: &Value) -> Result<Option<String>, Error> {
    let api: Api<ClusterSummary> = Api::all(context.client.clone());
    let patched = api.patch(keys::SINGLETON, &patching(&context.manager), &Patch::Merge(patch)).await;
    patched.map(|summary| version(&summary)).map_err(call("change the ClusterSummary", keys::SINGLETON))
}

async fn dry_run(context: &Context, template: &TemplateKey, manifest: &Value) -> Outcome {
    let answer = match create_dry(context, &template.namespace, manifest).await {
        Ok(pod) => Admission::Pod(Arc::new(pod)),
        Err(error) => match verdict(&error) {
            Some(answer) => answer,
            None => return failed(context, "dry_run", &error),
        },
    };
    context.metrics.dry_run(&answer);
    Outcome::Admitted(answer)
}

async fn create_dry(context: &Context, namespace: &str, manifest: &Value) -> Result<PodInfo, Error> {
    let pod: Pod = serde_json::from_value(manifest.clone())
        .map_err(|source| Error::Manifest { namespace: namespace.to_owned(), source })?;
    let post = PostParams { field_manager: Some(context.manager.clone()), dry_run: true };
    let object = format!("a pod in namespace {namespace} (dry run)");
    let created = pods(context, namespace).create(&post, &pod).await.map_err(call("create", object))?;
    let returned = json!({
        "metadata": {"name": created.name(), "namespace": namespace, "labels": created.metadata.labels},
        "spec": created.spec,
    });
    match PodInfo::parse(&returned) {
        Ok(pod) => Ok(observe::without_parent(pod)),
        Err(source) => Err(Error::Returned { namespace: namespace.to_owned(), source }),
    }
}

/// What a refused dry run says about the real creation. None if it says nothing yet.
fn verdict(error: &Error) -> Option<Admission> {
    let text = error.answer();
    if text.contains("does not support dry run") {
        return Some(Admission::Undecided);
    }
    // A webhook that does not answer fails the creation as well, with an internal error.
    let by_webhook = text.contains("failed calling webhook");
    match error.class() {
        Class::Forbidden | Class::Invalid | Class::NotFound | Class::Bug => {
            Some(Admission::Refused(reason(&text)))
        }
        Class::Overloaded if by_webhook => Some(Admission::Refused(reason(&text))),
        Class::Conflict | Class::Unreachable | Class::Overloaded => None,
    }
}

/// The API server's words without the made-up name of the pod, which is another every time.
fn reason(text: &str) -> String {
    let rest = text.strip_prefix("pods \"").and_then(|rest| rest.split_once("\" ")).map(|(_, rest)| rest);
    match rest {
        Some(rest) => format!("creating the pod {rest}"),
        None => format!("the pod cannot be created: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{Status, response::StatusDetails};

    use super::*;

    #[track_caller]
    fn check(code: u16, message: &str, want: Option<&Admission>) {
        let status = Status {
            code,
            message: message.to_owned(),
            reason: String::new(),
            status: None,
            metadata: None,
            details: None::<StatusDetails>,
        };
        let error =
            Error::Call { verb: "create", object: String::new(), source: kube::Error::Api(Box::new(status)) };
        assert_eq!(verdict(&error).as_ref(), want);
    }

    fn refused(text: &str) -> Admission {
        Admission::Refused(text.to_owned())
    }

    #[test]
    fn what_creation_would_be_refused_for_is_said_in_the_same_words() {
        check(
            403,
            "pods \"web-x7k2p\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3",
            Some(&refused(
                "creating the pod is forbidden: exceeded quota: q, requested: pods=1, used: pods=3",
            )),
        );
        check(
            404,
            "namespaces \"shop\" not found",
            Some(&refused("the pod cannot be created: namespaces \"shop\" not found")),
        );
        let webhook = "Internal error occurred: failed calling webhook \"w\": timeout";
        check(500, webhook, Some(&refused(&format!("the pod cannot be created: {webhook}"))));
    }

    #[test]
    fn a_webhook_that_cannot_dry_run_says_nothing_either_way() {
        check(400, "admission webhook \"w\" does not support dry run", Some(&Admission::Undecided));
    }

    #[test]
    fn no_answer_is_no_verdict() {
        check(429, "too many requests", None);
        check(503, "unavailable", None);
    }

    #[test]
    fn a_refusal_is_written_only_on_the_state_that_it_is_about() {
        let patch = refusal(Timestamp::UNIX_EPOCH, ("u", "17"), "no room", Some("2026-01-01T00:00:00Z"));
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "17"}));
        assert_eq!(patch["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn a_reservation_names_node_length_and_ask_and_its_end_keeps_the_ask() {
        let patch = reservation("u", "n1", 3, 30);
        assert_eq!(patch["metadata"]["annotations"]["multicluster.admiralty.io/reserved-attempt"], "3");
        let patch = release("u", "17");
        assert_eq!(patch["metadata"]["resourceVersion"], "17");
        let annotations = patch["metadata"]["annotations"].as_object().expect("annotations");
        assert!(!annotations.contains_key("multicluster.admiralty.io/reserved-attempt"));
    }
}
