/// Values under small numbers, which are used again.
#[derive(Debug, Clone)]
pub(super) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(id) => {
                if let Some(place) = self.values.get_mut(id as usize) {
                    *place = Some(value);
                }
                id
            }
            None => {
                if self.values.len() == self.values.capacity() {
                    // What is there for long does not need twice its room.
                    self.values.reserve_exact(4 + self.values.len() / 8);
                }
                self.values.push(Some(value));
                u32::try_from(self.values.len() - 1).unwrap_or(u32::MAX)
            }
        }
    }

    pub(super) fn get(&self, id: u32) -> Option<&T> {
        self.values.get(id as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.values.get_mut(id as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<T> {
        let value = self.values.get_mut(id as usize)?.take();
        if value.is_some() {
            self.free.push(id);
        }
        value
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().flatten()
    }
}
