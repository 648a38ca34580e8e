//! Changes what a target serves while it serves it, and tells what it is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use namespace::Namespace;
use nvme::controller::{
    ConfigError, ControllerId, HostPolicy, Lifetime, Referral, Subsystem, Transport, Visibility,
};
use nvme::nqn::Nqn;
use nvme_spec::Nsid;

use crate::life::Life;
use crate::link::Bound;
use crate::message::{Control, Message};

/// How long a call waits before it looks whether the target is still there.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Reaches the front desk of a target from any thread but its reactors'.
///
/// Contract: a call returns when the change is in force on every reactor, the hosts that it concerns were told, and no new command gets to what it took
/// away, or when nothing of it was done. Operations that a store has of it are waited for for a moment; [`Closed`] says where some are left.
/// Calls may come from several threads; each is carried out as a whole.
#[derive(Clone, Debug)]
pub struct Admin {
    desk: Control,
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// No subsystem of this name.
    #[error("there is no subsystem {nqn}")]
    NoSubsystem {
        /// The name.
        nqn: Nqn,
    },
    /// No namespace of this number in the subsystem.
    #[error("{nqn} has no namespace {nsid}")]
    NoNamespace {
        /// The subsystem.
        nqn: Nqn,
        /// What was asked for.
        nsid: Nsid,
    },
    /// The NSID is in use, or on its way in or out.
    #[error("{nqn} has a namespace {nsid} already")]
    NsidTaken {
        /// The subsystem.
        nqn: Nqn,
        /// Which.
        nsid: Nsid,
    },
    /// Hosts take two namespaces of one UUID for two paths to one disk.
    #[error("{nqn} presents the same content, under the same UUID, as namespace {nsid}")]
    SameContent {
        /// The subsystem.
        nqn: Nqn,
        /// The namespace that has it.
        nsid: Nsid,
    },
    /// A namespace that is replaced keeps its UUID and block size.
    #[error("namespace {nsid} can be replaced by the same disk only: {what} differs")]
    OtherDisk {
        /// Which.
        nsid: Nsid,
        /// What.
        what: &'static str,
    },
    /// NVMe cannot have it, or limits are against it.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A reactor could not take the namespace in.
    #[error("reactor {reactor} cannot take the namespace in: {why}")]
    Reactor {
        /// Which.
        reactor: u16,
        /// What went wrong there.
        why: String,
    },
    /// As many as there may be.
    #[error("a target has {limit} {what} at most")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        limit: usize,
    },
    /// A connection is made before its subsystem is known, so none has more than the target's limits.
    #[error(
        "a subsystem's queue entries and transfer size may not exceed those of the target, and its in-capsule size is the target's"
    )]
    Connection,
    /// No listener of this port.
    #[error("there is no listener with port id {port_id}")]
    NoListener {
        /// PORTID.
        port_id: u16,
    },
    /// The port id is in use.
    #[error("there is a listener with port id {port_id} already")]
    ListenerTaken {
        /// PORTID.
        port_id: u16,
    },
    /// The reactor has no room for one more listener.
    #[error("the listener cannot be served: {why}")]
    Listener {
        /// What went wrong.
        why: String,
    },
    /// No controller of this identifier.
    #[error("there is no controller {id}", id = id.0)]
    NoController {
        /// CNTLID.
        id: ControllerId,
    },
    /// The target has ended, or is about to.
    #[error("the target is stopping")]
    Stopped,
}

/// What is left of what a change took away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Nothing.
    Done,
    /// No new command gets there; operations of a store are still under way.
    Later(Closing),
}

/// Operations of a store that a change left. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Closing(Arc<AtomicBool>);

