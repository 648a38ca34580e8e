//! Requests of a front-end, and replies.

use std::os::fd::OwnedFd;

use crate::error::MessageError;
use crate::wire::{
    CONFIG_BYTES_MAX, Header, Inflight, MemoryRegion, TABLE_REGIONS_MAX, VringAddress, VringState,
    Words,
};

/// A request, and whether its sender wants to know what became of it.
#[derive(Debug)]
pub struct Message {
    /// Its number, for the reply.
    pub code: u32,
    /// An acknowledgement is wanted, where it was negotiated and the request has no reply of its own.
    pub wants_ack: bool,
    /// What is asked.
    pub request: Request,
}

/// An event file descriptor of a queue.
#[derive(Debug)]
pub struct VringFile {
    /// Which queue.
    pub index: u32,
    /// None: it is polled.
    pub file: Option<OwnedFd>,
}

/// A part of the configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigArea {
    /// First byte.
    pub offset: u32,
    /// Bytes.
    pub bytes: u32,
    /// As they came; a reply repeats them.
    pub flags: u32,
}

/// What a front-end asks (vhost-user.rst, "Front-end message types").
#[derive(Debug)]
#[allow(missing_docs, reason = "each is the message of the same name")]
pub enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<(MemoryRegion, OwnedFd)>),
    SetVringNum(VringState),
    SetVringAddr(VringAddress),
    SetVringBase(VringState),
    GetVringBase { index: u32 },
    SetVringKick(VringFile),
    SetVringCall(VringFile),
    SetVringErr(VringFile),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable { index: u32, enable: bool },
    SetBackendReqFd(OwnedFd),
    GetConfig(ConfigArea),
    SetConfig(ConfigArea, Vec<u8>),
    GetInflightFd(Inflight),
    SetInflightFd(Inflight, OwnedFd),
    ResetDevice,
    GetMaxMemSlots,
    AddMemReg(MemoryRegion, OwnedFd),
    RemMemReg(MemoryRegion),
}

/// What answers a request that has a reply of its own.
#[derive(Debug)]
pub enum Reply {
    /// A number.
    U64(u64),
    /// A queue and a number.
    Vring(VringState),
    /// A part of the configuration space; no bytes: it cannot be had.
    Config(ConfigArea, Vec<u8>),
    /// Memory for what is in flight, and its file.
    Inflight(Inflight, OwnedFd),
}

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const RESET_OWNER: u32 = 4;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_QUEUE_NUM: u32 = 17;
const SET_VRING_ENABLE: u32 = 18;
const SET_BACKEND_REQ_FD: u32 = 21;
const GET_CONFIG: u32 = 24;
const SET_CONFIG: u32 = 25;
const GET_INFLIGHT_FD: u32 = 31;
const SET_INFLIGHT_FD: u32 = 32;
const RESET_DEVICE: u32 = 34;
const GET_MAX_MEM_SLOTS: u32 = 36;
const ADD_MEM_REG: u32 = 37;
const REM_MEM_REG: u32 = 38;

/// Of the number that comes with an event file descriptor: the queue, and that there is no descriptor.
const VRING_INDEX_MASK: u64 = 0xFF;
const VRING_NO_FILE: u64 = 1 << 8;

const CONFIG_HEADER_BYTES: usize = 12;
const REGION_BYTES: usize = 32;

impl Message {
    /// From a header, its body, and what came with it.
    ///
    /// # Errors
    /// What is wrong with it; the file descriptors are closed.
    pub fn decode(header: Header, body: &[u8], files: Vec<OwnedFd>) -> Result<Self, MessageError> {
        let Header { code, flags, .. } = header;
        if !header.is_request() {
            return Err(MessageError::Flags { code, flags });
        }
        Ok(Self {
            code,
            wants_ack: header.wants_reply(),
            request: Request::decode(code, body, Files { code, files })?,
        })
    }
}

