//! Which path of a kubelet's API a request means, and what it becomes at the target's API server. Pure.

use form_urlencoded::Serializer;
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What a segment of a path may hold as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Parameters of a kubelet's logs; those of an API server have the same names.
const LOG_OPTIONS: &[&str] =
    &["follow", "limitBytes", "previous", "sinceSeconds", "sinceTime", "stream", "tailLines", "timestamps"];
/// Parameters of a kubelet's exec and attach, and their names at an API server.
const STREAM_OPTIONS: &[(&str, &str)] =
    &[("input", "stdin"), ("output", "stdout"), ("error", "stderr"), ("tty", "tty")];

/// A pod, as a path names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// What one can do in a pod over a connection that is upgraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upgrade {
    Exec,
    Attach,
    PortForward,
}

/// A path that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Logs { pod: PodName, container: String },
    Upgrade { kind: Upgrade, pod: PodName, container: Option<String> },
    Pods,
    Summary,
    ResourceMetrics,
    CadvisorMetrics,
    Healthz,
}

impl Route {
    /// A word for metrics and logs.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Route::Logs { .. } => "logs",
            Route::Upgrade { kind: Upgrade::Exec, .. } => "exec",
            Route::Upgrade { kind: Upgrade::Attach, .. } => "attach",
            Route::Upgrade { kind: Upgrade::PortForward, .. } => "portforward",
            Route::Pods => "pods",
            Route::Summary => "stats",
            Route::ResourceMetrics | Route::CadvisorMetrics => "metrics",
            Route::Healthz => "healthz",
        }
    }
}

/// Why a request means nothing here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoute {
    /// No such path.
    Path,
    /// The path has another method.
    Method,
}

/// The segments of a path, decoded; `None` where one cannot be, or would hide a slash.
fn segments(path: &str) -> Option<Vec<String>> {
    let decode = |segment: &str| {
        let decoded = percent_decode_str(segment).decode_utf8().ok()?.into_owned();
        (!decoded.contains('/') && !decoded.contains('\0')).then_some(decoded)
    };
    path.strip_prefix('/')?.split('/').map(decode).collect()
}

/// The route of a request.
pub(crate) fn route(method: &Method, path: &str) -> Result<Route, NoRoute> {
    let segments = segments(path).ok_or(NoRoute::Path)?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    if segments.iter().skip(1).any(|segment| matches!(*segment, "." | "..")) {
        return Err(NoRoute::Path);
    }
    let pod = |namespace: &str, name: &str| PodName { namespace: namespace.into(), name: name.into() };
    let found = match segments.as_slice() {
        [_, rest @ ..] if rest.iter().any(|segment| segment.is_empty()) => return Err(NoRoute::Path),
        ["containerLogs", namespace, name, container] => {
            Route::Logs { pod: pod(namespace, name), container: (*container).into() }
        }
        ["exec", namespace, name, container] => Route::Upgrade {
            kind: Upgrade::Exec,
            pod: pod(namespace, name),
            container: Some((*container).into()),
        },
        ["attach", namespace, name, container] => Route::Upgrade {
            kind: Upgrade::Attach,
            pod: pod(namespace, name),
            container: Some((*container).into()),
        },
        ["portForward", namespace, name] => {
            Route::Upgrade { kind: Upgrade::PortForward, pod: pod(namespace, name), container: None }
        }
        ["pods"] => Route::Pods,
        ["stats", "summary"] => Route::Summary,
        ["metrics", "resource"] => Route::ResourceMetrics,
        ["metrics", "cadvisor"] => Route::CadvisorMetrics,
        ["healthz"] => Route::Healthz,
        _ => return Err(NoRoute::Path),
    };
    let upgrades = matches!(found, Route::Upgrade { .. });
    // An older client posts, and one that speaks WebSocket gets.
    let right = method == Method::GET || (upgrades && method == Method::POST);
    if right { Ok(found) } else { Err(NoRoute::Method) }
}

/// What a caller must be allowed to do with the node, as a kubelet asks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Empty for a method that means no verb: nobody has a right to that but who has all.
    pub(crate) verb: &'static str,
    /// Any of these subresources is enough.
    pub(crate) subresources: &'static [&'static str],
}

/// The right that a request needs, whether or not there is such a path.
///
/// In one thing this is stricter than a kubelet: what runs in a container is a create even where a WebSocket
/// client gets it, so that a right to read `nodes/proxy`, as monitoring often has it, opens no shell.
pub(crate) fn attributes(method: &Method, path: &str) -> Attributes {
    let segments = segments(path).unwrap_or_default();
    let first = segments.first().map_or("", String::as_str);
    let verb = match method.as_str() {
        "GET" if matches!(first, "exec" | "attach" | "portForward" | "run") => "create",
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    };
    let subresources: &'static [&'static str] = match first {
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "checkpoint" => &["checkpoint"],
        "statusz" => &["statusz"],
        "flagz" => &["configz"],
        "pods" | "runningpods" | "allocatedpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        _ => &["proxy"],
    };
    Attributes { verb, subresources }
}

fn pod_path(namespace: &str, delegate: &str, subresource: &str) -> String {
    let (namespace, delegate) =
        (utf8_percent_encode(namespace, SEGMENT), utf8_percent_encode(delegate, SEGMENT));
    format!("/api/v1/namespaces/{namespace}/pods/{delegate}/{subresource}")
}

fn truthy(value: &str) -> bool {
    matches!(value, "1" | "true" | "t" | "T" | "TRUE" | "True")
}

/// Path and query of the delegate's logs at an API server. Options pass as they are: no lines are none.
pub(crate) fn logs_of(delegate: &str, namespace: &str, container: &str, query: &str) -> String {
    let mut wanted = Serializer::new(String::new());
    wanted.append_pair("container", container);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if LOG_OPTIONS.contains(&name.as_ref()) {
            wanted.append_pair(&name, &value);
        }
    }
    format!("{}?{}", pod_path(namespace, delegate, "log"), wanted.finish())
}

/// Path and query of an upgrade at an API server.
pub(crate) fn upgrade_of(
    kind: Upgrade,
    (namespace, delegate): (&str, &str),
    container: Option<&str>,
    query: &str,
) -> String {
    let mut wanted = Serializer::new(String::new());
    if let Some(container) = container {
        wanted.append_pair("container", container);
    }
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let option = STREAM_OPTIONS.iter().find(|(kubelet, _)| *kubelet == name);
        match (kind, option, name.as_ref()) {
            (Upgrade::Exec | Upgrade::Attach, Some((_, option)), _) if truthy(&value) => {
                wanted.append_pair(option, "true");
            }
            (Upgrade::Exec, None, "command") => {
                wanted.append_pair("command", &value);
            }
            (Upgrade::PortForward, _, "port") => {
                for port in value.split(',') {
                    wanted.append_pair("ports", port);
                }
            }
            (Upgrade::Exec | Upgrade::Attach | Upgrade::PortForward, _, _) => {}
        }
    }
    let subresource = match kind {
        Upgrade::Exec => "exec",
        Upgrade::Attach => "attach",
        Upgrade::PortForward => "portforward",
    };
    format!("{}?{}", pod_path(namespace, delegate, subresource), wanted.finish())
}

#[cfg(test)]
mod tests;
