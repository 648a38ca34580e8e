//! Write Zeroes and Dataset Management's deallocation (NVM): ranges, each in pieces that the store takes at once.

use super::{Got, Next, Part, Steps};
use crate::Namespace;

pub(super) struct Ranges {
    left: std::vec::IntoIter<(u64, u32)>,
    /// Blocks of the range under way that are left: `start..end`.
    start: u64,
    end: u64,
    way: Way,
    end_stage: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Zero,
    Discard,
}

/// What follows when the last piece is done.
#[derive(Clone, Copy)]
enum End {
    /// Make it durable, then clear marks.
    Flush {
        lba: u64,
        blocks: u32,
    },
    Clear {
        lba: u64,
        blocks: u32,
    },
    Nothing,
}

impl Ranges {
    /// Zeros. Where a discarded range reads as zeros, deallocation is as good.
    pub(super) fn zeroes(
        namespace: &Namespace,
        lba: u64,
        blocks: u32,
        deallocate: bool,
        durable: bool,
    ) -> Self {
        let discard = deallocate && namespace.reads_zeros_after_discard();
        Self {
            left: vec![(lba, blocks)].into_iter(),
            start: 0,
            end: 0,
            way: if discard { Way::Discard } else { Way::Zero },
            end_stage: if durable {
                End::Flush { lba, blocks }
            } else {
                End::Clear { lba, blocks }
            },
        }
    }

    /// Marks stay: nothing is written.
    pub(super) fn deallocation(ranges: Vec<(u64, u32)>) -> Self {
        Self {
            left: ranges.into_iter(),
            start: 0,
            end: 0,
            way: Way::Discard,
            end_stage: End::Nothing,
        }
    }
}

impl Steps for Ranges {
    fn next(&mut self, namespace: &Namespace, _got: Got) -> Next {
        if self.start == self.end
            && let Some((lba, blocks)) = self.left.next()
        {
            self.start = lba;
            self.end = lba + u64::from(blocks);
        }
        if self.start < self.end {
            let (key, lba) = (namespace.key, self.start);
            let blocks_max = (namespace.range_bytes_max() / namespace.lba_bytes).max(1);
            let blocks = (self.end - lba).min(u64::from(blocks_max));
            self.start += blocks;
            return Next::Part(match self.way {
                Way::Zero => Part::Zero { key, lba, blocks },
                Way::Discard => Part::Discard { key, lba, blocks },
            });
        }
        match std::mem::replace(&mut self.end_stage, End::Nothing) {
            End::Flush { lba, blocks } => {
                self.end_stage = End::Clear { lba, blocks };
                Next::Part(Part::Flush { key: namespace.key })
            }
            End::Clear { lba, blocks } => Next::Clear {
                lba,
                blocks: u64::from(blocks),
            },
            End::Nothing => Next::Done(Ok(None)),
        }
    }
}
