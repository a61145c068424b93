//! The process of the proxy scheduler.

use proxy_scheduler::{COMPONENT, controller};
use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::run(COMPONENT, "Finds the target cluster of each proxy pod.", controller::serve)
}
