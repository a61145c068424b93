//! What a person runs: `import` and `render`.

use crate::catalog::Catalog;
use crate::import::{self, Options};
use crate::render::{Input, render};
use anyhow::{Context, bail};
use api::provisioning::{CloudAccountSpec, ReleaseCatalogSpec, Resolved, WorkloadClusterSpec};
use clap::{Parser, Subcommand};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

/// Tools for declared clusters.
#[derive(Debug, Parser)]
#[command(name = "cluster-provisioner")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Print the objects that declare the clusters of a directory of the older scripts.
    Import {
        /// The directory of a cluster, or the home directory with all of them.
        path: PathBuf,
        /// Namespace of the objects; that of the cluster's name when absent.
        #[arg(long)]
        namespace: Option<String>,
        /// Name of the cluster; that of the directory when absent.
        #[arg(long)]
        name: Option<String>,
        /// Prefix of names in the cloud, from the host's settings.
        #[arg(long, default_value = "capi")]
        prefix: String,
        /// File with `KEY=value` lines that win over the settings.
        #[arg(long)]
        env_file: Option<PathBuf>,
        /// Declare a new cluster instead of taking the running one over.
        #[arg(long)]
        fresh: bool,
        /// Pass settings over that nobody knows.
        #[arg(long)]
        allow_unknown: bool,
    },
    /// Print the objects of Cluster API that a declared cluster becomes.
    Render {
        /// Files with a WorkloadCluster, its CloudAccount and ReleaseCatalogs.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// Whether the words are for these tools, and not for the service.
#[must_use]
pub fn is_for_us(first: Option<&str>) -> bool {
    matches!(first, Some("import" | "render"))
}

/// Runs one tool. `Ok(false)`: the objects are printed, and are not what the settings say.
///
/// # Errors
///
/// A file that cannot be read, or an object that cannot be rendered.
pub fn run() -> anyhow::Result<bool> {
    match Args::parse().task {
        Task::Import { path, namespace, name, prefix, env_file, fresh, allow_unknown } => {
            let environment = match env_file {
                Some(file) => {
                    let text = fs::read_to_string(&file)
                        .with_context(|| format!("cannot read {}", file.display()))?;
                    let settings = import::Settings::parse_shell(&text);
                    settings.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
                }
                None => BTreeMap::new(),
            };
            let options =
                Options { namespace: String::new(), environment, prefix, adopt: !fresh, allow_unknown };
            import_all(&path, (name, namespace), &options)
        }
        Task::Render { files } => render_all(&files).map(|()| true),
    }
}

fn print(objects: &[Value]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for object in objects {
        let yaml = serde_yaml::to_string(object).context("cannot print an object")?;
        writeln!(out, "---\n{}", yaml.trim_end()).context("cannot write to standard output")?;
    }
    Ok(())
}

fn import_all(
    path: &std::path::Path,
    (name, namespace): (Option<String>, Option<String>),
    options: &Options,
) -> anyhow::Result<bool> {
    let mut directories = import::directories(path)?;
    if let Some(name) = name {
        match directories.as_mut_slice() {
            [one] => one.name = name,
            many => bail!("--name is for one cluster, and there are {}", many.len()),
        }
    }
    let mut good = true;
    for directory in &directories {
        let namespace = namespace.clone().unwrap_or_else(|| directory.name.clone());
        let imported = import::import(directory, &Options { namespace, ..options.clone() });
        for finding in &imported.findings {
            writeln!(io::stderr(), "{}: {finding}", directory.name)
                .context("cannot write to standard error")?;
        }
        good &= !imported.failed();
        print(&imported.objects)?;
    }
    Ok(good)
}

fn render_all(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut clusters: Vec<(String, String, WorkloadClusterSpec)> = Vec::new();
    let mut accounts: BTreeMap<String, CloudAccountSpec> = BTreeMap::new();
    let mut catalogs: BTreeMap<String, ReleaseCatalogSpec> = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let objects: Vec<Value> =
            serde_yaml::from_multiple(&text).with_context(|| format!("{} is no YAML", file.display()))?;
        for object in objects {
            let word =
                |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (kind, name) = (word("/kind"), word("/metadata/name"));
            let spec = object.get("spec").cloned().unwrap_or_default();
            let what = || format!("{kind} {name} is not valid");
            match kind.as_str() {
                "WorkloadCluster" => {
                    let spec = serde_json::from_value(spec).with_context(what)?;
                    clusters.push((name, word("/metadata/namespace"), spec));
                }
                "CloudAccount" => {
                    accounts.insert(name.clone(), serde_json::from_value(spec).with_context(what)?);
                }
                "ReleaseCatalog" => {
                    catalogs.insert(name.clone(), serde_json::from_value(spec).with_context(what)?);
                }
                _other => {}
            }
        }
    }
    if clusters.is_empty() {
        bail!("no file has a WorkloadCluster");
    }
    let catalog = Catalog::of(catalogs.into_values());
    for (name, namespace, spec) in &clusters {
        let account = accounts
            .get(&spec.cloud_ref.name)
            .with_context(|| format!("no file has CloudAccount {}", spec.cloud_ref.name))?;
        let version = catalog.version(spec, None).with_context(|| format!("cluster {name}"))?;
        let image = catalog.release(&version).and_then(|release| release.image.as_ref());
        let resolved = Resolved {
            image_name: spec.nodes.image.name.clone().or_else(|| image.map(|image| image.name.clone())),
            kubernetes_version: Some(version),
            ..Resolved::default()
        };
        let groups = BTreeMap::new();
        let input =
            Input { name, namespace, uid: "", spec, account, resolved: &resolved, server_groups: &groups };
        let rendered = render(&input).with_context(|| format!("cluster {name}"))?;
        print(&rendered.objects)?;
    }
    Ok(())
}
