//! GGUF: metadata, a table of tensors, the tensors (ggml, `docs/gguf.md`; gguf-py, `gguf_reader.py`).
//!
//! ```text
//!  0      4         8         16      24
//!  +------+---------+---------+-------+-----------------+-----------------------------------------+----------+---------+
//!  | GGUF | version | tensors | pairs | keys and values | tensors: name, dims, ggml_type, offset  | padding  | tensors |
//!  +------+---------+---------+-------+-----------------+-----------------------------------------+----------+---------+
//! ```
//! Offsets count from the first tensor's place. That and every tensor start at a multiple of `general.alignment`, 32 where it is not given:
//! a view keeps that alignment, since the header has no other room.

use transforms::{ElementType, Packing};

use crate::description::{Contents, Description, Details, Payload};
use crate::limits::{GGUF_ARRAY_DEPTH_MAX, HEADER_BYTES_MAX, RANK_MAX, TENSORS_MAX};
use crate::presentation::{AllWanted, Change, Presentation, Wanted};
use crate::source::{self, Cursor, u32_at};
use crate::{ByteSource, Dtype, Format, FormatError};

/// What a file begins with.
pub(crate) const MAGIC: &[u8] = b"GGUF";
const VERSIONS: [u32; 2] = [2, 3];
const ALIGNMENT_KEY: &[u8] = b"general.alignment";
const ALIGNMENT_DEFAULT: u64 = 32;
/// Largest alignment that is taken.
const ALIGNMENT_MAX: u32 = 1 << 20;
const FILE_TYPE_KEY: &[u8] = b"general.file_type";
/// `general.file_type` of a file whose tensors are all of one type (llama.cpp, `llama_ftype`).
const FILE_TYPE_F32: u32 = 0;
const FILE_TYPE_F16: u32 = 1;
const FILE_TYPE_BF16: u32 = 32;
const FILE_TYPE_Q8_0: u32 = 7;
/// Metadata value types (`gguf_metadata_value_type`).
const TYPE_U32: u32 = 4;
const TYPE_STRING: u32 = 8;
const TYPE_ARRAY: u32 = 9;

/// Quantized types: code, name, elements of a block, bytes of a block (gguf-py, `GGML_QUANT_SIZES`).
#[rustfmt::skip]
const BLOCKS: [(u32, &str, u64, u64); 26] = [
    (2, "Q4_0", 32, 18), (3, "Q4_1", 32, 20), (6, "Q5_0", 32, 22), (7, "Q5_1", 32, 24), (8, "Q8_0", 32, 34), (9, "Q8_1", 32, 40),
    (10, "Q2_K", 256, 84), (11, "Q3_K", 256, 110), (12, "Q4_K", 256, 144), (13, "Q5_K", 256, 176), (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292), (16, "IQ2_XXS", 256, 66), (17, "IQ2_XS", 256, 74), (18, "IQ3_XXS", 256, 98), (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18), (21, "IQ3_S", 256, 110), (22, "IQ2_S", 256, 82), (23, "IQ4_XS", 256, 136), (29, "IQ1_M", 256, 56),
    (34, "TQ1_0", 256, 54), (35, "TQ2_0", 256, 66), (39, "MXFP4", 32, 17), (40, "NVFP4", 64, 36), (41, "Q1_0", 128, 18),
];

/// What a rewritten header keeps of the old one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    alignment: u64,
    /// Where the value of `general.file_type` is, and the value, if it is there and says that all tensors are f32, f16 or bf16.
    file_type: Option<(u64, u32)>,
    /// Where each tensor's `ggml_type` and offset stand, in the order of the payloads.
    entries: Vec<Entry>,
    /// Where the tensors begin.
    data_offset: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    /// Place in the file of the `ggml_type`; the tensor's offset stands behind it.
    type_offset: u64,
    ggml_type: u32,
}

