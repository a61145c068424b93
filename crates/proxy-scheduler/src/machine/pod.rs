//! What is known of one proxy pod and of the PodChaperons that ask for it.

use super::grant::is_granted;
use super::model::{ChaperonSeen, Election, Grant, Hold, Id, Place, PodRef, PodSeen, Refusal, Wish};
use super::target::Errand;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What must be left of a promise when its pod is bound.
const MARGIN: Duration = Duration::from_secs(5);

/// After so long an ask that was given up and never shown by the watch is taken to have vanished unseen; asking
/// again finds out.
pub(crate) const DOUBT: Duration = Duration::from_secs(30);

/// The call on a PodChaperon that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskCall {
    Create,
    /// A create that is not wanted any more, but may have left.
    Forgo,
    Renew,
    Allow,
    Delete,
}

/// What a target has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There is no PodChaperon, and none is being made.
    None,
    /// Asked, and no answer to the current attempt.
    Waiting,
    Reserved,
    /// There was a promise, and it is no more.
    Lapsed,
    Refused,
    /// Allowed without a reservation.
    Granted,
}

/// Whether an ask counts as use of the target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Load {
    #[default]
    No,
    Open,
    /// The target has reserved it, and its summaries will show it.
    Answered,
}

/// One pod in one target.
#[derive(Debug, Default)]
pub(crate) struct Ask {
    pub(crate) chaperon: Option<ChaperonSeen>,
    pub(crate) call: Option<AskCall>,
    /// Number of the last ask that we made or saw.
    pub(crate) attempt: u64,
    /// When that ask left us; unknown for one of an earlier process.
    pub(crate) sent: Option<Duration>,
    /// What it waits for and since when, while it does and is not given up.
    pub(crate) waits: Option<(Errand, Duration)>,
    /// Since when others are asked because the target says nothing.
    pub(crate) given_up: Option<Duration>,
    /// The class for which the target counts it as held.
    pub(crate) held: Option<Id>,
    /// Whether it is part of what we take the target to be used for.
    pub(crate) load: Load,
    /// A promise for the current attempt has been seen.
    promised: bool,
    /// The refusal that stood there before the current attempt: it answers an earlier one.
    stale: Option<Refusal>,
    /// The watch has shown the PodChaperon; until then a list may be older than it.
    pub(crate) echoed: bool,
    /// UID of the last PodChaperon that was seen to vanish.
    pub(crate) gone: Option<Id>,
    pub(crate) retry_at: Option<Duration>,
    failures: u32,
}

impl Ask {
    pub(crate) fn answer(&self) -> Answer {
        let Some(chaperon) = &self.chaperon else {
            return if self.call == Some(AskCall::Create) { Answer::Waiting } else { Answer::None };
        };
        if matches!(self.call, Some(AskCall::Delete | AskCall::Forgo)) || chaperon.terminating {
            return Answer::None;
        }
        if chaperon.grant {
            return Answer::Granted;
        }
        match chaperon.promise {
            Some(promise) if promise.attempt == self.attempt => Answer::Reserved,
            _ if self.call == Some(AskCall::Renew) => Answer::Waiting,
            _ if self.promised
                || (chaperon.promise.is_none()
                    && self.attempt > 0
                    && chaperon.reserved_attempt == self.attempt) =>
            {
                Answer::Lapsed
            }
            _ if chaperon.refused.is_some() && chaperon.refused != self.stale => Answer::Refused,
            _ => Answer::Waiting,
        }
    }

    /// What a list shows is the truth even if something newer is known: a restored etcd has old versions. Should the
    /// list be older than an answer to us, the watch shows that in a moment.
    pub(crate) fn listed(&mut self, seen: &ChaperonSeen) {
        if let Some(known) = self.chaperon.as_mut().filter(|known| known.uid == seen.uid) {
            known.version.clone_from(&seen.version);
        }
    }

