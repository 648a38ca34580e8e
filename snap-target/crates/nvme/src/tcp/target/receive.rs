//! The receiving half: PDUs of the host, in the order in which the state allows them.

use super::slots::{Entry, Phase};
use super::{Connection, Event, State, SuccessFlag, Want};
use crate::queue::admission::{Admission, Stage, admit};
use crate::queue::{Completion, Transfer};
use crate::tcp::batch::Slot;
use crate::tcp::pdu::{FatalError, Frame, Framing, Receiver, Taken, in_place};
use nvme_spec::command::SglId;
use nvme_spec::tcp::{
    ADMIN_CAPSULE_DATA_BYTES, CapsuleCmd, DGST_DATA, DGST_HEADER, DIGEST_BYTES, FLAG_LAST_PDU,
    H2cData, IcReq, PDA_MAX, PduType, TermReq, offset,
};
use nvme_spec::{Direction, Sqe, Status};
use zerocopy::FromBytes;

/// What the next bytes are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rx {
    Header,
    Data(Data),
    Digest(Digest),
    Closed,
}

/// The data of one PDU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    slot: Slot,
    /// Where the next byte goes in the slot's buffer.
    offset: u32,
    left: u32,
    /// Bytes before those that the command's descriptor is about: its offset in the capsule.
    skip: u32,
    /// A digest follows.
    digest: bool,
    /// Over the bytes so far.
    crc: u32,
    /// The bytes go nowhere.
    discard: bool,
}

impl Data {
    pub fn want(&self) -> Want {
        if self.discard {
            return Want::Discard(self.left);
        }
        if self.skip > 0 {
            // The digest is over these as well: they take the place of the bytes behind them, which come later.
            return Want::Payload {
                slot: self.slot,
                offset: 0,
                len: self.skip.min(self.left - self.skip),
                digest: self.digest,
            };
        }
        Want::Payload {
            slot: self.slot,
            offset: self.offset,
            len: self.left,
            digest: self.digest,
        }
    }
}

/// The digest after the data of one PDU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digest {
    data: Data,
    bytes: [u8; DIGEST_BYTES],
    filled: usize,
}

impl Digest {
    pub fn missing(&self) -> usize {
        DIGEST_BYTES - self.filled
    }
}

impl Connection {
    /// Takes header bytes: whole PDUs, parts of them, or several, and says how many it took. It stops where an event is
    /// pending, where payload comes next, or where [`Connection::want`] says so.
    pub fn headers(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while self.event.is_none()
            && let Some(rest) = bytes.get(used..)
            && !rest.is_empty()
        {
            let taken = match self.rx {
                Rx::Header => self.header_bytes(rest),
                Rx::Digest(digest) => self.digest_bytes(digest, rest),
                Rx::Data(_) | Rx::Closed => break,
            };
            used += taken;
            if self.stalled {
                break;
            }
        }
        used
    }

    /// The driver put the next `len` bytes where [`Want::Payload`] said, or dropped them for [`Want::Discard`]. `crc` is the CRC-32C
    /// of this PDU's data so far, these included; looked at only where the want said `digest`.
    pub fn payload(&mut self, len: u32, crc: u32) {
        let Rx::Data(ref mut data) = self.rx else {
            debug_assert!(len == 0, "payload() where none was wanted");
            return;
        };
        debug_assert!(len <= data.left, "payload() beyond what was wanted");
        let len = len.min(data.left);
        data.left -= len;
        let skipped = len.min(data.skip);
        data.skip -= skipped;
        data.offset += len - skipped;
        data.crc = crc;
        if data.left > 0 {
            return;
        }
        let data = *data;
        if data.digest {
            self.rx = Rx::Digest(Digest {
                data,
                bytes: [0; DIGEST_BYTES],
                filled: 0,
            });
        } else {
            self.rx = Rx::Header;
            self.data_arrived(data);
        }
    }

    /// The CRC-32C of the current PDU's data received so far; 0 before the first byte.
    pub fn payload_crc(&self) -> u32 {
        match self.rx {
            Rx::Data(ref data) => data.crc,
            _ => 0,
        }
    }

