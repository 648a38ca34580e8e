//! Doorbells (PCIe Transport, "Controller Properties": SQyTDBL, CQyHDBL), with CAP.DSTRD = 0.

use crate::queue::QueueId;

/// Where in BAR0 they begin.
pub const DOORBELLS_AT: u64 = 0x1000;

/// One doorbell's bytes.
const STRIDE_BYTES: u64 = 4;

/// What a doorbell says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbell {
    /// The tail of a submission queue.
    Submission(QueueId),
    /// The head of a completion queue.
    Completion(QueueId),
}

/// Bytes of the doorbells of so many I/O queue pairs and the admin queues.
#[must_use]
pub const fn doorbell_bytes(io_queues: u16) -> u64 {
    (io_queues as u64 + 1) * 2 * STRIDE_BYTES
}

impl Doorbell {
    /// The doorbell at an offset of BAR0; none below the first, between two, or beyond what 16 bits name.
    #[must_use]
    pub fn at(offset: u64) -> Option<Doorbell> {
        let from_first = offset.checked_sub(DOORBELLS_AT)?;
        if !from_first.is_multiple_of(STRIDE_BYTES) {
            return None;
        }
        let index = from_first / STRIDE_BYTES;
        let queue = QueueId(u16::try_from(index / 2).ok()?);
        Some(match index % 2 {
            0 => Doorbell::Submission(queue),
            _ => Doorbell::Completion(queue),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doorbells_stand_in_pairs() {
        let expected = [
            (0x1000, Some(Doorbell::Submission(QueueId(0)))),
            (0x1004, Some(Doorbell::Completion(QueueId(0)))),
            (0x1008, Some(Doorbell::Submission(QueueId(1)))),
            (0x120C, Some(Doorbell::Completion(QueueId(65)))),
            (0xFFC, None),
            (0x1001, None),
            (0x1002, None),
            (
                0x1000 + 8 * 0xFFFF,
                Some(Doorbell::Submission(QueueId(0xFFFF))),
            ),
            (0x1000 + 8 * 0x1_0000, None),
            (u64::MAX, None),
        ];
        for (offset, doorbell) in expected {
            assert_eq!(Doorbell::at(offset), doorbell, "{offset:#x}");
        }
        assert_eq!(doorbell_bytes(64), 520);
    }
}
