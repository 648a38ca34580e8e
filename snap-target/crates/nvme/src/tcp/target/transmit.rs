//! The sending half: ICResp, R2T, C2HData, CapsuleResp, C2HTermReq.

use super::slots::{Entry, Phase};
use super::{Connection, Event};
use crate::tcp::batch::{Payload, Slot, TxBatch};
use crate::tcp::pdu::{FatalError, Framing, wire_bytes};
use nvme_spec::tcp::{
    C2hData, CAPSULE_RESP_BYTES, CapsuleResp, DATA_HEADER_BYTES, DGST_DATA, DGST_HEADER,
    FLAG_LAST_PDU, FLAG_SUCCESS, IC_BYTES, IcResp, PduType, R2t, TERM_BYTES_MAX, TermReq,
};
use nvme_spec::{Cqe, U16, U32};
use zerocopy::IntoBytes;

/// Bytes of the faulty PDU's header that go back with C2HTermReq.
const FAULT_BYTES_MAX: usize = TERM_BYTES_MAX - DATA_HEADER_BYTES;
const _: () = assert!(FAULT_BYTES_MAX == 128);

/// A C2HTermReq to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    error: FatalError,
    fault: [u8; FAULT_BYTES_MAX],
    fault_len: u8,
}

impl Connection {
    /// Ends the connection with a C2HTermReq that carries the start of the PDU at fault.
    pub(super) fn fatal(&mut self, error: FatalError, header: &[u8]) {
        let mut term = Term {
            error,
            fault: [0; FAULT_BYTES_MAX],
            fault_len: 0,
        };
        for (to, from) in term.fault.iter_mut().zip(header) {
            *to = *from;
            term.fault_len += 1;
        }
        self.close(Event::Fatal(error));
        self.term = Some(term);
    }

    pub(super) fn fill(&mut self, batch: &mut TxBatch) {
        if batch.room() == 0 {
            return;
        }
        if let Some(term) = self.term.take() {
            push_term(batch, &term);
        }
        if self.ic_resp && batch.room() > 0 {
            self.ic_resp = false;
            self.push_ic_resp(batch);
        }
        while batch.room() > 0
            && let Some(&slot) = self.outgoing.front()
        {
            let finished = match self.slots.get(slot).phase {
                Phase::Receiving => self.push_r2t(batch, slot),
                Phase::Answered => self.push_answer(batch, slot),
                _ => true,
            };
            if finished {
                self.outgoing.pop_front();
            }
        }
    }

    fn push_ic_resp(&self, batch: &mut TxBatch) {
        let mut dgst = 0;
        if self.tx_framing.header_digest {
            dgst |= DGST_HEADER;
        }
        if self.tx_framing.data_digest {
            dgst |= DGST_DATA;
        }
        let response = IcResp {
            common: Framing::default().common(PduType::IC_RESP, 0, IC_BYTES),
            pfv: U16::ZERO,
            cpda_z: self.limits.alignment_z,
            dgst,
            maxh2cdata: U32::new(self.limits.h2c_data_bytes_max),
            reserved_16: [0; 112],
        };
        batch.push(response.as_bytes(), false, None);
    }

    /// Asks for the next part of a command's data. One R2T of a command is outstanding at a time.
    fn push_r2t(&mut self, batch: &mut TxBatch, slot: Slot) -> bool {
        let r2t_bytes_max = self.limits.r2t_bytes_max;
        let entry = self.slots.get_mut(slot);
        let len = (entry.transfer.bytes() - entry.requested).min(r2t_bytes_max);
        let r2t = R2t {
            common: self.tx_framing.common(PduType::R2T, 0, DATA_HEADER_BYTES),
            cccid: self.slots.sqe(slot).cid,
            ttag: U16::new(slot.0),
            r2to: U32::new(self.slots.get(slot).requested),
            r2tl: U32::new(len),
            reserved_20: [0; 4],
        };
        batch.push(r2t.as_bytes(), self.tx_framing.header_digest, None);
        let entry = self.slots.get_mut(slot);
        entry.requested += len;
        entry.wire.sent += wire_bytes(&r2t.common);
        true
    }

