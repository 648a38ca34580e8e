//! Verify (NVM, "Verify command"): reads that nobody gets, through checksums and decoders as any read.

use reactor::buf::IoBuf;

use super::{Got, Next, Part, Steps, blocks_of};
use crate::Namespace;
use crate::limits::CHECKED_BYTES;

pub(super) struct Verify {
    lba: u64,
    left: u32,
    memory: Option<IoBuf>,
}

impl Verify {
    pub(super) fn new(lba: u64, blocks: u32) -> Self {
        Self {
            lba,
            left: blocks,
            memory: None,
        }
    }
}

impl Steps for Verify {
    fn next(&mut self, namespace: &Namespace, got: Got) -> Next {
        let lba_bytes = namespace.lba_bytes;
        let memory = match (self.memory.clone(), got) {
            (None, Got::Nothing) => return Next::Memory(CHECKED_BYTES.max(lba_bytes) as usize),
            (None, Got::Buffer(memory)) => self.memory.insert(memory).clone(),
            (Some(memory), _) => memory,
        };
        if self.left == 0 {
            return Next::Done(Ok(None));
        }
        // Up to a multiple of the piece, so that a frame is not read twice.
        let whole = blocks_of(namespace, &memory);
        let to_boundary = whole - u32::try_from(self.lba % u64::from(whole)).unwrap_or(0);
        let blocks = self.left.min(to_boundary);
        let lba = self.lba;
        self.lba += u64::from(blocks);
        self.left -= blocks;
        Next::Part(Part::Read {
            key: namespace.key,
            lba,
            blocks,
            into: memory.slice(0..blocks as usize * lba_bytes as usize),
        })
    }
}
