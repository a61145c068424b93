//! Refusals: said once for each ask, and in other words not too often.

use std::sync::Arc;

use crate::observe::Name;
use crate::plan::chaperons::{Said, Stand};
use crate::plan::{Action, Model, Outcome};

/// How long other words for a refusal of the same ask wait.
pub(super) const REWORD_MS: u64 = 5000;

/// What ends a refusal of what others could make way for.
pub(super) const WOULD_PREEMPT: &str = " Pods of lower priority could make way.";

impl Model {
    /// Says why a chaperon cannot be scheduled, unless that was said already in answer to the same ask. Other words
    /// for the same ask wait a little, since they may change with every pod that comes or goes.
    pub(super) fn refuse(&mut self, name: &Name, message: &str, now: u64) {
        let Some(chaperon) = self.chaperons.get_mut(name) else { return };
        let attempt = chaperon.seen.attempt;
        let standing = chaperon.seen.refusal.as_ref();
        let due = match &chaperon.refused {
            Some(said) if said.attempt == attempt && said.message == message => None,
            Some(said) if said.attempt == attempt => Some(said.at + REWORD_MS),
            // Before a restart it may have been said to the first ask; later asks are always answered.
            None if attempt <= 1 && standing.is_some_and(|refusal| refusal.message == message) => None,
            Some(_) | None => Some(0),
        };
        chaperon.next_refusal = None;
        let Some(due) = due else { return };
        if chaperon.refusing || due > now {
            chaperon.next_refusal = Some(message.to_owned());
            self.rewordings.insert((due, name.clone()));
            return;
        }
        let since = standing.and_then(|refusal| refusal.since.clone());
        chaperon.refused = Some(Said { attempt, message: message.to_owned(), at: now });
        chaperon.refusing = true;
        self.actions.push(Action::Refuse {
            preempts: message.ends_with(WOULD_PREEMPT),
            chaperon: name.clone(),
            uid: Arc::clone(&chaperon.seen.uid),
            version: Arc::clone(&chaperon.seen.version),
            message: message.to_owned(),
            since,
        });
    }

    /// Says what has waited to be said, where it is still true.
    pub(super) fn reword(&mut self, now: u64) {
        while let Some((due, name)) = self.rewordings.first().cloned() {
            if due > now {
                break;
            }
            self.rewordings.pop_first();
            let Some(chaperon) = self.chaperons.get_mut(&name).filter(|chaperon| !chaperon.refusing) else {
                continue;
            };
            let next = chaperon.next_refusal.take();
            let waits =
                matches!(self.chaperons.get(&name).map(|chaperon| self.stand(chaperon)), Some(Stand::Asked));
            if let (Some(message), true) = (next, waits) {
                self.refuse(&name, &message, now);
            }
        }
    }

    pub(super) fn refuse_ended(&mut self, name: &Name, uid: &str, outcome: &Outcome, now: u64) {
        let Some(chaperon) = self.chaperons.get_mut(name).filter(|chaperon| chaperon.is(uid)) else { return };
        chaperon.refusing = false;
        match outcome {
            Outcome::Done { version } => chaperon.written(version.as_ref()),
            Outcome::Admitted(_)
            | Outcome::Unknown
            | Outcome::Conflict
            | Outcome::NotFound
            | Outcome::Denied(_) => chaperon.refused = None,
        }
        if chaperon.next_refusal.is_some() {
            self.rewordings.insert((now, name.clone()));
        }
    }
}
