//! What is known of one target: whether it answers, and what it refuses.

mod room;
mod silence;
#[cfg(test)]
mod tests;

use super::model::{Id, Refusal, Scope, Summary, TargetSeen};
use scheduling::ResourceList;
pub(crate) use silence::{Errand, HEDGE};
use silence::{Pace, RAMP_FIRST, Vigil};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Where no room is shown, so many of one class may wait at a time.
pub(crate) const PROBES: usize = 8;
/// A refusal closes the target for its class at least so long, also if nobody of the class waits there to
/// learn when that changes.
pub(crate) const CLOSED: Duration = Duration::from_secs(30);
/// So long after a failure of the watch nothing is asked. What is asked then shows whether the target is back.
const FAILING: Duration = Duration::from_secs(5);
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_secs(60);

/// What a failed call keeps us from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Barrier {
    Target,
    Namespace(Arc<str>),
    Class(Id),
}

impl Barrier {
    pub(crate) fn new(scope: Scope, namespace: &Arc<str>, class: &Id) -> Self {
        match scope {
            Scope::Target => Barrier::Target,
            Scope::Namespace => Barrier::Namespace(Arc::clone(namespace)),
            Scope::Class => Barrier::Class(Arc::clone(class)),
        }
    }
}

#[derive(Debug)]
struct Trouble {
    message: String,
    until: Duration,
    delay: Duration,
}

/// What one of our asks takes of a target, until the summary shows it.
#[derive(Debug)]
struct Load {
    request: ResourceList,
}

/// One target.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) seen: TargetSeen,
    /// Its PodChaperons have been listed.
    pub(crate) synced: bool,
    /// Why its watch failed when last heard of, and until when it is taken to fail still.
    failing: Option<(String, Duration)>,
    pub(crate) summary: Option<Summary>,
    /// Classes that it refused since its summary last changed, with its words and when it said them.
    closed: BTreeMap<Id, (Refusal, Duration)>,
    /// Pods with a call that failed there and is due again when the target is back.
    pub(crate) debts: BTreeSet<Id>,
    /// While it is silent, when it may be asked in passing.
    probe_at: Duration,
    /// Asks on their way there: the API server is to answer.
    calls: Vigil,
    /// Asks that are there: the candidate scheduler is to answer.
    answers: Vigil,
    /// How busy its API server is.
    pace: Pace,
    /// Judgement of silence was put off, since we came too late for it.
    deferred: bool,
    /// PodChaperons by class that are neither reserved nor elected.
    held: BTreeMap<Id, usize>,
    pub(crate) silent: bool,
    /// Enough of a crowd has gone.
    relieved: bool,
    ramp: usize,
    /// When silence is judged next.
    pub(crate) listens_at: Option<Duration>,
    troubles: BTreeMap<Barrier, Trouble>,
    loads: BTreeMap<Id, Load>,
    answered: VecDeque<(Duration, Id)>,
    used: ResourceList,
}

impl Target {
    pub(crate) fn new(seen: TargetSeen) -> Self {
        Self {
            seen,
            synced: false,
            failing: None,
            summary: None,
            closed: BTreeMap::new(),
            debts: BTreeSet::new(),
            probe_at: Duration::ZERO,
            calls: Vigil::default(),
            answers: Vigil::default(),
            pace: Pace::default(),
            deferred: false,
            held: BTreeMap::new(),
            silent: false,
            relieved: false,
            ramp: RAMP_FIRST,
            listens_at: None,
            troubles: BTreeMap::new(),
            loads: BTreeMap::new(),
            answered: VecDeque::new(),
            used: ResourceList::new(),
        }
    }

    /// Whether pods of a namespace may go there.
    pub(crate) fn serves(&self, namespace: &str) -> bool {
        self.seen.namespace.is_empty() || self.seen.namespace == namespace
    }

    /// Whether what we know of it is what it is: only then is it elected.
    pub(crate) fn is_fresh(&self) -> bool {
        self.seen.unusable.is_none() && self.synced && self.failing.is_none() && !self.silent
    }

    /// Whether it may be asked to renew its word: it need not have proved itself since its watch failed.
    pub(crate) fn is_callable(&self, now: Duration) -> bool {
        self.fault(now).is_none() && !self.silent
    }

    /// Why nothing can be asked there, whatever the pod.
    pub(crate) fn fault(&self, now: Duration) -> Option<String> {
        if let Some(reason) = &self.seen.unusable {
            return Some(reason.clone());
        }
        if let Some(reason) = self.failing(now) {
            return Some(reason.to_owned());
        }
        (!self.synced).then(|| "the target has not been read yet".to_owned())
    }

    /// Its watch fails. A watch that works again may say nothing for long, and one that does not may be tried
    /// again only after long: from the time that this returns, a call finds out.
    pub(crate) fn watch_failed(&mut self, reason: String, now: Duration) -> Duration {
        let until = now + FAILING;
        self.failing = Some((reason, until));
        until
    }

