//! What the kubelet of the node `harness` knows of a pod's spec.
//!
//! A field that it would silently ignore is a fault: the chart asks for something that was not tested.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

const POD: &[&str] = &[
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "dnsPolicy",
    "enableServiceLinks",
    "imagePullSecrets",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "restartPolicy",
    "schedulerName",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
];

const CONTAINER: &[&str] = &[
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resources",
    "securityContext",
    "startupProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeMounts",
];

const LIFECYCLE: &[&str] = &["preStop"];
const PRE_STOP: &[&str] = &["sleep"];
const PORT: &[&str] = &["containerPort", "name", "protocol"];
const SECURITY: &[&str] = &[
    "allowPrivilegeEscalation",
    "capabilities",
    "fsGroup",
    "readOnlyRootFilesystem",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "seccompProfile",
];

/// The fields of a pod's spec that this kubelet does not know, as paths.
pub(super) fn unknown(pod: &Pod) -> Vec<String> {
    let spec = json!(pod.spec);
    let mut found = Vec::new();
    beyond(&spec, "spec", POD, &mut found);
    beyond(spec.get("securityContext").unwrap_or(&Value::Null), "spec.securityContext", SECURITY, &mut found);
    for kind in ["initContainers", "containers"] {
        for container in spec.get(kind).and_then(Value::as_array).into_iter().flatten() {
            beyond(container, kind, CONTAINER, &mut found);
            for (pointer, known) in
                [("/lifecycle", LIFECYCLE), ("/lifecycle/preStop", PRE_STOP), ("/securityContext", SECURITY)]
            {
                beyond(container.pointer(pointer).unwrap_or(&Value::Null), kind, known, &mut found);
            }
            for port in container.get("ports").and_then(Value::as_array).into_iter().flatten() {
                beyond(port, "ports", PORT, &mut found);
            }
        }
    }
    found
}

fn beyond(value: &Value, path: &str, known: &[&str], found: &mut Vec<String>) {
    let keys = value.as_object().into_iter().flatten().map(|(key, _)| key);
    found.extend(keys.filter(|key| !known.contains(&key.as_str())).map(|key| format!("{path}.{key}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: &Value, want: &[&str]) {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
        assert_eq!(unknown(&pod), want);
    }

    #[test]
    fn what_is_known_is_no_fault() {
        check(&json!({"containers": [{"name": "a", "image": "b", "ports": [{"containerPort": 1}]}]}), &[]);
        let sleep = json!({"preStop": {"sleep": {"seconds": 4}}});
        check(&json!({"containers": [{"name": "a", "lifecycle": sleep}]}), &[]);
    }

    #[test]
    fn what_would_be_ignored_is_a_fault() {
        check(&json!({"hostNetwork": true, "containers": []}), &["spec.hostNetwork"]);
        let exec = json!({"preStop": {"exec": {"command": ["x"]}}});
        check(&json!({"containers": [{"name": "a", "lifecycle": exec}]}), &["containers.exec"]);
        let port = json!([{"containerPort": 1, "hostPort": 1}]);
        check(
            &json!({"initContainers": [{"name": "a", "ports": port}], "containers": []}),
            &["ports.hostPort"],
        );
    }
}
