//! The controller's end of one connection, one step at a time. It is written from the specification, without the project's own target.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nvme::queue::Slot;
use nvme_spec::command::SglId;
use nvme_spec::rdma::{ConnectAccept, ConnectRequest, KeyedDataBlock};
use nvme_spec::{Sqe, Status, U16};
use reactor::buf::Mapping;
use store_nvme::conformance::{Arrived, Controller, PATIENCE, TRANSFER_BYTES_MAX};
use verbs::{
    Access, CmId, Completion, CompletionQueue, ConnectParameters, EventChannel, EventKind, Gather,
    HostMemory, Listener, Opcode, Operation, QpCapabilities, QueuePair, RKey, ReceiveRequest,
    Registration, Remote, Request, SendRequest, WrId,
};
use zerocopy::{FromBytes, IntoBytes};

/// Entry and in-capsule data.
const CAPSULE_BYTES: usize = 64 + (8 << 10);
/// Receives.
pub const RECEIVES: u16 = 256;
const SCRATCH_AT: usize = CAPSULE_BYTES * RECEIVES as usize;
/// Work requests that are no receives.
const MINE: u64 = 1 << 32;

/// How the controller answers.
#[derive(Clone, Copy, Debug)]
pub struct Conduct {
    /// CRQSIZE, and so many receives.
    pub receives: u16,
    /// Invalidates keys with its responses where it is asked to.
    pub invalidates: bool,
}

impl Default for Conduct {
    fn default() -> Conduct {
        Conduct {
            receives: RECEIVES,
            invalidates: true,
        }
    }
}

pub struct Peer {
    // In the order in which they go.
    pub qp: QueuePair,
    pub id: CmId,
    cq: CompletionQueue,
    memory: Registration,
    channel: EventChannel,
    conduct: Conduct,
    /// What the host asked for.
    pub request: ConnectRequest,
    pub reads_in_progress: u8,
    /// The host closed the connection, or it broke.
    pub is_gone: bool,
    arrived: VecDeque<Arrived>,
    commands: BTreeMap<u16, Sqe>,
    done: Vec<Completion>,
    next: u64,
    held: Option<(Slot, usize, Vec<u8>)>,
}

/// Waits for the next connect request.
pub fn requested(channel: &EventChannel, _listener: &Listener) -> Request {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match channel.next_event().unwrap().map(|event| event.kind) {
            Some(EventKind::ConnectRequest(request)) => return request,
            Some(_) => {}
            None => nap(&[&channel.as_fd()]),
        }
        assert!(Instant::now() < deadline, "nobody connects");
    }
}

fn nap(fds: &[&dyn AsFd]) {
    let mut fds: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN))
        .collect();
    nix::poll::poll(&mut fds, PollTimeout::from(50u8)).unwrap();
}

/// The capsule of 16 bytes that ends a command.
pub fn response(sqe: &Sqe, status: Status, result: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&result.to_le_bytes());
    bytes[8..10].copy_from_slice(&0xFFFF_u16.to_le_bytes());
    bytes[12..14].copy_from_slice(sqe.cid.as_bytes());
    bytes[14..].copy_from_slice(&status.to_wire().to_le_bytes());
    bytes
}

/// The keyed block of a command, where it has one with data.
pub fn keyed(sqe: &Sqe) -> Option<KeyedDataBlock> {
    let block: KeyedDataBlock = zerocopy::transmute!(sqe.dptr);
    let ids = [
        SglId::KEYED_DATA_BLOCK.0,
        SglId::KEYED_DATA_BLOCK_INVALIDATE.0,
    ];
    (ids.contains(&block.id) && block.bytes() > 0).then_some(block)
}

