//! A bound on how much work is swept away as orphaned: if much of what runs in a target looks orphaned, it is
//! rather our view that is wrong.

use runtime::TargetKey;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a bound holds.
const WINDOW: Duration = Duration::from_secs(60);
/// So many may always go.
const FEW: usize = 10;
/// One in so many may go.
const SHARE: usize = 10;

/// What was swept lately, by target.
#[derive(Debug, Default)]
pub(crate) struct Budget(Mutex<HashMap<TargetKey, (Instant, usize)>>);

impl Budget {
    /// Takes one deletion among `known` PodChaperons; how long to wait when there is none left.
    pub(crate) fn take(&self, target: &TargetKey, known: usize, now: Instant) -> Result<(), Duration> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = used.entry(target.clone()).or_insert((now, 0));
        let passed = now.duration_since(entry.0);
        if passed >= WINDOW {
            *entry = (now, 0);
        } else if entry.1 >= FEW.max(known / SHARE) {
            return Err(WINDOW.saturating_sub(passed));
        }
        entry.1 += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, WINDOW};
    use runtime::TargetKey;
    use tokio::time::Instant;

    #[test]
    fn case_036_only_a_few_orphans_go_at_once() {
        let (budget, now) = (Budget::default(), Instant::now());
        let target = TargetKey { namespace: String::new(), name: "t".to_owned() };
        let gone = (0..100).filter(|_| budget.take(&target, 100, now).is_ok()).count();
        assert_eq!(gone, 10);
        assert_eq!(budget.take(&target, 100, now), Err(WINDOW));
        assert_eq!(budget.take(&target, 100, now + WINDOW), Ok(()));
    }
}
