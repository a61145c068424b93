//! From a request to an answer: who calls, whether they may, what they want.

use super::callers::{Authorities, Caller, Shown, Stranger, Tokens};
use super::find::{Finder, Refusal};
use super::metrics::Metrics;
use super::numbers;
use super::relay::{self, Wanted};
use super::rights::Rights;
use super::route::{NoRoute, Route, attributes, route};
use super::usage::Counters;
use api::Pod;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use hyper::upgrade::OnUpgrade;
use kube::Api;
use kube::api::ListParams;
use runtime::Clock;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tracing::{debug, info};

/// What all nodes of this process share.
pub(crate) struct Shared {
    pub(crate) authorities: Authorities,
    pub(crate) tokens: Tokens,
    pub(crate) rights: Rights,
    pub(crate) finder: Finder,
    pub(crate) metrics: Metrics,
    /// By node.
    pub(crate) counters: Mutex<HashMap<String, Counters>>,
    pub(crate) clock: Clock,
}

/// The kubelet API of one node.
#[derive(Clone)]
pub(crate) struct App {
    /// Name of the node: the port that was called says which one is meant.
    pub(crate) node: Arc<str>,
    pub(crate) shared: Arc<Shared>,
}

/// Answers every request.
pub(crate) async fn answer(
    State(app): State<App>,
    Extension(shown): Extension<Shown>,
    request: Request,
) -> Response {
    let (parts, _body) = request.into_parts();
    let found = route(&parts.method, parts.uri.path());
    let name = found.as_ref().map_or("none", Route::as_str);
    let result = app.answered(found, &shown, parts).await;
    let response = result.unwrap_or_else(|refusal| {
        debug!(node = %app.node, route = name, code = %refusal.code, reason = refusal.message, "refused");
        let mut response = (refusal.code, refusal.message).into_response();
        if refusal.code == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    });
    app.shared.metrics.requests.with_label_values(&[name, response.status().as_str()]).inc();
    response
}

impl App {
    async fn answered(
        &self,
        found: Result<Route, NoRoute>,
        shown: &Shown,
        request: Parts,
    ) -> Result<Response, Refusal> {
        let caller = self.caller(shown, &request).await?;
        self.check(&caller, &request).await?;
        let route = found.map_err(|why| match why {
            NoRoute::Path => Refusal::new(StatusCode::NOT_FOUND, "no such path"),
            NoRoute::Method => Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "the path has no such method"),
        })?;
        if let Route::Logs { pod, .. } | Route::Upgrade { pod, .. } = &route {
            let (namespace, object) = (pod.namespace.as_str(), pod.name.as_str());
            info!(node = %self.node, namespace, object, route = route.as_str(), user = caller.user, "serving");
        }
        self.serve(&route, request).await
    }

    async fn caller(&self, shown: &Shown, request: &Parts) -> Result<Caller, Refusal> {
        let now = u64::try_from(self.shared.clock.now().as_second()).unwrap_or_default();
        if let Some(caller) = self.shared.authorities.caller(shown, now) {
            return Ok(caller);
        }
        let unknown = || Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized");
        let header = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (scheme, token) = header.and_then(|value| value.split_once(' ')).ok_or_else(unknown)?;
        if !scheme.eq_ignore_ascii_case("bearer") || token.trim().is_empty() {
            return Err(unknown());
        }
        self.shared.tokens.caller(token.trim()).await.map_err(|stranger| match stranger {
            Stranger::Unknown => unknown(),
            // Who cannot be known is nobody.
            Stranger::Unasked(why) => {
                Refusal::new(StatusCode::UNAUTHORIZED, format!("cannot look up the token: {why}"))
            }
        })
    }

    async fn check(&self, caller: &Caller, request: &Parts) -> Result<(), Refusal> {
        let wanted = attributes(&request.method, request.uri.path());
        let answer = self.shared.rights.allows(caller, &wanted, &self.node).await;
        let allowed = answer.map_err(|why| {
            Refusal::new(
                StatusCode::FORBIDDEN,
                format!("cannot look up what {:?} may do: {why}", caller.user),
            )
        })?;
        if allowed {
            return Ok(());
        }
        let message = format!(
            "Forbidden (user={}, verb={}, resource=nodes, subresource(s)=[{}], node={})",
            caller.user,
            wanted.verb,
            wanted.subresources.join(" "),
            self.node
        );
        Err(Refusal::new(StatusCode::FORBIDDEN, message))
    }

    async fn serve(&self, route: &Route, mut request: Parts) -> Result<Response, Refusal> {
        let shared = &self.shared;
        let query = request.uri.query().unwrap_or_default().to_owned();
        match route {
            Route::Healthz => Ok("ok".into_response()),
            Route::Pods => self.pods().await,
            Route::Summary => numbers::summary(shared, &self.node).await,
            Route::ResourceMetrics => numbers::metrics(shared, &self.node, true).await,
            Route::CadvisorMetrics => numbers::metrics(shared, &self.node, false).await,
            Route::Logs { pod, container } => {
                let delegate = shared.finder.delegate(&self.node, pod).await?;
                relay::logs(&delegate, container, &query, shared.metrics.open(route.as_str())).await
            }
            Route::Upgrade { kind, pod, container } => {
                let upgrade = request.extensions.remove::<OnUpgrade>();
                let upgrade = upgrade.ok_or_else(|| {
                    Refusal::new(StatusCode::BAD_REQUEST, "the request asks for no upgrade")
                })?;
                let delegate = shared.finder.delegate(&self.node, pod).await?;
                let wanted = Wanted {
                    kind: *kind,
                    container: container.as_deref(),
                    method: request.method.clone(),
                    query: &query,
                    headers: &request.headers,
                    upgrade,
                };
                let open = shared.metrics.open(route.as_str());
                relay::upgrade(&delegate, wanted, open).await
            }
        }
    }

    /// The pods that are bound to the node.
    async fn pods(&self) -> Result<Response, Refusal> {
        let list = bound(&self.shared.finder, &self.node).await?;
        Ok(axum::Json(json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list}))
            .into_response())
    }
}

/// The pods that are bound to a node.
pub(crate) async fn bound(finder: &Finder, node: &str) -> Result<Vec<Pod>, Refusal> {
    let pods = Api::<Pod>::all(finder.local.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let list = pods.list(&params).await;
    Ok(list.map_err(|error| Refusal::of("cannot list the node's pods", &error))?.items)
}
