//! Eventfds that another process has handed over: told, and taken from, without ever waiting, whatever that process does with it meanwhile.
//!
//! A `write` to an eventfd waits where its counter is full and its flags do not say otherwise, and both are the other process's as well. So it is not written to:
//! the kernel adds one by itself where a request of the old asynchronous I/O ends that names it (`IOCB_FLAG_RESFD`), as KVM's interrupts do, and that
//! neither waits nor fails. Each thread has a context of its own for it, and reads nothing of `/dev/null`. Where there is no such I/O (a container's filter), the
//! descriptor is asked whether it takes a write, which a process that fills it at that very moment can still have a thread wait for.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;

/// Ended requests that a context keeps until they are taken out: one system call for so many.
const ENDED_MAX: u32 = 64;

/// What was handed over cannot be told anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no eventfd, but {what}")]
pub struct NoEvent {
    what: String,
}

/// Sees that a descriptor is an eventfd, and makes it one that does not block.
///
/// # Errors
/// What it is instead.
pub fn check(fd: &impl AsFd) -> Result<(), NoEvent> {
    let fd = fd.as_fd().as_raw_fd();
    let path = format!("/proc/self/fd/{fd}");
    let target = std::fs::read_link(&path).map_err(|error| NoEvent {
        what: format!("{path}: {error}"),
    })?;
    if target.as_os_str() != "anon_inode:[eventfd]" {
        let what = target.display().to_string();
        return Err(NoEvent { what });
    }
    // For the way without asynchronous I/O: the other process can undo it.
    // SAFETY: no memory is touched.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
    Ok(())
}

/// Tells whoever waits. One that was told often enough to be full knows it. Nothing happens to what is no eventfd.
pub fn signal(event: &impl AsFd) {
    let event = event.as_fd();
    let tell = |signals: &mut Option<Signals>| signals.get_or_insert_with(Signals::new).tell(event);
    if !SIGNALS.with_borrow_mut(tell) {
        signal_by_write(event);
    }
}

