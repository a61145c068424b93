//! source-controller.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::run("source-controller", "Sets up the identities of source clusters.", source_controller::serve)
}
