//! One queue of a host: its queue pair, its machine, and what has come that the machine has not taken. It moves from reactor to reactor as a whole.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use frontend_nvme::Clock;
use frontend_nvme::link::{LinkError, LinkFailure, LinkLimits, Wire};
use nvme::rdma::target::{
    ADMIN_CAPSULE_DATA_BYTES, Connection as Machine, ReceiveId, Refusal, Request as Asked,
    TargetLimits, Want, WorkId,
};
use nvme_spec::command::SQE_BYTES;
use nvme_spec::rdma::RejectStatus;
use verbs::{
    CmId, Completion, CompletionQueue, ConnectParameters, Device, EventChannel, EventKind, Failed,
    QpCapabilities, QueuePair, Request, Status, TakenApart, Verbs, VerbsError, WrId,
};

use crate::capsules::{Capsules, receive_of};
use crate::device::{OnDevice, Pools};
use crate::limits::{
    ADMIN_CHUNKS, BATCH_MAX, CHUNKS, INLINE_BYTES, READS_MAX, SCATTER_MAX, SEND_REQUESTS_MAX,
    SEND_REQUESTS_PER_ENTRY,
};
use crate::staging::Staging;

/// Requests of a send queue beside those of commands.
const SEND_REQUESTS_MORE: u32 = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    // Fields go in this order: afterwards the device touches no memory for it.
    /// None once it is stopped.
    pub(crate) qp: Option<QueuePair>,
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: EventChannel,
    id: CmId,
    pub(crate) machine: Machine,
    capsules: Capsules,
    pub(crate) staging: Staging,
    pub(crate) pools: Pools,
    /// Segments of an RDMA READ, and of an RDMA WRITE.
    pub(crate) read_sges: usize,
    pub(crate) write_sges: usize,
    /// Messages that the machine does not take yet, in order, and how long they are.
    messages: VecDeque<(ReceiveId, u32)>,
    completions: Vec<Completion>,
    pub(crate) clock: Clock,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) wire: Wire,
    /// The connection has ended; and why, where the host or a failure is to blame, until it is told.
    pub(crate) is_over: bool,
    pub(crate) failure: Option<LinkFailure>,
}

/// Why a connect request leads to no queue: what the host is told, and what our side knows.
pub(crate) struct Declined {
    refusal: Refusal,
    why: String,
}

impl Declined {
    fn resources(error: &VerbsError) -> Self {
        Self {
            refusal: Refusal(RejectStatus::NO_RESOURCES),
            why: error.to_string(),
        }
    }
}

impl From<Refusal> for Declined {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            why: refusal.to_string(),
        }
    }
}

impl Queue {
    /// Whether a connect request is one that could lead to a queue: what can be said without touching a device.
    pub(crate) fn check(request: &Request, limits: &LinkLimits) -> Result<(), Refusal> {
        let limits = machine_limits(limits, 0, false);
        let host_reads = request.initiator_depth();
        Asked::parse(request.private_data(), host_reads, READS_MAX, &limits).map(drop)
    }

