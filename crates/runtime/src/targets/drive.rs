//! One task for each usable target.

use super::{Target, TargetKey, Targets};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// How long a task that panicked is left alone.
const PANIC_BACKOFF: Duration = Duration::from_secs(1);

struct Task {
    identity: String,
    token: CancellationToken,
    number: u64,
}

impl Targets {
    /// Runs one task for each usable target until `stop`. A task's token is cancelled when its target
    /// vanishes, is no longer accepted, or must be worked on anew with other credentials or settings; in the
    /// last case a new task starts when the old one has ended. A task that ends by itself starts again.
    pub async fn drive<F, Fut>(mut self, stop: CancellationToken, work: F)
    where
        F: Fn(Arc<Target>, CancellationToken) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let (ended, mut ends) = mpsc::unbounded_channel::<(TargetKey, u64)>();
        let mut tasks: BTreeMap<TargetKey, Task> = BTreeMap::new();
        let mut number = 0;
        let mut map = self.synced().await;
        loop {
            for (key, task) in &tasks {
                if map.get(key).and_then(|target| target.identity()).as_ref() != Some(&task.identity) {
                    task.token.cancel();
                }
            }
            for (key, target) in map.iter() {
                let Some(identity) = target.identity() else { continue };
                if tasks.contains_key(key) {
                    continue;
                }
                number += 1;
                let token = stop.child_token();
                tasks.insert(key.clone(), Task { identity, token: token.clone(), number });
                info!(cluster = %key, "works on target");
                let job = tokio::spawn(work(Arc::clone(target), token));
                tokio::spawn(supervise(job, (key.clone(), number), ended.clone()));
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                changed = self.changed() => map = changed,
                Some((key, number)) = ends.recv() => {
                    tasks.retain(|known, task| *known != key || task.number != number);
                }
            }
        }
        while !tasks.is_empty() {
            let Some((key, _)) = ends.recv().await else { break };
            tasks.remove(&key);
        }
    }
}

async fn supervise(
    job: JoinHandle<()>,
    this: (TargetKey, u64),
    ended: mpsc::UnboundedSender<(TargetKey, u64)>,
) {
    if let Err(failure) = job.await {
        error!(cluster = %this.0, error = %failure, "work on target panicked; starting it again");
        tokio::time::sleep(PANIC_BACKOFF).await;
    }
    // Nobody listens any more when the driver has stopped.
    let _stopped = ended.send(this);
}