    /// One step of the header state; says how many bytes it took.
    fn header_bytes(&mut self, bytes: &[u8]) -> usize {
        if self.header.is_empty()
            && bytes.first() == Some(&PduType::CAPSULE_CMD.0)
            && self.slots.is_full()
        {
            return self.no_slot();
        }
        if self.header.is_empty() {
            match in_place(bytes, Receiver::Target, self.rx_framing) {
                Ok(Some((frame, header))) => {
                    if let Err(error) = self.pdu(&frame, header) {
                        self.fatal(error, header);
                    }
                    return frame.header_bytes;
                }
                Ok(None) => {}
                Err(error) => {
                    self.fatal(error, bytes);
                    return bytes.len();
                }
            }
        }
        self.header_pieces(bytes)
    }

    /// The same for a header that arrives in pieces.
    #[cold]
    fn header_pieces(&mut self, bytes: &[u8]) -> usize {
        // Taken out for the call, since the header lies in it while the connection handles the PDU.
        let mut buffer = std::mem::take(&mut self.header);
        let used = match buffer.take(bytes, Receiver::Target, self.rx_framing) {
            Ok(Taken::Partial) => bytes.len(),
            Ok(Taken::Whole {
                frame,
                header,
                used,
            }) => {
                if let Err(error) = self.pdu(&frame, header) {
                    self.fatal(error, header);
                }
                used
            }
            Err(error) => {
                let header = buffer.collected();
                self.fatal(error, header);
                bytes.len()
            }
        };
        self.header = buffer;
        used
    }

    /// A capsule comes and there is no slot for it: wait where the host is only ahead of our sends, end where it overruns its queue.
    fn no_slot(&mut self) -> usize {
        if self.slots.is_overrun() {
            self.fatal(
                FatalError::sequence("more commands are outstanding than the queue has entries"),
                &[],
            );
        } else {
            self.stalled = true;
        }
        0
    }

    fn pdu(&mut self, frame: &Frame, header: &[u8]) -> Result<(), FatalError> {
        match (self.state, frame.pdu_type) {
            (State::AwaitIcReq, PduType::IC_REQ) => self.ic_req(header),
            (_, PduType::H2C_TERM_REQ) => {
                let term = read::<TermReq>(header)?;
                let status = nvme_spec::tcp::FatalErrorStatus(term.fes.get());
                self.close(Event::HostTerminated {
                    status,
                    information: term.fei.get(),
                });
                Ok(())
            }
            (State::AwaitIcReq, _) => Err(FatalError::sequence("the first PDU is not ICReq")),
            (_, PduType::CAPSULE_CMD) => self.capsule(frame, header),
            (_, PduType::H2C_DATA) => self.h2c_data(frame, header),
            _ => Err(FatalError::sequence("a second ICReq")),
        }
    }

    fn ic_req(&mut self, header: &[u8]) -> Result<(), FatalError> {
        let request = read::<IcReq>(header)?;
        if request.pfv.get() != 0 {
            return Err(FatalError::unsupported(
                offset::PFV,
                "a PDU format version other than 0",
            ));
        }
        if request.hpda_z > PDA_MAX {
            return Err(FatalError::field(offset::PDA, "HPDA is greater than 31"));
        }
        let header_digest = self.limits.header_digest && request.dgst & DGST_HEADER != 0;
        let data_digest = self.limits.data_digest && request.dgst & DGST_DATA != 0;
        self.rx_framing = Framing {
            header_digest,
            data_digest,
            alignment_z: self.limits.alignment_z,
        };
        self.tx_framing = Framing {
            header_digest,
            data_digest,
            alignment_z: request.hpda_z,
        };
        self.state = State::Open(Stage::AwaitConnect);
        self.ic_resp = true;
        Ok(())
    }

    fn capsule(&mut self, frame: &Frame, header: &[u8]) -> Result<(), FatalError> {
        let capsule = read::<CapsuleCmd>(header)?;
        let in_capsule_max = self.limits.capsule_data_bytes.max(ADMIN_CAPSULE_DATA_BYTES);
        if frame.data_bytes > in_capsule_max {
            return Err(FatalError::field(
                offset::PLEN,
                "more in-capsule data than IOCCSZ allows",
            ));
        }
        let Some((slot, entry)) = self.slots.take(&capsule.sqe) else {
            return Err(FatalError::sequence(
                "more commands are outstanding than the queue has entries",
            ));
        };
        let direction = capsule.sqe.direction();
        entry.wire.received = frame.wire_bytes();
        entry.transfer = transfer(&capsule.sqe, direction, frame.data_bytes);
        entry.host_to_controller = direction == Direction::HostToController;
        let refused = matches!(entry.transfer, Transfer::Refused(_));
        if frame.data_bytes > 0 {
            if !refused {
                entry.phase = Phase::Capsule;
            }
            self.rx = Rx::Data(Data {
                slot,
                offset: 0,
                left: frame.data_bytes,
                // What comes before the bytes of the descriptor, which end the capsule.
                skip: frame.data_bytes - entry.transfer.bytes().min(frame.data_bytes),
                digest: frame.data_digest,
                crc: 0,
                discard: refused,
            });
        }
        self.command_arrived(slot, &capsule.sqe);
        Ok(())
    }

