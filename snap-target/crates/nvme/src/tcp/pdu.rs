//! From bytes to one PDU's frame: what follows, how long it is, and whether it may be there at all (TCP 1.0, clause 3.6).
//!
//! Both ends read their peer through [`Frame::parse`]; only [`Receiver`] differs. It checks what the common header alone
//! says; what depends on a connection's state or a command is the machines' own.

use crate::digest::crc32c;
use nvme_spec::U32;
use nvme_spec::tcp::{
    CAPSULE_CMD_BYTES, CAPSULE_RESP_BYTES, COMMON_HEADER_BYTES, CommonHeader, DATA_HEADER_BYTES,
    DIGEST_BYTES, FLAG_DDGST, FLAG_HDGST, FatalErrorStatus, IC_BYTES, PduType, TERM_BYTES_MAX,
    offset,
};

/// Most bytes before a PDU's data: PDO is one byte.
pub const HEADER_BYTES_MAX: usize = 255;

/// Which end reads, and so which PDUs may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The controller reads what the host sends.
    Target,
    /// The host reads what the controller sends.
    Host,
}

/// What ICReq and ICResp settled for the PDUs that one end receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Framing {
    /// Each PDU's header is followed by its digest.
    pub header_digest: bool,
    /// Data are followed by their digest.
    pub data_digest: bool,
    /// Data start at a multiple of (this + 1) * 4 bytes: CPDA for what the host sends, HPDA for what the controller sends.
    pub alignment_z: u8,
}

impl Framing {
    /// The common header of a PDU of ours without data.
    pub fn common(self, pdu_type: PduType, flags: u8, hlen: usize) -> CommonHeader {
        let (digest_flag, digest_bytes) = if self.header_digest {
            (FLAG_HDGST, DIGEST_BYTES)
        } else {
            (0, 0)
        };
        CommonHeader {
            pdu_type,
            flags: flags | digest_flag,
            hlen: byte(hlen),
            pdo: 0,
            plen: U32::new(u32::from(byte(hlen + digest_bytes))),
        }
    }

    /// The common header of a PDU of ours with data: they start at the PDO that it names.
    pub fn common_with_data(
        self,
        pdu_type: PduType,
        flags: u8,
        hlen: usize,
        data_bytes: u32,
    ) -> CommonHeader {
        let pdo = byte(self.header_bytes(hlen));
        let header_flag = if self.header_digest { FLAG_HDGST } else { 0 };
        let (data_flag, trailer) = if self.data_digest {
            (FLAG_DDGST, DIGEST_LEN)
        } else {
            (0, 0)
        };
        CommonHeader {
            pdu_type,
            flags: flags | header_flag | data_flag,
            hlen: byte(hlen),
            pdo,
            plen: U32::new((u32::from(pdo) + trailer).saturating_add(data_bytes)),
        }
    }

    /// Bytes before the data of a PDU with header length `hlen`: header, digest, padding to the alignment.
    pub fn header_bytes(self, hlen: usize) -> usize {
        let unpadded = hlen + if self.header_digest { DIGEST_BYTES } else { 0 };
        unpadded.next_multiple_of((usize::from(self.alignment_z) + 1) * 4)
    }
}

/// All bytes of a PDU of ours that a common header begins.
pub fn wire_bytes(common: &CommonHeader) -> u64 {
    u64::from(common.plen.get())
}

/// DIGEST_BYTES as lengths on the wire count it.
const DIGEST_LEN: u32 = 4;
const _: () = assert!(DIGEST_LEN as usize == DIGEST_BYTES);

/// A header length or PDO of our own: below 256 for every PDU type, digest and alignment.
#[expect(
    clippy::cast_possible_truncation,
    reason = "see above: at most (72 + 4) padded to 128"
)]
fn byte(len: usize) -> u8 {
    debug_assert!(len <= HEADER_BYTES_MAX);
    len as u8
}

/// An error after which the connection ends (TCP, "Error Handling Model"): the fields of the TermReq PDU, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("NVMe/TCP {status:?} (FEI {information:#x}): {why}")]
pub struct FatalError {
    /// FES.
    pub status: FatalErrorStatus,
    /// FEI.
    pub information: u32,
    /// For people.
    pub why: &'static str,
}

