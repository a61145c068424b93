//! Membership: replicas share work by key, each key is worked on by at most one of them.
//!
//! Every replica renews a Lease of its own and watches those of the others. Who works on a key follows from who is
//! there, alike for all. A replica writes into its Lease which view of the members it obeys, after it has stopped what
//! is not its own by that view, and begins with more only when all members obey the same one. So a key is never worked
//! on by two: whoever had it has said that it stopped, has taken leave, or could not renew its Lease for so long that
//! it stopped by itself before the others count it as gone.
//!
//! Assumptions: clocks of replicas advance at about the same rate; a replica looks at its [`Fence`] before it writes, and
//! no write takes longer than a call's deadline.

mod plan;

use crate::{Chain, Class, Runtime, Seen, class, watch};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use plan::{FENCE, Share, Sign, State, View};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch as channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// Between two renewals.
const RENEWAL: Duration = Duration::from_millis(1500);
/// Between two renewals after one failed.
const RETRY: Duration = Duration::from_millis(500);
/// Longest wait for one renewal.
const PATIENCE: Duration = Duration::from_secs(3);
/// Label of the Leases of one component's replicas.
const LABEL: &str = "multicluster-scheduler.io/members-of";
/// Annotation of a Lease: the view that its replica obeys.
const VIEW: &str = "multicluster-scheduler.io/view";

/// Until when this replica may write: to be looked at just before.
#[derive(Debug, Clone, Default)]
pub struct Fence(Arc<Mutex<Option<Instant>>>);

impl Fence {
    /// Whether others cannot have taken over yet. One that was frozen finds out here.
    #[must_use]
    pub fn holds(&self) -> bool {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_none_or(|until| Instant::now() < until)
    }

