//! Whether a file is still the one that a volume was mapped on.
//!
//! Checksums would find what was changed, block by block, in the middle of somebody's read. This finds it before anything is served.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::VolumeError;
use crate::file_state::FileState;
use crate::format::Source;
use crate::limits::DIGEST_AT_OPEN_BYTES_MAX;

/// What is read at a time.
const PART_BYTES: usize = 1 << 20;

impl Source {
    /// Checks that `file`, found at `path`, is what this source was when it was mapped: by its length, and by its modification time where that
    /// was recorded. A file that was copied or touched has another time: then its SHA-256 decides, for which it is read whole, up to
    /// [`DIGEST_AT_OPEN_BYTES_MAX`].
    ///
    /// # Errors
    /// [`VolumeError::SourceChanged`]; [`VolumeError::Io`].
    pub fn check_unchanged(&self, file: &File, path: &Path) -> Result<(), VolumeError> {
        let failed = |error| {
            let action = format!(
                "looking at {}, which the volume is mapped on",
                path.display()
            );
            VolumeError::io(action, error)
        };
        let changed = |why: String| VolumeError::SourceChanged {
            path: path.to_owned(),
            why,
        };
        let FileState {
            bytes,
            modified_ns: now,
        } = FileState::of(file).map_err(failed)?;
        if bytes != self.bytes {
            return Err(changed(format!(
                "it is {bytes} bytes, and was {}",
                self.bytes
            )));
        }
        match (self.modified_ns, self.digest) {
            (Some(then), _) if now == Some(then) => Ok(()),
            // There is nothing else to hold it against.
            (None, None) => Ok(()),
            (Some(_), None) => Err(changed("it was modified since".to_owned())),
            (_, Some(_)) if bytes > DIGEST_AT_OPEN_BYTES_MAX => Err(changed(format!(
                "it was modified or copied since, and to read all of its {bytes} bytes again would take too long here"
            ))),
            (_, Some(digest)) if sha256_of(file).map_err(failed)? != digest => {
                Err(changed("its SHA-256 is another one".to_owned()))
            }
            (_, Some(_)) => Ok(()),
        }
    }
}

fn sha256_of(mut file: &File) -> io::Result<[u8; 32]> {
    file.seek(SeekFrom::Start(0))?;
    let mut hash = Sha256::new();
    let mut part = vec![0; PART_BYTES];
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(read) => hash.update(part.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