    /// Tells the driver, or answers for it what no state but a live one allows.
    fn command_arrived(&mut self, slot: Slot, sqe: &Sqe) {
        let State::Open(stage) = self.state else {
            return;
        };
        match admit(stage, sqe, || self.slots.is_taken_twice(slot)) {
            Admission::Connect => self.event = Some(Event::Connect { slot }),
            Admission::Command => self.event = Some(Event::Command { slot }),
            Admission::Refused(status) => self.respond(slot, Completion::of(status), 0),
        }
    }

    fn h2c_data(&mut self, frame: &Frame, header: &[u8]) -> Result<(), FatalError> {
        if self.state != State::Open(Stage::Live) && self.slots.oldest_request().is_none() {
            return Err(FatalError::sequence("H2CData before Connect"));
        }
        let pdu = read::<H2cData>(header)?;
        let h2c_data_bytes_max = self.limits.h2c_data_bytes_max;
        let Some((slot, entry)) = self.slots.of_ttag(pdu.ttag.get()) else {
            return Err(FatalError::field(
                offset::TTAG,
                "H2CData with a TTAG that no R2T carried",
            ));
        };
        check_h2c_data(pdu, frame, entry, h2c_data_bytes_max)?;
        entry.wire.received += frame.wire_bytes();
        self.rx = Rx::Data(Data {
            slot,
            offset: entry.received,
            left: frame.data_bytes,
            skip: 0,
            digest: frame.data_digest,
            crc: 0,
            discard: entry.phase != Phase::Receiving,
        });
        Ok(())
    }

    fn digest_bytes(&mut self, mut digest: Digest, bytes: &[u8]) -> usize {
        let count = digest.missing().min(bytes.len());
        if let (Some(to), Some(from)) = (
            digest.bytes.get_mut(digest.filled..digest.filled + count),
            bytes.get(..count),
        ) {
            to.copy_from_slice(from);
        }
        digest.filled += count;
        if digest.missing() > 0 {
            self.rx = Rx::Digest(digest);
            return count;
        }
        self.rx = Rx::Header;
        if !digest.data.discard && u32::from_le_bytes(digest.bytes) != digest.data.crc {
            self.slots.get_mut(digest.data.slot).corrupt = true;
        }
        self.data_arrived(digest.data);
        count
    }

    /// The data of one PDU are complete, digest included.
    fn data_arrived(&mut self, data: Data) {
        let entry = self.slots.get_mut(data.slot);
        match entry.phase {
            Phase::Capsule => {
                entry.phase = Phase::Held;
                self.event = Some(Self::data_event(data.slot, entry));
            }
            Phase::Receiving => {
                entry.received = data.offset;
                if entry.owes_data() {
                    return;
                }
                if entry.received < entry.transfer.bytes() {
                    self.outgoing.push_back(data.slot);
                } else {
                    entry.phase = Phase::Held;
                    self.event = Some(Self::data_event(data.slot, entry));
                }
            }
            Phase::Answered | Phase::Sent | Phase::Owed if entry.owes_data() => {
                entry.received = data.offset;
                if entry.phase == Phase::Owed && !entry.owes_data() {
                    self.slots.release(data.slot);
                    self.stalled = false;
                }
            }
            // Discarded in-capsule data of a command that was answered or refused.
            _ => {}
        }
    }

    fn data_event(slot: Slot, entry: &Entry) -> Event {
        if entry.corrupt {
            Event::DataCorrupt { slot }
        } else {
            Event::DataReady { slot }
        }
    }

    /// Payload of this slot that is still to come goes nowhere.
    pub(super) fn discard_payload_of(&mut self, slot: Slot) {
        match self.rx {
            Rx::Data(ref mut data) if data.slot == slot => data.discard = true,
            Rx::Digest(ref mut digest) if digest.data.slot == slot => digest.data.discard = true,
            _ => {}
        }
    }

