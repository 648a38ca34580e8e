//! A record: a line that says what follows, how long it is, and its checksum; then the bytes.

use nvme::digest::crc32c;

use super::StateError;
use crate::limits::RECORD_BYTES_MAX;

/// The first word of every record, and the version of what this module writes.
const MAGIC: &str = "xio-state 1";
/// Longest first line.
pub const LINE_BYTES_MAX: usize = 256;

/// A record as it is stored. The checksum covers its kind, its sequence number and its bytes.
pub fn seal(kind: &str, sequence: u64, bytes: &[u8]) -> Vec<u8> {
    let line = format!("{MAGIC} {kind} sequence={sequence} bytes={}", bytes.len());
    let crc = checksum(&line, bytes);
    let mut record = format!("{line} crc32c={crc:08x}\n").into_bytes();
    record.extend_from_slice(bytes);
    record
}

/// A record's sequence number and bytes.
///
/// # Errors
/// What is wrong with it, as [`StateError::Damaged`] or [`StateError::Version`] says it.
pub fn unseal<'r>(kind: &str, record: &'r [u8], file: &str) -> Result<(u64, &'r [u8]), StateError> {
    let damaged = |why: &str| StateError::Damaged {
        file: file.to_owned(),
        why: why.to_owned(),
    };
    if record.len() as u64 > RECORD_BYTES_MAX {
        return Err(damaged("it is longer than any record"));
    }
    let head = record.get(..LINE_BYTES_MAX).unwrap_or(record);
    let end = head.iter().position(|&byte| byte == b'\n');
    let (line, bytes) = end
        .and_then(|end| Some((record.get(..end)?, record.get(end + 1..)?)))
        .ok_or_else(|| damaged("its first line has no end"))?;
    let line = std::str::from_utf8(line).map_err(|_| damaged("its first line is not text"))?;
    if !line.starts_with(MAGIC) && line.starts_with("xio-state ") {
        return Err(StateError::Version {
            file: file.to_owned(),
        });
    }
    let (covered, crc) = line
        .rsplit_once(" crc32c=")
        .ok_or_else(|| damaged("its first line has no checksum"))?;
    if crc != format!("{:08x}", checksum(covered, bytes)) {
        return Err(damaged("its checksum does not match"));
    }
    let fields = covered
        .strip_prefix(&format!("{MAGIC} {kind} sequence="))
        .and_then(|rest| rest.split_once(" bytes="))
        .and_then(|(sequence, len)| Some((sequence.parse().ok()?, len.parse::<usize>().ok()?)));
    match fields {
        Some((sequence, len)) if len == bytes.len() => Ok((sequence, bytes)),
        _ => Err(damaged("it is a record of something else")),
    }
}

fn checksum(line: &str, bytes: &[u8]) -> u32 {
    let mut covered = Vec::with_capacity(line.len() + bytes.len());
    covered.extend_from_slice(line.as_bytes());
    covered.extend_from_slice(bytes);
    crc32c(&covered)
}
