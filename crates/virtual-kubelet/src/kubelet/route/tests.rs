use super::{Attributes, NoRoute, PodName, Route, Upgrade, attributes, logs_of, route, upgrade_of};
use http::Method;
use proptest::prelude::{any, proptest};

fn get(path: &str) -> Result<Route, NoRoute> {
    route(&Method::GET, path)
}

fn pod() -> PodName {
    PodName { namespace: "ns".into(), name: "a.b".into() }
}

#[test]
fn every_path_that_an_api_server_calls_is_known() {
    assert_eq!(get("/containerLogs/ns/a.b/c"), Ok(Route::Logs { pod: pod(), container: "c".into() }));
    for (path, kind, container) in [
        ("/exec/ns/a.b/c", Upgrade::Exec, Some("c".to_owned())),
        ("/attach/ns/a.b/c", Upgrade::Attach, Some("c".to_owned())),
        ("/portForward/ns/a.b", Upgrade::PortForward, None),
    ] {
        let want = Ok(Route::Upgrade { kind, pod: pod(), container });
        assert_eq!(route(&Method::POST, path), want);
        assert_eq!(get(path), want);
    }
    assert_eq!(get("/pods"), Ok(Route::Pods));
    assert_eq!(get("/stats/summary"), Ok(Route::Summary));
    assert_eq!(get("/metrics/resource"), Ok(Route::ResourceMetrics));
    assert_eq!(get("/healthz"), Ok(Route::Healthz));
}

#[test]
fn what_is_no_path_is_none() {
    for path in [
        "",
        "/",
        "/exec",
        "/exec/ns/a",
        "/exec/ns//c",
        "/exec/ns/a/c/d",
        "/exec/ns/../c",
        "/exec/ns/%2e%2e/c",
        "/exec/ns/a%2Fb/c",
        "/exec/ns/%ff/c",
        "/run/ns/a/c",
        "/stats/../exec/ns/a/c",
        "//exec/ns/a/c",
        "/pods/",
        "/portForward/ns/a/c",
    ] {
        assert_eq!(get(path), Err(NoRoute::Path), "{path}");
    }
    assert_eq!(route(&Method::DELETE, "/exec/ns/a/c"), Err(NoRoute::Method));
    assert_eq!(route(&Method::POST, "/containerLogs/ns/a/c"), Err(NoRoute::Method));
}

#[test]
fn rights_are_those_that_a_kubelet_asks_for() {
    let check = |method: &Method, path: &str, verb, subresources| {
        assert_eq!(attributes(method, path), Attributes { verb, subresources }, "{method} {path}");
    };
    check(&Method::GET, "/containerLogs/ns/a/c", "get", &["proxy"]);
    check(&Method::POST, "/exec/ns/a/c", "create", &["proxy"]);
    for path in ["/exec/ns/a/c", "/attach/ns/a/c", "/portForward/ns/a"] {
        check(&Method::GET, path, "create", &["proxy"]);
    }
    check(&Method::GET, "/stats/summary", "get", &["stats"]);
    check(&Method::GET, "/stats", "get", &["stats"]);
    check(&Method::GET, "/metrics/resource", "get", &["metrics"]);
    check(&Method::GET, "/pods", "get", &["pods", "proxy"]);
    check(&Method::GET, "/healthz/ping", "get", &["healthz", "proxy"]);
    check(&Method::GET, "/logs/", "get", &["log"]);
    check(&Method::GET, "/statsandmore", "get", &["proxy"]);
    check(&Method::GET, "/stats%2Fsummary", "get", &["proxy"]);
    check(&Method::PUT, "/x", "update", &["proxy"]);
    check(&Method::PATCH, "/x", "patch", &["proxy"]);
    check(&Method::DELETE, "/x", "delete", &["proxy"]);
    check(&Method::HEAD, "/stats/summary", "", &["stats"]);
}

#[test]
fn w22_no_lines_of_a_log_are_asked_for_as_none() {
    let path = logs_of("d", "ns", "c", "tailLines=0&follow=true");
    assert_eq!(path, "/api/v1/namespaces/ns/pods/d/log?container=c&tailLines=0&follow=true");
}

#[test]
fn options_of_logs_pass_and_nothing_else() {
    let path = logs_of(
        "d",
        "ns",
        "c",
        "previous=true&timestamps=true&sinceSeconds=1&sinceTime=2026-01-01T00%3A00%3A00Z&limitBytes=9&stream=All&insecureSkipTLSVerifyBackend=true&container=other",
    );
    assert_eq!(
        path,
        "/api/v1/namespaces/ns/pods/d/log?container=c&previous=true&timestamps=true&sinceSeconds=1&sinceTime=2026-01-01T00%3A00%3A00Z&limitBytes=9&stream=All"
    );
}

#[test]
fn streams_and_commands_keep_their_order_and_bytes() {
    let path = upgrade_of(
        Upgrade::Exec,
        ("ns", "d"),
        Some("c"),
        "command=sh&command=-c&command=a%26b+%3D&input=1&tty=1&output=0",
    );
    assert_eq!(
        path,
        "/api/v1/namespaces/ns/pods/d/exec?container=c&command=sh&command=-c&command=a%26b+%3D&stdin=true&tty=true"
    );
    let path = upgrade_of(Upgrade::Attach, ("ns", "d"), Some("c"), "command=x&output=1&error=1&container=y");
    assert_eq!(path, "/api/v1/namespaces/ns/pods/d/attach?container=c&stdout=true&stderr=true");
    let path = upgrade_of(Upgrade::PortForward, ("ns", "d"), None, "port=80,443&input=1");
    assert_eq!(path, "/api/v1/namespaces/ns/pods/d/portforward?ports=80&ports=443");
}

#[test]
fn names_cannot_leave_their_segment() {
    assert!(
        logs_of("a/../../x?y", "n s", "c&d=e", "")
            .starts_with("/api/v1/namespaces/n%20s/pods/a%2F..%2F..%2Fx%3Fy/log?container=c%26d%3De")
    );
}

proptest! {
    #[test]
    fn case_071_no_path_or_query_panics(path in any::<String>(), query in any::<String>(), method in "[A-Z]{1,8}") {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let known = attributes(&method, &path);
        assert!(!known.subresources.is_empty());
        if let Ok(found) = route(&method, &path) {
            assert!(!found.as_str().is_empty());
        }
        for kind in [Upgrade::Exec, Upgrade::Attach, Upgrade::PortForward] {
            assert!(upgrade_of(kind, (&path, &path), Some(&query), &query).starts_with("/api/v1/namespaces/"));
        }
        assert!(logs_of(&path, &path, &query, &query).starts_with("/api/v1/namespaces/"));
    }
}
