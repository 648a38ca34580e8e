//! Event file descriptors that a monitor hands over.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
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
///
/// The descriptor's flags are shared with the monitor, which could let it block again: so it is asked first whether it takes this. A monitor that fills it between the two has the
/// reactor wait; docs/vhost-user.md says that monitors are trusted so far.
pub(crate) fn signal(file: &impl AsFd) {
    if !is(file, PollFlags::OUT) {
        return;
    }
    match rustix::io::write(file, &1_u64.to_ne_bytes()) {
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(error) => tracing::warn!(%error, "an event of a guest cannot be told"),
    }
}

/// Takes what was told.
pub(crate) fn take(file: &impl AsFd) {
    if !is(file, PollFlags::IN) {
        return;
    }
    let mut count = [0; 8];
    match rustix::io::read(file, &mut count) {
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(error) => tracing::warn!(%error, "an event of a guest cannot be taken"),
    }
}

/// Whether a read, or a write, would not wait.
fn is(file: &impl AsFd, ready: PollFlags) -> bool {
    let mut fds = [PollFd::new(file, ready)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let polled = rustix::event::poll(&mut fds, Some(&now));
    polled.is_ok() && fds[0].revents().contains(ready)
}
