//! The namespaces of one engine, found by key, each in a place that it keeps until it is gone.

use std::ops::{Index, IndexMut};

use crate::NamespaceKey;
use crate::attached::Attached;

/// See the module. Places are small numbers: requests and fetches name their namespace by them.
#[derive(Default)]
pub(crate) struct Attachments {
    places: Vec<Option<Attached>>,
    /// Sorted, since keys are given out in rising order.
    by_key: Vec<(NamespaceKey, usize)>,
}

impl Attachments {
    /// Adds a namespace that is not there yet; its place.
    pub(crate) fn add(&mut self, mut attached: Attached) -> usize {
        let key = attached.shared.key;
        let index = match self.places.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.places.push(None);
                self.places.len() - 1
            }
        };
        attached.place = index;
        self.places[index] = Some(attached);
        let at = self.by_key.partition_point(|(other, _)| *other < key);
        self.by_key.insert(at, (key, index));
        index
    }

    /// Takes a namespace out. Nothing may name its place any more.
    pub(crate) fn remove(&mut self, index: usize) -> Option<Attached> {
        let attached = self.places.get_mut(index)?.take()?;
        self.by_key.retain(|(_, of)| *of != index);
        Some(attached)
    }

    /// The place of a namespace.
    pub(crate) fn find(&self, key: NamespaceKey) -> Option<usize> {
        let at = self.by_key.binary_search_by_key(&key, |(key, _)| *key);
        at.ok().map(|at| self.by_key[at].1)
    }

    /// Whether anything is there of a namespace, itself or a part.
    pub(crate) fn has_of(&self, key: NamespaceKey) -> bool {
        let mut all = self.places.iter().flatten();
        all.any(|attached| attached.whole == key)
    }

    /// Whether a store has operations that it was not polled for.
    pub(crate) fn has_unpolled(&self) -> bool {
        let mut all = self.places.iter().flatten();
        all.any(|attached| attached.is_unpolled)
    }

    /// Places there are, some of them free.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    /// Namespaces there are.
    pub(crate) fn count(&self) -> usize {
        self.by_key.len()
    }

    /// What is in a place.
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Attached> {
        self.places.get_mut(index)?.as_mut()
    }
}

/// A place that a request or fetch names is taken: a namespace leaves after them.
impl Index<usize> for Attachments {
    type Output = Attached;

    #[expect(
        clippy::expect_used,
        reason = "a request that outlives its namespace is a defect of the engine's own"
    )]
    fn index(&self, index: usize) -> &Attached {
        self.places[index]
            .as_ref()
            .expect("a namespace leaves after its requests")
    }
}

impl IndexMut<usize> for Attachments {
    #[expect(
        clippy::expect_used,
        reason = "a request that outlives its namespace is a defect of the engine's own"
    )]
    fn index_mut(&mut self, index: usize) -> &mut Attached {
        self.places[index]
            .as_mut()
            .expect("a namespace leaves after its requests")
    }
}
