//! Logs, exec, cp, attach and port-forward of proxy pods with plain kubectl, over WebSocket and over SPDY.
//!
//! The delegates run on fake nodes, in whose containers commands of the machine run.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use e2e::controlplane::STREAMS;
use e2e::ground::Ground;
use e2e::pki::{Identity, Pki};
use e2e::setup::{SOURCE, virtual_node};
use e2e::wait::until;
use e2e::{helm, namespaces};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use kube::config::AuthInfo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::guest::{becomes, fake_pod, with};
use crate::scene::{LONG, Scene, condition, create, key, merge, pinned};

const TARGET: &str = "target-1";
pub(crate) const MEGABYTE: usize = 1024 * 1024;
/// The two ways in which kubectl streams.
pub(crate) const PROTOCOLS: [&str; 2] = ["true", "false"];

/// A proxy pod whose delegate runs in a fake node of one target.
pub(crate) struct Streams<'a> {
    pub(crate) scene: Scene<'a>,
    pub(crate) folder: PathBuf,
}

impl<'a> Streams<'a> {
    async fn open(ground: &'a Ground, namespace: &str, containers: &[&str]) -> Result<Self> {
        let scene = Scene::open(ground, namespace).await?;
        let containers: Vec<Value> =
            containers.iter().map(|name| json!({"name": name, "image": "nowhere.example/any:1"})).collect();
        let pod = with(fake_pod("pod"), "/spec/containers", json!(containers))?;
        scene.pod(pinned(pod, TARGET)?).await?;
        becomes(scene.source, namespace, "pod", "Ready").await?;
        let folder = ground.cluster(TARGET)?.local()?.folder.join(STREAMS);
        Ok(Self { scene, folder })
    }

    fn file(&self, name: &str, lines: &[&str]) -> Result<()> {
        std::fs::write(self.folder.join(name), logged(lines)).context("cannot write a log")
    }

    /// A kubectl in the pod's namespace.
    pub(crate) fn kubectl(&self, web_sockets: &str, arguments: &[&str]) -> Result<Command> {
        let mut all = vec!["-n", self.scene.namespace.as_str()];
        all.extend(arguments);
        let mut command = helm::command(self.scene.ground, self.scene.source, "kubectl", &all)?;
        command
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", web_sockets)
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", web_sockets)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }

    async fn logs(&self, arguments: &[&str]) -> Result<String> {
        let mut all = vec!["logs", "pod"];
        all.extend(arguments);
        let done = finish(self.kubectl("true", &all)?, &[]).await?;
        ensure!(done.code == Some(0), "kubectl logs {arguments:?}: {}", done.errors);
        Ok(String::from_utf8_lossy(&done.output).into_owned())
    }
}

/// Lines as a container runtime writes them, one a second.
pub(crate) fn logged(lines: &[&str]) -> String {
    let each = lines.iter().enumerate();
    each.map(|(second, line)| format!("2026-01-01T00:00:{second:02}.000000000Z stdout F {line}\n")).collect()
}

pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: String,
}

/// Runs a command with these bytes as its input.
pub(crate) async fn finish(mut command: Command, input: &[u8]) -> Result<Done> {
    let mut child = command.spawn().context("cannot start kubectl")?;
    let mut stdin = child.stdin.take().context("no input")?;
    let write = async {
        // A command that ends early leaves input unread.
        let _unread = stdin.write_all(input).await;
        drop(stdin);
    };
    let (output, ()) = tokio::time::timeout(LONG, async { tokio::join!(child.wait_with_output(), write) })
        .await
        .context("kubectl does not end")?;
    let output = output.context("cannot read what kubectl prints")?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Done { code: output.status.code(), output: output.stdout, errors })
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes without a pattern, different for each seed.
pub(crate) fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

