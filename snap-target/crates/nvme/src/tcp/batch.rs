//! What a machine hands out to be sent: header bytes in an arena, and which payload goes between them.
//!
//! Both ends fill a [`TxBatch`]; the driver turns its items into one gathered send and clears it once the bytes have left.

use crate::digest::crc32c;
pub use crate::queue::Slot;
use crate::tcp::pdu::Framing;
use nvme_spec::tcp::DIGEST_BYTES;
use std::ops::Range;

/// Most arena bytes one PDU takes: header with digest and padding (255), and the data digest.
pub const ITEM_BYTES_MAX: usize = 260;

/// Part of a slot's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Whose buffer.
    pub slot: Slot,
    /// First byte.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

/// One PDU to send: header bytes, payload, digest, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxItem {
    header: Range<u32>,
    /// Goes after the header.
    pub payload: Option<Payload>,
    digest: Option<Range<u32>>,
    /// The PDU is the last of this slot's command: once it has left, the driver says so (`transmitted`).
    pub ends: Option<Slot>,
}

impl TxItem {
    /// The data of this PDU are followed by their digest: the driver computes it over the payload and calls
    /// [`TxBatch::set_data_digest`].
    pub fn data_digest(&self) -> bool {
        self.digest.is_some()
    }
}

/// PDUs to send, in order. Bounded: made once with room for a number of items, it never grows.
#[derive(Debug)]
pub struct TxBatch {
    arena: Vec<u8>,
    items: Vec<TxItem>,
    items_max: usize,
}

impl TxBatch {
    /// With room for `items_max` PDUs.
    pub fn with_capacity(items_max: usize) -> TxBatch {
        TxBatch {
            arena: Vec::with_capacity(items_max * ITEM_BYTES_MAX),
            items: Vec::with_capacity(items_max),
            items_max,
        }
    }

    /// The PDUs, in the order in which they must be sent.
    pub fn items(&self) -> &[TxItem] {
        &self.items
    }

    /// True without any PDU.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// PDUs that still fit.
    pub fn room(&self) -> usize {
        self.items_max - self.items.len()
    }

    /// The header bytes of an item: header, header digest, padding.
    pub fn header(&self, item: &TxItem) -> &[u8] {
        self.slice(&item.header)
    }

    /// The data digest of an item, to be sent after its payload; empty where there is none.
    pub fn digest(&self, item: &TxItem) -> &[u8] {
        item.digest.as_ref().map_or(&[], |range| self.slice(range))
    }

    /// Puts the CRC-32C of an item's payload in its place. Does nothing for an item without data digest.
    pub fn set_data_digest(&mut self, index: usize, crc: u32) {
        let range = self.items.get(index).and_then(|item| item.digest.clone());
        if let Some(range) = range
            && let Some(to) = self.arena.get_mut(range.start as usize..range.end as usize)
        {
            to.copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Adds a PDU without data: `header`, then its digest where wanted. The caller has checked [`TxBatch::room`].
    pub(crate) fn push(&mut self, header: &[u8], header_digest: bool, ends: Option<Slot>) {
        let header = self.put_header(header, header_digest, 0);
        self.items.push(TxItem {
            header,
            payload: None,
            digest: None,
            ends,
        });
    }

    /// Adds a PDU with data: `header`, digest where wanted, padding; the payload and the place of its digest follow.
    pub(crate) fn push_data(
        &mut self,
        header: &[u8],
        framing: Framing,
        payload: Payload,
        ends: Option<Slot>,
    ) {
        let pdo = framing.header_bytes(header.len());
        let header = self.put_header(header, framing.header_digest, pdo);
        let digest = framing.data_digest.then(|| {
            self.arena.extend_from_slice(&[0; DIGEST_BYTES]);
            header.end..self.position()
        });
        self.items.push(TxItem {
            header,
            payload: Some(payload),
            digest,
            ends,
        });
    }

    fn put_header(&mut self, header: &[u8], digest: bool, pdo: usize) -> Range<u32> {
        let start = self.position();
        self.arena.extend_from_slice(header);
        if digest {
            self.arena.extend_from_slice(&crc32c(header).to_le_bytes());
        }
        let padded = start as usize + pdo;
        if self.arena.len() < padded {
            self.arena.resize(padded, 0);
        }
        start..self.position()
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the arena is bounded by items_max * ITEM_BYTES_MAX"
    )]
    fn position(&self) -> u32 {
        self.arena.len() as u32
    }

    /// Empties the batch for the next turn; the memory stays.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.items.clear();
    }

    fn slice(&self, range: &Range<u32>) -> &[u8] {
        self.arena
            .get(range.start as usize..range.end as usize)
            .unwrap_or(&[])
    }
}
