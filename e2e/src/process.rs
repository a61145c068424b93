//! A process that the run started: its log file, its signals and its end.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context as _, Result};
use tokio::process::Command;
use tokio::sync::watch;

use crate::tools;

/// What can be sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Asks it to end.
    Term,
    /// Ends it.
    Kill,
    /// Freezes it: it keeps its connections and does nothing.
    Stop,
    /// Lets a frozen process go on.
    Cont,
}

impl Signal {
    fn flag(self) -> &'static str {
        match self {
            Self::Term => "-TERM",
            Self::Kill => "-KILL",
            Self::Stop => "-STOP",
            Self::Cont => "-CONT",
        }
    }
}

/// A running or ended process, the leader of a process group of its own.
#[derive(Debug, Clone)]
pub struct Process {
    /// What it is called in messages.
    pub name: String,
    /// Its process ID inside of the run's namespaces.
    pub pid: u32,
    /// Where its standard output and standard error go.
    pub log: PathBuf,
    exit: watch::Receiver<Option<ExitStatus>>,
}

impl Process {
    /// Starts a command with its output appended to `log`.
    ///
    /// # Errors
    /// When the log cannot be opened or the command cannot be started.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open {}", log.display()))?;
        let err = out.try_clone().context("cannot share a log file")?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let pid = child.id().with_context(|| format!("{name} ended at once"))?;
        let (sender, exit) = watch::channel(None);
        tokio::spawn(async move {
            if let Ok(status) = child.wait().await {
                sender.send_replace(Some(status));
            }
        });
        Ok(Self { name: name.to_owned(), pid, log: log.to_path_buf(), exit })
    }

    /// How it ended, or `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Waits for its end; `None` when the run itself lost track of it.
    pub async fn wait(&self) -> Option<ExitStatus> {
        let mut exit = self.exit.clone();
        exit.wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }

    /// Sends a signal to the whole process group. A process that has ended is no error.
    ///
    /// # Errors
    /// When the signal cannot be sent to a running process.
    pub async fn signal(&self, signal: Signal) -> Result<()> {
        if self.ended().is_some() {
            return Ok(());
        }
        let line = format!("kill {} -{}", signal.flag(), self.pid);
        let sent = tools::run("sh", &["-c", &line]).await;
        if self.ended().is_some() { Ok(()) } else { sent.map(drop) }
    }

    /// The last lines of its log, for error messages.
    #[must_use]
    pub fn tail(&self) -> String {
        let text = std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let text = text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(12);
        lines.get(from..).unwrap_or_default().join("\n")
    }

    /// The CPU time that it used so far, in clock ticks, and its resident memory, in bytes.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        // The second field is the name in parentheses and may itself hold spaces.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        Some(Usage {
            cpu_ticks: number(11)?.saturating_add(number(12)?),
            resident_bytes: number(21)?.saturating_mul(4096),
        })
    }
}

/// What a process used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time in clock ticks, of which Linux counts 100 in a second.
    pub cpu_ticks: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
}
