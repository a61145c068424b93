//! Processes: the shipped services, each over its own network.

use crate::wire::{ClusterId, Network, ProcessId, Wire};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use runtime::args::{CommonArgs, LogFormat};
use runtime::{CancellationToken, Clock, Connector, Metrics, Runtime, Targets};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Which service a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    ProxyScheduler,
    FeedbackController,
    VirtualKubelet,
    CandidateScheduler,
    ChaperonController,
}

impl Service {
    /// What runs in a source.
    pub const OF_SOURCE: [Service; 3] =
        [Service::VirtualKubelet, Service::ProxyScheduler, Service::FeedbackController];
    /// What runs in a target.
    pub const OF_TARGET: [Service; 2] = [Service::CandidateScheduler, Service::ChaperonController];

    /// Its plain name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Service::ProxyScheduler => "proxy-scheduler",
            Service::FeedbackController => "feedback-controller",
            Service::VirtualKubelet => "virtual-kubelet",
            Service::CandidateScheduler => "candidate-scheduler",
            Service::ChaperonController => "chaperon-controller",
        }
    }
}

/// One replica that leads, or did.
#[derive(Debug)]
pub struct Process {
    /// What it runs.
    pub service: Service,
    /// Where it runs.
    pub home: ClusterId,
    /// Nothing that it does counts any more.
    pub dead: bool,
    /// It stands still: nothing leaves or reaches it.
    pub paused: bool,
    /// Writes that it may still make before it dies, and whether the last of them is made.
    pub doomed: Option<(u32, bool)>,
    token: CancellationToken,
    task: JoinHandle<()>,
}

/// What a process is started with.
#[derive(Debug, Clone)]
pub struct Launch {
    pub id: ProcessId,
    pub service: Service,
    pub home: ClusterId,
    /// How far its clock is off, in seconds.
    pub skew: i64,
}

impl Process {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// Its metrics clash.
    pub fn start(
        launch: &Launch,
        wire: &Arc<Wire>,
        (start, wall): (Instant, Timestamp),
    ) -> anyhow::Result<Self> {
        let token = CancellationToken::new();
        let service = launch.service;
        let metrics = Metrics::new(service.name())?;
        let network = Network { wire: Arc::clone(wire), process: launch.id, cluster: launch.home, key: 0 };
        let elsewhere = network.clone();
        let connect = move |config: kube::Config, name: &str, metrics: &Metrics| {
            let (cluster, key) = address(config.cluster_url.host().unwrap_or_default());
            Ok(runtime::client::over(Network { cluster, key, ..elsewhere.clone() }, name, metrics))
        };
        let skewed = wall.saturating_add(SignedDuration::from_secs(launch.skew)).unwrap_or(wall);
        let runtime = Runtime {
            component: service.name(),
            args: args(),
            client: runtime::client::over(network, "local", &metrics),
            metrics,
            readiness: runtime::admin::Readiness::default(),
            shutdown: token.clone(),
            clock: Clock::from(start, skewed),
            connector: Connector::new(connect),
        };
        let stop = token.child_token();
        let task = tokio::spawn(async move {
            // A leader that ends early is one that could not start; nothing of it is left then.
            let _ended = lead(service, runtime, stop).await;
        });
        Ok(Self { service, home: launch.home, dead: false, paused: false, doomed: None, token, task })
    }

    /// Asks it to stop; it may finish what it is doing.
    pub fn stop(&self) {
        self.token.cancel();
    }

    /// Whether it ended by itself, as one does that cannot start; a kubelet starts it again.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        !self.dead && self.task.is_finished() && !self.token.is_cancelled()
    }

    /// Ends it between two instructions.
    pub fn kill(&mut self) {
        self.dead = true;
        self.task.abort();
        self.token.cancel();
    }
}

async fn lead(service: Service, runtime: Runtime, stop: CancellationToken) -> anyhow::Result<()> {
    let registry = runtime.metrics.registry.clone();
    match service {
        Service::ProxyScheduler => {
            let targets = Targets::start(&runtime);
            let args = proxy_scheduler::args::Args::default();
            let metrics = proxy_scheduler::metrics::Metrics::new(&registry)?;
            let seat = proxy_scheduler::controller::Seat { runtime: &runtime, args: &args, metrics, targets };
            seat.lead(stop).await
        }
        Service::FeedbackController => {
            let targets = Targets::start(&runtime);
            feedback_controller::lead(runtime, targets, stop).await
        }
        Service::VirtualKubelet => {
            let targets = Targets::start(&runtime);
            virtual_kubelet::lead(runtime, targets, "10.0.0.1".to_owned(), stop).await
        }
        Service::CandidateScheduler => {
            let settings = candidate_scheduler::Settings::default();
            let metrics = candidate_scheduler::metrics::Metrics::new(&registry)?;
            candidate_scheduler::lead(runtime, settings, metrics, stop).await
        }
        Service::ChaperonController => {
            let metrics = chaperon_controller::metrics::Metrics::new(&registry)?;
            chaperon_controller::lead(runtime, metrics, stop).await
        }
    }
}

/// The host name under which a cluster is reached with the given key.
#[must_use]
pub fn host(cluster: ClusterId, key: u32) -> String {
    format!("c{cluster}-k{key}.sim")
}

fn address(host: &str) -> (ClusterId, u32) {
    let name = host.trim_end_matches(".sim");
    let (cluster, key) = name.split_once('-').unwrap_or((name, ""));
    let number =
        |text: &str, letter: char| text.trim_start_matches(letter).parse::<u32>().unwrap_or_default();
    (ClusterId::try_from(number(cluster, 'c')).unwrap_or_default(), number(key, 'k'))
}

fn args() -> CommonArgs {
    CommonArgs {
        admin_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        log_format: LogFormat::Text,
        log_filter: "off".to_owned(),
        leader_elect: false,
        lease_duration_seconds: 15,
        pod_namespace: "multicluster-scheduler".to_owned(),
        pod_name: "replica".to_owned(),
        pod_ip: "127.0.0.1".to_owned(),
    }
}
