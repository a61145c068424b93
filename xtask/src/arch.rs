//! The dependency arrows between our crates, kept as data: a new edge is a visible change of one line here.

use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Crate to the crates of ours that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("runtime", &["api"]),
    ("scheduling", &["api"]),
    ("webhook", &["api", "runtime"]),
    ("proxy-scheduler", &["api", "runtime", "scheduling"]),
    ("candidate-scheduler", &["api", "runtime", "scheduling"]),
    ("chaperon-controller", &["api", "runtime"]),
    ("feedback-controller", &["api", "runtime"]),
    ("follow-controller", &["api", "runtime"]),
    ("virtual-kubelet", &["api", "runtime"]),
    ("source-controller", &["api", "runtime"]),
    ("kubectl-multicluster", &["api", "runtime"]),
    ("cluster-provisioner", &["api", "runtime"]),
    // The simulator alone knows all services; nobody knows the simulator.
    (
        "sim",
        &[
            "api",
            "runtime",
            "webhook",
            "proxy-scheduler",
            "candidate-scheduler",
            "chaperon-controller",
            "feedback-controller",
            "virtual-kubelet",
        ],
    ),
    ("e2e", &["api"]),
    ("parity", &["scheduling", "e2e"]),
    ("xtask", &["api"]),
];

/// What a pure decision may not mention.
const IMPURE: &[&str] =
    &["async fn", "kube::Client", "Timestamp::now", "Instant::now", "rand::", "tracing::", "info!("];

/// From this length on a source file is listed, so that somebody asks whether it is two.
const LONG: usize = 350;

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let mut faults = edges(root)?;
    let mut long = Vec::new();
    for folder in ["crates", "e2e", "xtask"] {
        walk(&root.join(folder), &mut |path| {
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
            if is_pure(&name) {
                let found = IMPURE.iter().filter(|word| text.contains(**word));
                faults.extend(found.map(|word| format!("{name} is a pure decision and mentions `{word}`")));
            }
            let lines = text.lines().count();
            if lines > LONG && !name.contains("tests") {
                long.push((lines, name));
            }
            Ok(())
        })?;
    }
    long.sort_unstable_by(|a, b| b.cmp(a));
    for (lines, name) in long {
        println!("long: {name} has {lines} lines");
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{}", faults.join("\n"))
}

/// A plan of the simulator is what a seed makes of a world, and no decision.
fn is_pure(name: &str) -> bool {
    name.ends_with("/plan.rs") && !name.starts_with("crates/sim/")
        || name.starts_with("crates/api/")
        || name.starts_with("crates/scheduling/src")
}

fn edges(root: &Path) -> anyhow::Result<Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may) = allowed.get(name) else {
            faults.push(format!("crate {name} has no line in xtask/src/arch.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let inner = dependency["path"].is_string();
            let on = dependency["name"].as_str().unwrap_or_default();
            if inner && !may.contains(&on) {
                faults.push(format!("crate {name} may not depend on {on}"));
            }
        }
    }
    Ok(faults)
}

fn walk(folder: &Path, visit: &mut dyn FnMut(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, visit)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            visit(&path)?;
        }
    }
    Ok(())
}
