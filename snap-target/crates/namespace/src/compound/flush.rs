//! Flush of several namespaces (Base, "Flush command": NSID FFFFFFFFh), and reads of what must be durable (NVM, "Read command": FUA).

use super::{Got, Next, Part, Steps};
use crate::{Namespace, NamespaceKey};

pub(super) struct FlushAll {
    left: Vec<NamespaceKey>,
}

impl FlushAll {
    pub(super) fn new(first: NamespaceKey, mut others: Vec<NamespaceKey>) -> Self {
        others.push(first);
        Self { left: others }
    }
}

impl Steps for FlushAll {
    fn next(&mut self, _namespace: &Namespace, _got: Got) -> Next {
        match self.left.pop() {
            Some(key) => Next::Part(Part::Flush { key }),
            None => Next::Done(Ok(None)),
        }
    }
}

pub(super) struct ReadDurable {
    lba: u64,
    blocks: u32,
    stage: Stage,
}

enum Stage {
    Flush,
    Memory,
    Read,
    End,
}

impl ReadDurable {
    pub(super) fn new(lba: u64, blocks: u32) -> Self {
        Self {
            lba,
            blocks,
            stage: Stage::Flush,
        }
    }
}

impl Steps for ReadDurable {
    fn next(&mut self, namespace: &Namespace, got: Got) -> Next {
        match (std::mem::replace(&mut self.stage, Stage::End), got) {
            (Stage::Flush, _) => {
                self.stage = Stage::Memory;
                Next::Part(Part::Flush { key: namespace.key })
            }
            (Stage::Memory, _) => {
                self.stage = Stage::Read;
                Next::Memory(self.blocks as usize * namespace.lba_bytes as usize)
            }
            (Stage::Read, Got::Buffer(into)) => Next::Part(Part::Read {
                key: namespace.key,
                lba: self.lba,
                blocks: self.blocks,
                into,
            }),
            (Stage::End, Got::Buffer(read)) => Next::Done(Ok(Some(read))),
            (Stage::Read | Stage::End, Got::Nothing) => Next::Done(Ok(None)),
        }
    }
}
