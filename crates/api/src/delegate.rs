//! Construction of the delegate: from the manifest that the webhook saved to the PodChaperon that a target
//! receives. Raw JSON in, raw JSON out: a field that this release does not know passes through.

use crate::claims::Mapping;
use crate::labels::{BadPattern, Rewriting};
use crate::raw::{Pod, PodChaperon, text_map};
use crate::v1alpha1::LabelRewriting;
use crate::{keys, names};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Where Kubernetes mounts the token of a pod's ServiceAccount.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Prefix of the name that ServiceAccount admission gives its volume.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// The source's side of a delegate.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The source's cluster name; empty means that its UID is the name.
    pub cluster_name: &'a str,
    /// UID of the source's `kube-system` namespace.
    pub cluster_uid: &'a str,
}

/// The target's side of a delegate.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// UID of the target's `kube-system` namespace.
    pub cluster_uid: &'a str,
    /// The virtual node that stands for the target.
    pub virtual_node: &'a str,
    /// What happens to labels.
    pub labels: LabelRewriting,
}

/// Why there is no delegate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The proxy pod has lost the annotation that the webhook wrote.
    #[error("annotation {key} is missing", key = keys::SOURCE_POD_MANIFEST)]
    NoManifest,
    /// The annotation is no pod.
    #[error("annotation {key} is not the manifest of a pod: {why}", key = keys::SOURCE_POD_MANIFEST)]
    BadManifest {
        /// What the parser said.
        why: String,
    },
    /// The user's expression is invalid.
    #[error(transparent)]
    BadPattern(BadPattern),
}

/// The pod as the user submitted it, read from the proxy pod's annotation (YAML or JSON).
///
/// # Errors
///
/// The annotation is missing or no mapping with a spec.
pub fn manifest(proxy: &Pod) -> Result<Value, Error> {
    let text = proxy.annotation(keys::SOURCE_POD_MANIFEST).ok_or(Error::NoManifest)?;
    let manifest: Value = if text.starts_with('{') {
        serde_json::from_str(text).map_err(|error| Error::BadManifest { why: error.to_string() })?
    } else {
        serde_yaml::from_str(text).map_err(|error| Error::BadManifest { why: error.to_string() })?
    };
    if manifest.get("spec").is_some_and(Value::is_object) {
        return Ok(manifest);
    }
    Err(Error::BadManifest { why: "it has no spec".to_owned() })
}

/// The PodChaperon by which a target is asked to take the delegate of a proxy pod: not allowed, attempt 1.
///
/// # Errors
///
/// The manifest cannot be read, or the label expression is invalid.
pub fn chaperon(proxy: &Pod, origin: Origin<'_>, destination: Destination<'_>) -> Result<PodChaperon, Error> {
    let manifest = manifest(proxy)?;
    let source_labels = text_map(&manifest["metadata"]["labels"]);
    let source_annotations = text_map(&manifest["metadata"]["annotations"]);
    let rewriting = rewriting(&source_annotations, destination.labels)?;

    let mut spec = manifest["spec"].as_object().cloned().unwrap_or_default();
    fit_spec(&mut spec, &source_annotations);
    rewrite_selectors(&mut spec, &rewriting, &source_labels);
    let spec = Value::Object(spec);

    let mut labels = rewriting.labels(&source_labels);
    labels.extend(parent_labels(proxy, origin, destination));
    let mut annotations: BTreeMap<String, String> =
        source_annotations.into_iter().filter(|(key, _)| !keys::is_ours(key)).collect();
    annotations.extend([
        (keys::PARENT_NAME.to_owned(), proxy.name().to_owned()),
        (keys::PARENT_NAMESPACE.to_owned(), proxy.namespace().to_owned()),
        (keys::SPEC_HASH.to_owned(), class(&spec, &labels)),
        (keys::ATTEMPT.to_owned(), "1".to_owned()),
    ]);

    let mut chaperon = PodChaperon { spec, ..PodChaperon::default() };
    chaperon.metadata.name = Some(names::chaperon(proxy.name(), proxy.uid(), destination.virtual_node));
    chaperon.metadata.namespace = Some(proxy.namespace().to_owned());
    chaperon.metadata.labels = Some(labels);
    chaperon.metadata.annotations = Some(annotations);
    Ok(chaperon)
}