    /// What the answer to a command takes on the wire, data and response.
    pub(super) fn answer_wire_bytes(&self, slot: Slot) -> u64 {
        let (entry, framing) = (self.slots.get(slot), self.tx_framing);
        let pdus = entry.data_len.div_ceil(self.limits.c2h_data_bytes_max);
        // Of a PDU whose data have no byte: what each has besides.
        let besides = framing.common_with_data(PduType::C2H_DATA, 0, DATA_HEADER_BYTES, 0);
        let response = framing.common(PduType::CAPSULE_RESP, 0, CAPSULE_RESP_BYTES);
        let is_silent = pdus > 0 && self.uses_success_flag() && entry.completes_silently();
        let response = if is_silent { 0 } else { wire_bytes(&response) };
        u64::from(pdus) * wire_bytes(&besides) + u64::from(entry.data_len) + response
    }

    /// The next PDU of an answer: data, or the response. True when it was the last.
    fn push_answer(&mut self, batch: &mut TxBatch, slot: Slot) -> bool {
        let entry = self.slots.get(slot);
        let ended = if entry.data_sent < entry.data_len {
            self.push_c2h_data(batch, slot)
        } else {
            self.push_capsule_resp(batch, slot);
            true
        };
        if ended {
            self.slots.get_mut(slot).phase = Phase::Sent;
        }
        ended
    }

    fn push_c2h_data(&mut self, batch: &mut TxBatch, slot: Slot) -> bool {
        let entry = self.slots.get(slot);
        let offset = entry.data_sent;
        let len = (entry.data_len - offset).min(self.limits.c2h_data_bytes_max);
        let last = offset + len == entry.data_len;
        let success = last && self.uses_success_flag() && entry.completes_silently();
        let mut flags = 0;
        if last {
            flags |= FLAG_LAST_PDU;
        }
        if success {
            flags |= FLAG_SUCCESS;
        }
        let framing = self.tx_framing;
        let data = C2hData {
            common: framing.common_with_data(PduType::C2H_DATA, flags, DATA_HEADER_BYTES, len),
            cccid: entry.sqe.cid,
            reserved_10: [0; 2],
            datao: U32::new(offset),
            datal: U32::new(len),
            reserved_20: [0; 4],
        };
        let payload = Payload { slot, offset, len };
        batch.push_data(data.as_bytes(), framing, payload, success.then_some(slot));
        self.slots.get_mut(slot).data_sent = offset + len;
        if success {
            self.flow_control.advance();
        }
        success
    }

    fn push_capsule_resp(&mut self, batch: &mut TxBatch, slot: Slot) {
        let sqhd = self.flow_control.advance();
        let entry = self.slots.get(slot);
        let response = CapsuleResp {
            common: self
                .tx_framing
                .common(PduType::CAPSULE_RESP, 0, CAPSULE_RESP_BYTES),
            cqe: Cqe {
                dw0: U32::new(entry.completion.dw0),
                dw1: U32::new(entry.completion.dw1),
                sqhd: U16::new(sqhd),
                sqid: U16::ZERO,
                cid: entry.sqe.cid,
                status_and_phase: U16::new(entry.completion.status.to_wire()),
            },
        };
        batch.push(
            response.as_bytes(),
            self.tx_framing.header_digest,
            Some(slot),
        );
    }
}

impl Entry {
    /// Nothing would be lost without a response capsule.
    fn completes_silently(&self) -> bool {
        self.completion == crate::queue::Completion::SUCCESS
    }
}

fn push_term(batch: &mut TxBatch, term: &Term) {
    let mut common = Framing::default().common(PduType::C2H_TERM_REQ, 0, DATA_HEADER_BYTES);
    common.plen += U32::new(u32::from(term.fault_len));
    let request = TermReq {
        common,
        fes: U16::new(term.error.status.0),
        fei: U32::new(term.error.information),
        reserved_14: [0; 10],
    };
    let mut bytes = [0; TERM_BYTES_MAX];
    for (to, from) in bytes
        .iter_mut()
        .zip(request.as_bytes().iter().chain(&term.fault))
    {
        *to = *from;
    }
    let plen = DATA_HEADER_BYTES + usize::from(term.fault_len);
    batch.push(bytes.get(..plen).unwrap_or(&bytes), false, None);
}
