//! A host of raw verbs: it knows nothing of the target's code. Capsules are built from the specification's offsets.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reactor::buf::Mapping;
use verbs::memory::Node;
use verbs::{
    Access, CmId, Completion, CompletionQueue, ConnectParameters, Domain, EventChannel, EventKind,
    Gather, HostMemory, Operation, QpCapabilities, QueuePair, ReceiveRequest, Registration,
    RejectReason, SendRequest, WrId,
};

/// Capsules leave from the memory's beginning; responses arrive behind; data are behind that.
const CAPSULE_PLACE: usize = 16 << 10;
const RESPONSES_AT: usize = 64 * CAPSULE_PLACE;
pub const DATA_AT: usize = RESPONSES_AT + 4096;
pub const DATA_BYTES: usize = 8 << 20;

pub const FLUSH: u8 = 0;
pub const WRITE: u8 = 1;
pub const READ: u8 = 2;
pub const KEYED: u8 = 0x40;
pub const KEYED_INVALIDATE: u8 = 0x4F;

/// How a host connects.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub recfmt: u16,
    pub qid: u16,
    pub hrqsize: u16,
    pub hsqsize_z: u16,
    /// Receives that it truly posts.
    pub receives: u16,
    /// RDMA READs that it has room for.
    pub reads: u8,
}

pub const ASK: Ask = Ask {
    recfmt: 0,
    qid: 1,
    hrqsize: 32,
    hsqsize_z: 31,
    receives: 32,
    reads: 4,
};

impl Ask {
    pub fn private_data(&self) -> Vec<u8> {
        let words = [self.recfmt, self.qid, self.hrqsize, self.hsqsize_z, 0];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(32, 0);
        bytes
    }
}

/// A response: status and DW0, and what it invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub dw0: u32,
    pub invalidated: Option<u32>,
}

pub struct Host {
    pub qp: QueuePair,
    cq: CompletionQueue,
    pub memory: Registration,
    _domain: Domain,
    pub id: CmId,
    channel: EventChannel,
    ask: Ask,
    private_data: Vec<u8>,
    to: SocketAddr,
    next_place: usize,
    /// By CID.
    pub responses: HashMap<u16, Response>,
    /// Their CIDs, in the order in which they came.
    pub answered: VecDeque<u16>,
    pub established: Option<Vec<u8>>,
    pub rejected: Option<(RejectReason, Vec<u8>)>,
    pub is_disconnected: bool,
    pub failures: Vec<verbs::Status>,
}

impl Host {
    /// Begins to connect; [`Host::turn`] goes on.
    pub fn connect(step: &mut dyn FnMut() -> bool, node: &Node, to: SocketAddr, ask: Ask) -> Host {
        Host::connect_with(step, node, to, ask, ask.private_data())
    }

    pub fn connect_with(
        step: &mut dyn FnMut() -> bool,
        node: &Node,
        to: SocketAddr,
        ask: Ask,
        private_data: Vec<u8>,
    ) -> Host {
        let verbs = node.verbs();
        let channel = verbs.event_channel().unwrap();
        let id = channel.create_id().unwrap();
        let device = verbs.devices().unwrap().remove(0);
        let domain = device.allocate_domain().unwrap();
        let cq = device.create_completion_queue(1024).unwrap();
        let mapping = Arc::new(Mapping::new(DATA_AT + DATA_BYTES).unwrap());
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let memory = domain
            .register(&HostMemory::of_mapping(&mapping), access)
            .unwrap();
        id.resolve_address(None, to, Duration::from_secs(1))
            .unwrap();
        let qp = Self::routed(step, &channel, &id, &domain, &cq);
        Host {
            qp,
            cq,
            memory,
            _domain: domain,
            id,
            channel,
            ask,
            private_data,
            to,
            next_place: 0,
            responses: HashMap::new(),
            answered: VecDeque::new(),
            established: None,
            rejected: None,
            is_disconnected: false,
            failures: Vec::new(),
        }
        .begun()
    }

    fn routed(
        step: &mut dyn FnMut() -> bool,
        channel: &EventChannel,
        id: &CmId,
        domain: &Domain,
        cq: &CompletionQueue,
    ) -> QueuePair {
        let mut next = || loop {
            if let Some(event) = channel.next_event().unwrap() {
                return event.kind;
            }
            assert!(step(), "nothing is to come");
        };
        let resolved = next();
        assert!(
            matches!(resolved, EventKind::AddressResolved),
            "{resolved:?}"
        );
        id.resolve_route(Duration::from_secs(1)).unwrap();
        let routed = next();
        assert!(matches!(routed, EventKind::RouteResolved), "{routed:?}");
        let capabilities = QpCapabilities {
            send_wr_max: 256,
            recv_wr_max: 256,
            send_sge_max: 2,
            recv_sge_max: 1,
            inline_bytes_max: 0,
        };
        id.create_queue_pair(domain, cq, cq, &capabilities).unwrap()
    }

    fn begun(self) -> Host {
        for nth in 0..self.ask.receives {
            self.post_receive(u64::from(nth));
        }
        let parameters = ConnectParameters {
            private_data: &self.private_data,
            responder_resources: self.ask.reads,
            initiator_depth: 0,
            retry_count: 3,
            rnr_retry_count: 7,
        };
        self.id.connect(&parameters).unwrap();
        assert_ne!(self.to.port(), 0);
        self
    }

