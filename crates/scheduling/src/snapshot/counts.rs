use std::slice;

use thin_vec::{ThinVec, thin_vec};

/// How many of something are on each node, by slot: a sorted list while they are few, a column when they are many.
#[derive(Debug, Clone)]
pub(crate) enum Counts {
    /// On one node, if any.
    One((u32, u32)),
    Few(ThinVec<(u32, u32)>),
    Many(ThinVec<u32>),
}

/// Lists shorter than this never become columns.
const FEW: usize = 256;
/// A list becomes a column once it names more than one in so many slots.
const SPARSE: usize = 8;

impl Default for Counts {
    fn default() -> Self {
        Self::One((0, 0))
    }
}

impl Counts {
    pub(super) fn add(&mut self, slot: usize) {
        let Ok(key) = u32::try_from(slot) else { return };
        match self {
            Self::One(one) if one.1 == 0 => *one = (key, 1),
            Self::One((known, count)) if *known == key => *count += 1,
            Self::One(one) => {
                let (new, old) = ((key, 1), *one);
                *self = Self::Few(if key < old.0 { thin_vec![new, old] } else { thin_vec![old, new] });
            }
            Self::Few(list) => {
                match list.binary_search_by_key(&key, |(slot, _)| *slot) {
                    Ok(place) => list[place].1 += 1,
                    Err(place) => list.insert(place, (key, 1)),
                }
                let last = list.last().map_or(0, |(slot, _)| *slot as usize);
                if list.len() > FEW && list.len() > last / SPARSE {
                    let mut column = thin_vec![0; last + 1];
                    for (slot, count) in list.iter() {
                        column[*slot as usize] = *count;
                    }
                    *self = Self::Many(column);
                }
            }
            Self::Many(column) => {
                if column.len() <= slot {
                    column.resize(slot + 1, 0);
                }
                column[slot] += 1;
            }
        }
    }

    pub(super) fn remove(&mut self, slot: usize) {
        match self {
            Self::One((known, count)) => {
                if *known as usize == slot {
                    *count = count.saturating_sub(1);
                }
            }
            Self::Few(list) => {
                let found = list.binary_search_by_key(&slot, |(slot, _)| *slot as usize);
                let Ok(place) = found else { return };
                list[place].1 -= 1;
                if list[place].1 == 0 {
                    list.remove(place);
                }
            }
            Self::Many(column) => {
                if let Some(count) = column.get_mut(slot) {
                    *count = count.saturating_sub(1);
                }
            }
        }
    }

    /// Slots with how many are there, in order of the slots; none is zero.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, u32)> {
        let (few, many): (&[(u32, u32)], &[u32]) = match self {
            Self::One(one) => (slice::from_ref(one), &[]),
            Self::Few(list) => (list, &[]),
            Self::Many(column) => (&[], column),
        };
        let few = few.iter().map(|(slot, count)| (*slot as usize, *count));
        few.chain(many.iter().copied().enumerate()).filter(|(_, count)| *count > 0)
    }
}

impl PartialEq for Counts {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Counts {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_and_columns_count_as_a_map_does(
            steps in prop::collection::vec((0usize..600, prop::bool::weighted(0.8)), 1..3000)
        ) {
            let (mut counts, mut plain) = (Counts::default(), BTreeMap::<usize, u32>::new());
            for (slot, more) in steps {
                if more {
                    counts.add(slot);
                    *plain.entry(slot).or_default() += 1;
                } else if let Some(count) = plain.get_mut(&slot) {
                    counts.remove(slot);
                    *count -= 1;
                    plain.retain(|_, count| *count > 0);
                }
            }
            prop_assert!(counts.iter().eq(plain.into_iter()));
        }
    }

    #[test]
    fn many_become_a_column() {
        let mut counts = Counts::default();
        (0..=FEW).for_each(|slot| counts.add(slot));
        assert!(matches!(counts, Counts::Many(_)));
    }
}