impl Request {
    fn decode(code: u32, body: &[u8], files: Files) -> Result<Self, MessageError> {
        let mut words = Words(body);
        let length = Length { code, body };
        match code {
            SET_MEM_TABLE => return mem_table(code, body, files),
            SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR => {
                length.is(8)?;
                let file = vring_file(code, words.u64(), files)?;
                return Ok(match code {
                    SET_VRING_KICK => Self::SetVringKick(file),
                    SET_VRING_CALL => Self::SetVringCall(file),
                    _ => Self::SetVringErr(file),
                });
            }
            SET_BACKEND_REQ_FD => {
                length.is(0)?;
                return Ok(Self::SetBackendReqFd(files.one()?));
            }
            SET_INFLIGHT_FD => {
                length.is_inflight()?;
                return Ok(Self::SetInflightFd(words.inflight(), files.one()?));
            }
            ADD_MEM_REG => {
                length.is(8 + REGION_BYTES)?;
                words.u64();
                return Ok(Self::AddMemReg(words.region(), files.one()?));
            }
            REM_MEM_REG => {
                length.is(8 + REGION_BYTES)?;
                words.u64();
                // "The back-end MAY accept messages with one file descriptor", and closes it.
                files.at_most_one()?;
                return Ok(Self::RemMemReg(words.region()));
            }
            _ => files.none()?,
        }
        match code {
            GET_FEATURES
            | SET_OWNER
            | RESET_OWNER
            | GET_PROTOCOL_FEATURES
            | GET_QUEUE_NUM
            | RESET_DEVICE
            | GET_MAX_MEM_SLOTS => length.is(0)?,
            SET_FEATURES
            | SET_PROTOCOL_FEATURES
            | SET_VRING_NUM
            | SET_VRING_BASE
            | GET_VRING_BASE
            | SET_VRING_ENABLE => length.is(8)?,
            SET_VRING_ADDR => length.is(40)?,
            GET_INFLIGHT_FD => length.is_inflight()?,
            GET_CONFIG | SET_CONFIG => return config(code, body),
            _ => return Err(MessageError::Unknown { code }),
        }
        Ok(match code {
            GET_FEATURES => Self::GetFeatures,
            SET_OWNER => Self::SetOwner,
            RESET_OWNER => Self::ResetOwner,
            GET_PROTOCOL_FEATURES => Self::GetProtocolFeatures,
            GET_QUEUE_NUM => Self::GetQueueNum,
            RESET_DEVICE => Self::ResetDevice,
            GET_MAX_MEM_SLOTS => Self::GetMaxMemSlots,
            SET_FEATURES => Self::SetFeatures(words.u64()),
            SET_PROTOCOL_FEATURES => Self::SetProtocolFeatures(words.u64()),
            SET_VRING_NUM => Self::SetVringNum(words.state()),
            SET_VRING_BASE => Self::SetVringBase(words.state()),
            GET_VRING_BASE => Self::GetVringBase {
                index: words.state().index,
            },
            SET_VRING_ENABLE => match words.state() {
                VringState { index, value: 0 } => Self::SetVringEnable {
                    index,
                    enable: false,
                },
                VringState { index, value: 1 } => Self::SetVringEnable {
                    index,
                    enable: true,
                },
                _ => {
                    let what = "a queue is enabled with 1 and disabled with 0";
                    return Err(MessageError::Value { code, what });
                }
            },
            SET_VRING_ADDR => Self::SetVringAddr(words.address()),
            _ => Self::GetInflightFd(words.inflight()),
        })
    }
}

impl Reply {
    /// Its body, and the file descriptor that goes with it.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Option<OwnedFd>) {
        match self {
            Self::U64(value) => (value.to_le_bytes().to_vec(), None),
            Self::Vring(state) => {
                let words = [state.index.to_le_bytes(), state.value.to_le_bytes()];
                (words.concat(), None)
            }
            Self::Config(area, bytes) => {
                let len = u32::try_from(bytes.len()).unwrap_or(0);
                let words = [area.offset, len, area.flags].map(u32::to_le_bytes);
                ([words.concat(), bytes].concat(), None)
            }
            Self::Inflight(inflight, file) => (inflight.to_bytes().to_vec(), Some(file)),
        }
    }
}

