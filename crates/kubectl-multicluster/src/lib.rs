//! `kubectl multicluster`: what a person sees of, and does with, the clusters in which pods of theirs run.
//!
//! It acts with the rights of the person's kubeconfig alone, and writes only what the person asks for:
//!
//! | command | writes |
//! |---|---|
//! | `status`, `explain`, `orphans`, `bundle`, `completion` | nothing in any cluster |
//! | `cordon`, `uncordon` | `spec.unschedulable` of a virtual Node |
//! | `drain` | the same, and evictions |
//! | `target add` | a ClusterSource or Source and a token in the target; a Secret and a ClusterTarget or Target in the source |
//! | `target remove` | deletes the same, after a drain |
//! | `target rotate` | a token in the target, the Secret in the source |
//!
//! The exit code is 0 when all was done, 1 when something was not, 2 when the command line is wrong.

mod access;
pub mod args;
mod bundle;
mod expiry;
mod explain;
mod fleet;
mod nodes;
mod orphans;
mod output;
mod scores;
mod status;
mod target;

use anyhow::{Context as _, Result};
use args::{Args, Command};
use clap::CommandFactory as _;
use std::io::{Write as _, stderr, stdout};
use std::process::ExitCode;

/// The program.
#[must_use]
pub fn main(args: &Args) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody reads what a closed standard error would say.
            drop(writeln!(stderr().lock(), "error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if let Command::Completion { shell } = args.command {
        clap_complete::generate(shell, &mut Args::command(), "kubectl-multicluster", &mut stdout().lock());
        return Ok(());
    }
    // A second provider that somebody installed serves as well.
    drop(rustls::crypto::ring::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(obey(args))
}

async fn obey(args: &Args) -> Result<()> {
    let access = &args.access;
    match &args.command {
        Command::Status(output) => status::run(access, output.output).await,
        Command::Explain { pod, target_context, output } => {
            explain::run(access, pod, target_context, output.output).await
        }
        Command::Target(command) => target::run(access, command).await,
        Command::Cordon { target } => nodes::cordon(access, target, true).await,
        Command::Uncordon { target } => nodes::cordon(access, target, false).await,
        Command::Drain(drain) => nodes::drain(access, drain).await,
        Command::Orphans { target_context, output } => {
            orphans::run(access, target_context, output.output).await
        }
        Command::Bundle { file } => bundle::run(access, file).await,
        Command::Completion { .. } => Ok(()),
    }
}
