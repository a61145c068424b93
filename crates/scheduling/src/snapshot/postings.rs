use std::hash::BuildHasher;
use std::slice;

use hashbrown::{DefaultHashBuilder, HashMap};

use crate::snapshot::slab::Slab;

/// Things by the labels under which they are looked for.
///
/// Not labels are kept, but what they hash to: who looks under one label finds, now and then, what is kept under
/// another.
#[derive(Debug, Clone, Default)]
pub(super) struct Postings {
    hasher: DefaultHashBuilder,
    /// The only thing under a label, or [`SEVERAL`] and the number of a list.
    found: HashMap<u32, u32>,
    lists: Slab<Vec<u32>>,
}

const SEVERAL: u32 = 1 << 31;

impl Postings {
    #[expect(clippy::cast_possible_truncation, reason = "a part of a hash is a hash")]
    fn place(&self, key: &str, value: &str) -> u32 {
        self.hasher.hash_one((key, value)) as u32
    }

    pub(super) fn get(&self, key: &str, value: &str) -> &[u32] {
        match self.found.get(&self.place(key, value)) {
            None => &[],
            Some(found) if found & SEVERAL == 0 => slice::from_ref(found),
            Some(list) => self.lists.get(list & !SEVERAL).map_or(&[], Vec::as_slice),
        }
    }

    /// `id` is less than 2^31.
    pub(super) fn add(&mut self, key: &str, value: &str, id: u32) {
        let place = self.place(key, value);
        let Some(found) = self.found.get_mut(&place) else {
            self.found.insert(place, id);
            return;
        };
        if *found & SEVERAL == 0 {
            *found = SEVERAL | self.lists.insert(Vec::from([*found, id]));
        } else if let Some(list) = self.lists.get_mut(*found & !SEVERAL) {
            list.push(id);
        }
    }

    pub(super) fn remove(&mut self, key: &str, value: &str, id: u32) {
        let place = self.place(key, value);
        let Some(found) = self.found.get(&place).copied() else { return };
        if found & SEVERAL == 0 {
            if found == id {
                self.found.remove(&place);
            }
            return;
        }
        let Some(list) = self.lists.get_mut(found & !SEVERAL) else { return };
        if let Some(index) = list.iter().position(|other| *other == id) {
            list.swap_remove(index);
        }
        if let [only] = list.as_slice() {
            self.found.insert(place, *only);
            self.lists.remove(found & !SEVERAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(postings: &Postings, value: &str, want: &[u32]) {
        let mut found = postings.get("app", value).to_vec();
        found.sort_unstable();
        assert_eq!(found, want, "{value}");
    }

    #[test]
    fn one_and_several_are_found_under_their_label() {
        let mut postings = Postings::default();
        check(&postings, "web", &[]);
        postings.add("app", "web", 1);
        postings.add("app", "db", 7);
        check(&postings, "web", &[1]);
        postings.add("app", "web", 2);
        postings.add("app", "web", 3);
        check(&postings, "web", &[1, 2, 3]);
        postings.remove("app", "web", 2);
        check(&postings, "web", &[1, 3]);
        postings.remove("app", "web", 1);
        check(&postings, "web", &[3]);
        postings.remove("app", "web", 9);
        check(&postings, "web", &[3]);
        postings.remove("app", "web", 3);
        check(&postings, "web", &[]);
        check(&postings, "db", &[7]);
    }
}
