//! The kubelet API of the virtual nodes: logs, exec, attach, port-forward and numbers of proxy pods, relayed to
//! their delegates through the API servers of the targets.
//!
//! The replica that looks after a node serves it, and says so there: its address is the replica's own, and it has a port
//! for itself. What a caller may do is decided as a kubelet does it, before anything else is looked at.

mod app;
mod callers;
mod certificate;
mod find;
mod listen;
mod metrics;
mod numbers;
mod ports;
mod relay;
mod rights;
mod route;
mod serving;
mod streams;
mod usage;

pub(crate) use certificate::keeper::State;
pub(crate) use metrics::Metrics;
pub(crate) use ports::Range;
pub(crate) use streams::Streams;

use crate::args::KubeletArgs;
use anyhow::Context;
use app::Shared;
use callers::{Authorities, Tokens};
use certificate::keeper::{Keeper, Wishes};
use find::Finder;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::{Api, Client};
use listen::Port;
use rights::Rights;
use runtime::{CancellationToken, Chain, Runtime, Seen, TargetKey, Targets, watch};
use serving::Hot;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch as channel;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

/// Where an API server says by which authority it is known to others.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
/// How often a mounted file is compared with what is in use.
const LOOK_AT_FILES: Duration = Duration::from_secs(5);
/// How long a port that another program has is left alone.
const TAKEN: Duration = Duration::from_secs(30);

/// What the kubelet API is made of.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) args: KubeletArgs,
    pub(crate) streams: Streams,
    /// The source, for streams and for what callers ask.
    pub(crate) local: Client,
    pub(crate) metrics: Metrics,
    /// The cluster's authorities as far as we know, in DER.
    pub(crate) authorities: Vec<Vec<u8>>,
}

/// The open ports and what they serve with.
pub(crate) struct Surface {
    shared: Arc<Shared>,
    tls: TlsAcceptor,
    listen: IpAddr,
    range: Range,
    open: BTreeMap<String, Port>,
    taken: BTreeMap<u16, Instant>,
    state: channel::Receiver<State>,
}

impl Surface {
    /// Starts to look after certificates and authorities until stopped; ports are opened by [`Surface::follow`].
    ///
    /// # Errors
    ///
    /// TLS cannot be set up.
    pub(crate) fn start(
        rt: &Runtime,
        parts: &Parts,
        targets: Targets,
        address: &str,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let Parts { args, streams, local, metrics, authorities } = parts.clone();
        let known = Authorities::default();
        tokio::spawn(follow_authorities(
            rt.clone(),
            known.clone(),
            args.client_ca_file.clone(),
            stop.clone(),
        ));
        let (state, receiver) = channel::channel(State::initial());
        let hot = Hot::default();
        let mut addresses: Vec<IpAddr> = Vec::new();
        for text in [address, rt.args.pod_ip.as_str()] {
            addresses.extend(text.parse::<IpAddr>().ok().filter(|address| !addresses.contains(address)));
        }
        let keeper = Keeper {
            client: rt.client.clone(),
            wishes: Wishes {
                signer: args.serving_signer.clone(),
                approve: args.approve_serving,
                lifetime_seconds: args.serving_lifetime_seconds,
                pod: rt.args.pod_name.clone(),
                addresses,
                authorities,
            },
            hot: hot.clone(),
            metrics: metrics.clone(),
            clock: rt.clock,
            state,
        };
        tokio::spawn(keeper.keep(stop.clone()));
        let shared = Shared {
            authorities: known,
            tokens: Tokens::new(local.clone()),
            rights: Rights::new(local.clone()),
            finder: Finder { local, targets, streams },
            metrics,
            counters: Mutex::default(),
            clock: rt.clock,
        };
        Ok(Self {
            shared: Arc::new(shared),
            tls: listen::tls(&hot).context("cannot set up TLS for the kubelet API")?,
            listen: args.kubelet_listen,
            range: Range { first: args.kubelet_port, count: args.kubelet_ports },
            open: BTreeMap::new(),
            taken: BTreeMap::new(),
            state: receiver,
        })
    }

    /// Opens a port for each of these nodes and closes those of others. `shown` are the ports that nodes show.
    pub(crate) fn follow(&mut self, nodes: &BTreeSet<String>, shown: &BTreeMap<String, u16>) {
        self.taken.retain(|_, since| since.elapsed() < TAKEN);
        let taken: BTreeSet<u16> = self.taken.keys().copied().collect();
        let wanted = ports::assign(nodes, &self.ports(), shown, (self.range, &taken));
        self.open.retain(|node, port| wanted.get(node) == Some(&port.number));
        for (node, number) in wanted {
            if self.open.contains_key(&node) {
                continue;
            }
            match listen::open((self.listen, number), &node, &self.shared, self.tls.clone()) {
                Ok(port) => {
                    self.open.insert(node, port);
                }
                Err(error) => {
                    warn!(node, port = number, error = %Chain(&error), "cannot open a port of the kubelet API");
                    self.taken.insert(number, Instant::now());
                }
            }
        }
    }

    /// Ends the streams of a target that is lost.
    pub(crate) fn cut(&self, target: &TargetKey) {
        self.shared.finder.streams.cut(&target.to_string());
    }

    /// The port of each node.
    pub(crate) fn ports(&self) -> BTreeMap<String, u16> {
        self.open.iter().map(|(node, port)| (node.clone(), port.number)).collect()
    }

    /// What is to be said of the certificate.
    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }
}

/// Follows the authorities of callers: in a file, or as the API server publishes them.
async fn follow_authorities(
    rt: Runtime,
    authorities: Authorities,
    file: Option<std::path::PathBuf>,
    stop: CancellationToken,
) {
    tokio::select! {
        () = stop.cancelled() => (),
        () = async {
            match &file {
                Some(path) => follow_file(path, &authorities).await,
                None => follow_published(&rt, &authorities).await,
            }
        } => (),
    }
}

async fn follow_published(rt: &Runtime, authorities: &Authorities) {
    let (namespace, name) = AUTHENTICATION;
    let maps = Api::<ConfigMap>::namespaced(rt.client.clone(), namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = Box::pin(watch(maps, config, "local", &rt.metrics));
    while let Some(event) = events.next().await {
        let map = match event {
            Seen::Replaced(all) => all.into_iter().next(),
            Seen::Applied(map) => Some(map),
            Seen::Deleted(_) => None,
            Seen::Failed(_) => continue,
        };
        let pem = map.and_then(|map| map.data?.remove("client-ca-file")).unwrap_or_default();
        let count = authorities.set(pem.as_bytes());
        if count == 0 {
            warn!(object = name, "the API server publishes no authority: callers are known by tokens only");
        } else {
            info!(count, "authorities of callers are in place");
        }
    }
}

async fn follow_file(path: &Path, authorities: &Authorities) {
    let mut last = Vec::new();
    loop {
        match tokio::fs::read(path).await {
            Ok(pem) if pem != last => {
                let count = authorities.set(&pem);
                info!(count, "authorities of callers are in place");
                last = pem;
            }
            Ok(_) => {}
            Err(error) => {
                warn!(path = %path.display(), error = %Chain(&error), "cannot read the authorities of callers");
            }
        }
        tokio::time::sleep(LOOK_AT_FILES).await;
    }
}
