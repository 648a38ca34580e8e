//! The record that survives the loss of power. Little-endian:
//!
//! | byte | field |
//! |---|---|
//! | 0 | "XIORESV1" |
//! | 8 | GEN, 4 bytes |
//! | 12 | RTYPE; 0 = no reservation |
//! | 13 | reserved, 0 |
//! | 14 | registrants, 2 bytes |
//! | 16 | index of the holder, 2 bytes; FFFFh where all registrants hold it or none does |
//! | 18 | reserved, 0, 2 bytes |
//! | 20 | registrants, 24 bytes each: HOSTID, key |
//! | end - 4 | CRC-32C of everything before |

use super::table::{Held, Holder, is_of_all};
use super::{HostId, Key, REGISTRANTS_MAX, Registrant, Table};
use crate::digest::crc32c;
use nvme_spec::reservation::ReservationType;
use nvme_spec::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"XIORESV1";
const NO_HOLDER: u16 = 0xFFFF;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    generation: U32,
    rtype: u8,
    reserved_13: u8,
    registrants: U16,
    holder: U16,
    reserved_18: [u8; 2],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Entry {
    host_id: [u8; 16],
    key: U64,
}

/// A record that is no table: the namespace must not be served as if it had no reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It does not begin as one.
    #[error("not a record of reservations, or one of a later version")]
    NotARecord,
    /// Its checksum does not match.
    #[error("the record of reservations is damaged: CRC-32C {found:08x}, computed {computed:08x}")]
    Checksum {
        /// What it says.
        found: u32,
        /// What its bytes come to.
        computed: u32,
    },
    /// Its checksum matches and its fields contradict each other.
    #[error("the record of reservations contradicts itself: {0}")]
    Contradiction(&'static str),
}

impl Table {
    /// What must survive the loss of power; empty where PTPL is 0.
    pub fn to_record(&self) -> Vec<u8> {
        if !self.persistent {
            return Vec::new();
        }
        let holder = match self.held.map(|held| held.by) {
            Some(Holder::One(host)) => self
                .registrants
                .iter()
                .position(|registrant| registrant.host == host)
                .and_then(|index| u16::try_from(index).ok())
                .unwrap_or(NO_HOLDER),
            _ => NO_HOLDER,
        };
        let mut header = Header::new_zeroed();
        header.magic = MAGIC;
        header.generation = U32::new(self.generation);
        header.rtype = self.reservation_type().map_or(0, |rtype| rtype.0);
        header.registrants = U16::new(u16::try_from(self.registrants.len()).unwrap_or(u16::MAX));
        header.holder = U16::new(holder);
        let mut record = header.as_bytes().to_vec();
        for registrant in &self.registrants {
            let entry = Entry {
                host_id: registrant.host.0,
                key: U64::new(registrant.key.0),
            };
            record.extend_from_slice(entry.as_bytes());
        }
        let crc = crc32c(&record);
        record.extend_from_slice(&crc.to_le_bytes());
        record
    }

    /// The table of a record; of an empty one, the empty table.
    ///
    /// # Errors
    /// The record is not whole.
    pub fn from_record(record: &[u8]) -> Result<Table, RecordError> {
        if record.is_empty() {
            return Ok(Table::default());
        }
        let (body, crc) = record
            .split_last_chunk::<4>()
            .ok_or(RecordError::NotARecord)?;
        let (header, entries) =
            Header::read_from_prefix(body).map_err(|_| RecordError::NotARecord)?;
        if header.magic != MAGIC {
            return Err(RecordError::NotARecord);
        }
        let (found, computed) = (u32::from_le_bytes(*crc), crc32c(body));
        if found != computed {
            return Err(RecordError::Checksum { found, computed });
        }
        let registrants = registrants(&header, entries)?;
        let held = held(&header, &registrants)?;
        Ok(Table {
            generation: header.generation.get(),
            registrants,
            held,
            persistent: true,
        })
    }
}

fn registrants(header: &Header, entries: &[u8]) -> Result<Vec<Registrant>, RecordError> {
    let entries = <[Entry]>::ref_from_bytes(entries)
        .map_err(|_| RecordError::Contradiction("a part of a registrant"))?;
    if entries.len() != usize::from(header.registrants.get()) || entries.len() > REGISTRANTS_MAX {
        return Err(RecordError::Contradiction("the number of registrants"));
    }
    let mut registrants: Vec<Registrant> = Vec::with_capacity(entries.len());
    for entry in entries {
        let host = HostId(entry.host_id);
        if registrants.iter().any(|other| other.host == host) {
            return Err(RecordError::Contradiction("a host is there twice"));
        }
        registrants.push(Registrant {
            host,
            key: Key(entry.key.get()),
        });
    }
    Ok(registrants)
}

fn held(header: &Header, registrants: &[Registrant]) -> Result<Option<Held>, RecordError> {
    let rtype = ReservationType(header.rtype);
    let by = match (header.rtype, header.holder.get()) {
        (0, NO_HOLDER) => return Ok(None),
        (1..=6, NO_HOLDER) if is_of_all(rtype) && !registrants.is_empty() => Holder::AllRegistrants,
        (1..=6, index) if !is_of_all(rtype) => {
            let holder = registrants.get(usize::from(index));
            Holder::One(
                holder
                    .ok_or(RecordError::Contradiction("no such holder"))?
                    .host,
            )
        }
        _ => return Err(RecordError::Contradiction("type and holder")),
    };
    Ok(Some(Held { rtype, by }))
}
