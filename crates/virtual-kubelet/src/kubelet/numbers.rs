//! What the containers of a node use, as a kubelet tells it, from the metrics API of the target.

use super::app::{Shared, bound};
use super::find::Refusal;
use crate::kubelet::usage::{Sample, samples, text};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use runtime::{Class, class};
use serde_json::Value;

/// Longest wait for the numbers of a target.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(8);

/// What each proxy pod on a node uses now.
async fn measured(shared: &Shared, node: &str) -> Result<Vec<Sample>, Refusal> {
    let target = shared.finder.target(node)?;
    let client = shared.finder.client(&target)?;
    let pods = bound(&shared.finder, node).await?;
    let path = match target.key.namespace.as_str() {
        "" => "/apis/metrics.k8s.io/v1beta1/pods".to_owned(),
        namespace => format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"),
    };
    let path = format!("{path}?labelSelector={}", api::keys::PARENT_UID.replace('/', "%2F"));
    let failed = |error: http::Error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let request = Request::get(path).body(Vec::new()).map_err(failed)?;
    let answer = tokio::time::timeout(DEADLINE, client.request::<Value>(request)).await;
    let answer = answer.map_err(|_elapsed| {
        Refusal::new(StatusCode::GATEWAY_TIMEOUT, "the target's metrics API does not answer")
    })?;
    let list = answer.map_err(|error| match class(&error) {
        Class::NotFound => {
            let message = format!("target {} has no metrics API; install metrics-server there", target.key);
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
        }
        _ => Refusal::of("cannot read the target's metrics API", &error),
    })?;
    let mut counters = shared.counters.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let counters = counters.entry(node.to_owned()).or_default();
    Ok(samples(&pods, &list, counters))
}

/// `/stats/summary`
pub(crate) async fn summary(shared: &Shared, node: &str) -> Result<Response, Refusal> {
    let samples = measured(shared, node).await?;
    Ok(axum::Json(super::usage::summary(node, &samples)).into_response())
}

/// `/metrics/resource` and, with the names of cAdvisor, `/metrics/cadvisor`
pub(crate) async fn metrics(shared: &Shared, node: &str, whole: bool) -> Result<Response, Refusal> {
    let samples = measured(shared, node).await?;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(CONTENT_TYPE, kind)], text(&samples, whole)).into_response())
}
