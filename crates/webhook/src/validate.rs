//! Verdicts on Targets and Sources, and on pods that carry what only multicluster-scheduler may write.
//!
//! Covered for pods: creation anywhere with a manifest, an election or the proxy scheduler that no admission
//! of ours gave; an update of a proxy pod that changes its manifest, its election or the label by which it is
//! found, by anybody outside the release namespace. Not covered: subresources (`pods/status` and
//! `pods/binding` carry annotations too), which no role for users grants, and finalizers, which a person may
//! have to remove.

use crate::election;
use crate::mutate::{Setting, cause, check_failover, is_ask, is_proven};
use crate::review::{Request, Verdict};
use api::{ClusterSourceSpec, ClusterTargetSpec, SourceSpec, TargetSpec, failover, keys, preference};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Annotations of a proxy pod that nobody else changes.
const RECORDS: [&str; 8] = [
    keys::SOURCE_POD_MANIFEST,
    keys::SOURCE_POD_MANIFEST_MAC,
    keys::ELECTED_TARGET,
    keys::ELECTED_CHAPERON,
    keys::ELECTION_EPOCH,
    keys::FENCE_EPOCH,
    keys::FENCE_GRACE_SECONDS,
    keys::GRANT,
];

/// Judges an object that the validating webhook configuration selects.
#[must_use]
pub fn validate(request: &Request<'_>, setting: &Setting<'_>) -> Verdict {
    if !request.is_create() && !request.is_update() {
        return Verdict::unchanged();
    }
    let object = request.object.map(|raw| serde_json::from_str::<Value>(raw.get()));
    let old = request.old_object.map(|raw| serde_json::from_str::<Value>(raw.get()));
    let (object, old) = match (object.transpose(), old.transpose()) {
        (Ok(Some(object)), Ok(old)) => (object, old.unwrap_or_default()),
        (Ok(None), _) => return Verdict::invalid("the review has no object"),
        (Err(error), _) | (_, Err(error)) => {
            return Verdict::invalid(format!("the review holds no JSON: {error}"));
        }
    };
    match (request.resource.group.as_str(), request.resource.resource.as_str()) {
        ("", "pods") if request.is_create() => new_pod(request, setting, &object),
        ("", "pods") => changed_pod(request, setting, &object, &old),
        ("multicluster.admiralty.io", kind) => {
            // What was admitted once can always be released, and be changed elsewhere than in its spec.
            let released = !object["metadata"]["deletionTimestamp"].is_null();
            if released || (request.is_update() && object["spec"] == old["spec"]) {
                return Verdict::unchanged();
            }
            spec(kind, &object["spec"]).map_or_else(Verdict::invalid, |()| Verdict::unchanged())
        }
        _ => Verdict::unchanged(),
    }
}

fn new_pod(request: &Request<'_>, setting: &Setting<'_>, pod: &Value) -> Verdict {
    if let Some(message) = election::forgery(pod) {
        return Verdict::forbidden(message);
    }
    if is_proven(request, setting, pod) {
        return Verdict::unchanged();
    }
    election::pretence(pod).map_or_else(Verdict::unchanged, Verdict::forbidden)
}

fn changed_pod(request: &Request<'_>, setting: &Setting<'_>, pod: &Value, old: &Value) -> Verdict {
    let ours = format!("system:serviceaccount:{}:", setting.own_namespace);
    if request.user_info.username.starts_with(&ours) {
        return Verdict::unchanged();
    }
    let changed = |key: &str| pod["metadata"]["annotations"][key] != old["metadata"]["annotations"][key];
    if let Some(key) = RECORDS.into_iter().find(|key| changed(key)) {
        return Verdict::forbidden(format!(
            "metadata.annotations[{key}] is written by multicluster-scheduler alone; leave it as it is"
        ));
    }
    // A policy may change while the pod runs, but not into nonsense.
    let policy = |key: &str| changed(key).then(|| pod["metadata"]["annotations"][key].as_str()).flatten();
    if let Err(problem) = check_failover(policy) {
        return Verdict::invalid(problem);
    }
    let (label, finalizer) = (keys::HAS_FINALIZER, keys::DELEGATE_FINALIZER);
    let held = pod["metadata"]["finalizers"].as_array().into_iter().flatten().any(|held| held == finalizer);
    if held && old["metadata"]["labels"][label] == "true" && pod["metadata"]["labels"][label] != "true" {
        return Verdict::forbidden(format!(
            "metadata.labels[{label}] stays while the pod has finalizer {finalizer}"
        ));
    }
    Verdict::unchanged()
}

fn typed<T: DeserializeOwned>(spec: &Value) -> Result<T, String> {
    T::deserialize(spec).map_err(|error| format!("spec: {error}"))
}