    /// Takes a host's connect request, or rejects it. Takes as long as the device takes for a queue pair and its memory.
    pub(crate) fn accept(
        request: Request,
        verbs: &Verbs,
        on: impl FnOnce(&Device) -> Result<Arc<OnDevice>, VerbsError>,
        limits: &LinkLimits,
        clock: Clock,
    ) -> Result<Self, LinkError> {
        let addresses = (request.local_address(), request.peer_address());
        let (Some(local), Some(peer)) = addresses else {
            return Err(words("a connect request without addresses".to_owned()));
        };
        let told = Told {
            private_data: request.private_data().to_vec(),
            host_reads: request.initiator_depth(),
            host_depth: request.responder_resources(),
        };
        let channel = match verbs.event_channel() {
            Ok(channel) => channel,
            // No descriptors are left, for one: the host hears that it may try again.
            Err(error) => {
                let refusal = Refusal(RejectStatus::NO_RESOURCES);
                let _gone = request.reject(&refusal.reject_data());
                return Err(words(format!("{peer}: {error}")));
            }
        };
        let id = channel.adopt(request).map_err(|error| failed(&error))?;
        let made = told
            .check(limits, &id)
            .and_then(|(asked, device)| Parts::make(&asked, &device, &id, on, limits));
        let made = match made {
            Ok(parts) => parts,
            Err(declined) => {
                // Where the host is gone there is nobody to tell.
                let _gone = id.reject(&declined.refusal.reject_data());
                return Err(words(format!("{peer}: {}", declined.why)));
            }
        };
        let queue = made.into_queue(id, channel, (local, peer), clock);
        if let Err(error) = queue.begin(told.host_depth) {
            let refusal = Refusal(RejectStatus::NO_RESOURCES);
            let _gone = queue.id.reject(&refusal.reject_data());
            return Err(words(format!("{peer}: {error}")));
        }
        Ok(queue)
    }

    /// Posts every receive, then says yes.
    fn begin(&self, host_depth: u8) -> Result<(), VerbsError> {
        let asked = self.machine.request();
        let all: Vec<ReceiveId> = (0..asked.entries).map(ReceiveId).collect();
        self.post_capsules(&all)?;
        self.id.accept(&ConnectParameters {
            private_data: &asked.accept_data(),
            // Hosts read nothing here; some devices want to hear one.
            responder_resources: host_depth.min(1),
            initiator_depth: asked.reads_max,
            ..ConnectParameters::default()
        })
    }

    /// Hands the machine the next message, if it takes one now.
    pub(crate) fn feed_message(&mut self) -> bool {
        if self.machine.want() != Want::Capsule {
            return false;
        }
        let Some((receive, bytes)) = self.messages.pop_front() else {
            return false;
        };
        let mut head = [0; SQE_BYTES];
        let head = self.capsules.head(receive, bytes, &mut head);
        self.machine.capsule(receive, head, bytes);
        true
    }

    /// Takes completions off the queue, as many as there are at once. False where there was none.
    pub(crate) fn poll(
        &mut self,
        mut ended: impl FnMut(&mut Staging, WorkId) -> Option<u64>,
    ) -> bool {
        let mut completions = std::mem::take(&mut self.completions);
        completions.clear();
        if let Err(error) = self.cq.poll(&mut completions) {
            self.fail(LinkFailure::Protocol(error.to_string()));
        }
        for completion in &completions {
            self.completed(completion, &mut ended);
        }
        let found = !completions.is_empty();
        self.completions = completions;
        found
    }

    fn completed(
        &mut self,
        completion: &Completion,
        ended: &mut impl FnMut(&mut Staging, WorkId) -> Option<u64>,
    ) {
        match (receive_of(completion.id), completion.result) {
            (_, Err(failed)) => self.request_failed(failed),
            (Some(receive), Ok(done)) => {
                self.wire.received += u64::from(done.bytes);
                self.messages.push_back((receive, done.bytes));
            }
            (None, Ok(done)) => {
                self.wire.received += u64::from(done.bytes);
                let WrId(id) = completion.id;
                let Some(copied) = ended(&mut self.staging, WorkId(id)) else {
                    let what = "a command's buffer does not take its data";
                    return self.fail(LinkFailure::Protocol(what.to_owned()));
                };
                self.wire.copied += copied;
                self.machine.completed(WorkId(id));
            }
        }
    }

