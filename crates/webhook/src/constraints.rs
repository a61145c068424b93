//! Where a proxy pod may go: constraints on virtual nodes, from a user's annotation or from the pod itself.

use api::keys;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Map, Value, json};

/// Taints of a node whose kubelet does not answer, which a proxy pod outlasts.
const OUTAGES: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// The fields that are used.
const FIELDS: [&str; 4] = ["nodeSelector", "tolerations", "affinity", "topologySpreadConstraints"];

/// The four fields of a proxy pod's spec that say where it may go.
#[derive(Debug, Clone, PartialEq)]
pub struct Constraints {
    /// Virtual nodes only, and what the user asks of them.
    pub node_selector: Value,
    /// The taints of virtual nodes, outages without limit, and what the user tolerates.
    pub tolerations: Value,
    /// The user's, or none.
    pub affinity: Option<Value>,
    /// The user's, or none.
    pub spread: Option<Value>,
}

/// Constraints of a proxy pod, and warnings about what of the user's is not used.
///
/// # Errors
///
/// The text of a refusal: the annotation is no fragment of a pod's spec.
pub fn of(source: &Value) -> Result<(Constraints, Vec<String>), String> {
    let annotation = |key| api::election::annotation(source, key);
    if let Some(text) = annotation(keys::PROXY_POD_SCHEDULING_CONSTRAINTS) {
        let (fragment, warnings) = decode(text).map_err(|why| {
            format!("metadata.annotations[{}]: {why}", keys::PROXY_POD_SCHEDULING_CONSTRAINTS)
        })?;
        return Ok((build(&fragment), warnings));
    }
    let spec = source.get("spec").and_then(Value::as_object);
    let own = annotation(keys::USE_CONSTRAINTS_FROM_SPEC).and(spec);
    Ok((build(own.unwrap_or(&Map::new())), Vec::new()))
}

fn build(user: &Map<String, Value>) -> Constraints {
    let mut node_selector = user.get("nodeSelector").and_then(Value::as_object).cloned().unwrap_or_default();
    node_selector.entry(keys::PROVIDER).or_insert_with(|| keys::PROVIDER_VALUE.into());
    let given = |field: &str| user.get(field).filter(|value| !is_empty(value)).cloned();
    Constraints {
        node_selector: Value::Object(node_selector),
        tolerations: tolerations(
            user.get("tolerations").and_then(Value::as_array).map_or(&[], Vec::as_slice),
        ),
        affinity: given("affinity"),
        spread: given("topologySpreadConstraints"),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The outages are tolerated without limit, whatever the user says of them: a taint eviction would start a
/// replacement while the delegate still runs. The user's own limits are the delegate's.
fn tolerations(user: &[Value]) -> Value {
    let mut all = vec![
        json!({"key": keys::PROVIDER, "value": keys::PROVIDER_VALUE}),
        json!({"key": "node.kubernetes.io/network-unavailable", "operator": "Exists"}),
    ];
    all.extend(OUTAGES.map(|key| json!({"key": key, "operator": "Exists", "effect": "NoExecute"})));
    for toleration in user {
        let mut toleration = toleration.clone();
        let key = toleration["key"].as_str().unwrap_or_default();
        if OUTAGES.contains(&key) {
            continue;
        }
        if let (true, Some(fields)) = (key.is_empty(), toleration.as_object_mut()) {
            fields.remove("tolerationSeconds");
        }
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    Value::Array(all)
}

/// Reads a fragment of a pod's spec strictly: a field that no pod has is an error, one that is not used a
/// warning.
fn decode(text: &str) -> Result<(Map<String, Value>, Vec<String>), String> {
    let fragment: Value = if text.trim().is_empty() {
        Value::Null
    } else {
        serde_yaml::from_str(text)
            .map_err(|error| format!("it is not YAML: {}", first_line(&error.to_string())))?
    };
    let fields = match fragment {
        Value::Null => Map::new(),
        Value::Object(fields) => fields,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(format!("it must be a mapping with some of the fields {}", FIELDS.join(", ")));
        }
    };
    let mut used = Map::new();
    let mut warnings = Vec::new();
    for (name, value) in fields {
        let typed = typed(&name, &value)?;
        if FIELDS.contains(&name.as_str()) {
            used.insert(name, typed);
        } else {
            let key = keys::PROXY_POD_SCHEDULING_CONSTRAINTS;
            warnings.push(format!("metadata.annotations[{key}]: field {name} is not used"));
        }
    }
    Ok((used, warnings))
}

/// One field of a pod's spec as Kubernetes understands it, or why it does not.
fn typed(name: &str, value: &Value) -> Result<Value, String> {
    let spec: PodSpec = serde_json::from_value(json!({"containers": [], name: value}))
        .map_err(|error| format!("field {name}: {}", first_line(&error.to_string())))?;
    let mut understood = serde_json::to_value(spec).map_err(|error| format!("field {name}: {error}"))?;
    let understood = understood.get_mut(name).map(Value::take).unwrap_or_default();
    match lost(name, value, &understood) {
        Some(path) => Err(format!("field {path} is unknown; fields that count are {}", FIELDS.join(", "))),
        None => Ok(understood),
    }
}

/// The path of the first field that did not survive typing.
fn lost(path: &str, given: &Value, understood: &Value) -> Option<String> {
    match (given, understood) {
        (Value::Null, _) => None,
        (Value::Object(given), Value::Object(understood)) => given.iter().find_map(|(key, value)| {
            lost(&format!("{path}.{key}"), value, understood.get(key).unwrap_or(&Value::Null))
        }),
        (Value::Array(given), Value::Array(understood)) => {
            given.iter().enumerate().find_map(|(index, value)| {
                lost(&format!("{path}[{index}]"), value, understood.get(index).unwrap_or(&Value::Null))
            })
        }
        (_, Value::Null) => Some(path.to_owned()),
        (
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_),
        ) => None,
    }
}

/// Parsers print the input below their message, which does not belong into one line for a user.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