pub(crate) fn describe(source: &dyn ByteSource) -> Result<Description, FormatError> {
    let head = source::range(source, Format::Gguf, 0, 8, 8)?;
    let version = u32_at(&head, 4);
    if !VERSIONS.contains(&version) {
        let reason = if version & 0xFFFF == 0 {
            "it is big-endian".to_owned()
        } else {
            format!("version {version} is unknown")
        };
        return Ok(Description::opaque(Format::Gguf, source.bytes(), reason));
    }
    let mut cursor = Cursor::new(source, Format::Gguf, 8, HEADER_BYTES_MAX);
    let (tensors, pairs) = (cursor.u64()?, cursor.u64()?);
    if tensors > TENSORS_MAX {
        return Err(FormatError::Limit {
            format: Format::Gguf,
            what: "tensors",
            found: tensors,
            max: TENSORS_MAX,
        });
    }
    let metadata = Metadata::read(&mut cursor, pairs)?;
    let mut infos = Vec::new();
    for _ in 0..tensors {
        infos.push(Info::read(&mut cursor)?);
    }
    let data_offset = cursor.offset().next_multiple_of(metadata.alignment);
    let mut header = Header {
        alignment: metadata.alignment,
        file_type: metadata.file_type,
        entries: Vec::with_capacity(infos.len()),
        data_offset,
    };
    let mut tensors = Vec::with_capacity(infos.len());
    for info in infos {
        let entry = Entry {
            type_offset: info.type_offset,
            ggml_type: info.ggml_type,
        };
        match info.payload(&header, source.bytes())? {
            Ok(payload) => tensors.push((payload, entry)),
            Err(reason) => return Ok(Description::opaque(Format::Gguf, source.bytes(), reason)),
        }
    }
    tensors.sort_by_key(|(payload, _)| (payload.offset, payload.bytes));
    let (payloads, entries): (Vec<Payload>, Vec<Entry>) = tensors.into_iter().unzip();
    header.entries = entries;
    for pair in payloads.windows(2) {
        if let [before, after] = pair
            && before.range().end > after.offset
        {
            let why = format!("tensors {:?} and {:?} overlap", before.name, after.name);
            return Err(malformed(after.offset, why));
        }
    }
    let mut description = Description::typed(
        Format::Gguf,
        source.bytes(),
        payloads,
        Details::Gguf(header),
    );
    description.alignment = metadata.alignment;
    Ok(description)
}

fn malformed(offset: u64, why: impl Into<String>) -> FormatError {
    FormatError::malformed(Format::Gguf, offset, why)
}

/// What is taken from the keys and values.
struct Metadata {
    alignment: u64,
    file_type: Option<(u64, u32)>,
}

impl Metadata {
    fn read(cursor: &mut Cursor<'_>, pairs: u64) -> Result<Metadata, FormatError> {
        let mut metadata = Metadata {
            alignment: ALIGNMENT_DEFAULT,
            file_type: None,
        };
        for _ in 0..pairs {
            let key_bytes = cursor.u64()?;
            let key = cursor.take(key_bytes)?.to_vec();
            let value_type = cursor.u32()?;
            let offset = cursor.offset();
            match (key.as_slice(), value_type) {
                (ALIGNMENT_KEY, TYPE_U32) => {
                    let alignment = cursor.u32()?;
                    if !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
                        return Err(malformed(offset, format!("alignment {alignment}")));
                    }
                    metadata.alignment = u64::from(alignment);
                }
                (ALIGNMENT_KEY, _) => {
                    return Err(malformed(offset, "general.alignment is no u32"));
                }
                (FILE_TYPE_KEY, TYPE_U32) => {
                    let file_type = cursor.u32()?;
                    let is_plain = [FILE_TYPE_F32, FILE_TYPE_F16, FILE_TYPE_BF16];
                    if is_plain.contains(&file_type) {
                        metadata.file_type = Some((offset, file_type));
                    }
                }
                _ => skip_value(cursor, value_type, 0)?,
            }
        }
        Ok(metadata)
    }
}

/// Goes over a value.
fn skip_value(cursor: &mut Cursor<'_>, value_type: u32, depth: u32) -> Result<(), FormatError> {
    if let Some(bytes) = scalar_bytes(value_type) {
        return cursor.skip(bytes);
    }
    let offset = cursor.offset();
    match value_type {
        TYPE_STRING => {
            let bytes = cursor.u64()?;
            cursor.skip(bytes)
        }
        TYPE_ARRAY if depth < GGUF_ARRAY_DEPTH_MAX => {
            let (inner_type, count) = (cursor.u32()?, cursor.u64()?);
            if let Some(bytes) = scalar_bytes(inner_type) {
                return cursor.skip(bytes.saturating_mul(count));
            }
            // Each takes bytes of the file, so the loop ends with it.
            for _ in 0..count {
                skip_value(cursor, inner_type, depth + 1)?;
            }
            Ok(())
        }
        TYPE_ARRAY => Err(malformed(offset, "arrays too deep in each other")),
        _ => Err(malformed(
            offset,
            format!("value type {value_type} is unknown"),
        )),
    }
}