fn rewriting(annotations: &BTreeMap<String, String>, labels: LabelRewriting) -> Result<Rewriting, Error> {
    match labels {
        LabelRewriting::Keep => Ok(Rewriting::keep_all()),
        LabelRewriting::Rewrite => {
            let pattern = annotations.get(keys::NO_PREFIX_LABEL_REGEXP).map(String::as_str);
            Rewriting::from_annotation(pattern).map_err(Error::BadPattern)
        }
    }
}

fn parent_labels(proxy: &Pod, origin: Origin<'_>, destination: Destination<'_>) -> [(String, String); 5] {
    let cluster_name = if origin.cluster_name.is_empty() { origin.cluster_uid } else { origin.cluster_name };
    [
        (keys::PARENT_UID.to_owned(), proxy.uid().to_owned()),
        (keys::PARENT_CLUSTER_NAME.to_owned(), names::label_value(cluster_name)),
        (keys::PARENT_CLUSTER_UID.to_owned(), origin.cluster_uid.to_owned()),
        (keys::TARGET_UID.to_owned(), destination.cluster_uid.to_owned()),
        (keys::VIRTUAL_NODE.to_owned(), names::label_value(destination.virtual_node)),
    ]
}

/// Equal for pods that a target treats alike: same spec but for the host name, same labels but for the
/// names and numbers that owners give each of their pods.
fn class(spec: &Value, labels: &BTreeMap<String, String>) -> String {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("hostname");
    }
    let own = |key: &str| {
        [keys::PARENT_UID, keys::TARGET_UID, keys::VIRTUAL_NODE].contains(&key)
            || key.ends_with("/pod-name")
            || key.ends_with("/pod-index")
            || key.ends_with("/job-completion-index")
    };
    let labels: BTreeMap<_, _> = labels.iter().filter(|(key, _)| !own(key)).collect();
    names::short_hash(&format!("{spec}{}", serde_json::to_string(&labels).unwrap_or_default()))
}

/// Takes out what admission in the source filled in, and what only the target can know.
fn fit_spec(spec: &mut Map<String, Value>, annotations: &BTreeMap<String, String>) {
    if annotations.contains_key(keys::USE_CONSTRAINTS_FROM_SPEC) {
        for constraint in ["nodeSelector", "tolerations", "affinity", "topologySpreadConstraints"] {
            spec.remove(constraint);
        }
    }
    for filled_in in ["priority", "preemptionPolicy", "overhead", "nodeName"] {
        spec.remove(filled_in);
    }
    // They gate the proxy pod: no target is asked before the first are lifted, and the second are judged there.
    spec.remove("schedulingGates");
    spec.remove("readinessGates");
    // The group is one of the source, which places it.
    spec.remove("schedulingGroup");
    if !annotations.contains_key(keys::NO_RESERVATION) {
        spec.insert("schedulerName".to_owned(), Value::from(keys::CANDIDATE_SCHEDULER));
    }
    if let Some(Value::Array(tolerations)) = spec.get_mut("tolerations") {
        tolerations.retain(|toleration| !is_default_toleration(toleration));
    }
    if annotations.get(keys::IDENTITY).is_none_or(|whose| whose != keys::IDENTITY_TARGET) {
        strip_projected_tokens(spec);
    }
    strip_token(spec);
}

/// The tolerations that DefaultTolerationSeconds adds; the target adds its own.
fn is_default_toleration(toleration: &Value) -> bool {
    let key = toleration["key"].as_str().unwrap_or_default();
    matches!(key, "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable")
        && toleration["effect"] == "NoExecute"
        && toleration["operator"] == "Exists"
        && toleration["tolerationSeconds"] == 300
}

/// The items of a list in a spec.
fn items<'a>(spec: &'a mut Map<String, Value>, list: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Takes tokens out of all other projected volumes: in the target they would be those of an account of the target that
/// merely has the same name. A volume that held nothing else goes, and its mounts in containers of every kind.
fn strip_projected_tokens(spec: &mut Map<String, Value>) {
    let mut empty = Vec::new();
    for volume in items(spec, "volumes") {
        let name = volume["name"].as_str().unwrap_or_default().to_owned();
        let sources = volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut);
        let Some(sources) = sources.filter(|_| !name.starts_with(TOKEN_VOLUME)) else { continue };
        let before = sources.len();
        sources.retain(|source| source.get("serviceAccountToken").is_none());
        if sources.is_empty() && before > 0 {
            empty.push(name);
        }
    }
    if empty.is_empty() {
        return;
    }
    let is_gone = |name: &Value| empty.iter().any(|gone| name == gone.as_str());
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items(spec, kind) {
            if let Some(Value::Array(mounts)) = container.get_mut("volumeMounts") {
                mounts.retain(|mount| !is_gone(&mount["name"]));
            }
        }
    }
    if let Some(Value::Array(volumes)) = spec.get_mut("volumes") {
        volumes.retain(|volume| !is_gone(&volume["name"]));
    }
}

