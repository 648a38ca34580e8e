//! What programs hold of a node's device: domains, registrations, windows, queues; each handle is a number, and the fabric has the rest.

#![allow(
    unsafe_code,
    reason = "the backend's register is unsafe by its contract"
)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::eventfd::EventFd;
use reactor::Errno;

use super::Shared;
use super::keys::{Bind, DomainNumber, sges};
use super::qp::{Cq, CqNumber, NoPost, ReceiveWr, SendWr, Source, Work};
use super::world::{NodeId, descriptor, quiet};
use crate::attributes::{DeviceAttributes, GidEntry, GidKind};
use crate::backend::{self, Native};
use crate::completion::{Completion, QpState};
use crate::device::AsyncEvent;
use crate::error::{PostError, Result, VerbsError};
use crate::key::{Access, LKey, QpNumber, RKey};
use crate::queue_pair::{Gather, Operation, ReceiveRequest, SendRequest};

#[derive(Debug)]
pub(super) struct Device {
    pub(super) shared: Arc<Shared>,
    pub(super) node: NodeId,
    pub(super) identity: usize,
    pub(super) fd: Arc<EventFd>,
    pub(super) attributes: DeviceAttributes,
}

impl Device {
    fn there(&self, call: &'static str) -> Result<()> {
        if self.shared.world().node(self.node).removed {
            return Err(VerbsError::call(
                call,
                self.attributes.name.clone(),
                Errno::ENODEV,
            ));
        }
        Ok(())
    }
}

impl backend::Device for Device {
    fn identity(&self) -> usize {
        self.identity
    }

    fn attributes(&self) -> &DeviceAttributes {
        &self.attributes
    }

    fn gids(&self) -> Result<Vec<GidEntry>> {
        let addresses = self.shared.world().node(self.node).addresses.clone();
        let entry = |(index_z, address): (u32, std::net::IpAddr)| GidEntry {
            gid: address.into(),
            index_z,
            port: 1,
            kind: GidKind::RoceV2,
        };
        Ok((0..).zip(addresses).map(entry).collect())
    }

    fn async_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn next_async_event(&self) -> Result<Option<AsyncEvent>> {
        let mut world = self.shared.world();
        let node = world.node(self.node);
        let event = node.async_events.pop_front();
        if node.async_events.is_empty() {
            quiet(&node.async_fd);
        }
        Ok(event)
    }

    fn allocate_domain(&self) -> Result<Box<dyn backend::Domain>> {
        self.there("ibv_alloc_pd")?;
        let number = self.shared.world().fresh();
        Ok(Box::new(Domain {
            shared: self.shared.clone(),
            node: self.node,
            number,
        }))
    }

    fn create_completion_queue(
        &self,
        entries: u32,
    ) -> Result<(Box<dyn backend::CompletionQueue>, u32)> {
        self.there("ibv_create_cq")?;
        let fd = descriptor()?;
        let mut world = self.shared.world();
        world.control_call(self.node, "ibv_create_cq");
        let number = CqNumber(world.fresh());
        world
            .cqs
            .insert(number, Cq::new(self.node, entries, fd.clone()));
        drop(world);
        Ok((
            Box::new(CompletionQueue {
                shared: self.shared.clone(),
                node: self.node,
                number,
                fd,
            }),
            entries,
        ))
    }
}

/// A number as what stands for an object of the implementation's own.
fn native(number: u64) -> Native {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a fabric has fewer objects"
    )]
    std::ptr::without_provenance_mut(number as usize)
}

#[derive(Debug)]
struct Domain {
    shared: Arc<Shared>,
    node: NodeId,
    number: DomainNumber,
}

