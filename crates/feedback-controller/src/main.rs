//! The process of [`feedback_controller`].

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::run(
        "feedback-controller",
        "Brings status, annotations and the end of delegates back to their proxy pods",
        feedback_controller::serve,
    )
}
