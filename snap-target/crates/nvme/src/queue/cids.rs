//! Which command identifiers are in use.

use nvme_spec::Cid;

/// How many commands that are not answered have identifiers that end in the same bits: as many bits as it takes to tell the entries of the queue apart. Hosts
/// number their commands by an index in these bits, so that one look says that an identifier is not in use.
#[derive(Debug, Default)]
pub(crate) struct Cids {
    /// A power of two of them.
    counts: Vec<u16>,
}

impl Cids {
    pub fn of(places: usize, cids: impl Iterator<Item = Cid>) -> Cids {
        let mut made = Cids {
            counts: vec![0; places.next_power_of_two()],
        };
        cids.for_each(|cid| made.add(cid));
        made
    }

    pub fn add(&mut self, cid: Cid) {
        if let Some(count) = self.count(cid) {
            *count += 1;
        }
    }

    pub fn remove(&mut self, cid: Cid) {
        if let Some(count) = self.count(cid) {
            *count -= 1;
        }
    }

    /// Whether it may be in use more than once.
    pub fn may_repeat(&self, cid: Cid) -> bool {
        let count = self.counts.get(self.place(cid));
        count.is_some_and(|count| *count > 1)
    }

    fn count(&mut self, cid: Cid) -> Option<&mut u16> {
        let place = self.place(cid);
        self.counts.get_mut(place)
    }

    fn place(&self, cid: Cid) -> usize {
        usize::from(cid.0) & self.counts.len().saturating_sub(1)
    }
}
