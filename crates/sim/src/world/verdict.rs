//! Whether a world is settled after its last fault, and what is wrong if it is not.

use super::kubelets::is_over;
use super::{Due, PATIENCE, World};
use crate::cluster::request::Verb;
use crate::cluster::{Change, Object};
use crate::process::Service;
use crate::recorder::{Rule, Violation};
use crate::wire::{ClusterId, Sent};
use api::keys;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

impl World {
    /// Looks at who writes what.
    pub(super) fn judge_write(&mut self, sent: &Sent) {
        if !sent.request.is_write() {
            return;
        }
        let Some(process) = self.processes.get(sent.process) else { return };
        let (service, home) = (process.service, process.home);
        let request = &sent.request;
        let home_uid = self.store(home).uid.clone();
        let Some(object) =
            self.store(sent.cluster).get(&request.kind, &request.key.0, &request.key.1).cloned()
        else {
            return;
        };
        let own = match (service, request.kind.as_str()) {
            (Service::ProxyScheduler | Service::FeedbackController, "podchaperons") => {
                object.label(keys::PARENT_CLUSTER_UID) == home_uid
            }
            (Service::ProxyScheduler | Service::FeedbackController | Service::VirtualKubelet, "pods") => {
                object.annotation(keys::SOURCE_POD_MANIFEST).is_some()
            }
            (Service::ChaperonController | Service::CandidateScheduler, "pods") => {
                !object.label(keys::PARENT_UID).is_empty()
            }
            _ => true,
        };
        let at = self.now();
        if !own {
            self.recorder.report(
                Rule::OnlyOwnObjects,
                at,
                format!("{} wrote: {}", service.name(), request.line()),
            );
        }
    }

    /// Looks at what has changed.
    pub(super) fn judges(&mut self, id: ClusterId, change: &Change) {
        let at = self.now();
        let new = &change.new;
        let proxy = match (change.kind.as_str(), self.is_source(id)) {
            ("pods", true) => new.uid(),
            ("podchaperons", _) => new.label(keys::PARENT_UID),
            _ => return,
        };
        if let Some(old) = change.old.as_ref().filter(|_| !change.deleted) {
            self.recorder.turns(proxy, (old.phase(), new.phase()), at);
        }
        if api::raw::confirms_revocation(&new.value["status"]) {
            // It never ran, and its owner makes another one for another target.
            self.recorder.excuse(proxy);
        }
        if change.deleted && self.is_source(id) {
            let excused = self.was_removed(id, new);
            self.recorder.gone(proxy, excused, at);
        }
    }

    /// Whether somebody took a pod's target away.
    fn was_removed(&self, source: ClusterId, pod: &Object) -> bool {
        let uid = |id: ClusterId| self.clusters.get(id).map(|cluster| cluster.store.uid.as_str());
        let elected = pod.annotation(keys::ELECTED_TARGET);
        elected.is_some() && self.removed.iter().any(|(of, id)| *of == source && uid(*id) == elected)
    }

    /// What a write ends without a cause, should it be taken.
    pub(super) fn ends_for_nothing(&mut self, sent: &Sent) -> Option<String> {
        let request = &sent.request;
        let by_us = self.processes.get(sent.process)?.service == Service::FeedbackController;
        let ends = request.verb == Verb::Delete || request.body["status"]["reason"] == "DelegateLost";
        if request.kind != "pods" || !by_us || !ends {
            return None;
        }
        let pod = self.store(sent.cluster).get("pods", &request.key.0, &request.key.1).cloned()?;
        let excused = self.recorder.is_excused(pod.uid()) || self.was_removed(sent.cluster, &pod);
        (!pod.is_terminating() && !excused)
            .then(|| format!("{} {} was ended: {}", pod.name(), pod.uid(), request.line()))
    }

    /// Looks at everything; whether the world is over.
    pub(super) fn look(&mut self) -> bool {
        let open = self.open();
        let now = self.now();
        if open.is_empty() {
            self.tell(|| "settled".to_owned());
            return true;
        }
        if now >= self.plan.pace.healed + PATIENCE {
            self.recorder.violations.extend(open);
            return true;
        }
        self.after(self.plan.pace.look, Due::Look);
        false
    }

