//! Measurements on the test ground.
//!
//! `burst`: a Deployment of many replicas, once in a plain cluster and once in a source with targets, in the
//! same run, with the same fake nodes in all and the limits of clients and servers lifted for both.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod burst;
mod freeze;
mod profile;
mod recorder;
mod report;
mod resident;
mod scheduler;
mod status;
mod streams;
mod targets;
mod webhook;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use burst::Load;
use clap::{Parser, ValueEnum};
use e2e::program;
use freeze::What;
use profile::Profiles;
use scheduler::Plan;
use tokio::runtime::Runtime;

/// Measures the project beside a plain cluster.
#[derive(Debug, Clone, Parser)]
struct Args {
    /// What is measured.
    #[arg(long, value_enum, default_value = "burst")]
    work: Work,
    /// How many pods.
    #[arg(long, default_value_t = 1000)]
    pods: usize,
    /// How many target clusters.
    #[arg(long, default_value_t = 2)]
    targets: usize,
    /// How many nodes the work `scheduler` has.
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// How many rounds the work `scheduler` has for each of both.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The program that the work `scheduler` measures; by default the one beside this program.
    #[arg(long)]
    candidate_scheduler: Option<PathBuf>,
    /// A folder for profiles of the API servers during the works `burst` and `direct`.
    #[arg(long)]
    profiles: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Work {
    /// All pods at once, by a Deployment.
    Burst,
    /// All pods at once, created one by one.
    Direct,
    /// The burst with 1, 2, 3 and 8 targets.
    Targets,
    /// Memory and cold starts with many pods at rest.
    Resident,
    /// From a change of a delegate's status to the proxy pod.
    Status,
    /// One of two targets is frozen, by its API server, when half of the pods are bound.
    FreezeApiServer,
    /// The same, by its candidate-scheduler.
    FreezeCandidateScheduler,
    /// Logs, sessions and a forwarded port of a pod, through a virtual node and directly.
    Streams,
    /// Reviews of pods of 64 kB by the webhook.
    Webhook,
    /// One scheduler alone in one cluster, ours and kube-scheduler in turn.
    Scheduler,
}

fn main() -> ExitCode {
    let args = Args::parse();
    program::end(program::inside(None, |runtime| run(&args, runtime)))
}

fn run(args: &Args, runtime: &Runtime) -> Result<ExitCode> {
    let (report, is_good) = match args.work {
        Work::Burst | Work::Direct => {
            let profiles = args.profiles.clone().map(|folder| Profiles { folder });
            let bare = matches!(args.work, Work::Direct);
            let load = Load { pods: args.pods, bare, profiles: profiles.as_ref() };
            let report = runtime.block_on(burst::run(load, args.targets))?;
            (report.to_string(), report.is_complete())
        }
        Work::Targets => runtime.block_on(targets::run(args.pods))?,
        Work::Resident => runtime.block_on(resident::run(args.pods, args.targets))?,
        Work::Status => runtime.block_on(status::run())?,
        Work::FreezeApiServer => runtime.block_on(freeze::run(args.pods, What::ApiServer))?,
        Work::FreezeCandidateScheduler => {
            runtime.block_on(freeze::run(args.pods, What::CandidateScheduler))?
        }
        Work::Streams => runtime.block_on(streams::run())?,
        Work::Webhook => runtime.block_on(webhook::run())?,
        Work::Scheduler => {
            let program = args.candidate_scheduler.clone();
            let plan = Plan { nodes: args.nodes, pods: args.pods, rounds: args.rounds, program };
            runtime.block_on(scheduler::run(&plan))?
        }
    };
    print!("{report}");
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
