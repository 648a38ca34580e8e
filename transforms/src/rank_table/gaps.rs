//! Packed ids of a table: each as its distance from the one before, low seven bits first, all of them in one Zstandard frame (RFC 8878).
//! Ids of one class come by rising value ([`IdCounts::table`](super::IdCounts::table)), so that most distances are small.

use zstd_safe::{CCtx, CParameter, DCtx};

use super::{IDS_END, broken};
use crate::TransformError;
use crate::codecs::zstd_frame::Frames;

/// Of a distance: seven bits a byte.
const GAP_BYTES_MAX: usize = 4;
/// What the levels above leave is not less: distances are hardly ever there again.
const LEVEL: i32 = 3;

const FRAMES: Frames = Frames { step: "rank table" };
const NO_MEMORY: TransformError = TransformError::Memory { step: FRAMES.step };

// Distances are below it, so that it must be what they are counted modulo; and fit.
const _: () = assert!(IDS_END.is_power_of_two() && IDS_END <= 1 << (7 * GAP_BYTES_MAX));

/// The frame.
///
/// # Errors
/// [`TransformError::Memory`].
pub(super) fn pack(ids: &[u32]) -> Result<Vec<u8>, TransformError> {
    let mut gaps = Vec::with_capacity(2 * ids.len());
    let mut before = 0;
    for id in ids {
        push(&mut gaps, id.wrapping_sub(before) % IDS_END);
        before = *id;
    }
    let mut frame = vec![0; zstd_safe::compress_bound(gaps.len())];
    let mut context = CCtx::try_create().ok_or(NO_MEMORY)?;
    // What remains, with a level that there is and room for the longest frame, is memory.
    context
        .set_parameter(CParameter::CompressionLevel(LEVEL))
        .and_then(|_| context.compress2(frame.as_mut_slice(), &gaps))
        .map(|written| frame.truncate(written))
        .map_err(|_| NO_MEMORY)?;
    Ok(frame)
}

#[allow(clippy::cast_possible_truncation)] // seven bits
fn push(gaps: &mut Vec<u8>, mut gap: u32) {
    while gap >= 0x80 {
        gaps.push((gap & 0x7F) as u8 | 0x80);
        gap >>= 7;
    }
    gaps.push(gap as u8);
}

/// The ids of a frame, `count` of them; hostile input.
///
/// # Errors
/// [`TransformError::Table`], with the rule that it breaks.
pub(super) fn unpack(frame: &[u8], count: usize) -> Result<Vec<u32>, TransformError> {
    let gaps = decompress(frame, count).map_err(|error| match error {
        TransformError::Corrupt { why, .. } => broken(format!("its packed ids: {why}")),
        other => other,
    })?;
    let mut ids = Vec::with_capacity(count);
    let (mut rest, mut before) = (gaps.as_slice(), 0);
    for rank in 0..count {
        before = (before + take(&mut rest, rank)?) % IDS_END;
        ids.push(before);
    }
    match rest.len() {
        0 => Ok(ids),
        more => Err(broken(format!(
            "{more} bytes behind the {count} ids that are packed"
        ))),
    }
}

fn decompress(frame: &[u8], count: usize) -> Result<Vec<u8>, TransformError> {
    let declared = FRAMES.declared_bytes(frame)?;
    let possible = count..=GAP_BYTES_MAX * count;
    let bytes = usize::try_from(declared).ok();
    let Some(bytes) = bytes.filter(|bytes| possible.contains(bytes)) else {
        return Err(FRAMES.corrupt(format!(
            "the frame declares {declared} bytes, where {count} ids have {} to {}",
            possible.start(),
            possible.end()
        )));
    };
    FRAMES.check(frame, bytes)?;
    let mut context = DCtx::try_create().ok_or(NO_MEMORY)?;
    let mut gaps = vec![0; bytes];
    let written = context
        .decompress(gaps.as_mut_slice(), frame)
        .map_err(|code| FRAMES.corrupt_by(code))?;
    FRAMES.filled(written, bytes)?;
    Ok(gaps)
}