impl Peer {
    pub fn accept(channel: EventChannel, request: Request, conduct: Conduct) -> Peer {
        let asked = ConnectRequest::read_from_prefix(request.private_data());
        let asked = asked.unwrap().0;
        let reads_in_progress = request.initiator_depth();
        let id = channel.adopt(request).unwrap();
        let device = id.device().unwrap().unwrap();
        let domain = device.allocate_domain().unwrap();
        let cq = device.create_completion_queue(4096).unwrap();
        let bytes = SCRATCH_AT + TRANSFER_BYTES_MAX as usize;
        let mapping = Arc::new(Mapping::new(bytes).unwrap());
        let memory = domain
            .register(&HostMemory::of_mapping(&mapping), Access::LOCAL_WRITE)
            .unwrap();
        let capabilities = QpCapabilities {
            send_wr_max: 1024,
            recv_wr_max: RECEIVES.into(),
            send_sge_max: 1,
            recv_sge_max: 1,
            inline_bytes_max: 64,
        };
        let qp = id
            .create_queue_pair(&domain, &cq, &cq, &capabilities)
            .unwrap();
        let mut peer = Peer {
            qp,
            id,
            cq,
            memory,
            channel,
            conduct,
            request: asked,
            reads_in_progress,
            is_gone: false,
            arrived: VecDeque::new(),
            commands: BTreeMap::new(),
            done: Vec::new(),
            next: 0,
            held: None,
        };
        for place in 0..conduct.receives {
            peer.receive(place);
        }
        let accept = ConnectAccept {
            record_format: U16::ZERO,
            crqsize: U16::new(conduct.receives),
            reserved_4: [0; 28],
        };
        peer.accept_with(accept.as_bytes());
        peer
    }

    fn accept_with(&mut self, private_data: &[u8]) {
        let parameters = ConnectParameters {
            private_data,
            responder_resources: 0,
            initiator_depth: self.reads_in_progress.min(4),
            ..ConnectParameters::default()
        };
        self.id.accept(&parameters).unwrap();
    }

    fn receive(&mut self, place: u16) {
        let at = CAPSULE_BYTES * usize::from(place);
        let bytes = u32::try_from(CAPSULE_BYTES).unwrap();
        let entry = self.memory.entry(at, bytes).unwrap();
        let posted = self.qp.post_receive(&[ReceiveRequest {
            id: WrId(place.into()),
            entries: &[entry],
        }]);
        self.is_gone |= posted.is_err();
    }

    /// Goes on until something is there; false once the host has gone.
    pub fn until(&mut self, mut is_there: impl FnMut(&mut Peer) -> bool) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if is_there(self) {
                return true;
            }
            if self.is_gone {
                return false;
            }
            assert!(Instant::now() < deadline, "nothing came from the host");
            self.step();
        }
    }

    fn step(&mut self) {
        while let Some(event) = self.channel.next_event().unwrap() {
            self.is_gone |= matches!(
                event.kind,
                EventKind::Disconnected | EventKind::ConnectError(_) | EventKind::DeviceRemoval
            );
        }
        self.cq.take_events().unwrap();
        self.cq.arm(false).unwrap();
        let mut found = Vec::new();
        self.cq.poll(&mut found).unwrap();
        if found.is_empty() && !self.is_gone {
            nap(&[&self.cq, &self.channel]);
        }
        for completion in found {
            match &completion.result {
                Ok(done) if done.opcode == Opcode::Receive => {
                    self.arrive(completion.id.0, done.bytes);
                }
                Ok(_) => self.done.push(completion),
                Err(_) => self.is_gone = true,
            }
        }
    }

    fn arrive(&mut self, place: u64, bytes: u32) {
        let place = u16::try_from(place).unwrap();
        let mut entry = [0; 64];
        assert!(bytes as usize >= entry.len(), "a capsule is an entry");
        let at = CAPSULE_BYTES * usize::from(place);
        self.memory.copy_out(at, &mut entry).unwrap();
        let sqe = Sqe::read_from_bytes(&entry).unwrap();
        assert_eq!(sqe.flags >> 6, 1, "PSDT: SGLs");
        let is_in_capsule = sqe.dptr.id() == SglId::IN_CAPSULE_OFFSET;
        let of_data = if is_in_capsule {
            assert_eq!(sqe.dptr.address.get(), 0, "ICDOFF 0");
            sqe.dptr.length.get()
        } else {
            keyed(&sqe).map_or(0, |block| block.bytes())
        };
        let in_message = if is_in_capsule { of_data } else { 0 };
        assert_eq!(bytes, 64 + in_message, "the message is the capsule");
        self.commands.insert(place, sqe);
        self.arrived.push_back(Arrived {
            tag: Slot(place),
            sqe,
            bytes: of_data,
            is_in_capsule,
        });
    }

    /// Posts, and waits until it is done; false where the connection broke.
    pub fn work(&mut self, operation: Operation<'_>) -> bool {
        self.next += 1;
        let id = WrId(MINE + self.next);
        let posted = self.qp.post_send(&[SendRequest {
            id,
            operation,
            signaled: true,
            fence: false,
        }]);
        posted.is_ok() && self.until(|peer| peer.done.iter().any(|done| done.id == id))
    }

    /// Writes to where a keyed block says, from an offset on.
    pub fn write(&mut self, block: &KeyedDataBlock, offset: usize, data: &[u8]) -> bool {
        self.memory.copy_in(SCRATCH_AT, data).unwrap();
        let bytes = u32::try_from(data.len()).unwrap();
        let from = self.memory.entry(SCRATCH_AT, bytes).unwrap();
        self.work(Operation::Write {
            gather: Gather::Entries(&[from]),
            remote: Remote {
                address: block.address.get() + offset as u64,
                rkey: RKey(block.key()),
            },
        })
    }

    /// Reads what a keyed block names.
    pub fn read(&mut self, block: &KeyedDataBlock) -> Option<Vec<u8>> {
        let into = self.memory.entry(SCRATCH_AT, block.bytes()).unwrap();
        let remote = Remote {
            address: block.address.get(),
            rkey: RKey(block.key()),
        };
        let entries = &[into];
        let read = self.work(Operation::Read { entries, remote });
        read.then(|| {
            let mut out = vec![0; block.bytes() as usize];
            self.memory.copy_out(SCRATCH_AT, &mut out).unwrap();
            out
        })
    }

    /// A message to the host, whatever it says.
    pub fn send(&mut self, message: &[u8], invalidate: Option<u32>) -> bool {
        self.work(Operation::Send {
            gather: Gather::Inline(message),
            invalidate: invalidate.map(RKey),
            solicited: true,
        })
    }

    pub fn command_of(&self, tag: Slot) -> Sqe {
        self.commands[&tag.0]
    }

    fn finish(&mut self, tag: Slot, status: Status, result: u64) {
        let sqe = self.commands.remove(&tag.0).unwrap();
        self.receive(tag.0);
        let key = keyed(&sqe)
            .filter(|block| block.invalidates() && self.conduct.invalidates)
            .map(|block| block.key());
        self.send(&response(&sqe, status, result), key);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _it_may_be_over = self.id.disconnect();
    }
}