impl backend::Domain for Domain {
    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Box<dyn backend::Region>> {
        let address = base.expose_provenance() as u64;
        let mut world = self.shared.world();
        let bytes = len as u64;
        world.control_call(self.node, "ibv_reg_mr");
        let node = world.node(self.node);
        if node.locked.saturating_add(bytes) > node.locked_max {
            let subject = format!("{bytes} bytes");
            return Err(VerbsError::call("ibv_reg_mr", subject, Errno::ENOMEM));
        }
        node.locked += bytes;
        let tag = world.random();
        let key = world
            .keys
            .add_region(tag, self.number, address, bytes, access);
        drop(world);
        Ok(Box::new(Region {
            shared: self.shared.clone(),
            node: self.node,
            bytes,
            key,
        }))
    }

    fn allocate_window(&self) -> Result<Box<dyn backend::Window>> {
        let mut world = self.shared.world();
        world.control_call(self.node, "ibv_alloc_mw");
        let node = world.node(self.node);
        if node.windows == node.windows_max {
            let subject = format!("memory{}", self.node.0);
            return Err(VerbsError::call("ibv_alloc_mw", subject, Errno::ENOMEM));
        }
        node.windows += 1;
        let tag = world.random();
        let key = world.keys.add_window(tag, self.number);
        drop(world);
        Ok(Box::new(Window {
            shared: self.shared.clone(),
            node: self.node,
            key: AtomicU32::new(key),
        }))
    }

    fn native(&self) -> Native {
        native(self.number)
    }
}

#[derive(Debug)]
struct Region {
    shared: Arc<Shared>,
    node: NodeId,
    bytes: u64,
    key: u32,
}

impl backend::Region for Region {
    fn lkey(&self) -> LKey {
        LKey(self.key)
    }

    fn rkey(&self) -> RKey {
        RKey(self.key)
    }

    fn native(&self) -> Native {
        native(self.key.into())
    }

    fn deregister(&self) -> Result<()> {
        let mut world = self.shared.world();
        world.control_call(self.node, "ibv_dereg_mr");
        if world.keys.has_windows(self.key) {
            return Err(VerbsError::call(
                "ibv_dereg_mr",
                format!("key {:#010x}", self.key),
                Errno::EBUSY,
            ));
        }
        world.keys.remove(self.key);
        world.node(self.node).locked -= self.bytes;
        Ok(())
    }
}

#[derive(Debug)]
struct Window {
    shared: Arc<Shared>,
    node: NodeId,
    key: AtomicU32,
}

impl Drop for Window {
    fn drop(&mut self) {
        let mut world = self.shared.world();
        world.control_call(self.node, "ibv_dealloc_mw");
        world.node(self.node).windows -= 1;
        world.keys.remove(self.key.load(Ordering::Relaxed));
    }
}

impl backend::Window for Window {
    fn rkey(&self) -> RKey {
        RKey(self.key.load(Ordering::Relaxed))
    }

    fn set_rkey(&self, rkey: RKey) {
        self.key.store(rkey.0, Ordering::Relaxed);
    }

    fn native(&self) -> Native {
        std::ptr::null_mut()
    }
}

#[derive(Debug)]
struct CompletionQueue {
    shared: Arc<Shared>,
    node: NodeId,
    number: CqNumber,
    fd: Arc<EventFd>,
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let mut world = self.shared.world();
        world.control_call(self.node, "ibv_destroy_cq");
        world.cqs.remove(&self.number);
    }
}

impl backend::CompletionQueue for CompletionQueue {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn poll(&self, out: &mut Vec<Completion>, max: usize) -> Result<usize> {
        Ok(self.shared.world().poll(self.number, out, max))
    }

    fn arm(&self, solicited_only: bool) -> Result<()> {
        if let Some(queue) = self.shared.world().cqs.get_mut(&self.number) {
            // Armed for all stays so, whatever comes (InfiniBand spec 11.4.2.2).
            queue.armed = Some(solicited_only && queue.armed.unwrap_or(true));
        }
        Ok(())
    }

    fn take_events(&self) -> Result<u32> {
        Ok(u32::try_from(quiet(&self.fd)).unwrap_or(u32::MAX))
    }

