//! What a device has done, in exact numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::request::{Request, Status};

/// Counted by queues, read by whoever asks.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    write_zeroes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    errors: AtomicU64,
    in_flight: AtomicU64,
    kicks: AtomicU64,
    calls: AtomicU64,
}

/// What a device has done since it is there, whoever its monitors were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceIo {
    /// Reads that succeeded.
    pub reads: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Discards that succeeded.
    pub discards: u64,
    /// Ranges of zeros that were written.
    pub write_zeroes: u64,
    /// Bytes of those reads.
    pub bytes_read: u64,
    /// Bytes of those writes.
    pub bytes_written: u64,
    /// Requests that were answered with an error, chains that are no requests among them.
    pub errors: u64,
    /// Requests that have begun and not ended.
    pub in_flight: u64,
    /// Events of drivers.
    pub kicks: u64,
    /// Events told to drivers.
    pub calls: u64,
}

impl Counters {
    pub(crate) fn began(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// A request that began has ended; none: nobody was told.
    pub(crate) fn ended(&self, request: &Request, status: Option<Status>) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        match status {
            None => {}
            Some(Status::Ok) => self.succeeded(request),
            Some(_) => self.failed(),
        }
    }

    pub(crate) fn succeeded(&self, request: &Request) {
        let (count, bytes) = match request {
            Request::Read { bytes, .. } => (&self.reads, Some((&self.bytes_read, *bytes))),
            Request::Write { bytes, .. } => (&self.writes, Some((&self.bytes_written, *bytes))),
            Request::Flush => (&self.flushes, None),
            Request::Discard { .. } => (&self.discards, None),
            Request::WriteZeroes { .. } => (&self.write_zeroes, None),
            Request::GetId => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let Some((sum, bytes)) = bytes {
            sum.fetch_add(bytes.into(), Ordering::Relaxed);
        }
    }

    pub(crate) fn failed(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn kicked(&self) {
        self.kicks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> DeviceIo {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceIo {
            reads: of(&self.reads),
            writes: of(&self.writes),
            flushes: of(&self.flushes),
            discards: of(&self.discards),
            write_zeroes: of(&self.write_zeroes),
            bytes_read: of(&self.bytes_read),
            bytes_written: of(&self.bytes_written),
            errors: of(&self.errors),
            in_flight: of(&self.in_flight),
            kicks: of(&self.kicks),
            calls: of(&self.calls),
        }
    }
}
