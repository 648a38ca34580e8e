//! The sending half: ICReq, CapsuleCmd, H2CData, H2CTermReq.

use nvme_spec::tcp::{
    CAPSULE_CMD_BYTES, CapsuleCmd, DATA_HEADER_BYTES, FLAG_LAST_PDU, H2cData, PduType,
    TERM_BYTES_MAX, TermReq,
};
use nvme_spec::{SglDescriptor, U16, U32};
use zerocopy::IntoBytes;

use super::slots::Entry;
use super::{Connection, Negotiated, Phase, Slot, Transfer, TxBatch, negotiation};
use crate::tcp::batch::Payload;
use crate::tcp::pdu::{FatalError, Framing};

/// PSDT = 01b in FLAGS: SGLs, no metadata.
const PSDT_SGL: u8 = 0b01 << 6;
const PSDT_MASK: u8 = 0b11 << 6;

/// An H2CTermReq to send, with the start of the PDU at fault behind it.
#[derive(Clone, Debug)]
pub(super) struct Term {
    bytes: [u8; TERM_BYTES_MAX],
    len: usize,
}

impl Term {
    pub fn new(error: FatalError, fault: &[u8]) -> Term {
        let mut common = Framing::default().common(PduType::H2C_TERM_REQ, 0, DATA_HEADER_BYTES);
        let fault_len = fault.len().min(TERM_BYTES_MAX - DATA_HEADER_BYTES);
        #[expect(clippy::cast_possible_truncation, reason = "at most 128")]
        let plen = common.plen + U32::new(fault_len as u32);
        common.plen = plen;
        let header = TermReq {
            common,
            fes: U16::new(error.status.0),
            fei: U32::new(error.information),
            reserved_14: [0; 10],
        };
        let mut bytes = [0; TERM_BYTES_MAX];
        let source = header.as_bytes().iter().chain(fault);
        for (to, from) in bytes.iter_mut().zip(source) {
            *to = *from;
        }
        Term {
            bytes,
            len: DATA_HEADER_BYTES + fault_len,
        }
    }
}

impl Connection {
    pub(super) fn fill(&mut self, batch: &mut TxBatch) {
        if batch.room() == 0 {
            return;
        }
        match &mut self.phase {
            Phase::Greeting { sent, .. } if !*sent => {
                *sent = true;
                let request = negotiation::request(&self.options);
                batch.push(request.as_bytes(), false, None);
            }
            Phase::Greeting { .. } => {}
            Phase::Ready => self.fill_commands(batch),
            Phase::Failed { term } => {
                if let Some(term) = term.take() {
                    let bytes = term.bytes.get(..term.len).unwrap_or(&term.bytes);
                    batch.push(bytes, false, None);
                }
            }
        }
    }

    fn fill_commands(&mut self, batch: &mut TxBatch) {
        while batch.room() > 0
            && let Some(&slot) = self.to_send.front()
        {
            let finished = match self.slots.get_mut(slot) {
                Some(entry) if !entry.sent => {
                    push_capsule(entry, slot, self.negotiated.sent_framing(), batch);
                    true
                }
                Some(entry) => push_data(entry, slot, self.negotiated, batch),
                None => true,
            };
            if finished {
                self.to_send.pop_front();
            }
        }
    }
}

fn push_capsule(entry: &mut Entry, slot: Slot, framing: Framing, batch: &mut TxBatch) {
    entry.sent = true;
    let len = entry.transfer.bytes();
    let mut sqe = entry.sqe;
    sqe.flags = sqe.flags & !PSDT_MASK | PSDT_SGL;
    sqe.cid = U16::new(entry.cid);
    sqe.dptr = match entry.transfer {
        Transfer::Out(_) if entry.way.in_capsule => SglDescriptor::in_capsule(0, len),
        // Without data: of length 0. The opcode of Set Features, for one, says that data go to the controller, so that the
        // descriptor is looked at.
        Transfer::None | Transfer::In(_) | Transfer::Out(_) => SglDescriptor::transport(len),
    };
    if entry.way.in_capsule {
        let common = framing.common_with_data(PduType::CAPSULE_CMD, 0, CAPSULE_CMD_BYTES, len);
        let capsule = CapsuleCmd { common, sqe };
        let payload = Payload {
            slot,
            offset: 0,
            len,
        };
        entry.way.lent_items += 1;
        batch.push_data(capsule.as_bytes(), framing, payload, Some(slot));
    } else {
        let common = framing.common(PduType::CAPSULE_CMD, 0, CAPSULE_CMD_BYTES);
        let capsule = CapsuleCmd { common, sqe };
        batch.push(capsule.as_bytes(), framing.header_digest, None);
    }
}

/// Hands out one H2CData of what was granted; true when it was the last.
fn push_data(entry: &mut Entry, slot: Slot, negotiated: Negotiated, batch: &mut TxBatch) -> bool {
    let left = entry.way.grant.end - entry.way.grant.next;
    let len = left.min(negotiated.maxh2cdata);
    if len == 0 {
        return true;
    }
    let framing = negotiated.sent_framing();
    let last = if len == left { FLAG_LAST_PDU } else { 0 };
    let payload = Payload {
        slot,
        offset: entry.way.grant.next,
        len,
    };
    let header = H2cData {
        common: framing.common_with_data(PduType::H2C_DATA, last, DATA_HEADER_BYTES, len),
        cccid: U16::new(entry.cid),
        ttag: entry.way.grant.ttag,
        datao: U32::new(payload.offset),
        datal: U32::new(len),
        reserved_20: [0; 4],
    };
    entry.way.grant.next += len;
    entry.way.lent_items += 1;
    batch.push_data(header.as_bytes(), framing, payload, Some(slot));
    len == left
}