pub(crate) async fn w22_w38_logs_with_all_their_options_are_the_delegates(ground: &Ground) -> Result<()> {
    let streams = Streams::open(ground, "streams-logs", &["main", "follow"]).await?;
    streams.file("main.log", &["one", "two", "three"])?;
    streams.file("main.previous.log", &["before"])?;
    streams.file("follow.log", &["first"])?;
    for (arguments, want) in [
        (&["-c", "main"][..], "one\ntwo\nthree\n"),
        (&["-c", "main", "--tail=1"], "three\n"),
        (&["-c", "main", "--tail=0"], ""),
        (&["-c", "main", "--previous"], "before\n"),
        (&["-c", "main", "--limit-bytes=5"], "one\nt"),
        (&["-c", "main", "--since-time=2026-01-01T00:00:02Z"], "three\n"),
        (&["-c", "main", "--timestamps", "--tail=1"], "2026-01-01T00:00:02.000000000Z three\n"),
    ] {
        let got = streams.logs(arguments).await?;
        ensure!(got == want, "kubectl logs {arguments:?} prints {got:?}");
    }
    let mut follow = streams.kubectl("true", &["logs", "pod", "-c", "follow", "-f"])?.spawn()?;
    let mut lines = BufReader::new(follow.stdout.take().context("no output")?).lines();
    ensure!(next(&mut lines).await? == "first", "the first line is another one");
    for line in ["second", "third"] {
        let mut file = std::fs::OpenOptions::new().append(true).open(streams.folder.join("follow.log"))?;
        std::io::Write::write_all(&mut file, logged(&[line]).as_bytes())?;
        ensure!(next(&mut lines).await? == line, "the line that follows is another one");
    }
    follow.kill().await?;
    let absent = finish(streams.kubectl("true", &["logs", "pod", "-c", "absent"])?, &[]).await?;
    ensure!(absent.code == Some(1) && absent.errors.contains("absent"), "{}", absent.errors);
    streams.scene.close().await
}

async fn next<R: tokio::io::AsyncBufRead + Unpin>(lines: &mut tokio::io::Lines<R>) -> Result<String> {
    let line = tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await;
    line.context("no line comes")??.context("no line is left")
}

pub(crate) async fn case_070_exec_keeps_every_byte_and_word(ground: &Ground) -> Result<()> {
    let streams = Streams::open(ground, "streams-exec", &["main"]).await?;
    for web_sockets in PROTOCOLS {
        let script = "echo out; echo err >&2";
        let command = streams.kubectl(web_sockets, &["exec", "pod", "--", "sh", "-c", script])?;
        let done = finish(command, &[]).await?;
        ensure!(done.code == Some(0) && done.output == b"out\n", "{:?} {}", done.code, done.errors);
        ensure!(done.errors == "err\n", "{:?}", done.errors);
        // What the kubelet says of a command that fails passes word for word.
        let command =
            streams.kubectl(web_sockets, &["exec", "pod", "--", "sh", "-c", "echo out; exit 137"])?;
        let done = finish(command, &[]).await?;
        ensure!(done.code != Some(0) && done.output == b"out\n", "{:?}", done.code);
        ensure!(done.errors.contains("137"), "{:?}", done.errors);
        let sent = noise(10 * MEGABYTE, 7);
        let size = sent.len().to_string();
        // Nobody reads at first, so that the way there fills up. kwok tells no command of the end of its input.
        let slow = format!("sleep 2; head -c {size} | sha256sum");
        let slow = slow.as_str();
        let command = streams.kubectl(web_sockets, &["exec", "-i", "pod", "--", "sh", "-c", slow])?;
        let done = finish(command, &sent).await?;
        let got = String::from_utf8_lossy(&done.output).into_owned();
        ensure!(got.starts_with(&digest(&sent)), "{web_sockets}: {got:?} {}", done.errors);
        let command = streams.kubectl(web_sockets, &["exec", "-i", "pod", "--", "head", "-c", &size])?;
        let done = finish(command, &sent).await?;
        ensure!(
            digest(&done.output) == digest(&sent),
            "{web_sockets}: {} bytes came back",
            done.output.len()
        );
    }
    streams.scene.close().await
}

