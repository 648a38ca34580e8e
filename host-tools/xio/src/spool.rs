//! Folders for what is not finished: gone when the command ends, and where it was killed, with the next one.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::failure::Failure;
use crate::signals::Unfinished;

/// Attempts to make a folder that nobody else takes for one that was left behind.
const ATTEMPTS: usize = 16;

/// A folder that is locked (flock(2)) for as long as it is used: one that is not is nobody's any more.
#[derive(Debug)]
pub struct Spool {
    // Removed before it is unlocked, and by a signal as long as it is there.
    _folder: TempDir,
    /// As whoever asked for it names the folder that it is in: that may be deep, and paths are not of any length.
    path: PathBuf,
    _unfinished: Unfinished,
    _lock: File,
}

impl Spool {
    /// A folder in `above` whose name begins with `prefix`. Those that killed commands have left there are removed.
    pub fn new(above: &Path, prefix: &str) -> Result<Spool, Failure> {
        remove_left(above, prefix);
        let made = (0..ATTEMPTS).find_map(|_| Spool::attempt(above, prefix).transpose());
        let made = made.unwrap_or_else(|| Err(io::ErrorKind::ResourceBusy.into()));
        made.map_err(|error| Failure::io("writing into", above, error))
    }

    /// `None`: between its making and its locking another command has removed it, or is about to.
    fn attempt(above: &Path, prefix: &str) -> io::Result<Option<Spool>> {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(above)?;
        let lock = match File::open(folder.path()) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match lock.try_lock() {
            // Where a file system has no locks nobody removes it either.
            Ok(()) | Err(TryLockError::Error(_)) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
        }
        let is_there = is_same(folder.path(), &lock);
        Ok(is_there.then(|| Spool {
            _unfinished: Unfinished::new(folder.path()),
            path: above.join(folder.path().file_name().unwrap_or_default()),
            _folder: folder,
            _lock: lock,
        }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn is_same(path: &Path, open: &File) -> bool {
    let place = |about: fs::Metadata| (about.dev(), about.ino());
    let there = fs::symlink_metadata(path).ok().map(place);
    there.is_some() && there == open.metadata().ok().map(place)
}

/// Removes folders that nobody has locked. What cannot be removed stays: it is not this command's business.
fn remove_left(above: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(above) else {
        return;
    };
    for entry in entries.flatten() {
        let is_one = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_bytes());
        if !is_one || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        if let Ok(lock) = File::open(&path)
            && lock.try_lock().is_ok()
            && is_same(&path, &lock)
        {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(above: &Path) -> Vec<String> {
        let names = fs::read_dir(above).unwrap();
        let mut names: Vec<_> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_is_left_goes_and_what_is_used_or_foreign_stays() {
        let above = tempfile::tempdir().unwrap();
        let at = |name: &str| above.path().join(name);
        fs::create_dir_all(at(".xio-cp-left/root/deep")).unwrap();
        fs::write(at(".xio-cp-left/root/deep/file"), "1").unwrap();
        fs::create_dir(at("other")).unwrap();
        fs::create_dir(at(".xio-unzip-left")).unwrap();
        fs::write(at(".xio-cp-file"), "not ours").unwrap();
        std::os::unix::fs::symlink(at("other"), at(".xio-cp-link")).unwrap();
        let first = Spool::new(above.path(), ".xio-cp-").unwrap();
        fs::write(first.path().join("in use"), "1").unwrap();
        let second = Spool::new(above.path(), ".xio-cp-").unwrap();
        assert!(first.path().join("in use").exists());
        assert_ne!(first.path(), second.path());
        assert!(!at(".xio-cp-left").exists());
        drop((first, second));
        let foreign = [".xio-cp-file", ".xio-cp-link", ".xio-unzip-left", "other"];
        assert_eq!(names(above.path()), foreign);
    }
}
