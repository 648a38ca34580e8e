//! What comes from the controller: each PDU checked against the command it names before anything is done with it.

use nvme_spec::tcp::{
    C2hData, CapsuleResp, DIGEST_BYTES, FLAG_LAST_PDU, FLAG_SUCCESS, FatalErrorStatus, PduType,
    R2t, TermReq, offset,
};
use nvme_spec::{Cqe, U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::slots::Grant;
use super::{Connection, Event, HostError, Negotiated, Phase, Slot, Transfer, Want};
use crate::tcp::pdu::{FatalError, Frame, Receiver, Taken, in_place};

/// Byte offset of the command identifier in a CapsuleResp, for FEI.
const CAPSULE_RESP_CID: u32 = 8 + 12;

/// Where in the stream the receiver is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rx {
    Header,
    Data(Data),
    Digest(Digest),
    Closed,
}

/// The data of one C2HData.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    slot: Slot,
    cid: u16,
    start: u32,
    next: u32,
    end: u32,
    success: bool,
}

/// The digest behind the data of one C2HData.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digest {
    data: Data,
    computed: u32,
    received: [u8; DIGEST_BYTES],
    filled: usize,
}

impl Connection {
    /// What the machine can take next.
    pub fn want(&self) -> Want {
        match &self.rx {
            Rx::Header => Want::Header(self.header.missing()),
            Rx::Data(data) if self.is_abandoned(data.slot) => Want::Discard(data.end - data.next),
            Rx::Data(data) => Want::Payload {
                slot: data.slot,
                offset: data.next,
                len: data.end - data.next,
                digest_from: self.negotiated.data_digest.then_some(data.start),
            },
            Rx::Digest(digest) => Want::Header(DIGEST_BYTES - digest.filled),
            Rx::Closed => Want::Closed,
        }
    }

    fn is_abandoned(&self, slot: Slot) -> bool {
        self.slots.get(slot).is_some_and(|entry| entry.abandoned)
    }

    /// Takes header bytes, of several PDUs if they are there; says how many. It stops where payload begins and where the
    /// connection ended.
    pub fn headers(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while let Some(rest @ [_, ..]) = bytes.get(used..) {
            used += match self.rx {
                Rx::Header if self.header.is_empty() => self.whole_header(rest),
                Rx::Header => self.header_in_pieces(rest),
                Rx::Digest(digest) => self.data_digest(digest, rest),
                Rx::Data(_) | Rx::Closed => break,
            };
        }
        used
    }

    /// `len` bytes were put where [`Want::Payload`] said, or dropped for [`Want::Discard`]. `crc`: where it said `digest_from`, and once the last byte is
    /// there, the CRC-32C of the PDU's data; it is not looked at before.
    pub fn payload(&mut self, len: u32, crc: u32) {
        let Rx::Data(ref mut data) = self.rx else {
            return;
        };
        data.next += len.min(data.end - data.next);
        if data.next < data.end {
            return;
        }
        let data = *data;
        if self.negotiated.data_digest {
            self.rx = Rx::Digest(Digest {
                data,
                computed: crc,
                received: [0; DIGEST_BYTES],
                filled: 0,
            });
        } else {
            self.data_complete(data);
        }
    }

    /// One PDU's header, where it lies whole in `bytes`; says how many it took.
    fn whole_header(&mut self, bytes: &[u8]) -> usize {
        match in_place(bytes, Receiver::Host, self.negotiated.received_framing()) {
            Ok(Some((frame, header))) => {
                if let Err(error) = self.pdu(&frame, header) {
                    self.fail(error, header);
                }
                frame.header_bytes
            }
            Ok(None) => self.header_in_pieces(bytes),
            Err(error) => {
                self.fail(error.into(), bytes);
                bytes.len()
            }
        }
    }

    #[cold]
    fn header_in_pieces(&mut self, bytes: &[u8]) -> usize {
        // Taken out for the call, since the header lies in it while the connection handles the PDU.
        let mut buffer = std::mem::take(&mut self.header);
        let framing = self.negotiated.received_framing();
        let used = match buffer.take(bytes, Receiver::Host, framing) {
            Ok(Taken::Partial) => bytes.len(),
            Ok(Taken::Whole {
                frame,
                header,
                used,
            }) => {
                if let Err(error) = self.pdu(&frame, header) {
                    self.fail(error, header);
                }
                used
            }
            Err(error) => {
                self.fail(error.into(), buffer.collected());
                bytes.len()
            }
        };
        self.header = buffer;
        used
    }

    fn pdu(&mut self, frame: &Frame, header: &[u8]) -> Result<(), HostError> {
        match (&self.phase, frame.pdu_type) {
            (_, PduType::C2H_TERM_REQ) => {
                let term = read::<TermReq>(header)?;
                Err(HostError::Terminated {
                    status: FatalErrorStatus(term.fes.get()),
                    information: term.fei.get(),
                })
            }
            (Phase::Greeting { sent: true, .. }, PduType::IC_RESP) => self.ic_resp(header),
            (Phase::Greeting { .. }, _) => {
                Err(FatalError::sequence("a PDU other than ICResp, which comes first").into())
            }
            (_, PduType::C2H_DATA) => Ok(self.c2h_data(frame, header)?),
            (_, PduType::CAPSULE_RESP) => Ok(self.response(header)?),
            (_, PduType::R2T) => Ok(self.r2t(header)?),
            _ => Err(FatalError::sequence("a second ICResp").into()),
        }
    }