    /// The first failure says why; the others are flushed behind it. A flush alone is the end of a connection that was ended.
    fn request_failed(&mut self, failed: Failed) {
        let protocol = |what: &str| Some(LinkFailure::Protocol(what.to_owned()));
        let failure = match failed.status {
            Status::Flushed => None,
            Status::LocalLength => protocol("a message that is longer than a capsule may be"),
            Status::RemoteAccess | Status::RemoteInvalidRequest | Status::RemoteOperation => {
                protocol(
                    "the host's device refuses to have its memory read or written as its command said",
                )
            }
            Status::RetryExceeded => Some(LinkFailure::Host("it does not answer".to_owned())),
            Status::RnrRetryExceeded => Some(LinkFailure::Host(
                "it has no room for a response".to_owned(),
            )),
            status => protocol(&format!("the device failed: {status:?}")),
        };
        match failure {
            Some(failure) => self.fail(failure),
            None => self.end(),
        }
    }

    /// The connection ends, and somebody is to hear why: the first reason is told.
    pub(crate) fn fail(&mut self, failure: LinkFailure) {
        if !self.is_over {
            self.failure = Some(failure);
        }
        self.end();
    }

    /// The connection ends.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
        self.machine.end();
        self.messages.clear();
    }

    /// Takes in what the connection manager tells.
    pub(crate) fn manager_events(&mut self) {
        loop {
            match self.channel.next_event() {
                Ok(Some(event)) => self.manager_event(&event.kind),
                Ok(None) => return,
                Err(error) => return self.fail(LinkFailure::Protocol(error.to_string())),
            }
        }
    }

    fn manager_event(&mut self, kind: &EventKind) {
        let host = |what: String| LinkFailure::Host(what);
        match kind {
            EventKind::Disconnected => self.end(),
            EventKind::DeviceRemoval => {
                self.fail(LinkFailure::Protocol("the device was removed".to_owned()));
            }
            EventKind::ConnectError(errno) | EventKind::Unreachable(errno) => {
                self.fail(host(format!("the connection did not come about: {errno}")));
            }
            EventKind::Rejected(reason, _) => {
                self.fail(host(format!("it rejects the connection: {reason:?}")));
            }
            // The queue pair's own fate tells the rest.
            _ => {}
        }
    }

    /// Posts the receives whose messages have been used.
    pub(crate) fn post_receives(&mut self) {
        let mut free = smallvec::SmallVec::<[ReceiveId; BATCH_MAX]>::new();
        loop {
            free.clear();
            while free.len() < BATCH_MAX
                && let Some(receive) = self.machine.next_receive()
            {
                free.push(receive);
            }
            if free.is_empty() {
                return;
            }
            if let Err(error) = self.post_capsules(&free) {
                return self.fail(LinkFailure::Protocol(error.to_string()));
            }
        }
    }

    fn post_capsules(&self, receives: &[ReceiveId]) -> Result<(), VerbsError> {
        self.capsules.post(self.qp()?, receives)
    }

    /// # Errors
    /// It is stopped.
    pub(crate) fn qp(&self) -> Result<&QueuePair, VerbsError> {
        self.qp.as_ref().ok_or(VerbsError::Misuse {
            call: "post",
            what: "the queue pair is stopped",
        })
    }

    pub(crate) fn capsules(&self) -> &Capsules {
        &self.capsules
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The host is told; there may be no connection any more.
        let _gone = self.id.disconnect();
    }
}

impl TakenApart for Queue {
    fn stop(&mut self) {
        // Of what has completed the device knows nothing any more.
        if self.machine.has_posted() {
            self.qp = None;
        }
    }
}

/// What a connect request says.
struct Told {
    private_data: Vec<u8>,
    /// RDMA READs of ours that the host has room for.
    host_reads: u8,
    /// RDMA READs that the host would have in progress here.
    host_depth: u8,
}

impl Told {
    fn check(&self, limits: &LinkLimits, id: &CmId) -> Result<(Asked, Device), Declined> {
        let device = id.device().map_err(|error| Declined::resources(&error))?;
        let Some(device) = device else {
            return Err(Refusal(RejectStatus::NO_RESOURCES).into());
        };
        let device_reads = device.attributes().qp_init_rd_atom_max;
        let limits = machine_limits(limits, 0, false);
        let asked = Asked::parse(&self.private_data, self.host_reads, device_reads, &limits)?;
        Ok((asked, device))
    }
}

