//! What the command-line programs of the test ground have in common.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use tokio::runtime::Runtime;

use crate::binaries::Binaries;
use crate::namespaces::{Side, enter_with};
use crate::relay::Door;

/// The end of a program: its code, or why it failed.
pub fn end(outcome: Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Builds the control planes, moves into namespaces of its own, and works there.
///
/// # Errors
/// When a binary cannot be built, the namespaces are refused, or the work fails.
pub fn inside(door: Option<&Door>, work: impl FnOnce(&Runtime) -> Result<ExitCode>) -> Result<ExitCode> {
    Binaries::ensure()?;
    if let Side::Outside(code) = enter_with(door)? {
        return Ok(code);
    }
    work(&Runtime::new().context("cannot start the runtime")?)
}
