//! Fused Compare and Write: two commands, one behind the other on a queue, that are carried out as one (Base, "Fused Operations"; NVM, "Compare and
//! Write").

use super::{BlockRange, IoCommand};
use crate::queue::Slot;
use nvme_spec::{Sqe, Status};

/// The first half that waits for its second, of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fusing {
    first: First,
}

#[derive(Clone, Copy, Debug, Default)]
enum First {
    #[default]
    None,
    Waiting(Slot, BlockRange),
    /// It was answered with an error: its second half fails with it.
    Failed,
}

/// What a queue does about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// A first half whose second did not follow: to be answered with Command Aborted due to Missing Fused Command.
    pub orphan: Option<Slot>,
    /// The command itself.
    pub command: Fused,
}

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fused {
    /// It is no half: it goes its way.
    Alone(Result<IoCommand, Status>),
    /// A first half; the next command decides about it.
    First,
    /// Both halves are there.
    Pair {
        /// The Compare's slot.
        compare: Slot,
        /// The Write's range, which is the Compare's but for FUA.
        range: BlockRange,
    },
    /// Neither half is carried out.
    Failed {
        /// The Compare's slot, where it still waits for its answer, and what that is.
        first: Option<(Slot, Status)>,
        /// The Write's answer.
        second: Status,
    },
}

const FIRST: u8 = 1;
const SECOND: u8 = 2;

impl Fusing {
    /// A first half was answered with an error while it waited: its second half fails with it.
    pub fn failed(&mut self, slot: Slot) {
        if matches!(self.first, First::Waiting(first, _) if first == slot) {
            self.first = First::Failed;
        }
    }

    /// A command that cannot be a half came: the first half that waited, to be answered with Command Aborted due to Missing Fused Command.
    pub fn interrupted(&mut self) -> Option<Slot> {
        match std::mem::take(&mut self.first) {
            First::Waiting(first, _) => Some(first),
            First::None | First::Failed => None,
        }
    }

    /// Takes the next command of the queue, in the order of submission.
    pub fn take(&mut self, slot: Slot, sqe: &Sqe, parsed: Result<IoCommand, Status>) -> Taken {
        if sqe.fuse() == SECOND {
            return Taken {
                orphan: None,
                command: second(std::mem::take(&mut self.first), parsed),
            };
        }
        let orphan = self.interrupted();
        let command = match (sqe.fuse(), parsed) {
            (FIRST, Ok(IoCommand::Compare(range))) => {
                self.first = First::Waiting(slot, range);
                Fused::First
            }
            (FIRST, parsed) => {
                self.first = First::Failed;
                Fused::Alone(parsed)
            }
            (_, parsed) => Fused::Alone(parsed),
        };
        Taken { orphan, command }
    }
}

fn second(before: First, parsed: Result<IoCommand, Status>) -> Fused {
    // No DNR: the same command may succeed with its other half.
    let failed = Status::FUSED_FAILED;
    match (before, parsed) {
        (First::None, _) => Fused::Failed {
            first: None,
            second: Status::FUSED_MISSING,
        },
        (First::Failed, _) => Fused::Failed {
            first: None,
            second: failed,
        },
        (First::Waiting(compare, of), Ok(IoCommand::Write(range)))
            if (of.nsid, of.lba, of.blocks) == (range.nsid, range.lba, range.blocks) =>
        {
            Fused::Pair { compare, range }
        }
        // NVM, "Compare and Write": ranges that differ are an Invalid Field in Command.
        (First::Waiting(compare, _), Ok(_)) => Fused::Failed {
            first: Some((compare, Status::INVALID_FIELD.dnr())),
            second: Status::INVALID_FIELD.dnr(),
        },
        (First::Waiting(compare, _), Err(status)) => Fused::Failed {
            first: Some((compare, failed)),
            second: status,
        },
    }
}
