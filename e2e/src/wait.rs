//! The only wait of the test ground.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout_at};

/// How long a step of one cluster may take on a busy machine.
pub const SOON: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(100);

/// Waits until `condition` returns a value, and returns it.
///
/// An error of the condition counts as *not yet* and is told when time is up.
///
/// # Errors
/// When `deadline` has passed: what was waited for, and why it was not so the last time.
pub async fn until<T>(
    deadline: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + deadline;
    let mut last = String::from("it was not so");
    loop {
        match timeout_at(end, condition()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) => bail!("{what}: not within {deadline:?}; the last look did not end (before: {last})"),
        }
        if Instant::now() >= end {
            bail!("{what}: not within {deadline:?}; last: {last}");
        }
        sleep(PAUSE).await;
    }
}

/// Watches that `condition` stays true for `duration`, for what must *not* happen.
///
/// # Errors
/// When it became false or could not be looked at.
pub async fn throughout(
    duration: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        if !condition().await? {
            bail!("{what}: it did not stay so for {duration:?}");
        }
        sleep(PAUSE).await;
    }
    Ok(())
}
