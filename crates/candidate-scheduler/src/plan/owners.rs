//! Services and controllers of pods: from whom they select come the default spread constraints.

use scheduling::{Owner, OwnerKind};

use crate::observe::{Change, Name};
use crate::plan::Model;

impl Model {
    pub(super) fn see_owners(&mut self, kind: OwnerKind, change: Change<Owner, Name>) {
        let owners = &mut self.snapshot.owners;
        match change {
            Change::All(list) => {
                owners.clear(kind);
                for owner in list {
                    owners.set(owner);
                }
                self.synced.owners.insert(kind);
            }
            Change::Is(owner) => owners.set(owner),
            Change::Gone(name) => owners.remove(kind, &name.namespace, &name.name),
        }
        self.memo.clear();
    }
}
