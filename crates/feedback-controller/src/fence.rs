//! Keeps the Lease by which a target knows that this source is there, and gives its epoch up when it could not be
//! renewed for so long that nothing of that epoch runs any more.

use crate::controller::Context;
use crate::link::Link;
use api::fence::{self, ATTEMPT, RENEWAL, Timing};
use api::v1alpha1::{ClusterTarget, Target as NamespacedTarget};
use api::{keys, names};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ObjectMeta, Patch, PostParams};
use kube::{Api, Resource, ResourceExt as _};
use runtime::{Chain, Class, Target, class, patching};
use serde_json::{Value, json};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// What the Lease is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    epoch: u64,
    counter: u64,
    /// The target has noted that this epoch is over.
    expired: Option<u64>,
}

impl Standing {
    fn of(lease: &Lease) -> Self {
        let expired = lease.annotations().get(keys::FENCE_EXPIRED).map(String::as_str);
        Self {
            epoch: fence::lease_epoch(lease),
            counter: fence::lease_counter(lease),
            expired: fence::epoch(expired),
        }
    }
}

/// What proxy pods need of a Lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// The highest epoch in which one of them was elected.
    pub(crate) epoch: u64,
    /// The longest grace period among them.
    pub(crate) grace: Duration,
}

/// All that is decided on.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// `None` when no proxy pod needs the Lease.
    need: Option<Need>,
    in_step: bool,
    /// Whether the last attempt succeeded; also before the first one.
    works: bool,
    /// The epoch that stands on the Target.
    kept: u64,
    standing: Option<Standing>,
    /// Since the last attempt has begun.
    rested: Duration,
    /// Since the last attempt in this epoch has ended, whatever came of it.
    quiet: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Rest,
    /// Renew the Lease, make it, or read what it is.
    Try,
    /// Write a higher epoch on the Target; nothing is ever renewed in an earlier one again.
    Raise(u64),
}

fn step(seen: &Seen) -> Step {
    let Some(need) = seen.need else { return Step::Rest };
    if let Some(standing) = seen.standing {
        if standing.epoch > seen.kept {
            // The Target was made anew.
            return Step::Raise(standing.epoch);
        }
        if seen.in_step && standing.expired.is_some_and(|expired| expired >= seen.kept) {
            return Step::Raise(seen.kept.max(standing.expired.unwrap_or_default()) + 1);
        }
    }
    if seen.in_step || seen.works {
        let due = seen.standing.is_none() && seen.works || seen.rested >= RENEWAL;
        return if due { Step::Try } else { Step::Rest };
    }
    // Nobody waits in an epoch that is over already.
    if need.epoch >= seen.kept && seen.quiet >= Timing::default().wait(need.grace) {
        return Step::Raise(need.epoch + 1);
    }
    Step::Rest
}

/// How it goes with the Lease in one target, as this process knows it.
#[derive(Debug)]
pub(crate) struct Renewal(Mutex<Course>);

#[derive(Debug, Clone, Copy)]
struct Course {
    standing: Option<Standing>,
    works: bool,
    /// When the last attempt began.
    began: Option<Instant>,
    /// The epoch of the last attempt, or the one found first.
    epoch: u64,
    /// When the last attempt in this epoch ended. Another process may have renewed it until this one began.
    ended: Instant,
    /// The same for all earlier epochs.
    ended_before: Instant,
}

impl Renewal {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Course {
            standing: None,
            works: true,
            began: None,
            epoch: 0,
            ended: now,
            ended_before: now,
        }))
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long ago the last attempt to renew the Lease in an epoch has ended, at least.
    pub(crate) fn quiet_for(&self, epoch: u64) -> Duration {
        let course = *self.course();
        if epoch < course.epoch { course.ended_before.elapsed() } else { course.ended.elapsed() }
    }
}

impl Course {
    /// Goes on in another epoch.
    fn turn(&mut self, epoch: u64) {
        if epoch > self.epoch {
            self.ended_before = self.ended;
            self.epoch = epoch;
        }
    }
}

