//! That worlds are worth what they say: large enough, and worlds that once broke a rule.

use crate::plan::{Kind, Plan};
use crate::world::{Options, Report, run};
use std::collections::BTreeSet;

fn world(seed: u64) -> Report {
    run(&Plan::of(seed), Options::default()).unwrap()
}

#[test]
fn a_world_has_three_targets_twenty_pods_and_five_faults() {
    for seed in 0..2000 {
        let plan = Plan::of(seed);
        assert!(plan.targets >= 3 && plan.pods() >= 20 && plan.faults.len() >= 5, "{plan:?}");
    }
}

#[test]
fn every_kind_of_fault_is_tried() {
    let tried: BTreeSet<Kind> =
        (0..1000).flat_map(|seed| Plan::of(seed).faults).map(|fault| fault.kind).collect();
    assert_eq!(tried, Kind::ALL.into_iter().collect());
}

#[test]
fn the_first_worlds_keep_all_rules() {
    for seed in 1..=3 {
        let report = world(seed);
        assert_eq!(report.violations, [], "seed {seed}");
        assert!(report.steps >= 200 && report.starts > 0);
    }
}
