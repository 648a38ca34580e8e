//! Event file descriptors that a monitor hands over.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Sees that a descriptor is an eventfd, and makes it one that never blocks: a queue's reactor reads and writes it.
///
/// # Errors
/// What it is instead; what the system says.
pub(crate) fn check(file: &OwnedFd) -> Result<(), String> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let target = std::fs::read_link(&path).map_err(|error| format!("{path}: {error}"))?;
    if target.as_os_str() != "anon_inode:[eventfd]" {
        return Err(format!("{} is no eventfd", target.display()));
    }
    let flags = rustix::fs::fcntl_getfl(file).map_err(|error| error.to_string())?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::NONBLOCK).map_err(|error| error.to_string())
}

/// Tells whoever waits. One that was told often enough to be full knows it.
pub(crate) fn signal(file: &impl AsFd) {
    match rustix::io::write(file, &1_u64.to_ne_bytes()) {
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(error) => tracing::warn!(%error, "an event of a guest cannot be told"),
    }
}

/// Takes what was told.
pub(crate) fn take(file: &impl AsFd) {
    let mut count = [0; 8];
    match rustix::io::read(file, &mut count) {
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(error) => tracing::warn!(%error, "an event of a guest cannot be taken"),
    }
}
