//! Compare (NVM, "Compare command"): reads a piece at a time, and ends at the first block that differs.

use reactor::buf::IoBuf;

use super::{Got, Next, Part, Steps, blocks_of};
use crate::limits::CHECKED_BYTES;
use crate::{Namespace, NamespaceError};

pub(super) struct Compare {
    lba: u64,
    data: IoBuf,
    /// Blocks compared so far, and those of the piece under way.
    compared: u32,
    piece: u32,
    memory: Option<IoBuf>,
}

impl Compare {
    pub(super) fn new(lba: u64, data: IoBuf) -> Self {
        Self {
            lba,
            data,
            compared: 0,
            piece: 0,
            memory: None,
        }
    }
}

impl Steps for Compare {
    fn next(&mut self, namespace: &Namespace, got: Got) -> Next {
        let lba_bytes = namespace.lba_bytes as usize;
        let memory = match (self.memory.clone(), got) {
            (None, Got::Nothing) => {
                let len = self.data.len().min(CHECKED_BYTES as usize);
                return Next::Memory(len.max(lba_bytes));
            }
            (None, Got::Buffer(memory)) => self.memory.insert(memory).clone(),
            (Some(memory), Got::Buffer(found)) => {
                let from = self.compared as usize * lba_bytes;
                if let Some(at) = first_difference(&self.data, from, &found) {
                    return Next::Done(Err(NamespaceError::Miscompare {
                        nsid: namespace.nsid,
                        lba: self.lba + ((from + at) / lba_bytes) as u64,
                    }));
                }
                self.compared += self.piece;
                memory
            }
            (Some(memory), Got::Nothing) => memory,
        };
        let left = blocks_of(namespace, &self.data) - self.compared;
        if left == 0 {
            return Next::Done(Ok(Some(std::mem::replace(&mut self.data, IoBuf::empty()))));
        }
        self.piece = left.min(blocks_of(namespace, &memory));
        Next::Part(Part::Read {
            key: namespace.key,
            lba: self.lba + u64::from(self.compared),
            blocks: self.piece,
            into: memory.slice(0..self.piece as usize * lba_bytes),
        })
    }
}

/// The first byte in which `found` differs from what stands at `from` in `expected`.
pub(super) fn first_difference(expected: &IoBuf, from: usize, found: &IoBuf) -> Option<usize> {
    const WINDOW: usize = 4096;
    let (mut a, mut b) = ([0; WINDOW], [0; WINDOW]);
    let mut at = 0;
    while at < found.len() {
        let len = WINDOW.min(found.len() - at);
        let (a, b) = (a.get_mut(..len)?, b.get_mut(..len)?);
        expected.copy_to(from + at, a);
        found.copy_to(at, b);
        if a != b {
            return Some(at + a.iter().zip(b.iter()).take_while(|(a, b)| a == b).count());
        }
        at += len;
    }
    None
}
