//! What a person can ask for.

use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;
use std::time::Duration;

/// See, explain, connect and drain the clusters in which pods of this one run.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl multicluster",
    bin_name = "kubectl multicluster",
    version,
    arg_required_else_help = true
)]
pub struct Args {
    /// Which clusters.
    #[command(flatten)]
    pub access: Access,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where the source cluster is.
#[derive(Debug, Clone, Group)]
pub struct Access {
    /// The kubeconfig file; otherwise KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig context of the source cluster; otherwise the current one.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// The namespace of the pod or Target; otherwise that of the context.
    #[arg(long, short, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Names alone, one a line.
    Name,
}

/// The format, for the commands that print an answer.
#[derive(Debug, Clone, Copy, Group)]
pub struct Output {
    /// How the answer is printed.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Format,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the targets, their health, room and pods, and the components of this cluster.
    Status(Output),
    /// Say why a pod runs where it runs, or why it waits, and what would change that.
    Explain {
        /// The pod, as `NAME` or `pod/NAME`.
        pod: String,
        /// A kubeconfig context for each target that is to be asked about its part; otherwise the Target's own
        /// Secret is used.
        #[arg(long, value_name = "TARGET=CONTEXT")]
        target_context: Vec<String>,
        /// How the answer is printed.
        #[command(flatten)]
        output: Output,
    },
    /// Connect, disconnect or give new credentials to a target.
    #[command(subcommand)]
    Target(TargetCommand),
    /// Let no new pod go to a target.
    Cordon {
        /// The target, as `NAME` (ClusterTarget) or `NAMESPACE/NAME` (Target).
        target: String,
    },
    /// Let pods go to a target again.
    Uncordon {
        /// The target.
        target: String,
    },
    /// Cordon a target and evict its pods, so that their controllers make them anew elsewhere.
    Drain(Drain),
    /// List what is left in targets of pods that are gone.
    Orphans {
        /// A kubeconfig context for each target that is to be looked into; otherwise the Target's own Secret is
        /// used.
        #[arg(long, value_name = "TARGET=CONTEXT")]
        target_context: Vec<String>,
        /// How the answer is printed.
        #[command(flatten)]
        output: Output,
    },
    /// Collect what a maintainer needs to see, without Secrets, into one archive.
    Bundle {
        /// The archive to write.
        #[arg(default_value = "multicluster-bundle.tar.gz")]
        file: PathBuf,
    },
    /// Print completions for a shell.
    Completion {
        /// The shell.
        shell: Shell,
    },
}

/// Which pods leave a target, and how long that may take.
#[derive(Debug, Clone, Group)]
pub struct Drain {
    /// The target, as `NAME` (ClusterTarget) or `NAMESPACE/NAME` (Target).
    pub target: String,
    /// Also evict pods that nothing makes anew.
    #[arg(long)]
    pub force: bool,
    /// Give up after this time.
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
}

/// What to do with a target.
#[derive(Debug, Subcommand)]
pub enum TargetCommand {
    /// Make everything on both sides: the source's identity in the target, a kubeconfig, its Secret, the Target.
    Add(Add),
    /// Drain a target and remove what `add` made.
    Remove(Remove),
    /// Give a target's Secret a new token.
    Rotate(Rotate),
}

/// A target to connect.
#[derive(Debug, Clone, Group)]
pub struct Add {
    /// Name of the ClusterTarget, or of the Target with --namespaced.
    pub name: String,
    /// The kubeconfig context of the target cluster, with the rights of an administrator.
    #[arg(long, value_name = "NAME")]
    pub target_context: String,
    /// A Target and a Source for the namespace alone, not a ClusterTarget and a ClusterSource.
    #[arg(long)]
    pub namespaced: bool,
    /// Namespace of the Secret and of the source's ServiceAccount, unless --namespaced.
    #[arg(long, default_value = "multicluster-scheduler", value_name = "NAME")]
    pub system_namespace: String,
    /// Name of this cluster's ClusterSource or Source and ServiceAccount in the target.
    #[arg(long, default_value = "source", value_name = "NAME")]
    pub source_name: String,
    /// URL under which the pods of the source cluster reach the target's API server; otherwise that of the context.
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// How long the token is to hold; the API server may grant less.
    #[arg(long, default_value = "8760h", value_parser = duration, value_name = "DURATION")]
    pub duration: Duration,
    /// Give up after this time.
    #[arg(long, default_value = "2m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
}

/// A target to disconnect.
#[derive(Debug, Clone, Group)]
pub struct Remove {
    /// The target, as `NAME` (ClusterTarget) or `NAMESPACE/NAME` (Target).
    pub name: String,
    /// The kubeconfig context of the target cluster, to remove the source's identity there too.
    #[arg(long, value_name = "NAME")]
    pub target_context: Option<String>,
    /// Name of this cluster's ClusterSource or Source in the target.
    #[arg(long, default_value = "source", value_name = "NAME")]
    pub source_name: String,
    /// Do not drain: pods that run there are let go.
    #[arg(long)]
    pub force: bool,
    /// Give up after this time.
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
}

/// A target whose token is to be replaced.
#[derive(Debug, Clone, Group)]
pub struct Rotate {
    /// The target, as `NAME` (ClusterTarget) or `NAMESPACE/NAME` (Target).
    pub name: String,
    /// The kubeconfig context of the target cluster, with the right to create tokens; otherwise the Secret's own
    /// identity is asked.
    #[arg(long, value_name = "NAME")]
    pub target_context: Option<String>,
    /// How long the token is to hold; the API server may grant less.
    #[arg(long, default_value = "8760h", value_parser = duration, value_name = "DURATION")]
    pub duration: Duration,
}

/// A duration like `90s`, `5m` or `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from(span).map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::{Args, duration};
    use clap::CommandFactory as _;
    use std::time::Duration;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_are_written_as_in_kubernetes() {
        assert_eq!(duration("8760h"), Ok(Duration::from_secs(31_536_000)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert!(duration("soon").is_err());
        assert!(duration("-1m").is_err());
    }
}
