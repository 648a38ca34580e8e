//! What programs hold of a node: channels and identifiers; each handle is a number, and the fabric has the rest.

#![allow(
    unsafe_code,
    reason = "the backend's register is unsafe by its contract"
)]

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::eventfd::EventFd;
use reactor::Errno;

use super::cm::{self, CmEntry, CmNumber, CmState, Offer, Told};
use super::devices::{Device, QueuePair};
use super::qp::{CqNumber, Qp};
use super::world::{NodeId, descriptor, quiet};
use super::{Shared, ns};
use crate::attributes::DeviceAttributes;
use crate::backend::{self, Raised, Requested};
use crate::cm::ConnectParameters;
use crate::error::{Result, VerbsError};
use crate::key::{CmKey, QpNumber};
use crate::limits::COMPLETION_ENTRIES_MAX;
use crate::queue_pair::QpCapabilities;

#[derive(Debug)]
pub(super) struct Transport {
    pub(super) shared: Arc<Shared>,
    pub(super) node: NodeId,
}

impl backend::Transport for Transport {
    fn channel(&self) -> Result<Arc<dyn backend::Channel>> {
        let fd = descriptor()?;
        let mut world = self.shared.world();
        if world.node(self.node).is_out_of_descriptors {
            let call = "rdma_create_event_channel";
            return Err(VerbsError::call(call, "the node", Errno::EMFILE));
        }
        let number = world.fresh();
        world.channels.insert(
            number,
            cm::Channel {
                told: std::collections::VecDeque::new(),
                fd: fd.clone(),
            },
        );
        Ok(Arc::new(Channel {
            shared: self.shared.clone(),
            node: self.node,
            number,
            fd,
        }))
    }

    fn devices(&self) -> Result<Vec<Arc<dyn backend::Device>>> {
        if self.shared.world().node(self.node).removed {
            return Ok(Vec::new());
        }
        Ok(vec![device(&self.shared, self.node)])
    }
}

fn device(shared: &Arc<Shared>, node: NodeId) -> Arc<dyn backend::Device> {
    let mut world = shared.world();
    let entry = world.node(node);
    let (identity, fd) = (entry.identity, entry.async_fd.clone());
    drop(world);
    let attributes = DeviceAttributes {
        name: format!("memory{}", node.0),
        ports: 1,
        qp_max: 1 << 16,
        qp_wr_max: 1 << 14,
        sge_max: 16,
        sge_rd_max: 16,
        cq_max: 1 << 16,
        cqe_max: COMPLETION_ENTRIES_MAX,
        mr_max: 1 << 20,
        mr_bytes_max: 1 << 40,
        mw_max: 1 << 20,
        qp_rd_atom_max: 16,
        qp_init_rd_atom_max: 16,
        mw_type_2b: true,
        invalidate: true,
    };
    Arc::new(Device {
        shared: shared.clone(),
        node,
        identity,
        fd,
        attributes,
    })
}

#[derive(Debug)]
struct Channel {
    shared: Arc<Shared>,
    node: NodeId,
    number: u64,
    fd: Arc<EventFd>,
}

impl Drop for Channel {
    fn drop(&mut self) {
        let mut world = self.shared.world();
        // Identifiers hold their channel, so only requests that nobody took can be left.
        let left = world.channels.remove(&self.number);
        for told in left.into_iter().flat_map(|channel| channel.told) {
            if let Told::Request(_, number, _) = told {
                world.drop_id(number);
            }
        }
    }
}

impl backend::Channel for Channel {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn next(&self) -> Result<Option<Raised>> {
        let mut world = self.shared.world();
        let Some(channel) = world.channels.get_mut(&self.number) else {
            return Ok(None);
        };
        let told = channel.told.pop_front();
        if channel.told.is_empty() {
            quiet(&self.fd);
        }
        drop(world);
        Ok(told.map(|told| match told {
            Told::Event(key, kind) => Raised::Event(key, kind),
            Told::Request(key, number, offer) => Raised::Request(
                key,
                Requested {
                    id: Box::new(Id {
                        shared: self.shared.clone(),
                        node: self.node,
                        number,
                        channel: None,
                    }),
                    private_data: offer.data,
                    // What the peer wants to have in progress is what we are to have room for, and the reverse.
                    responder_resources: offer.initiator_depth,
                    initiator_depth: offer.responder_resources,
                },
            ),
        }))
    }

    fn create_id(self: Arc<Self>, key: CmKey) -> Result<Box<dyn backend::Id>> {
        let mut world = self.shared.world();
        let number = CmNumber(world.fresh());
        world
            .ids
            .insert(number, CmEntry::new(key, self.number, self.node));
        drop(world);
        Ok(Box::new(Id {
            shared: self.shared.clone(),
            node: self.node,
            number,
            channel: Some(self),
        }))
    }