impl FatalError {
    /// A header field at byte `field` holds what it may not.
    pub const fn field(field: u32, why: &'static str) -> FatalError {
        FatalError {
            status: FatalErrorStatus::INVALID_PDU_HEADER_FIELD,
            information: field,
            why,
        }
    }

    /// A PDU that the state does not allow.
    pub const fn sequence(why: &'static str) -> FatalError {
        FatalError {
            status: FatalErrorStatus::PDU_SEQUENCE_ERROR,
            information: 0,
            why,
        }
    }

    /// Data outside of what was asked for.
    pub const fn range(why: &'static str) -> FatalError {
        FatalError {
            status: FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE,
            information: 0,
            why,
        }
    }

    /// Data beyond MAXH2CDATA, or R2Ts beyond MAXR2T.
    pub const fn limit(why: &'static str) -> FatalError {
        FatalError {
            status: FatalErrorStatus::LIMIT_EXCEEDED,
            information: 0,
            why,
        }
    }

    /// The parameter at byte `field` is not supported.
    pub const fn unsupported(field: u32, why: &'static str) -> FatalError {
        FatalError {
            status: FatalErrorStatus::UNSUPPORTED_PARAMETER,
            information: field,
            why,
        }
    }
}

/// One PDU's shape, as its common header gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Which PDU.
    pub pdu_type: PduType,
    /// FLAGS.
    pub flags: u8,
    /// HLEN: common and specific header; a header digest follows at this offset where negotiated.
    pub hlen: usize,
    /// Bytes before the data: header, digest, padding. At most [`HEADER_BYTES_MAX`].
    pub header_bytes: usize,
    /// Data bytes that follow.
    pub data_bytes: u32,
    /// A header digest is there.
    pub header_digest: bool,
    /// A data digest follows the data.
    pub data_digest: bool,
}

impl Frame {
    /// All bytes of the PDU.
    pub fn wire_bytes(&self) -> u64 {
        let trailer = if self.data_digest { DIGEST_LEN } else { 0 };
        self.header_bytes as u64 + u64::from(self.data_bytes) + u64::from(trailer)
    }

    /// Reads and checks a common header. The connection must end on an error: the stream cannot be followed any further.
    pub fn parse(
        common: &CommonHeader,
        receiver: Receiver,
        framing: Framing,
    ) -> Result<Frame, FatalError> {
        let rules = Rules::of(common.pdu_type, receiver)?;
        let hlen = usize::from(common.hlen);
        if hlen != rules.hlen {
            return Err(FatalError::field(
                offset::HLEN,
                "HLEN is not the length that this PDU type has",
            ));
        }
        let header_digest = rules.digests && framing.header_digest;
        if header_digest != (common.flags & FLAG_HDGST != 0) && rules.digests {
            return Err(FatalError::field(
                offset::FLAGS,
                "HDGSTF is not what was negotiated",
            ));
        }
        let bare = hlen + if header_digest { DIGEST_BYTES } else { 0 };
        let plen = common.plen.get();
        let beyond_header = u64::from(plen)
            .checked_sub(bare as u64)
            .ok_or(FatalError::field(
                offset::PLEN,
                "PLEN is shorter than the header",
            ))?;
        let mut frame = Frame {
            pdu_type: common.pdu_type,
            flags: common.flags,
            hlen,
            header_bytes: bare,
            data_bytes: 0,
            header_digest,
            data_digest: false,
        };
        match rules.data {
            Data::Never if beyond_header != 0 => Err(FatalError::field(
                offset::PLEN,
                "PLEN is longer than this PDU type is",
            )),
            Data::Never => Ok(frame),
            Data::Fault => {
                frame.data_bytes = plen.saturating_sub(u32::from(common.hlen));
                if plen as usize > TERM_BYTES_MAX {
                    return Err(FatalError::field(
                        offset::PLEN,
                        "a TermReq PDU is longer than 152 bytes",
                    ));
                }
                Ok(frame)
            }
            Data::Optional if beyond_header == 0 => Ok(frame),
            Data::Optional | Data::Required => frame.with_data(common, framing, bare),
        }
    }

