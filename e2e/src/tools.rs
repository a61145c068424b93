//! The few programs of the machine that the harness calls: iproute2, util-linux, coreutils and a shell.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

/// Finds a program of the machine in `PATH` and in the usual system folders.
///
/// # Errors
/// When no folder has it: one line that says what to install.
pub fn find(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/go/bin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .with_context(|| format!("{program} is not installed: install {}", package(program)))
}

fn package(program: &str) -> &'static str {
    match program {
        "ip" => "iproute2",
        "unshare" | "nsenter" | "setpriv" | "mount" => "util-linux",
        "go" => "Go 1.26 or later (https://go.dev/dl)",
        "cargo" => "Rust (https://rustup.rs)",
        _ => "the package that has it",
    }
}

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// When it cannot be started or fails, with what it wrote to its standard error.
pub async fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String> {
    let mut command = Command::new(find(program)?);
    command.args(arguments);
    output(command).await
}

/// Runs a prepared command to its end and returns what it printed.
///
/// # Errors
/// When it cannot be started or fails, with what it wrote to its standard error.
pub async fn output(mut command: Command) -> Result<String> {
    let shown = format!("{:?}", command.as_std());
    let output = command
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{shown} failed with {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `ip` with arguments that are separated by single spaces.
///
/// # Errors
/// When `ip` fails.
pub async fn ip(arguments: &str) -> Result<()> {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    run("ip", &arguments).await.map(drop)
}