impl PartialEq for Closing {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Closing {}

impl Closing {
    /// The last of them has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Says so. For the front desk, and for who stands in for it.
    pub fn end(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// One controller as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerReport {
    /// CNTLID.
    pub id: ControllerId,
    /// Its subsystem; none for a discovery controller.
    pub subsystem: Option<Nqn>,
    /// HOSTNQN.
    pub host: Nqn,
    /// HOSTID.
    pub host_id: [u8; 16],
    /// What carries its admin queue; none where that is gone already.
    pub transport: Option<Transport>,
    /// From where its admin queue came.
    pub peer: Option<SocketAddr>,
    /// At which of our addresses.
    pub local: Option<SocketAddr>,
    /// The number of the listener that its admin queue came in at; none where that queue is gone already.
    pub port_id: Option<u16>,
    /// QIDs of its I/O queues.
    pub io_queues: Vec<u16>,
    /// KATO in milliseconds; 0: none.
    pub kato_ms: u32,
    /// When its Connect was answered; none where its admin queue is gone already.
    pub connected_at: Option<SystemTime>,
    /// CC.EN and CSTS.RDY.
    pub ready: bool,
}

/// What an [`Admin`] asks of the desk, and where the answer goes.
#[derive(Debug)]
pub(crate) enum Request {
    CreateSubsystem(Subsystem, Box<Life>, Reply),
    DeleteSubsystem(Nqn, Reply<Closed>),
    SetHosts(Nqn, HostPolicy, Reply<Closed>),
    Attach(Nqn, Arc<Namespace>, Visibility, Reply<Closed>),
    Replace(Nqn, Arc<Namespace>, Reply<Closed>),
    Detach(Nqn, Nsid, Reply<Closed>),
    SetVisibility(Nqn, Nsid, Visibility, Reply<Closed>),
    AddListener(u16, Box<dyn Bound>, Reply),
    RemoveListener(u16, Reply),
    RemoveFunction(u16, Reply<Closed>),
    SetReferrals(Vec<Referral>, Reply),
    EndController(ControllerId, Reply<Closed>),
    Controllers(Reply<Vec<ControllerReport>>),
    Lifetimes(Reply<Vec<(Nqn, Lifetime)>>),
}

/// Where the answer to a request goes. Dropped without one, the target has stopped.
#[derive(Debug)]
pub(crate) struct Reply<T = ()>(SyncSender<Result<T, AdminError>>);

impl<T> Reply<T> {
    fn new() -> (Self, Receiver<Result<T, AdminError>>) {
        let (sender, receiver) = sync_channel(1);
        (Self(sender), receiver)
    }

    pub(crate) fn send(self, answer: Result<T, AdminError>) {
        // Who asked has a place for one answer, or is gone.
        let _sent = self.0.try_send(answer);
    }
}

impl Admin {
    /// `desk` reaches the first reactor.
    #[must_use]
    pub fn new(desk: Control) -> Self {
        Self { desk }
    }

    /// One more subsystem, without namespaces, whose life goes on from what it brings.
    ///
    /// # Errors
    /// [`AdminError::Config`]: the name is taken, or it contradicts itself.
    pub fn create_subsystem(&self, subsystem: Subsystem, life: Life) -> Result<(), AdminError> {
        self.ask(|reply| Request::CreateSubsystem(subsystem, Box::new(life), reply))
    }

    /// Ends a subsystem: its controllers, and its namespaces.
    ///
    /// # Errors
    /// [`AdminError::NoSubsystem`].
    pub fn delete_subsystem(&self, nqn: &Nqn) -> Result<Closed, AdminError> {
        self.ask(|reply| Request::DeleteSubsystem(nqn.clone(), reply))
    }

    /// Which hosts may connect. The controllers of others end.
    ///
    /// # Errors
    /// [`AdminError::NoSubsystem`].
    pub fn set_hosts(&self, nqn: &Nqn, hosts: HostPolicy) -> Result<Closed, AdminError> {
        self.ask(|reply| Request::SetHosts(nqn.clone(), hosts, reply))
    }

    /// One more namespace, under the NSID that it names.
    ///
    /// # Errors
    /// [`AdminError::NoSubsystem`], [`AdminError::NsidTaken`], [`AdminError::SameContent`], [`AdminError::Config`], [`AdminError::Reactor`].
    pub fn attach(
        &self,
        nqn: &Nqn,
        namespace: Arc<Namespace>,
        visibility: Visibility,
    ) -> Result<(), AdminError> {
        self.ask(|reply| Request::Attach(nqn.clone(), namespace, visibility, reply))
            .map(|_nothing_closes| ())
    }

