//! What several parts of a mixed namespace have of one request: a piece for each, one after the other.

use reactor::buf::IoBuf;

use super::{Got, Next, Part, Steps};
use crate::{Backing, Mixed, Namespace, NamespaceError};

impl Part {
    /// The same of the parts of a mixed namespace, in their order; the part itself of any other. Its blocks are there.
    pub(super) fn pieces(self, namespace: &Namespace) -> Pieced {
        match &namespace.backing {
            Backing::Raw(_) | Backing::View { .. } => Pieced::Whole(self),
            Backing::Mixed(mixed) => {
                let mut pieces = self.of_parts(mixed, namespace.lba_bytes);
                match pieces.pop() {
                    Some((_, only)) if pieces.is_empty() => Pieced::Whole(only),
                    last => {
                        pieces.extend(last);
                        Pieced::Several(pieces)
                    }
                }
            }
        }
    }

    /// With the block of the mixed namespace at which each begins.
    fn of_parts(self, mixed: &Mixed, lba_bytes: u32) -> Vec<(u64, Part)> {
        let Some((lba, blocks)) = self.range(lba_bytes) else {
            // Nothing was ever written to the others.
            let written = mixed
                .parts()
                .iter()
                .filter(|it| !it.namespace.write_protected);
            let flush = |key| Part::Flush { key };
            return written
                .map(|it| (it.first_lba, flush(it.namespace.key)))
                .collect();
        };
        let pieces = mixed.pieces(lba, blocks).filter_map(|piece| {
            let part = mixed.parts().get(piece.part)?;
            let of = self.piece(piece.lba - lba, piece.blocks, lba_bytes);
            Some((
                piece.lba,
                of.moved(part.namespace.key, piece.lba - part.first_lba),
            ))
        });
        pieces.collect()
    }

    /// Some of its blocks, `skipped` of those before them left out.
    fn piece(&self, skipped: u64, blocks: u64, lba_bytes: u32) -> Part {
        let bytes_of = |blocks: u64| usize::try_from(blocks * u64::from(lba_bytes));
        let slice = |buf: &IoBuf| {
            // As long as the buffer, at most.
            let start = bytes_of(skipped).unwrap_or(buf.len());
            let len = bytes_of(blocks).unwrap_or(0);
            buf.slice(start..start + len)
        };
        match self {
            Self::Read { key, lba, into, .. } => Self::Read {
                key: *key,
                lba: lba + skipped,
                blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
                into: slice(into),
            },
            Self::Write {
                key,
                lba,
                data,
                durable,
            } => Self::Write {
                key: *key,
                lba: lba + skipped,
                data: slice(data),
                durable: *durable,
            },
            Self::Zero { key, lba, .. } => Self::Zero {
                key: *key,
                lba: lba + skipped,
                blocks,
            },
            Self::Discard { key, lba, .. } => Self::Discard {
                key: *key,
                lba: lba + skipped,
                blocks,
            },
            Self::Flush { key } => Self::Flush { key: *key },
        }
    }

    /// Of another namespace, from another block on.
    fn moved(mut self, to: crate::NamespaceKey, first: u64) -> Part {
        match &mut self {
            Self::Read { key, lba, .. }
            | Self::Write { key, lba, .. }
            | Self::Zero { key, lba, .. }
            | Self::Discard { key, lba, .. } => (*key, *lba) = (to, first),
            Self::Flush { key } => *key = to,
        }
        self
    }
}

/// What is to be done of a part of a request.
pub(super) enum Pieced {
    /// One piece, of one store or view.
    Whole(Part),
    /// Several, or none where nothing is to be done: each with its first block.
    Several(Vec<(u64, Part)>),
}

/// The machine of several.
pub(super) struct Pieces {
    left: std::vec::IntoIter<(u64, Part)>,
    /// Where the one under way begins.
    lba: u64,
    lba_bytes: u32,
    /// Buffers that came back, one behind the other.
    gathered: Option<IoBuf>,
}

impl Pieces {
    pub(super) fn new(pieces: Vec<(u64, Part)>, lba_bytes: u32) -> Self {
        Self {
            left: pieces.into_iter(),
            lba: 0,
            lba_bytes,
            gathered: None,
        }
    }
}

impl Steps for Pieces {
    fn next(&mut self, _namespace: &Namespace, got: Got) -> Next {
        if let Got::Buffer(buf) = got {
            self.gathered.get_or_insert_with(IoBuf::empty).append(buf);
        }
        match self.left.next() {
            Some((lba, part)) => {
                self.lba = lba;
                Next::Part(part)
            }
            None => Next::Done(Ok(self.gathered.take())),
        }
    }

    fn failed(&mut self, error: NamespaceError) -> NamespaceError {
        error.at_block(self.lba, self.lba_bytes)
    }
}

/// A read that several parts answer, into memory of its own where it names none.
pub(super) struct ReadAcross {
    lba: u64,
    blocks: u32,
    into: Option<IoBuf>,
    is_begun: bool,
}

impl ReadAcross {
    pub(super) fn new(lba: u64, blocks: u32, into: Option<IoBuf>) -> Self {
        Self {
            lba,
            blocks,
            into,
            is_begun: false,
        }
    }
}

impl Steps for ReadAcross {
    fn next(&mut self, namespace: &Namespace, got: Got) -> Next {
        let buf = match got {
            Got::Buffer(buf) => Some(buf),
            Got::Nothing => self.into.take(),
        };
        match buf {
            buf if self.is_begun => Next::Done(Ok(buf)),
            None => Next::Memory(self.blocks as usize * namespace.lba_bytes as usize),
            Some(into) => {
                self.is_begun = true;
                Next::Part(Part::Read {
                    key: namespace.key,
                    lba: self.lba,
                    blocks: self.blocks,
                    into,
                })
            }
        }
    }
}
