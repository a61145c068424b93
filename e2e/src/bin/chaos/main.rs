//! Chaos on real control planes: every component is killed again and again, API servers are killed, frozen, slowed and refuse,
//! etcd is compacted, networks are parted in both directions or in one, while Deployments, StatefulSets, Jobs and bare
//! pods come and go. A recorder that watches all clusters directly counts what must not happen.
//!
//! The last line is JSON: `{"pods","kills","lost","duplicated","resurrected","stuck"}`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod faults;
mod kills;
mod recorder;
mod refusals;
mod tally;
mod work;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use e2e::controlplane::Options;
use e2e::ground::Ground;
use e2e::nodes::{Shape, create_many};
use e2e::program;
use e2e::setup::{self, SOURCE};
use tokio::runtime::Runtime;

use crate::recorder::Recorder;
use crate::tally::Tally;
use crate::work::Work;

/// The namespace of the workloads.
const NAMESPACE: &str = "chaos";

/// Kills and parts clusters under load, and counts what must not happen.
#[derive(Debug, Clone, Parser)]
struct Args {
    /// How long faults are made, in minutes.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Where the random choices begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Let workloads move without any proof that they do not run any more: the counts must not be zero then.
    #[arg(long)]
    unfenced: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    program::end(program::inside(None, |runtime| run(&args, runtime)))
}

fn run(args: &Args, runtime: &Runtime) -> Result<ExitCode> {
    let tally = runtime.block_on(chaos(args))?;
    for line in &tally.findings {
        println!("{line}");
    }
    println!("{}", tally.line());
    let is_good = if args.unfenced { tally.bad() > 0 } else { tally.bad() == 0 };
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn chaos(args: &Args) -> Result<Tally> {
    let ground = Ground::start(&[SOURCE, "target-1", "target-2"], Options::default()).await?;
    for target in setup::targets(&ground) {
        create_many(&target.client, "node", 4, &Shape::default()).await?;
    }
    eprintln!("clusters are up; installing the chart");
    setup::install(&ground, &[]).await?;
    setup::connect_all(&ground).await?;
    setup::electing_namespace(&ground, NAMESPACE).await?;
    let recorder = Recorder::start(&ground, NAMESPACE);
    let work = Work::new(&ground, args.unfenced)?;
    work.begin().await?;
    let outcome = storm(args, &ground, &work, &recorder).await;
    if outcome.as_ref().is_ok_and(|tally| args.unfenced || tally.bad() == 0) {
        return outcome;
    }
    ground.dump_for_people("multicluster-chaos").await;
    outcome
}

/// Faults, calm, the last look at the workloads, their end, and the count.
async fn storm(args: &Args, ground: &Ground, work: &Work<'_>, recorder: &Recorder) -> Result<Tally> {
    work.settled(Duration::from_secs(180)).await.context("before any fault was made")?;
    let end = Instant::now() + Duration::from_secs(args.minutes * 60);
    let planes = faults::Planes::of(ground)?;
    let (kills, faults, ()) = tokio::join!(
        kills::until(ground, end, args.seed),
        planes.until(end, args.seed),
        work.churn(end, args.seed)
    );
    let (kills, faults) = (kills?, faults?);
    eprintln!("the storm is over: {} kills, faults {faults:?}", kills.values().sum::<usize>());
    let mut tally = Tally::default();
    tally.kills(&kills, args.minutes);
    // A target that was cut off just now stops its pods only when its Lease has run out.
    if let Err(error) = work.settled(Duration::from_secs(420)).await {
        tally.finding(format!("not settled: {error:#}"));
    }
    work.judge(&mut tally).await?;
    work.end(&mut tally).await?;
    tally.lives(&recorder.lives(), recorder.gaps());
    Ok(tally)
}
