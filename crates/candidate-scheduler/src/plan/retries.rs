//! Calls that have to be made again, as far as they still make sense then.

use std::sync::Arc;

use crate::plan::chaperons::Stand;
use crate::plan::{Action, Model, Outcome};

impl Model {
    /// Repeats a call at a time, since it may not have been done.
    pub(super) fn repeat_later(&mut self, action: Action, at: u64) {
        self.retry_ticket += 1;
        self.retries.insert((at, self.retry_ticket), action);
    }

    /// Repeats the calls that are due.
    pub(super) fn repeat(&mut self, now: u64) {
        while let Some(entry) = self.retries.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let action = entry.remove();
            let action = self.still_true(action, now);
            self.actions.extend(action);
        }
    }

    /// The same call about the state that is known by now. None if it is a refusal that is no longer true: what was
    /// reserved or placed meanwhile must not be called unschedulable.
    fn still_true(&mut self, mut action: Action, now: u64) -> Option<Action> {
        match &mut action {
            Action::Refuse { chaperon: name, uid, version, .. } => {
                let chaperon = self.chaperons.get(name).filter(|chaperon| chaperon.is(uid))?;
                if chaperon.writing.is_some() || !matches!(self.stand(chaperon), Stand::Asked) {
                    self.refuse_ended(name, uid, &Outcome::NotFound, now);
                    return None;
                }
                *version = Arc::clone(&chaperon.seen.version);
            }
            Action::RefusePod { pod: name, uid, version, .. } => {
                let pod = self.pods.get(name).filter(|pod| pod.is(uid))?;
                if pod.placed() {
                    self.pod_refusal_ended(name, uid, &Outcome::NotFound);
                    return None;
                }
                *version = pod.version();
            }
            // A pod that does not wait for it any more must not get storage.
            Action::BindStorage { pod: name, .. } => {
                return self.bindings.contains_key(name).then_some(action);
            }
            // Without the pod that needs the room, nobody has to go.
            Action::Disrupt(eviction) | Action::Evict(eviction) => {
                return self.rooms.contains_key(&eviction.preemptor_uid).then_some(action);
            }
            Action::DryRun { .. }
            | Action::Reserve { .. }
            | Action::Release { .. }
            | Action::Bind { .. }
            // Whether devices were given must become known, even if nobody waits for them any more.
            | Action::BindClaim { .. }
            | Action::Deallocate { .. }
            | Action::Unnominate { .. }
            | Action::TellVictim(_)
            | Action::Tell(_)
            | Action::TellAgain { .. }
            | Action::CreateSummary(_)
            | Action::PatchSummary(_) => {}
        }
        Some(action)
    }
}