    /// Takes over what was seen. Says whether the target has spoken: an echo of our own writes is no answer.
    pub(crate) fn absorb(&mut self, seen: ChaperonSeen) -> bool {
        if self.gone.as_ref() == Some(&seen.uid) {
            return false;
        }
        let spoken = match &self.chaperon {
            Some(old) if old.uid == seen.uid => {
                if is_older(&seen.version, &old.version) {
                    return false;
                }
                old.promise != seen.promise || old.refused != seen.refused
            }
            _ => {
                self.promised = false;
                self.echoed = false;
                self.stale = None;
                seen.promise.is_some() || seen.refused.is_some()
            }
        };
        if seen.attempt > self.attempt {
            self.attempt = seen.attempt;
            self.sent = None;
            self.promised = false;
        }
        if seen.promise.is_some_and(|promise| promise.attempt == self.attempt) {
            self.promised = true;
        }
        self.chaperon = Some(seen);
        spoken
    }

    /// The attempt with this number was sent.
    pub(crate) fn asked(&mut self, attempt: u64, sent: Duration) {
        if attempt >= self.attempt {
            self.attempt = attempt;
            self.sent = Some(sent);
        }
    }

    /// A new attempt begins.
    pub(crate) fn renew(&mut self) -> u64 {
        self.attempt += 1;
        self.sent = None;
        self.promised = false;
        self.stale = self.chaperon.as_ref().and_then(|chaperon| chaperon.refused.clone());
        self.call = Some(AskCall::Renew);
        self.attempt
    }

    /// The renewal did not arrive, or nobody knows: the next one has a higher number still.
    pub(crate) fn not_renewed(&mut self) {
        // What is doubted is asked again only when its time comes.
        self.promised = self.echoed || self.given_up.is_none();
    }

    /// The PodChaperon is found to be no more.
    pub(crate) fn vanished(&mut self) {
        self.gone = self.chaperon.take().map(|chaperon| chaperon.uid);
    }

    /// Whether it may be no more although nothing said so.
    pub(crate) fn is_doubted(&self, now: Duration) -> bool {
        self.chaperon.is_some() && !self.echoed && self.given_up.is_some_and(|since| since + DOUBT <= now)
    }

    /// Whether enough of the promise is left to bind on it, by our own clock.
    pub(crate) fn has_margin(&self, now: Duration) -> bool {
        self.margin_ends().is_some_and(|end| now <= end)
    }

    /// After when the promise is too short to bind on it; `None` where nobody knows, or there is none.
    pub(crate) fn margin_ends(&self) -> Option<Duration> {
        let promise = self.chaperon.as_ref()?.promise?;
        Some(self.sent? + promise.lasts - MARGIN.min(promise.lasts / 2))
    }

    /// A call failed that is worth another try; says when.
    pub(crate) fn failed(&mut self, now: Duration) -> Duration {
        let at = now + backoff(self.failures);
        self.failures += 1;
        self.retry_at = Some(at);
        at
    }

    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.retry_at = None;
    }

    /// Something is still to be done about it, once its pod is bound.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.chaperon.as_ref().is_some_and(|chaperon| !chaperon.allowed && !chaperon.terminating)
    }

    /// Nothing is known, nothing is under way.
    pub(crate) fn is_over(&self) -> bool {
        self.chaperon.is_none() && self.call.is_none()
    }
}

/// 100 ms, doubled with each failure, at most 10 s.
pub(crate) fn backoff(failures: u32) -> Duration {
    Duration::from_millis(100 << failures.min(7)).min(Duration::from_secs(10))
}

/// Versions of one object are numbers that grow; should they ever not be, what comes last counts.
pub(crate) fn is_older(seen: &str, known: &str) -> bool {
    match (seen.parse::<u64>(), known.parse::<u64>()) {
        (Ok(seen), Ok(known)) => seen < known,
        _ => false,
    }
}

/// The call on a proxy pod that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodCall {
    Bind {
        node: Id,
        election: Election,
    },
    /// `None`: the grant is taken back.
    Grant(Option<Grant>),
    Explain(String),
    Reread,
}

/// Why a pod has no node yet; a label of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waits {
    /// Scheduling gates.
    Gated,
    /// It needs what there is not.
    Held,
    /// Targets have been asked.
    Asking,
    /// One target may go beyond what it has free.
    Granted,
    /// Nobody takes it.
    Unschedulable,
}

