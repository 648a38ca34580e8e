//! Where the requests of a mixed namespace go: straight to the part that has all of their blocks, as a rule.

use super::Engine;
use crate::{Backing, Io, NamespaceError, NamespaceKey};

impl Engine {
    /// The place and the blocks of a read or write that one part has alone; others stay as they are. What is marked is the whole namespace's.
    pub(super) fn routed(&self, index: usize, io: &mut Io) -> usize {
        let attached = &self.attached[index];
        let namespace = &attached.shared;
        let Backing::Mixed(mixed) = &namespace.backing else {
            return index;
        };
        let range = io.range(namespace.lba_bytes);
        let (Io::Read { lba, .. } | Io::Write { lba, .. }, Some((first, blocks))) =
            (&mut *io, range)
        else {
            return index;
        };
        let held = mixed.holding(first, blocks);
        let place = held.and_then(|part| attached.part_places.get(part).copied());
        let Some(place) = place.filter(|_| namespace.marks.first_of(first, blocks).is_none())
        else {
            return index;
        };
        *lba -= self.attached[place].first_lba;
        place
    }

    /// Why a write of these blocks would be refused whatever its data are: of a mixed namespace, some of them nobody may write. Then nobody needs to send
    /// them.
    #[must_use]
    pub fn refuses_write(
        &self,
        key: NamespaceKey,
        lba: u64,
        blocks: u32,
    ) -> Option<NamespaceError> {
        let namespace = &self.attached[self.attached.find(key)?].shared;
        let lba = namespace.first_protected_of(lba, u64::from(blocks))?;
        let nsid = namespace.nsid;
        Some(NamespaceError::ReadOnlyRange { nsid, lba })
    }

    /// The places of a namespace, and of its parts.
    pub(super) fn places_of(&self, key: NamespaceKey) -> impl Iterator<Item = usize> + '_ {
        let found = self.attached.find(key);
        let parts = found.map_or(&[][..], |index| &self.attached[index].part_places);
        found.into_iter().chain(parts.iter().copied())
    }
}
