//! Megatron's pair: an index (`.idx`) and the token ids that it points into (`.bin`) (megatron-core, `indexed_dataset.py`).
//!
//! ```text
//!  0            9          17     18          26          34
//!  +------------+----------+------+-----------+-----------+---------------+----------------+-----------------+-----------+
//!  | MMIDIDX\0\0| 1, u64   | code | sequences | documents | lengths, i32  | pointers, i64  | documents, i64  | modes, i8 |
//!  +------------+----------+------+-----------+-----------+---------------+----------------+-----------------+-----------+
//! ```
//! A pointer is a byte offset into the `.bin`; a document entry is the number of its first sequence. The modes are there in multimodal
//! datasets only.

use crate::description::{Companion, Contents, Description, Details, Payload};
use crate::limits::MEGATRON_REWRITTEN_SEQUENCES_MAX;
use crate::presentation::Presentation;
use crate::source::{self, u32_at, u64_at};
use crate::{ByteSource, Dtype, Format, FormatError};

/// What an index begins with.
pub(crate) const MAGIC: &[u8] = b"MMIDIDX\0\0";
const VERSION: u64 = 1;
const CODE_OFFSET: u64 = 17;
const COUNTS_OFFSET: u64 = 18;
const HEADER_BYTES: u64 = 34;
/// Sequences that are looked at in one piece.
const CHUNK_SEQUENCES: u64 = 8192;

/// A Megatron index that was checked against its `.bin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The type of the ids.
    pub dtype: Dtype,
    /// Number of sequences.
    pub sequences: u64,
    /// Number of document entries; the first is 0, so there is one more than there are documents.
    pub documents: u64,
    /// Whether each sequence has a mode (multimodal datasets).
    pub has_modes: bool,
    index_bytes: u64,
    bin_bytes: u64,
}

fn malformed(offset: u64, why: impl Into<String>) -> FormatError {
    FormatError::malformed(Format::MegatronIndex, offset, why)
}

/// The index alone: recognised, and passed through.
pub(crate) fn describe(source: &dyn ByteSource) -> Result<Description, FormatError> {
    let header = read_header(source)?;
    let mut description = Description::opaque(
        Format::MegatronIndex,
        source.bytes(),
        "it is rewritten together with its .bin",
    );
    description.companions.push(Companion::Extension("bin"));
    description.notes.push(format!(
        "{} sequences of {} ids",
        header.sequences, header.dtype
    ));
    Ok(description)
}

fn read_header(source: &dyn ByteSource) -> Result<Index, FormatError> {
    let head = source::range(source, Format::MegatronIndex, 0, HEADER_BYTES, HEADER_BYTES)?;
    if !head.starts_with(MAGIC) {
        return Err(malformed(0, "MMIDIDX belongs there"));
    }
    let version = u64_at(&head, 9);
    if version != VERSION {
        return Err(malformed(9, format!("version {version} is unknown")));
    }
    let code = head.get(17).copied().unwrap_or_default();
    let dtype = Dtype::from_megatron(code)
        .ok_or_else(|| malformed(CODE_OFFSET, format!("type code {code} is unknown")))?;
    let (sequences, documents) = (u64_at(&head, 18), u64_at(&head, 26));
    let without_modes = sequences
        .checked_mul(12)
        .zip(documents.checked_mul(8))
        .and_then(|(by_sequence, by_document)| by_sequence.checked_add(by_document))
        .and_then(|tables| tables.checked_add(HEADER_BYTES));
    let has_modes = match without_modes {
        Some(bytes) if bytes == source.bytes() => false,
        Some(bytes) if bytes.checked_add(sequences) == Some(source.bytes()) => true,
        _ => {
            let why = format!(
                "{sequences} sequences and {documents} documents do not make {} bytes",
                source.bytes()
            );
            return Err(malformed(COUNTS_OFFSET, why));
        }
    };
    Ok(Index {
        dtype,
        sequences,
        documents,
        has_modes,
        index_bytes: source.bytes(),
        bin_bytes: 0,
    })
}

impl Index {
    /// Reads an index, and checks every entry of it against a `.bin` of `bin_bytes` bytes. Memory is bounded whatever its size.
    ///
    /// # Errors
    /// [`FormatError::Malformed`] with the place of the first entry that cannot be right.
    pub fn read(source: &dyn ByteSource, bin_bytes: u64) -> Result<Index, FormatError> {
        let mut index = read_header(source)?;
        index.bin_bytes = bin_bytes;
        let element_bytes = index.element_bytes();
        if !bin_bytes.is_multiple_of(element_bytes) {
            let why = format!(
                "the .bin has {bin_bytes} bytes, no whole number of {}",
                index.dtype
            );
            return Err(malformed(CODE_OFFSET, why));
        }
        index.each_sequence(source, |index, sequence, length, pointer| {
            let end = u64::from(length)
                .checked_mul(element_bytes)
                .and_then(|bytes| bytes.checked_add(pointer));
            let inside = end.is_some_and(|end| end <= bin_bytes);
            if i32::try_from(length).is_ok() && inside && pointer.is_multiple_of(element_bytes) {
                return Ok(());
            }
            let why = format!(
                "sequence {sequence}: {length} ids at byte {pointer} do not lie in a .bin of {bin_bytes} bytes"
            );
            Err(malformed(index.pointers_offset() + 8 * sequence, why))
        })?;
        index.check_documents(source)?;
        Ok(index)
    }