/// Judges the spec of one of our kinds, by its plural.
fn spec(kind: &str, spec: &Value) -> Result<(), String> {
    match kind {
        "targets" => {
            let target: TargetSpec = typed(spec)?;
            exclusive(target.self_, target.kubeconfig_secret.is_some())?;
            if let Some(secret) = &target.kubeconfig_secret {
                secret_reference(None, &secret.name, secret.key.as_deref(), secret.context.as_deref())?;
            }
            settings(target.excluded_labels_regexp.as_deref(), target.ask.as_deref())?;
            preferences(target.order, target.weight, target.start_deadline.as_deref())?;
            grace(target.failover_grace_period.as_deref())
        }
        "clustertargets" => {
            let target: ClusterTargetSpec = typed(spec)?;
            exclusive(target.self_, target.kubeconfig_secret.is_some())?;
            if let Some(secret) = &target.kubeconfig_secret {
                let namespace = Some(secret.namespace.as_str());
                secret_reference(namespace, &secret.name, secret.key.as_deref(), secret.context.as_deref())?;
            }
            settings(target.excluded_labels_regexp.as_deref(), target.ask.as_deref())?;
            preferences(target.order, target.weight, target.start_deadline.as_deref())?;
            grace(target.failover_grace_period.as_deref())
        }
        "sources" => {
            let source: SourceSpec = typed(spec)?;
            if let Some(name) = source.service_account_name.as_deref().filter(|name| !name.is_empty()) {
                name_of("spec.serviceAccountName", name)?;
            }
            identity(
                "serviceAccountName",
                source.user_name.as_deref(),
                source.service_account_name.as_deref(),
            )
        }
        "clustersources" => {
            let source: ClusterSourceSpec = typed(spec)?;
            let account = source.service_account.as_ref();
            if let Some(account) = account {
                name_of("spec.serviceAccount.name", &account.name)?;
                name_of("spec.serviceAccount.namespace", &account.namespace)?;
            }
            identity(
                "serviceAccount",
                source.user_name.as_deref(),
                account.map(|account| account.name.as_str()),
            )
        }
        _ => Ok(()),
    }
}

fn exclusive(is_self: Option<bool>, has_secret: bool) -> Result<(), String> {
    if (is_self == Some(true)) == has_secret {
        return Err("spec: exactly one of `self: true` and `kubeconfigSecret` must be set".to_owned());
    }
    Ok(())
}

fn identity(account_field: &str, user: Option<&str>, account: Option<&str>) -> Result<(), String> {
    let named = |value: Option<&str>| value.is_some_and(|value| !value.trim().is_empty());
    if named(user) || named(account) {
        return Ok(());
    }
    Err(format!("spec: name a `userName` or a `{account_field}`"))
}

fn secret_reference(
    namespace: Option<&str>,
    name: &str,
    key: Option<&str>,
    context: Option<&str>,
) -> Result<(), String> {
    if let Some(namespace) = namespace {
        name_of("spec.kubeconfigSecret.namespace", namespace)?;
    }
    name_of("spec.kubeconfigSecret.name", name)?;
    let is_key = |key: &str| {
        (1..=253).contains(&key.len())
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    if let Some(key) = key.filter(|key| !is_key(key)) {
        return Err(format!(
            "spec.kubeconfigSecret.key: {key:?} is no key of a Secret; use letters, digits, `-`, `_` and `.`, or \
             leave it out for `config`"
        ));
    }
    if context.is_some_and(|context| context.trim() != context) {
        return Err("spec.kubeconfigSecret.context: remove the white space around the name".to_owned());
    }
    Ok(())
}

fn grace(grace: Option<&str>) -> Result<(), String> {
    let problem = grace.and_then(|grace| failover::parse_grace(grace).err());
    problem.map_or(Ok(()), |problem| Err(format!("spec.failoverGracePeriod: {problem}")))
}

fn settings(excluded: Option<&str>, ask: Option<&str>) -> Result<(), String> {
    if let Some(pattern) = excluded
        && let Err(error) = regex::Regex::new(pattern)
    {
        return Err(format!(
            "spec.excludedLabelsRegexp: {pattern:?} is no regular expression: {}",
            cause(&error)
        ));
    }
    if let Some(ask) = ask.filter(|ask| !is_ask(ask)) {
        return Err(format!("spec.ask: {ask:?} must be a number from 1 to 999, or all"));
    }
    Ok(())
}

fn preferences(order: Option<i32>, weight: Option<u32>, deadline: Option<&str>) -> Result<(), String> {
    if let Some(order) = order.filter(|order| !(-1000..=1000).contains(order)) {
        return Err(format!("spec.order: {order} must be a number from -1000 to 1000"));
    }
    let most = preference::MAX_WEIGHT;
    if let Some(weight) = weight.filter(|weight| *weight > most) {
        return Err(format!("spec.weight: {weight} must be a number from 0 to {most}"));
    }
    let problem = deadline.and_then(|deadline| preference::parse_deadline(deadline).err());
    problem.map_or(Ok(()), |problem| Err(format!("spec.startDeadline: {problem}")))
}

/// A name that objects of the cluster can have.
fn name_of(field: &str, name: &str) -> Result<(), String> {
    let part = |part: &str| {
        let bytes = part.as_bytes();
        let alphanumeric =
            |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        alphanumeric(bytes.first())
            && alphanumeric(bytes.last())
            && bytes.iter().all(|byte| *byte == b'-' || alphanumeric(Some(byte)))
    };
    if name.len() <= 253 && name.split('.').all(part) {
        return Ok(());
    }
    Err(format!("{field}: {name:?} is no name; use lower-case letters, digits, `-` and `.`"))
}

#[cfg(test)]
mod tests;
