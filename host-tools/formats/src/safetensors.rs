//! safetensors: a length, a JSON header, and the tensors without holes (safetensors' README, "Format"; its `tensor.rs`).
//!
//! ```text
//!  0        8                            8 + N
//!  +--------+----------------------------+--------------------+
//!  | N, u64 | JSON, padded with spaces   | tensors, no holes  |
//!  +--------+----------------------------+--------------------+
//! ```

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Deserialize;

use crate::description::{Contents, Description, Details, Payload};
use crate::limits::{HEADER_BYTES_MAX, TENSORS_MAX};
use crate::presentation::{AllWanted, Presentation, WHO_HAS_BLOCKS, Wanted};
use crate::source::{self, u64_at};
use crate::{ByteSource, Dtype, Format, FormatError, json};

/// Bytes of the header's length.
const LENGTH_BYTES: u64 = 8;
/// The member that is no tensor.
const METADATA: &str = "__metadata__";

/// What a rewritten header keeps of the old one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    /// `__metadata__` as it is written.
    metadata: Option<String>,
}

/// A tensor in the header. Other members are ignored, as the reference reader does.
#[derive(Deserialize)]
struct TensorInfo<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Whether a file that begins so can be one: a length that is read, and the brace that must follow. A header that is longer than the file is one of a file that was cut
/// off, where a name begins it.
pub(crate) fn is_likely(head: &[u8], file_bytes: u64) -> bool {
    let header_bytes = u64_at(head, 0);
    head.get(8) == Some(&b'{')
        && header_bytes <= HEADER_BYTES_MAX
        && (header_bytes + LENGTH_BYTES <= file_bytes || head.get(9) == Some(&b'"'))
}

pub(crate) fn describe(source: &dyn ByteSource) -> Result<Description, FormatError> {
    let malformed = |offset, why: String| FormatError::malformed(Format::Safetensors, offset, why);
    let length = source::range(source, Format::Safetensors, 0, LENGTH_BYTES, LENGTH_BYTES)?;
    let header_bytes = u64_at(&length, 0);
    let header = source::range(
        source,
        Format::Safetensors,
        LENGTH_BYTES,
        header_bytes,
        HEADER_BYTES_MAX,
    )?;
    let text = str::from_utf8(&header).map_err(|e| malformed(LENGTH_BYTES, e.to_string()))?;
    let members = json::members(text).map_err(|e| malformed(LENGTH_BYTES, e.to_string()))?;
    if members.len() as u64 > TENSORS_MAX {
        return Err(FormatError::Limit {
            format: Format::Safetensors,
            what: "tensors",
            found: members.len() as u64,
            max: TENSORS_MAX,
        });
    }
    let data_offset = LENGTH_BYTES + header_bytes;
    let mut metadata = None;
    let mut payloads = Vec::with_capacity(members.len());
    for (name, value) in members {
        if name == METADATA {
            metadata = Some(value.get().to_owned());
            continue;
        }
        let info: TensorInfo<'_> = serde_json::from_str(value.get())
            .map_err(|e| malformed(LENGTH_BYTES, format!("tensor {name:?}: {e}")))?;
        let Some(dtype) = Dtype::from_safetensors(&info.dtype) else {
            let reason = format!("tensor {name:?} is of type {}, unknown here", info.dtype);
            return Ok(Description::opaque(
                Format::Safetensors,
                source.bytes(),
                reason,
            ));
        };
        payloads.push(payload(name, dtype, info, data_offset)?);
    }
    payloads.sort_by_key(|p| (p.offset, p.bytes));
    check_no_holes(&payloads, data_offset, source.bytes())?;
    Ok(Description::typed(
        Format::Safetensors,
        source.bytes(),
        payloads,
        Details::Safetensors(Header { metadata }),
    ))
}

