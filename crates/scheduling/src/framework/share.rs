use std::sync::atomic::{AtomicUsize, Ordering};

/// So many feasible nodes are looked for, however small the share.
const FEWEST: usize = 100;

/// Ends the search for feasible nodes early: at a share of all nodes. Each search begins where the last one ended.
#[derive(Debug)]
pub(super) struct Share {
    percentage: u8,
    begin: AtomicUsize,
}

impl Share {
    pub(super) fn new(percentage: u8) -> Self {
        Self { percentage, begin: AtomicUsize::new(0) }
    }

    /// How many feasible nodes end the search.
    pub(super) fn enough(&self, nodes: usize) -> usize {
        (nodes * usize::from(self.percentage) / 100).max(FEWEST)
    }

    /// Where the search among so many nodes begins.
    pub(super) fn begin(&self, nodes: usize) -> usize {
        self.begin.load(Ordering::Relaxed).checked_rem(nodes).unwrap_or_default()
    }

    /// So many nodes were asked.
    pub(super) fn asked(&self, asked: usize, nodes: usize) {
        let next = (self.begin(nodes) + asked).checked_rem(nodes).unwrap_or_default();
        self.begin.store(next, Ordering::Relaxed);
    }
}
