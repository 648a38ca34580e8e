//! An eventfd: one thread rings, a ring of another waits for it.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};

/// Rings until it is heard; any number of times counts as one.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> std::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { fd })
    }

    /// A descriptor of the same bell, to wait at.
    pub(crate) fn try_clone(&self) -> std::io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    pub(crate) fn ring(&self) {
        // A full one is being waited for already.
        let _rung = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Silences it.
    pub(crate) fn hear(&self) {
        // Nothing to read: it is silent.
        let _silent = rustix::io::read(&self.fd, &mut [0; 8]);
    }
}
