//! Files, laid out one after the other as `xio pack` lays them out: what a namespace that holds them presents.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::layout::Layout;

/// What several files together present.
pub struct Files {
    placed: Vec<Placed>,
    /// Presented bytes.
    pub bytes: u64,
}

struct Placed {
    path: PathBuf,
    file: File,
    /// First presented byte.
    start: u64,
    bytes: u64,
}

impl Files {
    /// Opens `paths`, in their order.
    pub fn open(paths: &[PathBuf], layout: Layout) -> Result<Files, Failure> {
        let mut placed = Vec::with_capacity(paths.len());
        let mut bytes = 0;
        for path in paths {
            let failed = |error| Failure::io("reading", path, error);
            let file = File::open(path).map_err(failed)?;
            let start = bytes + layout.gap_before(bytes);
            let file_bytes = file.metadata().map_err(failed)?.len();
            bytes = start + file_bytes;
            placed.push(Placed {
                path: path.clone(),
                file,
                start,
                bytes: file_bytes,
            });
        }
        Ok(Files { placed, bytes })
    }

    /// Fills `into` with what is presented from `offset` on: zeros where there is no file.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Failure> {
        into.fill(0);
        let end = offset + into.len() as u64;
        for placed in &self.placed {
            let from = placed.start.max(offset);
            let to = (placed.start + placed.bytes).min(end);
            if from >= to {
                continue;
            }
            let part = index(from - offset)..index(to - offset);
            placed
                .file
                .read_exact_at(&mut into[part], from - placed.start)
                .map_err(|error| Failure::io("reading", &placed.path, error))?;
        }
        Ok(())
    }

    /// The file that presents the byte at `offset`, and which of its bytes that is.
    pub fn locate(&self, offset: u64) -> Option<(&Path, u64)> {
        let placed = self
            .placed
            .iter()
            .find(|placed| (placed.start..placed.start + placed.bytes).contains(&offset))?;
        Some((&placed.path, offset - placed.start))
    }
}

/// An index into a buffer in memory, which is shorter than a `usize` can count.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_start_at_blocks_unless_they_are_end_to_end() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|name| folder.path().join(name));
        std::fs::write(&paths[0], [1; 600]).unwrap();
        std::fs::write(&paths[1], []).unwrap();
        std::fs::write(&paths[2], [3; 5]).unwrap();
        let apart = Files::open(
            &paths,
            Layout {
                lba_bytes: 512,
                concat: false,
            },
        )
        .unwrap();
        assert_eq!(apart.bytes, 1029);
        let mut bytes = vec![9; 600];
        apart.read(500, &mut bytes).unwrap();
        let expected = [vec![1; 100], vec![0; 424], vec![3; 5], vec![0; 71]].concat();
        assert_eq!(bytes, expected);
        assert_eq!(apart.locate(1026), Some((paths[2].as_path(), 2)));
        assert_eq!(apart.locate(700), None);
        let together = Files::open(
            &paths,
            Layout {
                lba_bytes: 512,
                concat: true,
            },
        )
        .unwrap();
        assert_eq!(together.bytes, 605);
        assert_eq!(together.locate(600), Some((paths[2].as_path(), 0)));
    }
}
