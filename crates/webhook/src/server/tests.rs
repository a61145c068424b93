//! The listener as an API server meets it: real TLS on a real port.

use super::{App, listen, serve};
use crate::certificates::material::tests::{made, names};
use crate::certificates::material::{CA_CERTIFICATES, CERTIFICATE, Data, KEY};
use crate::certificates::serving::{Hot, certified, from_directory};
use crate::keeper::{SharedKey, now};
use crate::mac::Key;
use crate::metrics::Metrics;
use api::keys;
use axum_server::Handle;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

struct Server {
    address: SocketAddr,
    hot: Hot,
    handle: Handle<SocketAddr>,
    registry: prometheus::Registry,
    _runtime: tokio::runtime::Runtime,
}

fn show(hot: &Hot, data: &Data) {
    hot.set(certified(&data[CERTIFICATE].0, &data[KEY].0).unwrap());
}

fn start() -> Server {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (hot, key, registry) = (Hot::default(), SharedKey::default(), prometheus::Registry::new());
    key.set(Key::new(&[1; 32]));
    let app = App { key, own_namespace: "own".into(), metrics: Metrics::new(&registry).unwrap() };
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let handle = Handle::new();
    let (served, stop) = (hot.clone(), handle.clone());
    runtime.spawn(async move { serve(listener, &served, app, stop).await });
    Server { address, hot, handle, registry, _runtime: runtime }
}

/// Whom an API server trusts that has the bundle of a Secret.
fn client(data: &Data) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&data[CA_CERTIFICATES].0) {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn call(
    server: &Server,
    config: &Arc<ClientConfig>,
    path: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let name = ServerName::try_from(names()[0].clone()).unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(server.address)?);
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: hook\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
}

fn review(object: &Value) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "the-uid",
        "operation": "CREATE", "namespace": "shop", "name": "web-0",
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": object}})
    .to_string()
}

fn response(body: &str) -> Value {
    serde_json::from_str::<Value>(body).unwrap()["response"].clone()
}

fn elected() -> Value {
    json!({"metadata": {"annotations": {keys::ELECT: ""}}, "spec": {"containers": []}})
}

fn ready() -> (Server, Arc<ClientConfig>) {
    let server = start();
    let data = made(now());
    show(&server.hot, &data);
    (server, client(&data))
}

#[test]
fn a_review_is_answered_with_a_patch_over_tls() {
    let (server, client) = ready();
    let (code, body) = call(&server, &client, "/mutate--v1-pod", &review(&elected())).unwrap();
    let response = response(&body);
    assert_eq!((code, &response["uid"], &response["allowed"]), (200, &json!("the-uid"), &json!(true)));
    assert_eq!(response["patchType"], "JSONPatch");
    assert!(response["patch"].as_str().unwrap().len() > 100);
}

#[test]
fn a_refusal_is_an_answer_with_code_and_text() {
    let (server, client) = ready();
    let mut pod = elected();
    pod["metadata"]["annotations"][keys::SOURCE_POD_MANIFEST] = "{}".into();
    for path in ["/mutate--v1-pod", "/validate"] {
        let (code, body) = call(&server, &client, path, &review(&pod)).unwrap();
        let response = response(&body);
        assert_eq!(
            (code, &response["allowed"], &response["status"]["code"]),
            (200, &json!(false), &json!(403))
        );
        assert!(response["status"]["message"].as_str().unwrap().contains("remove it"), "{body}");
    }
}

#[test]
fn a_body_that_is_no_review_is_a_bad_request() {
    let (server, client) = ready();
    let old = review(&elected()).replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1");
    for body in ["", "{}", "no json", "[1", &old] {
        assert_eq!(call(&server, &client, "/validate", body).unwrap().0, 400, "{body}");
    }
    assert_eq!(call(&server, &client, "/other", "").unwrap().0, 404);
}

#[test]
fn a_pod_as_large_as_an_api_server_takes_is_answered() {
    let (server, client) = ready();
    let mut pod = elected();
    pod["spec"]["containers"] = json!([{"name": "c", "args": ["x".repeat(3 * 1024 * 1024)]}]);
    let (code, body) = call(&server, &client, "/mutate--v1-pod", &review(&pod)).unwrap();
    assert_eq!((code, &response(&body)["allowed"]), (200, &json!(false)));
}

#[test]
fn reviews_are_counted_by_operation_and_verdict() {
    let (server, client) = ready();
    call(&server, &client, "/mutate--v1-pod", &review(&elected())).unwrap();
    call(&server, &client, "/validate", "{}").unwrap();
    let text = prometheus::TextEncoder::new().encode_to_string(&server.registry.gather()).unwrap();
    for line in [
        r#"multicluster_webhook_reviews_total{operation="create",verdict="patched"} 1"#,
        r#"multicluster_webhook_reviews_total{operation="other",verdict="malformed"} 1"#,
        "multicluster_webhook_review_duration_seconds_count 2",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn a_new_certificate_is_shown_without_a_restart() {
    let server = start();
    let (old, new) = (made(now()), made(now()));
    let call = |trusted: &Data| call(&server, &client(trusted), "/mutate--v1-pod", &review(&elected()));
    show(&server.hot, &old);
    assert_eq!(call(&old).unwrap().0, 200);
    show(&server.hot, &new);
    assert_eq!(call(&new).unwrap().0, 200);
    let distrusted = call(&old).unwrap_err();
    assert!(distrusted.to_string().contains("certificate"), "{distrusted}");
}

#[test]
fn case_011_without_a_certificate_nothing_is_answered() {
    let server = start();
    let config = client(&made(now()));
    assert!(call(&server, &config, "/validate", "{}").is_err());
}

#[test]
fn the_listener_closes_when_asked() {
    let (server, client) = ready();
    assert_eq!(call(&server, &client, "/validate", "{}").unwrap().0, 400);
    server.handle.graceful_shutdown(Some(std::time::Duration::from_millis(10)));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while TcpStream::connect(server.address).is_ok() {
        assert!(std::time::Instant::now() < deadline, "still listening");
        std::thread::yield_now();
    }
}

#[test]
fn a_mounted_certificate_is_read_and_a_half_written_one_refused() {
    let directory = std::env::temp_dir().join(format!("webhook-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (first, second) = (made(now()), made(now()));
    let write = |name: &str, data: &Data| std::fs::write(directory.join(name), &data[name].0).unwrap();
    write(CERTIFICATE, &first);
    assert!(runtime.block_on(from_directory(&directory)).is_err());
    write(KEY, &first);
    let hot = Hot::default();
    hot.set(runtime.block_on(from_directory(&directory)).unwrap());
    assert!(!hot.differs(&runtime.block_on(from_directory(&directory)).unwrap()));
    write(CERTIFICATE, &second);
    assert!(runtime.block_on(from_directory(&directory)).is_err());
    write(KEY, &second);
    assert!(hot.differs(&runtime.block_on(from_directory(&directory)).unwrap()));
    std::fs::remove_dir_all(&directory).unwrap();
}
