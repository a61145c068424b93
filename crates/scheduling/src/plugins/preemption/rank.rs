use std::cmp::Reverse;

use crate::framework::Candidate;

/// How bad a way to make room is; the smallest is taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// Pods that a budget protects.
    violations: usize,
    /// Priority of the most important victim.
    highest: i32,
    /// Sum of their priorities, each counted from the lowest that there is.
    sum: i64,
    victims: usize,
    /// When the first of the most important victims started: the later, the less is lost.
    started: Reverse<i64>,
}

impl Candidate {
    /// What the choice between candidates goes by. Equals may be chosen at will.
    pub fn rank(&self) -> Cost {
        let highest = self.victims.iter().map(|pod| pod.spec.priority).max().unwrap_or(i32::MIN);
        let first = self.victims.iter().filter(|pod| pod.spec.priority == highest);
        let from_lowest = |priority: i32| i64::from(priority) - i64::from(i32::MIN);
        Cost {
            violations: self.violations,
            highest,
            sum: self.victims.iter().map(|pod| from_lowest(pod.spec.priority)).sum(),
            victims: self.victims.len(),
            // Who has not started has the least to lose.
            started: Reverse(first.map(|pod| pod.started.unwrap_or(i64::MAX)).min().unwrap_or(i64::MAX)),
        }
    }
}
