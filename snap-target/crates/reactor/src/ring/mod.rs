//! The ring: one io_uring, its owners, and what they can start. The only module besides `buf` that talks to the kernel about memory.

mod completion;
mod core;
mod inbox;
mod op;
mod owner;
mod recv;
mod send;
mod setup;

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Instant;

use io_uring::IoUring;
use nix::errno::Errno;
use nix::libc;

use self::core::Core;
use self::op::Kind;
pub use self::owner::Owner;
pub use self::recv::RecvChunk;
use self::recv::RecvPool;
pub use self::send::SendBatch;
use self::setup::Entries;
use crate::buf::{IoBuf, Mapping};
use crate::config::RingConfig;
use crate::error::ReactorError;
use crate::features::Features;
use crate::small::SmallRing;
use crate::stats::RingStats;
use crate::timer::TimerId;
use crate::wake::{WakeState, Waker};

/// Handle to this thread's ring. Cheap to clone; the ring ends with its last handle (each [`Owner`] holds one).
#[derive(Clone)]
pub struct Ring {
    inner: Rc<Inner>,
}

struct Inner {
    id: u64,
    wake: Arc<WakeState>,
    small: Option<SmallRing>,
    core: RefCell<Core>,
}

/// How a turn waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Poll,
    /// Polls for the configured spin time after the last work, then sleeps, until there is an event, a wake-up, a timer, or `until`.
    /// Returns at once while any inbox holds an event.
    Block {
        /// Latest time to return; `None` = no limit but the timers'.
        until: Option<Instant>,
    },
}

/// What a turn brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Events put into inboxes.
    pub events: u32,
    /// Another thread woke this ring: drain its channels.
    pub notified: bool,
    /// The thread slept.
    pub blocked: bool,
}

/// Names an owner; stale after the owner is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId {
    index: u32,
    generation: u32,
}

impl OwnerId {
    /// The ring itself.
    pub(crate) const RING: Self = Self {
        index: 0,
        generation: 0,
    };
}

/// Names an operation in flight; stale after its last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId {
    index: u32,
    generation: u32,
}

impl OpId {
    /// What events without an operation carry.
    const NONE: Self = Self {
        index: u32::MAX,
        generation: u32::MAX,
    };

    fn to_user_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "takes the two halves apart"
    )]
    fn from_user_data(data: u64) -> Self {
        Self {
            index: data as u32,
            generation: (data >> 32) as u32,
        }
    }
}

/// A completion, a received chunk, an accepted socket, or a timer.
#[derive(Debug)]
pub struct Event {
    /// What the owner gave when it started the operation or timer.
    pub tag: u64,
    /// The operation.
    pub op: OpId,
    /// Bytes (or what the operation returns; 0 = end of stream for a receive), or the error.
    pub result: Result<u32, Errno>,
    /// Whether more events of this operation follow. If not, a receive or an accept must be started anew.
    pub more: bool,
    /// What the event brings, or brings back.
    pub payload: Payload,
}

/// Resources that come with an event.
#[derive(Debug)]
pub enum Payload {
    /// Nothing.
    None,
    /// A timer fired.
    Timer,
    /// An accepted connection.
    Socket(OwnedFd),
    /// Received bytes.
    Chunk(RecvChunk),
    /// The buffer of a read, a write or a receive into a buffer.
    Buf(IoBuf),
    /// The batch of a send, to be cleared and used again.
    Sent(SendBatch),
}

/// A table of the ring is full: here are the resources back. Park, and retry after a turn.
#[derive(Debug, thiserror::Error)]
#[error(
    "all {limit} of the ring's {what} are in use; retry after a turn, or raise the limit in RingConfig"
)]
pub struct Refused<T> {
    /// What was to be operated on.
    pub resources: T,
    /// Which table.
    pub what: &'static str,
    /// The limit that was met.
    pub limit: u32,
}

/// Bytes that a command carries in its entry.
pub const COMMAND_BYTES: usize = 16;

/// Durability of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// May sit in a cache.
    Cached,
    /// Complete only when it is on stable storage (RWF_DSYNC).
    Durable,
}

/// What fsync covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Data, and the metadata needed to read them back (fdatasync).
    Data,
    /// All metadata as well.
    All,
}

/// A descriptor shared between its user and the operations on it: it is closed when both are done. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fd {
    kind: FdKind,
    /// Its reads and writes are the kernel's threads' from the beginning.
    apart: bool,
    /// Its reads and writes name memory, and never a registered buffer.
    plain: bool,
}

