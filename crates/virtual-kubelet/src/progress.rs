//! Whether the watches of a target show what happens there: a target that answers but whose watches stand still is
//! not in reach, since nobody hears of it.

use crate::facts::Outcome;
use api::{ClusterSummary, keys};
use futures::StreamExt;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use runtime::{CancellationToken, Chain, Class, class};
use std::time::Duration;
use tokio::sync::watch::Sender;
use tokio::time::Instant;
use tracing::debug;

/// Seconds after which the API server ends a watch.
const WATCH_SECONDS: u32 = 60;
/// How long a watch may not show what a read has shown.
const LAG: Duration = Duration::from_secs(15);
/// How long a watch may show nothing at all: neither an event nor its end.
const SILENCE: Duration = Duration::from_secs(90);
/// Between two watches.
const PAUSE: Duration = Duration::from_secs(1);

/// What a watch of the ClusterSummary has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sign {
    /// The latest version seen.
    version: u64,
    /// When anything was seen last.
    at: Instant,
    /// The target does not let us watch.
    refused: Option<String>,
}

impl Sign {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { version: 0, at: now, refused: None }
    }
}

/// Since when reads have shown a version that the watch has not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    behind: Option<(u64, Instant)>,
}

impl Progress {
    /// What is wrong with the watch of a target whose ClusterSummary has this version.
    pub(crate) fn judge(&mut self, version: u64, sign: &Sign, now: Instant) -> Option<Outcome> {
        self.behind = self.behind.filter(|(wanted, _)| *wanted > sign.version);
        if version > sign.version {
            self.behind.get_or_insert((version, now));
        }
        if let Some(message) = &sign.refused {
            return Some(Outcome::Refused(message.clone()));
        }
        let lags = self.behind.is_some_and(|(_, since)| now.duration_since(since) >= LAG);
        let silent = now.duration_since(sign.at) >= SILENCE;
        (lags || silent)
            .then(|| Outcome::Stalled("the target answers, but its watches show nothing new".to_owned()))
    }
}

/// The version of an object, for comparison with others of its kind.
pub(crate) fn version(summary: &ClusterSummary) -> Option<u64> {
    summary.resource_version()?.parse().ok()
}

/// Watches the ClusterSummary until stopped, and tells what it sees.
pub(crate) async fn follow(client: Client, signs: Sender<Sign>, stop: CancellationToken) {
    let summaries = Api::<ClusterSummary>::all(client);
    let params =
        WatchParams::default().fields(&format!("metadata.name={}", keys::SINGLETON)).timeout(WATCH_SECONDS);
    let watching = async {
        loop {
            watch(&summaries, &params, &signs).await;
            tokio::time::sleep(PAUSE).await;
        }
    };
    stop.run_until_cancelled(watching).await;
}

async fn watch(summaries: &Api<ClusterSummary>, params: &WatchParams, signs: &Sender<Sign>) {
    let sign = |version: Option<u64>| {
        signs.send_modify(|sign| {
            let version = version.unwrap_or(0).max(sign.version);
            *sign = Sign { version, at: Instant::now(), refused: None };
        });
    };
    // From "any version": the state as the API server's watches know it comes first.
    let mut events = match summaries.watch(params, "0").await {
        Ok(events) => events.boxed(),
        Err(error) => {
            debug!(error = %Chain(&error), "cannot watch the ClusterSummary of a target");
            if class(&error) == Class::Forbidden {
                let message = format!("cannot watch clustersummaries of the target: {}", Chain(&error));
                signs.send_modify(|sign| sign.refused = Some(message));
            }
            return;
        }
    };
    sign(None);
    while let Some(Ok(event)) = events.next().await {
        match event {
            WatchEvent::Added(summary) | WatchEvent::Modified(summary) => sign(version(&summary)),
            WatchEvent::Bookmark(mark) => sign(mark.metadata.resource_version.parse().ok()),
            WatchEvent::Deleted(_) => sign(None),
            WatchEvent::Error(_) => return,
        }
    }
    sign(None);
}

#[cfg(test)]
mod tests {
    use super::{LAG, Progress, SILENCE, Sign};
    use crate::facts::Outcome;
    use std::time::Duration;
    use tokio::time::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    fn stalls(progress: &mut Progress, read: u64, watched: u64, since: Instant, now: Instant) -> bool {
        let sign = Sign { version: watched, ..Sign::begin(since) };
        matches!(progress.judge(read, &sign, now), Some(Outcome::Stalled(_)))
    }

    #[test]
    fn case_091_a_watch_that_does_not_show_what_a_read_shows_has_stalled() {
        let (mut progress, start) = (Progress::default(), Instant::now());
        assert!(!stalls(&mut progress, 5, 5, start, start));
        assert!(!stalls(&mut progress, 7, 5, start, start + SECOND));
        assert!(!stalls(&mut progress, 8, 5, start, start + LAG));
        assert!(stalls(&mut progress, 9, 5, start, start + SECOND + LAG));
        assert!(!stalls(&mut progress, 9, 9, start, start + SECOND * 2 + LAG));
    }

    #[test]
    fn a_busy_target_whose_watch_is_always_a_little_late_has_not_stalled() {
        let (mut progress, start) = (Progress::default(), Instant::now());
        for second in 0..100 {
            let now = start + SECOND * second;
            assert!(!stalls(&mut progress, u64::from(second) + 3, u64::from(second), now, now));
        }
    }

    #[test]
    fn case_091_a_watch_without_any_sign_of_life_has_stalled() {
        let (mut progress, start) = (Progress::default(), Instant::now());
        assert!(!stalls(&mut progress, 5, 5, start, start + SILENCE - SECOND));
        assert!(stalls(&mut progress, 5, 5, start, start + SILENCE));
    }

    #[test]
    fn case_085_a_watch_that_is_forbidden_is_told_at_once() {
        let refused = Some("no".to_owned());
        let sign = Sign { refused, ..Sign::begin(Instant::now()) };
        let outcome = Progress::default().judge(5, &sign, Instant::now());
        assert_eq!(outcome, Some(Outcome::Refused("no".to_owned())));
    }
}
