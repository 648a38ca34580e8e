//! PRP entries and lists (Base, "Physical Region Page Entry and List"), for pages of 4 KiB.
//!
//! A command has two entries. The first names the first page, from any dword of it on; the second names the last page, or where there are more, a list of
//! the others. A list that does not fit its page goes on in another, which its last entry names.

use nvme_spec::Status;

/// CC.MPS = 0, the one page size that CAP offers.
pub const PAGE_BYTES: u32 = 4096;
/// The same as addresses count.
const PAGE: u64 = PAGE_BYTES as u64;
/// Bytes of an entry.
const ENTRY_BYTES: u64 = 8;

/// A run of the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where in the host's memory.
    pub address: u64,
    /// Bytes; not 0.
    pub bytes: u32,
}

/// Most pieces of a command's data.
#[must_use]
pub const fn pieces_max(transfer_bytes_max: u32) -> usize {
    // One more than whole pages, since the first may begin inside of its page.
    transfer_bytes_max.div_ceil(PAGE_BYTES) as usize + 1
}

/// What is left of a command's data pointer: give it the lists that it asks for until it asks for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prps {
    /// Bytes that no piece covers yet.
    left: u32,
    list: Option<PrpList>,
}

/// A part of a list that is to be copied out of the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrpList {
    /// Where it begins.
    pub address: u64,
    /// How many entries to copy, of 8 bytes each; at most a page of them.
    pub entries: u16,
}

impl Prps {
    /// The two entries of a command with so many bytes of data. What they say themselves goes to `pieces`.
    ///
    /// # Errors
    /// [`Status::PRP_OFFSET_INVALID`]: one is not aligned as its place asks.
    #[inline]
    pub fn new(
        prp1: u64,
        prp2: u64,
        bytes: u32,
        pieces: &mut impl FnMut(Piece),
    ) -> Result<Prps, Status> {
        let mut prps = Prps {
            left: bytes,
            list: None,
        };
        if bytes == 0 {
            return Ok(prps);
        }
        if !prp1.is_multiple_of(4) {
            return Err(Status::PRP_OFFSET_INVALID.dnr());
        }
        prps.page(prp1, pieces);
        match prps.left {
            0 => {}
            left if left <= PAGE_BYTES => prps.aligned_page(prp2, pieces)?,
            _ => prps.list = Some(prps.list_at(prp2)?),
        }
        Ok(prps)
    }

    /// The list to copy out next; none once every byte has its piece.
    #[must_use]
    pub fn wants(&self) -> Option<PrpList> {
        self.list
    }

    /// Takes the list that was wanted, as it was copied: it is not looked at again.
    ///
    /// # Errors
    /// As [`Prps::new`]; [`Status::INVALID_FIELD`] where it is not as long as was asked.
    pub fn take(&mut self, list: &[u8], pieces: &mut impl FnMut(Piece)) -> Result<(), Status> {
        let Some(wanted) = self.list.take() else {
            return Ok(());
        };
        if list.len() != usize::from(wanted.entries) * 8 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let ends_its_page =
            (wanted.address + u64::from(wanted.entries) * ENTRY_BYTES).is_multiple_of(PAGE);
        let mut entries = list.chunks_exact(8).map(entry).peekable();
        while let Some(entry) = entries.next() {
            let is_last_of_page = ends_its_page && entries.peek().is_none();
            if is_last_of_page && self.left > PAGE_BYTES {
                if !entry.is_multiple_of(PAGE) {
                    return Err(Status::PRP_OFFSET_INVALID.dnr());
                }
                self.list = Some(self.list_at(entry)?);
                return Ok(());
            }
            self.aligned_page(entry, pieces)?;
        }
        Ok(())
    }

    /// A list that begins here, as far as its page and what is left ask for.
    fn list_at(&self, address: u64) -> Result<PrpList, Status> {
        if !address.is_multiple_of(ENTRY_BYTES) {
            return Err(Status::PRP_OFFSET_INVALID.dnr());
        }
        let in_page = (PAGE - address % PAGE) / ENTRY_BYTES;
        let needed = u64::from(self.left.div_ceil(PAGE_BYTES));
        // At most 512.
        let entries = u16::try_from(needed.min(in_page)).unwrap_or(u16::MAX);
        Ok(PrpList { address, entries })
    }

    fn aligned_page(&mut self, address: u64, pieces: &mut impl FnMut(Piece)) -> Result<(), Status> {
        if !address.is_multiple_of(PAGE) {
            return Err(Status::PRP_OFFSET_INVALID.dnr());
        }
        self.page(address, pieces);
        Ok(())
    }

    /// From an address to the end of its page, or of the data.
    fn page(&mut self, address: u64, pieces: &mut impl FnMut(Piece)) {
        // At most a page.
        let to_end = u32::try_from(PAGE - address % PAGE).unwrap_or(PAGE_BYTES);
        let bytes = to_end.min(self.left);
        self.left -= bytes;
        pieces(Piece { address, bytes });
    }
}

