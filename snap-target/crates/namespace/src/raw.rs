//! Requests of raw stores: checked, and handed to the store as they are.

use reactor::buf::IoBuf;
use store::{Op, Rejected, StoreError, TRANSFER_BYTES_MIN, Terms};

use crate::ahead::{Stored, read_stored};
use crate::attached::{Attached, WaitsFor};
use crate::engine::{Entry, Step, Work, token_of};
use crate::parts::Parts;
use crate::{Backing, Io, Namespace, NamespaceError};

/// The second check: the frontend's parser did the first, with the status codes of the command set.
pub(crate) fn check(namespace: &Namespace, io: &Io) -> Result<(), NamespaceError> {
    let nsid = namespace.nsid;
    let flushes = matches!(io, Io::Flush | Io::FlushAll { .. });
    if io.is_write() && namespace.write_protected && !flushes {
        return Err(NamespaceError::WriteProtected { nsid });
    }
    let bytes_of = |blocks: u32| u64::from(blocks) * u64::from(namespace.lba_bytes);
    match io {
        Io::Read {
            blocks,
            into: Some(into),
            ..
        } if into.len() as u64 != bytes_of(*blocks) => {
            let bytes = bytes_of(*blocks);
            return Err(NamespaceError::Length { nsid, bytes });
        }
        Io::CompareAndWrite { expected, data, .. } if expected.len() != data.len() => {
            let bytes = data.len() as u64;
            return Err(NamespaceError::Length { nsid, bytes });
        }
        Io::Copy { sources, .. } => {
            let blocks: u64 = sources.iter().map(|source| u64::from(source.blocks)).sum();
            let bytes = blocks.saturating_mul(u64::from(namespace.lba_bytes));
            if bytes > u64::from(TRANSFER_BYTES_MIN) {
                return Err(NamespaceError::Length { nsid, bytes });
            }
        }
        Io::Deallocate { ranges } => {
            for &(lba, blocks) in ranges {
                inside(namespace, lba, u64::from(blocks))?;
            }
        }
        _ => {}
    }
    io.range(namespace.lba_bytes)
        .map_or(Ok(()), |(lba, blocks)| inside(namespace, lba, blocks))?;
    match &namespace.backing {
        Backing::Mixed(_) => namespace.first_protected(io).map_or(Ok(()), |lba| {
            Err(NamespaceError::ReadOnlyRange { nsid, lba })
        }),
        Backing::Raw(_) | Backing::View { .. } => Ok(()),
    }
}

/// Whether these blocks are there.
pub(crate) fn inside(namespace: &Namespace, lba: u64, blocks: u64) -> Result<(), NamespaceError> {
    match lba.checked_add(blocks) {
        Some(end) if end <= namespace.blocks && blocks > 0 => Ok(()),
        end => Err(NamespaceError::OutOfRange {
            nsid: namespace.nsid,
            lba,
            end: end.unwrap_or(u64::MAX),
            blocks: namespace.blocks,
        }),
    }
}

pub(crate) fn buffer_of(io: Io) -> Option<IoBuf> {
    match io {
        Io::Write { data, .. } | Io::Compare { data, .. } | Io::CompareAndWrite { data, .. } => {
            Some(data)
        }
        Io::Read { into, .. } => into,
        _ => None,
    }
}

/// A request of a raw store that the store does not have yet.
pub(crate) struct Raw {
    pub(crate) op: Op,
    pub(crate) buf: Option<IoBuf>,
    /// Bytes of a read that has no buffer yet.
    pub(crate) read_bytes: u32,
}

impl Raw {
    /// Without a buffer that is still to come.
    pub(crate) fn new(op: Op, buf: Option<IoBuf>) -> Self {
        Self {
            op,
            buf,
            read_bytes: 0,
        }
    }
}

/// What a request of a raw store begins with.
pub(crate) fn raw_work(namespace: &Namespace, io: Io) -> Work {
    let lba_bytes = u64::from(namespace.lba_bytes);
    Work::Raw(match io {
        Io::Read { lba, blocks, into } => Raw {
            op: Op::Read {
                offset: lba * lba_bytes,
            },
            buf: into,
            read_bytes: blocks.saturating_mul(namespace.lba_bytes),
        },
        Io::Write { lba, data, durable } => {
            let offset = lba * lba_bytes;
            Raw::new(Op::Write { offset, durable }, Some(data))
        }
        Io::Flush => Raw::new(Op::Flush, None),
        // The others are of several parts.
        _ => return Work::Free,
    })
}

/// Hands a request to its store.
pub(crate) fn submit_raw(
    attached: &mut Attached,
    parts: &mut Parts,
    slot: usize,
    mut raw: Raw,
    terms: Terms,
    work: &mut Work,
    entry: &mut Entry,
) -> Step {
    if raw.op.is_change() && !may_write(attached, parts, entry) {
        *work = Work::Raw(raw);
        return Step::Parked(WaitsFor::Others);
    }
    if raw.read_bytes > 0 && raw.buf.is_none() {
        raw.buf = parts.alloc_answer(attached, raw.read_bytes as usize);
        if raw.buf.is_none() {
            *work = Work::Raw(raw);
            return Step::Parked(WaitsFor::Memory);
        }
    }
    let bytes = raw.buf.as_ref().map_or(0, IoBuf::len) as u64;
    let token = token_of(slot, 0);
    let asked = match (raw.op, raw.buf) {
        (Op::Read { offset }, Some(buf)) => {
            read_stored(attached, parts, (0, offset), buf, token, terms)
        }
        (op, buf) => attached
            .submit(0, op, buf, token, terms)
            .map(|()| Stored::Asked),
    };
    match asked {
        // Their homes count what they fetch.
        Ok(Stored::Kept) => Step::Waiting,
        Ok(Stored::Asked) => {
            match raw.op {
                Op::Read { .. } => attached.row.stored_bytes.add(bytes),
                _ => attached.row.written_bytes.add(bytes),
            }
            Step::Waiting
        }
        Err(Rejected {
            op,
            buf,
            why: StoreError::Busy,
        }) => {
            leave(attached, parts, entry);
            *work = Work::Raw(Raw {
                op,
                buf,
                read_bytes: raw.read_bytes,
            });
            Step::Parked(WaitsFor::Others)
        }
        Err(Rejected { why, .. }) => Step::Done(Err(NamespaceError::Store {
            nsid: attached.shared.nsid,
            cause: why,
        })),
    }
}

/// Whether a write may begin: nobody's lost write is under way, and nobody keeps it out. From then on it is inside.
fn may_write(attached: &Attached, parts: &mut Parts, entry: &mut Entry) -> bool {
    let namespace = &attached.shared;
    if namespace.fence.is_up() {
        return false;
    }
    if let Entry::Outside | Entry::KeptOut = *entry {
        if !namespace.gate.enter(parts.reactor) {
            if *entry == Entry::Outside {
                namespace.gate.keep_out();
                *entry = Entry::KeptOut;
            }
            // Who keeps it out may have seen it, and waits for it to go.
            parts.wake_peers = true;
            return false;
        }
        parts.wake_peers |= *entry == Entry::KeptOut && namespace.gate.end_wait();
        *entry = Entry::Inside;
    }
    true
}

/// The store did not take it.
fn leave(attached: &Attached, parts: &mut Parts, entry: &mut Entry) {
    if *entry == Entry::Inside {
        *entry = Entry::Outside;
        parts.wake_peers |= attached.shared.gate.leave(parts.reactor);
    }
}
