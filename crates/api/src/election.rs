//! Which pods are elected, as the webhook decides it and the command line explains it.

use crate::keys;
use serde_json::Value;

/// Annotation by which a kubelet marks what it runs from a file.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether a pod that the webhook sees becomes a proxy pod.
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

/// Whether a pod has an annotation, whatever its value.
#[must_use]
pub fn has(pod: &Value, key: &str) -> bool {
    pod.get("metadata").and_then(|metadata| metadata.get("annotations")?.get(key)).is_some()
}

fn owned_by(pod: &Value, kind: &str) -> bool {
    let owners = pod.get("metadata").and_then(|metadata| metadata.get("ownerReferences")?.as_array());
    owners.into_iter().flatten().any(|owner| owner["kind"] == kind)
}

/// A field of a pod's spec; empty when it is absent.
#[must_use]
pub fn spec_text<'a>(pod: &'a Value, field: &str) -> &'a str {
    pod.get("spec").and_then(|spec| spec.get(field)?.as_str()).unwrap_or_default()
}

/// Whether the pod is a delegate, of this cluster or of another that uses this one.
#[must_use]
pub fn is_delegate(pod: &Value) -> bool {
    let labelled =
        pod.get("metadata").and_then(|metadata| metadata.get("labels")?.get(keys::PARENT_UID)).is_some();
    labelled && owned_by(pod, "PodChaperon")
}

/// Whether a pod that the webhook configuration selects becomes a proxy pod: its namespace elects all pods, or
/// the pod elects itself.
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
