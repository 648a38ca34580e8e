//! Doorbells (PCIe Transport, "Controller Properties": SQyTDBL, CQyHDBL), with CAP.DSTRD = 0.

use nvme_spec::Status;

use super::PAGE_BYTES;
use crate::queue::QueueId;

/// Where in BAR0 they begin.
pub const DOORBELLS_AT: u64 = 0x1000;

/// One doorbell's bytes.
const STRIDE_BYTES: u64 = 4;

/// Each of [`DoorbellBuffers`]: a page.
pub const DOORBELL_BUFFER_BYTES: u64 = PAGE_BYTES as u64;

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

/// Where a host keeps its doorbells in its own memory (Base, "Doorbell Buffer Config command"; "Updating Controller Doorbell Properties using a Shadow
/// Doorbell Buffer"): two pages, each laid out as the doorbells are. The host writes a doorbell's value to the first; it writes the doorbell itself
/// only where the value passes the one that the controller has left in the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorbellBuffers {
    shadow: u64,
    events: u64,
}

impl DoorbellBuffers {
    /// PRP1 and PRP2 of the command.
    ///
    /// # Errors
    /// [`Status::PRP_OFFSET_INVALID`]: one is no page's beginning.
    pub fn new(shadow: u64, events: u64) -> Result<Self, Status> {
        let page = DOORBELL_BUFFER_BYTES;
        if !shadow.is_multiple_of(page) || !events.is_multiple_of(page) {
            return Err(Status::PRP_OFFSET_INVALID.dnr());
        }
        Ok(Self { shadow, events })
    }

    /// Where the host's values begin.
    #[must_use]
    pub fn shadow(&self) -> u64 {
        self.shadow
    }

    /// Where the controller's begin.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Where the host leaves a doorbell's value; none where the page has no place for it.
    #[must_use]
    pub fn shadow_of(&self, doorbell: Doorbell) -> Option<u64> {
        Some(self.shadow + doorbell.page_offset()?)
    }

    /// Where the controller leaves the value at which it waits.
    #[must_use]
    pub fn event_of(&self, doorbell: Doorbell) -> Option<u64> {
        Some(self.events + doorbell.page_offset()?)
    }
}

impl Doorbell {
    /// From the first doorbell, within a page; none where it is beyond that.
    #[must_use]
    pub fn page_offset(self) -> Option<u64> {
        let index = match self {
            Doorbell::Submission(queue) => u64::from(queue.0) * 2,
            Doorbell::Completion(queue) => u64::from(queue.0) * 2 + 1,
        };
        Some(index * STRIDE_BYTES).filter(|offset| *offset < DOORBELL_BUFFER_BYTES)
    }

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

    #[test]
    fn in_memory_they_stand_as_in_the_bar() {
        let buffers = DoorbellBuffers::new(0x7000, u64::MAX - 0xFFF).unwrap();
        let (tail, head) = (
            Doorbell::Submission(QueueId(3)),
            Doorbell::Completion(QueueId(64)),
        );
        assert_eq!(buffers.shadow_of(tail), Some(0x7018));
        assert_eq!(buffers.event_of(tail), Some(u64::MAX - 0xFE7));
        assert_eq!(buffers.shadow_of(head), Some(0x7204));
        assert_eq!(
            buffers.event_of(Doorbell::Completion(QueueId(511))),
            Some(u64::MAX - 3)
        );
        assert_eq!(buffers.shadow_of(Doorbell::Submission(QueueId(512))), None);
        for (shadow, events) in [(0x7001, 0x8000), (0x7000, 0x8800)] {
            let refused = DoorbellBuffers::new(shadow, events);
            assert_eq!(refused, Err(Status::PRP_OFFSET_INVALID.dnr()));
        }
    }
}
