//! The run's own network.
//!
//! ```text
//! harness (here) --- management link --- cluster --- uplink --- wan (a bridge)
//!                                           |
//!                                       pods (a bridge) --- one namespace per pod
//! ```
//!
//! Clusters reach one another over their uplinks and the namespace `wan` only, so taking an uplink down cuts a
//! cluster off from all others. The harness has a link of its own to each, so it still sees what happens in a
//! cluster that is cut off. Nothing has a route out of the machine.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use tokio::process::Command;

use crate::tools::{self, find, ip};

const WAN: &str = "wan";

/// The whole network of a run.
#[derive(Debug)]
pub struct Network {
    clusters: AtomicU16,
}

impl Network {
    /// Lays the namespace that joins all clusters.
    ///
    /// # Errors
    /// When the kernel refuses a namespace or a link.
    pub async fn lay() -> Result<Self> {
        ip(&format!("netns add {WAN}")).await?;
        ip(&format!("-n {WAN} link set lo up")).await?;
        ip(&format!("-n {WAN} link add wan type bridge")).await?;
        ip(&format!("-n {WAN} addr add 10.77.0.1/24 dev wan")).await?;
        ip(&format!("-n {WAN} link set wan up")).await?;
        forward(WAN).await?;
        Ok(Self { clusters: AtomicU16::new(0) })
    }

    /// Lays the namespace of one more cluster, of at most 90.
    ///
    /// # Errors
    /// When the kernel refuses a namespace or a link.
    pub async fn join(&self) -> Result<ClusterNetwork> {
        let next = self.clusters.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let index = u8::try_from(next).ok().filter(|index| *index <= 90).context("too many clusters")?;
        let cluster = ClusterNetwork { index, next_pod: Arc::new(AtomicU64::new(2)) };
        cluster.lay().await?;
        Ok(cluster)
    }
}

/// The namespace of one cluster.
#[derive(Debug, Clone)]
pub struct ClusterNetwork {
    index: u8,
    next_pod: Arc<AtomicU64>,
}

impl ClusterNetwork {
    async fn lay(&self) -> Result<()> {
        let (name, index) = (self.name(), self.index);
        let uplink = Ipv4Addr::new(10, 77, 0, 10_u8.saturating_add(index));
        let (api, pods) = (self.api(), self.pods(0, 0));
        ip(&format!("netns add {name}")).await?;
        ip(&format!("-n {name} link set lo up")).await?;
        ip(&format!("-n {name} addr add {api}/32 dev lo")).await?;

        ip(&format!("link add {name} netns {WAN} type veth peer name uplink netns {name}")).await?;
        ip(&format!("-n {WAN} link set {name} master wan")).await?;
        ip(&format!("-n {WAN} link set {name} up")).await?;
        ip(&format!("-n {name} addr add {uplink}/24 dev uplink")).await?;
        ip(&format!("-n {name} link set uplink up")).await?;
        ip(&format!("-n {name} route add default via 10.77.0.1")).await?;
        ip(&format!("-n {WAN} route add {api}/32 via {uplink}")).await?;
        ip(&format!("-n {WAN} route add {pods}/16 via {uplink}")).await?;

        ip(&format!("-n {name} link add pods type bridge")).await?;
        ip(&format!("-n {name} addr add {}/16 dev pods", self.pods(0, 1))).await?;
        ip(&format!("-n {name} link set pods up")).await?;

        ip(&format!("link add m{index} type veth peer name harness netns {name}")).await?;
        ip(&format!("addr add 10.78.{index}.1/30 dev m{index}")).await?;
        ip(&format!("link set m{index} up")).await?;
        ip(&format!("-n {name} addr add 10.78.{index}.2/30 dev harness")).await?;
        ip(&format!("-n {name} link set harness up")).await?;
        ip(&format!("route add {api}/32 via 10.78.{index}.2")).await?;
        ip(&format!("route add {pods}/16 via 10.78.{index}.2")).await?;
        forward(&name).await
    }

    /// The name of the network namespace.
    #[must_use]
    pub fn name(&self) -> String {
        format!("c{}", self.index)
    }

