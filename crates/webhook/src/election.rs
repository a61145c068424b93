//! Who is elected, and who pretends to be.
//!
//! A pod that arrives has been selected by the webhook configuration: its namespace elects all pods, or the
//! pod elects itself.

use api::keys;
use serde_json::Value;

/// Annotation by which a kubelet marks what it runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Every virtual node's name begins like this.
const VIRTUAL_NODE: &str = "admiralty-";

/// Whether a pod becomes a proxy pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Election {
    /// It does.
    Elected,
    /// It stays in this cluster, for this reason.
    Never(&'static str),
}

/// An annotation's value.
#[must_use]
pub fn annotation<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    pod.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

fn has(pod: &Value, key: &str) -> bool {
    pod.get("metadata").and_then(|metadata| metadata.get("annotations")?.get(key)).is_some()
}

fn owned_by(pod: &Value, kind: &str) -> bool {
    let owners = pod.get("metadata").and_then(|metadata| metadata.get("ownerReferences")?.as_array());
    owners.into_iter().flatten().any(|owner| owner["kind"] == kind)
}

/// The field of a spec; empty when it is absent.
fn spec_text<'a>(pod: &'a Value, field: &str) -> &'a str {
    pod.get("spec").and_then(|spec| spec.get(field)?.as_str()).unwrap_or_default()
}

/// Whether the pod is a delegate of this cluster or of another that uses this one.
fn is_delegate(pod: &Value) -> bool {
    let labelled =
        pod.get("metadata").and_then(|metadata| metadata.get("labels")?.get(keys::PARENT_UID)).is_some();
    labelled && owned_by(pod, "PodChaperon")
}

/// Whether a pod that the configuration selects becomes a proxy pod.
#[must_use]
pub fn election(pod: &Value) -> Election {
    if annotation(pod, keys::ELECT) == Some(keys::NEVER) {
        return Election::Never("it opts out");
    }
    if !spec_text(pod, "nodeName").is_empty() {
        return Election::Never("it names its node");
    }
    if has(pod, MIRROR) {
        return Election::Never("a kubelet runs it from a file");
    }
    // Its controller would create a replacement for every pod that leaves its node, for ever.
    if owned_by(pod, "DaemonSet") {
        return Election::Never("a DaemonSet owns it");
    }
    if is_delegate(pod) {
        return Election::Never("a PodChaperon controls it");
    }
    Election::Elected
}

/// What a pod carries at its creation that only multicluster-scheduler may write; `None` when it is honest.
///
/// The manifest and its proof are judged by the caller, who can tell our own.
#[must_use]
pub fn forgery(pod: &Value) -> Option<String> {
    let always = [keys::ELECTED_TARGET, keys::ELECTED_CHAPERON];
    // A delegate inherits these from its PodChaperon.
    let inherited = [keys::ELECTION_EPOCH, keys::GRANT];
    let delegate = is_delegate(pod);
    let key = always
        .into_iter()
        .find(|key| has(pod, key))
        .or_else(|| inherited.into_iter().find(|key| !delegate && has(pod, key)))?;
    Some(written_by_us(key))
}

/// What a pod that is not elected carries as if it were; `None` when it is honest.
#[must_use]
pub fn pretence(pod: &Value) -> Option<String> {
    if let Some(key) =
        [keys::SOURCE_POD_MANIFEST, keys::SOURCE_POD_MANIFEST_MAC].into_iter().find(|key| has(pod, key))
    {
        return Some(written_by_us(key));
    }
    let scheduler = keys::PROXY_SCHEDULER;
    if spec_text(pod, "schedulerName") == scheduler {
        return Some(format!(
            "spec.schedulerName: {scheduler} places elected pods only, and this one is not elected; set annotation \
             {elect} in a namespace with label {namespace}={enabled}, or name another scheduler",
            elect = keys::ELECT,
            namespace = keys::NAMESPACE,
            enabled = keys::ENABLED,
        ));
    }
    let node = spec_text(pod, "nodeName");
    if node.starts_with(VIRTUAL_NODE) && !has(pod, MIRROR) {
        return Some(format!(
            "spec.nodeName: {node} is a virtual node, which runs elected pods only, placed by {scheduler}; remove \
             spec.nodeName and elect the pod by annotation {elect}",
            elect = keys::ELECT,
        ));
    }
    None
}

/// The refusal of a key that is ours.
#[must_use]
pub fn written_by_us(key: &str) -> String {
    format!("metadata.annotations[{key}] is written by multicluster-scheduler alone; remove it")
}
