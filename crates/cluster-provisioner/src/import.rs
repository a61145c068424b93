//! From the directory of a cluster that the older scripts made to the objects that declare it.
//!
//! Everything here is a pure function of the files' content. Each setting is either mapped or named with what to do
//! instead; nothing is dropped in silence.

mod addons;
mod cluster;
mod draft;
mod parse;
mod read;
mod release;
mod side;

pub use draft::{Finding, Imported, Level};
pub use parse::{Fault, Settings};
pub use read::{ReadError, directories};
pub use release::Release;

use draft::Draft;
use std::collections::BTreeMap;

/// The files of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directory {
    /// Name of the cluster.
    pub name: String,
    /// `clusterctl.yaml`.
    pub settings: String,
    /// `harbor-settings`.
    pub harbor: Option<String>,
    /// `cloud.conf`.
    pub cloud_conf: Option<String>,
    /// Whether there is a `cluster-template.yaml` of its own.
    pub has_template: bool,
    /// `containerd/hosts/*`: registry to content.
    pub registries: BTreeMap<String, String>,
    /// `containerd/certs/*`: file name to content.
    pub certificates: BTreeMap<String, String>,
    /// `deployed-manifests.d/nginx-ingress.yaml`: what really runs.
    pub ingress: Option<String>,
}

/// What the caller wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Namespace of the objects.
    pub namespace: String,
    /// Variables that were set in the environment of the scripts; they win over the file.
    pub environment: BTreeMap<String, String>,
    /// Prefix of names in the cloud, from the host's settings.
    pub prefix: String,
    /// The running cluster is taken over; otherwise a new one is declared.
    pub adopt: bool,
    /// Settings that nobody knows are told and passed over.
    pub allow_unknown: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            environment: BTreeMap::new(),
            prefix: "capi".to_owned(),
            adopt: true,
            allow_unknown: false,
        }
    }
}

/// How one setting is understood.
struct Row {
    /// Its name.
    key: &'static str,
    /// What it does; an error says what is wrong with the value and what to do.
    apply: fn(&mut Draft, &str) -> Result<(), String>,
}

/// Names that older releases, or the documentation by mistake, gave to settings.
const RENAMED: &[(&str, &str)] = &[
    ("OPENSTACK_ANTIAFFINITY", "OPENSTACK_ANTI_AFFINITY"),
    ("OPENSTACK_IMAGE_REGISTATION_EXTRA_FLAGS", "OPENSTACK_IMAGE_REGISTRATION_EXTRA_FLAGS"),
    ("DEPLOY_METRICS_SERVICE", "DEPLOY_METRICS"),
    ("OPENSTACK_DNS_NAMESERVER", "OPENSTACK_DNS_NAMESERVERS"),
];

/// All settings that are understood.
pub fn known() -> impl Iterator<Item = &'static str> {
    rows().map(|row| row.key)
}

fn rows() -> impl Iterator<Item = &'static Row> {
    cluster::ROWS.iter().chain(cluster::CLOUD).chain(addons::ROWS).chain(addons::DROPPED)
}

/// Declares a cluster.
#[must_use]
pub fn import(directory: &Directory, options: &Options) -> Imported {
    let mut findings = Vec::new();
    let mut settings = Settings::parse(&directory.settings, &mut findings);
    if let Some(text) = &directory.harbor {
        settings.extend(Settings::parse_shell(text));
    }
    for (key, value) in &options.environment {
        settings.set(key, value);
    }
    for (old, new) in RENAMED {
        settings.rename(old, new);
    }
    let release = release::detect(&settings);
    let mut draft = Draft::new(&directory.name, options, release, settings.clone());
    draft.findings = findings;
    draft.note("", format!("settings of {release}"));
    release::defaults(&mut draft);
    for (key, value) in settings.iter() {
        let Some(row) = rows().find(|row| row.key == key) else {
            unknown(&mut draft, key, options.allow_unknown);
            continue;
        };
        if let Err(problem) = (row.apply)(&mut draft, value) {
            draft.error(key, problem);
        }
    }
    side::files(&mut draft, directory);
    draft.finish()
}

fn unknown(draft: &mut Draft, key: &str, allowed: bool) {
    let text =
        "nobody knows this setting; if your cluster-template.yaml uses it, say the same with spec.patches";
    if allowed { draft.warn(key, text) } else { draft.error(key, text) }
}

#[cfg(test)]
mod tests;
