//! A listening end on the desk's ring: connect requests in, queues out. Queues are made on the control thread; here a request is looked at, and refused where its
//! private data say enough.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use frontend_nvme::Clock;
use frontend_nvme::link::{Link, LinkError, LinkLimits, Listener, Trouble};
use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nvme::rdma::target::Refusal;
use nvme_spec::rdma::RejectStatus;
use reactor::{Fd, OpId, Owner, OwnerId, Ring};
use verbs::{Device, Elsewhere, EventKind, Request};

use crate::limits::{LISTEN_AGAIN_MAX, LISTEN_AGAIN_MIN, MAKING_MAX, REQUESTS_PER_TURN};
use crate::link::{RdmaLink, shared};
use crate::port::{Rdma, RdmaPort};
use crate::queue::Queue;

/// What an event of the listener's owner belongs to.
const TAG_REQUESTS: u64 = 0;
const TAG_MADE: u64 = 1;
const TAG_AGAIN: u64 = 2;

type Made = Result<Elsewhere<Queue>, LinkError>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Listening {
    owner: Owner,
    rdma: Rdma,
    address: SocketAddr,
    limits: LinkLimits,
    clock: Clock,
    /// None after a failure, until it listens again.
    open: Option<Open>,
    /// How long after the next failure.
    again_after: Duration,
    /// Told why while it is closed.
    trouble: Trouble,
    making: Making,
    /// Requests that were looked at in this turn.
    looked_at: usize,
}

/// Where requests come in.
#[derive(Debug)]
struct Open {
    port: RdmaPort,
    requests: Fd,
    watch: Option<OpId>,
}

/// Queues that the control thread makes.
#[derive(Debug)]
struct Making {
    count: usize,
    made: Receiver<Made>,
    maker: Sender<Made>,
    /// Signaled with each.
    told: Arc<EventFd>,
    descriptor: Fd,
    is_watched: bool,
}

impl Listening {
    pub(crate) fn new(
        port: RdmaPort,
        ring: &Ring,
        limits: &LinkLimits,
        clock: Clock,
    ) -> Result<Self, LinkError> {
        let (maker, made) = channel();
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let told = EventFd::from_flags(flags).map_err(std::io::Error::from)?;
        let trouble = port.trouble.clone();
        let mut listening = Self {
            owner: ring.register()?,
            rdma: port.rdma.clone(),
            address: port.address,
            limits: *limits,
            clock,
            open: Some(Open::new(port)?),
            again_after: LISTEN_AGAIN_MIN,
            trouble,
            making: Making {
                count: 0,
                made,
                maker,
                descriptor: shared(told.as_fd())?,
                told: Arc::new(told),
                is_watched: false,
            },
            looked_at: 0,
        };
        listening.watch()?;
        Ok(listening)
    }

    /// Takes in what the ring has for the listener.
    fn take_in(&mut self) {
        while let Some(event) = self.owner.next_event() {
            match (event.tag, &mut self.open) {
                // One of before a failure is nobody's.
                (TAG_REQUESTS, Some(open)) if open.watch == Some(event.op) => open.watch = None,
                (TAG_MADE, _) => {
                    self.making.is_watched = false;
                    // Only to make it quiet; what was made is in the channel.
                    let _count = self.making.told.read();
                }
                (TAG_AGAIN, None) => self.listen_again(),
                _ => {}
            }
        }
    }

    /// Waits for requests, as long as there is room to make their queues, and for queues.
    fn watch(&mut self) -> Result<(), LinkError> {
        let readable = PollFlags::POLLIN.bits();
        let no_room = |why: String| LinkError::Resources(why);
        if let Some(open) = &mut self.open
            && open.watch.is_none()
            && self.making.count < MAKING_MAX
        {
            let op = self.owner.poll(&open.requests, readable, TAG_REQUESTS);
            open.watch = Some(op.map_err(|refused| no_room(refused.to_string()))?);
        }
        if !self.making.is_watched {
            let op = self.owner.poll(&self.making.descriptor, readable, TAG_MADE);
            op.map_err(|refused| no_room(refused.to_string()))?;
            self.making.is_watched = true;
        }
        Ok(())
    }