pub(crate) async fn case_130_files_are_copied_and_attach_shows_the_main_process(
    ground: &Ground,
) -> Result<()> {
    let streams = Streams::open(ground, "streams-cp", &["main"]).await?;
    let here = streams.folder.with_file_name("copied");
    std::fs::create_dir_all(&here)?;
    // Out of the container alone: kwok tells the command that unpacks on the way in of no end.
    let (there, down) = (here.join("there"), here.join("down"));
    std::fs::write(&there, noise(3 * MEGABYTE, 9))?;
    let (from, to) = (format!("pod:{}", there.display()), down.display().to_string());
    let done = finish(streams.kubectl("true", &["cp", &from, &to])?, &[]).await?;
    ensure!(done.code == Some(0), "kubectl cp {from} {to}: {}", done.errors);
    ensure!(digest(&std::fs::read(&there)?) == digest(&std::fs::read(&down)?), "another file came back");
    for web_sockets in PROTOCOLS {
        streams.file("attach.log", &[])?;
        let mut attach = streams.kubectl(web_sockets, &["attach", "pod"])?.spawn()?;
        let mut lines = BufReader::new(attach.stdout.take().context("no output")?).lines();
        // It shows what is printed from now on, so print until something is seen.
        let path = streams.folder.join("attach.log");
        let printing = async {
            loop {
                let mut file = std::fs::OpenOptions::new().append(true).open(&path)?;
                std::io::Write::write_all(&mut file, logged(&["it works"]).as_bytes())?;
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        };
        let line: Result<String> = tokio::select! {
            line = next(&mut lines) => line,
            failed = printing => failed,
        };
        ensure!(line? == "it works", "attach shows something else");
        attach.kill().await?;
    }
    streams.scene.close().await
}

/// A running `kubectl port-forward` of one of the pod's ports, and the local port.
pub(crate) async fn forward(streams: &Streams<'_>, web_sockets: &str, port: u16) -> Result<(Child, u16)> {
    let mut child =
        streams.kubectl(web_sockets, &["port-forward", "pod/pod", &format!(":{port}")])?.spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let line = next(&mut lines).await?;
    let port = line
        .strip_prefix("Forwarding from 127.0.0.1:")
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .with_context(|| format!("kubectl says {line:?}"))?;
    // What it says later must be read, or it would wait for that.
    tokio::spawn(async move { while let Ok(Some(_line)) = lines.next_line().await {} });
    Ok((child, port))
}

pub(crate) async fn echoed(port: u16, sent: Vec<u8>) -> Result<Vec<u8>> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.context("cannot connect to kubectl")?;
    let (mut from, mut to) = stream.into_split();
    let mut got = vec![0; sent.len()];
    // The connection stays open until everything is back.
    let write = tokio::spawn(async move { to.write_all(&sent).await.map(|()| to) });
    let read = tokio::time::timeout(LONG, from.read_exact(&mut got)).await;
    read.context("the echo does not end")?.context("the echo breaks off")?;
    drop(write.await?.context("cannot send")?);
    Ok(got)
}

pub(crate) async fn w38_a_forwarded_port_carries_every_byte(ground: &Ground) -> Result<()> {
    let streams = Streams::open(ground, "streams-forward", &["main"]).await?;
    for web_sockets in PROTOCOLS {
        let (mut child, port) = forward(&streams, web_sockets, 80).await?;
        let sent: Vec<Vec<u8>> = (0..3).map(|seed| noise(16 * MEGABYTE, seed)).collect();
        let echoes = sent.iter().map(|bytes| echoed(port, bytes.clone()));
        for (got, sent) in futures::future::try_join_all(echoes).await?.iter().zip(&sent) {
            ensure!(digest(got) == digest(sent), "{web_sockets}: {} bytes came back", got.len());
        }
        child.kill().await?;
    }
    streams.scene.close().await
}

/// Where a virtual node serves, once it shows a certificate of the cluster's signer.
async fn endpoint(ground: &Ground, target: &str) -> Result<(String, String)> {
    let node = virtual_node(ground, target).await?;
    let nodes: Api<Node> = Api::all(ground.cluster(SOURCE)?.client.clone());
    until(LONG, &format!("node {node} serves with an issued certificate"), async || {
        let status = json!(nodes.get(&node).await?.status);
        let serving = condition(&status, "KubeletServing").context("no condition")?;
        let port = status.pointer("/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
        let address = status.pointer("/addresses/0/address").and_then(Value::as_str);
        match (serving["status"].as_str(), port, address) {
            (Some("True"), Some(port), Some(address)) => {
                Ok(Some((node.clone(), format!("https://{address}:{port}"))))
            }
            _ => bail!("{serving} {port:?}"),
        }
    })
    .await
}

/// A client of a kubelet API that demands a certificate of the cluster's authority.
fn caller(ground: &Ground, endpoint: &str, auth: AuthInfo) -> Result<kube::Client> {
    let mut config = kube::Config::new(endpoint.parse().context("not a URL")?);
    let authority = CertificateDer::from_pem_slice(ground.cluster(SOURCE)?.authority.as_bytes());
    config.root_cert = Some(vec![authority.context("no authority")?.to_vec()]);
    config.auth_info = auth;
    kube::Client::try_from(config).context("cannot make a client")
}

async fn code(client: &kube::Client, method: &str, path: &str) -> Result<u16> {
    let request = http::Request::builder().method(method).uri(path).body(kube::client::Body::empty())?;
    Ok(client.send(request).await.with_context(|| format!("{method} {path}"))?.status().as_u16())
}

/// Everything that a kubelet has, what it does not have, and what only looks like it.
const PATHS: [&str; 21] = [
    "/containerLogs/ns/pod/main",
    "/exec/ns/pod/main?command=id&output=1",
    "/attach/ns/pod/main?output=1",
    "/portForward/ns/pod",
    "/run/ns/pod/main?cmd=id",
    "/pods",
    "/runningpods/",
    "/stats/summary",
    "/metrics",
    "/metrics/resource",
    "/metrics/cadvisor",
    "/healthz",
    "/configz",
    "/logs/",
    "/",
    "/exec",
    "/stats/../exec/ns/pod/main",
    "/%65xec/ns/pod/main",
    "/exec/ns/..%2fpod/main",
    "/unknown",
    "/metrics/%00",
];

/// Tries every path with every method.
async fn refused_everywhere(client: &kube::Client, want: u16) -> Result<()> {
    for path in PATHS {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] {
            let code = code(client, method, path).await?;
            ensure!(code == want, "{method} {path} is answered by {code}, not {want}");
        }
    }
    Ok(())
}