    fn set(&self, until: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// One replica among others.
#[derive(Debug)]
pub struct Members {
    views: channel::Receiver<View>,
    obeyed: channel::Sender<String>,
    share: Share,
    alone: bool,
    fence: Fence,
    stop: CancellationToken,
    left: Option<tokio::task::JoinHandle<()>>,
}

impl Members {
    /// Joins the replicas of this component. Nothing is owned before [`Members::changed`] says so.
    ///
    /// Without `--leader-elect` there are no others: everything is owned at once.
    #[must_use]
    pub fn join(runtime: &Runtime) -> Self {
        if !runtime.args.leader_elect {
            return Self::alone();
        }
        let (sender, views) = channel::channel(View::default());
        let (obeyed, obeys) = channel::channel(String::new());
        let stop = CancellationToken::new();
        let fence = Fence::default();
        let task = tokio::spawn(follow(runtime.clone(), (sender, fence.clone()), obeys, stop.clone()));
        Self { views, obeyed, share: Share::default(), alone: false, fence, stop, left: Some(task) }
    }

    /// A replica without others: everything is owned.
    #[must_use]
    pub fn alone() -> Self {
        let (_, views) = channel::channel(View::default());
        let (obeyed, _) = channel::channel(String::new());
        let stop = CancellationToken::new();
        let (share, fence) = (Share::default(), Fence::default());
        Self { views, obeyed, share, alone: true, fence, stop, left: None }
    }

    /// Waits for the next change of who works on what. Then stop what [`Members::owns`] does not give any more, wait
    /// for its end, and call [`Members::obeys`].
    pub async fn changed(&mut self) {
        if self.alone || self.views.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.share.obey(self.views.borrow_and_update().clone());
    }

    /// Whether this replica works on a key now.
    #[must_use]
    pub fn owns(&self, key: &str) -> bool {
        self.alone || self.fence.holds() && self.share.owns(key)
    }

    /// For tasks that write by themselves.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// How many replicas there are, as far as is known; none while this one is not among them.
    #[must_use]
    pub fn count(&self) -> usize {
        if self.alone { 1 } else { self.share.members() }
    }

    /// Everything is stopped that is not owned any more: others may begin with it.
    pub fn obeys(&self) {
        let name = self.share.name();
        self.obeyed.send_if_modified(|old| {
            let changed = *old != name;
            *old = name;
            changed
        });
    }

    /// Takes leave, after everything is stopped: others take over at once.
    pub async fn leave(mut self) {
        let task = self.left.take();
        drop(self);
        if let Some(task) = task
            && tokio::time::timeout(PATIENCE, task).await.is_err()
        {
            debug!("taking leave took too long; the others will notice");
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What a renewal tells.
struct Renewed(Instant, u64);

async fn follow(
    runtime: Runtime,
    (views, own_fence): (channel::Sender<View>, Fence),
    obeys: channel::Receiver<String>,
    stop: CancellationToken,
) {
    let leases = Api::<Lease>::namespaced(runtime.client.clone(), &runtime.args.pod_namespace);
    let label = format!("{LABEL}={}", runtime.component);
    let config = watcher::Config::default().labels(&label);
    let (renewals, mut renewed) = mpsc::unbounded_channel();
    let renewing = tokio::spawn(renew(runtime.clone(), leases.clone(), (obeys, renewals), stop.clone()));
    // The own Lease is there before the others are listed: of two that come at once, at least one sees the other.
    let mut state = State::new(&runtime.args.pod_name);
    if let Some(Renewed(sent, version)) = renewed.recv().await {
        state.renewed(sent, version);
    }
    let mut events = Box::pin(watch(leases.clone(), config, "local", &runtime.metrics));
    loop {
        let fence = state.fence().unwrap_or_else(|| Instant::now() + FENCE);
        let fence = fence.max(Instant::now() + Duration::from_millis(100));
        tokio::select! {
            () = stop.cancelled() => break,
            () = runtime.shutdown.cancelled() => break,
            seen = events.next() => match seen {
                Some(seen) => take(&mut state, seen),
                None => break,
            },
            Some(Renewed(sent, version)) = renewed.recv() => state.renewed(sent, version),
            () = tokio::time::sleep_until(fence) => (),
        }
        let view = state.view(Instant::now());
        own_fence.set(state.fence());
        let changed = views.send_if_modified(|old| {
            let changed = *old != view;
            if changed {
                *old = view.clone();
            }
            changed
        });
        if changed {
            info!(members = view.members.len(), agreed = view.open, "who shares the work has changed");
        }
        for member in state.forgotten() {
            forget(&leases, &runtime, &member).await;
        }
    }
    // Whoever works must have stopped before the Lease goes: it holds the receiver until then.
    views.closed().await;
    stop.cancel();
    if let Err(failure) = renewing.await {
        warn!(error = %failure, "renewing ended badly");
    }
}

fn sign(lease: &Lease) -> Option<Sign> {
    let member = lease.spec.as_ref()?.holder_identity.clone()?;
    let view = lease.annotations().get(VIEW).cloned().unwrap_or_default();
    Some(Sign { member, version: lease.resource_version()?.parse().ok()?, view })
}

fn take(state: &mut State, seen: Seen<Lease>) {
    let now = Instant::now();
    match seen {
        Seen::Replaced(all) => state.list(all.iter().filter_map(sign).collect(), now),
        Seen::Applied(lease) => {
            if let Some(sign) = sign(&lease) {
                state.see(sign, now);
            }
        }
        Seen::Deleted(lease) => {
            if let Some(sign) = sign(&lease) {
                state.miss(&sign.member);
            }
        }
        Seen::Failed(_) => {}
    }
}

fn lease_name(runtime: &Runtime, member: &str) -> String {
    api::names::derive(
        253,
        &[
            api::names::Part::Constant("multicluster"),
            api::names::Part::Required(runtime.component),
            api::names::Part::Required(member),
        ],
    )
}

/// Renews this replica's Lease until stopped, at once when it obeys another view; then deletes it.
async fn renew(
    runtime: Runtime,
    leases: Api<Lease>,
    (mut obeys, renewed): (channel::Receiver<String>, mpsc::UnboundedSender<Renewed>),
    stop: CancellationToken,
) {
    let name = lease_name(&runtime, &runtime.args.pod_name);
    let mut failing = false;
    loop {
        let view = obeys.borrow_and_update().clone();
        let sent = Instant::now();
        let outcome = tokio::time::timeout(PATIENCE, put(&runtime, &leases, &name, &view)).await;
        let pause = match outcome {
            Ok(Ok(version)) => {
                failing = false;
                if renewed.send(Renewed(sent, version)).is_err() {
                    break;
                }
                RENEWAL
            }
            outcome => {
                let why = match outcome {
                    Ok(Err(error)) => Chain(&error).to_string(),
                    _ => "no answer in time".to_owned(),
                };
                if !failing {
                    warn!(error = why, "cannot say that this replica is there; trying again");
                }
                failing = true;
                RETRY
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => (),
            changed = obeys.changed() => if changed.is_err() { break },
        }
    }
    let gone = tokio::time::timeout(PATIENCE, leases.delete(&name, &DeleteParams::default())).await;
    match gone {
        Ok(Ok(_)) => info!("took leave of the other replicas"),
        Ok(Err(error)) => debug!(error = %Chain(&error), "cannot take leave; the others will notice"),
        Err(_elapsed) => debug!("cannot take leave in time; the others will notice"),
    }
}

/// Says that this replica is there; the version that came of it.
async fn put(runtime: &Runtime, leases: &Api<Lease>, name: &str, view: &str) -> kube::Result<u64> {
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(runtime.args.pod_namespace.clone()),
            labels: Some([(LABEL.to_owned(), runtime.component.to_owned())].into()),
            annotations: Some([(VIEW.to_owned(), view.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(runtime.args.pod_name.clone()),
            lease_duration_seconds: i32::try_from(plan::GONE.as_secs()).ok(),
            renew_time: Some(MicroTime(runtime.clock.now())),
            ..LeaseSpec::default()
        }),
    };
    let params = PatchParams::apply(&runtime.manager()).force();
    let made = leases.patch(name, &params, &Patch::Apply(&lease)).await?;
    Ok(made.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default())
}

/// Removes the Lease of a replica that is long gone, unless it is back.
async fn forget(leases: &Api<Lease>, runtime: &Runtime, member: &str) {
    let name = lease_name(runtime, member);
    let Ok(Some(lease)) = leases.get_opt(&name).await else { return };
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: lease.uid(), resource_version: lease.resource_version() }),
        ..DeleteParams::default()
    };
    let stale = lease.spec.and_then(|spec| spec.renew_time).is_some_and(|time| {
        runtime.clock.now().duration_since(time.0).as_secs() > plan::FORGOTTEN.as_secs().cast_signed()
    });
    if !stale {
        return;
    }
    match leases.delete(&name, &params).await {
        Ok(_) => debug!(member, "removed what a replica left behind"),
        Err(error) if matches!(class(&error), Class::NotFound | Class::Conflict) => {}
        Err(error) => debug!(member, error = %Chain(&error), "cannot remove what a replica left behind"),
    }
}
