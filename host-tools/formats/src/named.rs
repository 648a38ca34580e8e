//! What a file's name says that it is, and why its content is not that: a damaged file keeps its name.
//!
//! A name makes nothing of a file ([`describe`](crate::describe) does not ask for it). It tells a person that something is amiss.

use crate::limits::HEADER_BYTES_MAX;
use crate::source::{head, u64_at};
use crate::{ByteSource, Format, FormatError, gguf, megatron, npy};

/// The formats whose files have names of their own. An `.idx` is one of a pair only beside a `.bin`.
const NAMES: [(&[u8], Format); 6] = [
    (b".safetensors", Format::Safetensors),
    (b".npy", Format::Npy),
    (b".gguf", Format::Gguf),
    (b".idx", Format::MegatronIndex),
    (b".mds", Format::MdsShard),
    (b".parquet", Format::Parquet),
];
/// Bytes of a safetensors header's length, and the brace behind it.
const SAFETENSORS_BYTES_MIN: usize = 9;

/// The format that files of this name have.
#[must_use]
pub fn format_of_name(name: &[u8]) -> Option<Format> {
    let mut names = NAMES.iter();
    let found = names.find(|(end, _)| name.ends_with(end) && name.len() > end.len());
    found.map(|(_, format)| *format)
}

/// Why a file that is not recognised as `format` is none.
///
/// # Errors
/// [`FormatError::Read`] from the source.
pub fn why_not(source: &dyn ByteSource, format: Format) -> Result<FormatError, FormatError> {
    let (bytes, len) = head::<SAFETENSORS_BYTES_MIN>(source)?;
    let begins_with = |magic: &[u8]| {
        let why = format!("\"{}\" belongs there", magic.escape_ascii());
        FormatError::malformed(format, 0, why)
    };
    Ok(match format {
        Format::Safetensors => safetensors(&bytes, len, source.bytes()),
        Format::Npy => begins_with(npy::MAGIC),
        Format::Gguf => begins_with(gguf::MAGIC),
        Format::MegatronIndex => begins_with(megatron::MAGIC),
        Format::Parquet => {
            FormatError::malformed(format, 0, "\"PAR1\" belongs there, and at the file's end")
        }
        _ => FormatError::malformed(format, 0, "its content is no such file"),
    })
}

fn safetensors(head: &[u8], len: usize, file_bytes: u64) -> FormatError {
    let malformed = |offset, why| FormatError::malformed(Format::Safetensors, offset, why);
    let header_bytes = u64_at(head, 0);
    if len < SAFETENSORS_BYTES_MIN {
        let why =
            format!("the header's length and a header belong there, the file has {len} bytes");
        return malformed(0, why);
    }
    if header_bytes > file_bytes {
        let why = format!(
            "{header_bytes} bytes of header belong there, the file ends at byte {file_bytes}"
        );
        return malformed(8, why);
    }
    if header_bytes > HEADER_BYTES_MAX {
        return FormatError::Limit {
            format: Format::Safetensors,
            what: "bytes of header",
            found: header_bytes,
            max: HEADER_BYTES_MAX,
        };
    }
    malformed(8, "a header that begins with '{' belongs there".to_owned())
}
