//! A table of connections whose places are used again, with names that go stale.

/// Names an entry; stale after it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    index: u16,
    generation: u32,
}

impl Key {
    /// In 48 bits.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 16 | u64::from(self.index)
    }

    /// Back from [`Key::to_bits`].
    #[expect(clippy::cast_possible_truncation, reason = "takes the parts out again")]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self {
            index: bits as u16,
            generation: (bits >> 16) as u32,
        }
    }
}

/// Bounded; a place that was freed last is used first.
#[derive(Debug)]
pub(crate) struct Table<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u16>,
    limit: usize,
}

impl<T> Table<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            limit: limit.min(usize::from(u16::MAX)),
        }
    }

    /// Puts an entry in; gives it back where the table is full.
    pub(crate) fn insert(&mut self, entry: T) -> Result<Key, T> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.places.len() >= self.limit => return Err(entry),
            None => {
                let Ok(index) = u16::try_from(self.places.len()) else {
                    return Err(entry);
                };
                self.places.push((0, None));
                index
            }
        };
        let place = &mut self.places[usize::from(index)];
        place.1 = Some(entry);
        Ok(Key {
            index,
            generation: place.0,
        })
    }

    /// An entry, where it is there.
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let (generation, entry) = self.places.get(usize::from(key.index))?;
        entry.as_ref().filter(|_| *generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(usize::from(key.index))?;
        if place.0 == key.generation {
            place.1.as_mut()
        } else {
            None
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(usize::from(key.index))?;
        if place.0 != key.generation {
            return None;
        }
        let entry = place.1.take()?;
        place.0 = place.0.wrapping_add(1);
        self.free.push(key.index);
        Some(entry)
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// All entries, with their names.
    #[cfg(feature = "inspection")]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        (0u16..)
            .zip(&mut self.places)
            .filter_map(|(index, (generation, entry))| {
                entry.as_mut().map(|entry| {
                    (
                        Key {
                            index,
                            generation: *generation,
                        },
                        entry,
                    )
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Table};

    #[test]
    fn a_name_goes_stale_with_its_entry_and_survives_a_trip_through_bits() {
        let mut table = Table::new(2);
        let first = table.insert('a').unwrap();
        let second = table.insert('b').unwrap();
        assert_eq!(table.insert('c'), Err('c'), "the limit holds");
        assert_eq!(table.remove(first), Some('a'));
        let third = table.insert('c').unwrap();
        assert_eq!(table.get_mut(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get_mut(third), Some(&mut 'c'));
        for key in [first, second, third] {
            assert_eq!(Key::from_bits(key.to_bits()), key);
        }
    }
}