    /// What is not as it must be in the end.
    fn open(&mut self) -> Vec<Violation> {
        let mut open = Vec::new();
        let proxies = self.proxies();
        let chaperons = self.chaperons();
        let mut say = |rule: Rule, what: String| open.push((rule, what));
        for proxy in proxies.values() {
            let chaperon = chaperons
                .get(proxy.uid())
                .into_iter()
                .flatten()
                .find(|chaperon| Some(chaperon.uid()) == proxy.annotation(keys::ELECTED_CHAPERON));
            judge_proxy(proxy, chaperon, self.recorder.runs(proxy.uid()), &mut say);
        }
        for uid in self.recorder.running() {
            if !proxies.contains_key(uid) {
                say(Rule::NoOrphan, format!("something runs for proxy {uid}, which is gone"));
            }
        }
        for (parent, all) in &chaperons {
            for chaperon in all {
                if chaperon.is_terminating() {
                    say(
                        Rule::NothingStaysTerminating,
                        format!("PodChaperon {} is still being deleted", chaperon.name()),
                    );
                }
                let elected = proxies.get(parent).is_some_and(|proxy| {
                    proxy.node().is_empty()
                        || proxy.annotation(keys::ELECTED_CHAPERON) == Some(chaperon.uid())
                });
                if !elected {
                    say(
                        Rule::NothingIsLeft,
                        format!("PodChaperon {} {} serves nobody", chaperon.name(), chaperon.uid()),
                    );
                }
            }
        }
        let uids: BTreeSet<&str> = chaperons.values().flatten().map(|chaperon| chaperon.uid()).collect();
        for id in self.plan.sources..self.clusters.len() {
            for pod in self.clusters.get(id).into_iter().flat_map(|cluster| cluster.store.all("pods")) {
                if pod.is_terminating() {
                    say(
                        Rule::NothingStaysTerminating,
                        format!("delegate {} is still being deleted", pod.name()),
                    );
                } else if pod.controller().is_some_and(|owner| !uids.contains(owner)) {
                    say(Rule::NothingIsLeft, format!("delegate {} has no PodChaperon", pod.name()));
                }
            }
        }
        let at = self.now();
        open.into_iter().map(|(rule, what)| Violation { rule, what, at }).collect()
    }

    fn proxies(&self) -> BTreeMap<String, Rc<Object>> {
        let sources = self.clusters.iter().take(self.plan.sources);
        let pods = sources.flat_map(|cluster| cluster.store.all("pods"));
        pods.map(|pod| (pod.uid().to_owned(), Rc::clone(pod))).collect()
    }

    /// By UID of the proxy pod.
    fn chaperons(&self) -> BTreeMap<String, Vec<Rc<Object>>> {
        let targets = self.clusters.iter().skip(self.plan.sources);
        let mut all: BTreeMap<String, Vec<Rc<Object>>> = BTreeMap::new();
        for chaperon in targets.flat_map(|cluster| cluster.store.all("podchaperons")) {
            all.entry(chaperon.label(keys::PARENT_UID).to_owned()).or_default().push(Rc::clone(chaperon));
        }
        all
    }
}

/// One proxy pod: it ended, it runs and shows so, or it waits for a stated reason.
fn judge_proxy(
    proxy: &Object,
    chaperon: Option<&Rc<Object>>,
    runs: bool,
    say: &mut impl FnMut(Rule, String),
) {
    let name = format!("{} {}", proxy.name(), proxy.uid());
    if proxy.is_terminating() {
        return say(Rule::NothingStaysTerminating, format!("proxy {name} is still being deleted"));
    }
    if is_over(proxy) {
        if runs {
            say(Rule::StatusIsTrue, format!("proxy {name} has ended and its delegate runs"));
        }
        return;
    }
    if proxy.phase() == "Running" {
        if !runs {
            say(Rule::StatusIsTrue, format!("proxy {name} shows Running and nothing runs"));
        }
        return;
    }
    if runs {
        return say(
            Rule::StatusIsTrue,
            format!("proxy {name} shows {} and its delegate runs", proxy.phase()),
        );
    }
    let reason = |object: &Object| {
        let conditions = object.value["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|condition| {
            condition["status"] == "False"
                && matches!(
                    condition["type"].as_str(),
                    Some("PodScheduled" | "DelegateScheduled" | "DelegateCreated")
                )
                && condition["message"].as_str().is_some_and(|message| !message.is_empty())
        })
    };
    if !reason(proxy) {
        let place = if proxy.node().is_empty() { "no node".to_owned() } else { proxy.node().to_owned() };
        let chaperon = chaperon.map(|chaperon| chaperon.value.to_string()).unwrap_or_default();
        say(
            Rule::EveryWaitHasAReason,
            format!("proxy {name} ({place}) waits and says nothing; {} {chaperon}", proxy.value["status"]),
        );
    }
}
