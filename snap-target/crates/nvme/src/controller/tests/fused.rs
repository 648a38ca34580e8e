//! Fused Compare and Write: what finds its other half, and what does not.

use super::*;
use crate::controller::{Fused, Fusing, Taken};
use nvme_spec::Lba;

const COMPARE: u8 = 0x05;
const WRITE: u8 = 0x01;
const FAILED: Status = Status::FUSED_FAILED;
const MISSING: Status = Status::FUSED_MISSING;

/// A queue that takes commands in turn: opcode, FUSE, first block, blocks.
#[derive(Default)]
struct Queue {
    fusing: Fusing,
    next: u16,
}

impl Queue {
    fn take(&mut self, opcode: u8, fuse: u8, slba: u32, blocks: u8) -> Taken {
        let mut sqe = command(opcode, 3, slba, 0);
        sqe[1] |= fuse;
        sqe[48] = blocks - 1;
        let sqe = Sqe::read_from_bytes(&sqe).unwrap();
        let bytes = u32::from(blocks) * 512;
        let parsed = parse_io(&sqe, Transfer::Remote { bytes }, &namespaces(), 1 << 17);
        self.next += 1;
        self.fusing.take(Slot(self.next - 1), &sqe, parsed)
    }
}

fn alone(taken: Taken) -> bool {
    matches!(taken.command, Fused::Alone(Ok(_)))
}

#[test]
fn halves_that_follow_each_other_are_a_pair() {
    let mut queue = Queue::default();
    for first in [0, 2] {
        let taken = queue.take(COMPARE, 1, 40, 8);
        assert_eq!((taken.orphan, taken.command), (None, Fused::First));
        let taken = queue.take(WRITE, 2, 40, 8);
        let Fused::Pair { compare, range } = taken.command else {
            panic!("{taken:?}")
        };
        assert_eq!((taken.orphan, compare), (None, Slot(first)));
        assert_eq!((range.lba, range.bytes), (Lba(40), 4096));
    }
    assert!(alone(queue.take(WRITE, 0, 0, 1)));
}

/// Base, "Fused Operations": both halves stand next to each other, or they are aborted.
#[test]
fn a_half_alone_is_aborted() {
    let mut queue = Queue::default();
    queue.take(COMPARE, 1, 0, 1);
    let taken = queue.take(WRITE, 0, 0, 1);
    assert_eq!(taken.orphan, Some(Slot(0)));
    assert!(alone(taken), "the command between is carried out");
    let missing = Fused::Failed {
        first: None,
        second: MISSING,
    };
    assert_eq!(queue.take(WRITE, 2, 0, 1).command, missing);
    queue.take(COMPARE, 1, 0, 1);
    let taken = queue.take(COMPARE, 1, 8, 1);
    assert_eq!(
        (taken.orphan, taken.command),
        (Some(Slot(3)), Fused::First),
        "a new pair may begin"
    );
    assert!(matches!(
        queue.take(WRITE, 2, 8, 1).command,
        Fused::Pair {
            compare: Slot(4),
            ..
        }
    ));
}

/// What fails one half fails the other with Command Aborted due to Failed Fused Command.
#[test]
fn an_error_of_one_half_aborts_the_other() {
    let mut queue = Queue::default();
    let exceeded = Err(Status::ATOMIC_WRITE_UNIT_EXCEEDED.dnr());
    let taken = queue.take(COMPARE, 1, 0, 9);
    assert_eq!(taken.command, Fused::Alone(exceeded), "ACWU");
    assert_eq!(
        queue.take(WRITE, 2, 0, 8).command,
        Fused::Failed {
            first: None,
            second: FAILED
        }
    );
    queue.take(COMPARE, 1, 0, 8);
    assert_eq!(
        queue.take(WRITE, 2, 0, 9).command,
        Fused::Failed {
            first: Some((Slot(2), FAILED)),
            second: Status::ATOMIC_WRITE_UNIT_EXCEEDED.dnr()
        }
    );
    for (slba, blocks) in [(1, 8), (0, 7)] {
        queue.take(COMPARE, 1, 0, 8);
        let Fused::Failed { first, second } = queue.take(WRITE, 2, slba, blocks).command else {
            panic!()
        };
        assert_eq!(first.map(|(_, status)| status), Some(INVALID_FIELD));
        assert_eq!(second, INVALID_FIELD);
    }
}
