//! From a command's data pointer to pieces of guest memory: its PRPs, or its SGL.

use nvme::pcie::{Piece, Prps, Sgls};
use nvme_spec::{Sqe, Status};

/// Lists that are copied out at a time.
pub(crate) const PART_BYTES_MAX: usize = 4096;

/// What is left of it: give it the parts that it asks for until it asks for none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Walk {
    Prps(Prps),
    Sgls(Sgls),
}

impl Walk {
    /// Of a command with so many bytes of data; what it says itself goes to `pieces`.
    ///
    /// Inlined, so that what it says is not written in parts to be read as a whole, which the processor waits for.
    #[inline(always)]
    pub(crate) fn new(sqe: &Sqe, bytes: u32, pieces: &mut Vec<Piece>) -> Result<Self, Status> {
        pieces.clear();
        let mut push = |piece| push(pieces, piece);
        Ok(match sqe.psdt() {
            0 => Self::Prps(Prps::new(
                sqe.dptr.address.get(),
                sqe.prp2(),
                bytes,
                &mut push,
            )?),
            _ => Self::Sgls(Sgls::new(&sqe.dptr, bytes, &mut push)?),
        })
    }

    /// Where the part is that it asks for, and how long, [`PART_BYTES_MAX`] at most.
    pub(crate) fn wants(&self) -> Option<(u64, usize)> {
        match self {
            Self::Prps(prps) => {
                let list = prps.wants()?;
                Some((list.address, usize::from(list.entries) * 8))
            }
            Self::Sgls(sgls) => {
                let part = sgls.wants()?;
                Some((part.address, part.bytes.into()))
            }
        }
    }

    /// Takes that part, as it was copied out of guest memory.
    pub(crate) fn take(&mut self, part: &[u8], pieces: &mut Vec<Piece>) -> Result<(), Status> {
        let mut push = |piece| push(pieces, piece);
        match self {
            Self::Prps(prps) => prps.take(part, &mut push),
            Self::Sgls(sgls) => sgls.take(part, &mut push),
        }
    }
}

/// Pages that follow each other are one run.
fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    match pieces.last_mut() {
        Some(last) if last.address.checked_add(u64::from(last.bytes)) == Some(piece.address) => {
            last.bytes += piece.bytes;
        }
        _ => pieces.push(piece),
    }
}
