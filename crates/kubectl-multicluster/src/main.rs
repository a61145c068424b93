//! `kubectl multicluster …`.

use clap::Parser as _;
use kubectl_multicluster::args::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_multicluster::main(&Args::parse())
}
