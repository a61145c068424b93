//! The process of [`follow_controller`].

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::run(
        "follow-controller",
        "Keeps copies of what proxy pods need in the target clusters where their delegates run",
        follow_controller::serve,
    )
}
