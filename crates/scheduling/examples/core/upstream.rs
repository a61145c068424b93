use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// How upstream did.
pub(crate) struct Measured {
    pub(crate) pods_per_second: f64,
    /// Processor time of the whole process a pod.
    pub(crate) cpu_us: f64,
}

/// One work for both sides.
pub(crate) struct Work<'a> {
    pub(crate) documents: &'a Path,
    pub(crate) workload: &'a str,
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
}

impl Work<'_> {
    fn path(&self) -> PathBuf {
        self.documents.join(format!("{}-{}.json", self.workload, self.nodes))
    }

    /// The work as a document.
    pub(crate) fn document(&self) -> Result<Value, Box<dyn Error>> {
        let path = self.path();
        let text =
            std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Lets upstream do it, with so many threads or as many as it likes, and write the document.
    pub(crate) fn measure(&self, referee: &Path, threads: Option<u32>) -> Result<Measured, Box<dyn Error>> {
        let mut command = Command::new(referee);
        command.args(["-bench", "-bench-workloads", self.workload, "-bench-dump"]).arg(self.documents);
        command.args(["-bench-nodes", &self.nodes.to_string(), "-bench-pods", &self.pods.to_string()]);
        if let Some(threads) = threads {
            command.env("GOMAXPROCS", threads.to_string());
        }
        let output = command.output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        let answer: Value = serde_json::from_slice(&output.stdout)?;
        let number =
            |name: &str| answer[name].as_f64().ok_or_else(|| format!("the referee does not say {name}"));
        let cpu_us = 1e6 * number("cpu_seconds")? / number("pods")?;
        Ok(Measured { pods_per_second: number("pods_per_s")?, cpu_us })
    }
}