/// The next distance.
fn take(rest: &mut &[u8], rank: usize) -> Result<u32, TransformError> {
    let mut gap = 0;
    for (place, byte) in rest.iter().take(GAP_BYTES_MAX).enumerate() {
        gap |= u32::from(byte & 0x7F) << (7 * place);
        if byte & 0x80 != 0 {
            continue;
        }
        if gap >= IDS_END || (*byte == 0 && place > 0) {
            break;
        }
        *rest = &rest[place + 1..];
        return Ok(gap);
    }
    Err(broken(format!(
        "rank {rank} is at no distance from the one before: one below {IDS_END}, in as few bytes as it takes"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame whose one block has these bytes as they are (RFC 8878, 3.1.1).
    fn frame(content: &[u8]) -> Vec<u8> {
        let len = u8::try_from(content.len()).unwrap();
        let block = (u32::from(len) << 3 | 1).to_le_bytes();
        // A single segment, its size in one byte.
        let head = [0x28, 0xB5, 0x2F, 0xFD, 0x20, len];
        [&head[..], &block[..3], content].concat()
    }

    fn refused(content: &[u8], count: usize) -> String {
        unpack(&frame(content), count).unwrap_err().to_string()
    }

    #[test]
    fn distances_are_counted_from_zero_and_around_the_end() {
        let content = [
            0x05, 0x80, 0x01, 0x81, 0xFF, 0xFF, 0x01, 0xFF, 0xFF, 0xFF, 0x01,
        ];
        let ids = [5, 133, 6, 5];
        assert_eq!(unpack(&frame(&content), 4).unwrap(), ids);
        let ends = [0, IDS_END - 1, 1, IDS_END - 2, 0x7F, 0xFF, 0x4000];
        for ids in [&ids[..], &ends, &[0], &[]] {
            let packed = pack(ids).unwrap();
            assert_eq!(unpack(&packed, ids.len()).unwrap(), ids);
        }
    }

    #[test]
    fn what_is_no_distance_is_refused() {
        let says = |content: &[u8], rank: u32| {
            let error = refused(content, 2);
            let why = format!("rank {rank} is at no distance from the one before");
            assert!(error.contains(&why), "{content:?}: {error}");
        };
        // Longer than it takes, at and past the end, and without one.
        says(&[1, 0x80, 0], 1);
        says(&[0x80, 0x80, 0, 1], 0);
        says(&[0x80, 0x80, 0x80, 0x02, 1], 0);
        says(&[1, 0xFF, 0xFF, 0xFF, 0x7F], 1);
        says(&[1, 0x80, 0x80, 0x80, 0x80, 0x01], 1);
        says(&[1, 0xFF], 1);
        says(&[1, 0xFF, 0xFF, 0xFF], 1);
    }

    #[test]
    fn a_frame_is_of_as_many_ids_as_belong() {
        assert_eq!(
            refused(&[1, 2, 3], 2),
            "not a rank table: 1 bytes behind the 2 ids that are packed"
        );
        let error = refused(&[1, 0x82, 1], 3);
        assert!(error.contains("rank 2 is at no distance"), "{error}");
        let declared = "not a rank table: its packed ids: the frame declares";
        let error = refused(&[1], 2);
        assert_eq!(
            error,
            format!("{declared} 1 bytes, where 2 ids have 2 to 8")
        );
        let error = refused(&[1; 5], 1);
        assert_eq!(
            error,
            format!("{declared} 5 bytes, where 1 ids have 1 to 4")
        );
        let good = frame(&[1, 2]);
        unpack(&good, 2).unwrap();
        for len in 0..good.len() {
            unpack(&good[..len], 2).unwrap_err();
        }
        let error = unpack(&[&good[..], &[0]].concat(), 2).unwrap_err();
        assert!(error.to_string().contains("1 bytes behind the frame"));
    }

    /// What the frames of a chain may be, these may be: in a small window, alone, by no dictionary, with a checksum that is right or none.
    #[test]
    fn a_frame_is_as_those_of_chains_are() {
        let content = [5, 1];
        let head = |descriptor: u8, fields: &[u8]| {
            [&[0x28, 0xB5, 0x2F, 0xFD, descriptor], fields].concat()
        };
        let block = [0x11, 0, 0, content[0], content[1]];
        let is_read = |frame: &[&[u8]]| unpack(&frame.concat(), 2).is_ok_and(|ids| ids == [5, 6]);
        // A window of 16 MiB, and the next larger one. The size is in four bytes.
        assert!(is_read(&[&head(0x80, &[14 << 3, 2, 0, 0, 0]), &block]));
        assert!(!is_read(&[&head(0x80, &[14 << 3 | 1, 2, 0, 0, 0]), &block]));
        // Without its size.
        assert!(!is_read(&[&head(0x00, &[0]), &block]));
        // A Dictionary_ID of nothing, and of 7.
        assert!(is_read(&[&head(0x21, &[0, 2]), &block]));
        assert!(!is_read(&[&head(0x21, &[7, 2]), &block]));
        // The low half of XXH64 is the checksum: by a compressor, and another.
        let mut context = CCtx::try_create().unwrap();
        context
            .set_parameter(CParameter::ChecksumFlag(true))
            .unwrap();
        let mut checked = [0; 64];
        let written = context.compress2(&mut checked[..], &content).unwrap();
        assert!(is_read(&[&checked[..written]]));
        checked[written - 1] ^= 1;
        assert!(!is_read(&[&checked[..written]]));
        // Two frames, and one that is to be skipped, of a byte.
        let good = frame(&content);
        assert!(!is_read(&[&frame(&content[..1]), &frame(&content[1..])]));
        assert!(!is_read(&[&good, &[0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, 9]]));
        assert!(is_read(&[&good]));
    }
}