/// The way without asynchronous I/O.
fn signal_by_write(event: BorrowedFd<'_>) {
    let mut polled = libc::pollfd {
        fd: event.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one entry, which is ours; it does not wait.
    let ready = unsafe { libc::poll(&raw mut polled, 1, 0) };
    if ready == 1 && polled.revents & libc::POLLOUT != 0 {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes that are ours.
        let _told = unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

/// Takes what was told: how often, or 0.
pub fn take(event: &impl AsFd) -> u64 {
    let mut count = [0; 8];
    let into = libc::iovec {
        iov_base: count.as_mut_ptr().cast(),
        iov_len: count.len(),
    };
    let fd = event.as_fd().as_raw_fd();
    // SAFETY: one vector of eight bytes that are ours. Without an offset, as of anything that has none.
    let read = unsafe { libc::preadv2(fd, &raw const into, 1, -1, libc::RWF_NOWAIT) };
    match read {
        8 => u64::from_ne_bytes(count),
        _ => 0,
    }
}

thread_local! {
    static SIGNALS: RefCell<Option<Signals>> = const { RefCell::new(None) };
}

/// A thread's context.
#[derive(Debug)]
struct Signals {
    /// None where there is no asynchronous I/O.
    context: Option<Context>,
    /// What requests read nothing of.
    nothing: Option<File>,
    /// Requests that have ended and were not taken out.
    ended: u32,
}

#[derive(Debug)]
struct Context(libc::c_ulong);

impl Signals {
    fn new() -> Self {
        let context = Context::new();
        if let Err(errno) = &context {
            tracing::warn!(%errno, "io_setup is refused: event descriptors of guests are written to, which a hostile monitor can make wait");
        }
        Self {
            context: context.ok(),
            nothing: File::open("/dev/null").ok(),
            ended: 0,
        }
    }

    /// False where it is to be told in another way.
    fn tell(&mut self, event: BorrowedFd<'_>) -> bool {
        let (Some(context), Some(nothing)) = (&self.context, &self.nothing) else {
            return false;
        };
        if self.ended == ENDED_MAX {
            context.take_ended();
            self.ended = 0;
        }
        let submitted = context.submit(nothing.as_fd(), event);
        self.ended += u32::from(submitted);
        submitted
    }
}

/// linux/aio_abi.h.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key_and_flags: u64,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Ended {
    data: u64,
    request: u64,
    result: i64,
    more: i64,
}

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;

const _: () = assert!(size_of::<Request>() == 64 && size_of::<Ended>() == 32);

impl Context {
    fn new() -> Result<Self, Errno> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the place of the context is ours, and 0, as io_setup wants it.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, ENDED_MAX, &raw mut context) };
        Errno::result(made).map(|_| Self(context))
    }

    /// A read of no bytes, which ends before this returns.
    fn submit(&self, nothing: BorrowedFd<'_>, event: BorrowedFd<'_>) -> bool {
        let request = Request {
            opcode: IOCB_CMD_PREAD,
            file: nothing.as_raw_fd().cast_unsigned(),
            flags: IOCB_FLAG_RESFD,
            event: event.as_raw_fd().cast_unsigned(),
            ..Request::default()
        };
        let all = [&raw const request];
        // SAFETY: one request, which lives as long as the call; it reads no bytes, so that no buffer is touched.
        let submitted = unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, all.as_ptr()) };
        submitted == 1
    }

    /// Makes room for others.
    fn take_ended(&self) {
        let mut ended = [Ended::default(); ENDED_MAX as usize];
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: there is room for as many as are asked for; it does not wait.
        let _taken = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.0,
                0,
                ENDED_MAX,
                ended.as_mut_ptr(),
                &raw const at_once,
            )
        };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: a context of our own, which nobody uses any more.
        let _destroyed = unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    const FULL: u64 = u64::MAX - 1;

    /// What a monitor has, and what we do: one description.
    fn shared() -> (File, OwnedFd) {
        // SAFETY: eventfd has no memory arguments, and returns a descriptor that nobody else owns.
        let theirs = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        let ours = theirs.try_clone().unwrap();
        check(&ours).unwrap();
        (File::from(theirs), ours)
    }

    fn blocks(file: &File) -> bool {
        // SAFETY: no memory is touched.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        flags & libc::O_NONBLOCK == 0
    }

    #[test]
    fn it_is_heard_as_often_as_it_is_told() {
        let (_theirs, event) = shared();
        assert_eq!(take(&event), 0);
        // More than a context keeps.
        for count in [1, 3, 1000] {
            (0..count).for_each(|_| signal(&event));
            assert_eq!(take(&event), count);
        }
        assert_eq!(take(&event), 0);
        signal_by_write(event.as_fd());
        assert_eq!(take(&event), 1);
    }

    /// Full, and blocking: a write would wait for ever, and so would a read of an empty one.
    #[test]
    fn a_descriptor_that_blocks_keeps_nobody_waiting() {
        let (mut theirs, event) = shared();
        assert!(!blocks(&theirs));
        // The other process lets it block again.
        // SAFETY: no memory is touched.
        unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_SETFL, 0) };
        assert!(blocks(&theirs));
        assert_eq!(take(&event), 0);
        theirs.write_all(&FULL.to_ne_bytes()).unwrap();
        for _ in 0..200 {
            signal(&event);
        }
        signal_by_write(event.as_fd());
        assert!(take(&event) >= FULL);
        // Emptied, it hears again.
        signal(&event);
        assert_eq!(take(&event), 1);
    }

    #[test]
    fn what_is_no_eventfd_is_refused() {
        let (one, _other) = UnixStream::pair().unwrap();
        let file = OwnedFd::from(File::open("/dev/null").unwrap());
        for fd in [OwnedFd::from(one), file] {
            let refused = check(&fd).unwrap_err().to_string();
            assert!(refused.starts_with("it is no eventfd, but "), "{refused}");
            signal(&fd);
            assert_eq!(take(&fd), 0);
        }
    }
}
