//! Two connected ends of a stepped fabric.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reactor::buf::Mapping;
use verbs::memory::{Fabric, Node};
use verbs::{
    Access, CmId, Completion, CompletionQueue, ConnectParameters, Device, Domain, EventChannel,
    EventKind, Gather, HostMemory, Listener, Operation, QpCapabilities, QueuePair, ReceiveRequest,
    Registration, Remote, ScatterEntry, SendRequest, Status, WrId,
};

use crate::address;

pub(crate) const MEMORY_BYTES: usize = 1 << 16;
const CAPABILITIES: QpCapabilities = QpCapabilities {
    send_wr_max: 64,
    recv_wr_max: 64,
    send_sge_max: 4,
    recv_sge_max: 4,
    inline_bytes_max: 64,
};

pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) memory: Registration,
    pub(crate) domain: Domain,
    pub(crate) id: CmId,
    pub(crate) channel: EventChannel,
}

pub(crate) struct Net {
    pub(crate) fabric: Fabric,
    pub(crate) nodes: [Node; 2],
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        let fabric = Fabric::new(seed);
        let nodes = ["10.0.0.1", "10.0.0.2"].map(|text| fabric.node(&[address(text)]).unwrap());
        Self { fabric, nodes }
    }

    pub(crate) fn cut(&self) {
        self.fabric.set_links(verbs::memory::Link {
            cut: true,
            ..Default::default()
        });
    }

    /// Steps until the channel tells something; `None` if nothing is to come.
    pub(crate) fn event(&self, channel: &EventChannel) -> Option<EventKind> {
        loop {
            if let Some(event) = channel.next_event().unwrap() {
                return Some(event.kind);
            }
            if !self.fabric.step() {
                return None;
            }
        }
    }

    pub(crate) fn listen(&self, channel: &EventChannel) -> (Listener, SocketAddr) {
        let at = SocketAddr::new(address("10.0.0.2"), 4420);
        (channel.listen(at, 4).unwrap(), at)
    }

    pub(crate) fn routed(&self, channel: &EventChannel, to: SocketAddr) -> CmId {
        let id = channel.create_id().unwrap();
        id.resolve_address(None, to, Duration::from_secs(1))
            .unwrap();
        assert!(matches!(
            self.event(channel),
            Some(EventKind::AddressResolved)
        ));
        id.resolve_route(Duration::from_secs(1)).unwrap();
        assert!(matches!(
            self.event(channel),
            Some(EventKind::RouteResolved)
        ));
        id
    }

    pub(crate) fn pair(&self) -> [End; 2] {
        self.pair_with(&ConnectParameters::default(), 256)
    }

    pub(crate) fn pair_with(&self, parameters: &ConnectParameters<'_>, entries: u32) -> [End; 2] {
        let [here, there] =
            [0, 1].map(|node: usize| self.nodes[node].verbs().event_channel().unwrap());
        let (_listener, to) = self.listen(&there);
        let id = self.routed(&here, to);
        let here = End::new(here, id, entries);
        here.id.connect(parameters).unwrap();
        let Some(EventKind::ConnectRequest(request)) = self.event(&there) else {
            panic!("no request");
        };
        let id = there.adopt(request).unwrap();
        let there = End::new(there, id, entries);
        there.id.accept(parameters).unwrap();
        assert!(matches!(
            self.event(&here.channel),
            Some(EventKind::Established(_))
        ));
        assert!(matches!(
            self.event(&there.channel),
            Some(EventKind::Established(_))
        ));
        [here, there]
    }

    /// Lets everything happen that is to happen.
    pub(crate) fn settle(&self) {
        while self.fabric.step() {}
    }
}

impl End {
    pub(crate) fn new(channel: EventChannel, id: CmId, entries: u32) -> Self {
        let device: Device = id.device().unwrap().unwrap();
        let domain = device.allocate_domain().unwrap();
        let cq = device.create_completion_queue(entries).unwrap();
        let mapping = Arc::new(Mapping::new(MEMORY_BYTES).unwrap());
        let all =
            Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::WINDOW_BIND;
        let memory = domain
            .register(&HostMemory::of_mapping(&mapping), all)
            .unwrap();
        let qp = id
            .create_queue_pair(&domain, &cq, &cq, &CAPABILITIES)
            .unwrap();
        Self {
            qp,
            cq,
            memory,
            domain,
            id,
            channel,
        }
    }

    pub(crate) fn entry(&self, offset: usize, len: u32) -> ScatterEntry {
        self.memory.entry(offset, len).unwrap()
    }

    pub(crate) fn remote(&self, offset: usize) -> Remote {
        Remote {
            address: self.memory.remote_address(offset).unwrap(),
            rkey: self.memory.rkey(),
        }
    }

    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.memory.copy_out(offset, &mut out).unwrap();
        out
    }

    pub(crate) fn post(&self, id: u64, operation: Operation<'_>) {
        let request = SendRequest {
            id: WrId(id),
            operation,
            signaled: true,
            fence: false,
        };
        self.qp.post_send(&[request]).unwrap();
    }

    pub(crate) fn send(&self, id: u64) {
        self.post(
            id,
            Operation::Send {
                gather: Gather::Inline(&[]),
                invalidate: None,
                solicited: false,
            },
        );
    }

    pub(crate) fn write(&self, id: u64, entries: &[ScatterEntry], remote: Remote) {
        self.post(
            id,
            Operation::Write {
                gather: Gather::Entries(entries),
                remote,
            },
        );
    }

    pub(crate) fn receive(&self, id: u64, entries: &[ScatterEntry]) {
        self.qp
            .post_receive(&[ReceiveRequest {
                id: WrId(id),
                entries,
            }])
            .unwrap();
    }

    pub(crate) fn polled(&self) -> Vec<Completion> {
        let mut out = Vec::new();
        while self.cq.poll(&mut out).unwrap() > 0 {}
        out
    }

    /// What has completed: names, and what each failed with.
    pub(crate) fn outcomes(&self) -> Vec<(u64, Option<Status>)> {
        let outcome =
            |done: &Completion| (done.id.0, done.result.err().map(|failed| failed.status));
        self.polled().iter().map(outcome).collect()
    }
}
