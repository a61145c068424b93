//! chaperon-controller.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::run(
        "chaperon-controller",
        "Runs the delegates of elected PodChaperons.",
        chaperon_controller::serve,
    )
}
