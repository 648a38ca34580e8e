//! Copy (NVM, "Copy command"): every source is read, then all is written in one piece.

use reactor::buf::IoBuf;

use super::{Got, Next, Part, Steps, blocks_of};
use crate::{Namespace, NamespaceError, Source};

pub(super) struct Copy {
    lba: u64,
    sources: std::vec::IntoIter<Source>,
    /// First block of the source that is being read, and the size of blocks.
    source: (u64, u32),
    durable: bool,
    /// Memory for the sources still to be read.
    memory: Option<IoBuf>,
    /// What was read of them so far.
    read: IoBuf,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Memory,
    Reading,
    Written,
    Cleared,
}

impl Copy {
    pub(super) fn new(lba: u64, sources: Vec<Source>, durable: bool) -> Self {
        Self {
            lba,
            sources: sources.into_iter(),
            source: (0, 0),
            durable,
            memory: None,
            read: IoBuf::empty(),
            stage: Stage::Memory,
        }
    }

    fn next_source(&mut self, namespace: &Namespace) -> Next {
        let Some(source) = self.sources.next() else {
            self.stage = Stage::Written;
            return Next::Part(Part::Write {
                key: namespace.key,
                lba: self.lba,
                data: std::mem::replace(&mut self.read, IoBuf::empty()),
                durable: self.durable,
            });
        };
        self.source = (source.lba, namespace.lba_bytes);
        let memory = self.memory.take().unwrap_or_else(IoBuf::empty);
        let len = source.blocks as usize * namespace.lba_bytes as usize;
        let into = memory.slice(0..len);
        self.memory = Some(memory.slice(len..memory.len()));
        Next::Part(Part::Read {
            key: source.key,
            lba: source.lba,
            blocks: source.blocks,
            into,
        })
    }
}

impl Steps for Copy {
    fn next(&mut self, namespace: &Namespace, got: Got) -> Next {
        match (self.stage, got) {
            (Stage::Memory, Got::Nothing) => {
                let blocks = |source: &Source| source.blocks as usize;
                let total: usize = self.sources.as_slice().iter().map(blocks).sum();
                Next::Memory(total * namespace.lba_bytes as usize)
            }
            (Stage::Memory, Got::Buffer(memory)) => {
                self.memory = Some(memory);
                self.stage = Stage::Reading;
                self.next_source(namespace)
            }
            (Stage::Reading, Got::Buffer(part)) => {
                self.read.append(part);
                self.next_source(namespace)
            }
            (Stage::Written, Got::Buffer(data)) => {
                self.stage = Stage::Cleared;
                Next::Clear {
                    lba: self.lba,
                    blocks: u64::from(blocks_of(namespace, &data)),
                }
            }
            (Stage::Reading | Stage::Written | Stage::Cleared, _) => Next::Done(Ok(None)),
        }
    }

    fn failed(&mut self, error: NamespaceError) -> NamespaceError {
        match self.stage {
            Stage::Reading => NamespaceError::InPart {
                is_write: false,
                cause: Box::new(error.at_block(self.source.0, self.source.1)),
            },
            _ => error,
        }
    }
}
