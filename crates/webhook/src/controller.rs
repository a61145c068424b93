//! Puts the parts together: the keeper of certificates beside the server of reviews.

use crate::args::WebhookArgs;
use crate::certificates::plan::Lifetimes;
use crate::certificates::serving::Hot;
use crate::keeper::{BUNDLE, CERTIFICATE, KEY, Keeper, SharedKey, changes, follow_files};
use crate::metrics::Metrics;
use crate::server::{self, App};
use anyhow::Context;
use axum_server::Handle;
use runtime::Runtime;
use std::time::Duration;
use tracing::info;

/// Condition of `/readyz`: reviews are answered.
const LISTENER: &str = "listener";
/// How long requests in flight may take when the process stops.
const DRAIN: Duration = Duration::from_secs(4);

/// Runs the webhook until the process stops.
///
/// # Errors
///
/// The listener cannot be opened or fails.
pub async fn serve(rt: Runtime, args: WebhookArgs) -> anyhow::Result<()> {
    let (hot, key) = (Hot::default(), SharedKey::default());
    for condition in [CERTIFICATE, KEY, LISTENER] {
        rt.readiness.set(condition, false);
    }
    let configuration = args.certificate_dir.is_none().then(|| args.configuration_name.clone());
    if configuration.is_some() {
        rt.readiness.set(BUNDLE, false);
    }
    let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    let keeper = Keeper {
        client: rt.client.clone(),
        namespace: rt.args.pod_namespace.clone(),
        secret: args.secret_name.clone(),
        configuration: configuration.clone(),
        names: vec![format!("{}.{}.svc", args.service_name, rt.args.pod_namespace)],
        lifetimes: Lifetimes {
            authority: seconds(args.authority_lifetime_seconds),
            certificate: seconds(args.certificate_lifetime_seconds),
        },
        hot: hot.clone(),
        key: key.clone(),
        readiness: rt.readiness.clone(),
        failures: rt.metrics.failures.clone(),
    };
    let events = changes(&rt, &args.secret_name, configuration.as_deref());
    tokio::spawn(keeper.keep(events, rt.shutdown.clone()));
    if let Some(directory) = args.certificate_dir.clone() {
        let (hot, readiness, stop) = (hot.clone(), rt.readiness.clone(), rt.shutdown.clone());
        tokio::spawn(async move { follow_files(&directory, &hot, &readiness, &stop).await });
    }

    let app = App {
        key,
        own_namespace: rt.args.pod_namespace.as_str().into(),
        metrics: Metrics::new(&rt.metrics.registry).context("cannot register metrics")?,
    };
    let listener = server::listen(args.listen)?;
    let handle = Handle::new();
    tokio::spawn(watch_listener(rt.clone(), handle.clone()));
    server::serve(listener, &hot, app, handle).await?;
    Ok(())
}

/// Says when the listener serves, and closes it when the process is asked to stop.
async fn watch_listener(rt: Runtime, handle: Handle<std::net::SocketAddr>) {
    if let Some(address) = handle.listening().await {
        info!(%address, "serving reviews");
        rt.readiness.set(LISTENER, true);
    }
    rt.shutdown.cancelled().await;
    rt.readiness.set(LISTENER, false);
    handle.graceful_shutdown(Some(DRAIN));
}
