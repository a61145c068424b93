//! Reviews over TLS: the envelope, its limits, counts and logs.

use crate::certificates::serving::Hot;
use crate::error::Error;
use crate::keeper::{SharedKey, now};
use crate::metrics::Metrics;
use crate::mutate::{Setting, mutate};
use crate::review::{self, Request, Review, Verdict};
use crate::validate::validate;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsConfig, from_tcp_rustls};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;
use tracing::{debug, info, warn};

/// Largest review: an old and a new object of the largest size that an API server takes, and the envelope.
const BODY_BYTES: usize = 8 * 1024 * 1024;

/// What reviews are judged with.
#[derive(Debug, Clone)]
pub struct App {
    /// The key of the proofs.
    pub key: SharedKey,
    /// Namespace of this release.
    pub own_namespace: Arc<str>,
    /// Counts and times.
    pub metrics: Metrics,
}

type Judge = fn(&Request<'_>, &Setting<'_>) -> Verdict;

/// The paths of the webhook.
pub fn router(app: App) -> Router {
    let mutating = |State(app): State<App>, body: Bytes| async move { app.review(&body, mutate) };
    let validating = |State(app): State<App>, body: Bytes| async move { app.review(&body, validate) };
    Router::new()
        .route("/mutate--v1-pod", post(mutating))
        .route("/validate", post(validating))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .with_state(app)
}

impl App {
    fn review(&self, body: &[u8], judge: Judge) -> Response {
        let start = Instant::now();
        let (operation, verdict, response) = self.judged(body, judge);
        self.metrics.reviews.with_label_values(&[operation, verdict]).inc();
        self.metrics.duration.observe(start.elapsed().as_secs_f64());
        response
    }

    fn judged(&self, body: &[u8], judge: Judge) -> (&'static str, &'static str, Response) {
        let review: Review<'_> = match serde_json::from_slice(body) {
            Ok(review) => review,
            Err(error) => return malformed(&format!("the body is no admission review: {error}")),
        };
        if review.api_version != review::API_VERSION {
            return malformed(&format!("apiVersion {:?} is not {}", review.api_version, review::API_VERSION));
        }
        let request = &review.request;
        let operation = match request.operation.as_str() {
            "CREATE" => "create",
            "UPDATE" => "update",
            _ => "other",
        };
        let Some(key) = self.key.get() else {
            return (operation, "unready", (StatusCode::SERVICE_UNAVAILABLE, "no key yet").into_response());
        };
        let now = u64::try_from(now()).unwrap_or_default();
        let verdict = judge(request, &Setting { key: &key, own_namespace: &self.own_namespace, now });
        log(request, &verdict);
        let response = match review::answer(&request.uid, &verdict) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        };
        (operation, verdict.as_str(), response)
    }
}

fn malformed(why: &str) -> (&'static str, &'static str, Response) {
    warn!(reason = why, "refused a malformed review");
    ("other", "malformed", (StatusCode::BAD_REQUEST, why.to_owned()).into_response())
}

fn log(request: &Request<'_>, verdict: &Verdict) {
    let (namespace, object, kind) = (&request.namespace, &request.name, &request.resource.resource);
    match verdict {
        Verdict::Denied { message, .. } => info!(namespace, object, kind, reason = message, "denied"),
        Verdict::Allowed { patch, .. } => {
            debug!(namespace, object, kind, operations = patch.len(), "admitted");
        }
    }
}

/// Opens the listener.
///
/// # Errors
///
/// The address is taken or not ours.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let failed = |source| Error::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Serves until the handle is shut down.
///
/// # Errors
///
/// The listener fails.
pub async fn serve(
    listener: TcpListener,
    hot: &Hot,
    app: App,
    handle: Handle<SocketAddr>,
) -> Result<(), Error> {
    let address = listener.local_addr().unwrap_or_else(|_closed| SocketAddr::from(([0, 0, 0, 0], 0)));
    let failed = |source| Error::Listen { address, source };
    let config = RustlsConfig::from_config(Arc::new(hot.config()?));
    let server = from_tcp_rustls(listener, config).map_err(failed)?.handle(handle);
    server.serve(router(app).into_make_service()).await.map_err(failed)
}

#[cfg(test)]
mod tests;
