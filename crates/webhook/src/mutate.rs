//! From the pod that a user submits to the proxy pod that stands for it: a pure function from the raw review
//! to the smallest JSON patch.
//!
//! # Flow
//!
//! The first time a pod is seen, its bytes become the manifest annotation, with a proof beside it that only
//! this webhook can make. Everything else is computed from the manifest, so that a second review of the same
//! request (other webhooks may cause one) finds all in place and changes nothing.
//!
//! # Guarantees
//!
//! Nothing is decoded into types and encoded again: a field that this release does not know is kept, on the
//! proxy pod and in the manifest. A manifest without a proof for this very request is refused.
//!
//! # Caveats
//!
//! What another webhook changes in the pod's spec after us stays on the proxy pod; the delegate runs without
//! it. The second review says so in a warning. Where another webhook changes a field that is ours, it is set
//! back.

use crate::constraints::{self, Constraints};
use crate::election::{self, written_by_us};
use crate::mac::{Binding, Key};
use crate::patch::Patch;
use crate::review::{Request, Verdict};
use api::election::{Election, annotation, election as judged};
use api::labels::Rewriting;
use api::{failover, keys, preference};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Most bytes that the API server stores as annotations of one object, keys included.
const ANNOTATION_BYTES: usize = 256 * 1024;
/// Fields of a proxy pod's spec that are ours.
const OURS: [&str; 6] = [
    "nodeSelector",
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "schedulerName",
    "terminationGracePeriodSeconds",
];

/// What a verdict depends on besides the review.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// Key of the proofs.
    pub key: &'a Key,
    /// Namespace of this release, whose pods are never elected.
    pub own_namespace: &'a str,
    /// Unix seconds.
    pub now: u64,
}

/// Judges a pod that the mutating webhook configuration selects.
#[must_use]
pub fn mutate(request: &Request<'_>, setting: &Setting<'_>) -> Verdict {
    if !request.is_create() || request.namespace == setting.own_namespace {
        return Verdict::unchanged();
    }
    let Some(raw) = request.object else {
        return Verdict::forbidden("the review of a new pod has no object");
    };
    let pod: Value = match serde_json::from_str(raw.get()) {
        Ok(pod) => pod,
        Err(error) => return Verdict::forbidden(format!("the object of the review is no JSON: {error}")),
    };
    let part = |name: &str| pod.get(name).and_then(Value::as_object);
    let (Some(_), Some(spec)) = (part("metadata"), part("spec")) else {
        return Verdict::forbidden("the pod lacks its metadata or its spec");
    };
    if let Some(message) = election::forgery(&pod) {
        return Verdict::forbidden(message);
    }
    if let Election::Never(_) = judged(&pod) {
        return election::pretence(&pod).map_or_else(Verdict::unchanged, Verdict::forbidden);
    }
    let proxied = source(request, setting, raw, &pod).and_then(|source| proxy(&pod, spec, &source));
    proxied.unwrap_or_else(Verdict::forbidden)
}

/// The pod as the user submitted it.
struct Source {
    /// Its text, for the annotation.
    manifest: String,
    /// The proof that goes with the text.
    proof: String,
    /// The text, parsed; absent when the pod at hand is the source.
    parsed: Option<Value>,
}

/// The source of a pod: the manifest that we wrote a moment ago, or the pod itself.
fn source(
    request: &Request<'_>,
    setting: &Setting<'_>,
    raw: &RawValue,
    pod: &Value,
) -> Result<Source, String> {
    let written = annotation(pod, keys::SOURCE_POD_MANIFEST);
    let proof = annotation(pod, keys::SOURCE_POD_MANIFEST_MAC);
    match (written, proof) {
        (None, None) => {
            let manifest = manifest(raw).map_err(|error| format!("the pod cannot be kept: {error}"))?;
            let proof = setting.key.seal(&binding(request, pod, &manifest), setting.now);
            Ok(Source { manifest, proof, parsed: None })
        }
        (Some(manifest), Some(proof)) => {
            if !setting.key.verifies(&binding(request, pod, manifest), proof, setting.now) {
                return Err(written_by_us(keys::SOURCE_POD_MANIFEST));
            }
            let parsed = serde_json::from_str(manifest)
                .map_err(|error| format!("the manifest is no JSON: {error}"))?;
            Ok(Source { manifest: manifest.to_owned(), proof: proof.to_owned(), parsed: Some(parsed) })
        }
        (Some(_), None) => Err(written_by_us(keys::SOURCE_POD_MANIFEST)),
        (None, Some(_)) => Err(written_by_us(keys::SOURCE_POD_MANIFEST_MAC)),
    }
}