fn mem_table(code: u32, body: &[u8], files: Files) -> Result<Request, MessageError> {
    let length = Length { code, body };
    length.is_at_least(8)?;
    let mut words = Words(body);
    let count = words.u32() as usize;
    words.u32();
    if count > TABLE_REGIONS_MAX {
        let what = "a memory table has at most 8 regions";
        return Err(MessageError::Value { code, what });
    }
    length.is(8 + count * REGION_BYTES)?;
    let files = files.exactly(count)?;
    let regions = files.into_iter().map(|file| (words.region(), file));
    Ok(Request::SetMemTable(regions.collect()))
}

fn vring_file(code: u32, value: u64, files: Files) -> Result<VringFile, MessageError> {
    if value & !(VRING_INDEX_MASK | VRING_NO_FILE) != 0 {
        let what = "bits beyond the queue's number and the flag are set";
        return Err(MessageError::Value { code, what });
    }
    let index = (value & VRING_INDEX_MASK) as u32;
    let file = match value & VRING_NO_FILE {
        0 => Some(files.one()?),
        _ => {
            files.none()?;
            None
        }
    };
    Ok(VringFile { index, file })
}

fn config(code: u32, body: &[u8]) -> Result<Request, MessageError> {
    let length = Length { code, body };
    length.is_at_least(CONFIG_HEADER_BYTES)?;
    let mut words = Words(body);
    let area = ConfigArea {
        offset: words.u32(),
        bytes: words.u32(),
        flags: words.u32(),
    };
    let end = area.offset.checked_add(area.bytes);
    if end.is_none_or(|end| end > CONFIG_BYTES_MAX) || area.bytes == 0 {
        let what = "a part of the configuration space ends at 256";
        return Err(MessageError::Value { code, what });
    }
    length.is(CONFIG_HEADER_BYTES + area.bytes as usize)?;
    Ok(match code {
        GET_CONFIG => Request::GetConfig(area),
        _ => Request::SetConfig(area, words.0.to_vec()),
    })
}

/// A body whose length is to be checked.
struct Length<'a> {
    code: u32,
    body: &'a [u8],
}

impl Length<'_> {
    fn is(&self, bytes: usize) -> Result<(), MessageError> {
        self.check(self.body.len() == bytes)
    }

    fn is_at_least(&self, bytes: usize) -> Result<(), MessageError> {
        self.check(self.body.len() >= bytes)
    }

    fn is_inflight(&self) -> Result<(), MessageError> {
        self.check([Inflight::BYTES, Inflight::BYTES_PACKED].contains(&self.body.len()))
    }

    fn check(&self, is_right: bool) -> Result<(), MessageError> {
        let bytes = u32::try_from(self.body.len()).unwrap_or(u32::MAX);
        let code = self.code;
        match is_right {
            true => Ok(()),
            false => Err(MessageError::Length { code, bytes }),
        }
    }
}

/// What came with a message; closed unless it is taken.
struct Files {
    code: u32,
    files: Vec<OwnedFd>,
}

impl Files {
    fn exactly(self, expected: usize) -> Result<Vec<OwnedFd>, MessageError> {
        if self.files.len() == expected {
            return Ok(self.files);
        }
        Err(MessageError::Files {
            code: self.code,
            files: self.files.len(),
            expected,
        })
    }

    fn none(self) -> Result<(), MessageError> {
        self.exactly(0).map(drop)
    }

    fn at_most_one(self) -> Result<(), MessageError> {
        let some = usize::from(!self.files.is_empty());
        self.exactly(some).map(drop)
    }

    fn one(self) -> Result<OwnedFd, MessageError> {
        let code = self.code;
        let mut files = self.exactly(1)?;
        files.pop().ok_or(MessageError::Files {
            code,
            files: 0,
            expected: 1,
        })
    }
}
