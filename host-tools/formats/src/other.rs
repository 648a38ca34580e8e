//! What is recognised only to say why it is passed through as it is.

use crate::description::Description;
use crate::{ByteSource, Format, FormatError};

/// Bytes that are looked at: a tar header.
pub(crate) const HEAD_BYTES: usize = 512;
/// What a Parquet file begins and ends with.
const PARQUET: &[u8] = b"PAR1";

/// The format that the first bytes show, if it is one of these.
pub(crate) fn describe(
    source: &dyn ByteSource,
    head: &[u8],
) -> Result<Option<Description>, FormatError> {
    let whole = |format, reason| Ok(Some(Description::opaque(format, source.bytes(), reason)));
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        return if first_member_is_npy(head) {
            whole(
                Format::Npz,
                "its arrays are members of a zip archive, often compressed, at any offset; store each as .npy",
            )
        } else {
            whole(Format::Zip, "its members may be compressed; unpack it")
        };
    }
    if head.starts_with(PARQUET) && ends_with(source, PARQUET)? {
        return whole(
            Format::Parquet,
            "its columns are encoded and compressed in pages of their own",
        );
    }
    if head.starts_with(b"\xff\xd8\xff") {
        return whole(Format::Jpeg, "it is compressed already");
    }
    if is_tar(head) {
        return whole(
            Format::Tar,
            "its members begin at multiples of 512 with headers between them; unpack it",
        );
    }
    Ok(None)
}

/// The name in the local file header (APPNOTE 4.3.7) ends in `.npy`.
fn first_member_is_npy(head: &[u8]) -> bool {
    let name_bytes = head.get(26..28).map_or(0, |field| {
        usize::from(u16::from_le_bytes([field[0], field[1]]))
    });
    head.get(30..)
        .and_then(|rest| rest.get(..name_bytes))
        .is_some_and(|name| name.ends_with(b".npy"))
}

fn ends_with(source: &dyn ByteSource, magic: &[u8]) -> Result<bool, FormatError> {
    let mut tail = [0; 4];
    let Some(offset) = source.bytes().checked_sub(8) else {
        return Ok(false);
    };
    let offset = offset + 4;
    source
        .read_at(offset, &mut tail)
        .map_err(|error| FormatError::Read { offset, error })?;
    Ok(tail == magic)
}

/// The header's checksum holds: the sum of its bytes, those of the checksum taken as spaces (POSIX, pax, "ustar Interchange Format").
/// That also finds archives from before `ustar` was written into them.
fn is_tar(head: &[u8]) -> bool {
    let (Some(header), Some(field)) = (head.get(..HEAD_BYTES), head.get(148..156)) else {
        return false;
    };
    let digits: Vec<u8> = field
        .iter()
        .copied()
        .skip_while(|byte| *byte == b' ')
        .take_while(|byte| (b'0'..=b'7').contains(byte))
        .collect();
    let Some(stated) = str::from_utf8(&digits)
        .ok()
        .and_then(|digits| u32::from_str_radix(digits, 8).ok())
    else {
        return false;
    };
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    // A header of zeros ends an archive, and begins none.
    header[0] != 0 && sum(header) - sum(field) + 8 * u32::from(b' ') == stated
}