    fn adopt(self: Arc<Self>, id: &mut dyn backend::Id, key: CmKey) -> Result<()> {
        let Some(id) = id.as_any().downcast_mut::<Id>() else {
            return Err(VerbsError::Misuse {
                call: "adopt",
                what: "the request came from another implementation of verbs",
            });
        };
        if id.node != self.node || !Arc::ptr_eq(&id.shared, &self.shared) {
            return Err(VerbsError::Misuse {
                call: "adopt",
                what: "the request came to another node",
            });
        }
        if let Some(entry) = self.shared.world().id(id.number) {
            (entry.channel, entry.key) = (self.number, key);
        }
        id.channel = Some(self);
        Ok(())
    }
}

#[derive(Debug)]
struct Id {
    shared: Arc<Shared>,
    node: NodeId,
    number: CmNumber,
    /// Its channel exists as long as it does.
    channel: Option<Arc<Channel>>,
}

impl Drop for Id {
    fn drop(&mut self) {
        self.shared.world().drop_id(self.number);
    }
}

impl Id {
    fn errno(&self, call: &'static str, done: std::result::Result<(), Errno>) -> Result<()> {
        done.map_err(|errno| VerbsError::call(call, format!("node {}", self.node.0), errno))
    }

    fn state(&self, call: &'static str, done: std::result::Result<(), CmState>) -> Result<()> {
        done.map_err(|state| VerbsError::State {
            call,
            subject: format!("an identifier of node {}", self.node.0),
            state: state.name(),
        })
    }
}

impl backend::Id for Id {
    fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<()> {
        let done =
            self.shared
                .world()
                .resolve_address(self.number, source, destination, ns(timeout));
        self.errno("rdma_resolve_addr", done)
    }

    fn resolve_route(&self, _timeout: Duration) -> Result<()> {
        let done = self.shared.world().resolve_route(self.number);
        self.errno("rdma_resolve_route", done)
    }

    fn listen(&self, at: SocketAddr, backlog: u32) -> Result<()> {
        let done = self.shared.world().listen(self.number, at, backlog);
        self.errno("rdma_listen", done)
    }

    fn connect(&self, parameters: &ConnectParameters<'_>) -> Result<()> {
        let done = self
            .shared
            .world()
            .connect(self.number, Offer::request(parameters));
        self.state("rdma_connect", done)
    }

    fn accept(&self, parameters: &ConnectParameters<'_>) -> Result<()> {
        let done = self
            .shared
            .world()
            .accept(self.number, Offer::reply(parameters));
        self.state("rdma_accept", done)
    }

    fn reject(&self, private_data: &[u8]) -> Result<()> {
        let done = self.shared.world().reject(self.number, private_data);
        self.state("rdma_reject", done)
    }

    fn disconnect(&self) -> Result<()> {
        let done = self.shared.world().disconnect(self.number);
        self.state("rdma_disconnect", done)
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.shared.world().id(self.number)?.local
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.shared.world().id(self.number)?.peer
    }

    fn device(&self) -> Result<Option<Arc<dyn backend::Device>>> {
        let bound = self
            .shared
            .world()
            .id(self.number)
            .is_some_and(|entry| !matches!(entry.state, CmState::Idle | CmState::Resolving));
        Ok(bound.then(|| device(&self.shared, self.node)))
    }

    fn create_queue_pair(
        &self,
        domain: &dyn backend::Domain,
        send: &dyn backend::CompletionQueue,
        receive: &dyn backend::CompletionQueue,
        asked: &QpCapabilities,
    ) -> Result<(Box<dyn backend::QueuePair>, QpCapabilities)> {
        let mut world = self.shared.world();
        if world.node(self.node).removed {
            let subject = format!("node {}", self.node.0);
            return Err(VerbsError::call("rdma_create_qp", subject, Errno::ENODEV));
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a fabric has fewer objects"
        )]
        let number = QpNumber(world.fresh() as u32);
        world.control_call(self.node, "ibv_create_qp");
        let capabilities = *asked;
        let cq = |queue: &dyn backend::CompletionQueue| CqNumber(queue.native().addr() as u64);
        let qp = Qp::new(
            self.node,
            domain.native().addr() as u64,
            cq(send),
            cq(receive),
            capabilities,
        );
        world.qps.insert(number, qp);
        if let Some(entry) = world.id(self.number) {
            entry.qp = Some(number);
        }
        drop(world);
        Ok((
            Box::new(QueuePair {
                shared: self.shared.clone(),
                node: self.node,
                number,
            }),
            capabilities,
        ))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
