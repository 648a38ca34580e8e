//! The Unix socket: for the user of the daemon, and root.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

/// Listens at a path. A socket that is there is taken away only where nobody listens on it any more.
pub fn listen(path: &Path) -> Result<UnixListener> {
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            bail!("there is a file of this name, and it is no socket; name another path");
        }
        match UnixStream::connect(path) {
            Ok(_) => {
                bail!("somebody listens on it already; end that snap-target, or name another path")
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)
                    .context("a daemon that has ended left it, and it cannot be removed")?;
            }
            Err(error) => return Err(error).context("it is there, and cannot be connected to"),
        }
    }
    // From its first moment on it is for its owner alone; no other thread makes files yet.
    let before = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o177));
    let bound = UnixListener::bind(path);
    nix::sys::stat::umask(before);
    let listener = bound.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow!("its folder is not there; make it, or name another path")
        }
        _ => error.into(),
    })?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Takes the socket away at the end.
pub fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, path = %path.display(), "the admin socket stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_its_owners_and_one_that_is_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = listen(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = listen(&path).unwrap_err().to_string();
        assert!(
            error.starts_with("somebody listens on it already"),
            "{error}"
        );
        drop(listener);
        let listener = listen(&path).unwrap();
        remove(&path);
        assert!(!path.exists());
        drop(listener);
        std::fs::write(&path, "a file").unwrap();
        let error = listen(&path).unwrap_err().to_string();
        assert!(error.contains("it is no socket"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
        let nowhere = folder.path().join("nowhere/s");
        let error = listen(&nowhere).unwrap_err().to_string();
        assert_eq!(
            error,
            "its folder is not there; make it, or name another path"
        );
    }
}
