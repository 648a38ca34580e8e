//! Requests of raw stores: checked, and handed to the store as they are.

use reactor::buf::IoBuf;
use store::{Op, Rejected, StoreError};

use crate::attached::Attached;
use crate::engine::{Step, Work, token_of};
use crate::parts::Parts;
use crate::{Io, Namespace, NamespaceError};

/// The second check: the frontend's parser did the first, with the status codes of the command set.
pub(crate) fn check(namespace: &Namespace, io: &Io) -> Result<(), NamespaceError> {
    let nsid = namespace.nsid;
    if io.is_write() && namespace.write_protected && !matches!(io, Io::Flush) {
        return Err(NamespaceError::WriteProtected { nsid });
    }
    let (lba, blocks) = match io {
        Io::Read { lba, blocks, into } => {
            let bytes = u64::from(*blocks) * u64::from(namespace.lba_bytes);
            if into.as_ref().is_some_and(|into| into.len() as u64 != bytes) {
                return Err(NamespaceError::Length { nsid, bytes });
            }
            (*lba, u64::from(*blocks))
        }
        Io::Write { lba, data, .. } => (
            *lba,
            (data.len() as u64).div_ceil(u64::from(namespace.lba_bytes)),
        ),
        Io::Flush => return Ok(()),
    };
    match lba.checked_add(blocks) {
        Some(end) if end <= namespace.blocks && blocks > 0 => Ok(()),
        end => Err(NamespaceError::OutOfRange {
            nsid,
            lba,
            end: end.unwrap_or(u64::MAX),
            blocks: namespace.blocks,
        }),
    }
}

pub(crate) fn buffer_of(io: Io) -> Option<IoBuf> {
    match io {
        Io::Write { data, .. } => Some(data),
        Io::Read { into, .. } => into,
        Io::Flush => None,
    }
}

/// What a request of a raw store begins with.
pub(crate) fn raw_work(namespace: &Namespace, io: Io) -> Work {
    let lba_bytes = u64::from(namespace.lba_bytes);
    match io {
        Io::Read { lba, blocks, into } => {
            let read_bytes = blocks.saturating_mul(namespace.lba_bytes);
            Work::Raw {
                op: Op::Read {
                    offset: lba * lba_bytes,
                },
                buf: into,
                read_bytes,
            }
        }
        Io::Write { lba, data, durable } => Work::Raw {
            op: Op::Write {
                offset: lba * lba_bytes,
                durable,
            },
            buf: Some(data),
            read_bytes: 0,
        },
        Io::Flush => Work::Raw {
            op: Op::Flush,
            buf: None,
            read_bytes: 0,
        },
    }
}

/// Hands a request to its store.
pub(crate) fn submit_raw(
    attached: &mut Attached,
    parts: &mut Parts,
    slot: usize,
    op: Op,
    buf: Option<IoBuf>,
    read_bytes: u32,
    work: &mut Work,
) -> Step {
    if !matches!(op, Op::Read { .. } | Op::Flush) && attached.shared.fence.is_up() {
        *work = Work::Raw {
            op,
            buf,
            read_bytes,
        };
        return Step::Parked;
    }
    let buf = if read_bytes > 0 && buf.is_none() {
        let Some(buf) = parts.alloc_answer(attached, read_bytes as usize) else {
            *work = Work::Raw {
                op,
                buf: None,
                read_bytes,
            };
            return Step::Parked;
        };
        Some(buf)
    } else {
        buf
    };
    let bytes = buf.as_ref().map_or(0, IoBuf::len) as u64;
    match attached.submit(0, op, buf, token_of(slot, 0)) {
        Ok(()) => {
            match op {
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
            *work = Work::Raw {
                op,
                buf,
                read_bytes,
            };
            Step::Parked
        }
        Err(Rejected { why, .. }) => Step::Done(Err(NamespaceError::Store {
            nsid: attached.shared.nsid,
            cause: why,
        })),
    }
}