    /// True where responses to successful reads need no capsule of their own.
    pub(super) fn uses_success_flag(&self) -> bool {
        match self.limits.success_flag {
            SuccessFlag::Never => false,
            SuccessFlag::WithoutFlowControl => !self.flow_control.enabled,
            SuccessFlag::Always => true,
        }
    }
}

/// TCP, "H2CData PDU": it belongs to an R2T that is out, continues where the last one ended, and stays inside.
fn check_h2c_data(
    pdu: &H2cData,
    frame: &Frame,
    entry: &Entry,
    h2c_data_bytes_max: u32,
) -> Result<(), FatalError> {
    if !entry.owes_data() {
        return Err(FatalError::field(
            offset::TTAG,
            "H2CData for a command that has no R2T outstanding",
        ));
    }
    if pdu.cccid != entry.sqe.cid {
        return Err(FatalError::field(
            offset::CCCID,
            "H2CData whose CCCID is not that of its TTAG",
        ));
    }
    if pdu.datal.get() != frame.data_bytes {
        return Err(FatalError::field(
            offset::DATAL,
            "H2CData whose DATAL is not the length of its data",
        ));
    }
    if frame.data_bytes > h2c_data_bytes_max {
        return Err(FatalError::limit("H2CData with more than MAXH2CDATA bytes"));
    }
    if pdu.datao.get() != entry.received {
        return Err(FatalError::range(
            "H2CData that does not continue where the last one ended",
        ));
    }
    if frame.data_bytes > entry.requested - entry.received {
        return Err(FatalError::range("H2CData beyond the end of its R2T"));
    }
    let last = frame.data_bytes == entry.requested - entry.received;
    if last != (frame.flags & FLAG_LAST_PDU != 0) {
        return Err(FatalError::field(
            offset::FLAGS,
            "LAST_PDU is not set at the end of the R2T's data alone",
        ));
    }
    Ok(())
}

/// Reads the SGL descriptor of a command against the data that came in its capsule (TCP, "Data Transfers").
fn transfer(sqe: &Sqe, direction: Direction, capsule_bytes: u32) -> Transfer {
    if direction == Direction::None || direction == Direction::Bidirectional {
        return match capsule_bytes {
            0 => Transfer::None,
            _ => Transfer::Refused(Status::DATA_SGL_LENGTH_INVALID.dnr()),
        };
    }
    // Base, "PSDT": fabrics commands use SGLs, with a contiguous metadata buffer.
    if sqe.psdt() != 0b01 {
        return Transfer::Refused(Status::INVALID_FIELD.dnr());
    }
    let (offset_bytes, bytes) = (sqe.dptr.address.get(), sqe.dptr.length.get());
    match sqe.dptr.id() {
        SglId::TRANSPORT_DATA_BLOCK if capsule_bytes != 0 => {
            Transfer::Refused(Status::DATA_SGL_LENGTH_INVALID.dnr())
        }
        SglId::TRANSPORT_DATA_BLOCK if bytes == 0 => Transfer::None,
        SglId::TRANSPORT_DATA_BLOCK => Transfer::Remote { bytes },
        SglId::IN_CAPSULE_OFFSET if direction == Direction::ControllerToHost => {
            Transfer::Refused(Status::SGL_TYPE_INVALID.dnr())
        }
        SglId::IN_CAPSULE_OFFSET if offset_bytes > u64::from(capsule_bytes) => {
            Transfer::Refused(Status::SGL_OFFSET_INVALID.dnr())
        }
        // SGLS: no longer and no shorter than the data, so that they end the capsule; nothing of none is no place in it.
        SglId::IN_CAPSULE_OFFSET
            if offset_bytes + u64::from(bytes) != capsule_bytes.into()
                || (bytes == 0 && capsule_bytes != 0) =>
        {
            Transfer::Refused(Status::DATA_SGL_LENGTH_INVALID.dnr())
        }
        SglId::IN_CAPSULE_OFFSET if bytes == 0 => Transfer::None,
        SglId::IN_CAPSULE_OFFSET => Transfer::InCapsule { bytes },
        _ => Transfer::Refused(Status::SGL_TYPE_INVALID.dnr()),
    }
}

/// A PDU's header under its type. The frame's HLEN has been checked, so it is there.
fn read<T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned>(
    header: &[u8],
) -> Result<&T, FatalError> {
    T::ref_from_prefix(header)
        .map(|(pdu, _)| pdu)
        .map_err(|_| FatalError::field(offset::HLEN, "the header is shorter than its type"))
}
