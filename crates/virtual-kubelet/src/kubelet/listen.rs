//! The listeners: one for each virtual node.

use super::app::{App, Shared, answer};
use super::callers::{AnyCertificate, Shown};
use super::serving::Hot;
use axum::middleware::AddExtension;
use axum::{Extension, Router};
use axum_server::Handle;
use axum_server::accept::Accept;
use futures::FutureExt;
use futures::future::BoxFuture;
use runtime::Chain;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::Layer;
use tracing::{info, warn};

/// Longest TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// TLS 1.2 or later, with whatever certificate is set, asking callers for theirs.
pub(crate) fn tls(hot: &Hot) -> Result<TlsAcceptor, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(AnyCertificate::default()))
        .with_cert_resolver(Arc::new(hot.clone()));
    // A connection is upgraded as a whole, which HTTP/2 cannot.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts over TLS and gives each request the certificates that its caller showed.
#[derive(Clone)]
struct Callers(TlsAcceptor);

impl<S: Send + 'static> Accept<TcpStream, S> for Callers {
    type Stream = TlsStream<TcpStream>;
    type Service = AddExtension<S, Shown>;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let tls = self.0.clone();
        async move {
            stream.set_nodelay(true)?;
            let stream = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await??;
            let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let shown = Shown(shown.iter().map(|one| one.clone().into_owned()).collect());
            Ok((stream, Layer::layer(&Extension(shown), service)))
        }
        .boxed()
    }
}

/// An open port; closed when dropped, while streams that it accepted go on.
pub(crate) struct Port {
    pub(crate) number: u16,
    handle: Handle<SocketAddr>,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.handle.graceful_shutdown(None);
    }
}

/// Serves one node on one port.
///
/// # Errors
///
/// The port is taken.
pub(crate) fn open(
    (address, number): (IpAddr, u16),
    node: &str,
    shared: &Arc<Shared>,
    tls: TlsAcceptor,
) -> io::Result<Port> {
    let listener = TcpListener::bind((address, number))?;
    listener.set_nonblocking(true)?;
    let handle = Handle::new();
    let app = App { node: node.into(), shared: Arc::clone(shared) };
    let service = Router::new().fallback(answer).with_state(app).into_make_service();
    let server = axum_server::from_tcp(listener)?.acceptor(Callers(tls)).handle(handle.clone());
    let node = node.to_owned();
    info!(node, port = number, "serving the kubelet API");
    tokio::spawn(async move {
        if let Err(error) = server.serve(service).await {
            warn!(node, error = %Chain(&error), "the kubelet API of a node ended");
        }
    });
    Ok(Port { number, handle })
}