fn entry(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A host's memory with lists in it, by address.
    type Lists = BTreeMap<u64, u64>;

    fn walk(prp1: u64, prp2: u64, bytes: u32, memory: &Lists) -> Result<Vec<Piece>, Status> {
        let mut pieces = Vec::new();
        let mut prps = Prps::new(prp1, prp2, bytes, &mut |piece| pieces.push(piece))?;
        let mut lists = 0;
        while let Some(list) = prps.wants() {
            lists += 1;
            assert!(lists <= 3, "lists end");
            let copied: Vec<u8> = (0..u64::from(list.entries))
                .map(|index| {
                    memory
                        .get(&(list.address + index * 8))
                        .copied()
                        .unwrap_or(0)
                })
                .flat_map(u64::to_le_bytes)
                .collect();
            prps.take(&copied, &mut |piece| pieces.push(piece))?;
        }
        Ok(pieces)
    }

    /// A list at `at` of these pages, chained from page to page as the specification says. Pages of the list follow each other.
    fn list(at: u64, pages: &[u64]) -> Lists {
        let mut memory = Lists::new();
        let mut place = at;
        for (index, page) in pages.iter().enumerate() {
            let is_last_slot = place % PAGE == PAGE - 8;
            if is_last_slot && index + 1 < pages.len() {
                memory.insert(place, place + 8);
                place += 8;
            }
            memory.insert(place, *page);
            place += 8;
        }
        memory
    }

    fn bytes_of(pieces: &[Piece]) -> u32 {
        pieces.iter().map(|piece| piece.bytes).sum()
    }

    /// Every offset of the first page, the sizes around each change of form, and 1 MiB.
    #[test]
    fn every_byte_has_its_place() {
        let pages: Vec<u64> = (0..257).map(|index| 0x10_0000 + index * 0x3000).collect();
        for list_at in [0x8000, 0x8008, 0x8FF8, 0x8FF0, 0x8800] {
            for offset in (0_u32..4096).step_by(4) {
                for bytes in [4_u32, 4096, 8192, 8196, 12_288, 1 << 20] {
                    let first = 4096 - offset;
                    // As many as the data take: the last of a page is a page, where no more follow.
                    let others = bytes.saturating_sub(first).div_ceil(4096) as usize;
                    let memory = list(list_at, &pages[..others]);
                    let prp2 = if bytes > first + 4096 {
                        list_at
                    } else {
                        pages[0]
                    };
                    let pieces = walk(u64::from(offset), prp2, bytes, &memory).unwrap();
                    assert_eq!(bytes_of(&pieces), bytes);
                    assert!(pieces.len() <= pieces_max(1 << 20));
                    let expected: Vec<u64> = [u64::from(offset)]
                        .into_iter()
                        .chain(pages.iter().copied())
                        .take(pieces.len())
                        .collect();
                    let addresses: Vec<u64> = pieces.iter().map(|piece| piece.address).collect();
                    assert_eq!(addresses, expected, "{offset} {bytes} {list_at:#x}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_aligned_is_refused() {
        let refused = Err(Status::PRP_OFFSET_INVALID.dnr());
        let none = Lists::new();
        for odd in [1, 2, 3, 4097] {
            assert_eq!(walk(odd, 0, 512, &none), refused);
        }
        // The second of two pages; a list; a page in a list; a list in a list.
        assert_eq!(walk(0, 0x1004, 8192, &none), refused);
        assert_eq!(walk(0, 0x1004, 12_288, &none), refused);
        let bad_page = list(0x8000, &[0x1000, 0x2004]);
        assert_eq!(walk(0, 0x8000, 12_288, &bad_page), refused);
        let bad_chain = Lists::from([(0x8FF8, 0x9008)]);
        assert_eq!(walk(0, 0x8FF8, 1 << 20, &bad_chain), refused);
        // Nothing looks at the second entry where there is no second page.
        assert!(walk(0x200, 3, 512, &none).is_ok());
        assert_eq!(walk(3, 3, 0, &none), Ok(vec![]));
    }

    /// A list whose chain leads to itself: each round takes at least one page of the data, so it ends.
    #[test]
    fn a_list_that_leads_to_itself_ends() {
        let mut memory: Lists = (0..511).map(|index| (0x9000 + index * 8, 0x5000)).collect();
        memory.insert(0x8FF8, 0x9000);
        memory.insert(0x9FF8, 0x9000);
        let pieces = walk(0x4000, 0x8FF8, 1 << 20, &memory).unwrap();
        assert_eq!((pieces.len(), bytes_of(&pieces)), (256, 1 << 20));
        // Far more than MDTS: 4 MiB are two rounds of one page.
        let long = walk(0x4000, 0x9000, 4 << 20, &memory).unwrap();
        assert_eq!(bytes_of(&long), 4 << 20);
    }

    #[test]
    fn a_list_of_another_length_is_refused() {
        let mut prps = Prps::new(0, 0x8000, 12_288, &mut |_| {}).unwrap();
        let refused = prps.take(&[0; 8], &mut |_| {});
        assert_eq!(refused, Err(Status::INVALID_FIELD.dnr()));
    }
}
