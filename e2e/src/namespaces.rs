//! Moves the whole run into Linux namespaces of its own: network, mounts and processes.
//!
//! The first process of a process namespace takes everything else in it along when it ends, however it ends.
//! The run's files lie on a tmpfs of the mount namespace. Hence nothing is left behind, not even after
//! `kill -9` of the outer process, and two runs side by side cannot see each other.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use tokio::signal::unix::{SignalKind, signal};

use crate::relay::Door;
use crate::tools::find;

const INSIDE: &str = "MULTICLUSTER_E2E_INSIDE";

/// Where the run's files lie, once inside.
pub const WORK: &str = "/run/e2e";

/// The side of the border on which this process runs.
#[derive(Debug)]
pub enum Side {
    /// The run took place inside and ended with this code.
    Outside(ExitCode),
    /// This process is the first one inside.
    Inside,
}

/// Whether this process already runs inside of its own namespaces.
#[must_use]
pub fn are_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this same program again inside of new namespaces and waits for it; inside, prepares them.
///
/// # Errors
/// When a tool is missing or the kernel refuses the namespaces.
pub fn enter() -> Result<Side> {
    enter_with(None)
}

/// As [`enter`], with a way in for programs outside.
///
/// # Errors
/// When a tool is missing, the kernel refuses the namespaces or the way in cannot be opened.
pub fn enter_with(door: Option<&Door>) -> Result<Side> {
    if are_inside() {
        prepare()?;
        return Ok(Side::Inside);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.context("cannot start the runtime")?.block_on(run_inside(door));
    if let Some(door) = door {
        door.close();
    }
    outcome.map(Side::Outside)
}

async fn run_inside(door: Option<&Door>) -> Result<ExitCode> {
    for tool in ["ip", "nsenter", "mount", "chroot", "sh"] {
        find(tool)?;
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    // The first kill takes unshare along when this process is killed, the second all others after unshare.
    let mut command = tokio::process::Command::new(find("setpriv")?);
    command.args(["--pdeathsig", "KILL", "--"]).arg(find("unshare")?);
    if !is_root() {
        command.arg("--map-root-user");
    }
    command
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .kill_on_drop(true);
    if let Some(door) = door {
        door.open(&mut command).await?;
    }
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen to signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen to signals")?;
    let mut run = command.spawn().context("cannot start unshare")?;
    let code = tokio::select! {
        status = run.wait() => return Ok(match status.context("lost the run")?.code() {
            Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
            None => ExitCode::FAILURE,
        }),
        _ = interrupt.recv() => 130,
        _ = terminate.recv() => 143,
    };
    run.kill().await.context("cannot end the run")?;
    Ok(ExitCode::from(code))
}

fn prepare() -> Result<()> {
    must(Command::new(find("mount")?).args(["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"]))?;
    must(Command::new(find("ip")?).args(["link", "set", "lo", "up"]))?;
    std::fs::create_dir_all(work()).context("cannot make the run's folder")
}

/// The folder of this run. `MULTICLUSTER_E2E_WORK` names another one, which then stays after the run.
#[must_use]
pub fn work() -> PathBuf {
    std::env::var_os("MULTICLUSTER_E2E_WORK").map_or_else(|| Path::new(WORK).to_path_buf(), PathBuf::from)
}

fn must(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed with {status}");
    }
    Ok(())
}

/// Whether this process has all user IDs of the machine, and so can start containers as other users.
#[must_use]
pub fn is_root() -> bool {
    let own = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_zero = own.lines().any(|line| line.starts_with("Uid:\t0\t"));
    is_zero && map.split_whitespace().nth(2).and_then(|size| size.parse::<u64>().ok()) > Some(65_536)
}
