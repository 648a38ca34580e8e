//! What one host did with one namespace, on one reactor.

use crate::cell::Counter;
use crate::histogram::LazyHistogram;
use crate::kind::{CommandKind, StatusClass};
use crate::rows::Row;

/// What a row counts: fields of [`HostRow`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostKey {
    pub(crate) subsystem: String,
    pub(crate) host: String,
    pub(crate) nsid: u32,
    pub(crate) uuid: [u8; 16],
}

/// Counters of one (subsystem, host, namespace); written by their reactor alone.
#[derive(Debug)]
#[repr(align(128))]
pub struct HostRow {
    /// The subsystem's NQN.
    pub subsystem: String,
    /// The host's NQN.
    pub host: String,
    /// The namespace's identifier in the subsystem; 0: none, or not an active one.
    pub nsid: u32,
    /// The namespace's UUID: another disk under the same NSID has another row; zeros with NSID 0.
    pub uuid: [u8; 16],
    /// When the row began, in nanoseconds after the target's start.
    pub since_ns: u64,
    /// When a command was answered last, on the same clock; 0: none yet.
    pub(crate) last_ns: Counter,
    pub(crate) commands: [Counter; CommandKind::ALL.len()],
    pub(crate) errors: [Counter; StatusClass::ALL.len()],
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
    pub(crate) wire_sent_bytes: Counter,
    pub(crate) wire_received_bytes: Counter,
    pub(crate) in_flight: Counter,
    pub(crate) abandoned: Counter,
    pub(crate) read: LazyHistogram,
    pub(crate) write: LazyHistogram,
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// What it was.
    pub kind: CommandKind,
    /// What was wrong, if anything.
    pub error: Option<StatusClass>,
    /// Bytes that a read returned or a write brought; 0 for others.
    pub bytes: u32,
    /// From its coming to its answer, in nanoseconds.
    pub ns: u64,
    /// When it was answered, in nanoseconds after the target's start.
    pub at_ns: u64,
}

impl Row for HostRow {
    type Key = HostKey;

    fn new(key: &HostKey, since_ns: u64) -> Self {
        Self {
            subsystem: key.subsystem.clone(),
            host: key.host.clone(),
            nsid: key.nsid,
            uuid: key.uuid,
            since_ns,
            last_ns: Counter::default(),
            commands: std::array::from_fn(|_| Counter::default()),
            errors: std::array::from_fn(|_| Counter::default()),
            bytes_read: Counter::default(),
            bytes_written: Counter::default(),
            wire_sent_bytes: Counter::default(),
            wire_received_bytes: Counter::default(),
            in_flight: Counter::default(),
            abandoned: Counter::default(),
            read: LazyHistogram::default(),
            write: LazyHistogram::default(),
        }
    }

    fn last_ns(&self) -> u64 {
        self.last_ns.get()
    }
}

impl HostRow {
    /// A command came.
    #[inline]
    pub fn begun(&self) {
        self.in_flight.add(1);
    }

    /// A command was answered. Times of those that failed are not counted: they say nothing of reads and writes.
    #[inline]
    pub fn ended(&self, ended: &Ended) {
        self.in_flight.sub(1);
        self.last_ns.set(ended.at_ns);
        if let Some(commands) = self.commands.get(ended.kind as usize) {
            commands.add(1);
        }
        if let Some(class) = ended.error {
            if let Some(errors) = self.errors.get(class as usize) {
                errors.add(1);
            }
            return;
        }
        match ended.kind {
            CommandKind::Read => {
                self.bytes_read.add(u64::from(ended.bytes));
                self.read.record(ended.ns);
            }
            CommandKind::Write => {
                self.bytes_written.add(u64::from(ended.bytes));
                self.write.record(ended.ns);
            }
            _ => {}
        }
    }

    /// What a command that is answered has cost on the network, its answer included.
    #[inline]
    pub fn crossed(&self, sent_bytes: u64, received_bytes: u64) {
        self.wire_sent_bytes.add(sent_bytes);
        self.wire_received_bytes.add(received_bytes);
    }

    /// Commands will not be answered: their connection is gone.
    pub fn abandon(&self, commands: u64) {
        self.in_flight.sub(commands);
        self.abandoned.add(commands);
    }
}
