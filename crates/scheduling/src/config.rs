//! What operators configure: which plugins a profile has, and what they are told.

mod args;

pub use args::{
    BalanceArgs, CompanyArgs, FitArgs, NodeAffinityArgs, PluginArgs, PreemptionArgs, ResourceWeight,
    ScoringStrategy, ShapePoint, SpreadArgs, VolumeArgs,
};
