//! Start and stop of a process.

use crate::admin::{self, Readiness};
use crate::args::CommonArgs;
use crate::client::{self, Connector};
use crate::clock::Clock;
use crate::errors::Chain;
use crate::{log, metrics::Metrics};
use anyhow::Context;
use clap::{Args, FromArgMatches};
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// How long a service that was asked to stop may take to finish what it is doing.
const DRAIN: Duration = Duration::from_secs(8);

/// What a service finds when it starts.
#[derive(Clone)]
pub struct Runtime {
    /// The component's plain name.
    pub component: &'static str,
    /// The flags that all services have.
    pub args: CommonArgs,
    /// The cluster that this process runs in, with deadlines and metrics.
    pub client: kube::Client,
    /// The common metric families and the registry for the service's own.
    pub metrics: Metrics,
    /// Conditions of `/readyz`.
    pub readiness: Readiness,
    /// Cancelled when the process is asked to stop.
    pub shutdown: CancellationToken,
    /// The time.
    pub clock: Clock,
    /// How clients of other clusters are made.
    pub connector: Connector,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("component", &self.component)
            .field("args", &self.args)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// The name under which this component writes: field manager, Lease, event source.
    #[must_use]
    pub fn manager(&self) -> String {
        format!("multicluster-{}", self.component)
    }
}

/// Parses flags, installs logs and TLS, serves the admin port and runs the service until it ends or the
/// process is asked to stop. Returns the exit code of `main`.
pub fn run<A, F, Fut>(component: &'static str, about: &'static str, serve: F) -> ExitCode
where
    A: Args,
    F: FnOnce(Runtime, A) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let command = CommonArgs::augment_args(A::augment_args(clap::Command::new(component)))
        .about(about)
        .version(env!("CARGO_PKG_VERSION"));
    let matches = command.get_matches();
    let (common, own) = match (CommonArgs::from_arg_matches(&matches), A::from_arg_matches(&matches)) {
        (Ok(common), Ok(own)) => (common, own),
        (Err(error), _) | (_, Err(error)) => error.exit(),
    };
    if let Err(error) = log::install(&common) {
        // Nothing can be logged yet; the exit code and the standard error are all there is.
        clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{error:#}\n")).exit();
    }
    // The only provider that is linked; a second installation would be a defect of ours, not of the user.
    let installed = rustls::crypto::ring::default_provider().install_default();
    if installed.is_err() {
        error!("a TLS provider was installed before the process started");
        return ExitCode::FAILURE;
    }
    match start(component, common, own, serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(error = %Chain(error.as_ref()), "the process ends");
            ExitCode::FAILURE
        }
    }
}

fn start<A, F, Fut>(component: &'static str, args: CommonArgs, own: A, serve: F) -> anyhow::Result<()>
where
    F: FnOnce(Runtime, A) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let threads =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let result = threads.block_on(async {
        let metrics = Metrics::new(component).context("cannot register metrics")?;
        let client = client::local(&metrics).await.context("cannot make a client of the local cluster")?;
        let shutdown = CancellationToken::new();
        let runtime = Runtime {
            component,
            args,
            client,
            metrics,
            readiness: Readiness::default(),
            shutdown: shutdown.clone(),
            clock: Clock::default(),
            connector: Connector::default(),
        };
        info!(component, version = env!("CARGO_PKG_VERSION"), "started");
        let admin = admin::serve(
            runtime.args.admin_address,
            runtime.metrics.registry.clone(),
            runtime.readiness.clone(),
            shutdown.clone(),
        );
        tokio::select! {
            Err(error) = admin => Err(error).context("cannot serve the admin port"),
            result = serve(runtime, own) => result,
            result = signalled(shutdown) => result,
        }
    });
    threads.shutdown_timeout(Duration::from_secs(2));
    result
}

/// Ends some time after SIGTERM or SIGINT, so that what listens to the token can finish.
async fn signalled(shutdown: CancellationToken) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () }
    info!("asked to stop");
    shutdown.cancel();
    tokio::time::sleep(DRAIN).await;
    Ok(())
}