fn payload(
    name: String,
    dtype: Dtype,
    info: TensorInfo<'_>,
    data_offset: u64,
) -> Result<Payload, FormatError> {
    let (begin, end) = info.data_offsets;
    let elements = info
        .shape
        .iter()
        .try_fold(1u64, |product, dim| product.checked_mul(*dim));
    let bytes = elements.and_then(|elements| dtype.bytes_of(elements));
    if bytes.is_none() || bytes != end.checked_sub(begin) {
        let why = format!(
            "tensor {name:?}: {dtype} of shape {:?} is not bytes {begin} to {end}",
            info.shape
        );
        return Err(FormatError::malformed(
            Format::Safetensors,
            LENGTH_BYTES,
            why,
        ));
    }
    Ok(Payload {
        name,
        offset: data_offset.saturating_add(begin),
        bytes: end - begin,
        contents: Contents::Elements(dtype),
        shape: info.shape,
    })
}

/// The tensors follow each other from the header's end to the file's: nothing else is hidden between them.
fn check_no_holes(
    payloads: &[Payload],
    data_offset: u64,
    file_bytes: u64,
) -> Result<(), FormatError> {
    let mut position = data_offset;
    for payload in payloads {
        if payload.offset != position {
            let why = format!("tensor {:?} does not start there", payload.name);
            return Err(FormatError::malformed(Format::Safetensors, position, why));
        }
        position = payload.range().end;
    }
    if position != file_bytes {
        let why = format!("the tensors end there, and the file at {file_bytes}");
        return Err(FormatError::malformed(Format::Safetensors, position, why));
    }
    Ok(())
}

impl Header {
    /// The file as safetensors' own writer would have written it: sorted by type, widest alignment first, then by name.
    pub(crate) fn present(
        &self,
        wanted: &AllWanted<'_>,
        alignment: u64,
    ) -> Result<Presentation, FormatError> {
        let mut sorted = Vec::with_capacity(wanted.0.len());
        for wanted in &wanted.0 {
            // A payload without an element type never comes from a header of this format.
            let dtype = wanted.dtype().ok_or_else(|| no_name(wanted))?;
            sorted.push((dtype, *wanted));
        }
        sorted.sort_by(|(left_dtype, left), (right_dtype, right)| {
            right_dtype
                .cmp(left_dtype)
                .then_with(|| left.payload.name.cmp(&right.payload.name))
        });
        let mut view = Presentation::default();
        view.push_new(&self.bytes(&sorted, alignment)?);
        for (_, wanted) in &sorted {
            view.push(wanted);
        }
        Ok(view)
    }

    /// Length and JSON, padded with spaces so that the data start at a multiple of `alignment`, and of 8 in any case.
    fn bytes(
        &self,
        sorted: &[(Dtype, Wanted<'_>)],
        alignment: u64,
    ) -> Result<Vec<u8>, FormatError> {
        let mut text = String::from("{");
        if let Some(metadata) = &self.metadata {
            let _ = write!(text, "\"{METADATA}\":{metadata},");
        }
        let mut position = 0u64;
        for (dtype, wanted) in sorted {
            let name = dtype.row().safetensors.ok_or_else(|| no_name(wanted))?;
            let shape: Vec<String> = wanted.payload.shape.iter().map(u64::to_string).collect();
            let end = position.saturating_add(wanted.bytes());
            let _ = write!(
                text,
                "{}:{{\"dtype\":\"{name}\",\"shape\":[{}],\"data_offsets\":[{position},{end}]}},",
                json::quoted(&wanted.payload.name),
                shape.join(",")
            );
            position = end;
        }
        if text.ends_with(',') {
            text.pop();
        }
        text.push('}');
        let data_offset =
            (LENGTH_BYTES + text.len() as u64).next_multiple_of(alignment.max(LENGTH_BYTES));
        let header_bytes = data_offset - LENGTH_BYTES;
        if header_bytes > HEADER_BYTES_MAX {
            return Err(FormatError::Limit {
                format: Format::Safetensors,
                what: "bytes of rewritten header",
                found: header_bytes,
                max: HEADER_BYTES_MAX,
            });
        }
        let mut bytes = header_bytes.to_le_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        bytes.resize(usize::try_from(data_offset).unwrap_or(usize::MAX), b' ');
        Ok(bytes)
    }
}

fn no_name(wanted: &Wanted<'_>) -> FormatError {
    let why = match wanted.dtype() {
        Some(Dtype::Q8_0) => format!("safetensors has no q8_0; {}", WHO_HAS_BLOCKS),
        _ => "safetensors has no name for its presented type".to_owned(),
    };
    FormatError::refused(&wanted.payload.name, why)
}
