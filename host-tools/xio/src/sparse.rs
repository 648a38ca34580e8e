//! New files without their zeros: what nothing is written to reads as zeros, and takes no room.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// As many zeros are left out, and no fewer.
const HOLE_BYTES: usize = 64 << 10;
static ZEROS: [u8; HOLE_BYTES] = [0; HOLE_BYTES];

/// Writes `bytes` at `at` into a file that has nothing there yet, but for whole pieces of zeros. Its length is set at the end ([`File::set_len`]).
///
/// # Errors
/// What the system says.
pub fn write(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    // From the first piece that is not written yet.
    let (mut first, mut start) = (0, 0);
    for piece in bytes.chunks(HOLE_BYTES) {
        let end = start + piece.len();
        if piece == ZEROS {
            file.write_all_at(&bytes[first..start], at + first as u64)?;
            first = end;
        }
        start = end;
    }
    file.write_all_at(&bytes[first..], at + first as u64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn zeros_are_left_out_and_nothing_else() {
        let mut bytes = vec![0; 9 * HOLE_BYTES + 100];
        for at in [3 * HOLE_BYTES - 1, 4 * HOLE_BYTES, 9 * HOLE_BYTES + 7] {
            bytes[at] = 1;
        }
        let file = tempfile::tempfile().unwrap();
        write(&file, &bytes, 12_288).unwrap();
        file.set_len(12_288 + bytes.len() as u64).unwrap();
        let mut found = vec![9; bytes.len()];
        file.read_exact_at(&mut found, 12_288).unwrap();
        assert!(found == bytes);
        // Two pieces, the end, and the blocks that they begin and end in.
        let taken = file.metadata().unwrap().blocks() * 512;
        assert!(taken <= 3 * HOLE_BYTES as u64 + 12_288, "{taken}");
    }
}
