//! Services whose pods run elsewhere: what their copies are, and what is changed on the originals.
//!
//! The original selects the delegates' labels instead of the proxy pods', and says that it is global, so that
//! the endpoints of all its copies serve it. What the user selected is kept in an annotation, since an applied
//! manifest brings the old selector back.

use api::keys;
use api::labels::Rewriting;
use api::raw::text_map;
use kube::core::ObjectMeta;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

type Pairs = BTreeMap<String, String>;

/// Annotations by which Cilium merges the endpoints of Services of one name in all clusters of a mesh: the older
/// and the current one.
pub(crate) const CILIUM: [&str; 2] = ["io.cilium/global-service", "service.cilium.io/global"];

/// Fields of a Service's spec that one cluster allocates, or that mean something in it alone. Copies are reached from
/// inside their cluster, so that there is no second load balancer and no port of a node that could be taken.
const LOCAL: [&str; 12] = [
    "allocateLoadBalancerNodePorts",
    "clusterIPs",
    "externalIPs",
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "ipFamilies",
    "ipFamilyPolicy",
    "loadBalancerClass",
    "loadBalancerIP",
    "loadBalancerSourceRanges",
    "selector",
    "type",
];

/// What of a Service decides whether and how it follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Service {
    /// What the user selects; empty: nothing.
    pub(crate) selector: Pairs,
    /// It is a copy that somebody made here.
    pub(crate) is_copy: bool,
    /// The user shares it with all clusters.
    pub(crate) declared_global: bool,
    /// The original is as it is to be while pods elsewhere serve it.
    pub(crate) is_marked: bool,
    /// The original is as the user wrote it.
    pub(crate) is_plain: bool,
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// What the user selects: what is not ours, or else what was kept.
fn selected(metadata: &ObjectMeta, spec: &Value) -> Pairs {
    let users: Pairs =
        text_map(&spec["selector"]).into_iter().filter(|(key, _)| !keys::is_ours(key)).collect();
    if !users.is_empty() {
        return users;
    }
    let kept = annotation(metadata, keys::ORIGINAL_SELECTOR).unwrap_or_default();
    kept.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}

