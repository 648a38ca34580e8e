//! Partitions of a disk that nobody vouches for.

use zerocopy::{FromBytes, IntoBytes};

use crate::raw::{
    ENTRIES, ENTRIES_BYTES, ENTRY_BYTES, HEADER_BYTES, REVISION, RawEntry, RawHeader, SIGNATURE,
    crc32,
};
use crate::{GptError, LbaBytes, Place, name};

/// Bytes from the beginning of a disk on that [`parse`] looks at: MBR, header and entries with blocks of 4,096 bytes.
pub const HEAD_BYTES: usize = 2 * 4096 + ENTRIES_BYTES;

/// Type of the protective MBR's partition, and the four places where it may stand.
const PROTECTIVE: u8 = 0xEE;
const MBR_TYPES: [usize; 4] = [450, 466, 482, 498];
const MBR_SIGNATURE: [u8; 2] = [0x55, 0xAA];

/// The partitions of a disk of `disk_bytes` bytes that begins with `head`, in the table's order; `None` where there is no table: no protective MBR, or no header at
/// block 1 of 512 or 4,096 bytes. `head`: the first [`HEAD_BYTES`], or all of a disk that has fewer.
///
/// # Errors
/// [`GptError::Table`]: a checksum that is wrong, fields that do not hold together, partitions that overlap or lie beyond the disk, entries that are not behind the header
/// or not 128 bytes each.
pub fn parse(head: &[u8], disk_bytes: u64) -> Result<Option<Vec<Place>>, GptError> {
    let is_protective = MBR_TYPES
        .iter()
        .any(|&at| head.get(at) == Some(&PROTECTIVE));
    if head.get(510..512) != Some(&MBR_SIGNATURE) || !is_protective {
        return Ok(None);
    }
    for lba_bytes in [LbaBytes::B512, LbaBytes::B4096] {
        let lba_bytes = lba_bytes.bytes();
        let rest = usize::try_from(lba_bytes)
            .ok()
            .and_then(|at| head.get(at..));
        let parsed = rest.and_then(|rest| RawHeader::read_from_prefix(rest).ok());
        if let Some((header, _)) = parsed
            && header.signature == SIGNATURE
        {
            let table = Table {
                head,
                header,
                lba_bytes,
                disk_lbas: disk_bytes / lba_bytes,
            };
            return table.places().map(Some);
        }
    }
    Ok(None)
}

struct Table<'a> {
    head: &'a [u8],
    header: RawHeader,
    lba_bytes: u64,
    disk_lbas: u64,
}

impl Table<'_> {
    fn places(&self) -> Result<Vec<Place>, GptError> {
        self.check_header()?;
        let mut places: Vec<Place> = Vec::new();
        for (number, entry) in (1..).zip(self.entries()?) {
            if entry.type_guid == [0; 16] {
                continue;
            }
            let place = self.place(number, &entry)?;
            let end = place.first_byte + place.bytes;
            let overlaps = |other: &&Place| {
                place.first_byte < other.first_byte + other.bytes && other.first_byte < end
            };
            if let Some(other) = places.iter().find(overlaps) {
                let why = format!(
                    "partition {number} overlaps \"{}\"",
                    other.name.escape_debug()
                );
                return Err(self.wrong(why));
            }
            places.push(place);
        }
        Ok(places)
    }

    fn check_header(&self) -> Result<(), GptError> {
        let header = &self.header;
        let is = |what: &str, found: u64, expected: u64| {
            if found == expected {
                return Ok(());
            }
            Err(self.wrong(format!("{what} is {found}; only {expected} is read here")))
        };
        is(
            "its revision",
            header.revision.get().into(),
            REVISION.into(),
        )?;
        is(
            "the header's length",
            header.header_bytes.get().into(),
            HEADER_BYTES.into(),
        )?;
        let mut without = *header;
        without.header_crc = 0.into();
        self.check_crc("header", header.header_crc.get(), without.as_bytes())?;
        is("the header's own block", header.own_lba.get(), 1)?;
        is("the entries' first block", header.entries_lba.get(), 2)?;
        is(
            "an entry's length",
            header.entry_bytes.get().into(),
            ENTRY_BYTES.into(),
        )?;
        if header.entries.get() > ENTRIES {
            let found = header.entries.get();
            return Err(self.wrong(format!("{found} entries; up to {ENTRIES} are read here")));
        }
        Ok(())
    }

    fn check_crc(&self, what: &str, recorded: u32, bytes: &[u8]) -> Result<(), GptError> {
        let computed = crc32(bytes);
        if recorded == computed {
            return Ok(());
        }
        Err(self.wrong(format!(
            "checksum mismatch of its {what}: recorded {recorded:08x}, computed {computed:08x}"
        )))
    }

    fn entries(&self) -> Result<Vec<RawEntry>, GptError> {
        let bytes = u64::from(self.header.entries.get()) * u64::from(ENTRY_BYTES);
        let start = usize::try_from(2 * self.lba_bytes).ok();
        let range = start.zip(usize::try_from(bytes).ok());
        let bytes = range.and_then(|(start, bytes)| self.head.get(start..start + bytes));
        let bytes = bytes.ok_or_else(|| self.wrong("the disk ends in its entries".to_owned()))?;
        self.check_crc("entries", self.header.entries_crc.get(), bytes)?;
        let entries = bytes.chunks_exact(size_of::<RawEntry>());
        Ok(entries
            .filter_map(|entry| RawEntry::read_from_bytes(entry).ok())
            .collect())
    }

    fn place(&self, number: u32, entry: &RawEntry) -> Result<Place, GptError> {
        let (first, last) = (entry.first_lba.get(), entry.last_lba.get());
        let usable = self.header.first_usable_lba.get()..=self.header.last_usable_lba.get();
        if first > last || !usable.contains(&first) || !usable.contains(&last) {
            let (from, to) = usable.into_inner();
            return Err(self.wrong(format!(
                "partition {number} is block {first} to {last}; the usable ones are {from} to {to}"
            )));
        }
        if last >= self.disk_lbas {
            return Err(self.wrong(format!(
                "partition {number} ends with block {last}; the disk has {} of {} bytes",
                self.disk_lbas, self.lba_bytes
            )));
        }
        Ok(Place {
            name: name::of_units(&entry.name),
            first_byte: first * self.lba_bytes,
            bytes: (last - first + 1) * self.lba_bytes,
        })
    }

    fn wrong(&self, why: String) -> GptError {
        GptError::Table {
            at: self.lba_bytes,
            why,
        }
    }
}
