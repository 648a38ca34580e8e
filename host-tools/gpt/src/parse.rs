//! Partitions of a disk that nobody vouches for.

use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes};

use crate::raw::{
    ENTRIES, ENTRIES_BYTES, ENTRY_BYTES, HEADER_BYTES, REVISION, RawEntry, RawHeader, SIGNATURE,
    crc32,
};
use crate::{GptError, LbaBytes, Place, name};

/// Bytes from the beginning of a disk on that [`parse`] looks at: MBR, header and entries with blocks of 4,096 bytes.
pub const HEAD_BYTES: usize = 2 * 4096 + ENTRIES_BYTES;
/// Bytes to the end of a disk that [`parse`] looks at: the backup's entries and header with blocks of 4,096 bytes.
pub const TAIL_BYTES: usize = ENTRIES_BYTES + 4096;

/// Type of the protective MBR's partition, and the four places where it may stand.
const PROTECTIVE: u8 = 0xEE;
const MBR_TYPES: [usize; 4] = [450, 466, 482, 498];
const MBR_BYTES: usize = 512;
const MBR_SIGNATURE: [u8; 2] = [0x55, 0xAA];

/// The partitions of a disk.
#[derive(Debug, PartialEq, Eq)]
pub struct Parsed {
    /// In the table's order.
    pub places: Vec<Place>,
    /// Why the table at the disk's beginning is not read, and where the backup begins that was read instead.
    pub backup: Option<(GptError, u64)>,
}

impl Parsed {
    /// What a person should know of it.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let (lost, at) = self.backup.as_ref()?;
        Some(format!(
            "{lost}; the backup at byte {at} is good, and is what is read"
        ))
    }
}

/// The two ends of a disk, for [`parse`]; `None` where it does not say that it has a table. `read` gives a range of its bytes, or none of what is not to be
/// looked at. More than the MBR is read where there is a table: what is damaged behind it may be of no table.
///
/// # Errors
/// Those of `read`.
pub fn ends<E>(
    disk_bytes: u64,
    mut read: impl FnMut(Range<u64>) -> Result<Option<Vec<u8>>, E>,
) -> Result<Option<[Vec<u8>; 2]>, E> {
    let up_to = |bytes_max: usize| disk_bytes.min(bytes_max as u64);
    let says = read(0..up_to(MBR_BYTES))?.is_some_and(|mbr| is_protective(&mbr));
    if !says {
        return Ok(None);
    }
    let Some(head) = read(0..up_to(HEAD_BYTES))? else {
        return Ok(None);
    };
    let tail = read(disk_bytes - up_to(TAIL_BYTES)..disk_bytes)?;
    Ok(Some([head, tail.unwrap_or_default()]))
}

/// Whether a disk that begins with `head` says that it has a partition table: by a protective MBR.
#[must_use]
pub fn is_protective(head: &[u8]) -> bool {
    let mut types = MBR_TYPES.iter().map(|&at| head.get(at));
    head.get(510..512) == Some(&MBR_SIGNATURE) && types.any(|it| it == Some(&PROTECTIVE))
}

/// The partitions of a disk of `disk_bytes` bytes that begins with `head` and ends with `tail`; `None` where there is no table: no protective MBR, or no header at
/// block 1 of 512 or 4,096 bytes, nor in the last block. `head`: the first [`HEAD_BYTES`], `tail`: the last [`TAIL_BYTES`], or all of a disk that has fewer.
///
/// A table whose header or entries are not what their checksums say is not read, and the backup at the disk's end is (UEFI specification 2.10, 5.3.2).
///
/// # Errors
/// [`GptError::Table`]: checksums that are wrong in both tables; fields that do not hold together, partitions that overlap or lie beyond the disk, entries that are not
/// behind the header or not 128 bytes each.
pub fn parse(head: &[u8], tail: &[u8], disk_bytes: u64) -> Result<Option<Parsed>, GptError> {
    if !is_protective(head) {
        return Ok(None);
    }
    let sizes = [LbaBytes::B512, LbaBytes::B4096].map(LbaBytes::bytes);
    let primaries = sizes.map(|lba_bytes| Table::primary(head, lba_bytes, disk_bytes));
    let backups = sizes.map(|lba_bytes| Table::backup(tail, lba_bytes, disk_bytes));
    let [in_512, in_4096] = primaries;
    let primary = in_512.or(in_4096);
    let [in_512, in_4096] = backups;
    let backup = match &primary {
        Some(primary) if primary.lba_bytes == LbaBytes::B512.bytes() => in_512,
        Some(_) => in_4096,
        None => in_512.or(in_4096),
    };
    let lost = match (&primary, &backup) {
        (None, None) => return Ok(None),
        (None, Some(backup)) => GptError::Table {
            at: backup.lba_bytes,
            why: "it has no header".to_owned(),
        },
        (Some(primary), _) => match primary.entries() {
            Ok(entries) => {
                let places = primary.places(&entries)?;
                let backup = None;
                return Ok(Some(Parsed { places, backup }));
            }
            Err(lost) => lost,
        },
    };
    let Some(backup) = backup else {
        return Err(lost.and("there is no backup in the last block"));
    };
    let entries = backup.entries();
    let entries = entries.map_err(|also| lost.clone().and(&format!("and {also}")))?;
    Ok(Some(Parsed {
        places: backup.places(&entries)?,
        backup: Some((lost, backup.at_byte())),
    }))
}

