use std::collections::VecDeque;
use std::sync::Arc;

/// Which nodes changed, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    /// How many changes there were before the first that is still known.
    forgotten: u64,
    slots: VecDeque<u32>,
    identity: Identity,
}

/// What tells a snapshot, and every copy of it, from all others.
#[derive(Debug, Default)]
struct Identity(Arc<()>);

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// A moment in the life of one snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    changes: u64,
    of: Arc<()>,
}

/// Who was away for longer looks at everything again.
const REMEMBERED: usize = 4096;

impl Log {
    pub(super) fn note(&mut self, slot: usize) {
        if self.slots.len() == REMEMBERED {
            self.slots.pop_front();
            self.forgotten += 1;
        }
        self.slots.extend(u32::try_from(slot));
    }

    pub(super) fn now(&self) -> Moment {
        Moment { changes: self.forgotten + self.slots.len() as u64, of: Arc::clone(&self.identity.0) }
    }

    /// The slots that changed since then, some perhaps more than once. None if that is not known any more.
    pub(super) fn since(&self, then: &Moment) -> Option<impl Iterator<Item = usize>> {
        let seen = usize::try_from(then.changes.checked_sub(self.forgotten)?).ok()?;
        let known = Arc::ptr_eq(&then.of, &self.identity.0) && seen <= self.slots.len();
        known.then(|| self.slots.range(seen..).map(|slot| *slot as usize))
    }
}
