//! What a connection has of the device: its queue pair, its completion queue and its memory.

use nvme::queue::{QueueId, Slot};
use nvme::rdma::host::{CAPSULE_DATA_AT, CapsuleData, Grant, RESPONSE_BYTES};
use nvme_spec::Sqe;
use reactor::buf::IoBuf;
use smallvec::SmallVec;
use verbs::{
    Access, CmId, Completion, CompletionQueue, Device, Gather, Operation, PostError,
    QpCapabilities, QueuePair, RKey, ReceiveRequest, ScatterEntry, SendRequest, VerbsError, WrId,
};
use zerocopy::IntoBytes;

use crate::limits::{
    ADMIN_STAGING_BYTES, CAPSULES_PER_POST_MAX, IO_STAGING_BYTES, REQUESTS_PER_COMMAND,
};
use crate::memory::Memory;
use crate::staging::{Staging, Taken};

const SHORT_BUFFER: &str = "a command's buffer is shorter than its data";

/// What a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Send(Slot),
    Bind(Slot),
    Invalidate(Slot),
    /// The receive's place.
    Receive(u16),
}

impl Work {
    fn id(self) -> WrId {
        let (kind, index) = match self {
            Work::Send(slot) => (0, slot.0),
            Work::Bind(slot) => (1, slot.0),
            Work::Invalidate(slot) => (2, slot.0),
            Work::Receive(place) => (3, place),
        };
        WrId(kind << 16 | u64::from(index))
    }

    pub(crate) fn of(id: WrId) -> Work {
        #[expect(clippy::cast_possible_truncation, reason = "the low half")]
        let index = id.0 as u16;
        match id.0 >> 16 {
            0 => Work::Send(Slot(index)),
            1 => Work::Bind(Slot(index)),
            2 => Work::Invalidate(Slot(index)),
            _ => Work::Receive(index),
        }
    }
}

/// What a queue is, as far as its memory goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) qid: QueueId,
    pub(crate) depth: u16,
    pub(crate) in_capsule_bytes_max: u32,
    pub(crate) with_windows: bool,
}

/// A capsule that is ready to be posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    slot: Slot,
    message: ScatterEntry,
}

/// Capsules for one call of the device.
pub(crate) type Batch = SmallVec<[Prepared; CAPSULES_PER_POST_MAX]>;

/// The memory of the next capsule.
#[derive(Debug)]
pub(crate) enum Room {
    /// The peer is to be told of this; nothing where the capsule has no data of its own memory.
    There(Option<Grant>),
    /// The staging is full: a command that ends makes room.
    Full,
    /// It is to be tried again soon.
    Later,
    /// In words.
    Refused(String),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lane {
    /// None after the end.
    qp: Option<QueuePair>,
    staging: Staging,
    capsules: Memory,
    capsule_bytes: usize,
    responses: Memory,
    pub(crate) cq: CompletionQueue,
}

impl Lane {
    /// Makes all of it, receives posted.
    ///
    /// # Errors
    /// The device, or this machine, lacks something: in words.
    pub(crate) fn new(device: &Device, id: &CmId, size: &Size) -> Result<Self, String> {
        let words = |error: VerbsError| error.to_string();
        let depth = u32::from(size.depth);
        let domain = device.allocate_domain().map_err(words)?;
        let requests = depth * REQUESTS_PER_COMMAND;
        let cq = device.create_completion_queue(requests + depth);
        let cq = cq.map_err(words)?;
        let capabilities = QpCapabilities {
            send_wr_max: requests,
            recv_wr_max: depth,
            send_sge_max: 1,
            recv_sge_max: 1,
            inline_bytes_max: 0,
        };
        let qp = id.create_queue_pair(&domain, &cq, &cq, &capabilities);
        let staging_bytes = if size.qid.is_admin() {
            ADMIN_STAGING_BYTES
        } else {
            IO_STAGING_BYTES
        };
        let capsule_bytes = CAPSULE_DATA_AT + size.in_capsule_bytes_max as usize;
        let slots = usize::from(size.depth);
        let capsules = Memory::new(&domain, capsule_bytes * slots, Access::LOCAL_READ)?;
        let responses = Memory::new(&domain, RESPONSE_BYTES * slots, Access::LOCAL_WRITE)?;
        let staging = Staging::new(device, domain, size.depth, staging_bytes, size.with_windows)?;
        let lane = Self {
            qp: Some(qp.map_err(words)?),
            staging,
            capsules,
            capsule_bytes,
            responses,
            cq,
        };
        for place in 0..size.depth {
            lane.receive(place).map_err(|error| error.to_string())?;
        }
        Ok(lane)
    }

