//! One task for each action: makes the call, looks live where the end is not clear, and reports.

use crate::apply::{Home, Remote};
use crate::error::Error;
use crate::machine::{
    Action, ChaperonRef, ChaperonSeen, ClaimSeen, Failure, Grant, Id, Live, Outcome, PodRef, Scope, Seed,
};
use crate::metrics::Metrics;
use runtime::{CancellationToken, Chain, Class};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// A target with the lane in which it is asked.
pub(crate) type Lane = (Remote, Arc<Semaphore>);

/// Carries out one action.
pub(crate) struct Call {
    pub(crate) home: Home,
    pub(crate) metrics: Metrics,
    /// The origin of the machine's time.
    pub(crate) start: Instant,
    /// Cancelled when the call need not be made any more, should it not have left yet.
    pub(crate) unwanted: CancellationToken,
}

impl Call {
    /// Makes the call and reports its end through `done`, if it has one that matters.
    pub(crate) async fn run(self, action: Action, lane: Option<Lane>, done: impl Fn(Outcome)) {
        match action {
            Action::Create { target, seed, claims, .. } => {
                done(self.create(target, (&seed, &claims), lane).await);
            }
            // It takes effect on another call.
            Action::Forgo { .. } => (),
            Action::Renew { chaperon, attempt } => done(self.renew(chaperon, attempt, lane).await),
            Action::Bind { pod, node, election, after } => {
                let bound = self.home.bind(&pod, &node, &election).await;
                match bound {
                    Ok(()) => {
                        self.metrics.scheduled(after);
                        info!(proxy_pod = %named(&pod), node = &*node, "bound");
                        done(Outcome::Bound(Ok(())));
                    }
                    Err(error) => {
                        self.metrics.failed();
                        log(&error, "the binding did not succeed; reading the pod live");
                        done(Outcome::Bound(Err(self.home.read(&pod).await)));
                    }
                }
            }
            Action::Grant { pod, target, grant } => done(self.grant(&pod, &target, grant.as_ref()).await),
            Action::Allow { chaperon, version, finalizers, epoch, grant } => {
                let change = remote_change(lane, &chaperon, async |remote| {
                    remote.allow(&chaperon, &version, &finalizers, (epoch, grant)).await
                });
                done(Outcome::Allowed { target: Arc::clone(&chaperon.target), result: change.await });
            }
            Action::Revoke { chaperon, on } => {
                let change =
                    remote_change(lane, &chaperon, async |remote| remote.revoke(&chaperon, on).await);
                done(Outcome::Allowed { target: Arc::clone(&chaperon.target), result: change.await });
            }
            Action::Delete { chaperon } => done(self.delete(chaperon, lane).await),
            Action::Explain { pod, message, first } => self.explain(pod, message, first, done).await,
            Action::Reread { pod } => done(Outcome::Reread(self.home.read(&pod).await)),
            Action::Scheduled { pod, node } => {
                let message =
                    format!("Successfully assigned {}/{} to {node}", pod.name.namespace, pod.name.name);
                self.event(&pod, "Normal", "Scheduled", &message).await;
            }
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    async fn grant(&self, pod: &PodRef, target: &str, grant: Option<&Grant>) -> Outcome {
        match self.home.grant(pod, grant).await {
            Ok(seen) => {
                let kind = grant.map_or("nothing any more", |grant| grant.kind.as_str());
                info!(proxy_pod = %named(pod), target, kind, "granted");
                Outcome::Granted(Ok(seen))
            }
            Err(error) => {
                log(&error, "the grant could not be written; reading the pod live");
                Outcome::Granted(Err(self.home.read(pod).await))
            }
        }
    }

    async fn create(&self, target: Id, (seed, claims): (&Seed, &[ClaimSeen]), lane: Option<Lane>) -> Outcome {
        let Some((remote, lane)) = lane else {
            let error = Error::Unusable { cluster: target.to_string() };
            return Outcome::Created { target, sent: None, result: Err(failure(&error)) };
        };
        // The lane is never closed; without a place in it the ask would only be earlier.
        let _place = tokio::select! {
            biased;
            () = self.unwanted.cancelled() => return Outcome::Forgone { target },
            place = lane.acquire() => place,
        };
        let sent = self.now();
        match remote.create((seed, claims), &self.home.source).await {
            Ok((seen, new)) => Outcome::Created { target, sent: new.then_some(sent), result: Ok(seen) },
            Err(error) => {
                log(&error, "the target could not be asked");
                Outcome::Created { target, sent: None, result: Err(failure(&error)) }
            }
        }
    }

    async fn renew(&self, chaperon: ChaperonRef, attempt: u64, lane: Option<Lane>) -> Outcome {
        let sent = self.now();
        let Some((remote, _)) = lane else {
            let live = Live::Unknown("the target cannot be used".to_owned());
            return Outcome::Renewed { target: chaperon.target, sent, result: Err(live) };
        };
        let result = match remote.renew(&chaperon, attempt).await {
            Ok(seen) => Ok(seen),
            Err(error) => {
                log(&error, "the ask could not be renewed; reading it live");
                Err(remote.read(&chaperon).await)
            }
        };
        Outcome::Renewed { target: chaperon.target, sent, result }
    }

    async fn delete(&self, chaperon: ChaperonRef, lane: Option<Lane>) -> Outcome {
        let result = match lane {
            Some((remote, _)) => remote.delete(&chaperon).await,
            None => Err(Error::Unusable { cluster: chaperon.target.to_string() }),
        };
        let result = result.map_err(|error| {
            log(&error, "the ask could not be taken back");
            failure(&error)
        });
        Outcome::Deleted { target: chaperon.target, uid: chaperon.uid, result }
    }

    async fn explain(&self, pod: PodRef, message: String, first: bool, done: impl Fn(Outcome)) {
        match self.home.explain(&pod, &message, first).await {
            Ok(version) => {
                self.metrics.unschedulable();
                // The pod can go on being placed while the event is written.
                done(Outcome::Explained(Ok(version)));
                self.event(&pod, "Warning", "FailedScheduling", &message).await;
            }
            Err(error) => {
                log(&error, "the reason could not be written to the pod");
                done(Outcome::Explained(Err(failure(&error))));
            }
        }
    }

    /// Events are a service to people: one that cannot be written is not tried again.
    async fn event(&self, pod: &PodRef, kind: &str, reason: &str, message: &str) {
        if let Err(error) = self.home.event(pod, kind, reason, message).await {
            log(&error, "an event could not be written");
        }
    }
}

/// Changes an elected chaperon; on failure with what a live read found.
async fn remote_change(
    lane: Option<Lane>,
    chaperon: &ChaperonRef,
    change: impl AsyncFnOnce(&Remote) -> Result<ChaperonSeen, Error>,
) -> Result<ChaperonSeen, Live<ChaperonSeen>> {
    let Some((remote, _)) = lane else { return Err(Live::Unknown("the target cannot be used".to_owned())) };
    match change(&remote).await {
        Ok(seen) => Ok(seen),
        Err(error) => {
            log(&error, "the elected chaperon could not be changed; reading it live");
            Err(remote.read(chaperon).await)
        }
    }
}

fn named(pod: &PodRef) -> String {
    format!("{}/{}", pod.name.namespace, pod.name.name)
}

/// A right that we lack needs a person; lost races and silence are daily bread.
fn log(error: &Error, message: &'static str) {
    match error.class() {
        Class::Forbidden | Class::Bug => warn!(error = %Chain(error), "{message}"),
        Class::Conflict | Class::NotFound | Class::Invalid | Class::Unreachable | Class::Overloaded => {
            debug!(error = %Chain(error), "{message}");
        }
    }
}

/// What a failed call says about others.
fn failure(error: &Error) -> Failure {
    let scope = match error.class() {
        Class::Conflict | Class::Invalid => Scope::Class,
        Class::NotFound | Class::Forbidden => Scope::Namespace,
        Class::Unreachable | Class::Overloaded | Class::Bug => Scope::Target,
    };
    Failure { scope, message: error.for_user() }
}