impl GptError {
    /// With more of why.
    fn and(self, more: &str) -> GptError {
        match self {
            GptError::Table { at, why } => GptError::Table {
                at,
                why: format!("{why}; {more}"),
            },
            other => other,
        }
    }
}

/// One of the two.
struct Table<'a> {
    /// A part of the disk, and where that begins.
    part: &'a [u8],
    first_byte: u64,
    header: RawHeader,
    /// Where the header is, and where its entries have to be, if there is but one place.
    own_lba: u64,
    entries_lba: Option<u64>,
    lba_bytes: u64,
    disk_lbas: u64,
}

impl<'a> Table<'a> {
    /// The one behind the MBR, if there is a header.
    fn primary(head: &'a [u8], lba_bytes: u64, disk_bytes: u64) -> Option<Table<'a>> {
        Table::at(head, 0, 1, lba_bytes, disk_bytes).map(|table| Table {
            entries_lba: Some(2),
            ..table
        })
    }

    /// The one in the disk's last block, if there is a header.
    fn backup(tail: &'a [u8], lba_bytes: u64, disk_bytes: u64) -> Option<Table<'a>> {
        let own_lba = (disk_bytes / lba_bytes).checked_sub(1)?;
        let first_byte = disk_bytes.checked_sub(tail.len() as u64)?;
        Table::at(tail, first_byte, own_lba, lba_bytes, disk_bytes)
    }

    fn at(
        part: &'a [u8],
        first_byte: u64,
        own_lba: u64,
        lba_bytes: u64,
        disk_bytes: u64,
    ) -> Option<Table<'a>> {
        let at = (own_lba * lba_bytes).checked_sub(first_byte)?;
        let rest = part.get(usize::try_from(at).ok()?..)?;
        let (header, _) = RawHeader::read_from_prefix(rest).ok()?;
        (header.signature == SIGNATURE).then_some(Table {
            part,
            first_byte,
            header,
            own_lba,
            entries_lba: None,
            lba_bytes,
            disk_lbas: disk_bytes / lba_bytes,
        })
    }

    /// Byte of the disk at which the header lies.
    fn at_byte(&self) -> u64 {
        self.own_lba * self.lba_bytes
    }

    /// Where the used entries say that partitions are.
    fn places(&self, entries: &[RawEntry]) -> Result<Vec<Place>, GptError> {
        let mut places: Vec<Place> = Vec::new();
        for (number, entry) in (1..).zip(entries) {
            if entry.type_guid == [0; 16] {
                continue;
            }
            let place = self.place(number, entry)?;
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
        is("the header's own block", header.own_lba.get(), self.own_lba)?;
        if let Some(expected) = self.entries_lba {
            is(
                "the entries' first block",
                header.entries_lba.get(),
                expected,
            )?;
        }
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

    /// The entries, as header and checksums say that they are.
    fn entries(&self) -> Result<Vec<RawEntry>, GptError> {
        self.check_header()?;
        let bytes = u64::from(self.header.entries.get()) * u64::from(ENTRY_BYTES);
        let start = self.header.entries_lba.get().checked_mul(self.lba_bytes);
        let start = start.and_then(|at| at.checked_sub(self.first_byte));
        let start = start.and_then(|at| usize::try_from(at).ok());
        let range = start.zip(usize::try_from(bytes).ok());
        let bytes =
            range.and_then(|(start, bytes)| self.part.get(start..start.checked_add(bytes)?));
        let bytes = bytes.ok_or_else(|| {
            let lba = self.header.entries_lba.get();
            self.wrong(format!(
                "its entries, from block {lba} on, are not next to it"
            ))
        })?;
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
            at: self.at_byte(),
            why,
        }
    }
}
