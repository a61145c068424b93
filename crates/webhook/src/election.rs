//! Who pretends to be elected.
//!
//! A pod that arrives has been selected by the webhook configuration: its namespace elects all pods, or the
//! pod elects itself. Whether it then is elected, [`api::election`] says.

use api::election::{MIRROR, has, is_delegate, spec_text};
use api::keys;
use serde_json::Value;

/// Every virtual node's name begins like this.
const VIRTUAL_NODE: &str = "admiralty-";

/// What a pod carries at its creation that only multicluster-scheduler may write; `None` when it is honest.
///
/// The manifest and its proof are judged by the caller, who can tell our own.
#[must_use]
pub fn forgery(pod: &Value) -> Option<String> {
    let always = [keys::ELECTED_TARGET, keys::ELECTED_CHAPERON];
    // A delegate inherits these from its PodChaperon.
    let inherited = [keys::ELECTION_EPOCH, keys::GRANT, keys::FENCE_EPOCH, keys::FENCE_GRACE_SECONDS];
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
