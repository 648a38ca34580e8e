//! What a device has done, in exact numbers: each queue counts for itself, since a count that several processors may change waits at each change until the
//! bytes that were copied before it have left the processor.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::request::{Request, Status};

/// The counts of a device's queues, read by whoever asks.
#[derive(Debug, Default)]
pub(crate) struct Counters(Mutex<Rows>);

#[derive(Debug, Default)]
struct Rows {
    of_queues: Vec<Arc<Row>>,
    /// Of queues that are gone.
    of_others: DeviceIo,
}

/// A queue's counts, changed by its reactor alone.
#[derive(Debug, Default)]
struct Row {
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

/// A queue's way to count. Dropped, its counts stay the device's.
#[derive(Debug)]
pub(crate) struct QueueCounters {
    device: Arc<Counters>,
    row: Arc<Row>,
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
    /// All queues that there were and are.
    pub(crate) fn read(&self) -> DeviceIo {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rows_now = rows.of_queues.iter().map(|row| row.read());
        rows_now.fold(rows.of_others, DeviceIo::and)
    }
}

impl QueueCounters {
    pub(crate) fn of(device: Arc<Counters>) -> Self {
        let row = Arc::<Row>::default();
        let mut rows = device.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.of_queues.push(row.clone());
        drop(rows);
        Self { device, row }
    }

    /// Whether they are this device's.
    pub(crate) fn are_of(&self, device: &Arc<Counters>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    pub(crate) fn began(&self) {
        add(&self.row.in_flight, 1);
    }

    /// A request that began has ended; none: nobody was told.
    pub(crate) fn ended(&self, request: &Request, status: Option<Status>) {
        add(&self.row.in_flight, 1_u64.wrapping_neg());
        match status {
            None => {}
            Some(Status::Ok) => self.succeeded(request),
            Some(_) => self.failed(),
        }
    }

    pub(crate) fn succeeded(&self, request: &Request) {
        let row = &*self.row;
        let (count, bytes) = match request {
            Request::Read { bytes, .. } => (&row.reads, Some((&row.bytes_read, *bytes))),
            Request::Write { bytes, .. } => (&row.writes, Some((&row.bytes_written, *bytes))),
            Request::Flush => (&row.flushes, None),
            Request::Discard { .. } => (&row.discards, None),
            Request::WriteZeroes { .. } => (&row.write_zeroes, None),
            Request::GetId => return,
        };
        add(count, 1);
        if let Some((sum, bytes)) = bytes {
            add(sum, bytes.into());
        }
    }

    pub(crate) fn failed(&self) {
        add(&self.row.errors, 1);
    }

    pub(crate) fn kicked(&self) {
        add(&self.row.kicks, 1);
    }

    pub(crate) fn called(&self) {
        add(&self.row.calls, 1);
    }
}

impl Drop for QueueCounters {
    fn drop(&mut self) {
        let mut rows = self.device.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.of_queues.retain(|row| !Arc::ptr_eq(row, &self.row));
        rows.of_others = rows.of_others.and(self.row.read());
    }
}

/// Changed by one thread alone.
fn add(counter: &AtomicU64, count: u64) {
    let now = counter.load(Ordering::Relaxed).wrapping_add(count);
    counter.store(now, Ordering::Relaxed);
}

impl Row {
    fn read(&self) -> DeviceIo {
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

impl DeviceIo {
    /// Both together.
    fn and(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            flushes: self.flushes + other.flushes,
            discards: self.discards + other.discards,
            write_zeroes: self.write_zeroes + other.write_zeroes,
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
            errors: self.errors + other.errors,
            in_flight: self.in_flight + other.in_flight,
            kicks: self.kicks + other.kicks,
            calls: self.calls + other.calls,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a queue that is gone has done stays the device's, and is counted once.
    #[test]
    fn a_device_has_done_what_its_queues_did() {
        let device = Arc::<Counters>::default();
        let queues = [(); 2].map(|()| QueueCounters::of(device.clone()));
        let read = Request::Read { lba: 0, bytes: 512 };
        for queue in &queues {
            queue.kicked();
            queue.began();
            queue.began();
            queue.ended(&read, Some(Status::Ok));
        }
        let both = DeviceIo {
            reads: 2,
            bytes_read: 1024,
            in_flight: 2,
            kicks: 2,
            ..DeviceIo::default()
        };
        assert_eq!(device.read(), both);
        let [first, second] = queues;
        first.ended(&read, Some(Status::IoError));
        drop(first);
        second.ended(&read, None);
        let now = DeviceIo {
            errors: 1,
            in_flight: 0,
            ..both
        };
        assert_eq!(device.read(), now);
        drop(second);
        assert_eq!(device.read(), now);
    }
}