    /// Another state of a namespace, made with [`Namespace::succeeding`]: another size, as a rule. Requests under way end on the old one.
    ///
    /// # Errors
    /// As [`Admin::attach`] and [`Admin::detach`]; [`AdminError::OtherDisk`].
    pub fn replace(&self, nqn: &Nqn, namespace: Arc<Namespace>) -> Result<Closed, AdminError> {
        self.ask(|reply| Request::Replace(nqn.clone(), namespace, reply))
    }

    /// One namespace less; its stores are closed when this returns, or as [`Closed`] says.
    ///
    /// # Errors
    /// [`AdminError::NoSubsystem`], [`AdminError::NoNamespace`].
    pub fn detach(&self, nqn: &Nqn, nsid: Nsid) -> Result<Closed, AdminError> {
        self.ask(|reply| Request::Detach(nqn.clone(), nsid, reply))
    }

    /// Which hosts see a namespace. From others it goes as if it were detached; what they had begun goes on to its end and is answered.
    ///
    /// # Errors
    /// [`AdminError::NoSubsystem`], [`AdminError::NoNamespace`].
    pub fn set_visibility(
        &self,
        nqn: &Nqn,
        nsid: Nsid,
        visibility: Visibility,
    ) -> Result<Closed, AdminError> {
        self.ask(|reply| Request::SetVisibility(nqn.clone(), nsid, visibility, reply))
    }

    /// Listens at one more address.
    ///
    /// # Errors
    /// [`AdminError::ListenerTaken`], [`AdminError::Listener`].
    pub fn add_listener(&self, port_id: u16, listener: Box<dyn Bound>) -> Result<(), AdminError> {
        self.ask(|reply| Request::AddListener(port_id, listener, reply))
    }

    /// Takes no more connections at an address. Those that are there stay.
    ///
    /// # Errors
    /// [`AdminError::NoListener`].
    pub fn remove_listener(&self, port_id: u16) -> Result<(), AdminError> {
        self.ask(|reply| Request::RemoveListener(port_id, reply))
    }

    /// Takes no more clients at a PCIe function, and ends the controller of the one that has it: it is let go.
    ///
    /// # Errors
    /// [`AdminError::NoListener`].
    pub fn remove_function(&self, port_id: u16) -> Result<Closed, AdminError> {
        self.ask(|reply| Request::RemoveFunction(port_id, reply))
    }

    /// Other discovery services that hosts are told of.
    ///
    /// # Errors
    /// [`AdminError::Stopped`].
    pub fn set_referrals(&self, referrals: Vec<Referral>) -> Result<(), AdminError> {
        self.ask(|reply| Request::SetReferrals(referrals, reply))
    }

    /// Ends a controller; its host may connect again.
    ///
    /// # Errors
    /// [`AdminError::NoController`].
    pub fn end_controller(&self, id: ControllerId) -> Result<Closed, AdminError> {
        self.ask(|reply| Request::EndController(id, reply))
    }

    /// All controllers, by CNTLID.
    ///
    /// # Errors
    /// [`AdminError::Stopped`].
    pub fn controllers(&self) -> Result<Vec<ControllerReport>, AdminError> {
        self.ask(Request::Controllers)
    }

    /// The lives of all subsystems until now.
    ///
    /// # Errors
    /// [`AdminError::Stopped`].
    pub fn lifetimes(&self) -> Result<Vec<(Nqn, Lifetime)>, AdminError> {
        self.ask(Request::Lifetimes)
    }

    fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, AdminError> {
        let (reply, answer) = Reply::new();
        self.desk.send(Message::Request(Box::new(request(reply))));
        loop {
            match answer.recv_timeout(LOOK_AGAIN) {
                Ok(answer) => return answer,
                // A request that came behind the last turn of the desk is answered by nobody.
                Err(RecvTimeoutError::Timeout) if !self.desk.is_over() => {}
                Err(_) => return Err(AdminError::Stopped),
            }
        }
    }
}