    fn ic_resp(&mut self, header: &[u8]) -> Result<(), HostError> {
        self.negotiated = Negotiated::of(read(header)?, &self.options)?;
        self.phase = Phase::Ready;
        self.events.push_back(Event::Ready(self.negotiated));
        Ok(())
    }

    fn c2h_data(&mut self, frame: &Frame, header: &[u8]) -> Result<(), FatalError> {
        let pdu = read::<C2hData>(header)?;
        let cid = pdu.cccid.get();
        let (slot, entry) = self.slots.find(cid).ok_or(FatalError::field(
            offset::CCCID,
            "C2HData for a command that is not outstanding",
        ))?;
        let Transfer::In(bytes) = entry.transfer else {
            return Err(FatalError::field(
                offset::CCCID,
                "C2HData for a command that reads no data",
            ));
        };
        if entry.way.last_data {
            return Err(FatalError::sequence("C2HData after the command's last"));
        }
        let (start, len) = (pdu.datao.get(), pdu.datal.get());
        if len != frame.data_bytes {
            return Err(FatalError::field(
                offset::DATAL,
                "DATAL is not the length of the PDU's data",
            ));
        }
        let end = start.checked_add(len).filter(|&end| end <= bytes);
        let end = end.ok_or(FatalError::range("C2HData beyond the command's length"))?;
        if start != entry.way.moved {
            return Err(FatalError::range(
                "C2HData out of order: it leaves a gap or overlaps",
            ));
        }
        entry.way.last_data = frame.flags & FLAG_LAST_PDU != 0;
        let success = frame.flags & FLAG_SUCCESS != 0;
        if success && !entry.way.last_data {
            return Err(FatalError::field(offset::FLAGS, "SUCCESS without LAST_PDU"));
        }
        if success && end != bytes {
            return Err(FatalError::range(
                "SUCCESS before all of the command's data",
            ));
        }
        self.rx = Rx::Data(Data {
            slot,
            cid,
            start,
            next: start,
            end,
            success,
        });
        Ok(())
    }

    fn data_complete(&mut self, data: Data) {
        self.rx = Rx::Header;
        if let Some(entry) = self.slots.get_mut(data.slot) {
            entry.way.moved = data.end;
        }
        if data.success {
            let cqe = Cqe {
                dw0: U32::ZERO,
                dw1: U32::ZERO,
                sqhd: U16::ZERO,
                sqid: U16::ZERO,
                cid: U16::new(data.cid),
                status_and_phase: U16::ZERO,
            };
            self.slots.respond(data.slot, cqe);
            self.complete_if_done(data.slot);
        }
    }

    /// One step of the digest behind data; says how many bytes it took.
    fn data_digest(&mut self, mut digest: Digest, bytes: &[u8]) -> usize {
        let mut used = 0;
        for (to, from) in digest.received.iter_mut().skip(digest.filled).zip(bytes) {
            *to = *from;
            used += 1;
        }
        digest.filled += used;
        self.rx = Rx::Digest(digest);
        if digest.filled < DIGEST_BYTES {
            return used;
        }
        let data = digest.data;
        if digest.computed != u32::from_le_bytes(digest.received)
            && let Some(entry) = self.slots.get_mut(data.slot)
            && !entry.abandoned
        {
            entry.way.corrupt = true;
            self.data_digest_errors += 1;
        }
        self.data_complete(data);
        used
    }

    fn response(&mut self, header: &[u8]) -> Result<(), FatalError> {
        let cqe = read::<CapsuleResp>(header)?.cqe;
        let (slot, entry) = self.slots.find(cqe.cid.get()).ok_or(FatalError::field(
            CAPSULE_RESP_CID,
            "a response for a command that is not outstanding",
        ))?;
        if cqe.status().is_success() && !entry.moved_all() {
            return Err(FatalError::sequence(
                "success before all of the command's data moved",
            ));
        }
        self.slots.respond(slot, cqe);
        self.complete_if_done(slot);
        Ok(())
    }

    fn r2t(&mut self, header: &[u8]) -> Result<(), FatalError> {
        let pdu = read::<R2t>(header)?;
        let (slot, entry) = self.slots.find(pdu.cccid.get()).ok_or(FatalError::field(
            offset::CCCID,
            "R2T for a command that is not outstanding",
        ))?;
        let Transfer::Out(bytes) = entry.transfer else {
            return Err(FatalError::field(
                offset::CCCID,
                "R2T for a command that writes no data",
            ));
        };
        let (start, len) = (pdu.r2to.get(), pdu.r2tl.get());
        if len == 0 {
            return Err(FatalError::field(offset::DATAL, "R2T for no data"));
        }
        if entry.way.grant.next != entry.way.grant.end {
            return Err(FatalError::limit(
                "a second R2T before the first one's data left (MAXR2T is 1)",
            ));
        }
        let end = start.checked_add(len).filter(|&end| end <= bytes);
        let end = end.ok_or(FatalError::range("R2T beyond the command's length"))?;
        if start != entry.way.moved {
            return Err(FatalError::range(
                "R2T out of order: it leaves a gap or asks again",
            ));
        }
        entry.way.moved = end;
        entry.way.grant = Grant {
            ttag: pdu.ttag,
            next: start,
            end,
        };
        self.to_send.push_back(slot);
        Ok(())
    }
}

/// A PDU's header under its type. The frame's HLEN has been checked, so it is there.
fn read<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    header: &[u8],
) -> Result<&T, FatalError> {
    T::ref_from_prefix(header)
        .map(|(pdu, _)| pdu)
        .map_err(|_| FatalError::field(offset::HLEN, "the header is shorter than its type"))
}
