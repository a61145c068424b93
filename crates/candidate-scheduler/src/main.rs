//! The candidate scheduler's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::run(
        "candidate-scheduler",
        "Reserves nodes for the pods of other clusters, binds those that were elected, and publishes what this cluster offers",
        candidate_scheduler::serve,
    )
}
