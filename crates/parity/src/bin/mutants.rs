//! `mutants`: builds the comparison once for each seeded error, and checks that it finds it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use e2e::binaries::Binaries;
use parity::mutants::{MUTANTS, Mutant};
use serde_json::Value;

/// Seeds errors of one line into crate `scheduling`, in a copy of the workspace.
#[derive(Debug, Parser)]
struct Args {
    /// How many pods the comparison may look at before it has found an error.
    #[arg(long, default_value_t = 20_000)]
    pods: usize,
    /// Only mutants whose name has this text in it.
    #[arg(long)]
    only: Option<String>,
    /// The referee's program; by default it is built.
    #[arg(long)]
    referee: Option<PathBuf>,
    /// The profile of the copy's builds.
    #[arg(long, default_value = "e2e")]
    profile: String,
}

/// Where the copy is built. Not where the workspace is: cargo would take one for the other.
const BUILD: &str = "target/mutants-build";

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    for mutant in MUTANTS {
        mutant.apply(&mutant.source(&workspace)?)?;
    }
    let referee = match &args.referee {
        Some(path) => path.clone(),
        None => Binaries::ensure()?.path("referee"),
    };
    let copy = workspace.join("target/mutants-source");
    copy_workspace(&workspace, &copy)?;
    let bench = Bench {
        workspace: &workspace,
        copy: &copy,
        referee: &referee,
        pods: args.pods,
        profile: &args.profile,
    };
    bench.build().context("cannot build the copy without any error in it")?;
    let only = args.only.as_deref().unwrap_or_default();
    let chosen: Vec<_> = MUTANTS.iter().filter(|mutant| mutant.name.contains(only)).collect();
    println!("{:<50}{:<34}{:>10}{:>10}", "error", "file", "pods", "seconds");
    let mut survivors = 0;
    for mutant in &chosen {
        let start = Instant::now();
        let found = bench.try_out(mutant)?;
        let pods = found.map_or("survived".to_owned(), |pods| pods.to_string());
        println!("{:<50}{:<34}{pods:>10}{:>10}", mutant.name, mutant.file, start.elapsed().as_secs());
        survivors += usize::from(found.is_none());
    }
    println!("{}", serde_json::json!({"mutants": chosen.len(), "survivors": survivors}));
    Ok(survivors == 0)
}

struct Bench<'a> {
    workspace: &'a Path,
    copy: &'a Path,
    referee: &'a Path,
    pods: usize,
    profile: &'a str,
}

impl Bench<'_> {
    fn build(&self) -> Result<()> {
        let output = Command::new(env!("CARGO"))
            .current_dir(self.copy)
            .args([
                "build",
                "--quiet",
                "--offline",
                "--package",
                "parity",
                "--bin",
                "parity",
                "--profile",
                self.profile,
            ])
            .arg("--target-dir")
            .arg(self.workspace.join(BUILD))
            .stdin(Stdio::null())
            .output()
            .context("cannot start cargo")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo build failed: {said}");
        Ok(())
    }

    /// After how many pods the error was found; None if it was not.
    fn try_out(&self, mutant: &Mutant) -> Result<Option<u64>> {
        let path = self.copy.join("crates/scheduling/src").join(mutant.file);
        let right = mutant.source(self.copy)?;
        write(&path, &mutant.apply(&right)?)?;
        let found = self.build().and_then(|()| self.compare());
        write(&path, &right)?;
        found.with_context(|| format!("mutant {:?}", mutant.name))
    }

    fn compare(&self) -> Result<Option<u64>> {
        let folder = if self.profile == "dev" { "debug" } else { self.profile };
        let output = Command::new(self.workspace.join(BUILD).join(folder).join("parity"))
            .args(["--until-difference", "--pods", &self.pods.to_string(), "--referee"])
            .arg(self.referee)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .context("cannot start the comparison")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().last().unwrap_or_default();
        let Ok(result) = serde_json::from_str::<Value>(last) else {
            bail!("the comparison did not end: {last:?}");
        };
        let (differences, pods) = (result["differences"].as_u64(), result["pods"].as_u64());
        Ok(if differences == Some(0) { None } else { pods })
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies what the workspace is built from. Files that are the same are left alone, so that they are not rebuilt.
fn copy_workspace(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for name in ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "crates", "e2e", "xtask"] {
        copy(&from.join(name), &to.join(name))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let failed = || format!("cannot copy {}", from.display());
    if from.is_dir() {
        std::fs::create_dir_all(to).with_context(failed)?;
        for entry in std::fs::read_dir(from).with_context(failed)? {
            let name = entry.with_context(failed)?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    let content = std::fs::read(from).with_context(failed)?;
    if std::fs::read(to).ok().as_ref() != Some(&content) {
        std::fs::write(to, content).with_context(failed)?;
    }
    Ok(())
}
