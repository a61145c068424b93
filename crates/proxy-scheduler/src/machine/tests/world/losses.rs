//! Calls without an answer.

use super::failure;
use crate::machine::{Action, Event, Live, Outcome};
use std::sync::Arc;
use std::time::Duration;

/// What a call reports that got no answer, and whose live read got none either.
pub(super) fn unanswered(call: &Action) -> Option<Event> {
    let unknown = || "no answer".to_owned();
    let (pod, outcome) = match call {
        Action::Create { target, pod, .. } => {
            (pod, Outcome::Created { target: Arc::clone(target), sent: None, result: Err(failure()) })
        }
        Action::Renew { chaperon, .. } => {
            let target = Arc::clone(&chaperon.target);
            (
                &chaperon.parent,
                Outcome::Renewed { target, sent: Duration::ZERO, result: Err(Live::Unknown(unknown())) },
            )
        }
        Action::Bind { pod, .. } => (&pod.uid, Outcome::Bound(Err(Live::Unknown(unknown())))),
        Action::Grant { pod, .. } => (&pod.uid, Outcome::Granted(Err(Live::Unknown(unknown())))),
        Action::Allow { chaperon, .. } | Action::Revoke { chaperon, .. } => {
            let target = Arc::clone(&chaperon.target);
            (&chaperon.parent, Outcome::Allowed { target, result: Err(Live::Unknown(unknown())) })
        }
        Action::Delete { chaperon } => {
            let (target, uid) = (Arc::clone(&chaperon.target), Arc::clone(&chaperon.uid));
            (&chaperon.parent, Outcome::Deleted { target, uid, result: Err(failure()) })
        }
        Action::Explain { pod, .. } => (&pod.uid, Outcome::Explained(Err(failure()))),
        Action::Reread { pod } => (&pod.uid, Outcome::Reread(Live::Unknown(unknown()))),
        Action::Forgo { .. } | Action::Scheduled { .. } => return None,
    };
    Some(Event::Finished { pod: Arc::clone(pod), outcome })
}
