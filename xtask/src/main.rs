//! Automation of this workspace: `cargo run -p xtask -- <task>`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks to a person")]

mod arch;
mod generate;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Automation of this workspace")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write everything that is generated: custom resource definitions and their reference.
    Gen {
        /// Write nothing; fail if a file is stale.
        #[arg(long)]
        check: bool,
    },
    /// Compare the dependencies between crates with the allowed ones, and list long files.
    Arch,
}

fn main() -> ExitCode {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let result = match Args::parse().task {
        Task::Gen { check } => generate::run(&root, check),
        Task::Arch => arch::run(&root),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
