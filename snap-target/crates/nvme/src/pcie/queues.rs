//! Create and delete I/O queues (PCIe Transport, "I/O Queue Creation"; Base, "Create I/O Completion Queue command" and its kin): which there are, and what a
//! host may do with them.

use crate::queue::QueueId;
use nvme_spec::{AdminOpcode, Sqe, Status};

use super::{DoorbellBuffers, PAGE_BYTES};

/// A command about a function's queues, parsed once: what fabrics do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueCommand {
    /// 05h.
    CreateCompletion(CompletionQueue),
    /// 01h.
    CreateSubmission(SubmissionQueue),
    /// 04h.
    DeleteCompletion(QueueId),
    /// 00h.
    DeleteSubmission(QueueId),
    /// 7Ch.
    ShareDoorbells(DoorbellBuffers),
}

/// A completion queue as its host asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionQueue {
    /// QID; not 0.
    pub id: QueueId,
    /// Where it is: a page's beginning.
    pub base: u64,
    /// QSIZE + 1: 2 to 65,536.
    pub entries: u32,
    /// IV, where IEN says that it interrupts.
    pub vector: Option<u16>,
}

/// A submission queue as its host asks for it. QPRIO is ignored: arbitration is round robin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmissionQueue {
    /// QID; not 0.
    pub id: QueueId,
    /// Where it is: a page's beginning.
    pub base: u64,
    /// QSIZE + 1: 2 to 65,536.
    pub entries: u32,
    /// CQID; not 0.
    pub completion: QueueId,
}

/// CDW11 bit 0 of both: physically contiguous. CAP.CQR asks for it.
const CONTIGUOUS: u32 = 1 << 0;
/// CDW11 bit 1 of Create I/O Completion Queue.
const INTERRUPTS: u32 = 1 << 1;

impl QueueCommand {
    /// Reads an entry; none where it is another command. What the entry alone shows to be wrong is the status.
    #[must_use]
    pub fn of(sqe: &Sqe) -> Option<Result<QueueCommand, Status>> {
        let opcode = AdminOpcode(sqe.opcode);
        matches!(
            opcode,
            AdminOpcode::CREATE_IO_CQ
                | AdminOpcode::CREATE_IO_SQ
                | AdminOpcode::DELETE_IO_CQ
                | AdminOpcode::DELETE_IO_SQ
                | AdminOpcode::DOORBELL_BUFFER_CONFIG
        )
        .then(|| Self::parse(opcode, sqe))
    }

