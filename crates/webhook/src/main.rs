//! The webhook's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::run(
        "webhook",
        "Turns elected pods into proxy pods and checks our kinds.",
        webhook::controller::serve,
    )
}
