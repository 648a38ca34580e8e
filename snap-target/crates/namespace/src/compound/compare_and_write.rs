//! Fused Compare and Write (NVM, "Compare and Write"): one after the other with no write of others between.

use reactor::buf::IoBuf;

use super::compare::first_difference;
use super::{Got, Next, Part, Steps, blocks_of};
use crate::{Namespace, NamespaceError};

pub(super) struct CompareAndWrite {
    lba: u64,
    expected: IoBuf,
    data: Option<IoBuf>,
    durable: bool,
    stage: Stage,
}

enum Stage {
    Memory,
    Exclude,
    Read(IoBuf),
    Compare,
    Clear,
    End(Option<IoBuf>),
}

impl CompareAndWrite {
    pub(super) fn new(lba: u64, expected: IoBuf, data: IoBuf, durable: bool) -> Self {
        Self {
            lba,
            expected,
            data: Some(data),
            durable,
            stage: Stage::Memory,
        }
    }
}

impl Steps for CompareAndWrite {
    fn next(&mut self, namespace: &Namespace, got: Got) -> Next {
        let blocks = blocks_of(namespace, &self.expected);
        let stage = std::mem::replace(&mut self.stage, Stage::End(None));
        match (stage, got) {
            // Before others are kept out: whoever waits for memory may wait long.
            (Stage::Memory, _) => {
                self.stage = Stage::Exclude;
                Next::Memory(self.expected.len())
            }
            (Stage::Exclude, Got::Buffer(memory)) => {
                self.stage = Stage::Read(memory);
                Next::Exclude
            }
            (Stage::Read(into), _) => {
                self.stage = Stage::Compare;
                Next::Part(Part::Read {
                    key: namespace.key,
                    lba: self.lba,
                    blocks,
                    into,
                })
            }
            (Stage::Compare, Got::Buffer(found)) => {
                if let Some(at) = first_difference(&self.expected, 0, &found) {
                    let lba = self.lba + at as u64 / u64::from(namespace.lba_bytes);
                    let nsid = namespace.nsid;
                    return Next::Done(Err(NamespaceError::Miscompare { nsid, lba }));
                }
                self.stage = Stage::Clear;
                Next::Part(Part::Write {
                    key: namespace.key,
                    lba: self.lba,
                    data: self.data.take().unwrap_or_else(IoBuf::empty),
                    durable: self.durable,
                })
            }
            (Stage::Clear, Got::Buffer(data)) => {
                self.stage = Stage::End(Some(data));
                Next::Clear {
                    lba: self.lba,
                    blocks: u64::from(blocks),
                }
            }
            (Stage::End(data), _) => Next::Done(Ok(data)),
            // What was asked for comes, or the request fails.
            (Stage::Exclude | Stage::Compare | Stage::Clear, Got::Nothing) => Next::Done(Ok(None)),
        }
    }

    fn failed(&mut self, error: NamespaceError) -> NamespaceError {
        match self.stage {
            Stage::Clear | Stage::End(_) => NamespaceError::InPart {
                is_write: true,
                cause: Box::new(error),
            },
            _ => error,
        }
    }
}