impl Controller for Peer {
    fn command(&mut self) -> Option<Arrived> {
        self.until(|peer| !peer.arrived.is_empty());
        self.arrived.pop_front()
    }

    fn data(&mut self, tag: Slot) -> Option<Vec<u8>> {
        let sqe = self.command_of(tag);
        if let Some(block) = keyed(&sqe) {
            return self.read(&block);
        }
        let mut data = vec![0; sqe.dptr.length.get() as usize];
        let at = CAPSULE_BYTES * usize::from(tag.0) + 64;
        self.memory.copy_out(at, &mut data).unwrap();
        Some(data)
    }

    fn ask(&mut self, tag: Slot) {
        let sqe = self.command_of(tag);
        if let Some(block) = keyed(&sqe) {
            let into = self.memory.entry(SCRATCH_AT, block.bytes()).unwrap();
            let operation = Operation::Read {
                entries: &[into],
                remote: Remote {
                    address: block.address.get(),
                    rkey: RKey(block.key()),
                },
            };
            self.qp
                .post_send(&[SendRequest {
                    id: WrId(MINE),
                    operation,
                    signaled: false,
                    fence: false,
                }])
                .unwrap();
        }
    }

    fn answer(&mut self, tag: Slot, status: Status, result: u64, data: &[u8]) {
        let sqe = self.command_of(tag);
        if let (Some(block), false) = (keyed(&sqe), data.is_empty()) {
            self.write(&block, 0, data);
        }
        self.finish(tag, status, result);
    }

    fn begin_answer(&mut self, tag: Slot, data: &[u8], bytes: usize) {
        let block = keyed(&self.command_of(tag)).unwrap();
        self.write(&block, 0, &data[..bytes]);
        self.held = Some((tag, bytes, data[bytes..].to_vec()));
    }

    fn finish_answer(&mut self) {
        let (tag, at, rest) = self.held.take().unwrap();
        let block = keyed(&self.command_of(tag)).unwrap();
        if self.write(&block, at, &rest) {
            self.finish(tag, Status::SUCCESS, 0);
        }
    }
}
