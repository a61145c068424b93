//! When a replica is ready: it could list and watch all that a leader does, and if it leads, it is in step.

use crate::Chain;
use crate::admin::Readiness;
use crate::queue::jitter;
use kube::api::{ListParams, WatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Duration;
use tracing::warn;

/// Pause between two checks.
const PAUSE: Duration = Duration::from_secs(2);

/// What a leader is not yet, as `/readyz` names it.
pub const IN_STEP: &str = "the cluster's state";

/// A term as leader: not ready until in step. Whoever stands by again need not be.
#[derive(Debug)]
pub struct Term(Readiness);

impl Term {
    /// The term begins, out of step.
    #[must_use]
    pub fn begin(readiness: &Readiness) -> Self {
        readiness.set(IN_STEP, false);
        Self(readiness.clone())
    }

    /// The leader has seen the cluster's state.
    pub fn in_step(&self) {
        self.0.set(IN_STEP, true);
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.in_step();
    }
}

/// Repeats `check` until all kinds can be listed and watched, then waits for ever.
pub async fn stand_by(readiness: &Readiness, check: impl AsyncFn()) -> Infallible {
    while readiness.missing().iter().any(|kind| *kind != IN_STEP) {
        check().await;
        tokio::time::sleep(jitter(PAUSE, &readiness.missing())).await;
    }
    std::future::pending().await
}

/// Sets the condition `kind` once objects of it can be listed and watched.
pub async fn check_kind<K>(client: &Client, readiness: &Readiness, kind: &'static str)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    if !readiness.missing().contains(&kind) {
        return;
    }
    match list_and_watch::<K>(client).await {
        Ok(()) => readiness.set(kind, true),
        Err(error) => warn!(kind, error = %Chain(&error), "cannot be in step with the cluster; not ready"),
    }
}

/// The beginning of what a leader does.
async fn list_and_watch<K>(client: &Client) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let list = api.list(&ListParams::default().limit(1)).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    let _events = api.watch(&WatchParams::default().timeout(1), &version).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{IN_STEP, Term};
    use crate::admin::Readiness;

    #[test]
    fn a_leader_is_not_ready_until_it_is_in_step_and_one_that_stepped_down_need_not_be() {
        let readiness = Readiness::default();
        let term = Term::begin(&readiness);
        assert_eq!(readiness.missing(), [IN_STEP]);
        term.in_step();
        assert!(readiness.missing().is_empty());
        let next = Term::begin(&readiness);
        assert_eq!(readiness.missing(), [IN_STEP]);
        drop(next);
        assert!(readiness.missing().is_empty());
    }
}