/// Goes on until dropped.
pub(crate) async fn keep(context: &Context, target: &Target, link: &Link) {
    let mut failing = false;
    loop {
        tokio::time::sleep(PAUSE).await;
        let (need, kept) = {
            let store = context.store();
            (store.fence_need(target), store.fence_epoch(&target.key))
        };
        link.renewal.course().turn(kept);
        let course = *link.renewal.course();
        let seen = Seen {
            need,
            in_step: link.is_in_step(),
            works: course.works,
            kept,
            standing: course.standing,
            rested: course.began.map_or(Duration::MAX, |began| began.elapsed()),
            quiet: course.ended.elapsed(),
        };
        match step(&seen) {
            Step::Rest => {}
            Step::Raise(epoch) => {
                info!(cluster = %target.key, epoch, silent = !seen.in_step, "goes on to another epoch");
                if let Err(error) = raise(context, target, epoch).await {
                    warn!(cluster = %target.key, error = %Chain(&error), "cannot write the epoch of a target");
                }
                // What stands there now is read again.
                link.renewal.course().standing = None;
            }
            Step::Try => failing = attempt(context, target, (link, kept), failing).await,
        }
    }
}

/// One renewal. Whatever comes of it, it may have reached the target until it ended.
async fn attempt(context: &Context, target: &Target, (link, kept): (&Link, u64), failing: bool) -> bool {
    let (known, began) = (link.renewal.course().standing, Instant::now());
    link.renewal.course().began = Some(began);
    let outcome = tokio::time::timeout(ATTEMPT, renew(context, target, (link, kept), known)).await;
    let mut course = link.renewal.course();
    course.ended = Instant::now();
    match outcome {
        Ok(Ok(standing)) => {
            (course.standing, course.works) = (Some(standing), true);
            return false;
        }
        Ok(Err(error)) => {
            // Somebody has changed it, or it is gone: it is read again.
            let lost = matches!(class(&error), Class::Conflict | Class::Invalid | Class::NotFound);
            (course.standing, course.works) = (None, lost && known.is_some());
            drop(course);
            if class(&error) == Class::Unreachable {
                link.suspect();
            }
            if failing || lost {
                debug!(cluster = %target.key, error = %Chain(&error), "cannot renew the Lease of a target");
            } else {
                warn!(cluster = %target.key, error = %Chain(&error), "cannot renew the Lease of a target");
            }
        }
        Err(_elapsed) => {
            (course.standing, course.works) = (None, false);
            drop(course);
            link.suspect();
            warn!(cluster = %target.key, "the renewal of the Lease of a target got no answer");
        }
    }
    true
}

async fn renew(
    context: &Context,
    target: &Target,
    (link, kept): (&Link, u64),
    known: Option<Standing>,
) -> Result<Standing, kube::Error> {
    let api = link.leases().await?;
    let name = names::fence_lease(&context.own_uid);
    let Some(known) = known else {
        return match api.get_opt(&name).await? {
            Some(lease) => Ok(Standing::of(&lease)),
            None => {
                let params =
                    PostParams { field_manager: Some(context.rt.manager()), ..PostParams::default() };
                let made = api.create(&params, &lease(context, target, &name, kept)).await?;
                Ok(Standing::of(&made))
            }
        };
    };
    let patch: json_patch::Patch =
        serde_json::from_value(renewal(known, kept)).map_err(kube::Error::SerdeError)?;
    let patched = api.patch(&name, &patching(&context.rt.manager()), &Patch::Json::<()>(patch)).await?;
    Ok(Standing::of(&patched))
}