    /// The address of the cluster's API server, reachable from every cluster.
    #[must_use]
    pub fn api(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.index, 1)
    }

    /// The range out of which kwok takes the addresses of its pods, where nobody listens.
    #[must_use]
    pub fn fake_pods(&self) -> String {
        format!("10.20{}.0.1/16", self.index.min(9))
    }

    fn pods(&self, high: u8, low: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 100_u8.saturating_add(self.index), high, low)
    }

    /// A command that runs a program of the machine inside of this cluster's network.
    ///
    /// # Errors
    /// When util-linux is missing.
    pub fn command(&self, program: &std::path::Path) -> Result<Command> {
        enter(&self.name(), program)
    }

    /// Cuts the cluster off from all others, in both directions.
    ///
    /// # Errors
    /// When the link cannot be set.
    pub async fn cut(&self) -> Result<()> {
        ip(&format!("-n {WAN} link set {} down", self.name())).await
    }

    /// Undoes [`ClusterNetwork::cut`].
    ///
    /// # Errors
    /// When the link cannot be set.
    pub async fn heal(&self) -> Result<()> {
        ip(&format!("-n {WAN} link set {} up", self.name())).await
    }

    /// Lets packets from this cluster to another one's API server vanish; the other direction stays.
    ///
    /// # Errors
    /// When the route cannot be set.
    pub async fn lose_packets_to(&self, other: &Self) -> Result<()> {
        ip(&format!("-n {} route add blackhole {}/32", self.name(), other.api())).await
    }

    /// Undoes [`ClusterNetwork::lose_packets_to`].
    ///
    /// # Errors
    /// When the route cannot be removed.
    pub async fn deliver_packets_to(&self, other: &Self) -> Result<()> {
        ip(&format!("-n {} route del blackhole {}/32", self.name(), other.api())).await
    }

    /// Lays the namespace of one pod.
    ///
    /// # Errors
    /// When the kernel refuses a namespace or a link, or the cluster had 65,000 pods.
    pub async fn sandbox(&self) -> Result<Sandbox> {
        let number = self.next_pod.fetch_add(1, Ordering::Relaxed);
        let high = u8::try_from(number / 250).context("the cluster has no pod address left")?;
        let low = u8::try_from(number % 250).unwrap_or_default().saturating_add(2);
        let address = self.pods(high, low);
        let (cluster, name) = (self.name(), format!("{}p{number}", self.name()));
        ip(&format!("netns add {name}")).await?;
        ip(&format!("link add p{number} netns {cluster} type veth peer name eth0 netns {name}")).await?;
        ip(&format!("-n {cluster} link set p{number} master pods up")).await?;
        ip(&format!("-n {name} link set lo up")).await?;
        ip(&format!("-n {name} addr add {address}/16 dev eth0")).await?;
        ip(&format!("-n {name} link set eth0 up")).await?;
        ip(&format!("-n {name} route add default via {}", self.pods(0, 1))).await?;
        Ok(Sandbox { name, address })
    }
}

/// The network namespace of one pod.
#[derive(Debug, Clone)]
pub struct Sandbox {
    name: String,
    /// The pod's address.
    pub address: Ipv4Addr,
}

impl Sandbox {
    /// A command that runs a program of the machine inside of this pod's network.
    ///
    /// # Errors
    /// When util-linux is missing.
    pub fn command(&self, program: &std::path::Path) -> Result<Command> {
        enter(&self.name, program)
    }

    /// Removes the namespace, and with it the link to the cluster.
    ///
    /// # Errors
    /// When the namespace is gone already.
    pub async fn remove(&self) -> Result<()> {
        ip(&format!("netns del {}", self.name)).await
    }
}

fn enter(namespace: &str, program: &std::path::Path) -> Result<Command> {
    let mut command = Command::new(find("nsenter")?);
    command.arg(format!("--net=/run/netns/{namespace}")).arg("--").arg(program);
    Ok(command)
}

async fn forward(namespace: &str) -> Result<()> {
    let line = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/all/send_redirects";
    let mut command = enter(namespace, &find("sh")?)?;
    command.args(["-c", line]);
    tools::output(command).await.map(drop)
}