fn written(selector: &Pairs) -> String {
    selector.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// How delegates carry the labels that the user selects. An expression that is none keeps no label.
fn rewritten(metadata: &ObjectMeta, selector: &Pairs) -> Pairs {
    let pattern = annotation(metadata, keys::NO_PREFIX_LABEL_REGEXP);
    Rewriting::from_annotation(pattern).unwrap_or_default().labels(selector)
}

impl Service {
    pub(crate) fn new(metadata: &ObjectMeta, spec: &Value, (manager, reroutes): (&str, bool)) -> Self {
        let selector = selected(metadata, spec);
        let (_, ours) = api::managed::owned(metadata, manager);
        let is_true = |key: &str| annotation(metadata, key) == Some("true");
        let declared = CILIUM.iter().any(|key| is_true(key) && !ours.contains(*key));
        let is_marked = !reroutes
            || is_true(keys::GLOBAL)
                && CILIUM.iter().all(|key| is_true(key))
                && annotation(metadata, keys::ORIGINAL_SELECTOR) == Some(&written(&selector))
                && text_map(&spec["selector"]) == rewritten(metadata, &selector);
        Self {
            is_copy: annotation(metadata, keys::IS_DELEGATE).is_some(),
            declared_global: declared && spec["type"] != "ExternalName",
            is_marked,
            is_plain: annotation(metadata, keys::ORIGINAL_SELECTOR).is_none(),
            selector: if spec["type"] == "ExternalName" { Pairs::new() } else { selector },
        }
    }

    /// Whether it selects a pod.
    pub(crate) fn selects(&self, labels: &Pairs) -> bool {
        !self.selector.is_empty() && self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// Whether the clusters give the Service no address.
pub(crate) fn is_headless(spec: &Value) -> bool {
    spec["clusterIP"] == "None"
}

/// The part of a spec that original and copy have in common, with a selector.
fn common(spec: &Value, selector: &Pairs) -> Value {
    let mut common: Map<String, Value> = spec.as_object().cloned().unwrap_or_default();
    let is_headless = is_headless(spec);
    common.retain(|key, _| !LOCAL.contains(&key.as_str()) && (key != "clusterIP" || is_headless));
    for port in common.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(fields) = port.as_object_mut() {
            fields.remove("nodePort");
        }
    }
    if !selector.is_empty() {
        common.insert("selector".to_owned(), json!(selector));
    }
    Value::Object(common)
}

/// The spec of the copy of an original; delegates keep the labels of their pods where the target says so.
pub(crate) fn copied(metadata: &ObjectMeta, spec: &Value, keeps_labels: bool) -> Value {
    let selector = selected(metadata, spec);
    // What the user shares by himself is shared as it is.
    let is_ours = annotation(metadata, keys::ORIGINAL_SELECTOR).is_some() || !is_shared(metadata);
    common(spec, &if keeps_labels || !is_ours { selector } else { rewritten(metadata, &selector) })
}

fn is_shared(metadata: &ObjectMeta) -> bool {
    CILIUM.iter().any(|key| annotation(metadata, key) == Some("true"))
}

/// The spec of a copy as it is, without what its cluster allocated.
pub(crate) fn as_it_is(spec: &Value) -> Value {
    common(spec, &text_map(&spec["selector"]))
}

/// Annotations by which a target's own services know that a copy is no original.
pub(crate) fn marks() -> Pairs {
    [(keys::IS_DELEGATE.to_owned(), String::new()), (keys::GLOBAL.to_owned(), "true".to_owned())].into()
}

/// Annotations of a copy besides those of its original.
pub(crate) fn annotations(reroutes: bool) -> Pairs {
    let mut all = marks();
    if reroutes {
        all.extend(CILIUM.map(|key| (key.to_owned(), "true".to_owned())));
    }
    all
}

/// What a patch of the original says of annotations and selector: rerouted, or as the user wrote it.
pub(crate) fn mark(metadata: &ObjectMeta, spec: &Value, manager: &str, reroute: bool) -> (Value, Value) {
    let was = annotation(metadata, keys::ORIGINAL_SELECTOR).is_some();
    let selector = selected(metadata, spec);
    if !reroute && !was {
        return (json!({}), json!({}));
    }
    let wanted = if reroute { rewritten(metadata, &selector) } else { selector.clone() };
    let gone = text_map(&spec["selector"]).into_keys().filter(|key| !wanted.contains_key(key));
    let mut changes: Map<String, Value> = gone.map(|key| (key, Value::Null)).collect();
    changes.extend(wanted.iter().map(|(key, value)| (key.clone(), json!(value))));
    let (_, ours) = api::managed::owned(metadata, manager);
    let mut annotations = Map::new();
    for key in CILIUM {
        // The user's own stays.
        if reroute {
            annotations.insert(key.to_owned(), json!("true"));
        } else if ours.contains(key) {
            annotations.insert(key.to_owned(), Value::Null);
        }
    }
    annotations.insert(keys::GLOBAL.to_owned(), if reroute { json!("true") } else { Value::Null });
    let kept = if reroute { json!(written(&selector)) } else { Value::Null };
    annotations.insert(keys::ORIGINAL_SELECTOR.to_owned(), kept);
    (Value::Object(annotations), json!({"selector": changes}))
}

#[cfg(test)]
mod tests {
    use super::{Service, copied, mark};
    use api::keys;
    use kube::core::ObjectMeta;
    use serde_json::{Value, json};

    fn service(annotations: &Value, selector: &Value) -> (ObjectMeta, Value) {
        let meta = serde_json::from_value(json!({"name": "web", "annotations": annotations})).unwrap();
        let spec = json!({"type": "LoadBalancer", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7", "fd00::7"],
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack", "healthCheckNodePort": 31000,
            "externalTrafficPolicy": "Local", "loadBalancerIP": "1.2.3.4", "sessionAffinity": "ClientIP",
            "futureField": true, "selector": selector,
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}]});
        (meta, spec)
    }

    #[test]
    fn w36_case_077_what_one_cluster_allocates_does_not_follow() {
        let (meta, spec) = service(&json!({}), &json!({"app": "web"}));
        assert_eq!(
            copied(&meta, &spec, false),
            json!({"sessionAffinity": "ClientIP", "futureField": true,
                "selector": {"multicluster.admiralty.io/app": "web"},
                "ports": [{"name": "http", "port": 80, "targetPort": 8080}]})
        );
        let kept = copied(&meta, &spec, true);
        assert_eq!(kept["selector"], json!({"app": "web"}), "where delegates keep their labels");
        let mut headless = spec;
        headless["clusterIP"] = json!("None");
        assert_eq!(copied(&meta, &headless, false)["clusterIP"], "None");
    }

    #[test]
    fn a_service_is_rerouted_and_remembers_what_the_user_selected() {
        let (meta, spec) = service(&json!({}), &json!({"app": "web", "x.io/tier": "front"}));
        let (annotations, change) = mark(&meta, &spec, "us", true);
        assert_eq!(
            annotations,
            json!({"io.cilium/global-service": "true", "service.cilium.io/global": "true", keys::GLOBAL: "true",
                keys::ORIGINAL_SELECTOR: "app=web,x.io/tier=front"})
        );
        assert_eq!(
            change["selector"],
            json!({"app": null, "x.io/tier": null, "multicluster.admiralty.io/app": "web",
                "multicluster.admiralty.io/tier": "front"})
        );
    }

    /// A rerouted Service.
    fn rerouted(selector: &Value) -> (ObjectMeta, Value) {
        let annotations = json!({"io.cilium/global-service": "true", "service.cilium.io/global": "true",
            keys::GLOBAL: "true", keys::ORIGINAL_SELECTOR: "app=web"});
        let (mut meta, spec) = service(&annotations, selector);
        let ours = json!([{"manager": "us", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:io.cilium/global-service": {}, "f:service.cilium.io/global": {}}}}}]);
        meta.managed_fields = serde_json::from_value(ours).unwrap();
        (meta, spec)
    }

    #[test]
    fn w40_a_rerouted_service_needs_no_other_write() {
        let (meta, spec) = rerouted(&json!({"multicluster.admiralty.io/app": "web"}));
        let seen = Service::new(&meta, &spec, ("us", true));
        assert!(seen.is_marked && !seen.declared_global);
        assert!(seen.selects(&[("app".to_owned(), "web".to_owned())].into()));
    }

    #[test]
    fn case_079_a_selector_that_was_applied_again_is_rerouted_by_one_write() {
        let (meta, spec) = rerouted(&json!({"multicluster.admiralty.io/app": "web", "app": "api"}));
        let seen = Service::new(&meta, &spec, ("us", true));
        assert!(!seen.is_marked);
        let (annotations, change) = mark(&meta, &spec, "us", true);
        assert_eq!(annotations[keys::ORIGINAL_SELECTOR], "app=api");
        assert_eq!(change["selector"], json!({"app": null, "multicluster.admiralty.io/app": "api"}));
    }

    #[test]
    fn a_reroute_is_undone_as_the_user_wrote_it() {
        let (meta, spec) = rerouted(&json!({"multicluster.admiralty.io/app": "web"}));
        let (annotations, change) = mark(&meta, &spec, "us", false);
        assert_eq!(change["selector"], json!({"app": "web", "multicluster.admiralty.io/app": null}));
        assert_eq!(
            annotations,
            json!({"io.cilium/global-service": null, "service.cilium.io/global": null, keys::GLOBAL: null,
                keys::ORIGINAL_SELECTOR: null})
        );
        let (untouched, spec) = service(&json!({}), &json!({"app": "web"}));
        assert_eq!(mark(&untouched, &spec, "us", false), (json!({}), json!({})));
    }

    #[test]
    fn w36_a_service_that_the_user_shares_is_shared_as_it_is() {
        let (meta, spec) = service(&json!({"io.cilium/global-service": "true"}), &json!({"app": "web"}));
        assert!(Service::new(&meta, &spec, ("us", true)).declared_global);
        assert_eq!(copied(&meta, &spec, false)["selector"], json!({"app": "web"}));
    }

    #[test]
    fn a_service_without_selector_selects_nothing() {
        let (meta, spec) = service(&json!({}), &Value::Null);
        assert!(
            !Service::new(&meta, &spec, ("us", true)).selects(&[("a".to_owned(), "b".to_owned())].into())
        );
    }
}