    /// Its watch works, or a call does. Says whether the watch failed before.
    pub(crate) fn watch_works(&mut self) -> bool {
        self.failing.take().is_some()
    }

    fn failing(&self, now: Duration) -> Option<&str> {
        self.failing.as_ref().filter(|(_, until)| *until > now).map(|(reason, _)| reason.as_str())
    }

    // Refusals and failures.

    /// The target refused one of a class.
    pub(crate) fn close(&mut self, class: &Id, reason: Refusal, now: Duration) {
        self.closed.insert(Arc::clone(class), (reason, now));
    }

    /// The target has reserved for one of a class. Says whether it was closed for it.
    pub(crate) fn open(&mut self, class: &Id) -> bool {
        self.closed.remove(class).is_some()
    }

    /// What the target offers has changed: every class may be asked for again.
    pub(crate) fn open_all(&mut self) {
        self.closed.clear();
    }

    /// Why no more of a class are asked for.
    pub(crate) fn closed(&self, class: &Id, now: Duration) -> Option<&str> {
        let (reason, since) = self.closed.get(class)?;
        (*since + CLOSED > now || self.held(class) > 0).then_some(reason.message.as_str())
    }

    /// Whether pods of lower priority could make way for one of a class.
    pub(crate) fn preempts(&self, class: &Id) -> bool {
        self.closed.get(class).is_some_and(|(reason, _)| reason.preempts)
    }

    pub(crate) fn hold(&mut self, class: &Id) {
        *self.held.entry(Arc::clone(class)).or_default() += 1;
    }

    /// Says whether others of the class may have waited for that.
    pub(crate) fn release(&mut self, class: &Id) -> bool {
        let Some(count) = self.held.get_mut(class) else { return false };
        let before = *count;
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.held.remove(class);
        }
        before == PROBES || (before == 1 && self.closed.contains_key(class))
    }

    pub(crate) fn held(&self, class: &Id) -> usize {
        self.held.get(class).copied().unwrap_or_default()
    }

    /// A call failed: says until when nothing of its kind is tried.
    pub(crate) fn fail(&mut self, barrier: Barrier, message: String, now: Duration) -> Duration {
        // What nobody has tried for so long, nobody wants.
        self.troubles.retain(|_, trouble| trouble.until + RETRY_LAST > now);
        let trouble = self.troubles.entry(barrier).or_insert_with(|| Trouble {
            message: String::new(),
            until: now,
            delay: RETRY_FIRST,
        });
        trouble.message = message;
        // Many calls of one moment fail together; they are one failure.
        if trouble.until <= now {
            trouble.until = now + trouble.delay;
            trouble.delay = (trouble.delay * 2).min(RETRY_LAST);
        }
        trouble.until
    }

    /// A call succeeded.
    pub(crate) fn recover(&mut self, namespace: &Arc<str>, class: &Id) -> bool {
        if self.troubles.is_empty() {
            return false;
        }
        let before = self.troubles.len();
        self.troubles.remove(&Barrier::Target);
        self.troubles.remove(&Barrier::Namespace(Arc::clone(namespace)));
        self.troubles.remove(&Barrier::Class(Arc::clone(class)));
        self.troubles.len() != before
    }

    fn barriers(namespace: &Arc<str>, class: &Id) -> [Barrier; 3] {
        [Barrier::Target, Barrier::Namespace(Arc::clone(namespace)), Barrier::Class(Arc::clone(class))]
    }

    /// The reason why a call for such a pod is not tried now.
    pub(crate) fn trouble(&self, namespace: &Arc<str>, class: &Id) -> Option<&str> {
        if self.troubles.is_empty() {
            return None;
        }
        let barriers = Self::barriers(namespace, class);
        barriers.iter().find_map(|barrier| self.troubles.get(barrier)).map(|trouble| trouble.message.as_str())
    }

    /// Whether a call for such a pod may be tried now. After a failure one is tried, and its end decides.
    pub(crate) fn may_try(&self, namespace: &Arc<str>, class: &Id, now: Duration) -> bool {
        self.troubles.is_empty()
            || Self::barriers(namespace, class)
                .iter()
                .filter_map(|barrier| self.troubles.get(barrier))
                .all(|trouble| trouble.until <= now)
    }

    /// A call is tried although earlier ones failed: others wait for its end.
    pub(crate) fn tried(&mut self, namespace: &Arc<str>, class: &Id, now: Duration) -> Option<Duration> {
        if self.troubles.is_empty() {
            return None;
        }
        let barriers = Self::barriers(namespace, class);
        let mut last = None;
        for barrier in barriers {
            if let Some(trouble) = self.troubles.get_mut(&barrier) {
                trouble.until = now + trouble.delay;
                trouble.delay = (trouble.delay * 2).min(RETRY_LAST);
                last = last.max(Some(trouble.until));
            }
        }
        last
    }
}
