//! cluster-provisioner.

use cluster_provisioner::cli;
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let first = std::env::args().nth(1);
    if !cli::is_for_us(first.as_deref()) {
        return runtime::run(
            "cluster-provisioner",
            "Makes the clusters that WorkloadClusters declare. Further tools: import, render.",
            cluster_provisioner::serve,
        );
    }
    match cli::run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(error) => {
            // Without a standard error there is nobody to tell.
            drop(writeln!(std::io::stderr(), "error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