    fn native(&self) -> Native {
        native(self.number.0)
    }
}

#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) shared: Arc<Shared>,
    pub(super) node: NodeId,
    pub(super) number: QpNumber,
}

impl QueuePair {
    fn refused(
        &self,
        posted: usize,
        call: &'static str,
        queue: &'static str,
        why: &NoPost,
    ) -> PostError {
        let queue_pair = self.number.0;
        let error = match *why {
            NoPost::Full(capacity) => VerbsError::QueueFull {
                queue,
                queue_pair,
                capacity,
            },
            NoPost::State(state) => VerbsError::state(call, queue_pair, state),
            NoPost::Gone => VerbsError::state(call, queue_pair, QpState::Reset),
        };
        PostError { posted, error }
    }
}

impl backend::QueuePair for QueuePair {
    fn number(&self) -> QpNumber {
        self.number
    }

    fn post_send(&self, requests: &[SendRequest<'_>]) -> std::result::Result<(), PostError> {
        let mut world = self.shared.world();
        let mut outcome = Ok(());
        for (posted, request) in requests.iter().enumerate() {
            let wr = SendWr {
                id: request.id,
                work: work(&request.operation),
                signaled: request.signaled,
                fence: request.fence,
                psn: None,
                outcome: None,
            };
            if let Err(why) = world.post_send(self.number, wr) {
                outcome = Err(self.refused(posted, "ibv_post_send", "send queue", &why));
                break;
            }
            if let Operation::Bind {
                window,
                registration,
                ..
            } = request.operation
            {
                window.bind_posted(registration);
            }
        }
        world.transmit(self.number);
        outcome
    }

    fn post_receive(&self, requests: &[ReceiveRequest<'_>]) -> std::result::Result<(), PostError> {
        let mut world = self.shared.world();
        for (posted, request) in requests.iter().enumerate() {
            let wr = ReceiveWr {
                id: request.id,
                entries: sges(request.entries),
            };
            let done = world.post_receive(self.number, wr);
            done.map_err(|why| self.refused(posted, "ibv_post_recv", "receive queue", &why))?;
        }
        Ok(())
    }

    fn state(&self) -> Result<QpState> {
        Ok(self
            .shared
            .world()
            .qp(self.number)
            .map_or(QpState::Reset, |qp| qp.state))
    }

    fn destroy(&self) -> Result<()> {
        let mut world = self.shared.world();
        world.control_call(self.node, "ibv_destroy_qp");
        if world.node(self.node).keeps_queue_pairs {
            let subject = format!("queue pair {}", self.number.0);
            return Err(VerbsError::call("ibv_destroy_qp", subject, Errno::EIO));
        }
        world.qp_gone(self.number);
        Ok(())
    }

    fn move_to_error(&self) -> Result<()> {
        self.shared.world().enter_error(self.number);
        Ok(())
    }
}

fn work(operation: &Operation<'_>) -> Work {
    let source = |gather: Gather<'_>| match gather {
        Gather::Entries(entries) => Source::Entries(sges(entries)),
        Gather::Inline(bytes) => Source::Inline(bytes.to_vec()),
    };
    match *operation {
        Operation::Send {
            gather,
            invalidate,
            solicited,
        } => Work::Send {
            source: source(gather),
            invalidate,
            solicited,
        },
        Operation::Write { gather, remote } => Work::Write {
            source: source(gather),
            remote,
        },
        Operation::Read { entries, remote } => Work::Read {
            entries: sges(entries),
            remote,
        },
        Operation::LocalInvalidate { rkey } => Work::Invalidate(rkey),
        Operation::Bind {
            window,
            registration,
            offset,
            len,
            access,
        } => Work::Bind(Bind {
            window: window.rkey(),
            next: window.next_rkey(),
            region: registration.lkey(),
            // The range was checked before.
            address: registration.remote_address(offset).unwrap_or_default(),
            len: len as u64,
            access,
        }),
    }
}
