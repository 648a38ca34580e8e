//! The way to the medium: what a handle asks of the kernel for its file. A trait, so that tests can keep a record of it.

use reactor::buf::IoBuf;
use reactor::{Event, Fd, Fsync, OpId, Owner, Waker, WriteMode};

/// Operations on one file. Each is started, or `None` where the ring has no room for it; its end is an [`Event`] with the same tag.
pub(super) trait Medium {
    /// One read, which may be short.
    fn read(&self, offset: u64, buf: IoBuf, tag: u64) -> Option<OpId>;

    /// One write, which may be short.
    fn write(&self, offset: u64, buf: IoBuf, mode: WriteMode, tag: u64) -> Option<OpId>;

    /// fdatasync: makes every write that ended before it began durable.
    fn sync(&self, tag: u64) -> Option<OpId>;

    /// fallocate(2) with this mode.
    fn allocate(&self, mode: i32, offset: u64, len: u64, tag: u64) -> Option<OpId>;

    /// The next operation that ended.
    fn next_event(&self) -> Option<Event>;

    /// Asks to end an operation early.
    fn cancel(&self, op: OpId);

    /// What wakes the ring.
    fn waker(&self) -> Waker;
}

/// A file behind a ring.
pub(super) struct RingFile {
    /// Its drop waits until the kernel has let go of every buffer.
    owner: Owner,
    file: Fd,
}

impl RingFile {
    pub(super) fn new(owner: Owner, file: Fd) -> Self {
        Self { owner, file }
    }
}

impl Medium for RingFile {
    fn read(&self, offset: u64, buf: IoBuf, tag: u64) -> Option<OpId> {
        self.owner.read_at(&self.file, offset, buf, tag).ok()
    }

    fn write(&self, offset: u64, buf: IoBuf, mode: WriteMode, tag: u64) -> Option<OpId> {
        self.owner.write_at(&self.file, offset, buf, mode, tag).ok()
    }

    fn sync(&self, tag: u64) -> Option<OpId> {
        self.owner.fsync(&self.file, Fsync::Data, tag).ok()
    }

    fn allocate(&self, mode: i32, offset: u64, len: u64, tag: u64) -> Option<OpId> {
        self.owner
            .fallocate(&self.file, mode, offset, len, tag)
            .ok()
    }

    fn next_event(&self) -> Option<Event> {
        self.owner.next_event()
    }

    fn cancel(&self, op: OpId) {
        self.owner.ring().cancel(op);
    }

    fn waker(&self) -> Waker {
        self.owner.ring().waker()
    }
}