    /// The next request, as many as a turn may look at; none where the reactor is to come again.
    fn next_request(&mut self) -> Option<Request> {
        while self.looked_at < REQUESTS_PER_TURN && self.making.count < MAKING_MAX {
            let open = self.open.as_ref()?;
            match open.port.channel.next_event() {
                Ok(Some(event)) => match event.kind {
                    EventKind::ConnectRequest(request) => {
                        self.looked_at += 1;
                        return Some(request);
                    }
                    EventKind::DeviceRemoval => {
                        self.rdma.forget_gone();
                        self.failed("its RDMA device was removed");
                    }
                    _ => {}
                },
                Ok(None) => return None,
                Err(error) => self.failed(&error.to_string()),
            }
        }
        None
    }

    /// Has a request's queue made, or refuses it.
    fn welcome(&mut self, request: Request, has_room: bool) -> Result<(), LinkError> {
        let refused = if has_room {
            Queue::check(&request, &self.limits).map_err(|refusal| {
                let peer = request.peer_address();
                let peer = peer.map_or_else(|| "a host".to_owned(), |peer| peer.to_string());
                (refusal, LinkError::Resources(format!("{peer}: {refusal}")))
            })
        } else {
            Err((Refusal(RejectStatus::NO_RESOURCES), LinkError::NoRoom))
        };
        if let Err((refusal, why)) = refused {
            // Where the host is gone there is nobody to tell.
            let _gone = request.reject(&refusal.reject_data());
            return Err(why);
        }
        self.making.count += 1;
        let (rdma, limits, clock) = (self.rdma.clone(), self.limits, self.clock);
        let (maker, told) = (self.making.maker.clone(), self.making.told.clone());
        self.rdma.control().run(move || {
            let on = |device: &Device| rdma.on(device);
            let made = Queue::accept(request, rdma.verbs(), on, &limits, clock);
            let made = made.map(|queue| Elsewhere::new(queue, rdma.control()));
            // Where the listener is gone the connection goes with it.
            let _unwanted = maker.send(made);
            let _is_told_already = told.write(1);
        });
        Ok(())
    }

    /// The listener takes no more requests: it listens again later.
    fn failed(&mut self, why: &str) {
        let after = self.again_after;
        tracing::error!(address = %self.address, %why, "the listener takes no connections; it listens again in {after:?}");
        if let Some(op) = self.open.take().and_then(|open| open.watch) {
            self.owner.ring().cancel(op);
        }
        self.again_after = (after * 2).min(LISTEN_AGAIN_MAX);
        self.trouble.say(Some(format!(
            "rdma://{} takes no connections: {why}; it is tried again, every {} s at last",
            self.address,
            LISTEN_AGAIN_MAX.as_secs()
        )));
        self.come_again(after);
    }

    fn come_again(&self, after: Duration) {
        if let Err(error) = self.owner.timer(Instant::now() + after, TAG_AGAIN) {
            tracing::error!(address = %self.address, %error, "the listener stays closed");
        }
    }

    fn listen_again(&mut self) {
        let bound = self
            .rdma
            .bind(self.address)
            .map_err(|error| error.to_string());
        let opened = bound.and_then(|port| Open::new(port).map_err(|error| error.to_string()));
        match opened {
            Ok(open) => {
                tracing::info!(address = %self.address, "the listener takes connections again");
                self.open = Some(open);
                self.again_after = LISTEN_AGAIN_MIN;
                self.trouble.say(None);
            }
            Err(why) => self.failed(&why),
        }
    }

    fn link(&self, made: Made, has_room: bool) -> Result<Box<dyn Link>, LinkError> {
        let queue = made?;
        if !has_room {
            return Err(LinkError::NoRoom);
        }
        Ok(Box::new(RdmaLink::new(queue, self.owner.ring())?))
    }
}

impl Open {
    fn new(port: RdmaPort) -> Result<Self, LinkError> {
        Ok(Self {
            requests: shared(port.channel.as_fd())?,
            port,
            watch: None,
        })
    }
}

impl Listener for Listening {
    fn owner_id(&self) -> OwnerId {
        self.owner.id()
    }

    fn next_connection(&mut self, has_room: bool) -> Option<Result<Box<dyn Link>, LinkError>> {
        self.take_in();
        loop {
            if let Ok(made) = self.making.made.try_recv() {
                self.making.count -= 1;
                return Some(self.link(made, has_room));
            }
            let Some(request) = self.next_request() else {
                // What is left is told by the descriptors, in the ring's next turn.
                self.looked_at = 0;
                if let Err(error) = self.watch() {
                    tracing::warn!(address = %self.address, %error, "the listener rests");
                    self.come_again(LISTEN_AGAIN_MIN);
                }
                return None;
            };
            if let Err(refused) = self.welcome(request, has_room) {
                return Some(Err(refused));
            }
        }
    }
}
