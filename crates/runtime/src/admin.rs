//! `/livez`, `/readyz` and `/metrics`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus::{Encoder, Registry, TextEncoder};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// What must be true before a replica is ready; each condition has a name that `/readyz` prints.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, bool>>>);

impl Readiness {
    /// Adds a condition that is not met yet, or changes one.
    pub fn set(&self, name: &'static str, met: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, met);
    }

    /// Names of the conditions that are not met.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let conditions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        conditions.iter().filter(|(_, met)| !**met).map(|(name, _)| *name).collect()
    }
}

#[derive(Clone)]
struct Shared {
    registry: Registry,
    readiness: Readiness,
}

/// Serves until shutdown.
///
/// # Errors
///
/// The address cannot be bound.
pub async fn serve(
    address: SocketAddr,
    registry: Registry,
    readiness: Readiness,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let router = axum::Router::new()
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Shared { registry, readiness });
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await
}

async fn ready(State(shared): State<Shared>) -> (StatusCode, String) {
    let missing = shared.readiness.missing();
    if missing.is_empty() {
        return (StatusCode::OK, "ok".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {}", missing.join(", ")))
}

async fn metrics(State(shared): State<Shared>) -> Result<Vec<u8>, (StatusCode, String)> {
    let mut text = Vec::new();
    TextEncoder::new()
        .encode(&shared.registry.gather(), &mut text)
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(text)
}