    /// Finds the memory of a capsule, copies into it what is to go out, and says what the peer is to be told.
    pub(crate) fn place(&mut self, slot: Slot, data: CapsuleData, buf: Option<&IoBuf>) -> Room {
        let bytes = match data {
            CapsuleData::None => return Room::There(None),
            CapsuleData::InCapsule(bytes)
            | CapsuleData::Read(bytes)
            | CapsuleData::Written(bytes) => bytes,
        };
        let Some(buf) = buf.filter(|buf| buf.len() >= bytes as usize) else {
            return Room::Refused(SHORT_BUFFER.to_owned());
        };
        let taken = match data {
            CapsuleData::Read(_) => self.staging.take(slot, bytes, Some(buf)),
            CapsuleData::Written(_) => self.staging.take(slot, bytes, None),
            CapsuleData::None | CapsuleData::InCapsule(_) => {
                let at = self.capsule_bytes * slot.index() + CAPSULE_DATA_AT;
                return if self.capsules.take_from(buf, at, bytes as usize) {
                    Room::There(None)
                } else {
                    Room::Refused(SHORT_BUFFER.to_owned())
                };
            }
        };
        match taken {
            Taken::Granted(grant) => Room::There(Some(grant)),
            Taken::Full => Room::Full,
            Taken::Later => Room::Later,
            Taken::TooLong => {
                Room::Refused("a command's data are longer than the staging".to_owned())
            }
        }
    }

    /// Writes a capsule that [`Lane::place`] found memory for into its place.
    pub(crate) fn prepare(
        &self,
        slot: Slot,
        sqe: &Sqe,
        data: CapsuleData,
    ) -> Result<Prepared, VerbsError> {
        let at = self.capsule_bytes * slot.index();
        self.capsules.registration().copy_in(at, sqe.as_bytes())?;
        let in_capsule = match data {
            CapsuleData::InCapsule(bytes) => bytes as usize,
            _ => 0,
        };
        let message_bytes = CAPSULE_DATA_AT + in_capsule;
        let message = self
            .capsules
            .entry(at, u32::try_from(message_bytes).unwrap_or(u32::MAX))?;
        Ok(Prepared { slot, message })
    }

    /// Hands capsules to the device, each behind its bind.
    pub(crate) fn post(&self, batch: &Batch) -> Result<(), PostError> {
        let mut requests: SmallVec<[SendRequest<'_>; 2 * CAPSULES_PER_POST_MAX]> = SmallVec::new();
        for prepared in batch {
            let slot = prepared.slot;
            if let Some(operation) = self.staging.bind(slot) {
                requests.push(SendRequest {
                    id: Work::Bind(slot).id(),
                    operation,
                    signaled: false,
                    fence: false,
                });
            }
            requests.push(SendRequest {
                id: Work::Send(slot).id(),
                operation: Operation::Send {
                    gather: Gather::Entries(std::slice::from_ref(&prepared.message)),
                    invalidate: None,
                    solicited: false,
                },
                signaled: true,
                fence: false,
            });
        }
        self.qp()?.post_send(&requests)
    }

    /// Takes a window back.
    pub(crate) fn invalidate(&self, slot: Slot, key: u32) -> Result<(), PostError> {
        self.qp()?.post_send(&[SendRequest {
            id: Work::Invalidate(slot).id(),
            operation: Operation::LocalInvalidate { rkey: RKey(key) },
            signaled: true,
            fence: false,
        }])
    }

    fn qp(&self) -> Result<&QueuePair, PostError> {
        self.qp.as_ref().ok_or(PostError {
            posted: 0,
            error: VerbsError::Misuse {
                call: "ibv_post_send",
                what: "the queue pair was destroyed",
            },
        })
    }

    /// From now on nothing leaves the queue pair, and no peer gets at the staging: in error it is, or destroyed where the device refuses that.
    pub(crate) fn stop(&mut self) {
        let stopped = self.qp.as_ref().map(QueuePair::move_to_error);
        if matches!(stopped, Some(Err(_))) {
            self.destroy_queue_pair();
        }
    }

    fn destroy_queue_pair(&mut self) {
        self.staging.drop_windows();
        self.qp = None;
    }

    /// Posts the receive of a place.
    pub(crate) fn receive(&self, place: u16) -> Result<(), PostError> {
        let entry = self.responses.entry(
            usize::from(place) * RESPONSE_BYTES,
            u32::try_from(RESPONSE_BYTES).unwrap_or(u32::MAX),
        );
        let entry = entry.map_err(|error| PostError { posted: 0, error })?;
        self.qp()?.post_receive(&[ReceiveRequest {
            id: Work::Receive(place).id(),
            entries: &[entry],
        }])
    }

    /// The message that a receive got.
    pub(crate) fn message(&self, place: u16, out: &mut [u8]) -> bool {
        let at = usize::from(place) * RESPONSE_BYTES;
        self.responses.registration().copy_out(at, out).is_ok()
    }

    /// See [`Staging::fetch`].
    pub(crate) fn fetch(&self, slot: Slot, buf: &IoBuf, bytes: u32) -> bool {
        self.staging.fetch(slot, buf, bytes)
    }

    /// See [`Staging::release`].
    pub(crate) fn release(&mut self, slot: Slot) {
        self.staging.release(slot);
    }

    /// Takes completions; fewer than the most at a time means that there are no more now.
    pub(crate) fn poll(&self, out: &mut Vec<Completion>) -> Result<usize, VerbsError> {
        self.cq.poll(out)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.stop();
        self.destroy_queue_pair();
    }
}
