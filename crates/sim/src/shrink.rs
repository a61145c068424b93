//! From a world that breaks a rule to a smaller one that breaks it too.

use crate::plan::Plan;
use crate::recorder::Rule;
use crate::world::{Options, run};

/// Whether a world breaks a rule.
///
/// # Errors
///
/// The world cannot be run.
pub fn breaks(plan: &Plan, options: Options, rule: Rule) -> anyhow::Result<bool> {
    Ok(run(plan, options)?.violations.iter().any(|violation| violation.rule == rule))
}

/// Leaves out faults, workloads and pods as long as the rule is still broken, with at most so many trials.
///
/// # Errors
///
/// A world cannot be run.
pub fn shrink(plan: &Plan, options: Options, rule: Rule, trials: u32) -> anyhow::Result<Plan> {
    let options = Options { trace: false, live: false, once: false, ..options };
    let mut best = plan.clone();
    let mut left = trials;
    loop {
        let mut smaller = None;
        for candidate in candidates(&best) {
            if left == 0 {
                return Ok(best);
            }
            left -= 1;
            if breaks(&candidate, options, rule)? {
                smaller = Some(candidate);
                break;
            }
        }
        match smaller {
            Some(smaller) => best = smaller,
            None => return Ok(best),
        }
    }
}

/// Worlds that are one step smaller, the largest steps first.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    for index in 0..plan.faults.len() {
        let mut smaller = plan.clone();
        smaller.faults.remove(index);
        all.push(smaller);
    }
    for index in 0..plan.workloads.len() {
        let mut smaller = plan.clone();
        smaller.workloads.remove(index);
        all.push(smaller);
    }
    for index in 0..plan.workloads.len() {
        let mut smaller = plan.clone();
        let Some(workload) = smaller.workloads.get_mut(index).filter(|workload| workload.pods > 1) else {
            continue;
        };
        workload.pods /= 2;
        all.push(smaller);
    }
    all
}
