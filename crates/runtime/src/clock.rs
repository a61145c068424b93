//! Wall-clock time, for what is written into objects and compared with what others wrote there.
//!
//! Pauses and ages are measured with [`tokio::time::Instant`], which a test can hold still; this clock then
//! follows it.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells the time; the default is that of the system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock(Option<(Instant, Timestamp)>);

impl Clock {
    /// A clock that showed a time at an instant, and has gone on evenly since.
    #[must_use]
    pub fn from(start: Instant, wall: Timestamp) -> Self {
        Self(Some((start, wall)))
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let Some((start, wall)) = self.0 else {
            return system();
        };
        let passed = SignedDuration::try_from(start.elapsed()).unwrap_or_default();
        wall.saturating_add(passed).unwrap_or(wall)
    }
}

/// The one place where the time of the system is read.
fn system() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::Clock;
    use std::time::Duration;
    use tokio::time::Instant;

    #[test]
    fn a_clock_goes_on_from_where_it_was_set() {
        let wall = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::from(Instant::now() - Duration::from_secs(90), wall);
        assert_eq!(clock.now().strftime("%H:%M:%S").to_string().get(..5), Some("00:01"));
    }
}
