//! Memory that is not there when it is touched: its file was made shorter, its tmpfs is full, or a huge page was punched out of it and taken by others.
//!
//! The kernel answers such an access by SIGBUS, which ends a process, with the disks of all its clients. Here the access goes on, in empty memory of our own that is put
//! there, and it is said that this client's memory is lost ([`Loss`]): whoever serves it tells its guest nothing any more, and lets it go. A SIGBUS from
//! anywhere else goes to whoever handled it before, and one that a process has sent ends this one.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};

/// Mappings of all clients at a time. Of a process, Linux allows 65,530 of all kinds unless it is told otherwise (vm.max_map_count).
pub const MAPPINGS_MAX: usize = 1 << 16;

/// What is put under an access, and what lies around it. Page by page, a few commands would take more mappings than a process may have; all of a guest's memory
/// would take seconds to let go of, and more of our own than may be promised (vm.overcommit_memory).
const PART_BYTES: usize = 2 << 20;

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
    /// Whole pages of so many bytes from `start` on, mapped.
    pub(crate) fn begin(
        start: NonNull<u8>,
        bytes: usize,
        page_bytes: usize,
        loss: Arc<Loss>,
    ) -> Result<Self, Errno> {
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
        PLACES[place].set(Mapping {
            start: start.addr().get(),
            bytes,
            page_bytes,
            loss: Arc::as_ptr(&loss).cast_mut(),
        });
        let _loss = loss;
        Ok(Self { place, _loss })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        PLACES[self.place].set(Mapping::NONE);
        free.push(self.place);
    }
}

#[derive(Clone, Copy)]
struct Mapping {
    start: usize,
    bytes: usize,
    page_bytes: usize,
    loss: *mut Loss,
}

impl Mapping {
    const NONE: Self = Self {
        start: 0,
        bytes: 0,
        page_bytes: 0,
        loss: ptr::null_mut(),
    };

    /// Whole pages of it around an address that is in it: so many bytes, where there are so many; their beginning and length.
    fn part(&self, address: usize, bytes: usize) -> (usize, usize) {
        let bytes = bytes.max(self.page_bytes);
        let at = (address - self.start) / bytes * bytes;
        (self.start + at, bytes.min(self.bytes - at))
    }
}

/// A mapping that the handler may look at at any time. Changed by who holds [`FREE`] alone.
struct Place {
    /// Odd while it changes.
    turn: AtomicUsize,
    start: AtomicUsize,
    bytes: AtomicUsize,
    page_bytes: AtomicUsize,
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
            page_bytes: AtomicUsize::new(0),
            loss: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn set(&self, mapping: Mapping) {
        self.turn.fetch_add(1, Ordering::SeqCst);
        self.start.store(mapping.start, Ordering::SeqCst);
        self.bytes.store(mapping.bytes, Ordering::SeqCst);
        self.page_bytes.store(mapping.page_bytes, Ordering::SeqCst);
        self.loss.store(mapping.loss, Ordering::SeqCst);
        self.turn.fetch_add(1, Ordering::SeqCst);
    }

    /// The mapping, if an address is in it. One that is being touched stays as it is meanwhile, so that what is being changed is another.
    fn around(&self, address: usize) -> Option<Mapping> {
        let turn = self.turn.load(Ordering::SeqCst);
        let mapping = Mapping {
            start: self.start.load(Ordering::SeqCst),
            bytes: self.bytes.load(Ordering::SeqCst),
            page_bytes: self.page_bytes.load(Ordering::SeqCst),
            loss: self.loss.load(Ordering::SeqCst),
        };
        let is_whole = turn.is_multiple_of(2) && self.turn.load(Ordering::SeqCst) == turn;
        let at = address.checked_sub(mapping.start);
        let is_in = at.is_some_and(|at| at < mapping.bytes);
        (is_whole && is_in).then_some(mapping)
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
    // SAFETY: the kernel's, for the handler's time.
    let code = unsafe { (*info).si_code };
    let is_handled = match code {
        // What this thread touches is not there, whatever the reason.
        libc::BUS_ADRERR | libc::BUS_OBJERR | libc::BUS_MCEERR_AR => {
            // SAFETY: as above; such a signal has an address.
            replace(unsafe { (*info).si_addr() }.addr())
        }
        // A page of memory is broken that nobody touches now: whoever does is told then.
        libc::BUS_MCEERR_AO => true,
        // A process has sent it: it is to end this one.
        ..=0 => {
            end_by(Signal::SIGBUS);
            true
        }
        _ => false,
    };
    if !is_handled {
        pass_on(signal, info, context);
    }
    errno.set();
}

/// Puts memory of our own under the part of a mapping that an address is in; false where it is in none, or there is no such memory.
fn replace(address: usize) -> bool {
    let mut places = PLACES.iter().take(USED.load(Ordering::SeqCst));
    let Some(mapping) = places.find_map(|it| it.around(address)) else {
        return false;
    };
    // Before there is other memory: who finds that finds this said.
    // SAFETY: the mapping is being touched, so that who has it mapped holds its loss.
    unsafe { (*mapping.loss).happens() };
    // Where there is no room for a large part, there is for a page.
    [PART_BYTES, mapping.page_bytes].into_iter().any(|bytes| {
        let (start, bytes) = mapping.part(address, bytes);
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let start = ptr::without_provenance_mut(start);
        // SAFETY: whole pages of a mapping of guest memory, which nobody has references into but to atomic integers: any bytes are valid there, at any time.
        let put = unsafe { libc::mmap(start, bytes, protection, flags, -1, 0) };
        put != libc::MAP_FAILED
    })
}

/// Ends the process when the handler returns.
fn end_by(signal: Signal) {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is set.
    let set = unsafe { sigaction(signal, &default) };
    // Held back until then.
    let _raised = set.and_then(|_| raise(signal));
}

fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = BEFORE.get().and_then(|it| it.as_ref().ok());
    match before.map(SigAction::handler) {
        Some(SigHandler::SigAction(handler)) => handler(signal, info, context),
        Some(SigHandler::Handler(handler)) => handler(signal),
        _ => end_by(Signal::SIGBUS),
    }
}
