//! Passes bytes between a caller and the API server of a target, and knows nothing of what they mean.
//!
//! An upgraded connection is one stream of bytes in each direction, whatever protocol the two ends agreed on in
//! the headers (SPDY/3.1 or WebSocket), so exit codes, resizes, forwarded ports and future versions pass without
//! being read. Each direction holds one buffer: a slow reader slows its writer.

use super::find::{Delegate, Refusal};
use super::metrics::Open;
use super::route::{Upgrade, logs_of, upgrade_of};
use axum::BoxError;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt};
use http::header::{CONTENT_TYPE, UPGRADE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use runtime::{CancellationToken, Chain};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tracing::debug;

/// Longest wait until a target agrees to an upgrade: it first asks its kubelet.
const AGREEMENT: Duration = Duration::from_secs(30);
/// How long one direction may go on after the other ended.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Most bytes of an error's text.
const ERROR_BYTES: usize = 64 * 1024;
/// What the two ends agree on; credentials and addresses are never passed on.
const AGREED: &[&str] = &[
    "connection",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "upgrade",
    "x-accepted-stream-protocol-versions",
    "x-stream-protocol-version",
];

fn agreed(from: &HeaderMap) -> HeaderMap {
    let kept = from.iter().filter(|(name, _)| AGREED.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The delegate's logs.
pub(crate) async fn logs(
    delegate: &Delegate,
    container: &str,
    query: &str,
    open: Open,
) -> Result<Response, Refusal> {
    let path = logs_of(&delegate.name, &delegate.namespace, container, query);
    let request = Request::get(path).body(kube::client::Body::empty());
    let request = request.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let answer = delegate.client.send(request).await;
    let answer = answer.map_err(|error| Refusal::of("cannot read the delegate's logs", &error))?;
    if answer.status() != StatusCode::OK {
        return Err(refused(answer).await);
    }
    let content = answer.headers().get(CONTENT_TYPE).cloned();
    // The target's end of the stream is the caller's: both hang on one body.
    let end = delegate.end.clone();
    let bytes = answer.into_body().into_data_stream().map_err(BoxError::from);
    let bytes = bytes.take_until(end.clone().cancelled_owned());
    // Who reads on is told that there would have been more.
    let lost = async move { end.is_cancelled().then(|| Err("the target is lost".into())) };
    let lost = futures::stream::once(lost).filter_map(std::future::ready);
    let stream = bytes.chain(lost).inspect(move |_bytes: &Result<Bytes, BoxError>| {
        let _held = &open;
    });
    let mut response = Body::from_stream(stream).into_response();
    if let Some(content) = content {
        response.headers_mut().insert(CONTENT_TYPE, content);
    }
    Ok(response)
}

/// The words of an API server that refused, taken out of its Status.
async fn refused(answer: Response<kube::client::Body>) -> Refusal {
    let code = answer.status();
    let body = Limited::new(answer.into_body(), ERROR_BYTES).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
    let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let message = status["message"].as_str().map_or(text.clone(), str::to_owned);
    Refusal::new(code, message)
}

/// What a caller wants to be upgraded.
pub(crate) struct Wanted<'a> {
    pub(crate) kind: Upgrade,
    pub(crate) container: Option<&'a str>,
    pub(crate) method: Method,
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) upgrade: OnUpgrade,
}

/// Upgrades the caller's connection together with one to the target's API server.
pub(crate) async fn upgrade(
    delegate: &Delegate,
    wanted: Wanted<'_>,
    open: Open,
) -> Result<Response, Refusal> {
    if !wanted.headers.contains_key(UPGRADE) {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "the request asks for no upgrade"));
    }
    let place = (delegate.namespace.as_str(), delegate.name.as_str());
    let path = upgrade_of(wanted.kind, place, wanted.container, wanted.query);
    let request = Request::builder().method(wanted.method).uri(path).body(kube::client::Body::empty());
    let mut request = request.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    *request.headers_mut() = agreed(wanted.headers);
    let answer = tokio::time::timeout(AGREEMENT, delegate.client.send(request)).await;
    let answer = answer
        .map_err(|_elapsed| Refusal::new(StatusCode::GATEWAY_TIMEOUT, "the target does not answer"))?
        .map_err(|error| Refusal::of("cannot reach the delegate", &error))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refused(answer).await);
    }
    let headers = agreed(answer.headers());
    let end = delegate.end.clone();
    let there = hyper::upgrade::on(answer);
    tokio::spawn(async move {
        let _held = open;
        let (here, there) = match tokio::try_join!(wanted.upgrade, there) {
            Ok(ends) => ends,
            Err(error) => {
                debug!(error = %Chain(&error), "a connection was not upgraded after all");
                return;
            }
        };
        pass(TokioIo::new(here), TokioIo::new(there), end).await;
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    *response.headers_mut() = headers;
    Ok(response)
}

/// Passes bytes both ways until both directions ended, or one did and the other found no end soon after, or one
/// failed. Then both connections are closed.
async fn pass(
    here: impl AsyncRead + AsyncWrite + Send,
    there: impl AsyncRead + AsyncWrite + Send,
    stop: CancellationToken,
) {
    let (mut from_here, mut to_here) = tokio::io::split(here);
    let (mut from_there, mut to_there) = tokio::io::split(there);
    let mut up = copy(&mut from_here, &mut to_there).boxed();
    let mut down = copy(&mut from_there, &mut to_here).boxed();
    let rest = tokio::select! {
        () = stop.cancelled() => return,
        ended = &mut up => ended.is_ok().then_some(down),
        ended = &mut down => ended.is_ok().then_some(up),
    };
    if let Some(rest) = rest {
        // Neither SPDY nor WebSocket close one direction alone, so there is little left to say.
        let _late = tokio::time::timeout(LAST_WORDS, rest).await;
    }
}

/// One direction, to its end. What was read is written before more is read, and sent off while nothing comes.
async fn copy(
    from: &mut (impl AsyncRead + Unpin + Send),
    to: &mut (impl AsyncWrite + Unpin + Send),
) -> std::io::Result<()> {
    tokio::io::copy(from, to).await?;
    to.shutdown().await
}

#[cfg(test)]
mod tests;
