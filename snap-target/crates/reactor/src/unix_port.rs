//! A listening Unix socket at a path, of which one process at a time is the owner.
//!
//! Beside the socket lies a lock (`PATH.lock`), held while somebody listens: two that come at once do not take each other's socket away, and what a process
//! leaves behind that was killed is told from what is in use. Nothing but a socket that nobody listens at is ever replaced, and nothing but the own one is
//! removed.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

/// How often a lock is taken anew that another owner has just removed.
const LOCK_TRIES: usize = 16;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum UnixPortError {
    /// Another process listens.
    #[error("{path}: another process listens there; end it, or take another path")]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// Something else lies there.
    #[error("{path} is {what}, which is left alone; take another path")]
    NoSocket {
        /// Where.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The system.
    #[error("{path}: {source}; its folder must be there and writable")]
    System {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// See the module. Dropped, the socket is gone.
#[derive(Debug)]
pub struct UnixPort {
    listener: UnixListener,
    place: UnixPlace,
}

/// The path of a socket that is the owner's own. Dropped, nobody finds it any more.
#[derive(Debug)]
pub struct UnixPlace {
    path: PathBuf,
    /// Device and inode.
    node: (u64, u64),
    lock: PathBuf,
    _held: File,
}

impl UnixPort {
    /// Listens at `path`. A socket that was left there by a process that has ended is replaced.
    ///
    /// # Errors
    /// Somebody listens there, something else lies there, or the system refuses it.
    pub fn bind(path: &Path) -> Result<Self, UnixPortError> {
        let failed = |source| UnixPortError::System {
            path: path.to_owned(),
            source,
        };
        let lock = lock_path(path);
        let held = hold(path, &lock)?;
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                // Whoever listens without a lock is no process of ours.
                match UnixStream::connect(path) {
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        std::fs::remove_file(path).map_err(failed)?;
                    }
                    _ => {
                        return Err(UnixPortError::InUse {
                            path: path.to_owned(),
                        });
                    }
                }
            }
            Ok(found) => {
                let what = kind_of(found.file_type());
                remove_lock(&lock);
                return Err(UnixPortError::NoSocket {
                    path: path.to_owned(),
                    what,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let bound = UnixListener::bind(path).and_then(|listener| {
            let node = node_of(path)?;
            Ok((listener, node))
        });
        let (listener, node) = bound.map_err(|error| {
            remove_lock(&lock);
            failed(error)
        })?;
        let place = UnixPlace {
            path: path.to_owned(),
            node,
            lock,
            _held: held,
        };
        Ok(Self { listener, place })
    }

    /// The socket.
    #[must_use]
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Both apart: the place is to be kept as long as the socket listens.
    #[must_use]
    pub fn into_parts(self) -> (UnixListener, UnixPlace) {
        (self.listener, self.place)
    }
}

impl UnixPlace {
    /// Where.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixPlace {
    fn drop(&mut self) {
        // Somebody may have put another thing there by hand.
        if node_of(&self.path).is_ok_and(|node| node == self.node)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a socket stays behind");
        }
        // While it is held: whoever has opened it by now sees that it is gone, and takes another.
        remove_lock(&self.lock);
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut lock = OsString::from(path);
    lock.push(".lock");
    lock.into()
}

/// Takes the lock of a path.
fn hold(path: &Path, lock: &Path) -> Result<File, UnixPortError> {
    let failed = |source| UnixPortError::System {
        path: lock.to_owned(),
        source,
    };
    for _ in 0..LOCK_TRIES {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(O_NOFOLLOW | O_NONBLOCK).open(lock);
        let held = file.map_err(failed)?;
        match held.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(UnixPortError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // One that was removed meanwhile keeps nobody out.
        let opened = held.metadata().map_err(failed)?;
        if node_of(lock).is_ok_and(|node| node == (opened.dev(), opened.ino())) {
            return Ok(held);
        }
    }
    Err(UnixPortError::InUse {
        path: path.to_owned(),
    })
}

fn remove_lock(lock: &Path) {
    if let Err(error) = std::fs::remove_file(lock) {
        tracing::debug!(path = %lock.display(), %error, "a lock stays behind, and harms nobody");
    }
}

fn node_of(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

fn kind_of(kind: std::fs::FileType) -> &'static str {
    if kind.is_dir() {
        "a folder"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_file() {
        "a file"
    } else {
        "no socket"
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("unix-port-{}-{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn names(&self) -> Vec<OsString> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            entries.map(|entry| entry.unwrap().file_name()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn one_listens_and_leaves_nothing_behind() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        for _ in 0..2 {
            let port = UnixPort::bind(&path).unwrap();
            UnixStream::connect(&path).unwrap();
            let second = UnixPort::bind(&path);
            assert!(matches!(second, Err(UnixPortError::InUse { .. })));
            UnixStream::connect(&path).expect("the first one listens on");
            drop(port);
            assert_eq!(folder.names(), [""; 0]);
        }
    }

    #[test]
    fn what_a_killed_process_leaves_is_replaced() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        // Its kernel closes both, and removes neither.
        drop(UnixListener::bind(&path).unwrap());
        File::create(lock_path(&path)).unwrap();
        let port = UnixPort::bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(port);
        assert_eq!(folder.names(), [""; 0]);
    }

    #[test]
    fn one_who_listens_without_a_lock_is_left_alone() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        let foreign = UnixListener::bind(&path).unwrap();
        assert!(matches!(
            UnixPort::bind(&path),
            Err(UnixPortError::InUse { .. })
        ));
        UnixStream::connect(&path).unwrap();
        foreign.accept().unwrap();
    }

    #[test]
    fn what_is_no_socket_stays() {
        let folder = Folder::new();
        let at = |name: &str| folder.0.join(name);
        std::fs::write(at("file"), "kept").unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
        for (name, what) in [
            ("file", "a file"),
            ("folder", "a folder"),
            ("link", "a symbolic link"),
            ("dangling", "a symbolic link"),
        ] {
            let error = UnixPort::bind(&at(name)).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        assert_eq!(std::fs::read(at("file")).unwrap(), b"kept");
        assert_eq!(folder.names().len(), 4, "and no lock is left");
        // Nor is a lock that leads elsewhere followed.
        std::os::unix::fs::symlink(at("nowhere"), at("socket.lock")).unwrap();
        assert!(UnixPort::bind(&at("socket")).is_err());
        assert!(!at("nowhere").exists());
    }

    #[test]
    fn what_somebody_put_in_its_place_is_not_removed() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        let port = UnixPort::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "theirs").unwrap();
        drop(port);
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
    }

    /// Whoever has the lock is about to listen, or to take its socket away: there is none at the path meanwhile.
    #[test]
    fn a_lock_that_is_held_keeps_others_out_though_there_is_no_socket() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        let held = hold(&path, &lock_path(&path)).unwrap();
        let refused = UnixPort::bind(&path);
        assert!(matches!(refused, Err(UnixPortError::InUse { .. })));
        assert!(!path.exists());
        // The lock of another user's process keeps nobody else's out: it is nobody else's to open.
        let mode = held.metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(held);
        drop(UnixPort::bind(&path).unwrap());
    }

    /// A pipe in the lock's place: to open it would wait for a reader that never comes.
    #[test]
    fn a_lock_that_is_a_pipe_keeps_nobody_waiting() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        let made = std::process::Command::new("mkfifo")
            .arg(lock_path(&path))
            .status();
        assert!(made.unwrap().success());
        let refused = UnixPort::bind(&path);
        assert!(matches!(refused, Err(UnixPortError::System { .. })));
        assert!(!path.exists());
    }

    #[test]
    fn of_many_at_once_one_has_it() {
        let folder = Folder::new();
        let path = folder.0.join("socket");
        let (owners, bound) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Ok(port) = UnixPort::bind(&path) else {
                            continue;
                        };
                        assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0);
                        UnixStream::connect(&path).expect("it is the owner's own");
                        bound.fetch_add(1, Ordering::SeqCst);
                        owners.fetch_sub(1, Ordering::SeqCst);
                        drop(port);
                    }
                });
            }
        });
        assert!(bound.into_inner() > 0);
        assert_eq!(folder.names(), [""; 0]);
    }
}
