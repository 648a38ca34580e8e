//! Two connected ends, and the way to wait for what must come.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reactor::buf::Mapping;

use super::Subject;
use crate::cm::{
    Agreed, CmId, ConnectParameters, Event, EventChannel, EventKind, Listener, Request,
};
use crate::completion::{Completion, CompletionQueue, Done, Opcode, QpState, Status};
use crate::device::Device;
use crate::domain::{Domain, HostMemory, Registration, ScatterEntry};
use crate::key::{Access, RKey, WrId};
use crate::queue_pair::{
    Gather, Operation, QpCapabilities, QueuePair, ReceiveRequest, Remote, SendRequest,
};

/// Bytes of memory that each end has.
pub(super) const MEMORY_BYTES: usize = 4 << 20;
pub(super) const RESOLVE: Duration = Duration::from_secs(5);
pub(super) const ALL: [Access; 4] = [
    Access::LOCAL_WRITE,
    Access::REMOTE_READ,
    Access::REMOTE_WRITE,
    Access::WINDOW_BIND,
];

pub(super) fn all_access() -> Access {
    ALL.into_iter()
        .fold(Access::LOCAL_READ, |all, one| all | one)
}

pub(super) const CAPABILITIES: QpCapabilities = QpCapabilities {
    send_wr_max: 64,
    recv_wr_max: 64,
    send_sge_max: 4,
    recv_sge_max: 4,
    inline_bytes_max: 64,
};

/// One connected end. Fields are dropped in order, which must not matter.
pub(super) struct End {
    pub(super) memory: Registration,
    pub(super) qp: QueuePair,
    pub(super) id: CmId,
    pub(super) cq: CompletionQueue,
    pub(super) domain: Domain,
    pub(super) channel: EventChannel,
    completed: Vec<Completion>,
}

pub(super) struct Pair<'a> {
    pub(super) subject: &'a Subject<'a>,
    pub(super) ends: [End; 2],
    pub(super) agreed: Agreed,
}

/// The connecting end and the accepting end.
pub(super) const HERE: usize = 0;
pub(super) const THERE: usize = 1;