/// What the proof of a pod's manifest is bound to.
fn binding<'a>(request: &'a Request<'_>, pod: &'a Value, manifest: &'a str) -> Binding<'a> {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    Binding {
        user: &request.user_info.username,
        namespace: &request.namespace,
        name: text("name"),
        generate_name: text("generateName"),
        manifest,
    }
}

/// Whether the manifest on a pod is one that we wrote for this very request.
#[must_use]
pub fn is_proven(request: &Request<'_>, setting: &Setting<'_>, pod: &Value) -> bool {
    let manifest = annotation(pod, keys::SOURCE_POD_MANIFEST);
    let proof = annotation(pod, keys::SOURCE_POD_MANIFEST_MAC);
    manifest.zip(proof).is_some_and(|(manifest, proof)| {
        setting.key.verifies(&binding(request, pod, manifest), proof, setting.now)
    })
}

/// The bytes that came in, less `metadata.managedFields`, which describe who wrote what in this cluster and
/// can be as large as the pod.
fn manifest(raw: &RawValue) -> serde_json::Result<String> {
    let mut object: BTreeMap<String, Box<RawValue>> = serde_json::from_str(raw.get())?;
    if let Some(metadata) = object.get_mut("metadata") {
        let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(metadata.get())?;
        if fields.remove("managedFields").is_some() {
            *metadata = to_raw_value(&fields)?;
        }
    }
    serde_json::to_string(&object)
}

/// The patch that makes a pod the proxy pod of its source.
fn proxy(pod: &Value, spec: &Map<String, Value>, source: &Source) -> Result<Verdict, String> {
    let submitted = source.parsed.as_ref().unwrap_or(pod);
    check_annotations(submitted)?;
    let (constraints, mut warnings) = constraints::of(submitted)?;
    let metadata = pod.get("metadata");
    let field = |name: &str| metadata.and_then(|metadata| metadata.get(name));

    let mut patch = Patch::default();
    let written = [
        (keys::SOURCE_POD_MANIFEST, source.manifest.as_str()),
        (keys::SOURCE_POD_MANIFEST_MAC, source.proof.as_str()),
    ];
    check_size(field("annotations"), &written)?;
    patch.put_entries("/metadata/annotations", field("annotations"), &written);
    patch.put_entries("/metadata/labels", field("labels"), &[(keys::HAS_FINALIZER, "true")]);
    let finalizers = finalizers(field("finalizers"));
    patch.put("/metadata/finalizers", field("finalizers"), Some(finalizers));
    let Constraints { node_selector, tolerations, affinity, spread } = constraints;
    let wanted = [
        Some(node_selector),
        Some(tolerations),
        affinity,
        spread,
        Some(keys::PROXY_SCHEDULER.into()),
        Some(0.into()),
    ];
    for (name, want) in OURS.into_iter().zip(wanted) {
        patch.put(&format!("/spec/{name}"), spec.get(name), want);
    }
    warnings.extend(collapsing(submitted));
    if let Some(source) = &source.parsed {
        warnings.extend(changed_later(spec, source));
    }
    Ok(Verdict::Allowed { patch: patch.0, warnings })
}

/// The others' finalizers and ours; those of older releases are dropped, since nobody would remove them.
fn finalizers(have: Option<&Value>) -> Value {
    let have = have.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let others = have.iter().filter(|finalizer| !finalizer.as_str().is_some_and(keys::is_ours)).cloned();
    others.chain([keys::DELEGATE_FINALIZER.into()]).collect()
}

/// Values of annotations that are read much later, when nobody looks at an error any more.
fn check_annotations(source: &Value) -> Result<(), String> {
    if let Some(pattern) = annotation(source, keys::NO_PREFIX_LABEL_REGEXP)
        && let Err(error) = regex::Regex::new(pattern)
    {
        let key = keys::NO_PREFIX_LABEL_REGEXP;
        return Err(format!(
            "metadata.annotations[{key}]: {pattern:?} is no regular expression: {}",
            cause(&error)
        ));
    }
    if let Some(ask) = annotation(source, keys::ASK)
        && !is_ask(ask)
    {
        let key = keys::ASK;
        return Err(format!("metadata.annotations[{key}]: {ask:?} must be a number from 1 to 999, or all"));
    }
    let checked = |key: &str, check: &dyn Fn(&str) -> Result<(), String>| {
        let problem = annotation(source, key).and_then(|value| check(value).err());
        problem.map_or(Ok(()), |problem| Err(format!("metadata.annotations[{key}]: {problem}")))
    };
    checked(keys::TARGET_ORDER, &|value| preference::parse_order(value).map(drop))?;
    checked(keys::TARGET_WEIGHT, &|value| preference::parse_weights(value).map(drop))?;
    checked(keys::SCORE_WEIGHT, &|value| preference::parse_score_weights(value).map(drop))?;
    checked(keys::START_DEADLINE, &|value| preference::parse_deadline(value).map(drop))?;
    checked(keys::GROUP_MIN_MEMBER, &|value| {
        let fits = value.parse().is_ok_and(|count: u32| (1..=10_000).contains(&count));
        if fits { Ok(()) } else { Err(format!("{value:?} must be a number from 1 to 10000")) }
    })?;
    checked(keys::GROUP_PLACEMENT, &|value| match value {
        keys::GROUP_ONE_TARGET | keys::GROUP_ANY_TARGET => Ok(()),
        _ => Err(format!("{value:?} must be {} or {}", keys::GROUP_ONE_TARGET, keys::GROUP_ANY_TARGET)),
    })?;
    check_failover(|key| annotation(source, key))
}

