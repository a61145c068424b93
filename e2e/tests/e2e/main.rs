//! The end-to-end tests: real control planes, the chart as users install it, every component under its own
//! account.
//!
//! All tests share one source and two targets that are started once. Each works in namespaces of its own. A
//! test that disturbs a whole cluster is listed as `alone` and runs when no other does.

#![expect(clippy::print_stderr, reason = "a test binary reports its progress")]

mod admission;
mod api;
mod autoscaling;
mod budget;
mod bystanders;
mod cases;
mod chart;
mod cli;
mod daemons;
mod data;
mod declared;
mod drains;
mod ends;
mod failover;
mod follow;
mod grants;
mod groups;
mod guest;
mod identity;
mod installed;
mod leases;
mod ordinary;
mod outages;
mod owners;
mod placement;
mod recorder;
mod refusals;
mod restarts;
mod scene;
mod scores;
mod services;
mod sessions;
mod shares;
mod silence;
mod sources;
mod streams;
mod targets;
mod the_ground;
mod the_recorder;
mod third;
mod told;
mod twins;
mod updates;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::binaries::Binaries;
use e2e::controlplane::Options;
use e2e::ground::Ground;
use e2e::namespaces::{Side, enter};
use e2e::nodes::{Shape, create_many};
use e2e::provider::Provider;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Handle;
use tokio::sync::RwLock;

use cases::Case;

/// The clusters of the run.
const CLUSTERS: [&str; 3] = ["source", "target-1", "target-2"];
/// How many tests run at once by default: they wait more than they work.
const AT_ONCE: usize = 6;
const LONGEST_TEST: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    if arguments.list {
        let names = cases::all().into_iter().map(|case| Trial::test(case.name, || Ok(())));
        return Ok(libtest_mimic::run(&arguments, names.collect()).exit_code());
    }
    let provider = Provider::from_environment(Options { audit: true, ..Options::default() })?;
    if provider.is_local() {
        Binaries::ensure()?;
        if let Side::Outside(code) = enter()? {
            return Ok(code);
        }
    }
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    if the_ground::is_rehearsal() {
        runtime.block_on(the_ground::rehearse())?;
    }
    let start = Instant::now();
    let ground = Arc::new(runtime.block_on(prepare(&provider))?);
    eprintln!("clusters {} are up after {:.1?}", CLUSTERS.join(", "), start.elapsed());
    arguments.test_threads.get_or_insert(AT_ONCE);
    let order = Arc::new(RwLock::new(()));
    let trials = cases::all().into_iter().map(|case| {
        let (ground, order, handle) = (Arc::clone(&ground), Arc::clone(&order), runtime.handle().clone());
        let ignored = case.needs_local && !ground.is_local();
        Trial::test(case.name.clone(), move || conduct(&case, &ground, &order, &handle))
            .with_ignored_flag(ignored)
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    ground.check_faults()?;
    Ok(conclusion.exit_code())
}

async fn prepare(provider: &Provider) -> Result<Ground> {
    let ground = provider.provide(&CLUSTERS).await?;
    if ground.is_local() {
        for cluster in ground.clusters() {
            create_many(&cluster.client, "fake", 2, &Shape::default()).await?;
        }
    }
    Ok(ground)
}

fn conduct(case: &Case, ground: &Arc<Ground>, order: &RwLock<()>, handle: &Handle) -> Result<(), Failed> {
    handle.block_on(async {
        let (_shared, _alone) =
            if case.alone { (None, Some(order.write().await)) } else { (Some(order.read().await), None) };
        let outcome = match tokio::time::timeout(LONGEST_TEST, (case.run)(ground)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(anyhow::anyhow!("the test did not end within {LONGEST_TEST:?}")),
        };
        let Err(error) = outcome else { return Ok(()) };
        let folder = results().join(case.name.replace("::", "."));
        let dumped = match ground.dump(&folder).await {
            Ok(()) => format!("objects, events and logs are in {}", folder.display()),
            Err(error) => format!("nothing was dumped: {error:#}"),
        };
        Err(Failed::from(format!("{error:#}\n{dumped}")))
    })
}

/// Where failed tests leave what they saw.
fn results() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2e")
}