impl Subject<'_> {
    /// Polls until it gives something, idling between.
    pub(super) fn wait<T>(
        &self,
        what: &str,
        fds: &[&dyn AsFd],
        mut poll: impl FnMut() -> Option<T>,
    ) -> T {
        let patience = self.patience;
        let deadline = Instant::now() + patience;
        loop {
            if let Some(found) = poll() {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "{what} did not come within {patience:?}"
            );
            let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
            (self.idle)(&fds);
        }
    }

    pub(super) fn event(&self, channel: &EventChannel) -> Event {
        let next = || {
            let event = channel.next_event().unwrap()?;
            // It says that a queue pair's number is free again, whenever that is.
            (!matches!(event.kind, EventKind::TimewaitExit)).then_some(event)
        };
        self.wait("an event of the connection manager", &[channel], next)
    }

    pub(super) fn channel(&self, end: usize) -> EventChannel {
        self.verbs[end].event_channel().unwrap()
    }

    pub(super) fn listen(&self, channel: &EventChannel) -> (Listener, SocketAddr) {
        let listener = channel
            .listen(SocketAddr::new(self.addresses[THERE], 0), 8)
            .unwrap();
        let port = listener.local_address().unwrap().port();
        assert_ne!(port, 0, "a port was chosen");
        (listener, SocketAddr::new(self.addresses[THERE], port))
    }

    /// An identifier that only lacks its queue pair to connect.
    pub(super) fn routed(&self, channel: &EventChannel, to: SocketAddr) -> CmId {
        let id = channel.create_id().unwrap();
        let from = SocketAddr::new(self.addresses[HERE], 0);
        id.resolve_address(Some(from), to, RESOLVE).unwrap();
        let event = self.event(channel);
        assert!(
            matches!(event.kind, EventKind::AddressResolved),
            "{:?}",
            event.kind
        );
        assert_eq!(event.key, id.key());
        id.resolve_route(RESOLVE).unwrap();
        let event = self.event(channel);
        assert!(
            matches!(event.kind, EventKind::RouteResolved),
            "{:?}",
            event.kind
        );
        assert_eq!(id.peer_address(), Some(to));
        assert_eq!(
            id.local_address().map(|local| local.ip()),
            Some(self.addresses[HERE])
        );
        id
    }

    pub(super) fn request(&self, channel: &EventChannel, listener: &Listener) -> Request {
        let event = self.event(channel);
        assert_eq!(
            event.key,
            listener.key(),
            "a request is the listener's event"
        );
        match event.kind {
            EventKind::ConnectRequest(request) => request,
            other => panic!("a connect request must come, but {other:?}"),
        }
    }

    pub(super) fn pair(&self) -> Pair<'_> {
        self.pair_with(
            &ConnectParameters::default(),
            &ConnectParameters::default(),
            256,
        )
    }

    pub(super) fn pair_with(
        &self,
        connect: &ConnectParameters<'_>,
        accept: &ConnectParameters<'_>,
        entries: u32,
    ) -> Pair<'_> {
        let [here, there] = [self.channel(HERE), self.channel(THERE)];
        let (listener, to) = self.listen(&there);
        let id = self.routed(&here, to);
        let here = End::new(here, id, entries, None);
        here.id.connect(connect).unwrap();
        let request = self.request(&there, &listener);
        let id = there.adopt(request).unwrap();
        let there = End::new(there, id, entries, None);
        self.established(here, there, accept)
    }

    /// A second connection on domains, queues and memory of a first pair; its ends.
    pub(super) fn second(&self, pair: &Pair<'_>) -> [(CmId, QueuePair); 2] {
        let [first, second] = &pair.ends;
        let (listener, to) = self.listen(&second.channel);
        let id = self.routed(&first.channel, to);
        let qp = first.make_qp(&id);
        id.connect(&ConnectParameters::default()).unwrap();
        let request = self.request(&second.channel, &listener);
        let other_id = second.channel.adopt(request).unwrap();
        let other_qp = second.make_qp(&other_id);
        other_id.accept(&ConnectParameters::default()).unwrap();
        for channel in [&first.channel, &second.channel] {
            let event = self.event(channel);
            assert!(
                matches!(event.kind, EventKind::Established(_)),
                "{:?}",
                event.kind
            );
        }
        [(id, qp), (other_id, other_qp)]
    }

    pub(super) fn established<'a>(
        &'a self,
        here: End,
        there: End,
        accept: &ConnectParameters<'_>,
    ) -> Pair<'a> {
        there.id.accept(accept).unwrap();
        let event = self.event(&here.channel);
        assert_eq!(event.key, here.id.key());
        let EventKind::Established(agreed) = event.kind else {
            panic!("the connection must stand, but {:?}", event.kind);
        };
        let event = self.event(&there.channel);
        assert_eq!(event.key, there.id.key());
        assert!(
            matches!(event.kind, EventKind::Established(_)),
            "{:?}",
            event.kind
        );
        Pair {
            subject: self,
            ends: [here, there],
            agreed,
        }
    }
}

pub(super) fn memory(bytes: usize) -> HostMemory {
    HostMemory::of_mapping(&Arc::new(Mapping::new(bytes).unwrap()))
}

impl End {
    pub(super) fn new(
        channel: EventChannel,
        id: CmId,
        entries: u32,
        device: Option<Device>,
    ) -> Self {
        let device = device.or_else(|| id.device().unwrap()).unwrap();
        let domain = device.allocate_domain().unwrap();
        let cq = device.create_completion_queue(entries).unwrap();
        let memory = domain
            .register(&memory(MEMORY_BYTES), all_access())
            .unwrap();
        let qp = id
            .create_queue_pair(&domain, &cq, &cq, &CAPABILITIES)
            .unwrap();
        Self {
            memory,
            qp,
            id,
            cq,
            domain,
            channel,
            completed: Vec::new(),
        }
    }

    pub(super) fn make_qp(&self, id: &CmId) -> QueuePair {
        id.create_queue_pair(&self.domain, &self.cq, &self.cq, &CAPABILITIES)
            .unwrap()
    }

    pub(super) fn entry(&self, offset: usize, len: u32) -> ScatterEntry {
        self.memory.entry(offset, len).unwrap()
    }

    pub(super) fn remote(&self, offset: usize) -> Remote {
        self.remote_by(offset, self.memory.rkey())
    }

    pub(super) fn remote_by(&self, offset: usize, rkey: RKey) -> Remote {
        Remote {
            address: self.memory.remote_address(offset).unwrap(),
            rkey,
        }
    }

    pub(super) fn fill(&self, offset: usize, content: &[u8]) {
        self.memory.copy_in(offset, content).unwrap();
    }

