//! What a connection has of the device: its queue pair, its completion queue, its memory and its windows.

use nvme::queue::{QueueId, Slot};
use nvme::rdma::host::{CAPSULE_DATA_AT, CapsuleData, Grant, Lasts, RESPONSE_BYTES};
use nvme_spec::Sqe;
use reactor::buf::IoBuf;
use smallvec::SmallVec;
use verbs::{
    Access, CmId, Completion, CompletionQueue, Device, Domain, Gather, MemoryWindow, Operation,
    PostError, QpCapabilities, QueuePair, RKey, ReceiveRequest, ScatterEntry, SendRequest,
    VerbsError, WrId,
};
use zerocopy::IntoBytes;

use crate::limits::{
    ADMIN_STAGING_BYTES, CAPSULES_PER_POST_MAX, IO_STAGING_BYTES, REQUESTS_PER_COMMAND,
};
use crate::staging::{Memory, Pages, Part};

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

/// How a peer is let at the staging.
#[derive(Debug)]
enum Keys {
    /// A window for each slot.
    Windows(Vec<MemoryWindow>),
    /// The registration's own key.
    Region(RKey),
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
    bind: Option<Bound>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    offset: usize,
    len: usize,
    access: Access,
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
    /// The command's buffer is shorter than its data, or its data are longer than all of the staging.
    TooShort,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lane {
    /// None after the end.
    qp: Option<QueuePair>,
    keys: Keys,
    capsules: Memory,
    capsule_bytes: usize,
    responses: Memory,
    staging: Memory,
    pages: Pages,
    /// What each slot has of the staging.
    parts: Vec<Option<Part>>,
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
        let pages = Pages::new(if size.qid.is_admin() {
            ADMIN_STAGING_BYTES
        } else {
            IO_STAGING_BYTES
        });
        let (keys, staging) = keyed_staging(device, &domain, size, pages.bytes())?;
        let capsule_bytes = CAPSULE_DATA_AT + size.in_capsule_bytes_max as usize;
        let slots = usize::from(size.depth);
        let capsules = Memory::new(&domain, capsule_bytes * slots, Access::LOCAL_READ)?;
        let responses = Memory::new(&domain, RESPONSE_BYTES * slots, Access::LOCAL_WRITE)?;
        let lane = Self {
            qp: Some(qp.map_err(words)?),
            keys,
            capsules,
            capsule_bytes,
            responses,
            staging,
            pages,
            parts: vec![None; slots],
            cq,
        };
        for place in 0..size.depth {
            lane.receive(place).map_err(|error| error.to_string())?;
        }
        Ok(lane)
    }

    /// Finds the memory of a capsule, copies into it what is to go out, and says what the peer is to be told.
    pub(crate) fn place(&mut self, slot: Slot, data: CapsuleData, buf: Option<&IoBuf>) -> Room {
        let (bytes, goes_out) = match data {
            CapsuleData::None => return Room::There(None),
            CapsuleData::InCapsule(bytes) => {
                let at = self.capsule_bytes * slot.index() + CAPSULE_DATA_AT;
                let fits = buf.is_some_and(|buf| self.capsules.take_from(buf, at, bytes as usize));
                return if fits {
                    Room::There(None)
                } else {
                    Room::TooShort
                };
            }
            CapsuleData::Read(bytes) => (bytes, true),
            CapsuleData::Written(bytes) => (bytes, false),
        };
        if bytes as usize > self.pages.bytes() || buf.is_none_or(|buf| buf.len() < bytes as usize) {
            return Room::TooShort;
        }
        let Some(part) = self.pages.take(bytes) else {
            return Room::Full;
        };
        if let (true, Some(buf)) = (goes_out, buf) {
            self.staging.take_from(buf, part.offset, bytes as usize);
        }
        if let Some(place) = self.parts.get_mut(slot.index()) {
            *place = Some(part);
        }
        match self.grant(slot, part) {
            Some(grant) => Room::There(Some(grant)),
            None => Room::TooShort,
        }
    }

    fn grant(&self, slot: Slot, part: Part) -> Option<Grant> {
        let registration = self.staging.registration();
        let address = registration.remote_address(part.offset).ok()?;
        let (key, lasts) = match &self.keys {
            Keys::Windows(windows) => {
                let window = windows.get(slot.index())?;
                (window.next_rkey(), Lasts::AsTheCommand)
            }
            Keys::Region(key) => (*key, Lasts::AsTheConnection),
        };
        Some(Grant {
            address,
            key: key.0,
            lasts,
        })
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
        let part = self.parts.get(slot.index()).copied().flatten();
        let bind = match (data, part, &self.keys) {
            (CapsuleData::Read(bytes), Some(part), Keys::Windows(_)) => {
                Some((part.offset, bytes, Access::REMOTE_READ))
            }
            (CapsuleData::Written(bytes), Some(part), Keys::Windows(_)) => {
                Some((part.offset, bytes, Access::REMOTE_WRITE))
            }
            _ => None,
        };
        let bind = bind.map(|(offset, bytes, access)| Bound {
            offset,
            len: bytes as usize,
            access,
        });
        Ok(Prepared {
            slot,
            message,
            bind,
        })
    }

    /// Hands capsules to the device, each behind its bind.
    pub(crate) fn post(&self, batch: &Batch) -> Result<(), PostError> {
        let mut requests: SmallVec<[SendRequest<'_>; 2 * CAPSULES_PER_POST_MAX]> = SmallVec::new();
        for prepared in batch {
            let slot = prepared.slot;
            if let (Some(bound), Keys::Windows(windows)) = (prepared.bind, &self.keys)
                && let Some(window) = windows.get(slot.index())
            {
                requests.push(SendRequest {
                    id: Work::Bind(slot).id(),
                    operation: Operation::Bind {
                        window,
                        registration: self.staging.registration(),
                        offset: bound.offset,
                        len: bound.len,
                        access: bound.access,
                    },
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
        // Before the queue pair: Linux's soft-RoCE counts bound windows among its users, and would wait for them, 50 s long.
        if let Keys::Windows(windows) = &mut self.keys {
            windows.clear();
        }
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

    /// Copies what the peer wrote for a command into its buffer; false where there is nothing.
    pub(crate) fn fetch(&self, slot: Slot, buf: &IoBuf, bytes: u32) -> bool {
        let part = self.parts.get(slot.index()).copied().flatten();
        part.is_some_and(|part| self.staging.give_to(buf, part.offset, bytes as usize))
    }

    /// The command of a slot is over: its memory is another's.
    pub(crate) fn release(&mut self, slot: Slot) {
        let part = self.parts.get_mut(slot.index()).and_then(Option::take);
        if let Some(part) = part {
            self.pages.give_back(part);
        }
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

/// The staging, and the keys to it.
fn keyed_staging(
    device: &Device,
    domain: &Domain,
    size: &Size,
    bytes: usize,
) -> Result<(Keys, Memory), String> {
    let attributes = device.attributes();
    if size.with_windows && attributes.mw_type_2b && attributes.invalidate {
        let windows = (0..size.depth).map(|_| domain.allocate_window());
        match windows.collect::<Result<Vec<_>, _>>() {
            Ok(windows) => {
                let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
                return Ok((Keys::Windows(windows), Memory::new(domain, bytes, access)?));
            }
            Err(error) => tracing::warn!(
                %error, device = attributes.name,
                "the device has no memory windows left: the controller gets the key of all of this queue's staging"
            ),
        }
    }
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let staging = Memory::new(domain, bytes, access)?;
    Ok((Keys::Region(staging.registration().rkey()), staging))
}
