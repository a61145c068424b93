//! Clients with deadlines, bounded concurrency and metrics.

use crate::metrics::Metrics;
use http::{Request, Response};
use kube::api::{PatchParams, ValidationDirective};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use prometheus::HistogramVec;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tower::{BoxError, Layer, Service};

/// Longest wait for the answer of a call that is no watch or stream.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// Longest silence of a watch; API servers end ours earlier by themselves.
const SILENCE: Duration = Duration::from_secs(75);
/// Calls in flight for each cluster; more wait their turn. Each needs a connection of its own, since the client
/// speaks HTTP/1, and a burst of handshakes costs an API server more than the wait costs us.
const CONCURRENCY: usize = 64;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a ServiceAccount nor a kubeconfig.
    #[error("found neither a mounted ServiceAccount nor a kubeconfig")]
    Infer {
        /// What was tried.
        source: kube::config::InferConfigError,
    },
    /// The configuration makes no client.
    #[error("the configuration of cluster {cluster} makes no client")]
    Build {
        /// The cluster's name.
        cluster: String,
        /// What is wrong.
        source: kube::Error,
    },
}

/// A client of the cluster that this process runs in.
///
/// # Errors
///
/// No configuration, or one that cannot be used.
pub async fn local(metrics: &Metrics) -> Result<Client, Error> {
    let config = Config::infer().await.map_err(|source| Error::Infer { source })?;
    build(config, "local", metrics)
}

/// As [`local`], for streams.
///
/// # Errors
///
/// No configuration, or one that cannot be used.
pub async fn local_streaming(metrics: &Metrics) -> Result<Client, Error> {
    let config = Config::infer().await.map_err(|source| Error::Infer { source })?;
    streaming(config, "local", metrics)
}

/// How patches other than applied ones are sent. The server need not look for fields that it does not know: what
/// passes through us may well have some, and nobody reads its warnings.
#[must_use]
pub fn patching(manager: &str) -> PatchParams {
    PatchParams {
        field_manager: Some(manager.to_owned()),
        field_validation: Some(ValidationDirective::Ignore),
        ..PatchParams::default()
    }
}

/// A client for a configuration; `cluster` labels its metrics.
///
/// # Errors
///
/// Certificates or keys that cannot be parsed.
pub fn build(mut config: Config, cluster: &str, metrics: &Metrics) -> Result<Client, Error> {
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(DEADLINE);
    assemble(config, cluster, metrics)
}

/// As [`build`], for streams of people: one that is silent, or whose reader is slow, lasts as long as both ends
/// want it to.
///
/// # Errors
///
/// Certificates or keys that cannot be parsed.
pub fn streaming(mut config: Config, cluster: &str, metrics: &Metrics) -> Result<Client, Error> {
    config.read_timeout = None;
    config.write_timeout = None;
    assemble(config, cluster, metrics)
}

fn assemble(mut config: Config, cluster: &str, metrics: &Metrics) -> Result<Client, Error> {
    config.connect_timeout = Some(CONNECT);
    let failed = |source| Error::Build { cluster: cluster.to_owned(), source };
    Ok(ClientBuilder::try_from(config).map_err(failed)?.with_layer(&guard(cluster, metrics)).build())
}

/// A client with the same deadlines and bounds over something else than a network.
pub fn over<S, B>(service: S, cluster: &str, metrics: &Metrics) -> Client
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Client::new(guard(cluster, metrics).layer(service), "default")
}

fn guard(cluster: &str, metrics: &Metrics) -> GuardLayer {
    GuardLayer {
        cluster: Arc::from(cluster),
        slots: Arc::new(Semaphore::new(CONCURRENCY)),
        durations: metrics.api_requests.clone(),
    }
}

type Connect = dyn Fn(Config, &str, &Metrics) -> Result<Client, Error> + Send + Sync;

/// How a client of another cluster is made from a configuration; the default is [`build`].
#[derive(Clone)]
pub struct Connector(Arc<Connect>);

impl Default for Connector {
    fn default() -> Self {
        Self(Arc::new(build))
    }
}

impl Connector {
    /// Makes clients in another way.
    pub fn new(
        connect: impl Fn(Config, &str, &Metrics) -> Result<Client, Error> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(connect))
    }

    /// A client; `cluster` labels its metrics.
    ///
    /// # Errors
    ///
    /// Those of [`build`].
    pub fn connect(&self, config: Config, cluster: &str, metrics: &Metrics) -> Result<Client, Error> {
        (self.0)(config, cluster, metrics)
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

#[derive(Clone)]
struct GuardLayer {
    cluster: Arc<str>,
    slots: Arc<Semaphore>,
    durations: HistogramVec,
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;
    fn layer(&self, inner: S) -> Guard<S> {
        Guard { inner, layer: self.clone() }
    }
}

/// Gives each call a deadline and a slot, except for those that last: watches, logs, upgraded streams.
#[derive(Clone)]
struct Guard<S> {
    inner: S,
    layer: GuardLayer,
}

fn lasts(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.contains("watch=true")
        || query.contains("watch=1")
        || query.contains("follow=true")
        || request.headers().contains_key(http::header::UPGRADE)
}

impl<S, B> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let lasts = lasts(&request);
        let verb = request.method().as_str().to_owned();
        let layer = self.layer.clone();
        // Nothing is sent before the first poll, so the slot still bounds what is in flight.
        let call = self.inner.call(request);
        Box::pin(async move {
            if lasts {
                return call.await.map_err(Into::into);
            }
            let _slot = layer.slots.acquire().await?;
            let start = Instant::now();
            let answer = tokio::time::timeout(DEADLINE, call).await;
            let (code, answer) = match answer {
                Ok(Ok(response)) => (code(response.status().as_u16()), Ok(response)),
                Ok(Err(error)) => ("none", Err(error.into())),
                Err(elapsed) => ("none", Err(elapsed.into())),
            };
            layer
                .durations
                .with_label_values(&[layer.cluster.as_ref(), &verb, code])
                .observe(start.elapsed().as_secs_f64());
            answer
        })
    }
}

/// A closed set of labels for the answers of API servers.
fn code(status: u16) -> &'static str {
    match status {
        409 => "409",
        429 => "429",
        200..=299 => "2xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => "other",
    }
}