    fn parse(opcode: AdminOpcode, sqe: &Sqe) -> Result<QueueCommand, Status> {
        if opcode == AdminOpcode::DOORBELL_BUFFER_CONFIG {
            let buffers = DoorbellBuffers::new(sqe.dptr.address.get(), sqe.prp2())?;
            return Ok(Self::ShareDoorbells(buffers));
        }
        let id = QueueId(low(sqe.cdw10.get()));
        if id.is_admin() {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        match opcode {
            AdminOpcode::DELETE_IO_CQ => return Ok(Self::DeleteCompletion(id)),
            AdminOpcode::DELETE_IO_SQ => return Ok(Self::DeleteSubmission(id)),
            _ => {}
        }
        let (entries, cdw11) = (u32::from(high(sqe.cdw10.get())) + 1, sqe.cdw11.get());
        if entries < 2 {
            return Err(Status::INVALID_QUEUE_SIZE.dnr());
        }
        if cdw11 & CONTIGUOUS == 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let base = sqe.dptr.address.get();
        if !base.is_multiple_of(u64::from(PAGE_BYTES)) {
            return Err(Status::PRP_OFFSET_INVALID.dnr());
        }
        if opcode == AdminOpcode::CREATE_IO_CQ {
            let vector = (cdw11 & INTERRUPTS != 0).then_some(high(cdw11));
            return Ok(Self::CreateCompletion(CompletionQueue {
                id,
                base,
                entries,
                vector,
            }));
        }
        let completion = QueueId(high(cdw11));
        if completion.is_admin() {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        Ok(Self::CreateSubmission(SubmissionQueue {
            id,
            base,
            entries,
            completion,
        }))
    }
}

/// The I/O queues of a function.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    completion: Vec<Option<CompletionQueue>>,
    submission: Vec<Option<SubmissionQueue>>,
}

impl Queues {
    /// Adds a completion queue. `granted` is what Number of Queues has granted, `entries_max` CAP.MQES + 1, `vectors` how many the function has.
    ///
    /// # Errors
    /// Base, "Create I/O Completion Queue command": the status.
    pub fn create_completion(
        &mut self,
        queue: &CompletionQueue,
        granted: u16,
        entries_max: u32,
        vectors: u16,
    ) -> Result<(), Status> {
        let place = place(&mut self.completion, queue.id, granted)?;
        if place.is_some() {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        if queue.entries > entries_max {
            return Err(Status::INVALID_QUEUE_SIZE.dnr());
        }
        if queue.vector.is_some_and(|vector| vector >= vectors) {
            return Err(Status::INVALID_INTERRUPT_VECTOR.dnr());
        }
        *place = Some(*queue);
        Ok(())
    }

    /// Adds a submission queue; returns where its completions go.
    ///
    /// # Errors
    /// Base, "Create I/O Submission Queue command": the status.
    pub fn create_submission(
        &mut self,
        queue: &SubmissionQueue,
        granted: u16,
        entries_max: u32,
    ) -> Result<CompletionQueue, Status> {
        if queue.completion.0 > granted {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        let completion = self.completion(queue.completion);
        let place = place(&mut self.submission, queue.id, granted)?;
        if place.is_some() {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        let completion = completion.ok_or(Status::COMPLETION_QUEUE_INVALID.dnr())?;
        if queue.entries > entries_max {
            return Err(Status::INVALID_QUEUE_SIZE.dnr());
        }
        *place = Some(*queue);
        Ok(completion)
    }

    /// Takes a completion queue away.
    ///
    /// # Errors
    /// It is not there, or a submission queue still uses it.
    pub fn delete_completion(&mut self, id: QueueId) -> Result<(), Status> {
        if self.completion(id).is_none() {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        let mut submission = self.submission.iter().flatten();
        if submission.any(|queue| queue.completion == id) {
            return Err(Status::INVALID_QUEUE_DELETION.dnr());
        }
        forget(&mut self.completion, id);
        Ok(())
    }

    /// Takes a submission queue away. Call it once nothing of it is under way.
    pub fn delete_submission(&mut self, id: QueueId) {
        forget(&mut self.submission, id);
    }

    /// A completion queue.
    #[must_use]
    pub fn completion(&self, id: QueueId) -> Option<CompletionQueue> {
        self.completion.get(index(id)?).copied().flatten()
    }

    /// A submission queue.
    #[must_use]
    pub fn submission(&self, id: QueueId) -> Option<SubmissionQueue> {
        self.submission.get(index(id)?).copied().flatten()
    }

    /// The submission queues whose completions go to a queue.
    pub fn submissions_of(&self, completion: QueueId) -> impl Iterator<Item = QueueId> {
        let all = self.submission.iter().flatten();
        all.filter(move |queue| queue.completion == completion)
            .map(|queue| queue.id)
    }
}

/// The place of a queue that Number of Queues has granted.
fn place<T>(
    queues: &mut Vec<Option<T>>,
    id: QueueId,
    granted: u16,
) -> Result<&mut Option<T>, Status> {
    let refused = Status::INVALID_QUEUE_ID.dnr();
    if id.0 > granted {
        return Err(refused);
    }
    let index = index(id).ok_or(refused)?;
    if queues.len() <= index {
        queues.resize_with(index + 1, || None);
    }
    queues.get_mut(index).ok_or(refused)
}

fn forget<T>(queues: &mut [Option<T>], id: QueueId) {
    if let Some(place) = index(id).and_then(|index| queues.get_mut(index)) {
        *place = None;
    }
}

/// I/O queues count from 1.
fn index(id: QueueId) -> Option<usize> {
    usize::from(id.0).checked_sub(1)
}

#[expect(clippy::cast_possible_truncation, reason = "the low half")]
fn low(dword: u32) -> u16 {
    dword as u16
}

fn high(dword: u32) -> u16 {
    low(dword >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_spec::{U32, U64};

    fn sqe(opcode: AdminOpcode, cdw10: u32, cdw11: u32, prp1: u64) -> Sqe {
        let mut sqe = Sqe::ZERO;
        sqe.opcode = opcode.0;
        sqe.cdw10 = U32::new(cdw10);
        sqe.cdw11 = U32::new(cdw11);
        sqe.dptr.address = U64::new(prp1);
        sqe
    }

    fn completion(id: u16) -> CompletionQueue {
        CompletionQueue {
            id: QueueId(id),
            base: 0x1000,
            entries: 16,
            vector: Some(1),
        }
    }

    fn submission(id: u16, completion: u16) -> SubmissionQueue {
        SubmissionQueue {
            id: QueueId(id),
            base: 0x2000,
            entries: 16,
            completion: QueueId(completion),
        }
    }

    #[test]
    fn entries_are_read_field_by_field() {
        let parsed =
            |opcode, cdw10, cdw11, prp1| QueueCommand::of(&sqe(opcode, cdw10, cdw11, prp1));
        let create = parsed(AdminOpcode::CREATE_IO_CQ, 0x007F_0003, 0x0002_0003, 0x5000);
        let expected = CompletionQueue {
            id: QueueId(3),
            base: 0x5000,
            entries: 128,
            vector: Some(2),
        };
        assert_eq!(create, Some(Ok(QueueCommand::CreateCompletion(expected))));
        let silent = parsed(AdminOpcode::CREATE_IO_CQ, 0xFFFF_0003, 0x0002_0001, 0x5000);
        let expected = CompletionQueue {
            entries: 65_536,
            vector: None,
            ..expected
        };
        assert_eq!(silent, Some(Ok(QueueCommand::CreateCompletion(expected))));
        let create = parsed(AdminOpcode::CREATE_IO_SQ, 0x0001_0004, 0x0003_0001, 0x6000);
        let expected = SubmissionQueue {
            id: QueueId(4),
            base: 0x6000,
            entries: 2,
            completion: QueueId(3),
        };
        assert_eq!(create, Some(Ok(QueueCommand::CreateSubmission(expected))));
        let mut buffers = sqe(AdminOpcode::DOORBELL_BUFFER_CONFIG, 0, 0, 0x7000);
        buffers.dptr.length = U32::new(0x9000);
        let expected = DoorbellBuffers::new(0x7000, 0x9000).unwrap();
        assert_eq!(
            QueueCommand::of(&buffers),
            Some(Ok(QueueCommand::ShareDoorbells(expected)))
        );
        assert_eq!(parsed(AdminOpcode::IDENTIFY, 1, 0, 0), None);
    }

    #[test]
    fn entries_that_show_their_faults_are_refused() {
        let (cq, sq) = (AdminOpcode::CREATE_IO_CQ, AdminOpcode::CREATE_IO_SQ);
        let delete = AdminOpcode::DELETE_IO_SQ;
        for (opcode, cdw10, cdw11, prp1, status) in [
            (cq, 0x000F_0000, 1, 0x1000, Status::INVALID_QUEUE_ID),
            (
                sq,
                0x000F_0000,
                0x0001_0001,
                0x1000,
                Status::INVALID_QUEUE_ID,
            ),
            (delete, 0, 0, 0, Status::INVALID_QUEUE_ID),
            (cq, 0x0000_0001, 1, 0x1000, Status::INVALID_QUEUE_SIZE),
            (cq, 0x000F_0001, 0, 0x1000, Status::INVALID_FIELD),
            (cq, 0x000F_0001, 1, 0x1004, Status::PRP_OFFSET_INVALID),
            (sq, 0x000F_0001, 1, 0x1000, Status::INVALID_QUEUE_ID),
            (
                AdminOpcode::DOORBELL_BUFFER_CONFIG,
                0,
                0,
                0x1004,
                Status::PRP_OFFSET_INVALID,
            ),
        ] {
            let refused = QueueCommand::of(&sqe(opcode, cdw10, cdw11, prp1));
            assert_eq!(refused, Some(Err(status.dnr())), "{opcode:?} {cdw10:#x}");
        }
    }

    /// The specification leaves open which of several faults is told; a host that is tested against this one hears the same every time: the identifier first, then
    /// what is behind it.
    #[test]
    fn of_several_faults_of_an_entry_the_first_is_told() {
        let all = [
            (0x0000_0000, 0, 0x1004, Status::INVALID_QUEUE_ID),
            (0x0000_0001, 0, 0x1004, Status::INVALID_QUEUE_SIZE),
            (0x000F_0001, 0, 0x1004, Status::INVALID_FIELD),
            (0x000F_0001, 1, 0x1004, Status::PRP_OFFSET_INVALID),
        ];
        for opcode in [AdminOpcode::CREATE_IO_CQ, AdminOpcode::CREATE_IO_SQ] {
            for (cdw10, cdw11, prp1, status) in all {
                let refused = QueueCommand::of(&sqe(opcode, cdw10, cdw11, prp1));
                assert_eq!(refused, Some(Err(status.dnr())), "{opcode:?} {cdw10:#x}");
            }
        }
    }

    /// The same of what the queues that are there say.
    #[test]
    fn of_several_faults_of_a_queue_the_first_is_told() {
        let mut queues = Queues::default();
        queues.create_completion(&completion(1), 2, 128, 3).unwrap();
        queues.create_submission(&submission(1, 1), 2, 128).unwrap();
        let long = |id, completion| SubmissionQueue {
            entries: 129,
            ..submission(id, completion)
        };
        for (queue, status) in [
            (long(3, 2), Status::INVALID_QUEUE_ID),
            (long(1, 2), Status::INVALID_QUEUE_ID),
            (long(2, 3), Status::INVALID_QUEUE_ID),
            (long(2, 2), Status::COMPLETION_QUEUE_INVALID),
            (long(2, 1), Status::INVALID_QUEUE_SIZE),
        ] {
            let refused = queues.create_submission(&queue, 2, 128);
            assert_eq!(refused, Err(status.dnr()), "{queue:?}");
        }
        let wrong = |id| CompletionQueue {
            entries: 129,
            vector: Some(3),
            ..completion(id)
        };
        for (queue, status) in [
            (wrong(3), Status::INVALID_QUEUE_ID),
            (wrong(1), Status::INVALID_QUEUE_ID),
            (wrong(2), Status::INVALID_QUEUE_SIZE),
        ] {
            let refused = queues.create_completion(&queue, 2, 128, 3);
            assert_eq!(refused, Err(status.dnr()), "{queue:?}");
        }
        // What was refused is not there.
        assert_eq!(queues.completion(QueueId(2)), None);
        assert_eq!(queues.submission(QueueId(2)), None);
    }

    /// Every identifier, with two granted.
    #[test]
    fn identifiers_are_those_that_were_granted_and_are_free() {
        let mut queues = Queues::default();
        for id in 0..=u16::MAX {
            let made = queues.create_completion(&completion(id), 2, 128, 3);
            let is_granted = (1..=2).contains(&id);
            assert_eq!(made.is_ok(), is_granted, "{id}");
            if !is_granted {
                assert_eq!(made, Err(Status::INVALID_QUEUE_ID.dnr()));
            }
        }
        let again = queues.create_completion(&completion(1), 2, 128, 3);
        assert_eq!(again, Err(Status::INVALID_QUEUE_ID.dnr()));
        let beyond = queues.create_submission(&submission(1, 3), 2, 128);
        assert_eq!(beyond, Err(Status::INVALID_QUEUE_ID.dnr()));
        let made = queues.create_submission(&submission(1, 2), 2, 128);
        assert_eq!(made, Ok(completion(2)));
        let again = queues.create_submission(&submission(1, 1), 2, 128);
        assert_eq!(again, Err(Status::INVALID_QUEUE_ID.dnr()));
    }

    #[test]
    fn sizes_and_vectors_are_those_that_there_are() {
        let mut queues = Queues::default();
        let long = CompletionQueue {
            entries: 129,
            ..completion(1)
        };
        let refused = queues.create_completion(&long, 2, 128, 3);
        assert_eq!(refused, Err(Status::INVALID_QUEUE_SIZE.dnr()));
        let no_vector = CompletionQueue {
            vector: Some(3),
            ..completion(1)
        };
        let refused = queues.create_completion(&no_vector, 2, 128, 3);
        assert_eq!(refused, Err(Status::INVALID_INTERRUPT_VECTOR.dnr()));
        assert!(queues.create_completion(&completion(1), 2, 128, 3).is_ok());
        let long = SubmissionQueue {
            entries: 129,
            ..submission(1, 1)
        };
        let refused = queues.create_submission(&long, 2, 128);
        assert_eq!(refused, Err(Status::INVALID_QUEUE_SIZE.dnr()));
    }

    #[test]
    fn a_completion_queue_goes_after_its_submission_queues() {
        let mut queues = Queues::default();
        let orphan = queues.create_submission(&submission(1, 1), 2, 128);
        assert_eq!(orphan, Err(Status::COMPLETION_QUEUE_INVALID.dnr()));
        queues.create_completion(&completion(1), 2, 128, 3).unwrap();
        queues.create_submission(&submission(1, 1), 2, 128).unwrap();
        queues.create_submission(&submission(2, 1), 2, 128).unwrap();
        let shared: Vec<QueueId> = queues.submissions_of(QueueId(1)).collect();
        assert_eq!(shared, [QueueId(1), QueueId(2)]);
        for id in [1, 2] {
            let used = queues.delete_completion(QueueId(1));
            assert_eq!(used, Err(Status::INVALID_QUEUE_DELETION.dnr()));
            queues.delete_submission(QueueId(id));
        }
        assert_eq!(queues.delete_completion(QueueId(1)), Ok(()));
        let gone = queues.delete_completion(QueueId(1));
        assert_eq!(gone, Err(Status::INVALID_QUEUE_ID.dnr()));
    }
}