pub(crate) async fn w27_nobody_reaches_a_kubelet_path_without_a_right_to_the_node(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "streams-rights").await?;
    let (node, at) = endpoint(ground, TARGET).await?;
    let token = async |account: &str| {
        let arguments = ["create", "token", account, "-n", &scene.namespace];
        helm::kubectl(ground, scene.source, &arguments).await.map(|token| bearer(token.trim()))
    };
    for account in ["reader", "operator"] {
        let object = json!({"metadata": {"name": account}});
        scene.create("v1", "ServiceAccount", object).await?;
    }
    let other = Pki::create(&namespaces::work().join("other-pki"), "other-ca")?;
    let forged = certificate(&other.client("forged", "kube-apiserver", "system:masters")?);
    for stranger in [AuthInfo::default(), bearer("e30.e30.e30"), forged] {
        refused_everywhere(&caller(ground, &at, stranger)?, 401).await.context("a stranger")?;
    }
    let default = caller(ground, &at, token("default").await?)?;
    refused_everywhere(&default, 403).await.context("an account without rights")?;
    for (account, resources, verbs) in [
        ("reader", json!(["nodes/proxy"]), json!(["get"])),
        ("operator", json!(["nodes/proxy"]), json!(["*"])),
    ] {
        let name = format!("streams-rights-{account}");
        let rules =
            json!([{"apiGroups": [""], "resources": resources, "verbs": verbs, "resourceNames": [node]}]);
        let role = json!({"metadata": {"name": name}, "rules": rules});
        create(scene.source, None, ("rbac.authorization.k8s.io/v1", "ClusterRole"), role).await?;
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": scene.namespace}]});
        create(scene.source, None, ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"), binding).await?;
    }
    let reader = caller(ground, &at, token("reader").await?)?;
    let operator = caller(ground, &at, token("operator").await?)?;
    until(LONG, "roles are in force", async || {
        Ok((code(&reader, "GET", "/healthz").await? == 200 && code(&operator, "GET", "/pods").await? == 200)
            .then_some(()))
    })
    .await?;
    for (client, method, path, want) in [
        (&reader, "GET", "/containerLogs/ns/pod/main", 404),
        (&reader, "GET", "/exec/ns/pod/main", 403),
        (&reader, "POST", "/exec/ns/pod/main", 403),
        (&reader, "GET", "/stats/summary", 403),
        (&operator, "POST", "/pods", 405),
        (&operator, "GET", "/exec/ns/pod/main", 400),
        (&operator, "GET", "/unknown", 404),
    ] {
        let code = code(client, method, path).await?;
        ensure!(code == want, "{method} {path}: {code}, not {want}");
    }
    let (_, elsewhere) = endpoint(ground, "target-2").await?;
    let code = code(&caller(ground, &elsewhere, token("operator").await?)?, "GET", "/pods").await?;
    ensure!(code == 403, "a right to one node opens another: {code}");
    scene.close().await
}

fn bearer(token: &str) -> AuthInfo {
    AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() }
}

fn certificate(identity: &Identity) -> AuthInfo {
    AuthInfo {
        client_certificate_data: Some(base64::prelude::BASE64_STANDARD.encode(&identity.certificate)),
        client_key_data: Some(base64::prelude::BASE64_STANDARD.encode(&identity.key).into()),
        ..AuthInfo::default()
    }
}

pub(crate) async fn case_065_each_virtual_node_has_its_port_and_no_request_for_a_certificate_stays(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "streams-nodes").await?;
    let (_, one) = endpoint(ground, TARGET).await?;
    let (_, two) = endpoint(ground, "target-2").await?;
    ensure!(one != two, "two nodes serve at {one}");
    let requests: Api<CertificateSigningRequest> = Api::all(scene.source.client.clone());
    until(LONG, "no request for a certificate is left", async || {
        Ok(requests.list(&ListParams::default()).await?.items.is_empty().then_some(()))
    })
    .await?;
    scene.close().await
}