fn lease(context: &Context, target: &Target, name: &str, epoch: u64) -> Lease {
    let labels = [
        (keys::PARENT_CLUSTER_UID.to_owned(), context.own_uid.clone()),
        (keys::VIRTUAL_NODE.to_owned(), names::label_value(&target.virtual_node())),
    ];
    let mut lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.into()),
            annotations: Some([(keys::FENCE_COUNTER.to_owned(), "0".to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: None,
    };
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(context.own_uid.clone());
    spec.lease_transitions = i32::try_from(epoch).ok();
    spec.lease_duration_seconds = i32::try_from(Timing::default().duration.as_secs()).ok();
    lease
}

/// One more, as long as the Lease is what it was.
fn renewal(known: Standing, kept: u64) -> Value {
    let counter =
        format!("/metadata/annotations/{}", keys::FENCE_COUNTER.replace('~', "~0").replace('/', "~1"));
    json!([
        {"op": "test", "path": "/spec/leaseTransitions", "value": known.epoch},
        {"op": "test", "path": counter, "value": known.counter.to_string()},
        {"op": "replace", "path": "/spec/leaseTransitions", "value": kept.max(known.epoch)},
        {"op": "replace", "path": counter, "value": (known.counter + 1).to_string()},
    ])
}

/// Writes an epoch on the Target, unless a higher one stands there.
async fn raise(context: &Context, target: &Target, epoch: u64) -> Result<(), kube::Error> {
    let client = context.rt.client.clone();
    if target.key.namespace.is_empty() {
        write_epoch(context, &Api::<ClusterTarget>::all(client), target, epoch).await
    } else {
        let api = Api::<NamespacedTarget>::namespaced(client, &target.key.namespace);
        write_epoch(context, &api, target, epoch).await
    }
}

async fn write_epoch<K>(
    context: &Context,
    api: &Api<K>,
    target: &Target,
    epoch: u64,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let found = api.get_metadata(&target.key.name).await?;
    let stands = fence::epoch(found.annotations().get(keys::FENCE_EPOCH).map(String::as_str));
    if found.uid().as_deref() != Some(&target.uid) || stands.unwrap_or_default() >= epoch {
        return Ok(());
    }
    let patch = json!({"metadata": {
        "uid": target.uid, "resourceVersion": found.resource_version(),
        "annotations": {keys::FENCE_EPOCH: epoch.to_string()},
    }});
    api.patch_metadata(&target.key.name, &patching(&context.rt.manager()), &Patch::Merge(&patch)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Need, Seen, Standing, Step, renewal, step};
    use api::fence::{RENEWAL, Timing};
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);
    const GRACE: Duration = Duration::from_secs(30);
    const HELD: Standing = Standing { epoch: 3, counter: 7, expired: None };

    /// All is well, and the next renewal is due.
    fn held() -> Seen {
        Seen {
            need: Some(Need { epoch: 3, grace: GRACE }),
            in_step: true,
            works: true,
            kept: 3,
            standing: Some(HELD),
            rested: RENEWAL,
            quiet: SECOND * 5,
        }
    }

    /// The target does not answer, and the last attempt did not get through.
    fn silent(quiet: Duration) -> Seen {
        Seen { in_step: false, works: false, standing: None, quiet, ..held() }
    }

    #[test]
    fn a_lease_is_renewed_as_long_as_a_pod_needs_it() {
        assert_eq!(step(&held()), Step::Try);
        assert_eq!(step(&Seen { rested: SECOND, ..held() }), Step::Rest);
        assert_eq!(step(&Seen { need: None, ..held() }), Step::Rest);
    }

    #[test]
    fn a_lease_that_is_not_known_is_read_at_once() {
        assert_eq!(step(&Seen { standing: None, rested: SECOND, ..held() }), Step::Try);
        // But not in a hurry when that has just failed.
        assert_eq!(step(&Seen { standing: None, works: false, rested: SECOND, ..held() }), Step::Rest);
        assert_eq!(step(&Seen { standing: None, works: false, ..held() }), Step::Try);
    }

    #[test]
    fn what_cannot_be_watched_but_renewed_is_renewed() {
        assert_eq!(step(&Seen { in_step: false, ..held() }), Step::Try);
    }

    #[test]
    fn a_silent_target_is_not_tried_again_and_its_epoch_given_up_when_nothing_of_it_can_run() {
        let wait = Timing::default().wait(GRACE);
        assert_eq!(step(&silent(SECOND)), Step::Rest);
        assert_eq!(step(&silent(wait - SECOND)), Step::Rest);
        assert_eq!(step(&silent(wait)), Step::Raise(4));
        let longer = Need { epoch: 3, grace: GRACE * 2 };
        assert_eq!(
            step(&Seen { need: Some(longer), ..silent(wait) }),
            Step::Rest,
            "the longest grace counts"
        );
    }

    #[test]
    fn an_epoch_is_given_up_once() {
        let wait = Timing::default().wait(GRACE);
        assert_eq!(step(&Seen { kept: 4, ..silent(wait * 9) }), Step::Rest);
    }

    #[test]
    fn a_target_that_has_let_an_epoch_run_out_gets_another_one() {
        let over = Standing { expired: Some(3), ..HELD };
        assert_eq!(step(&Seen { standing: Some(over), ..held() }), Step::Raise(4));
        assert_eq!(step(&Seen { standing: Some(over), kept: 4, ..held() }), Step::Try);
    }

    #[test]
    fn a_target_made_anew_goes_on_where_the_lease_stands() {
        let later = Standing { epoch: 9, ..HELD };
        assert_eq!(step(&Seen { standing: Some(later), ..held() }), Step::Raise(9));
    }

    #[test]
    fn a_renewal_changes_only_what_it_has_seen() {
        let patch = renewal(HELD, 4).to_string();
        assert!(patch.contains(r#""value":"7""#) && patch.contains(r#""value":"8""#), "{patch}");
        assert!(patch.contains(r#""path":"/spec/leaseTransitions","value":4"#), "{patch}");
        assert!(
            renewal(HELD, 2)
                .to_string()
                .contains(r#""op":"replace","path":"/spec/leaseTransitions","value":3"#)
        );
    }
}
