//! A table of fixed size whose places are named by number.

#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub fn new(limit: u32) -> Self {
        Self {
            entries: (0..limit).map(|_| None).collect(),
            free: (0..limit).rev().collect(),
        }
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// Free places.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Gives the entry back where there is no room.
    pub fn insert(&mut self, entry: T) -> Result<u32, T> {
        let Some(index) = self.free.pop() else {
            return Err(entry);
        };
        self.entries[index as usize] = Some(entry);
        Ok(index)
    }

    pub fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    pub fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(entry)
    }

    /// The places in use.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.entries).filter_map(|(index, entry)| {
            entry.as_ref()?;
            Some(index)
        })
    }
}
