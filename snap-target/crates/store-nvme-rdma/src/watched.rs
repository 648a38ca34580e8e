//! Descriptors of the connection manager and of the completion channel, on the ring.

use std::os::fd::AsFd;

use nix::libc::POLLIN;
use reactor::{Fd, OpId, Owner};

/// A descriptor that the ring watches.
#[derive(Debug)]
pub(crate) struct Watched {
    fd: Fd,
    tag: u64,
    pub(crate) op: Option<OpId>,
}

impl Watched {
    pub(crate) fn new(fd: &impl AsFd, tag: u64) -> std::io::Result<Self> {
        // Of its own, so that it lives as long as the ring has it.
        let fd = fd.as_fd().try_clone_to_owned()?;
        Ok(Self {
            fd: Fd::from(fd),
            tag,
            op: None,
        })
    }

    /// False where the ring has no room now.
    pub(crate) fn watch(&mut self, owner: &Owner) -> bool {
        if self.op.is_none() {
            self.op = owner.poll(&self.fd, POLLIN, self.tag).ok();
        }
        self.op.is_some()
    }

    pub(crate) fn cancel(&self, owner: &Owner) {
        if let Some(op) = self.op {
            owner.ring().cancel(op);
        }
    }
}