/// One proxy pod.
#[derive(Debug)]
pub(crate) struct PodState {
    pub(crate) seen: PodSeen,
    /// Order of arrival.
    pub(crate) number: u64,
    pub(crate) asks: BTreeMap<Id, Ask>,
    /// Targets in which it is counted for its group.
    pub(crate) shared: Vec<Id>,
    pub(crate) call: Option<PodCall>,
    /// The pod is no more; what asks for it goes as well.
    pub(crate) gone: bool,
    /// The node of the last binding, if nobody knows how it ended.
    pub(crate) unclear: Option<Id>,
    pub(crate) since: Duration,
    /// What the user was told last.
    pub(crate) told: Option<String>,
    /// When the user may be told something else.
    pub(crate) tell_after: Duration,
    pub(crate) retry_at: Option<Duration>,
    pub(crate) failures: u32,
    pub(crate) waits: Option<Waits>,
    /// Since when it has fitted nowhere.
    pub(crate) nowhere_since: Option<Duration>,
    /// Since when a target has been granted, or has been seen not to start the delegate of the bound pod.
    pub(crate) granted_since: Option<Duration>,
    /// Targets that were granted and revoked, while others have not had their turn.
    pub(crate) tried: BTreeSet<Id>,
}

impl PodState {
    pub(crate) fn new(seen: PodSeen, number: u64, now: Duration) -> Self {
        let told = seen.shown.clone();
        Self {
            seen,
            number,
            asks: BTreeMap::new(),
            shared: Vec::new(),
            call: None,
            gone: false,
            unclear: None,
            since: now,
            told,
            tell_after: Duration::ZERO,
            retry_at: None,
            failures: 0,
            waits: None,
            nowhere_since: None,
            granted_since: None,
            tried: BTreeSet::new(),
        }
    }

    /// Takes over what was seen, unless something newer is known.
    pub(crate) fn absorb(&mut self, seen: PodSeen, now: Duration) {
        if is_older(&seen.version, &self.seen.version) {
            return;
        }
        let was_held = self.wish().is_some_and(|wish| wish.hold != Hold::No);
        let bound = matches!(self.seen.place, Place::Bound { .. });
        let place = match (&seen.place, bound) {
            // A binding is for ever; this is an event from before it.
            (Place::Unbound(_), true) => self.seen.place.clone(),
            _ => seen.place.clone(),
        };
        if seen.shown.is_some() {
            self.told.clone_from(&seen.shown);
        }
        self.seen = PodSeen { place, ..seen };
        if was_held && self.wish().is_some_and(|wish| wish.hold == Hold::No) {
            self.since = now;
        }
    }

    pub(crate) fn wish(&self) -> Option<&Arc<Wish>> {
        match &self.seen.place {
            Place::Unbound(wish) => Some(wish),
            Place::Bound { .. } => None,
        }
    }

    /// The virtual node on which it counts for the constraints of others: it is bound there, or may be.
    pub(crate) fn counts_on(&self) -> Option<&Id> {
        if self.gone || self.seen.finished {
            return None;
        }
        match (&self.seen.place, &self.call) {
            (Place::Bound { node, .. }, _) | (Place::Unbound(_), Some(PodCall::Bind { node, .. })) => {
                Some(node)
            }
            (Place::Unbound(wish), _) => self.unclear.as_ref().or_else(|| {
                let grant = wish.grant.as_ref()?;
                self.asks.iter().find(|(_, ask)| is_granted(ask, grant)).map(|(id, _)| id)
            }),
        }
    }

    pub(crate) fn reference(&self) -> PodRef {
        PodRef {
            uid: Arc::clone(&self.seen.uid),
            name: self.seen.name.clone(),
            version: self.seen.version.clone(),
        }
    }

    /// Our own write gave the pod a new version.
    pub(crate) fn seen_version(&mut self, version: String) {
        if !is_older(&version, &self.seen.version) {
            self.seen.version = version;
        }
    }

    /// A call on the pod failed; says when to go on.
    pub(crate) fn failed(&mut self, now: Duration) -> Duration {
        let at = now + backoff(self.failures);
        self.failures += 1;
        self.retry_at = Some(at);
        at
    }
}