    /// The data of CapsuleCmd, H2CData and C2HData start at PDO and reach to PLEN or the data digest.
    fn with_data(
        mut self,
        common: &CommonHeader,
        framing: Framing,
        bare: usize,
    ) -> Result<Frame, FatalError> {
        self.data_digest = framing.data_digest;
        if self.data_digest != (common.flags & FLAG_DDGST != 0) {
            return Err(FatalError::field(
                offset::FLAGS,
                "DDGSTF is not what was negotiated",
            ));
        }
        let pdo = usize::from(common.pdo);
        if pdo < bare {
            return Err(FatalError::field(offset::PDO, "PDO points into the header"));
        }
        if !pdo.is_multiple_of((usize::from(framing.alignment_z) + 1) * 4) {
            return Err(FatalError::field(
                offset::PDO,
                "PDO is not aligned as negotiated",
            ));
        }
        self.header_bytes = pdo;
        let trailer = if self.data_digest { DIGEST_LEN } else { 0 };
        self.data_bytes = common
            .plen
            .get()
            .checked_sub(u32::from(common.pdo) + trailer)
            .filter(|&bytes| bytes > 0)
            .ok_or(FatalError::field(
                offset::PLEN,
                "PLEN leaves no room for the data",
            ))?;
        Ok(self)
    }

    /// Checks the header digest: `header` holds at least HLEN and the digest. True also where none was negotiated.
    pub fn check_header_digest(&self, header: &[u8]) -> Result<(), FatalError> {
        if !self.header_digest {
            return Ok(());
        }
        let (covered, rest) = header.split_at_checked(self.hlen).unwrap_or((header, &[]));
        let Some(received) = rest.first_chunk::<DIGEST_BYTES>() else {
            return Err(FatalError::field(
                offset::PLEN,
                "the header ends before its digest",
            ));
        };
        let received = u32::from_le_bytes(*received);
        if crc32c(covered) == received {
            return Ok(());
        }
        Err(FatalError {
            status: FatalErrorStatus::HEADER_DIGEST_ERROR,
            information: received,
            why: "the header digest does not match",
        })
    }
}

/// What the specification fixes for a PDU type.
struct Rules {
    hlen: usize,
    /// Header (and data) digests apply.
    digests: bool,
    data: Data,
}

enum Data {
    Never,
    Optional,
    Required,
    /// TermReq: the header of the PDU at fault, at no PDO, without digests.
    Fault,
}

impl Rules {
    fn of(pdu_type: PduType, receiver: Receiver) -> Result<Rules, FatalError> {
        let rules = |hlen, digests, data| {
            Ok(Rules {
                hlen,
                digests,
                data,
            })
        };
        match (receiver, pdu_type) {
            (Receiver::Target, PduType::CAPSULE_CMD) => {
                rules(CAPSULE_CMD_BYTES, true, Data::Optional)
            }
            (Receiver::Target, PduType::H2C_DATA) => rules(DATA_HEADER_BYTES, true, Data::Required),
            (Receiver::Target, PduType::IC_REQ) => rules(IC_BYTES, false, Data::Never),
            (Receiver::Target, PduType::H2C_TERM_REQ) => {
                rules(DATA_HEADER_BYTES, false, Data::Fault)
            }
            (Receiver::Host, PduType::C2H_DATA) => rules(DATA_HEADER_BYTES, true, Data::Required),
            (Receiver::Host, PduType::CAPSULE_RESP) => rules(CAPSULE_RESP_BYTES, true, Data::Never),
            (Receiver::Host, PduType::R2T) => rules(DATA_HEADER_BYTES, true, Data::Never),
            (Receiver::Host, PduType::IC_RESP) => rules(IC_BYTES, false, Data::Never),
            (Receiver::Host, PduType::C2H_TERM_REQ) => rules(DATA_HEADER_BYTES, false, Data::Fault),
            _ => Err(FatalError::field(
                0,
                "no PDU of this type comes from this side",
            )),
        }
    }
}

