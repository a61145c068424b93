//! The way from a service's client to an API server: everything that leaves a process waits here until the
//! world lets it arrive, and so does everything that comes back.

use crate::cluster::request::Request;
use bytes::Bytes;
use http::Response;
use http_body::{Body as HttpBody, Frame};
use kube::client::Body;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::{Notify, mpsc, oneshot};
use tower::{BoxError, Service};

/// Which process; counted up over the life of a world.
pub type ProcessId = usize;
/// Which cluster; 0 is the first source.
pub type ClusterId = usize;

/// What comes back: a whole answer, a stream, or the news that there is none.
pub type Reply = Result<(u16, Content), BoxError>;

/// The content of an answer.
#[derive(Debug)]
pub enum Content {
    /// All of it.
    Whole(Bytes),
    /// Piece by piece; an error breaks the connection.
    Pieces(mpsc::UnboundedReceiver<Result<Bytes, BoxError>>),
}

/// A request under way.
#[derive(Debug)]
pub struct Sent {
    /// Who sent it.
    pub process: ProcessId,
    /// Where it goes.
    pub cluster: ClusterId,
    /// Number of the credentials that it carries.
    pub key: u32,
    /// What it asks.
    pub request: Request,
    /// Where the answer is waited for; closed when the caller has given up.
    pub reply: oneshot::Sender<Reply>,
}

/// What has left processes and was not seen by the world yet.
#[derive(Debug, Default)]
pub struct Wire {
    sent: Mutex<VecDeque<Sent>>,
    /// Rung at each request.
    pub bell: Notify,
}

impl Wire {
    /// Takes out what was sent, in an order that does not depend on how tasks happened to be polled.
    pub fn take(&self) -> Vec<Sent> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Sent> = sent.drain(..).collect();
        drop(sent);
        if all.len() > 1 {
            all.sort_by_cached_key(|sent| (sent.process, sent.cluster, sent.request.line()));
        }
        all
    }

    fn push(&self, sent: Sent) {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).push_back(sent);
        self.bell.notify_one();
    }
}

/// The network of one process towards one cluster.
#[derive(Debug, Clone)]
pub struct Network {
    /// Of the world.
    pub wire: Arc<Wire>,
    /// Whose network it is.
    pub process: ProcessId,
    /// Where it leads.
    pub cluster: ClusterId,
    /// Number of the credentials.
    pub key: u32,
}

impl Service<http::Request<Body>> for Network {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let network = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let request = Request::parse(&parts, &body)
                .ok_or_else(|| format!("nobody knows how to {} {}", parts.method, parts.uri))?;
            let (reply, answer) = oneshot::channel();
            let Network { wire, process, cluster, key } = network;
            wire.push(Sent { process, cluster, key, request, reply });
            let (code, content) = answer.await.map_err(|_closed| "connection reset")??;
            let content = match content {
                Content::Whole(bytes) => Answer(Some(bytes), None),
                Content::Pieces(pieces) => Answer(None, Some(pieces)),
            };
            let response =
                Response::builder().status(code).header(http::header::CONTENT_TYPE, "application/json");
            Ok(response.body(content)?)
        })
    }
}

/// The body of an answer.
#[derive(Debug)]
pub struct Answer(Option<Bytes>, Option<mpsc::UnboundedReceiver<Result<Bytes, BoxError>>>);

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(whole) = self.0.take() {
            return Poll::Ready(Some(Ok(Frame::data(whole))));
        }
        match self.1.as_mut() {
            Some(pieces) => pieces.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data))),
            None => Poll::Ready(None),
        }
    }
}
