//! Where files lie in a namespace that holds several.

/// How files follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Logical block size.
    pub lba_bytes: u32,
    /// End to end; otherwise each file starts at a logical block of its own.
    pub concat: bool,
}

impl Layout {
    /// Zeros between presented byte `position`, where the files so far end, and the next file.
    pub fn gap_before(&self, position: u64) -> u64 {
        if self.concat {
            return 0;
        }
        position.next_multiple_of(u64::from(self.lba_bytes)) - position
    }
}
