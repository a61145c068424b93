//! `KubeSchedulerConfiguration` files: which profiles there are, which plugins each has, and what they are told.
//!
//! A file means what it means to kube-scheduler. What this scheduler does not have is refused with the path of the
//! field and what to do about it; what has no effect here is told by [`Config::notes`].

mod args;
mod plugin_args;
mod plugins;
mod read;
mod service;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

use crate::field::FieldError;
use crate::framework::{Framework, Profiles};
use crate::queue::Backoff;
pub use args::{
    BalanceArgs, CompanyArgs, FitArgs, NodeAffinityArgs, PluginArgs, PreemptionArgs, ResourceWeight,
    ScoringStrategy, ShapePoint, SpreadArgs, VolumeArgs,
};
use plugins::Arrangement;
pub use service::{ClientConnection, LeaderElection};

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError(pub Vec<FieldError>);

impl fmt::Display for ConfigError {
    /// One problem a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{error}")?;
        }
        Ok(())
    }
}

/// A validated configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub profiles: Vec<Profile>,
    pub backoff: Backoff,
    pub leader_election: LeaderElection,
    pub client: ClientConnection,
    /// What was read and has no effect here, each as a sentence for the operator.
    pub notes: Vec<String>,
}

/// How the pods of one scheduler name are scheduled.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub scheduler_name: String,
    /// The share of nodes, in percent, at which the search for feasible ones ends. None: all are looked at.
    pub percentage_of_nodes: Option<u8>,
    pub args: PluginArgs,
    arrangement: Arrangement,
}

impl Profile {
    /// The default plugins under another name.
    pub fn named(scheduler_name: &str) -> Self {
        Self {
            scheduler_name: scheduler_name.to_owned(),
            percentage_of_nodes: None,
            args: PluginArgs::default(),
            arrangement: Arrangement::default(),
        }
    }

    /// The plugins of this profile.
    pub fn framework(&self) -> Framework {
        self.arrangement.framework(&self.args).looking_at(self.percentage_of_nodes)
    }
}

impl Config {
    /// Reads a configuration as a value.
    pub fn parse(config: &Value) -> Result<Self, ConfigError> {
        read::config(config)
    }

    /// Reads a configuration in YAML or JSON.
    pub fn parse_text(text: &str) -> Result<Self, ConfigError> {
        let value = serde_yaml::from_str(text).map_err(|error| {
            ConfigError(vec![FieldError { path: "the file".to_owned(), problem: error.to_string() }])
        })?;
        Self::parse(&value)
    }

    /// The default plugins for pods of these scheduler names.
    pub fn of_names(names: &[&str]) -> Self {
        Self { profiles: names.iter().map(|name| Profile::named(name)).collect(), ..Self::default() }
    }

    /// One framework for each profile.
    pub fn frameworks(&self) -> Profiles {
        let mut profiles = Profiles::from(Framework::builder().build());
        for profile in &self.profiles {
            profiles.set(profile.scheduler_name.as_str(), profile.framework());
        }
        profiles
    }
}

impl Default for Config {
    /// One profile, `default-scheduler`, as an empty file has it.
    fn default() -> Self {
        Self {
            profiles: vec![Profile::named("default-scheduler")],
            backoff: Backoff::default(),
            leader_election: LeaderElection::default(),
            client: ClientConnection::default(),
            notes: Vec::new(),
        }
    }
}