    pub(super) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.memory.copy_out(offset, &mut out).unwrap();
        out
    }

    pub(super) fn receive(&self, id: u64, entries: &[ScatterEntry]) {
        self.qp
            .post_receive(&[ReceiveRequest {
                id: WrId(id),
                entries,
            }])
            .unwrap();
    }

    pub(super) fn post(&self, id: u64, operation: Operation<'_>) {
        self.qp.post_send(&[signaled(id, operation)]).unwrap();
    }

    pub(super) fn send(&self, id: u64, entries: &[ScatterEntry]) {
        self.post(id, plain_send(Gather::Entries(entries)));
    }

    pub(super) fn write(&self, id: u64, entries: &[ScatterEntry], remote: Remote) {
        self.post(
            id,
            Operation::Write {
                gather: Gather::Entries(entries),
                remote,
            },
        );
    }

    pub(super) fn read(&self, id: u64, entries: &[ScatterEntry], remote: Remote) {
        self.post(id, Operation::Read { entries, remote });
    }
}

pub(super) fn plain_send(gather: Gather<'_>) -> Operation<'_> {
    Operation::Send {
        gather,
        invalidate: None,
        solicited: false,
    }
}

pub(super) fn signaled(id: u64, operation: Operation<'_>) -> SendRequest<'_> {
    SendRequest {
        id: WrId(id),
        operation,
        signaled: true,
        fence: false,
    }
}

impl Pair<'_> {
    pub(super) fn here(&self) -> &End {
        &self.ends[HERE]
    }

    pub(super) fn there(&self) -> &End {
        &self.ends[THERE]
    }

    /// The next completion at one end.
    pub(super) fn completion(&mut self, end: usize) -> Completion {
        let subject = self.subject;
        let End { cq, completed, .. } = &mut self.ends[end];
        let next = || {
            if completed.is_empty() {
                // Armed before the poll, so that what comes behind the poll wakes the wait.
                cq.take_events().unwrap();
                cq.arm(false).unwrap();
                cq.poll(completed).unwrap();
            }
            (!completed.is_empty()).then(|| completed.remove(0))
        };
        subject.wait("a completion", &[&*cq], next)
    }

    /// The next completion, which must be the success of this request.
    pub(super) fn done(&mut self, end: usize, id: u64, opcode: Opcode) -> Done {
        let completion = self.completion(end);
        assert_eq!(completion.id, WrId(id), "{completion:?}");
        match completion.result {
            Ok(done) => {
                assert_eq!(done.opcode, opcode, "{completion:?}");
                done
            }
            Err(failed) => panic!("request {id} must succeed, but {failed:?}"),
        }
    }

    /// The next completion, which must be the failure of this request.
    pub(super) fn failed(&mut self, end: usize, id: u64) -> Status {
        let completion = self.completion(end);
        assert_eq!(completion.id, WrId(id), "{completion:?}");
        match completion.result {
            Err(failed) => failed.status,
            Ok(_) => panic!("request {id} must fail, but {completion:?}"),
        }
    }

    /// The next completion, which must be the failure of this request, refused by the peer.
    pub(super) fn refused(&mut self, end: usize, id: u64, status: Status) {
        let heard = self.failed(end, id);
        let lost = self.subject.loses && heard == Status::RetryExceeded;
        assert!(
            heard == status || lost,
            "request {id} is refused with {status:?}, not {heard:?}"
        );
    }

    /// The next completions, which must be these requests, flushed in this order.
    pub(super) fn flushed(&mut self, end: usize, ids: &[u64]) {
        for &id in ids {
            assert_eq!(
                self.failed(end, id),
                Status::Flushed,
                "request {id} is flushed"
            );
        }
    }

    /// The queue pair of an end must come to be in error.
    pub(super) fn in_error(&mut self, end: usize) {
        let subject = self.subject;
        let this = &self.ends[end];
        let state = || (this.qp.state().unwrap() == QpState::Error).then_some(());
        subject.wait("the error state", &[&this.cq], state);
    }

    /// A message there and back: everything before it, in either direction, is done, and nothing else has completed.
    pub(super) fn round_trip(&mut self) {
        for (from, to) in [(HERE, THERE), (THERE, HERE)] {
            self.ends[to].receive(9001, &[]);
            self.ends[from].send(9000, &[]);
            self.done(to, 9001, Opcode::Receive);
            self.done(from, 9000, Opcode::Send);
        }
    }
}

/// Bytes that tell their place: a different content for each `seed`.
pub(super) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    bytes.truncate(len);
    bytes
}

/// xorshift64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
