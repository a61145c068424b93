//! The configuration as a whole, and its profiles.

use serde_json::Value;

use crate::config::plugins::{Arrangement, PluginSets};
use crate::config::{
    Backoff, ClientConnection, Config, ConfigError, LeaderElection, Profile, plugin_args, service,
};
use crate::field::{Field, FieldError};

/// Collects what is wrong, so that an operator learns of everything at once.
#[derive(Debug, Default)]
pub(super) struct Problems(pub(super) Vec<FieldError>);

impl Problems {
    pub(super) fn add(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// The value that was read, or else `default`.
    pub(super) fn or<T>(&mut self, read: Result<T, FieldError>, default: T) -> T {
        read.unwrap_or_else(|error| {
            self.add(error);
            default
        })
    }

    /// A field has only these below it.
    pub(super) fn only(&mut self, field: &Field<'_>, known: &[&str]) {
        let unknown = self.or(field.unknown(known), Vec::new());
        for key in unknown {
            let known = known.join(", ");
            self.add(field.error_at(key, format!("is no field of a configuration; known here are {known}")));
        }
    }
}

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const KIND: &str = "KubeSchedulerConfiguration";
/// A profile without a name, if it is the only one.
const DEFAULT_NAME: &str = "default-scheduler";

const FIELDS: [&str; 13] = [
    "apiVersion",
    "kind",
    "parallelism",
    "leaderElection",
    "clientConnection",
    "enableProfiling",
    "enableContentionProfiling",
    "percentageOfNodesToScore",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "profiles",
    "extenders",
    "delayCacheUntilActive",
];

pub(super) fn config(config: &Value) -> Result<Config, ConfigError> {
    let root = Field::root(config);
    let mut problems = Problems::default();
    head(&root, &mut problems);
    problems.only(&root, &FIELDS);
    let mut notes = Vec::new();
    unused(&root, &mut problems, &mut notes);
    let leader_election = service::leader_election(&root.get("leaderElection"), &mut problems, &mut notes);
    let client = service::client(&root.get("clientConnection"), &mut problems, &mut notes);
    let percentage = percentage(&root, None, &mut problems);
    let backoff = backoff(&root, &mut problems);
    let profiles = profiles(&root, percentage, &mut problems);
    refuse_extenders(&root, &mut problems);
    let parts = Parts { profiles, backoff, leader_election, client, notes };
    if problems.0.is_empty() { Ok(parts.into()) } else { Err(ConfigError(problems.0)) }
}

struct Parts {
    profiles: Vec<Profile>,
    backoff: Backoff,
    leader_election: LeaderElection,
    client: ClientConnection,
    notes: Vec<String>,
}

impl From<Parts> for Config {
    fn from(parts: Parts) -> Self {
        let Parts { profiles, backoff, leader_election, client, notes } = parts;
        Self { profiles, backoff, leader_election, client, notes }
    }
}

fn head(root: &Field<'_>, problems: &mut Problems) {
    for (key, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let got = problems.or(root.get(key).text(), Some(want));
        if got != Some(want) {
            problems.add(root.error_at(key, format!("must be {want}")));
        }
    }
}

/// Fields that mean something to kube-scheduler's process alone.
fn unused(root: &Field<'_>, problems: &mut Problems, notes: &mut Vec<String>) {
    let parallelism = root.get("parallelism");
    if problems.or(parallelism.integer(), None).is_some_and(|number| number <= 0) {
        problems.add(parallelism.error("should be an integer value greater than zero"));
    }
    for key in ["enableProfiling", "enableContentionProfiling", "delayCacheUntilActive"] {
        problems.or(root.get(key).flag(), false);
    }
    for (key, why) in [
        ("parallelism", "one thread decides"),
        ("enableProfiling", "there are no profiling endpoints"),
        ("enableContentionProfiling", "there are no profiling endpoints"),
        ("delayCacheUntilActive", "a standby keeps no cache"),
    ] {
        if root.get(key).present() {
            notes.push(format!("{key} has no effect: {why}"));
        }
    }
}

/// The share of nodes to look at; None, written as 0, for all. `default` if it is not set.
fn percentage(field: &Field<'_>, default: Option<u8>, problems: &mut Problems) -> Option<u8> {
    let field = field.get("percentageOfNodesToScore");
    let Some(number) = problems.or(field.integer(), None) else { return default };
    match u8::try_from(number) {
        Ok(0) => None,
        Ok(percentage) if percentage <= 100 => Some(percentage),
        Ok(_) | Err(_) => {
            problems.add(field.error("not in valid range [0-100]"));
            None
        }
    }
}

fn backoff(root: &Field<'_>, problems: &mut Problems) -> Backoff {
    let initial = problems.or(root.get("podInitialBackoffSeconds").integer(), None).unwrap_or(1);
    let max = problems.or(root.get("podMaxBackoffSeconds").integer(), None).unwrap_or(10);
    if initial <= 0 {
        problems.add(root.error_at("podInitialBackoffSeconds", "must be greater than 0"));
    }
    if max < initial {
        problems.add(
            root.error_at(
                "podMaxBackoffSeconds",
                "must be greater than or equal to PodInitialBackoffSeconds",
            ),
        );
    }
    let milliseconds = |seconds: i64| u64::try_from(seconds).unwrap_or_default().saturating_mul(1000);
    Backoff { initial_ms: milliseconds(initial), max_ms: milliseconds(max) }
}

fn refuse_extenders(root: &Field<'_>, problems: &mut Problems) {
    for extender in problems.or(root.get("extenders").items(), Vec::new()) {
        problems.add(extender.error(
            "HTTP extenders are not supported: remove it and leave the pods that need it to kube-scheduler",
        ));
    }
}

fn profiles(root: &Field<'_>, percentage: Option<u8>, problems: &mut Problems) -> Vec<Profile> {
    let fields = problems.or(root.get("profiles").items(), Vec::new());
    if fields.is_empty() {
        return vec![Profile { percentage_of_nodes: percentage, ..Profile::named(DEFAULT_NAME) }];
    }
    let only = fields.len() == 1;
    let mut profiles: Vec<Profile> = Vec::new();
    for field in &fields {
        let profile = profile(field, only, percentage, problems);
        let same = profiles.iter().position(|other| other.scheduler_name == profile.scheduler_name);
        if let Some(same) = same {
            let first = format!("is the name of profiles[{same}] already; names must differ");
            problems.add(field.error_at("schedulerName", first));
        }
        profiles.push(profile);
    }
    profiles
}

fn profile(field: &Field<'_>, only: bool, percentage: Option<u8>, problems: &mut Problems) -> Profile {
    problems.only(field, &["schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"]);
    let name = problems.or(field.get("schedulerName").text(), None);
    let name = name.or_else(|| only.then_some(DEFAULT_NAME)).unwrap_or_default();
    if name.is_empty() {
        problems.add(field.error_at("schedulerName", "is required"));
    }
    let percentage_of_nodes = self::percentage(field, percentage, problems);
    let sets = PluginSets::read(&field.get("plugins"), problems);
    let arrangement = problems.or(Arrangement::expand(&sets, field), Arrangement::default());
    let args = plugin_args::read(&field.get("pluginConfig"), problems);
    Profile { scheduler_name: name.to_owned(), percentage_of_nodes, args, arrangement }
}
