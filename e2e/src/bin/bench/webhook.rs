//! Reviews of large pods, sent to one replica of the webhook over TLS as the API server would.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::controlplane::Options;
use e2e::ground::Ground;
use e2e::install::RELEASE;
use e2e::setup::{self, SOURCE};
use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::recorder::percentile;
use crate::report::round;

const COMPONENT: &str = "app.kubernetes.io/component=webhook";
const REQUESTS: usize = 1000;
/// Size of the pod under review, in bytes.
const POD_BYTES: usize = 64 * 1024;
/// What a review may take inside the webhook.
const BAR: Duration = Duration::from_millis(5);

pub(crate) async fn run() -> Result<(String, bool)> {
    let ground = Ground::start(&[SOURCE], Options { unlimited: true, ..Options::default() }).await?;
    setup::install(&ground, &[]).await?;
    let cluster = ground.cluster(SOURCE)?;
    let pods: Api<Pod> = cluster.api(RELEASE);
    let pod = pods.list(&ListParams::default().labels(COMPONENT)).await?.items.into_iter().next();
    let pod = pod.context("the webhook has no pod")?;
    let name = pod.metadata.name.context("a pod has no name")?;
    let address = pod.status.and_then(|status| status.pod_ip).context("the webhook's pod has no address")?;
    let client = client(&cluster.client, &address).await?;
    let body = serde_json::to_vec(&review())?;
    // Connections are made and caches filled before anything counts.
    burst(&client, &body, 50, 8).await?;

    let metrics = format!("/api/v1/namespaces/{RELEASE}/pods/{name}:8080/proxy/metrics");
    let mut text = format!(
        "{:<8} {:>9} {:>10} {:>10} {:>12}\n",
        "clients", "requests", "p50 ms", "p99 ms", "server p99"
    );
    let (mut rows, mut is_good) = (Vec::new(), true);
    for clients in [1, 8] {
        let before = Buckets::read(&cluster.raw(&metrics).await?);
        let times = burst(&client, &body, REQUESTS, clients).await?;
        let inside = Buckets::read(&cluster.raw(&metrics).await?).since(&before).percentile(0.99);
        let inside = inside.context("the webhook counted no review")?;
        is_good &= inside <= BAR.as_secs_f64();
        let [p50, p99] = [0.5, 0.99].map(|rank| percentile(&times, rank).as_secs_f64() * 1000.0);
        let inside = inside * 1000.0;
        text.push_str(&format!(
            "{clients:<8} {REQUESTS:>9} {p50:>10.2} {p99:>10.2} {:>12}\n",
            format!("<= {inside} ms")
        ));
        rows.push(
            json!({"clients": clients, "requests": REQUESTS, "p50_ms": round(p50), "p99_ms": round(p99),
            "server_p99_ms_at_most": inside}),
        );
    }
    ground.check_faults()?;
    let line = json!({"work": "webhook", "pod_bytes": POD_BYTES, "rows": rows});
    Ok((format!("{text}\n{line}\n"), is_good))
}

/// A client that trusts what the API server trusts, and nothing else.
async fn client(admin: &Client, address: &str) -> Result<Client> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(admin.clone());
    let configuration = configurations.list(&ListParams::default()).await?.items.into_iter().next();
    let hook = configuration
        .and_then(|found| found.webhooks?.into_iter().next())
        .context("no webhook is registered")?;
    let bundle = hook.client_config.ca_bundle.context("the webhook has no CA bundle")?.0;
    let service = hook.client_config.service.context("the webhook has no Service")?;
    let mut config = Config::new(format!("https://{address}:9443").parse()?);
    config.root_cert = Some(vec![one_certificate(&bundle)?]);
    config.tls_server_name = Some(format!("{}.{}.svc", service.name, service.namespace));
    Client::try_from(config).context("cannot make a client of the webhook")
}

/// The first certificate of a bundle, in DER.
fn one_certificate(bundle: &[u8]) -> Result<Vec<u8>> {
    use base64::Engine as _;
    let text = std::str::from_utf8(bundle).context("the CA bundle is no text")?;
    let lines = text.lines().skip_while(|line| !line.starts_with("-----BEGIN")).skip(1);
    let body: String = lines.take_while(|line| !line.starts_with("-----END")).collect();
    base64::engine::general_purpose::STANDARD.decode(body).context("the CA bundle is no PEM")
}

/// A review of a pod of about [`POD_BYTES`] that elects.
fn review() -> Value {
    let variable = |number: usize| json!({"name": format!("VARIABLE_{number}"), "value": "x".repeat(100)});
    let container = json!({"name": "main", "image": "nginx", "env": (0..POD_BYTES / 140).map(variable).collect::<Vec<_>>()});
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "00000000-0000-4000-8000-000000000001",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "bench"},
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "large", "namespace": "default",
                    "annotations": {"multicluster.admiralty.io/elect": ""}},
                "spec": {"containers": [container]},
            },
        },
    })
}

/// Sends reviews from several clients, and returns how long each took, sorted.
async fn burst(client: &Client, body: &[u8], requests: usize, clients: usize) -> Result<Vec<Duration>> {
    let calls = futures::stream::iter(0..requests).map(|_| async move {
        let request = http::Request::post("/mutate--v1-pod")
            .header("content-type", "application/json")
            .body(body.to_vec())
            .context("not a request")?;
        let start = Instant::now();
        let answer: Value = client.request(request).await.context("the webhook does not answer")?;
        let taken = start.elapsed();
        anyhow::ensure!(
            answer["response"]["patch"].is_string(),
            "the webhook did not elect the pod: {answer}"
        );
        Ok(taken)
    });
    let mut times = calls.buffer_unordered(clients).collect::<Vec<Result<Duration>>>().await;
    let mut times = times.drain(..).collect::<Result<Vec<_>>>()?;
    times.sort();
    Ok(times)
}

/// Cumulative counts by upper bound in seconds.
struct Buckets(Vec<(f64, f64)>);

impl Buckets {
    fn read(metrics: &str) -> Self {
        let of_reviews = metrics
            .lines()
            .filter(|line| line.starts_with("multicluster_webhook_review_duration_seconds_bucket"));
        let pairs = of_reviews.filter_map(|line| {
            let (_, bound) = line.split_once("le=\"")?;
            let (bound, rest) = bound.split_once('"')?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            Some((bound, rest.rsplit(' ').next()?.parse().ok()?))
        });
        Self(pairs.collect())
    }

    fn since(&self, before: &Self) -> Self {
        let at = |bound: f64| {
            before.0.iter().find(|(old, _)| old.total_cmp(&bound).is_eq()).map_or(0.0, |(_, count)| *count)
        };
        Self(self.0.iter().map(|(bound, count)| (*bound, count - at(*bound))).collect())
    }

    /// The smallest upper bound that covers this share of all reviews.
    fn percentile(&self, share: f64) -> Option<f64> {
        let all = self.0.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
        self.0.iter().find(|(_, count)| *count >= all * share).map(|(bound, _)| *bound)
    }
}
