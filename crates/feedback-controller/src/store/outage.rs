//! What is known of an outage, and of what stands in for pods that were replaced.

use super::observe::{Reach, reach};
use super::{Key, Store};
use crate::failover::{LeaseEnd, Outage, Successor, is_moved};
use crate::fence::Need;
use crate::plan::{State, state};
use crate::views::Proxy;
use api::conditions::Kind;
use api::fence::Timing;
use api::raw::{is_terminal, pod_condition};
use k8s_openapi::jiff::Timestamp;
use runtime::{Target, TargetKey};
use std::sync::Arc;
use std::time::Duration;

/// How long this process must have found a target silent, besides what virtual-kubelet has found: what stands in the
/// Target may be old after an outage of ours.
const SURE: Duration = Duration::from_secs(10);

impl Store {
    /// The outage of the target of a pod.
    pub(super) fn outage(&self, proxy: &Proxy, now: &str) -> Outage {
        let target = self.targets.as_ref().and_then(|targets| targets.get(&proxy.node));
        let Some(target) = target else { return Outage::default() };
        let link = self.links.get(&target.key);
        let silent = link.and_then(|link| link.silent_for()).unwrap_or_default();
        let others = self.targets.iter().flatten().map(|(_, other)| other);
        Outage {
            policy: proxy.wish.over(target.settings.failover),
            lasts: lasts(target, now),
            is_sure: silent >= SURE,
            elsewhere: others.filter(|other| other.key != target.key).any(|other| self.takes(other, proxy)),
            is_fenced: target.is_fenced(),
            lease: proxy.lease.map(|(epoch, grace)| {
                let quiet = link.map(|link| link.renewal.quiet_for(epoch)).unwrap_or_default();
                let over = target.fence_epoch() > epoch && quiet >= Timing::default().wait(grace);
                if over { LeaseEnd::IsOver } else { LeaseEnd::Runs }
            }),
        }
    }

    /// What pods need of the Lease in a target; `None` when none does.
    pub(crate) fn fence_need(&self, target: &Target) -> Option<Need> {
        let bound = self.by_node.get(&target.virtual_node()).into_iter().flatten();
        let bound = bound.filter_map(|key| self.pods.get(key));
        let uid = target.status.cluster_uid.as_ref();
        let granted = self.pods.values().filter(|pod| {
            pod.node.is_empty() && pod.is_granted && uid.is_some() && pod.elected_target.as_ref() == uid
        });
        let leased = bound.chain(granted).filter_map(|pod| Some((pod, pod.lease?)));
        let alive = leased.filter(|(pod, _)| state(pod) == State::Running);
        alive.map(|(_, (epoch, grace))| Need { epoch, grace }).reduce(|one, other| Need {
            epoch: one.epoch.max(other.epoch),
            grace: one.grace.max(other.grace),
        })
    }

    /// The epoch that stands on a Target.
    pub(crate) fn fence_epoch(&self, key: &TargetKey) -> u64 {
        let targets = self.targets.as_ref();
        let target = targets.and_then(|targets| targets.get(&key.virtual_node()));
        target.map(|target| target.fence_epoch()).unwrap_or_default()
    }

    fn takes(&self, target: &Target, proxy: &Proxy) -> bool {
        let in_step = self.links.get(&target.key).is_some_and(|link| link.is_in_step());
        let serves = target.key.serves(&proxy.namespace) && target.usable().is_some();
        serves && in_step && reach(target) == Reach::Fine && !target.deleting && !target.is_fenced()
    }

    pub(crate) fn is_fenced(&self, key: &TargetKey) -> bool {
        let targets = self.targets.as_ref();
        targets.and_then(|targets| targets.get(&key.virtual_node())).is_some_and(|target| target.is_fenced())
    }

    /// What stands in for a pod that was ended because its target was silent: all pods of its controller. For
    /// PodChaperons without parent it is the pod that has the parent's name now.
    pub(super) fn successor(&self, key: &Key, proxy: Option<&Proxy>) -> Successor {
        match proxy {
            Some(proxy) if is_moved(proxy) => {
                let controller = proxy.controller.as_deref().unwrap_or_default();
                let all = self.by_controller.get(controller).into_iter().flatten();
                together(all.filter(|other| *other != key).filter_map(|other| self.pods.get(other)).cloned())
            }
            Some(_) => Successor::Nobody,
            None => {
                let orphan =
                    self.chaperons.get(key).into_iter().flatten().find(|orphan| orphan.may_run_twice);
                let Some(orphan) = orphan else { return Successor::Nobody };
                let same = |pod: &&Arc<Proxy>| {
                    pod.name == orphan.parent_name && pod.namespace == orphan.parent_namespace
                };
                together(self.pods.values().filter(same).cloned())
            }
        }
    }
}

fn together(pods: impl Iterator<Item = Arc<Proxy>>) -> Successor {
    let mut found = Successor::Nobody;
    for pod in pods.filter(|pod| pod.deleting.is_none()) {
        let status = pod.status.value();
        if is_terminal(status["phase"].as_str().unwrap_or_default()) {
            continue;
        }
        if pod_condition(&status, "Ready").is_none_or(|ready| ready["status"] != "True") {
            return Successor::Waits;
        }
        found = Successor::Ready;
    }
    found
}

/// Since virtual-kubelet found the target silent; a restart of anything changes nothing about that.
fn lasts(target: &Target, now: &str) -> Duration {
    let conditions = &target.status.conditions;
    let reachable = conditions.iter().find(|condition| condition.type_ == Kind::Reachable.as_str());
    let since = reachable.filter(|condition| condition.status == "False").map(|c| c.last_transition_time.0);
    let (Some(since), Ok(now)) = (since, now.parse::<Timestamp>()) else { return Duration::ZERO };
    now.duration_since(since).try_into().unwrap_or_default()
}
