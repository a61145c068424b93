//! Flags.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args as ClapArgs, ValueEnum};
use scheduling::config::{Config, Profile};

/// Flags of the candidate scheduler.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// How long a reservation is promised to a source, in seconds. It is held for ten seconds more.
    #[arg(long, env = "MULTICLUSTER_RESERVED_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=3600))]
    pub reserved_seconds: u64,
    /// A scheduler name whose pods are placed too, with the default plugins unless the file of --config says
    /// otherwise. May be repeated.
    #[arg(long, env = "MULTICLUSTER_PROFILES", value_delimiter = ',')]
    pub profile: Vec<String>,
    /// A KubeSchedulerConfiguration (v1) file. The pods of its profiles are placed too.
    #[arg(long, env = "MULTICLUSTER_SCHEDULER_CONFIG")]
    pub config: Option<PathBuf>,
    /// Whether PodChaperons are scheduled and the ClusterSummary is published. `auto` does not where --profile or
    /// --config is given and the cluster does not know these kinds.
    #[arg(long, env = "MULTICLUSTER_CHAPERONS", value_enum, default_value = "auto")]
    pub chaperons: Chaperons,
}

/// Whether this cluster is a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Chaperons {
    /// If the cluster knows our kinds, or if there is nothing else to do.
    Auto,
    On,
    Off,
}

impl Args {
    /// Profiles besides that of delegates, and how the queue pauses.
    ///
    /// # Errors
    /// The file cannot be read, or is not a valid configuration; the message names each field that is wrong.
    pub fn configuration(&self) -> anyhow::Result<Config> {
        let mut config = Config::of_names(&[]);
        if let Some(path) = &self.config {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the configuration {}", path.display()))?;
            config = Config::parse_text(&text)
                .with_context(|| format!("the configuration {} is not valid", path.display()))?;
        }
        for name in self.profile.iter().filter(|name| !name.is_empty()) {
            if !config.profiles.iter().any(|profile| profile.scheduler_name == *name) {
                config.profiles.push(Profile::named(name));
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(profiles: &[&str], config: Option<PathBuf>) -> Args {
        let profile = profiles.iter().map(|name| (*name).to_owned()).collect();
        Args { reserved_seconds: 30, profile, config, chaperons: Chaperons::Auto }
    }

    #[track_caller]
    fn names(args: &Args) -> Vec<String> {
        let config = args.configuration().expect("a configuration");
        config.profiles.into_iter().map(|profile| profile.scheduler_name).collect()
    }

    #[test]
    fn profiles_come_from_flags_and_from_the_file() {
        let path = std::env::temp_dir().join(format!("profiles-{}.yaml", std::process::id()));
        let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n\
            - schedulerName: packing\n";
        std::fs::write(&path, text).expect("written");
        assert!(names(&args(&[], None)).is_empty());
        assert_eq!(names(&args(&["default-scheduler"], None)), ["default-scheduler"]);
        assert_eq!(names(&args(&["packing", "other"], Some(path.clone()))), ["packing", "other"]);
        std::fs::write(&path, "kind: Other").expect("written");
        let error = format!("{:#}", args(&[], Some(path.clone())).configuration().expect_err("wrong"));
        assert!(
            error.contains("is not valid: apiVersion: must be kubescheduler.config.k8s.io/v1"),
            "{error}"
        );
        std::fs::remove_file(&path).expect("removed");
        assert!(args(&[], Some(path)).configuration().is_err());
    }
}
