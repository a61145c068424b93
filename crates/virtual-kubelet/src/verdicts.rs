//! Conditions of targets.

use crate::capacity;
use crate::facts::{Facts, Link, Reach, Summary};
use api::conditions::{Kind, Reason, Verdict, is_true};
use api::keys::{self, PROTOCOL_VERSION};
use runtime::TargetKey;
use std::collections::BTreeMap;

/// What is said about one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) accepted: Verdict,
    pub(crate) reachable: Verdict,
    pub(crate) ready: Verdict,
    /// The target's identity; once known it never changes.
    pub(crate) cluster_uid: Option<String>,
}

impl Judgement {
    pub(crate) fn is_accepted(&self) -> bool {
        self.accepted.status == Some(true)
    }
}

fn verdict(kind: Kind, status: Option<bool>, reason: Reason, message: impl Into<String>) -> Verdict {
    Verdict { kind, status, reason, message: message.into() }
}

/// Judges all targets together: of two for one cluster only the older counts.
pub(crate) fn judge(targets: &[Facts]) -> BTreeMap<TargetKey, Judgement> {
    let mut by_age: Vec<&Facts> = targets.iter().collect();
    by_age.sort_by(|a, b| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
    let mut holders: Vec<&Facts> = Vec::new();
    let mut judgements = BTreeMap::new();
    for (at, target) in by_age.iter().copied().enumerate() {
        let older =
            holders.iter().find(|older| overlap(&older.key, &target.key) && same_cluster(older, target));
        let mut accepted = accepted(target, older.copied());
        let is_first = accepted.status == Some(true) && target.status.cluster_uid.is_none();
        if is_first
            && by_age.iter().take(at).any(|older| overlap(&older.key, &target.key) && is_unknown(older))
        {
            accepted = verdict(Kind::Accepted, None, Reason::Pending, "an older target was not asked yet");
        }
        let reachable = reachable(target);
        let ready = ready(target, &accepted, &reachable);
        let cluster_uid = match (&target.status.cluster_uid, accepted.status) {
            (Some(known), _) => Some(known.clone()),
            (None, Some(true)) => seen(target).and_then(|summary| summary.cluster_uid.clone()),
            (None, _) => None,
        };
        // One that is broken for now still stands for its cluster.
        if accepted.reason != Reason::SameCluster && identity(target).is_some() {
            holders.push(target);
        }
        judgements.insert(target.key.clone(), Judgement { accepted, reachable, ready, cluster_uid });
    }
    judgements
}

fn seen(target: &Facts) -> Option<&Summary> {
    target.health.summary.as_deref()
}

fn identity(target: &Facts) -> Option<&str> {
    target.status.cluster_uid.as_deref().or_else(|| seen(target)?.cluster_uid.as_deref())
}

/// Another replica is about to ask it for the first time: it may stand for any cluster.
fn is_unknown(target: &Facts) -> bool {
    target.is_others && !target.deleting && identity(target).is_none() && target.status.conditions.is_empty()
}

fn same_cluster(a: &Facts, b: &Facts) -> bool {
    identity(a).is_some() && identity(a) == identity(b)
}

fn overlap(a: &TargetKey, b: &TargetKey) -> bool {
    a.namespace.is_empty() || b.namespace.is_empty() || a.namespace == b.namespace
}

fn accepted(target: &Facts, older: Option<&Facts>) -> Verdict {
    let no = |reason, message: String| verdict(Kind::Accepted, Some(false), reason, message);
    if let Link::Broken { reason, message } = &target.link {
        return no(*reason, message.clone());
    }
    if let Some(Err(error)) = target.excluded.as_deref().map(regex::Regex::new) {
        return no(Reason::SpecInvalid, format!("excludedLabelsRegexp: {error}"));
    }
    if let Some(message) = capacity::fault(&target.capacity) {
        return no(Reason::SpecInvalid, message);
    }
    let summary = match seen(target) {
        Some(summary) => summary,
        // Silence takes back nothing.
        None if is_true(&target.status.conditions, Kind::Accepted) && older.is_none() => {
            return verdict(Kind::Accepted, Some(true), Reason::Ok, "");
        }
        None => return unidentified(target, older),
    };
    let known = target.status.cluster_uid.as_deref();
    match (known, summary.cluster_uid.as_deref()) {
        (Some(known), Some(other)) if known != other => no(
            Reason::IdentityChanged,
            format!(
                "cluster {other} answers, but this target stands for cluster {known}; point the kubeconfig at \
                 the former cluster, or delete the target and create it again"
            ),
        ),
        (_, _) if summary.protocol.as_deref().is_none_or(|protocol| !speaks(protocol)) => no(
            Reason::OldProtocol,
            "the target cluster runs a release that does not speak this protocol; upgrade it".to_owned(),
        ),
        (None, None) => no(
            Reason::IdentityUnknown,
            "the target's ClusterSummary does not say the cluster's UID; is its candidate-scheduler running?"
                .to_owned(),
        ),
        (_, _) => match older {
            Some(older) => duplicate(older),
            None => verdict(Kind::Accepted, Some(true), Reason::Ok, ""),
        },
    }
}

fn duplicate(older: &Facts) -> Verdict {
    let kind = if older.key.namespace.is_empty() { "ClusterTarget" } else { "Target" };
    let message =
        format!("{kind} {} is older and stands for the same cluster; delete one of the two", older.key);
    verdict(Kind::Accepted, Some(false), Reason::SameCluster, message)
}

fn unidentified(target: &Facts, older: Option<&Facts>) -> Verdict {
    if let Some(older) = older {
        return duplicate(older);
    }
    let message = match &target.health.reach {
        Reach::Unknown => return verdict(Kind::Accepted, None, Reason::Pending, "the target was not asked yet"),
        Reach::Yes => {
            "the target has no ClusterSummary `singleton`; install multicluster-scheduler there in the role of a target"
                .to_owned()
        }
        Reach::No { message, .. } => format!("the target's identity cannot be read: {message}"),
    };
    verdict(Kind::Accepted, Some(false), Reason::IdentityUnknown, message)
}

/// One version of skew works in both directions.
fn speaks(protocol: &str) -> bool {
    let own: u32 = PROTOCOL_VERSION.parse().unwrap_or_default();
    protocol.parse::<u32>().is_ok_and(|other| other.abs_diff(own) <= 1)
}

fn reachable(target: &Facts) -> Verdict {
    let say = |status, reason, message: &str| verdict(Kind::Reachable, status, reason, message);
    match (&target.link, &target.health.reach) {
        (Link::Broken { reason, message }, _) => say(Some(false), *reason, message),
        (Link::Up, Reach::Yes) => say(Some(true), Reason::Ok, ""),
        (Link::Up, Reach::No { reason, message }) => say(Some(false), *reason, message),
        (Link::Pending, _) | (Link::Up, Reach::Unknown) => {
            say(None, Reason::Pending, "the target was not asked yet")
        }
    }
}

fn ready(target: &Facts, accepted: &Verdict, reachable: &Verdict) -> Verdict {
    if target.deleting {
        return verdict(Kind::Ready, Some(false), Reason::Deleting, deleting(target, [accepted, reachable]));
    }
    if target.is_fenced && accepted.status == Some(true) {
        return verdict(Kind::Ready, Some(false), Reason::Fenced, fenced(reachable));
    }
    let first = [accepted, reachable].into_iter().find(|verdict| verdict.status != Some(true));
    match first {
        Some(cause) => Verdict { kind: Kind::Ready, ..cause.clone() },
        None if target.health.no_summary => verdict(
            Kind::Ready,
            Some(false),
            Reason::IdentityUnknown,
            "the target's ClusterSummary is gone; is multicluster-scheduler still installed there?",
        ),
        None => verdict(Kind::Ready, Some(true), Reason::Ok, ""),
    }
}

fn deleting(target: &Facts, verdicts: [&Verdict; 2]) -> String {
    let waits = "the Target goes when its pods are confirmed gone in the target cluster".to_owned();
    let can_be_asked = verdicts.iter().all(|verdict| verdict.status == Some(true));
    let uid = target.status.cluster_uid.as_deref().filter(|_| !can_be_asked);
    let Some(uid) = uid else { return waits };
    format!(
        "{waits}, which cannot be asked now; if it never can, annotate the Target with {}={uid} (its machines are off) or \
         {}={uid} (nobody knows), and an event lists what may be left there",
        keys::FENCED,
        keys::FORCE_REMOVAL
    )
}

fn fenced(reachable: &Verdict) -> String {
    let fence = keys::FENCED;
    if reachable.status == Some(true) {
        return format!("the target is fenced but answers; remove annotation {fence} to use it again");
    }
    format!(
        "the target is fenced: its machines are said to be off; remove annotation {fence} when it is back"
    )
}
