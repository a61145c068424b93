//! Streams: logs, sessions and a forwarded port of a pod, through a virtual node and directly.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::controlplane::{Options, STREAMS};
use e2e::ground::Ground;
use e2e::setup::{self, SOURCE};
use e2e::wait::until;
use e2e::{helm, streams};
use futures::{AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, AttachedProcess, LogParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use crate::burst::PATIENCE;
use crate::recorder::percentile;

const NAMESPACE: &str = "streams";
const TARGET: &str = "target-1";
const PORT: u16 = 10_300;
/// Streams that are open at once, of each kind.
const MANY: usize = 100;
/// Round trips of each session.
const TRIPS: usize = 5;
const MEBIBYTE: u64 = 1024 * 1024;
/// What goes through the forwarded port.
const BYTES: u64 = 1024 * MEBIBYTE;
/// How late the first byte may be.
const FIRST: Duration = Duration::from_millis(100);
/// How much more memory the relay may take than at rest, in bytes.
const FLAT: u64 = 50 * MEBIBYTE;

/// What one side needed.
struct Half {
    logs: Vec<Duration>,
    sessions: Vec<Duration>,
    trips: Vec<Duration>,
    forwarded: Duration,
}

pub(crate) async fn run() -> Result<(String, bool)> {
    let ground = Ground::start(&[SOURCE, TARGET], Options { unlimited: true, ..Options::default() }).await?;
    setup::install(&ground, &[]).await?;
    setup::connect_all(&ground).await?;
    let (source, target) = (ground.cluster(SOURCE)?, ground.cluster(TARGET)?);
    setup::electing_namespace(&ground, NAMESPACE).await?;
    let _server = streams::serve(&ground, target, PORT).await?;
    let folder = target.local()?.folder.join(STREAMS);
    std::fs::write(folder.join("follow.log"), "2026-01-01T00:00:00.000000000Z stdout F first\n")?;
    for (cluster, name) in [(target, "direct"), (source, "proxy")] {
        pod(cluster, name).await?;
    }
    let direct = half(&ground, target, "direct").await.context("directly")?;
    let idle = resident(source)?;
    let (stop, most) = (std::sync::atomic::AtomicBool::new(false), std::sync::atomic::AtomicU64::new(idle));
    let order = std::sync::atomic::Ordering::Relaxed;
    let watching = async {
        while !stop.load(order) {
            most.fetch_max(resident(source)?, order);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        anyhow::Ok(())
    };
    let measuring = async {
        let ours = half(&ground, source, "proxy").await.context("through the virtual node");
        stop.store(true, order);
        ours
    };
    let (ours, watched) = tokio::join!(measuring, watching);
    watched?;
    let (ours, grown) = (ours?, most.load(order).saturating_sub(idle));
    ground.check_faults()?;
    Ok(report(&direct, &ours, idle, grown))
}

async fn pod(cluster: &Cluster, name: &str) -> Result<()> {
    let pods: Api<Pod> = cluster.api(NAMESPACE);
    let pod = streams::pod(name, PORT, &["main", "follow"]);
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    until(PATIENCE, &format!("pod {name} is Ready"), async || {
        let status = pods.get(name).await?.status.unwrap_or_default();
        let mut conditions = status.conditions.iter().flatten();
        Ok(conditions.any(|is| is.type_ == "Ready" && is.status == "True").then_some(()))
    })
    .await
}

/// What all replicas of virtual-kubelet have resident, in bytes.
fn resident(source: &Cluster) -> Result<u64> {
    let used = source.local()?.kubelet.usage();
    let ours = used.into_iter().filter(|(key, _)| key.contains("virtual-kubelet"));
    Ok(ours.map(|(_, usage)| usage.resident_bytes).sum())
}

async fn half(ground: &Ground, cluster: &Cluster, name: &str) -> Result<Half> {
    let pods: Api<Pod> = cluster.api(NAMESPACE);
    let wanted = LogParams { container: Some("follow".into()), follow: true, ..LogParams::default() };
    let (mut open, mut logs) = (Vec::new(), Vec::new());
    for _ in 0..MANY {
        let start = Instant::now();
        let mut lines = pods.log_stream(name, &wanted).await?.lines();
        ensure!(lines.next().await.context("no line")?? == "first", "another line");
        logs.push(start.elapsed());
        open.push(lines);
    }
    let (mut running, mut sessions) = (Vec::new(), Vec::new());
    for _ in 0..MANY {
        let start = Instant::now();
        let wanted = AttachParams::default().stdin(true).stdout(true).stderr(false).container("main");
        let mut session = Session::of(pods.exec(name, ["cat"], &wanted).await?)?;
        session.trip(1).await?;
        sessions.push(start.elapsed());
        running.push(session);
    }
    let mut trips = Vec::new();
    for _ in 0..TRIPS {
        for session in &mut running {
            trips.push(session.trip(64).await?);
        }
    }
    drop((open, running));
    for times in [&mut logs, &mut sessions, &mut trips] {
        times.sort();
    }
    let forwarded = forward(ground, cluster, name).await?;
    Ok(Half { logs, sessions, trips, forwarded })
}

/// A session whose command sends everything back.
struct Session {
    to: Box<dyn tokio::io::AsyncWrite + Unpin + Send>,
    from: Box<dyn tokio::io::AsyncRead + Unpin + Send>,
    _process: AttachedProcess,
}

impl Session {
    fn of(mut process: AttachedProcess) -> Result<Self> {
        let (to, from) = (process.stdin().context("no input")?, process.stdout().context("no output")?);
        Ok(Self { to: Box::new(to), from: Box::new(from), _process: process })
    }

    async fn trip(&mut self, count: usize) -> Result<Duration> {
        let start = Instant::now();
        let sent = vec![b'x'; count];
        self.to.write_all(&sent).await?;
        let mut got = vec![0; count];
        self.from.read_exact(&mut got).await?;
        ensure!(got == sent, "another answer came back");
        Ok(start.elapsed())
    }
}

/// How long a gibibyte takes through `kubectl port-forward`; every byte is looked at.
async fn forward(ground: &Ground, cluster: &Cluster, name: &str) -> Result<Duration> {
    let (pod, port) = (format!("pod/{name}"), format!(":{}", streams::CHARGEN));
    let arguments = ["-n", NAMESPACE, "port-forward", &pod, &port];
    let mut command = helm::command(ground, cluster, "kubectl", &arguments)?;
    let mut kubectl = command.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(kubectl.stdout.take().context("no output")?).lines();
    let line = lines.next_line().await?.context("kubectl says nothing")?;
    let port = line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next());
    let port: u16 = port.context("kubectl says no port")?.parse()?;
    tokio::spawn(async move { while let Ok(Some(_line)) = lines.next_line().await {} });
    let start = Instant::now();
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let pattern: Vec<u8> = (0..=255).cycle().take(256 * 1024).collect();
    let mut chunk = vec![0; 128 * 1024];
    let mut got: u64 = 0;
    while got < BYTES {
        let read = stream.read(&mut chunk).await?;
        ensure!(read > 0, "the connection ends after {got} bytes");
        let from = usize::try_from(got % 256)?;
        ensure!(chunk[..read] == pattern[from..from + read], "another byte than sent, after {got}");
        got += u64::try_from(read)?;
    }
    let took = start.elapsed();
    kubectl.kill().await?;
    Ok(took)
}

fn report(direct: &Half, ours: &Half, idle: u64, grown: u64) -> (String, bool) {
    let millis = |times: &[Duration], rank| percentile(times, rank).as_secs_f64() * 1000.0;
    let mut text = format!(
        "{:<20} {:>6} {:>12} {:>12} {:>12} {:>12}\n",
        "", "count", "p50 ms", "p99 ms", "direct p50", "direct p99"
    );
    let mut rows = Vec::new();
    let mut add = |what: &str, ours: &[Duration], direct: &[Duration]| {
        let figures = [(ours, 0.5), (ours, 0.99), (direct, 0.5), (direct, 0.99)].map(|(t, r)| millis(t, r));
        let [p50, p99, direct_p50, direct_p99] = figures;
        text.push_str(&format!(
            "{what:<20} {:>6} {p50:>12.1} {p99:>12.1} {direct_p50:>12.1} {direct_p99:>12.1}\n",
            ours.len()
        ));
        rows.push(json!({"what": what, "p50_ms": p50, "p99_ms": p99, "direct_p50_ms": direct_p50, "direct_p99_ms": direct_p99}));
    };
    add("logs -f, first line", &ours.logs, &direct.logs);
    add("exec, first byte", &ours.sessions, &direct.sessions);
    add("exec, round trip", &ours.trips, &direct.trips);
    let rate = |took: Duration| (BYTES / MEBIBYTE) as f64 / took.as_secs_f64();
    let (fast, plain) = (rate(ours.forwarded), rate(direct.forwarded));
    text.push_str(&format!(
        "port-forward, 1 GiB: {fast:.0} MiB/s, directly {plain:.0} MiB/s, ratio {:.2}\n\
         virtual-kubelet: {} MiB at rest, {} MiB more at most\n",
        fast / plain,
        idle / MEBIBYTE,
        grown / MEBIBYTE
    ));
    let is_good =
        [&ours.logs, &ours.sessions].iter().all(|times| percentile(times, 0.99) <= FIRST) && grown < FLAT;
    let line: Value = json!({"work": "streams", "rows": rows, "mib_per_second": fast, "direct_mib_per_second": plain,
        "idle_bytes": idle, "grown_bytes": grown, "bytes": BYTES});
    (format!("{text}\n{line}\n"), is_good)
}