/// Bytes of a value of fixed length: u8 i8 u16 i16 u32 i32 f32 bool, and u64 i64 f64.
fn scalar_bytes(value_type: u32) -> Option<u64> {
    match value_type {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// A row of the tensor table.
struct Info {
    name: String,
    /// Fastest first, as the file has it.
    dims: Vec<u64>,
    type_offset: u64,
    ggml_type: u32,
    data_offset: u64,
}

impl Info {
    fn read(cursor: &mut Cursor<'_>) -> Result<Info, FormatError> {
        let offset = cursor.offset();
        let name_bytes = cursor.u64()?;
        let name = String::from_utf8(cursor.take(name_bytes)?.to_vec())
            .map_err(|_| malformed(offset, "a tensor's name is no UTF-8"))?;
        let rank = cursor.u32()?;
        if rank as usize > RANK_MAX {
            let why = format!("tensor {name:?} has {rank} dimensions");
            return Err(malformed(offset, why));
        }
        let mut dims = Vec::with_capacity(rank as usize);
        for _ in 0..rank {
            dims.push(cursor.u64()?);
        }
        let type_offset = cursor.offset();
        Ok(Info {
            name,
            dims,
            type_offset,
            ggml_type: cursor.u32()?,
            data_offset: cursor.u64()?,
        })
    }

    /// The payload, checked against the file; the inner error is why the whole file is passed through.
    fn payload(
        self,
        header: &Header,
        file_bytes: u64,
    ) -> Result<Result<Payload, String>, FormatError> {
        let elements = self
            .dims
            .iter()
            .try_fold(1u64, |product, dim| product.checked_mul(*dim));
        let block = BLOCKS.iter().find(|(code, ..)| *code == self.ggml_type);
        let (contents, bytes) = match (Dtype::from_ggml(self.ggml_type), block) {
            (Some(dtype), _) => (
                Contents::Elements(dtype),
                elements.and_then(|elements| dtype.bytes_of(elements)),
            ),
            (None, Some((_, name, block_elements, block_bytes))) => {
                // A row is whole blocks.
                let whole = self
                    .dims
                    .first()
                    .is_none_or(|row| row.is_multiple_of(*block_elements));
                let bytes = elements
                    .filter(|_| whole)
                    .and_then(|elements| (elements / block_elements).checked_mul(*block_bytes));
                (Contents::Opaque(name), bytes)
            }
            (None, None) => {
                return Ok(Err(format!(
                    "tensor {:?} is of ggml type {}, unknown here",
                    self.name, self.ggml_type
                )));
            }
        };
        let offset = header.data_offset.checked_add(self.data_offset);
        let end = offset
            .zip(bytes)
            .and_then(|(offset, bytes)| offset.checked_add(bytes));
        let (Some(offset), Some(bytes), Some(end)) = (offset, bytes, end) else {
            let why = format!("tensor {:?} of dimensions {:?}", self.name, self.dims);
            return Err(malformed(self.type_offset, why));
        };
        if end > file_bytes || !self.data_offset.is_multiple_of(header.alignment) {
            let why = format!(
                "tensor {:?} at bytes {offset} to {end} of {file_bytes}",
                self.name
            );
            return Err(malformed(self.type_offset, why));
        }
        Ok(Ok(Payload {
            name: self.name,
            offset,
            bytes,
            contents,
            shape: self.dims.into_iter().rev().collect(),
        }))
    }
}

impl Header {
    /// The table with new types and offsets; the tensors in the order of their data, each padded as gguf-py pads.
    pub(crate) fn present(&self, wanted: &AllWanted<'_>) -> Result<Presentation, FormatError> {
        let mut patches = Vec::with_capacity(self.entries.len() + 1);
        let mut position = 0u64;
        for (entry, wanted) in self.entries.iter().zip(&wanted.0) {
            let ggml_type = ggml_type(entry, wanted)?;
            let fields = [&ggml_type.to_le_bytes()[..], &position.to_le_bytes()[..]].concat();
            patches.push((entry.type_offset, fields));
            position = position
                .saturating_add(wanted.bytes())
                .next_multiple_of(self.alignment);
        }
        if let (Some((offset, was)), Some(is)) = (self.file_type, file_type(wanted))
            && (was == FILE_TYPE_F32 || is == FILE_TYPE_Q8_0)
        {
            patches.push((offset, is.to_le_bytes().to_vec()));
        }
        patches.sort_by_key(|(offset, _)| *offset);
        let mut view = Presentation::default();
        let mut at = 0;
        for (offset, fields) in patches {
            view.push_source(at, offset - at);
            view.push_new(&fields);
            at = offset + fields.len() as u64;
        }
        // The table is as long as it was, and so is the padding behind it.
        view.push_source(at, self.data_offset - at);
        for wanted in &wanted.0 {
            view.push(wanted);
            let padding = wanted.bytes().next_multiple_of(self.alignment) - wanted.bytes();
            view.push_zeros(padding);
        }
        Ok(view)
    }
}

/// What [`becomes`] says, for people.
pub const WHAT_CHANGES: &str = "in GGUF only f32 becomes another type, f16 or bf16, and f32, f16 and bf16 become q8_0 where a row has a multiple of 32 elements, in tensors of \
     two and more dimensions";

/// Whether a tensor can have this type in a view.
#[must_use]
pub fn becomes(payload: &Payload, presented: Dtype) -> bool {
    payload.rank() >= 2 && misfit(payload, presented).is_none()
}

/// Why a tensor of two and more dimensions does not become that.
fn misfit(payload: &Payload, presented: Dtype) -> Option<&'static str> {
    match (payload.contents.dtype()?, presented) {
        (Dtype::F32, Dtype::F16 | Dtype::Bf16) => None,
        (Dtype::F32 | Dtype::F16 | Dtype::Bf16, Dtype::Q8_0) => {
            // Blocks lie in rows: the first of GGUF's dimensions, the last of the shape.
            let row = payload.shape.last()?;
            let is_whole = row.is_multiple_of(Packing::Q8_0.unit_elements());
            (!is_whole).then_some(
                "its rows are no multiple of 32 elements, and q8_0 has blocks of 32 in a row; leave it out of the rules: a pattern, as '*=q8_0', leaves what \
                 cannot change",
            )
        }
        _ => Some(
            "in GGUF only f32 becomes another type, f16 or bf16, and f32, f16 and bf16 become q8_0; leave it out of the rules: a pattern, as '*=bf16', leaves \
             what cannot change",
        ),
    }
}

/// The tensor's type in the view, or why it is not to be had.
fn ggml_type(entry: &Entry, wanted: &Wanted<'_>) -> Result<u32, FormatError> {
    let Some(Change { presented, .. }) = wanted.change else {
        return Ok(entry.ggml_type);
    };
    let Some(presented) = Dtype::of(presented) else {
        return Ok(entry.ggml_type);
    };
    let refuse = |why| Err(FormatError::refused(&wanted.payload.name, why));
    if wanted.payload.rank() < 2 {
        return refuse(
            "a GGUF tensor of one dimension stays f32: llama.cpp adds and multiplies norms and biases in f32; leave it out of the rules: a pattern, as \
             '*=bf16', leaves what cannot change",
        );
    }
    if let Some(why) = misfit(wanted.payload, presented) {
        return refuse(why);
    }
    match presented.row().ggml {
        Some(code) => Ok(code),
        None => refuse("ggml has no such type"),
    }
}

/// `general.file_type` of the view, where one is right: all changed tensors have one type.
fn file_type(wanted: &AllWanted<'_>) -> Option<u32> {
    let mut changes = wanted.0.iter().filter_map(|wanted| wanted.change);
    let first = changes.next()?.presented;
    if changes.any(|change| change.presented != first) {
        return None;
    }
    match first {
        Packing::Whole(ElementType::F16) => Some(FILE_TYPE_F16),
        Packing::Whole(ElementType::Bf16) => Some(FILE_TYPE_BF16),
        Packing::Q8_0 => Some(FILE_TYPE_Q8_0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row for each type that gguf-py knows, and no other: a tensor's length decides where the next one is looked for.
    #[test]
    fn types_are_those_of_gguf_py() {
        let types = include_str!("../../../fixtures/formats/gguf/types.txt");
        let mut quantized = Vec::new();
        for line in types.lines() {
            let [code, name, elements, bytes] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let number = |text: &str| text.parse::<u64>().unwrap();
            let code = u32::try_from(number(code)).unwrap();
            match Dtype::from_ggml(code) {
                Some(dtype) => {
                    assert_eq!(dtype.to_string(), name.to_lowercase());
                    assert_eq!(dtype.bytes_of(number(elements)), Some(number(bytes)));
                }
                None => quantized.push((code, name, number(elements), number(bytes))),
            }
        }
        assert_eq!(quantized, BLOCKS);
        let plain = types.lines().count() - quantized.len();
        let known = crate::dtype::TABLE
            .iter()
            .filter(|row| row.ggml.is_some() && row.element.is_some());
        assert_eq!(known.count(), plain);
    }
}
