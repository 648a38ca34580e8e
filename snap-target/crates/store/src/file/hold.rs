//! Files and block devices that this process has, held against other programs.
//!
//! What is written has an OFD write lock, a file that is read a read lock. Whoever opens the same one again in this process shares what is held. The
//! descriptor that holds is no one's for I/O, so it is closed when the process ends, not when io_uring has ended: the next daemon finds the file free.
//!
//! A block device that is to be written must be free for O_EXCL when it is opened: mounted, or part of a volume group, it is not. It is not kept so: the
//! kernel refuses to zero and discard through other descriptors than the exclusive one (EBUSY), and that one would outlive a killed process in io_uring.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::open::{Node, open_with};
use crate::shared::Access;

/// Holds as long as it lives.
#[derive(Debug)]
pub(super) struct Hold {
    file: File,
    access: Access,
    /// Those that it stands for, too: a lock for writing and others of the same process would be in each other's way.
    readers: Vec<Weak<Hold>>,
}

impl Drop for Hold {
    /// Who only reads goes on, and is held against others again before this one lets go.
    ///
    /// It lets go itself: a program that this process starts has a copy of the descriptor until it is loaded, and to close ours would leave the
    /// lock with that copy.
    fn drop(&mut self) {
        let readers: Vec<_> = self.readers.iter().filter_map(Weak::upgrade).collect();
        if readers.is_empty() {
            self.let_go();
            return;
        }
        let both = lock(&self.file, libc::F_RDLCK).and_then(|()| {
            readers
                .iter()
                .try_for_each(|it| lock(&it.file, libc::F_RDLCK))
        });
        if let Err(errno) = both {
            tracing::error!(%errno, "a file that is read is not held against other programs any more");
        }
        self.let_go();
    }
}

impl Hold {
    fn let_go(&self) {
        if let Err(errno) = lock(&self.file, libc::F_UNLCK) {
            tracing::warn!(%errno, "a file that is not used any more may be held for a moment");
        }
    }
}

/// What this process holds.
static HELD: Mutex<Option<HashMap<Node, Vec<Weak<Hold>>>>> = Mutex::new(None);

/// Holds what was opened at a path; none where nothing can be held.
///
/// # Errors
/// EBUSY: another program has it. Anything else is the system's.
pub(super) fn hold(
    path: &Path,
    metadata: &Metadata,
    access: Access,
) -> Result<Option<Arc<Hold>>, Errno> {
    let is_device = metadata.file_type().is_block_device();
    if is_device && access == Access::ReadOnly {
        return Ok(None);
    }
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let held = held.get_or_insert_default();
    held.retain(|_, all| all.iter().any(|it| it.strong_count() > 0));
    let of_node = held.entry(Node::of(metadata)).or_default();
    of_node.retain(|it| it.strong_count() > 0);
    let there: Vec<_> = of_node.iter().filter_map(Weak::upgrade).collect();
    let shared = there
        .iter()
        .find(|it| it.access == Access::ReadWrite || access == Access::ReadOnly);
    if let Some(shared) = shared {
        return Ok(Some(shared.clone()));
    }
    for reader in &there {
        lock(&reader.file, libc::F_UNLCK)?;
    }
    let file = match take(is_device, access, &|flags| open_with(path, access, flags)) {
        Ok(file) => file,
        // What the file system does not have: NFS without its lock daemon.
        Err(Errno::ENOLCK | Errno::EOPNOTSUPP | Errno::ENOSYS) => return Ok(None),
        Err(errno) => {
            for reader in &there {
                lock(&reader.file, libc::F_RDLCK)?;
            }
            return Err(errno);
        }
    };
    let hold = Arc::new(Hold {
        file,
        access,
        readers: there.iter().map(Arc::downgrade).collect(),
    });
    of_node.push(Arc::downgrade(&hold));
    Ok(Some(hold))
}

