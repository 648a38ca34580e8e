//! Mixed namespaces: parts one behind another by LBA, some of which nobody may write.
//!
//! A part is a namespace of its own that no host knows: a raw store or a view, with its own key and stores, and blocks counted from 0. The mixed
//! namespace has what hosts know of: NSID, identity, reservations, write protection, marks. Fence and gate are one for all parts, since a write whose
//! host is gone, and a Compare and Write, concern the whole; so is the count of damage that reads met.

use std::sync::Arc;

use crate::limits::MIXED_PARTS_MAX;
use crate::{
    AccessGate, Ahead, Backing, Damage, Forgetful, Identity, Io, Marks, Namespace, NamespaceKey,
    WriteFence, WriteGate,
};

/// The parts of a mixed namespace, by their blocks.
#[derive(Clone, Debug)]
pub struct Mixed {
    parts: Vec<MixedPart>,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct MixedPart {
    /// Its first block in the mixed namespace.
    pub first_lba: u64,
    /// What it is by itself, with blocks from 0. [`Namespace::write_protected`] says whether it may be written.
    pub namespace: Arc<Namespace>,
}

/// What one part has of some blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Which part.
    pub(crate) part: usize,
    /// Its first block in the mixed namespace.
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
}

/// Why parts make no mixed namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixError {
    /// Fewer than two, or more than are possible.
    #[error("a mixed namespace has 2 to {MIXED_PARTS_MAX} parts, not {parts}")]
    Parts {
        /// How many there are.
        parts: usize,
    },
    /// A part of parts.
    #[error("{part} is mixed itself; name its parts in its place")]
    Nested {
        /// Which.
        part: String,
    },
    /// Blocks of several sizes.
    #[error("{part} has blocks of {lba_bytes} bytes, the parts before it have {wanted}")]
    BlockSize {
        /// Which.
        part: String,
        /// What it has.
        lba_bytes: u32,
        /// What the first part has.
        wanted: u32,
    },
    /// More blocks than 64 bits count in bytes.
    #[error("the parts have more than 16 EiB together")]
    TooLong,
}

impl Mixed {
    /// The parts, by their blocks.
    #[must_use]
    pub fn parts(&self) -> &[MixedPart] {
        &self.parts
    }

    /// What the parts have of blocks that are there, in their order.
    pub(crate) fn pieces(&self, lba: u64, blocks: u64) -> impl Iterator<Item = Piece> + '_ {
        let end = lba.saturating_add(blocks);
        let first = self.parts.partition_point(|part| part.end_lba() <= lba);
        let all = self.parts.iter().enumerate().skip(first);
        all.map_while(move |(part, it)| {
            let start = lba.max(it.first_lba);
            let blocks = end.min(it.end_lba()).checked_sub(start)?;
            (blocks > 0).then_some(Piece {
                part,
                lba: start,
                blocks,
            })
        })
    }

    /// The part that has all of these blocks.
    pub(crate) fn holding(&self, lba: u64, blocks: u64) -> Option<usize> {
        let piece = self.pieces(lba, blocks).next()?;
        (piece.blocks == blocks).then_some(piece.part)
    }

    /// The first of these blocks that nobody may write.
    fn first_protected(&self, lba: u64, blocks: u64) -> Option<u64> {
        let is_protected = |piece: &Piece| self.parts[piece.part].namespace.write_protected;
        let found = self.pieces(lba, blocks).find(is_protected)?;
        Some(found.lba)
    }

    /// Those that may be written.
    pub(crate) fn writable(&self) -> impl Iterator<Item = &Namespace> {
        let all = self.parts.iter().map(|part| &*part.namespace);
        all.filter(|part| !part.write_protected)
    }

    /// As [`Namespace::atomic_write_bytes`]: blocks count from the start of a part there, and from the start of the whole here.
    pub(crate) fn atomic_write_bytes(&self, lba_bytes: u32) -> u32 {
        let least = self.writable().map(Namespace::atomic_write_bytes).min();
        let least = least.unwrap_or(1).max(1);
        let starts_on_it = |part: &MixedPart| {
            let start = part.first_lba * u64::from(lba_bytes);
            start.is_multiple_of(u64::from(least))
        };
        if self.parts.iter().all(starts_on_it) {
            least
        } else {
            1
        }
    }

    /// Each part is of this namespace.
    fn belong_to(&mut self, nsid: u32, fence: &WriteFence, gate: &WriteGate, damage: &Damage) {
        for part in &mut self.parts {
            let namespace = Arc::make_mut(&mut part.namespace);
            namespace.nsid = nsid;
            namespace.fence = fence.clone();
            namespace.gate = gate.clone();
            namespace.damage = damage.clone();
        }
    }
}

impl MixedPart {
    /// The block behind its last one, in the mixed namespace.
    #[must_use]
    pub fn end_lba(&self) -> u64 {
        self.first_lba + self.namespace.blocks
    }
}