#[derive(Clone, Debug)]
enum FdKind {
    Owned(Rc<OwnedFd>),
    /// The ring's own eventfd, which outlives its operations.
    Borrowed(RawFd),
}

impl Fd {
    fn borrowed(fd: RawFd) -> Self {
        Self {
            kind: FdKind::Borrowed(fd),
            apart: false,
            plain: false,
        }
    }

    /// The same descriptor, whose reads and writes are handed to the kernel's own threads at once (IOSQE_ASYNC): for files that claim not to block
    /// where they do, and would hold the thread of the ring.
    #[must_use]
    pub fn apart(self) -> Self {
        Self {
            apart: true,
            ..self
        }
    }

    /// The same descriptor, whose reads and writes never use registered buffers: for drivers that take a process's memory only (ublk's).
    #[must_use]
    pub fn plain(self) -> Self {
        Self {
            plain: true,
            ..self
        }
    }

    /// The descriptor for calls that set something of it; none of the ring's own.
    #[must_use]
    pub fn owned(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            FdKind::Owned(fd) => Some(fd.as_fd()),
            FdKind::Borrowed(_) => None,
        }
    }

    /// The descriptor itself, to be used elsewhere: where no clone and no operation has it any more.
    ///
    /// # Errors
    /// This, where somebody has.
    pub fn into_owned(self) -> Result<OwnedFd, Self> {
        let (apart, plain) = (self.apart, self.plain);
        let back = |kind| Self { kind, apart, plain };
        match self.kind {
            FdKind::Owned(fd) => Rc::try_unwrap(fd).map_err(|fd| back(FdKind::Owned(fd))),
            kind @ FdKind::Borrowed(_) => Err(back(kind)),
        }
    }

    /// Whether that was asked for.
    fn is_apart(&self) -> bool {
        self.apart
    }

    fn is_plain(&self) -> bool {
        self.plain
    }
}

impl<T: Into<OwnedFd>> From<T> for Fd {
    fn from(fd: T) -> Self {
        Self {
            kind: FdKind::Owned(Rc::new(fd.into())),
            apart: false,
            plain: false,
        }
    }
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        match &self.kind {
            FdKind::Owned(fd) => fd.as_raw_fd(),
            FdKind::Borrowed(fd) => *fd,
        }
    }
}

