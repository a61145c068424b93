//! Faults of whole clusters, one at a time: their API servers, their etcd, their networks.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::process::{Process, Signal};
use e2e::setup::{SOURCE, targets};
use e2e::wait::until;
use tokio::time::sleep;

use crate::refusals::Refusal;

/// Between two faults.
const CALM: Duration = Duration::from_secs(8);
/// Shorter than what a Lease lets pass: an API server that is frozen for longer is not what that fence is for.
const FREEZE: Duration = Duration::from_secs(12);
/// Long enough for a target to count as silent, and for pods that need no proof to move.
const CUT: Duration = Duration::from_secs(55);
const ONE_WAY: Duration = Duration::from_secs(25);
/// Longer than a Lease lasts: pods with `fence: Lease` move.
const LONG_CUT: Duration = Duration::from_secs(160);
const SLOW: Duration = Duration::from_secs(15);

/// Random numbers that a seed repeats (xorshift*).
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below another one; 0 below 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(1).max(1);
        usize::try_from((self.next() >> 16) % limit).unwrap_or_default()
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    KillApiServer,
    FreezeApiServer,
    SlowApiServer,
    Compact,
    Cut,
    OneWayOut,
    OneWayBack,
    Refuse(Refusal),
}

const FAULTS: [Fault; 10] = [
    Fault::Cut,
    Fault::Refuse(Refusal::TooManyRequests),
    Fault::KillApiServer,
    Fault::Refuse(Refusal::InternalErrors),
    Fault::OneWayOut,
    Fault::FreezeApiServer,
    Fault::Refuse(Refusal::NoQuota),
    Fault::Compact,
    Fault::OneWayBack,
    Fault::SlowApiServer,
];

/// The control planes, and the API servers that run now.
pub(crate) struct Planes<'a> {
    ground: &'a Ground,
    source: &'a Cluster,
    targets: Vec<&'a Cluster>,
    servers: Mutex<BTreeMap<String, Process>>,
}

impl<'a> Planes<'a> {
    pub(crate) fn of(ground: &'a Ground) -> Result<Self> {
        let mut servers = BTreeMap::new();
        for cluster in ground.clusters() {
            servers.insert(cluster.name.clone(), cluster.process("kube-apiserver")?.clone());
        }
        let (source, targets) = (ground.cluster(SOURCE)?, targets(ground).collect());
        Ok(Self { ground, source, targets, servers: Mutex::new(servers) })
    }

    /// Makes faults until the end, each undone before the next; returns how many of each kind there were.
    pub(crate) async fn until(&self, end: Instant, seed: u64) -> Result<BTreeMap<String, usize>> {
        let mut dice = Dice::new(seed ^ 0xfa17);
        let mut counts = BTreeMap::new();
        let mut long_cuts = 0;
        let mut faults = FAULTS;
        // The first round begins with a target that is cut off.
        let mut first = true;
        loop {
            if !std::mem::take(&mut first) {
                dice.shuffle(&mut faults);
            }
            for fault in faults {
                sleep(CALM).await;
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(counts);
                }
                let target = self.targets.get(dice.below(self.targets.len())).context("no target")?;
                // Now and then what is not done in a target is done in the source.
                let of_targets = matches!(fault, Fault::Cut | Fault::Refuse(Refusal::NoQuota));
                let in_source = !of_targets && dice.below(3) == 0;
                let cluster = if in_source { self.source } else { target };
                let is_long = fault == Fault::Cut && long_cuts == 0 && left > LONG_CUT + CUT;
                long_cuts += usize::from(is_long);
                let word = if is_long { "LongCut".to_owned() } else { format!("{fault:?}") };
                eprintln!("{word} of {}", cluster.name);
                *counts.entry(word).or_default() += 1;
                let cut = if is_long { LONG_CUT } else { CUT };
                self.make(fault, cluster, target, cut).await.with_context(|| format!("{fault:?}"))?;
            }
        }
    }

    async fn make(&self, fault: Fault, cluster: &Cluster, target: &Cluster, cut: Duration) -> Result<()> {
        match fault {
            Fault::KillApiServer => self.kill(cluster).await,
            Fault::FreezeApiServer => self.freeze(cluster).await,
            Fault::SlowApiServer => self.slow(cluster).await,
            Fault::Compact => compact(cluster).await,
            Fault::Cut => {
                cluster.cut().await?;
                sleep(cut).await;
                cluster.heal().await
            }
            Fault::OneWayOut => one_way(self.source, target).await,
            Fault::OneWayBack => one_way(target, self.source).await,
            Fault::Refuse(refusal) => refusal.lasts(cluster).await,
        }
    }

    fn server(&self, cluster: &Cluster) -> Result<Process> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.get(&cluster.name).cloned().context("no API server")
    }

    /// Ends the API server, and with it all watches; another one takes over what etcd holds.
    async fn kill(&self, cluster: &Cluster) -> Result<()> {
        let old = self.server(cluster)?;
        old.signal(Signal::Kill).await?;
        old.wait().await;
        sleep(Duration::from_secs(2)).await;
        let new = self.ground.start_api_server(cluster)?;
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).insert(cluster.name.clone(), new);
        until(Duration::from_secs(120), "the API server is back", async || {
            Ok((cluster.raw("/readyz").await? == "ok").then_some(()))
        })
        .await
    }

    async fn freeze(&self, cluster: &Cluster) -> Result<()> {
        let server = self.server(cluster)?;
        server.signal(Signal::Stop).await?;
        sleep(FREEZE).await;
        server.signal(Signal::Cont).await
    }

    /// Lets the API server work for a fifth of the time only.
    async fn slow(&self, cluster: &Cluster) -> Result<()> {
        let server = self.server(cluster)?;
        let end = Instant::now() + SLOW;
        while Instant::now() < end {
            server.signal(Signal::Stop).await?;
            sleep(Duration::from_millis(400)).await;
            server.signal(Signal::Cont).await?;
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

/// What one cluster sends to the API server of another one is lost; the other direction stays.
async fn one_way(from: &Cluster, to: &Cluster) -> Result<()> {
    let (from, to) = (&from.local()?.network, &to.local()?.network);
    from.lose_packets_to(to).await?;
    sleep(ONE_WAY).await;
    from.deliver_packets_to(to).await
}

/// Compacts the history in etcd, so that a watch which lags behind has to begin anew.
async fn compact(cluster: &Cluster) -> Result<()> {
    let answer = etcd(cluster, "/v3/kv/range", r#"{"key":"AA=="}"#).await?;
    let revision: u64 = answer
        .split("\"revision\":\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("etcd did not tell its revision: {answer}"))?;
    let answer = etcd(cluster, "/v3/kv/compaction", &format!(r#"{{"revision":"{revision}"}}"#)).await?;
    anyhow::ensure!(answer.contains(" 200 "), "etcd did not compact: {answer}");
    Ok(())
}

/// One call of the HTTP gateway of etcd, which listens inside of its cluster's network only.
async fn etcd(cluster: &Cluster, path: &str, body: &str) -> Result<String> {
    let request = format!(
        "POST {path} HTTP/1.0\\r\\nContent-Type: application/json\\r\\nContent-Length: {}\\r\\n\\r\\n{body}",
        body.len()
    );
    let line = format!("exec 3<>/dev/tcp/127.0.0.1/2379; printf '%b' '{request}' >&3; cat <&3");
    let mut command = cluster.local()?.network.command(&e2e::tools::find("bash")?)?;
    command.args(["-c", &line]);
    e2e::tools::output(command).await
}