impl Namespace {
    /// A namespace of these parts, one behind another. Its identity follows from theirs, and from where they begin. Where no part may be written, it is
    /// write-protected as a whole.
    ///
    /// # Errors
    /// [`MixError`]: how many there are, their block sizes, their bytes together.
    pub fn mixed(nsid: u32, name: String, parts: Vec<Namespace>) -> Result<Self, MixError> {
        let count = parts.len();
        let lba_bytes = match parts.first() {
            Some(first) if (2..=MIXED_PARTS_MAX).contains(&count) => first.lba_bytes,
            _ => return Err(MixError::Parts { parts: count }),
        };
        let mut blocks: u64 = 0;
        let mut placed = Vec::with_capacity(count);
        for mut part in parts {
            if matches!(part.backing, Backing::Mixed(_)) {
                return Err(MixError::Nested { part: part.name });
            }
            if part.lba_bytes != lba_bytes {
                return Err(MixError::BlockSize {
                    part: part.name,
                    lba_bytes: part.lba_bytes,
                    wanted: lba_bytes,
                });
            }
            let first_lba = blocks;
            let end = first_lba.checked_add(part.blocks);
            let fits = |end: &u64| end.checked_mul(u64::from(lba_bytes)).is_some();
            blocks = end.filter(fits).ok_or(MixError::TooLong)?;
            // One that was opened before is served as what it was; this is another state of it.
            part.key = NamespaceKey::next();
            placed.push(MixedPart {
                first_lba,
                namespace: Arc::new(part),
            });
        }
        let part_of = |part: &MixedPart| (part.namespace.identity, part.first_lba);
        let largest_read = |part: &MixedPart| part.namespace.optimal_read_bytes;
        let namespace = Self {
            key: NamespaceKey::next(),
            nsid,
            name,
            identity: Identity::of_parts(placed.iter().map(part_of)),
            lba_bytes,
            blocks,
            write_protected: placed.iter().all(|part| part.namespace.write_protected),
            optimal_read_bytes: placed.iter().map(largest_read).max().unwrap_or(lba_bytes),
            backing: Backing::Mixed(Mixed { parts: placed }),
            is_immutable: false,
            ahead: Ahead::new(),
            fence: WriteFence::default(),
            gate: WriteGate::default(),
            marks: Marks::new(lba_bytes),
            damage: Damage::default(),
            access: AccessGate::default(),
            keeper: Forgetful::keeper(),
        };
        Ok(namespace.with_its_parts())
    }

    /// The parts of a mixed namespace, in their order; any other is its only one.
    pub fn parts(&self) -> impl Iterator<Item = &Namespace> {
        let (own, parts) = match &self.backing {
            Backing::Mixed(mixed) => (None, mixed.parts()),
            Backing::Raw(_) | Backing::View { .. } => (Some(self), &[][..]),
        };
        own.into_iter()
            .chain(parts.iter().map(|part| &*part.namespace))
    }

    /// Whether both have a raw store in common.
    #[must_use]
    pub fn shares_store_with(&self, other: &Self) -> bool {
        let raw = |it: &&Namespace| matches!(it.backing, Backing::Raw(_));
        let is_other = |part: &Namespace| {
            other
                .parts()
                .filter(raw)
                .any(|it| it.identity == part.identity)
        };
        self.parts().filter(raw).any(is_other)
    }

    /// The same with this as its last part, in place of the one that it has; of any but a mixed namespace, that is all of it.
    ///
    /// # Errors
    /// As [`Namespace::mixed`].
    pub fn with_last_part(&self, last: Namespace, name: String) -> Result<Self, MixError> {
        let Backing::Mixed(mixed) = &self.backing else {
            return Ok(last);
        };
        let others = mixed.parts.len().saturating_sub(1);
        let others = mixed.parts.iter().take(others);
        let mut parts: Vec<Namespace> = others.map(|part| (*part.namespace).clone()).collect();
        parts.push(last);
        Self::mixed(self.nsid, name, parts)
    }

    /// Under another number of its subsystem.
    #[must_use]
    pub fn numbered(mut self, nsid: u32) -> Self {
        self.nsid = nsid;
        self.with_its_parts()
    }

    /// With so many blocks of those that there are: the store behind its last ones may have more.
    #[must_use]
    pub fn limited_to(mut self, blocks: u64) -> Self {
        self.blocks = blocks;
        if let Backing::Mixed(mixed) = &mut self.backing
            && let Some(last) = mixed.parts.last_mut()
        {
            let first_lba = last.first_lba;
            Arc::make_mut(&mut last.namespace).blocks = blocks.saturating_sub(first_lba);
        }
        self
    }

    /// Has its parts know what is of the whole.
    pub(crate) fn with_its_parts(mut self) -> Self {
        if let Backing::Mixed(mixed) = &mut self.backing {
            mixed.belong_to(self.nsid, &self.fence, &self.gate, &self.damage);
        }
        self
    }

    /// The first block that a request would change and nobody may write; none of a namespace that is protected as a whole, or not at all.
    pub(crate) fn first_protected(&self, io: &Io) -> Option<u64> {
        if let Io::Deallocate { ranges } = io {
            let of = |&(lba, blocks): &(u64, u32)| self.first_protected_of(lba, u64::from(blocks));
            return ranges.iter().find_map(of);
        }
        let (lba, blocks) = io.range(self.lba_bytes).filter(|_| io.is_write())?;
        self.first_protected_of(lba, blocks)
    }

    /// The same of blocks.
    pub(crate) fn first_protected_of(&self, lba: u64, blocks: u64) -> Option<u64> {
        match &self.backing {
            Backing::Mixed(mixed) => mixed.first_protected(lba, blocks),
            Backing::Raw(_) | Backing::View { .. } => None,
        }
    }
}
