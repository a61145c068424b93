//! Why a pod has no node, in words for its owner.

use super::model::{Action, ChaperonSeen, GrantKind, Id};
use super::pod::{Answer, Ask, PodCall, PodState};
use super::target::Target;
use super::{Machine, Timer};
use api::explanation::{self, Reason};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SILENT: &str = "the target does not answer";

impl Machine {
    /// Writes a text to the pod unless it stands there already.
    pub(super) fn tell(&mut self, uid: &Id, message: String, now: Duration) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if pod.told.as_ref() == Some(&message) {
            return;
        }
        if pod.tell_after > now {
            let at = pod.tell_after;
            return self.arm(at, Timer::Pod(Arc::clone(uid)));
        }
        pod.call = Some(PodCall::Explain(message.clone()));
        let first = pod.told.is_none();
        let pod = pod.reference();
        self.actions.push(Action::Explain { pod, message, first });
    }

    /// One reason for each target that serves the pod's namespace.
    pub(super) fn explanation(&self, uid: &Id, now: Duration) -> String {
        let Some(pod) = self.pods.get(uid) else { return String::new() };
        let namespace = &pod.seen.name.namespace;
        let verdict = pod.wish().map(|wish| self.ranker.judge(&wish.info)).unwrap_or_default();
        let refused: BTreeMap<&str, &str> =
            verdict.refused.iter().map(|(id, reason)| (&**id, reason.as_str())).collect();
        let mut reasons = Vec::new();
        for (id, target) in self.targets.iter().filter(|(_, target)| target.serves(namespace)) {
            let fit = verdict.fit.iter().any(|(fit, _)| fit == id);
            let reason = match (target.seen.unusable.as_deref(), refused.get(&**id)) {
                (Some(unusable), _) => unusable.to_owned(),
                (None, Some(refused)) => (*refused).to_owned(),
                (None, None) if self.claims_refuse(uid, id).is_some() => {
                    self.claims_refuse(uid, id).unwrap_or_default()
                }
                (None, None) if !fit => "its virtual node does not exist yet".to_owned(),
                (None, None) => reason(pod, id, target, now),
            };
            reasons.push(Reason { node: id.to_string(), text: reason });
        }
        explanation::compose(namespace, &reasons)
    }
}

/// What a target does that is granted.
fn granted(pod: &PodState, chaperon: Option<&ChaperonSeen>) -> String {
    let kind = pod.wish().and_then(|wish| wish.grant.as_ref()).map(|grant| grant.kind);
    let what = match kind {
        Some(GrantKind::Preempt) => "may preempt",
        Some(GrantKind::NoReservation) => "its scheduler places the pod",
        Some(GrantKind::ScaleUp) | None => "may add nodes",
    };
    match chaperon {
        Some(chaperon) if chaperon.revoked => "its turn is over; waiting for its word".to_owned(),
        Some(ChaperonSeen { refused: Some(reason), .. }) => format!("{what}: {}", reason.message),
        Some(_) | None => what.to_owned(),
    }
}

/// Why a target that comes into question does not take the pod.
fn reason(pod: &PodState, id: &Id, target: &Target, now: Duration) -> String {
    let ask = pod.asks.get(id);
    let chaperon = ask.and_then(|ask| ask.chaperon.as_ref());
    match ask.map(Ask::answer) {
        Some(Answer::Refused) => {
            if let Some(reason) = chaperon.and_then(|chaperon| chaperon.refused.as_ref()) {
                return reason.message.clone();
            }
        }
        Some(Answer::Waiting | Answer::Reserved | Answer::Lapsed) => {
            return target.fault(now).unwrap_or_else(|| SILENT.to_owned());
        }
        Some(Answer::Granted) => return granted(pod, chaperon),
        Some(Answer::None) | None => (),
    }
    if let Some(fault) = target.fault(now) {
        return fault;
    }
    if let Some(wish) = pod.wish() {
        if let Some(reason) = target.closed(&wish.class, now) {
            return reason.to_owned();
        }
        if let Some(trouble) = target.trouble(&pod.seen.name.namespace, &wish.class) {
            return trouble.to_owned();
        }
    }
    if target.silent { SILENT.to_owned() } else { "others wait there for room already".to_owned() }
}
