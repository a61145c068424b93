//! cluster-provisioner.

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cluster_provisioner::cli::run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(error) => {
            // Without a standard error there is nobody to tell.
            drop(writeln!(std::io::stderr(), "error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