    pub fn post_receive(&self, nth: u64) {
        let at = RESPONSES_AT + 16 * usize::try_from(nth).unwrap();
        let entry = self.memory.entry(at, 16).unwrap();
        let request = ReceiveRequest {
            id: WrId(1 << 32 | nth),
            entries: &[entry],
        };
        self.qp.post_receive(&[request]).unwrap();
    }

    /// Sends so many bytes as one message.
    pub fn send(&mut self, message: &[u8]) {
        let at = self.next_place * CAPSULE_PLACE;
        self.next_place = (self.next_place + 1) % 64;
        self.memory.copy_in(at, message).unwrap();
        let entries = [self
            .memory
            .entry(at, u32::try_from(message.len()).unwrap())
            .unwrap()];
        let request = SendRequest {
            id: WrId(0),
            operation: Operation::Send {
                gather: Gather::Entries(&entries),
                invalidate: None,
                solicited: false,
            },
            signaled: true,
            fence: false,
        };
        self.qp.post_send(&[request]).unwrap();
    }

    /// The descriptor of data at `offset` of this host's data.
    pub fn block(&self, offset: usize, bytes: u32, id: u8) -> [u8; 16] {
        let address = self.memory.remote_address(DATA_AT + offset).unwrap();
        keyed(address, bytes, self.memory.rkey().0, id)
    }

    pub fn put(&self, offset: usize, bytes: &[u8]) {
        self.memory.copy_in(DATA_AT + offset, bytes).unwrap();
    }

    pub fn get(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.memory.copy_out(DATA_AT + offset, &mut out).unwrap();
        out
    }

    /// Connect of its queue, its data in this host's memory.
    pub fn send_connect(&mut self, cid: u16) {
        self.send_connect_with(cid, 0);
    }

    /// The same with KATO.
    pub fn send_connect_with(&mut self, cid: u16, kato_ms: u32) {
        let mut connect = sqe(0x7F, cid, self.block(0, 1024, KEYED));
        connect[4] = 1;
        connect[48..52].copy_from_slice(&kato_ms.to_le_bytes());
        connect[42..44].copy_from_slice(&self.ask.qid.to_le_bytes());
        connect[44..46].copy_from_slice(&self.ask.hsqsize_z.to_le_bytes());
        self.send(&connect);
    }

    /// Takes in what there is.
    pub fn turn(&mut self) {
        while let Some(event) = self.channel.next_event().unwrap() {
            match event.kind {
                EventKind::Established(agreed) => {
                    self.established = Some(agreed.private_data.as_bytes().to_vec());
                }
                EventKind::Rejected(reason, data) => {
                    self.rejected = Some((reason, data.as_bytes().to_vec()));
                }
                EventKind::Disconnected => self.is_disconnected = true,
                _ => {}
            }
        }
        let mut completions = Vec::new();
        while self.cq.poll(&mut completions).unwrap() > 0 {}
        for completion in completions {
            self.completed(&completion);
        }
    }

    fn completed(&mut self, completion: &Completion) {
        let WrId(id) = completion.id;
        match completion.result {
            Err(failed) => self.failures.push(failed.status),
            Ok(done) if id >> 32 == 1 => {
                assert_eq!(done.bytes, 16, "a response capsule");
                let nth = id & 0xFFFF_FFFF;
                let mut cqe = [0; 16];
                let at = RESPONSES_AT + 16 * usize::try_from(nth).unwrap();
                self.memory.copy_out(at, &mut cqe).unwrap();
                let word = |at: usize| u16::from_le_bytes([cqe[at], cqe[at + 1]]);
                let response = Response {
                    status: word(14) >> 1,
                    dw0: u32::from_le_bytes([cqe[0], cqe[1], cqe[2], cqe[3]]),
                    invalidated: done.invalidated.map(|rkey| rkey.0),
                };
                self.answered.push_back(word(12));
                let twice = self.responses.insert(word(12), response);
                assert_eq!(twice, None, "command {} is answered twice", word(12));
                self.post_receive(nth);
            }
            Ok(_) => {}
        }
    }
}

pub fn sqe(opcode: u8, cid: u16, descriptor: [u8; 16]) -> Vec<u8> {
    let mut sqe = vec![0; 64];
    sqe[0] = opcode;
    sqe[1] = 0x40;
    sqe[2..4].copy_from_slice(&cid.to_le_bytes());
    sqe[4] = 1;
    sqe[24..40].copy_from_slice(&descriptor);
    sqe
}

/// The same with where on the disk its data are, in bytes: what stands in for SLBA here.
pub fn at(mut sqe: Vec<u8>, offset: u32) -> Vec<u8> {
    sqe[40..44].copy_from_slice(&offset.to_le_bytes());
    sqe
}

pub fn keyed(address: u64, bytes: u32, key: u32, id: u8) -> [u8; 16] {
    let mut descriptor = [0; 16];
    descriptor[..8].copy_from_slice(&address.to_le_bytes());
    descriptor[8..11].copy_from_slice(&bytes.to_le_bytes()[..3]);
    descriptor[11..15].copy_from_slice(&key.to_le_bytes());
    descriptor[15] = id;
    descriptor
}

pub fn inside(offset: u64, bytes: u32) -> [u8; 16] {
    let mut descriptor = [0; 16];
    descriptor[..8].copy_from_slice(&offset.to_le_bytes());
    descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
    descriptor[15] = 1;
    descriptor
}
