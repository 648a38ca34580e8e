//! The system's verbs: librdmacm and libibverbs (rdma-core 32 or newer), opened at run time. A program that never calls [`open`] needs neither, nor anything of them to be built.
//!
//! What is written here about calls is from their man pages and the headers of rdma-core.

#![allow(
    unsafe_code,
    reason = "calls of C libraries and the structures behind their pointers; each block says why"
)]

mod cm;
mod cq;
mod device;
mod library;
mod qp;
mod sys;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::libc;
use reactor::Errno;

use crate::backend;
use crate::device::Verbs;
use crate::error::{Result, VerbsError};

/// The system's verbs.
///
/// # Errors
/// [`VerbsError::LibraryMissing`] where rdma-core is not installed, [`VerbsError::SymbolMissing`] where it is too old.
pub fn open() -> Result<Verbs> {
    Ok(Verbs::new(Arc::new(Transport {
        calls: library::calls()?,
    })))
}

#[derive(Clone, Copy)]
struct Transport {
    calls: &'static library::Calls,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("rdma-core")
    }
}

impl backend::Transport for Transport {
    fn channel(&self) -> Result<Arc<dyn backend::Channel>> {
        Ok(Arc::new(cm::Channel::new(self.calls)?))
    }

    fn devices(&self) -> Result<Vec<Arc<dyn backend::Device>>> {
        device::list(self.calls)
    }
}

/// The error of a call that says -1 and leaves the reason in errno.
fn last(call: &'static str, subject: impl Into<String>) -> VerbsError {
    VerbsError::call(call, subject, Errno::last())
}

/// For calls that answer 0, or -1 with errno.
fn checked(answer: i32, call: &'static str, subject: impl Fn() -> String) -> Result<()> {
    if answer == 0 {
        Ok(())
    } else {
        Err(last(call, subject()))
    }
}

/// For calls that answer 0 or an error number.
fn numbered(answer: i32, call: &'static str, subject: impl Fn() -> String) -> Result<()> {
    if answer == 0 {
        Ok(())
    } else {
        Err(VerbsError::call(
            call,
            subject(),
            Errno::from_raw(answer.abs()),
        ))
    }
}

/// Reads of it answer EAGAIN instead of waiting.
fn never_wait(fd: i32, subject: &'static str) -> Result<()> {
    // SAFETY: fcntl has no memory arguments here.
    let done = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) == 0
    };
    if done {
        Ok(())
    } else {
        Err(last("fcntl", subject))
    }
}

/// # Safety
/// The descriptor is open for as long as what the result is borrowed from lives.
unsafe fn borrow<'a>(fd: i32) -> BorrowedFd<'a> {
    // SAFETY: by this function's contract.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
