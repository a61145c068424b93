//! Whether a pod fits a node, which node fits best, and what to do with pods that fit nowhere.
//!
//! Pure: no network, no clock, no logging. Both schedulers use it, the candidate scheduler over the nodes of a
//! cluster and the proxy scheduler over virtual nodes.
//!
//! - [`PodInfo`] and [`NodeInfo`] are read from raw manifests.
//! - [`Snapshot`] holds nodes and what is placed on them; a reservation is a pod that is assumed there.
//! - [`Framework`] asks its [`Plugin`]s in upstream's order and answers with a [`Selection`] or a [`Diagnosis`].
//! - [`Queue`] holds the pods that wait, and knows which event makes another try worthwhile.
//!
//! What a plugin here decides, upstream's plugin of the same name decides in the same way, with the same words.

mod budget;
pub mod config;
mod devices;
mod field;
mod framework;
mod labels;
mod node;
mod nominator;
pub mod plugins;
mod pod;
mod quantity;
mod queue;
pub mod resources;
mod selector;
mod snapshot;
mod text;
pub mod volumes;

pub use budget::{Budget, Budgets};
pub use devices::{
    Allocated, Allocation, ClaimPlan, ClaimWork, DeviceClass, DeviceClasses, DeviceEvent, DeviceId,
    DeviceTaintRule, Devices, FINALIZER, Given, PoolId, ResourceClaim, ResourceSlice, Step, deallocation,
};
pub use field::FieldError;
pub use framework::{
    Cache, Candidate, Code, Cycle, Diagnosis, Event, Framework, FrameworkBuilder, Judge, MAX_SCORE,
    NodeFilter, NodeRefusal, NodeScore, Nomination, Plugin, PodChange, Point, PostFilter, PreFilter,
    Profiles, QueueSort, Ranked, Refusal, Rejection, Scale, Scope, Selection, Stopwatch, Trial, Trials,
    normalize_by_max,
};
pub use labels::Labels;
pub use node::{NodeInfo, Taint};
pub use nominator::Nominator;
pub use pod::{
    AffinityTerm, ClaimSource, Classes, Generated, HostPort, Operator, PodAffinity, PodClaim, PodInfo,
    PodSpec, PodVolume, Policy, SpreadConstraint, Toleration, Weighted,
};
pub use quantity::{Quantity, QuantityError};
pub use queue::{Backoff, Lengths, Queue, Queued};
pub use resources::{ResourceList, Resources};
pub use selector::{LabelSelector, NodeTerm, Requirement};
pub use snapshot::{Node, NodeChange, Owner, OwnerKind, Owners, Snapshot};
pub use text::Text;
pub use volumes::{Progress, StorageEvent, VolumePlan, VolumeWrite, Volumes};

#[cfg(test)]
extern crate self as scheduling;
#[cfg(test)]
mod churn;

#[cfg(test)]
mod tests {
    use super::churn::{Churn, Numbers};

    #[test]
    fn what_is_kept_from_change_to_change_equals_what_is_made_anew() {
        let mut churn = Churn::new(1, 12).expect("manifests");
        let mut when = Numbers(2);
        for _ in 0..20_000 {
            churn.step().expect("the same answer");
            if when.below(100) == 0 {
                churn.compare().expect("the same answers");
            }
        }
        let tally = &churn.tally;
        assert!(tally.placed > 1000 && tally.refused > 100 && tally.compared > 100, "{tally:?}");
    }
}
