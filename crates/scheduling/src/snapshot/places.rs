use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// In which slot each pod is, by its UID, which only the pod itself keeps.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    hasher: DefaultHashBuilder,
    places: HashTable<Place>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// What the UID hashes to, in part.
    tag: u32,
    slot: u32,
}

impl Place {
    /// The whole hash, made of the part that is kept.
    fn hash(&self) -> u64 {
        u64::from(self.tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Places {
    #[expect(clippy::cast_possible_truncation, reason = "a part of a hash is a hash")]
    fn place(&self, uid: &str, slot: usize) -> Option<Place> {
        Some(Place { tag: self.hasher.hash_one(uid) as u32, slot: u32::try_from(slot).ok()? })
    }

    /// The slot of a pod. `is_there` says whether it is in the one that it is asked about.
    pub(super) fn find(&self, uid: &str, is_there: impl Fn(usize) -> bool) -> Option<usize> {
        let wanted = self.place(uid, 0)?;
        let is = |place: &Place| place.tag == wanted.tag && is_there(place.slot as usize);
        self.places.find(wanted.hash(), is).map(|place| place.slot as usize)
    }

    /// A pod that is in no slot yet is in this one.
    pub(super) fn add(&mut self, uid: &str, slot: usize) {
        if let Some(place) = self.place(uid, slot) {
            self.places.insert_unique(place.hash(), place, Place::hash);
        }
    }

    /// The pod is not in this slot any more.
    pub(super) fn remove(&mut self, uid: &str, slot: usize) {
        let Some(gone) = self.place(uid, slot) else { return };
        // Of two pods with one tag in one slot, either entry is as good as the other.
        if let Ok(place) = self.places.find_entry(gone.hash(), |place| *place == gone) {
            place.remove();
        }
    }
}
