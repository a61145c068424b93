//! From what is known to what is decided on.

use super::{Entry, Evidence, State, Store};
use crate::kinds::{Kind, Object};
use crate::plan::{Facts, Likeness, Observed, Original, Place};
use crate::rules::{Rules, forbidden_type};
use crate::shape::{Way, agrees, metadata};
use crate::views::{Copied, Known, Source};
use api::claims::Whereabouts;
use api::keys;
use runtime::TargetKey;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// What does not change while the service runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) cluster_name: &'a str,
}

impl Store {
    /// All that is known about one object; `None` when it does not matter.
    pub(crate) fn observe(
        &mut self,
        object: &Object,
        evidence: &Evidence,
        setting: Setting<'_>,
    ) -> Option<Observed> {
        let now = Instant::now();
        if !self.is_tracked(object) {
            return None;
        }
        self.note_idle(object, now);
        let linger = self.linger;
        let entry = self.entries.get(object)?;
        let places = self.reach(object, entry);
        let places = places.into_iter().map(|target| {
            let copy = self.copies.get(&target).and_then(|copies| copies.get(object));
            let rest = |since: &Instant| linger.saturating_sub(now.duration_since(*since));
            let block = entry.blocks.get(&target);
            let block = block.map(|block| (block.kind, block.until.saturating_duration_since(now)));
            Place {
                in_step: self.links.get(&target).is_some_and(|link| link.is_in_step(object.kind)),
                used: entry.uses.contains_key(&target) || is_shared(entry),
                linger: entry.idle.get(&target).map_or(linger, rest),
                copy: copy.map(|copy| self.likeness(object, entry, (&target, copy), setting)),
                obstacle: block,
                confirmed: evidence.confirmed.contains(&target),
                looked: evidence.looked.contains(&target),
                astray: self.is_astray(entry, &target),
                target,
            }
        });
        let places = places.collect();
        let original = match &entry.state {
            State::Unread => Original::Unread,
            State::Absent => Original::Absent(evidence.read),
            State::Present(source) => {
                let here = entry.uses.keys().any(|key| self.is_self(key));
                let mut facts = facts(object, entry, (source.as_ref(), here), (setting, now));
                facts.addresses = source.ingress.as_ref().and_then(|ingress| {
                    let copies = self.copies.values().filter_map(|copies| copies.get(object));
                    let all: Vec<_> = copies.flat_map(|copy| copy.addresses.iter().cloned()).collect();
                    ingress.status(&all)
                });
                Original::Present(facts)
            }
        };
        let holds_data = object.kind.holds_data();
        Some(Observed { original, pods_known: self.pods_in_step, holds_data, places })
    }

    /// Whether the data of a claim is elsewhere than in a target.
    fn is_astray(&self, entry: &Entry, target: &TargetKey) -> bool {
        let State::Present(source) = &entry.state else { return false };
        let Some(Whereabouts::Home(home)) = &source.claim else { return false };
        let target = self.targets.get(target);
        target.and_then(|target| target.status.cluster_uid.as_ref()) != Some(home)
    }

    /// A copy that nobody has used as long as we know is idle from now on.
    fn note_idle(&mut self, object: &Object, now: Instant) {
        let entry = self.entries.entry(object.clone()).or_default();
        let copies = self.copies.iter().filter(|(_, copies)| copies.contains_key(object));
        for (at, _) in copies.filter(|_| self.pods_in_step) {
            if !entry.uses.contains_key(at) {
                entry.idle.entry(at.clone()).or_insert(now);
            }
        }
    }

    /// Targets that may have or get a copy.
    fn reach(&self, object: &Object, entry: &Entry) -> BTreeSet<TargetKey> {
        let serving = self.targets.keys().filter(|key| key.serves(&object.namespace));
        let having = self.copies.iter().filter(|(_, copies)| copies.contains_key(object));
        let all = serving.chain(having.map(|(key, _)| key)).chain(entry.uses.keys());
        all.filter(|key| !self.is_self(key)).cloned().collect()
    }

    fn likeness(
        &self,
        object: &Object,
        entry: &Entry,
        (target, copy): (&TargetKey, &Copied),
        setting: Setting<'_>,
    ) -> Likeness {
        if copy.terminating {
            return Likeness::Terminating;
        }
        let (Some((source, known)), Some(link)) = (current(entry), self.links.get(target)) else {
            return Likeness::Unknown;
        };
        let way = Way {
            cluster_name: setting.cluster_name,
            own_uid: &self.own_uid,
            target_uid: &link.cluster_uid,
            virtual_node: &target.virtual_node(),
        };
        let content = &known.content;
        let (labels, annotations) =
            metadata(object, &source.uid, way, (&content.labels, &content.annotations));
        let hash = content.hash_in(&self.view(target));
        if copy.content.kind != content.kind || copy.content.immutable && copy.content.hash != hash {
            return Likeness::Frozen;
        }
        let same = copy.content.hash == hash
            && agrees(&copy.labels, &copy.owned.0, &labels)
            && agrees(&copy.annotations, &copy.owned.1, &annotations);
        if same { Likeness::Same } else { Likeness::Differs }
    }
}

/// The original with its content, if that is known as of now.
fn current(entry: &Entry) -> Option<(&Source, &Known)> {
    let State::Present(source) = &entry.state else { return None };
    let source = source.as_ref();
    let known = entry.known.as_ref().filter(|known| known.version >= source.version)?;
    Some((source, known))
}

/// Whether the user shares a Service with all clusters.
fn is_shared(entry: &Entry) -> bool {
    let State::Present(source) = &entry.state else { return false };
    source.service.as_ref().is_some_and(|service| service.declared_global)
}

fn facts(
    object: &Object,
    entry: &Entry,
    (source, here): (&Source, bool),
    (setting, now): (Setting<'_>, Instant),
) -> Facts {
    let of_type = entry.known.as_ref().and_then(|known| forbidden_type(&known.content.kind));
    Facts {
        deleting: source
            .deleting
            .then(|| entry.deleting_since.map_or(Duration::ZERO, |since| now.duration_since(since))),
        held: source.is_held(),
        legacy: source.is_legacy(),
        forbidden: setting
            .rules
            .forbids(object, source.annotation.as_deref())
            .or(of_type)
            .or(source.claim.as_ref().and_then(stays)),
        told: entry.told,
        content_known: current(entry).is_some(),
        marked: source.ingress.as_ref().is_none_or(|ingress| ingress.is_marked)
            && source.service.as_ref().is_none_or(|service| {
                if entry.uses.is_empty() {
                    service.is_plain || !service.declared_global
                } else {
                    service.is_marked
                }
            }),
        used_here: here && object.kind == Kind::Service,
        addresses: None,
        homeless: matches!(source.claim, Some(Whereabouts::Anywhere)),
    }
}

/// Why a claim has no copy.
fn stays(whereabouts: &Whereabouts) -> Option<&'static str> {
    match whereabouts {
        Whereabouts::Anywhere | Whereabouts::Home(_) => None,
        Whereabouts::TargetsOwn => Some("targets have claims of their own"),
        Whereabouts::Source(_) => Some("its data is in this cluster"),
    }
}

/// Whether labels say that an object is a copy of ours.
pub(crate) fn is_ours(copy: &Copied, own_uid: &str, parent: &str) -> bool {
    let is = |key: &str, value: &str| copy.labels.get(key).is_some_and(|found| found == value);
    is(keys::PARENT_CLUSTER_UID, own_uid)
        || !parent.is_empty()
            && is(keys::PARENT_UID, parent)
            && !copy.labels.contains_key(keys::PARENT_CLUSTER_UID)
}