/// The kind of a metrics API, without a metrics server behind it.
fn pod_metrics() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "metadata": {
            "name": "pods.metrics.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {
            "group": "metrics.k8s.io",
            "names": {"kind": "PodMetrics", "listKind": "PodMetricsList", "plural": "pods", "singular": "podmetrics"},
            "scope": "Namespaced",
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

pub(crate) async fn w38_a_virtual_node_shows_what_its_delegates_use(ground: &Ground) -> Result<()> {
    const METRICS: (&str, &str) = ("metrics.k8s.io/v1beta1", "PodMetrics");
    const DEFINITION: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let streams = Streams::open(ground, "streams-usage", &["main"]).await?;
    let (scene, target) = (&streams.scene, ground.cluster(TARGET)?);
    let (node, _) = endpoint(ground, TARGET).await?;
    let path = |path: &str| format!("/api/v1/nodes/{node}/proxy/{path}");
    let without = scene.source.raw(&path("metrics/resource")).await;
    ensure!(
        without.is_err_and(|error| format!("{error:#}").contains("metrics API")),
        "it has numbers of nothing"
    );
    create(target, None, DEFINITION, pod_metrics()).await?;
    let uid = scene.pods().get("pod").await?.metadata.uid.context("no UID")?;
    let measured = |at: &str, cpu: &str| {
        json!({
            "metadata": {"name": "delegate", "labels": {key("parent-uid"): uid}},
            "timestamp": at, "window": "10s",
            "containers": [{"name": "main", "usage": {"cpu": cpu, "memory": "64Mi"}}],
        })
    };
    until(LONG, "the metrics API takes objects", async || {
        let object = measured("2026-01-01T00:00:10Z", "250m");
        create(target, Some(&scene.namespace), METRICS, object).await.map(|_| Some(()))
    })
    .await?;
    let labels = format!("{{container=\"main\",namespace=\"{}\",pod=\"pod\"}}", scene.namespace);
    let shows = async |line: String| {
        let text = scene.source.raw(&path("metrics/resource")).await?;
        ensure!(text.lines().any(|one| one.starts_with(&line)), "{line:?} is not in {text}");
        anyhow::Ok(())
    };
    shows(format!("container_cpu_usage_seconds_total{labels} 2.500000000 1767225610000")).await?;
    shows(format!("container_memory_working_set_bytes{labels} 67108864 ")).await?;
    let later = measured("2026-01-01T00:00:30Z", "500m");
    merge(target, Some(&scene.namespace), METRICS, "delegate", later).await?;
    // Twenty seconds at half a CPU, after what it was.
    shows(format!("container_cpu_usage_seconds_total{labels} 12.500000000 1767225630000")).await?;
    let summary: Value = serde_json::from_str(&scene.source.raw(&path("stats/summary")).await?)?;
    let pods = summary.pointer("/pods").and_then(Value::as_array).context("no pods")?;
    let ours =
        pods.iter().find(|pod| pod.pointer("/podRef/uid") == Some(&json!(uid))).context("not our pod")?;
    ensure!(ours.pointer("/cpu/usageNanoCores") == Some(&json!(500_000_000)), "{ours}");
    let definitions = target.dynamic(DEFINITION.0, DEFINITION.1, None);
    definitions.delete("pods.metrics.k8s.io", &DeleteParams::default()).await?;
    streams.scene.close().await
}

pub(crate) async fn w37_a_debug_container_runs_in_the_delegate_and_shows_on_the_pod(
    ground: &Ground,
) -> Result<()> {
    let streams = Streams::open(ground, "streams-debug", &["main"]).await?;
    let arguments = ["debug", "pod/pod", "--image=nowhere.example/debug:1", "-c", "debugger", "--", "sh"];
    let done = finish(streams.kubectl("true", &arguments)?, &[]).await?;
    ensure!(done.code == Some(0), "kubectl debug: {}", done.errors);
    until(LONG, "the pod shows that its debug container runs", async || {
        let status = json!(streams.scene.pods().get("pod").await?.status);
        let debugger = status.pointer("/ephemeralContainerStatuses/0").context("no status")?;
        let runs = debugger["name"] == "debugger" && debugger.pointer("/state/running").is_some();
        Ok(runs.then_some(()))
    })
    .await?;
    let command = ["exec", "pod", "-c", "debugger", "--", "echo", "inside"];
    let done = finish(streams.kubectl("true", &command)?, &[]).await?;
    ensure!(done.code == Some(0) && done.output == b"inside\n", "{:?} {}", done.code, done.errors);
    streams.scene.close().await
}