/// The header at the start of `bytes`, where they hold it whole; its digest has been checked.
pub fn in_place(
    bytes: &[u8],
    receiver: Receiver,
    framing: Framing,
) -> Result<Option<(Frame, &[u8])>, FatalError> {
    let Some(common) = common_header(bytes) else {
        return Ok(None);
    };
    let frame = Frame::parse(common, receiver, framing)?;
    let Some(header) = bytes.get(..frame.header_bytes) else {
        return Ok(None);
    };
    frame.check_header_digest(header)?;
    Ok(Some((frame, header)))
}

/// Collects a PDU's header from pieces, and hands it out in place where the bytes given hold it whole.
#[derive(Clone, Debug)]
pub struct HeaderBuffer {
    bytes: [u8; HEADER_BYTES_MAX],
    filled: usize,
    /// Known once the common header is there.
    frame: Option<Frame>,
}

/// What [`HeaderBuffer::take`] found.
pub enum Taken<'a> {
    /// All `bytes` were taken; the header needs more.
    Partial,
    /// A whole header, and how many of the bytes given it took.
    Whole {
        /// Its frame; the header digest has been checked.
        frame: Frame,
        /// From the common header to the padding: `frame.header_bytes` long.
        header: &'a [u8],
        /// Bytes taken.
        used: usize,
    },
}

impl HeaderBuffer {
    /// Empty.
    pub fn new() -> HeaderBuffer {
        HeaderBuffer {
            bytes: [0; HEADER_BYTES_MAX],
            filled: 0,
            frame: None,
        }
    }

    /// No byte of a header has been taken.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Bytes still missing of the header in progress, or of its common header.
    pub fn missing(&self) -> usize {
        self.frame
            .map_or(COMMON_HEADER_BYTES, |frame| frame.header_bytes)
            - self.filled
    }

    /// The bytes collected so far: after an error, the start of the PDU at fault.
    pub fn collected(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or(&self.bytes)
    }

    /// Takes bytes up to the end of one header.
    pub fn take<'a>(
        &'a mut self,
        bytes: &'a [u8],
        receiver: Receiver,
        framing: Framing,
    ) -> Result<Taken<'a>, FatalError> {
        if self.is_empty()
            && let Some((frame, header)) = in_place(bytes, receiver, framing)?
        {
            return Ok(Taken::Whole {
                frame,
                header,
                used: frame.header_bytes,
            });
        }
        self.take_pieces(bytes, receiver, framing)
    }

    fn take_pieces<'a>(
        &'a mut self,
        bytes: &[u8],
        receiver: Receiver,
        framing: Framing,
    ) -> Result<Taken<'a>, FatalError> {
        let mut used = self.fill(bytes);
        if self.frame.is_none() && self.missing() == 0 {
            let common =
                common_header(&self.bytes).ok_or(FatalError::field(0, "no common header"))?;
            self.frame = Some(Frame::parse(common, receiver, framing)?);
            used += self.fill(bytes.get(used..).unwrap_or(&[]));
        }
        match self.frame {
            Some(frame) if self.missing() == 0 => {
                frame.check_header_digest(&self.bytes)?;
                self.filled = 0;
                self.frame = None;
                let header = self.bytes.get(..frame.header_bytes).unwrap_or(&self.bytes);
                Ok(Taken::Whole {
                    frame,
                    header,
                    used,
                })
            }
            _ => Ok(Taken::Partial),
        }
    }

    /// Copies at most the missing bytes; says how many.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        let count = self.missing().min(bytes.len());
        if let (Some(to), Some(from)) = (
            self.bytes.get_mut(self.filled..self.filled + count),
            bytes.get(..count),
        ) {
            to.copy_from_slice(from);
            self.filled += count;
        }
        count
    }
}

impl Default for HeaderBuffer {
    fn default() -> Self {
        HeaderBuffer::new()
    }
}

fn common_header(bytes: &[u8]) -> Option<&CommonHeader> {
    zerocopy::FromBytes::ref_from_prefix(bytes)
        .ok()
        .map(|(common, _)| common)
}
