//! Random choices that are the same for the same seed, on every machine and in every release.

/// `SplitMix64`: small, and its numbers will not change with a library's version.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A source of its own for each document of a seed.
    #[must_use]
    pub fn new(seed: u64, document: u64) -> Self {
        let mut random = Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ document };
        random.next();
        random.state ^= document.rotate_left(32);
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % end).unwrap_or_default()
    }

    /// A number from `first` to `last`, both included.
    pub fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of a list that is not empty.
    pub fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    /// `count` different elements of a list, fewer if it is shorter, in random order.
    pub fn sample<T: Clone>(&mut self, list: &[T], count: usize) -> Vec<T> {
        let mut left = list.to_vec();
        let mut chosen = Vec::new();
        while chosen.len() < count && !left.is_empty() {
            chosen.push(left.swap_remove(self.below(left.len())));
        }
        chosen
    }

    /// `text` followed by a number below `end`.
    pub fn name(&mut self, text: &str, end: usize) -> String {
        format!("{text}{}", self.below(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |document| {
            let mut random = Random::new(7, document);
            (0..20).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(3), numbers(3));
        assert_ne!(numbers(3), numbers(4));
    }

    #[test]
    fn a_sample_has_no_element_twice() {
        let mut random = Random::new(1, 1);
        let mut sample = random.sample(&[1, 2, 3, 4, 5], 4);
        sample.sort_unstable();
        sample.dedup();
        assert_eq!(sample.len(), 4);
    }
}