/// Gives a delegate the account that stands for its own in a target.
pub fn map_account(spec: &mut Value, accounts: &Mapping) {
    let named = spec.get("serviceAccountName").and_then(Value::as_str);
    let mapped = accounts.map(Some(named.unwrap_or("default")));
    if let Some(mapped) = mapped.filter(|mapped| mapped != named.unwrap_or("default")) {
        spec["serviceAccountName"] = Value::from(mapped.as_str());
        // The older name of the same field.
        if spec.get("serviceAccount").is_some() {
            spec["serviceAccount"] = Value::from(mapped);
        }
    }
}

/// Removes every mount of the source's ServiceAccount token and the volumes that served only those.
fn strip_token(spec: &mut Map<String, Value>) {
    let mut removed = Vec::new();
    let mut kept = Vec::new();
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(Value::Array(mounts)) = container.get_mut("volumeMounts") else { continue };
            mounts.retain(|mount| {
                let name = mount["name"].as_str().unwrap_or_default().to_owned();
                let is_token =
                    mount["mountPath"].as_str().is_some_and(|path| path.trim_end_matches('/') == TOKEN_PATH);
                if is_token {
                    removed.push(name);
                } else {
                    kept.push(name);
                }
                !is_token
            });
            let empty = mounts.is_empty();
            if let (true, Some(fields)) = (empty, container.as_object_mut()) {
                fields.remove("volumeMounts");
            }
        }
    }
    if let Some(Value::Array(volumes)) = spec.get_mut("volumes") {
        volumes.retain(|volume| {
            let name = volume["name"].as_str().unwrap_or_default();
            let of_token = removed.iter().any(|gone| gone == name) || name.starts_with(TOKEN_VOLUME);
            !of_token || kept.iter().any(|used| used == name)
        });
        if volumes.is_empty() {
            spec.remove("volumes");
        }
    }
}

/// Selectors of a pod's own affinity and spread constraints follow its labels, or replicas would no longer
/// see one another.
fn rewrite_selectors(
    spec: &mut Map<String, Value>,
    rewriting: &Rewriting,
    labels: &BTreeMap<String, String>,
) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.get_mut("affinity").and_then(|affinity| affinity.get_mut(kind)) else {
            continue;
        };
        let required = affinity.get_mut("requiredDuringSchedulingIgnoredDuringExecution");
        for term in required.and_then(Value::as_array_mut).into_iter().flatten() {
            rewrite_term(term, rewriting, labels);
        }
        let preferred = affinity.get_mut("preferredDuringSchedulingIgnoredDuringExecution");
        for weighted in preferred.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(term) = weighted.get_mut("podAffinityTerm") {
                rewrite_term(term, rewriting, labels);
            }
        }
    }
    for constraint in
        spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut).into_iter().flatten()
    {
        rewrite_term(constraint, rewriting, labels);
    }
}

fn rewrite_term(term: &mut Value, rewriting: &Rewriting, labels: &BTreeMap<String, String>) {
    if let Some(Value::Object(pairs)) = term.pointer_mut("/labelSelector/matchLabels") {
        let old = std::mem::take(pairs);
        for (key, value) in old {
            let key = rewriting.key(&key, value.as_str().unwrap_or_default());
            pairs.entry(key).or_insert(value);
        }
    }
    let expressions = term.pointer_mut("/labelSelector/matchExpressions");
    for expression in expressions.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(Value::String(key)) = expression.get_mut("key") {
            *key = rewriting.key_alone(key, labels);
        }
    }
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        for key in term.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::String(key) = key {
                *key = rewriting.key_alone(key, labels);
            }
        }
    }
}

#[cfg(test)]
mod tests;
