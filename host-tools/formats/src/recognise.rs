//! What a file is, by its content.

use std::path::{Component, Path};

use crate::description::{Companion, Contents, Description, Details, Payload};
use crate::source::head;
use crate::{ByteSource, Dtype, Format, FormatError};
use crate::{gguf, llmc, mds, megatron, model, npy, other, safetensors};

/// Says what a file is. Its name is not asked for.
///
/// # Errors
/// [`FormatError::Malformed`] where it begins like a known format and breaks its rules, [`FormatError::Limit`] where there is more than is
/// read, [`FormatError::Read`] from the source.
pub fn describe(source: &dyn ByteSource) -> Result<Description, FormatError> {
    let (head, len) = head::<{ other::HEAD_BYTES }>(source)?;
    let head = head.get(..len).unwrap_or_default();
    let file_bytes = source.bytes();
    if head.starts_with(npy::MAGIC) {
        return npy::describe(source);
    }
    if head.starts_with(gguf::MAGIC) {
        return gguf::describe(source);
    }
    if head.starts_with(megatron::MAGIC) {
        return megatron::describe(source);
    }
    if let Some(description) = other::describe(source, head)? {
        return Ok(description);
    }
    if llmc::is_likely(head, file_bytes) {
        return llmc::describe(source);
    }
    if safetensors::is_likely(head, file_bytes) {
        return safetensors::describe(source);
    }
    if head.trim_ascii_start().starts_with(b"{")
        && let Some(description) = describe_json(source)?
    {
        return Ok(description);
    }
    if let Some(description) = mds::describe(source)? {
        return Ok(description);
    }
    Ok(unknown(file_bytes))
}

/// Takes a file without a header as elements of `dtype`, as the user says (`--as u16`): nanoGPT's `train.bin`, a memory map.
///
/// # Errors
/// [`FormatError::Refused`] where the file's length is no whole number of elements.
pub fn describe_as(source: &dyn ByteSource, dtype: Dtype) -> Result<Description, FormatError> {
    let file_bytes = source.bytes();
    let bits = u128::from(file_bytes) * 8;
    let elements = u64::try_from(bits / u128::from(dtype.bits())).unwrap_or(u64::MAX);
    if dtype.bytes_of(elements) != Some(file_bytes) {
        let why = format!("{file_bytes} bytes are no whole number of {dtype} elements");
        return Err(FormatError::refused("the file", why));
    }
    let payload = Payload {
        name: String::new(),
        offset: 0,
        bytes: file_bytes,
        contents: Contents::Elements(dtype),
        shape: vec![elements],
    };
    let mut description = Description::typed(Format::Raw, file_bytes, vec![payload], Details::None);
    description.notes.push(
        "nothing in the file says its type: whoever reads it has to be told a changed one"
            .to_owned(),
    );
    Ok(description)
}

/// The two JSON documents that belong to data.
fn describe_json(source: &dyn ByteSource) -> Result<Option<Description>, FormatError> {
    let Some(text) = model::document(source)? else {
        return Ok(None);
    };
    let (format, listed) = if model::is_index(&text) {
        (Format::SafetensorsIndex, model::listed(&text))
    } else if mds::is_index(&text) {
        (Format::MdsIndex, mds::listed(&text))
    } else if let Some(error) = mds::cut_off(&text) {
        return Err(error);
    } else {
        return Ok(None);
    };
    let reason = "it is rewritten together with the shards that it names";
    let mut description = Description::opaque(format, source.bytes(), reason);
    for name in listed {
        if !is_below(&name) {
            let why = format!("names {name:?}, which is not below its folder");
            return Err(FormatError::malformed(format, 0, why));
        }
        description.companions.push(Companion::Listed(name));
    }
    Ok(Some(description))
}

/// Whether a name from a file leads to a place below the file's own folder, whatever is there.
fn is_below(name: &str) -> bool {
    let mut components = Path::new(name).components();
    !name.is_empty() && components.all(|component| matches!(component, Component::Normal(_)))
}

fn unknown(file_bytes: u64) -> Description {
    let mut description =
        Description::opaque(Format::Unknown, file_bytes, "its format is not known");
    if file_bytes > 0 && file_bytes.is_multiple_of(2) {
        description.notes.push(
            "if these are elements without a header (nanoGPT's token ids are u16), name their type: --as u16"
                .to_owned(),
        );
    }
    description
}