/// What a pod says about the loss of its target.
///
/// # Errors
///
/// A value means nothing; the sentence says which and how to write it.
pub fn check_failover<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Result<(), String> {
    let checked = |key: &str, check: fn(&str) -> Result<(), String>| {
        let problem = annotation(key).and_then(|text| check(text).err());
        problem.map_or(Ok(()), |problem| Err(format!("metadata.annotations[{key}]: {problem}")))
    };
    checked(keys::FAILOVER, |text| failover::parse_failover(text).map(drop))?;
    checked(keys::FAILOVER_GRACE_PERIOD, |text| failover::parse_grace(text).map(drop))?;
    checked(keys::FENCE, |text| failover::parse_fence(text).map(drop))
}

/// The last line of a parser's message, which says what is wrong below a picture of where.
pub fn cause(error: &regex::Error) -> String {
    error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Whether a value says how many targets are asked at once.
#[must_use]
pub fn is_ask(value: &str) -> bool {
    value == keys::ALL
        || (value.len() <= 3
            && !value.starts_with('0')
            && !value.is_empty()
            && value.bytes().all(|digit| digit.is_ascii_digit()))
}

fn check_size(have: Option<&Value>, written: &[(&str, &str)]) -> Result<(), String> {
    let kept = have
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(key, _)| !written.iter().any(|(ours, _)| ours == key));
    let kept: usize = kept.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    let ours: usize = written.iter().map(|(key, value)| key.len() + value.len()).sum();
    if kept + ours <= ANNOTATION_BYTES {
        return Ok(());
    }
    Err(format!(
        "metadata.annotations[{}]: the pod is too large to be kept: its annotations would have {} bytes with it, \
         {ANNOTATION_BYTES} are allowed; move data from the pod into a ConfigMap, or annotations out of it",
        keys::SOURCE_POD_MANIFEST,
        kept + ours,
    ))
}

/// One warning about labels that become one label of the delegate where the target rewrites them.
fn collapsing(source: &Value) -> Option<String> {
    let rewriting = Rewriting::from_annotation(annotation(source, keys::NO_PREFIX_LABEL_REGEXP)).ok()?;
    let labels = source["metadata"]["labels"].as_object()?;
    let mut by_key: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (key, value) in labels {
        by_key.entry(rewriting.key(key, value.as_str().unwrap_or_default())).or_default().push(key);
    }
    let mut lost: Vec<&str> = by_key
        .into_values()
        .filter(|keys| keys.len() > 1)
        .flat_map(|keys| keys.into_iter().skip(1))
        .collect();
    lost.sort_unstable();
    (!lost.is_empty()).then(|| {
        format!(
            "multicluster-scheduler: the delegate carries no label {}, since another one has the same name; targets \
             with labelRewriting Keep keep all of them",
            lost.join(", ")
        )
    })
}

/// One warning about what others changed in the spec since we read it.
fn changed_later(spec: &Map<String, Value>, source: &Value) -> Option<String> {
    let empty = Map::new();
    let before = source.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let names: std::collections::BTreeSet<&str> = spec
        .keys()
        .chain(before.keys())
        .filter(|name| !OURS.contains(&name.as_str()) && spec.get(*name) != before.get(*name))
        .map(String::as_str)
        .collect();
    if names.is_empty() {
        return None;
    }
    let names: Vec<_> = names.into_iter().collect();
    Some(format!(
        "multicluster-scheduler: another webhook changed spec.{} later; the delegate runs without that change",
        names.join(", spec.")
    ))
}

#[cfg(test)]
mod tests;