/// Opens and holds.
fn take(
    is_device: bool,
    access: Access,
    open: &dyn Fn(i32) -> Result<File, Errno>,
) -> Result<File, Errno> {
    if is_device {
        // Without O_CREAT: fails with EBUSY where the system has it in use.
        open(libc::O_EXCL)?;
    }
    let file = open(0)?;
    let kind = match access {
        Access::ReadOnly => libc::F_RDLCK,
        Access::ReadWrite => libc::F_WRLCK,
    };
    lock(&file, kind)?;
    Ok(file)
}

/// Of the whole file, whatever its size comes to be.
fn lock(file: &File, kind: i32) -> Result<(), Errno> {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the kernel's numbers for these are 0 to 2"
    )]
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&lock)) {
        Ok(_) => Ok(()),
        Err(Errno::EAGAIN | Errno::EACCES) => Err(Errno::EBUSY),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("store-hold-{name}-{}", std::process::id()));
        std::fs::write(&path, vec![0; 4096]).unwrap();
        path
    }

    fn held(path: &Path, access: Access) -> Result<Option<Arc<Hold>>, Errno> {
        hold(path, &path.metadata().unwrap(), access)
    }

    /// As another program would.
    fn other(path: &Path, kind: i32) -> Result<File, Errno> {
        let file = open_with(path, Access::ReadWrite, 0)?;
        lock(&file, kind).map(|()| file)
    }

    #[test]
    fn another_program_neither_writes_what_is_read_nor_opens_what_is_written() {
        let path = scratch("other");
        let (read, write) = (libc::F_RDLCK, libc::F_WRLCK);
        let reader = held(&path, Access::ReadOnly).unwrap();
        assert!(other(&path, write).is_err());
        other(&path, read).unwrap();
        let writer = held(&path, Access::ReadWrite).unwrap();
        assert!(other(&path, read).is_err(), "this process shares it");
        let again = held(&path, Access::ReadWrite).unwrap();
        drop(writer);
        assert!(other(&path, read).is_err(), "as long as anybody has it");
        drop(again);
        assert!(other(&path, write).is_err(), "who only reads still does");
        other(&path, read).unwrap();
        let again = held(&path, Access::ReadWrite).unwrap();
        drop(reader);
        assert!(other(&path, read).is_err());
        drop(again);

        let theirs = other(&path, read).unwrap();
        assert_eq!(held(&path, Access::ReadWrite).unwrap_err(), Errno::EBUSY);
        let reader = held(&path, Access::ReadOnly).unwrap();
        assert_eq!(held(&path, Access::ReadWrite).unwrap_err(), Errno::EBUSY);
        drop(theirs);
        assert!(other(&path, write).is_err(), "still read here");
        drop(reader);
        let theirs = other(&path, write).unwrap();
        assert_eq!(held(&path, Access::ReadOnly).unwrap_err(), Errno::EBUSY);
        drop(theirs);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_let_go_is_free_although_a_copy_of_the_descriptor_is_open() {
        let path = scratch("copy");
        let (read, write) = (libc::F_RDLCK, libc::F_WRLCK);
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let hold = held(&path, access).unwrap().unwrap();
            // What a program has that is being started.
            let copy = hold.file.try_clone().unwrap();
            assert!(other(&path, write).is_err());
            drop(hold);
            other(&path, write).unwrap();
            drop(copy);
        }
        // A reader that outlives a writer is held by its own descriptor alone.
        let reader = held(&path, Access::ReadOnly).unwrap();
        let writer = held(&path, Access::ReadWrite).unwrap().unwrap();
        let copy = writer.file.try_clone().unwrap();
        drop(writer);
        assert!(other(&path, write).is_err());
        other(&path, read).unwrap();
        drop(reader);
        other(&path, write).unwrap();
        drop(copy);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_device_that_is_in_use_is_refused() {
        let flags = Cell::new(0);
        let busy = |asked| {
            flags.set(asked);
            Err(Errno::EBUSY)
        };
        let taken = take(true, Access::ReadWrite, &busy);
        assert_eq!(
            (taken.unwrap_err(), flags.get()),
            (Errno::EBUSY, libc::O_EXCL)
        );
    }
}
