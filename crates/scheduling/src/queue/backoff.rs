use crate::queue::item::Item;

/// Pauses end on whole seconds, so that those that end together are ordered by priority.
const WINDOW_MS: u64 = 1000;

/// How long a pod pauses after its n-th failure: `initial_ms * 2^(n-1)`, at most `max_ms`, and then until the next
/// second begins. Without a maximum there is no pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub initial_ms: u64,
    pub max_ms: u64,
}

impl Default for Backoff {
    /// Upstream's: one second, doubled up to ten.
    fn default() -> Self {
        Self { initial_ms: 1000, max_ms: 10_000 }
    }
}

impl Backoff {
    fn after(&self, failures: u32) -> u64 {
        let Some(doublings) = failures.checked_sub(1) else { return 0 };
        self.initial_ms.saturating_mul(1u64.checked_shl(doublings).unwrap_or(u64::MAX)).min(self.max_ms)
    }

    /// When the pod may be tried again: errors in a row count, or else refusals.
    pub(super) fn end(&self, item: &Item) -> u64 {
        let failures = if item.errors > 0 { item.errors } else { item.refusals };
        if failures == 0 || self.max_ms == 0 {
            return 0;
        }
        let expiry = item.timestamp.saturating_add(self.after(failures)) / WINDOW_MS * WINDOW_MS;
        expiry.saturating_add(WINDOW_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let backoff = Backoff::default();
        let pauses: Vec<_> = (0..7).map(|failures| backoff.after(failures)).collect();
        assert_eq!(pauses, [0, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(backoff.after(u32::MAX), 10_000);
    }
}
