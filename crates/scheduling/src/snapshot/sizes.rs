use std::sync::Arc;

use crate::resources::ResourceList;

/// The sizes of nodes met last, so that nodes of one size share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Sizes(Vec<Arc<ResourceList>>);

/// Clusters have nodes of a few sizes.
const KNOWN: usize = 16;

impl Sizes {
    /// Replaces a list by an equal one that is known.
    pub(super) fn share(&mut self, list: &mut Arc<ResourceList>) {
        match self.0.iter().position(|known| Arc::ptr_eq(known, list) || same(known, list)) {
            Some(place) => {
                // Often asked for is soon found.
                let place = if place == 0 { 0 } else { self.swap_forward(place) };
                if let Some(known) = self.0.get(place) {
                    *list = Arc::clone(known);
                }
            }
            None => {
                self.0.truncate(KNOWN - 1);
                self.0.push(Arc::clone(list));
            }
        }
    }

    fn swap_forward(&mut self, place: usize) -> usize {
        self.0.swap(place, place - 1);
        place - 1
    }
}

/// True if the lists are equal to the letter; the notation of amounts counts.
fn same(one: &ResourceList, two: &ResourceList) -> bool {
    let mut amounts = one.values().zip(two.values());
    one == two && amounts.all(|(one, two)| one.is_written_like(two))
}
