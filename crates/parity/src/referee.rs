//! Upstream's scheduler as a process: documents in, answers out.

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::answer::{Answer, Verdict};
use crate::ours::list;

/// A running referee. It ends when its input is closed.
#[derive(Debug)]
pub struct Referee {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
}

/// The end of a [`Referee`] that takes documents.
#[derive(Debug)]
pub struct Input(BufWriter<ChildStdin>);

impl Input {
    /// Sends one document.
    ///
    /// # Errors
    /// When the referee has ended.
    pub fn send(&mut self, document: &Value) -> Result<()> {
        serde_json::to_writer(&mut self.0, document).context("cannot send a document")?;
        self.0.write_all(b"\n").and_then(|()| self.0.flush()).context("cannot send a document")
    }
}

impl Referee {
    /// Starts the program.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            // One of several beside each other: more threads only collect garbage more eagerly.
            .env("GOMAXPROCS", "1")
            .env("GOGC", "400")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let input = child.stdin.take().context("the referee has no input")?;
        let output = child.stdout.take().context("the referee has no output")?;
        Ok(Self {
            child,
            input: Some(BufWriter::new(input)),
            output: BufReader::with_capacity(1 << 18, output),
        })
    }

    /// Takes the input away, to be used by another thread. None the second time.
    pub fn input(&mut self) -> Option<Input> {
        self.input.take().map(Input)
    }

    /// Reads the answers about a document that was sent: one a pending pod, in a live sequence as many as there are.
    ///
    /// # Errors
    /// When the referee ends, cannot read the document, or disagrees with itself.
    pub fn answers(&mut self, document: &Value) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        let mut failure = None;
        let pending = list(document, "pending").len();
        let live = document["sequence"] == true && document["live"] == true;
        let mut left = pending;
        while left > 0 {
            let mut line = String::new();
            self.output.read_line(&mut line).context("cannot read an answer")?;
            let answer: Answer = serde_json::from_str(&line).with_context(|| {
                format!("the referee said {:?}", line.chars().take(200).collect::<String>())
            })?;
            // One line alone if it is about the whole document.
            let whole = answer.pod.is_empty();
            if answer.verdict == Verdict::Broken && failure.is_none() {
                failure = Some(format!("document {} {}: {}", answer.document, answer.pod, answer.message));
            }
            let last = answer.last;
            answers.push(answer.sorted());
            if whole {
                break;
            }
            left = if live { usize::from(!last) } else { left - 1 };
        }
        match failure {
            Some(failure) => bail!(failure),
            None => Ok(answers),
        }
    }
}

impl Drop for Referee {
    fn drop(&mut self) {
        drop(self.input.take());
        if self.child.try_wait().ok().flatten().is_none() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}
