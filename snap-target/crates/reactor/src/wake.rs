//! Waking a ring from another thread, at the price of one atomic operation when it is awake.
//!
//! The handshake: the waker sets `notified`, then looks at `sleeping`; the ring sets `sleeping`, then looks at `notified`. Both in
//! sequentially consistent order, so at least one sees the other: no wake-up is lost, and an awake ring costs no system call.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use nix::libc;

use crate::error::ReactorError;

#[derive(Debug)]
pub(crate) struct WakeState {
    event: OwnedFd,
    /// A duplicate of the ring's descriptor, where other rings can send it messages. Ours, so that its number cannot be reused while
    /// a waker lives.
    ring: OnceLock<OwnedFd>,
    notified: AtomicBool,
    sleeping: AtomicBool,
}

impl WakeState {
    pub(crate) fn new() -> Result<Self, ReactorError> {
        // SAFETY: eventfd has no memory arguments.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(ReactorError::Setup {
                what: "the wake-up eventfd",
                source: Errno::last(),
            });
        }
        // SAFETY: eventfd returned a fresh descriptor that nobody else owns.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            event,
            ring: OnceLock::new(),
            notified: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
        })
    }

    pub(crate) fn event_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    pub(crate) fn set_ring(&self, ring: OwnedFd) {
        // A ring sets it once, when it is made.
        let _ = self.ring.set(ring);
    }

    pub(crate) fn takes_messages(&self) -> bool {
        self.ring.get().is_some()
    }

    /// The descriptor ring messages go to; -1 if there is none.
    pub(crate) fn ring_fd(&self) -> RawFd {
        self.ring.get().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Whether somebody woke the ring since the last [`WakeState::take`].
    pub(crate) fn is_notified(&self) -> bool {
        self.notified.load(Ordering::SeqCst)
    }

    /// Takes the notification.
    pub(crate) fn take(&self) -> bool {
        self.notified.load(Ordering::Relaxed) && self.notified.swap(false, Ordering::SeqCst)
    }

    /// Announces sleep; false if a notification is pending and the ring must not sleep.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.is_notified() {
            self.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Sets the notification; true if the ring sleeps and its eventfd (or a ring message) must be used.
    pub(crate) fn notify(&self) -> bool {
        !self.notified.swap(true, Ordering::SeqCst) && self.sleeping.load(Ordering::SeqCst)
    }

    pub(crate) fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: writes 8 bytes from a live array. A full counter (EAGAIN) means that the ring is being woken already.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Empties the eventfd.
    pub(crate) fn drain(&self) {
        let mut count = [0u8; 8];
        // SAFETY: reads at most 8 bytes into a live array; EAGAIN means that there was nothing.
        unsafe {
            libc::read(
                self.event.as_raw_fd(),
                count.as_mut_ptr().cast(),
                count.len(),
            )
        };
    }
}

/// Wakes one ring from any thread. Cheap to clone; harmless after the ring is gone.
#[derive(Clone, Debug)]
pub struct Waker {
    pub(crate) state: Arc<WakeState>,
}

impl Waker {
    /// Makes the ring's current or next [`crate::Ring::turn`] return with `notified` set. Any number of calls before that turn count as one.
    pub fn wake(&self) {
        if self.state.notify() {
            self.state.signal();
        }
    }

    /// Whether both wake the same ring.
    #[must_use]
    pub fn wakes_same_ring(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}
