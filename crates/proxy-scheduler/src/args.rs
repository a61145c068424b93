//! Flags of this service.

use std::collections::BTreeMap;
use std::str::FromStr;

/// Flags of the proxy scheduler.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Name of this cluster in the labels of what it asks for elsewhere; when empty, its UID.
    #[arg(long, env = "MULTICLUSTER_CLUSTER_NAME", default_value = "")]
    pub cluster_name: String,
    /// How much each TargetScore counts, as `score=int,…` from 0 to 100; 1 for those that are not named.
    #[arg(long, env = "MULTICLUSTER_SCORE_WEIGHTS", default_value = "")]
    pub score_weights: ScoreWeights,
}

/// Weights of scores by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScoreWeights(pub BTreeMap<String, u32>);

impl FromStr for ScoreWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        api::preference::parse_score_weights(text).map(Self)
    }
}