impl Ring {
    /// Makes this thread's ring.
    ///
    /// # Errors
    /// [`ReactorError::Refused`] where io_uring is forbidden, with what to do; [`ReactorError::TooOld`]; [`ReactorError::Config`].
    pub fn new(config: &RingConfig) -> Result<Self, ReactorError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        config.check()?;
        let wanted = Entries::wanted(config);
        let mut entries = wanted;
        let (uring, features, recv) = loop {
            let made = Self::kernel_parts(config, entries);
            match (made, entries.halved()) {
                (Err(error), Some(half)) if error.is_no_memory() => entries = half,
                (made, _) => break made?,
            }
        };
        let small = (entries != wanted).then_some(SmallRing {
            completions: entries.completions,
            wanted: wanted.completions,
        });
        if let Some(small) = small {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| {
                tracing::warn!(
                    "{small}. It costs: {}. To mend it: systemd: LimitMEMLOCK=infinity, shell: ulimit -l unlimited; `snapctl doctor` says how much is enough",
                    SmallRing::COSTS
                );
            });
        }
        let wake = Arc::new(WakeState::new()?);
        if features.contains(Features::MSG_RING) {
            wake.set_ring(setup::duplicate(&uring)?);
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let core = Core::new(uring, features, config, recv, wake.clone(), id)?;
        Ok(Self {
            inner: Rc::new(Inner {
                id,
                wake,
                small,
                core: RefCell::new(core),
            }),
        })
    }

    /// The ring, what of its kernel is used, and the buffers that sockets share.
    fn kernel_parts(
        config: &RingConfig,
        entries: Entries,
    ) -> Result<(IoUring, Features, Rc<RecvPool>), ReactorError> {
        let (uring, features) = setup::build(config, entries)?;
        let shared = features.contains(Features::BUFFER_RINGS);
        let recv = RecvPool::new(config, &uring, shared)?;
        Ok((uring, features, recv))
    }

    /// How it is smaller than was asked for, if it is.
    #[must_use]
    pub fn small(&self) -> Option<SmallRing> {
        self.inner.small
    }

    /// Features in use.
    #[must_use]
    pub fn features(&self) -> Features {
        self.inner.core.borrow().features
    }

    /// Counters since the ring was made.
    #[must_use]
    pub fn stats(&self) -> RingStats {
        self.inner.core.borrow().stats
    }

    /// When the last turn that brought something had brought it: a turn's time without another look at the clock.
    #[must_use]
    pub fn last_work(&self) -> Instant {
        self.inner.core.borrow().last_work
    }

    /// How often a receive buffer became free. A receive that met `ENOBUFS` need not be started again while this is what it was when that
    /// receive was started: every buffer is still out.
    #[must_use]
    pub fn recv_buffers_returned(&self) -> u64 {
        self.inner.core.borrow().recv.returned()
    }

    /// A handle that wakes this ring from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker {
            state: self.inner.wake.clone(),
        }
    }

    /// Registers an owner.
    ///
    /// # Errors
    /// [`ReactorError::Full`] when `owners_max` are registered.
    pub fn register(&self) -> Result<Owner, ReactorError> {
        self.register_as(false)
    }

    /// Registers an owner that can wait: such owners have no more operations in flight together than leave `ops_reserved` to the others, who so find
    /// room however much there is for these to do.
    ///
    /// # Errors
    /// [`ReactorError::Full`] when `owners_max` are registered.
    pub fn register_yielding(&self) -> Result<Owner, ReactorError> {
        self.register_as(true)
    }

    fn register_as(&self, yields: bool) -> Result<Owner, ReactorError> {
        let mut core = self.inner.core.borrow_mut();
        let limit = core.inboxes.owners_max();
        let id = core.inboxes.open(yields).ok_or(ReactorError::Full {
            what: "owners",
            limit,
        })?;
        drop(core);
        Ok(Owner::new(self.clone(), id))
    }

    /// One round: submits what was started, takes completions, fires timers, and waits as told if there was nothing.
    ///
    /// # Errors
    /// [`ReactorError::Enter`] if the ring is broken; passing shortages are not errors.
    pub fn turn(&self, wait: Wait) -> Result<Turn, ReactorError> {
        self.inner.core.borrow_mut().turn(wait)
    }

    /// Whether a turn would bring or hand over something, timers apart: a few loads.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.inner.core.borrow_mut().has_news()
    }

    /// The next owner whose inbox got events since it was last named. Take all its events ([`Owner::next_event`]) before the next turn.
    #[must_use]
    pub fn next_ready(&self) -> Option<OwnerId> {
        self.inner.core.borrow_mut().inboxes.next_ready()
    }

    /// Asks for the cancellation of an operation. Its last event still comes: `ECANCELED`, or whatever it came to before.
    pub fn cancel(&self, op: OpId) {
        self.inner.core.borrow_mut().cancel(op);
    }

    /// Disarms a timer; false if it fired already (its event may still be in the inbox).
    pub fn cancel_timer(&self, timer: TimerId) -> bool {
        self.inner.core.borrow_mut().timers.cancel(timer)
    }

    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    /// Registers memory for fixed buffers; false if the kernel's limits or an earlier registration forbid it.
    pub(crate) fn register_memory(&self, mapping: &Mapping) -> bool {
        let iov = libc::iovec {
            iov_base: mapping.base().as_ptr().cast(),
            iov_len: mapping.len(),
        };
        let core = self.inner.core.borrow();
        // SAFETY: the range is mapped; the kernel pins its pages, so that unmapping it later leaves them alive until the ring ends.
        match unsafe { core.uring.submitter().register_buffers(&[iov]) } {
            Ok(()) => true,
            Err(error) => {
                tracing::info!(bytes = mapping.len(), %error, "buffers stay unregistered: raise RLIMIT_MEMLOCK (ulimit -l) to register them");
                false
            }
        }
    }

    pub(crate) fn wake_other(&self, waker: &Waker) {
        if !waker.state.notify() {
            return;
        }
        let mut core = self.inner.core.borrow_mut();
        let by_message = core.features.contains(Features::MSG_RING) && waker.state.takes_messages();
        let message = Kind::Message {
            to: waker.state.clone(),
        };
        if !by_message || core.start(OwnerId::RING, 0, None, message).is_err() {
            waker.state.signal();
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({})", self.inner.id)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let core = self.core.get_mut();
        core.close_owner(OwnerId::RING);
        setup::unregister(&core.uring, core.recv.is_shared());
    }
}

impl<T> Refused<T> {
    fn map<U>(self, f: impl FnOnce(T) -> U) -> Refused<U> {
        Refused {
            resources: f(self.resources),
            what: self.what,
            limit: self.limit,
        }
    }
}

/// How an operation ended at the kernel.
type Outcome = Result<u32, Errno>;

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}