    fn check_documents(&self, source: &dyn ByteSource) -> Result<(), FormatError> {
        let mut at = 0;
        while at < self.documents {
            let count = CHUNK_SEQUENCES.min(self.documents - at);
            let offset = self.documents_offset() + 8 * at;
            let entries =
                source::range(source, Format::MegatronIndex, offset, 8 * count, 8 * count)?;
            for (entry, place) in entries.chunks_exact(8).zip((offset..).step_by(8)) {
                let sequence = u64_at(entry, 0);
                if sequence > self.sequences {
                    let why = format!("a document at sequence {sequence} of {}", self.sequences);
                    return Err(malformed(place, why));
                }
            }
            at += count;
        }
        Ok(())
    }

    /// Calls `each` with every sequence's number, length in ids, and pointer in bytes.
    fn each_sequence(
        &self,
        source: &dyn ByteSource,
        mut each: impl FnMut(&Index, u64, u32, u64) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        let mut at = 0;
        while at < self.sequences {
            let count = CHUNK_SEQUENCES.min(self.sequences - at);
            let read =
                |offset, bytes| source::range(source, Format::MegatronIndex, offset, bytes, bytes);
            let lengths = read(HEADER_BYTES + 4 * at, 4 * count)?;
            let pointers = read(self.pointers_offset() + 8 * at, 8 * count)?;
            let pairs = lengths.chunks_exact(4).zip(pointers.chunks_exact(8));
            for (sequence, (length, pointer)) in (at..).zip(pairs) {
                each(self, sequence, u32_at(length, 0), u64_at(pointer, 0))?;
            }
            at += count;
        }
        Ok(())
    }

    /// The `.bin`, described: one payload of ids.
    #[must_use]
    pub fn describe_bin(&self) -> Description {
        let payload = Payload {
            name: String::new(),
            offset: 0,
            bytes: self.bin_bytes,
            contents: Contents::Elements(self.dtype),
            shape: vec![self.bin_bytes / self.element_bytes()],
        };
        Description::typed(
            Format::MegatronBin,
            self.bin_bytes,
            vec![payload],
            Details::None,
        )
    }

    /// The index of a view that presents the ids as `presented`: type code and pointers are new, all else is the source's.
    ///
    /// # Errors
    /// [`FormatError::Refused`] for a type that the index has no code for, or ids that cannot become it; [`FormatError::Limit`] for more
    /// sequences than are rewritten.
    pub fn present(
        &self,
        source: &dyn ByteSource,
        presented: Dtype,
    ) -> Result<Presentation, FormatError> {
        let code = code(self.dtype, presented)?;
        let change = self.dtype.change_to(presented).map_err(|why| {
            FormatError::refused("the ids", format!("{} as {presented}: {why}", self.dtype))
        })?;
        let Some(change) = change else {
            return Ok(Presentation::exact(self.index_bytes));
        };
        if self.sequences > MEGATRON_REWRITTEN_SEQUENCES_MAX {
            return Err(FormatError::Limit {
                format: Format::MegatronIndex,
                what: "sequences to rewrite",
                found: self.sequences,
                max: MEGATRON_REWRITTEN_SEQUENCES_MAX,
            });
        }
        // What has a code has whole elements.
        let (from, to) = (change.stored.bytes() as u64, change.presented.unit_bytes());
        let mut pointers = Vec::new();
        self.each_sequence(source, |index, sequence, _, pointer| {
            // Checked when it was read; the file may have changed since.
            let scaled = (pointer / from).checked_mul(to).ok_or_else(|| {
                malformed(
                    index.pointers_offset() + 8 * sequence,
                    "a pointer beyond 2^64",
                )
            })?;
            pointers.extend(scaled.to_le_bytes());
            Ok(())
        })?;
        let mut view = Presentation::default();
        view.push_source(0, CODE_OFFSET);
        view.push_new(&[code]);
        view.push_source(COUNTS_OFFSET, self.pointers_offset() - COUNTS_OFFSET);
        view.push_new(&pointers);
        view.push_source(
            self.documents_offset(),
            self.index_bytes - self.documents_offset(),
        );
        Ok(view)
    }

    fn element_bytes(&self) -> u64 {
        self.dtype.bits() / 8
    }

    fn pointers_offset(&self) -> u64 {
        HEADER_BYTES + 4 * self.sequences
    }

    fn documents_offset(&self) -> u64 {
        HEADER_BYTES + 12 * self.sequences
    }
}

/// The type's code, or the way out.
fn code(stored: Dtype, presented: Dtype) -> Result<u8, FormatError> {
    presented.row().megatron.ok_or_else(|| {
        let why = match (stored, presented) {
            (_, Dtype::U32 | Dtype::U64) => format!(
                "its index has no {presented}: Megatron itself takes uint16 for vocabularies below 65,500 ids and int32 for larger ones; present u16 or i32"
            ),
            (Dtype::F32, _) => format!("its index has no {presented}"),
            _ => format!("its index has no {presented}; present f32"),
        };
        FormatError::refused("Megatron", why)
    })
}

/// The type that an index says its ids have.
///
/// # Errors
/// [`FormatError::Malformed`] where this is no index.
pub fn dtype(source: &dyn ByteSource) -> Result<Dtype, FormatError> {
    Ok(read_header(source)?.dtype)
}
