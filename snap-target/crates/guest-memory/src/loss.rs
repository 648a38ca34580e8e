//! Memory that is not there when it is touched: its file was made shorter, its tmpfs is full, or a huge page was punched out of it and taken by others.
//!
//! The kernel answers such an access by SIGBUS, which ends a process, with the disks of all its clients. Here the access goes on, in empty memory of our own that is put under the
//! whole mapping, and it is said that this client's memory is lost ([`Loss`]): whoever serves it tells its guest nothing any more, and lets it go. A SIGBUS from
//! anywhere else goes to whoever handled it before.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Mappings of all clients at a time. Of a process, Linux allows 65,530 of all kinds unless it is told otherwise (vm.max_map_count).
pub const MAPPINGS_MAX: usize = 1 << 16;

/// Whether memory of a client was lost.
#[derive(Debug, Default)]
pub struct Loss {
    has_happened: AtomicBool,
    bell: Option<OwnedFd>,
}

impl Loss {
    /// It rings a bell when it happens: an eventfd that does not block.
    #[must_use]
    pub fn told_by(bell: OwnedFd) -> Self {
        Self {
            has_happened: AtomicBool::new(false),
            bell: Some(bell),
        }
    }

    /// What has been read of its memory since may be zeros, and what has been written is seen by nobody.
    #[must_use]
    #[inline]
    pub fn has_happened(&self) -> bool {
        self.has_happened.load(Ordering::Acquire)
    }

    /// Called in a signal handler: nothing here may lock or allocate.
    fn happens(&self) {
        self.has_happened.store(true, Ordering::SeqCst);
        if let Some(bell) = &self.bell {
            let one = 1_u64;
            // SAFETY: eight bytes of a live value. Where the bell is full, somebody hears it anyway.
            unsafe { libc::write(bell.as_raw_fd(), ptr::from_ref(&one).cast(), 8) };
        }
    }
}

/// A mapping that the handler knows, until this is dropped: before it is unmapped.
#[derive(Debug)]
pub(crate) struct Watched {
    place: usize,
    /// The handler has a pointer to it.
    _loss: Arc<Loss>,
}

impl Watched {
    /// Whole pages from `start` on, mapped.
    pub(crate) fn begin(start: NonNull<u8>, bytes: usize, loss: Arc<Loss>) -> Result<Self, Errno> {
        handle_sigbus()?;
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match free.pop() {
            Some(place) => place,
            None => {
                let place = USED.load(Ordering::SeqCst);
                if place == MAPPINGS_MAX {
                    return Err(Errno::ENOMEM);
                }
                USED.store(place + 1, Ordering::SeqCst);
                place
            }
        };
        PLACES[place].set(start.addr().get(), bytes, Arc::as_ptr(&loss).cast_mut());
        let _loss = loss;
        Ok(Self { place, _loss })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        PLACES[self.place].set(0, 0, ptr::null_mut());
        free.push(self.place);
    }
}

/// What the handler knows of a mapping. Changed by who holds [`FREE`] alone.
struct Place {
    /// Odd while it changes.
    turn: AtomicUsize,
    start: AtomicUsize,
    bytes: AtomicUsize,
    loss: AtomicPtr<Loss>,
}

static PLACES: [Place; MAPPINGS_MAX] = [const { Place::empty() }; MAPPINGS_MAX];
/// Those from there on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Those before that are free.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

impl Place {
    const fn empty() -> Self {
        Self {
            turn: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            loss: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn set(&self, start: usize, bytes: usize, loss: *mut Loss) {
        self.turn.fetch_add(1, Ordering::SeqCst);
        self.start.store(start, Ordering::SeqCst);
        self.bytes.store(bytes, Ordering::SeqCst);
        self.loss.store(loss, Ordering::SeqCst);
        self.turn.fetch_add(1, Ordering::SeqCst);
    }

    /// The mapping, if an address is in it. One that is being touched stays as it is meanwhile, so that what is being changed is another.
    fn around(&self, address: usize) -> Option<(usize, usize, *mut Loss)> {
        let turn = self.turn.load(Ordering::SeqCst);
        let start = self.start.load(Ordering::SeqCst);
        let bytes = self.bytes.load(Ordering::SeqCst);
        let loss = self.loss.load(Ordering::SeqCst);
        let is_whole = turn.is_multiple_of(2) && self.turn.load(Ordering::SeqCst) == turn;
        let is_in = address.checked_sub(start).is_some_and(|at| at < bytes);
        (is_whole && is_in).then_some((start, bytes, loss))
    }
}

/// Who handled SIGBUS before: of a Rust program, its runtime, which tells of stacks that overflow.
static BEFORE: OnceLock<Result<SigAction, Errno>> = OnceLock::new();

fn handle_sigbus() -> Result<(), Errno> {
    let installed = BEFORE.get_or_init(|| {
        let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
        let action = SigAction::new(SigHandler::SigAction(on_sigbus), flags, SigSet::empty());
        // SAFETY: the handler calls nothing but what may be called in one: atomic loads, mmap, write.
        unsafe { sigaction(Signal::SIGBUS, &action) }
    });
    installed.map(drop)
}

extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let errno = Errno::last();
    // SAFETY: the kernel's, for the handler's time. Of a signal that a process has sent there is no address.
    let address = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr().addr()) };
    if !address.is_some_and(replace) {
        pass_on(signal, info, context);
    }
    errno.set();
}

/// Puts memory of our own under the mapping that an address is in; false where it is in none, or there is no such memory.
fn replace(address: usize) -> bool {
    let places = PLACES.iter().take(USED.load(Ordering::SeqCst));
    let Some((start, bytes, loss)) = places.into_iter().find_map(|it| it.around(address)) else {
        return false;
    };
    // Before there is other memory: who finds that finds this said.
    // SAFETY: the mapping is being touched, so that who has it mapped holds its loss.
    unsafe { (*loss).happens() };
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: all of a mapping of guest memory, which nobody has references into but to atomic integers: any bytes are valid there, at any time.
    let put = unsafe {
        libc::mmap(
            ptr::without_provenance_mut(start),
            bytes,
            protection,
            flags,
            -1,
            0,
        )
    };
    put != libc::MAP_FAILED
}

fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = BEFORE.get().and_then(|it| it.as_ref().ok());
    match before.map(SigAction::handler) {
        Some(SigHandler::SigAction(handler)) => handler(signal, info, context),
        Some(SigHandler::Handler(handler)) => handler(signal),
        _ => {
            let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
            // The access that comes again ends the process.
            // SAFETY: no handler is set.
            let _set = unsafe { sigaction(Signal::SIGBUS, &default) };
        }
    }
}
