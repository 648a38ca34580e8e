//! llm.c's token files: 256 integers of 32 bits, then the ids (llm.c, `dev/data/data_common.py` and `llmc/dataloader.h`).
//!
//! ```text
//!  0       4         8        12                    1024
//!  +-------+---------+--------+---------------------+------------------+
//!  | magic | version | count  | zeros               | ids, u16 or u32  |
//!  +-------+---------+--------+---------------------+------------------+
//! ```
//! The header has no room to grow: the data start at 1,024.

use crate::description::{Contents, Description, Details, Payload};
use crate::presentation::{AllWanted, Presentation};
use crate::source::{self, u32_at};
use crate::{ByteSource, Dtype, Format, FormatError};

const HEADER_BYTES: u64 = 1024;
/// Magic, version, type of the two kinds.
const KINDS: [(u32, u32, Dtype); 2] = [(20_240_520, 1, Dtype::U16), (20_240_801, 7, Dtype::U32)];
/// Files of the same project that begin alike and hold no plain ids: evaluation sets, and checkpoints.
const OTHERS: [(u32, &str); 2] = [
    (20_240_522, "llm.c's evaluation sets mix lengths and ids"),
    (
        20_240_326,
        "llm.c's checkpoints have their shapes in the program",
    ),
];

pub(crate) fn is_likely(head: &[u8], file_bytes: u64) -> bool {
    let magic = u32_at(head, 0);
    let known = KINDS.map(|(magic, ..)| magic);
    file_bytes >= HEADER_BYTES
        && (known.contains(&magic) || OTHERS.iter().any(|(other, _)| *other == magic))
}

pub(crate) fn describe(source: &dyn ByteSource) -> Result<Description, FormatError> {
    let header = source::range(source, Format::LlmC, 0, HEADER_BYTES, HEADER_BYTES)?;
    let (magic, version, count) = (u32_at(&header, 0), u32_at(&header, 4), u32_at(&header, 8));
    if let Some((_, reason)) = OTHERS.iter().find(|(other, _)| *other == magic) {
        return Ok(Description::opaque(Format::LlmC, source.bytes(), *reason));
    }
    let malformed = |offset, why: String| FormatError::malformed(Format::LlmC, offset, why);
    let dtype = KINDS
        .iter()
        .find(|(m, v, _)| (*m, *v) == (magic, version))
        .map(|(.., dtype)| *dtype)
        .ok_or_else(|| malformed(4, format!("version {version} of {magic} is unknown")))?;
    let bytes = u64::from(count) * (dtype.bits() / 8);
    if HEADER_BYTES + bytes != source.bytes() {
        let why = format!("{count} ids of {dtype} do not end at {}", source.bytes());
        return Err(malformed(8, why));
    }
    let payload = Payload {
        name: String::new(),
        offset: HEADER_BYTES,
        bytes,
        contents: Contents::Elements(dtype),
        shape: vec![u64::from(count)],
    };
    let mut description =
        Description::typed(Format::LlmC, source.bytes(), vec![payload], Details::LlmC);
    description.notes.push(
        "llm.c's own loader reads 16-bit ids only; its header has no room, so data start at 1,024"
            .to_owned(),
    );
    Ok(description)
}

/// The header's first two numbers are new; the count and the zeros stay.
pub(crate) fn present(wanted: &AllWanted<'_>) -> Result<Presentation, FormatError> {
    let mut view = Presentation::default();
    for wanted in &wanted.0 {
        let found = KINDS
            .iter()
            .find(|(.., dtype)| Some(*dtype) == wanted.dtype());
        let Some((magic, version, _)) = found else {
            let why = "the header of llm.c knows u16 (gpt-2) and u32 (llama-3) only";
            return Err(FormatError::refused("llm.c", why));
        };
        view.push_new(&[magic.to_le_bytes(), version.to_le_bytes()].concat());
        view.push_source(8, HEADER_BYTES - 8);
        view.push(wanted);
    }
    Ok(view)
}