fn machine_limits(limits: &LinkLimits, send_requests: u32, invalidate: bool) -> TargetLimits {
    TargetLimits {
        queue_entries_max: limits.queue_entries_max,
        transfer_bytes_max: limits.transfer_bytes_max,
        reads_max: READS_MAX,
        send_requests: u16::try_from(send_requests).unwrap_or(u16::MAX),
        invalidate,
        connect_timeout: limits.connect_timeout,
        data_timeout: limits.data_timeout,
    }
}

/// What a queue is made of, before it is accepted.
struct Parts {
    qp: QueuePair,
    cq: CompletionQueue,
    capsules: Capsules,
    staging: Staging,
    on: Arc<OnDevice>,
    asked: Asked,
    limits: TargetLimits,
    read_sges: usize,
    write_sges: usize,
}

impl Parts {
    fn make(
        asked: &Asked,
        device: &Device,
        id: &CmId,
        on: impl FnOnce(&Device) -> Result<Arc<OnDevice>, VerbsError>,
        limits: &LinkLimits,
    ) -> Result<Self, Declined> {
        let refused = |error| Declined::resources(&error);
        let on = on(device).map_err(refused)?;
        let has = device.attributes();
        let entries = u32::from(asked.entries);
        let send_requests = (entries * SEND_REQUESTS_PER_ENTRY + SEND_REQUESTS_MORE)
            .min(SEND_REQUESTS_MAX)
            .min(has.qp_wr_max);
        let sges = SCATTER_MAX.min(has.sge_max).max(1);
        let cq = device
            .create_completion_queue(send_requests + entries)
            .map_err(refused)?;
        let capabilities = QpCapabilities {
            send_wr_max: send_requests,
            recv_wr_max: entries,
            send_sge_max: sges,
            recv_sge_max: 1,
            inline_bytes_max: INLINE_BYTES,
        };
        let qp = id
            .create_queue_pair(on.domain(), &cq, &cq, &capabilities)
            .map_err(refused)?;
        let (data_bytes, chunks) = match asked.queue.is_admin() {
            true => (ADMIN_CAPSULE_DATA_BYTES, ADMIN_CHUNKS),
            false => (limits.capsule_data_bytes, CHUNKS),
        };
        Ok(Self {
            write_sges: qp.capabilities().send_sge_max.min(SCATTER_MAX) as usize,
            qp,
            cq,
            capsules: Capsules::new(&on, asked.entries, data_bytes).map_err(refused)?,
            staging: Staging::new(&on, chunks).map_err(refused)?,
            on,
            asked: *asked,
            limits: machine_limits(limits, send_requests, has.invalidate),
            read_sges: match has.sge_rd_max {
                0 => 1,
                reads => sges.min(reads) as usize,
            },
        })
    }

    fn into_queue(
        self,
        id: CmId,
        channel: EventChannel,
        (local, peer): (SocketAddr, SocketAddr),
        clock: Clock,
    ) -> Queue {
        let completions = self.cq.entries() as usize;
        Queue {
            machine: Machine::new(&self.limits, &self.asked, clock.now()),
            messages: VecDeque::with_capacity(usize::from(self.asked.entries)),
            completions: Vec::with_capacity(completions.min(BATCH_MAX)),
            qp: Some(self.qp),
            cq: self.cq,
            channel,
            id,
            capsules: self.capsules,
            staging: self.staging,
            pools: Pools::of(&self.on),
            read_sges: self.read_sges,
            write_sges: self.write_sges,
            clock,
            local,
            peer,
            wire: Wire::default(),
            is_over: false,
            failure: None,
        }
    }
}

fn words(why: String) -> LinkError {
    LinkError::Resources(why)
}

fn failed(error: &VerbsError) -> LinkError {
    words(error.to_string())
}
