//! A function: its client's socket, its registers, and its admin queue. It is on the desk's ring.

mod apart;
mod contract;
mod device;
mod requests;
mod traffic;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use frontend_nvme::link::{LinkError, LinkEvent, LinkLimits};
use guest_memory::{Loss, Windows};
use nvme::controller::Registers;
use nvme::pcie::{CompletionQueue, Queues};
use nvme::queue::QueueId;
use nvme_spec::register::Cc;
use reactor::{Fd, Owner, Ring, TimerId};
use vfio_user::{Outgoing, Server, Ticket};

use self::apart::Apart;
use self::requests::Unmapping;
use crate::bar::Bar;
use crate::common::{Common, View};
use crate::completion::Completions;
use crate::doorbells::DoorbellPage;
use crate::limits::MESSAGES_A_TURN;
use crate::pci::ConfigSpace;
use crate::port::{Doorbells, Names};
use crate::queue::{Queue, Submissions};
use crate::seat::Seat;

/// What an event of the link's owner belongs to.
const TAG_SOCKET: u64 = 0;
const TAG_BELL: u64 = 1;
const TAG_SEND: u64 = 2;
const TAG_RESET: u64 = 3;
const TAG_APART: u64 = 4;

/// Each message takes two receives: its header, its body.
const RECEIVES_A_TURN: u32 = 2 * MESSAGES_A_TURN;

/// See the module.
#[derive(Debug)]
pub(crate) struct FunctionLink {
    owner: Owner,
    socket: Fd,
    bell: Fd,
    server: Server<OwnedFd>,
    names: Names,
    limits: LinkLimits,
    common: Arc<Common>,
    /// What is in force; queues have it from [`Common`].
    view: View,
    config: ConfigSpace,
    bar: Bar,
    admin: Queue,
    /// There is a controller: before that, nothing that the client sends is looked at.
    is_attached: bool,
    /// The controller takes admin commands.
    is_live: bool,
    /// CSTS.RDY, as it was last shown.
    is_ready: bool,
    queues: Queues,
    submissions: BTreeMap<QueueId, Arc<Submissions>>,
    completions: BTreeMap<QueueId, Arc<Completions>>,
    events: VecDeque<LinkEvent>,
    /// Windows that are not unmapped yet, and who waits for that.
    unmapping: Vec<Unmapping>,
    /// Guest memory that goes by messages.
    apart: Apart,
    /// Registers that say that nothing changes the guest's memory any more, while a message does.
    withheld: Option<Registers>,
    /// CC with EN = 1 that was written while a reset was under way.
    early: Option<Cc>,
    /// Who waits for a reset of the device, and until when.
    resetting: Option<(Ticket, TimerId)>,
    /// Doorbells that came as messages: what those in memory spare.
    doorbells_rung: u64,
    receiving: Receiving,
    sending: Option<Sending>,
    /// A timer says when that is tried again.
    is_send_timed: bool,
    is_over: bool,
    /// What the listener knows of it.
    seat: Rc<Seat>,
}

/// What is known of the socket's other end.
#[derive(Debug)]
struct Receiving {
    buffer: Vec<u8>,
    is_waiting_for_socket: bool,
    is_waiting_for_bell: bool,
    /// Something may be there.
    is_readable: bool,
    /// Receives of this turn that are left.
    left: u32,
}

/// A message that the client has taken a part of.
#[derive(Debug)]
struct Sending {
    message: Outgoing,
    sent: usize,
    /// When the client took nothing for the first time.
    stuck_since: Option<Instant>,
}

impl FunctionLink {
    /// A client that has just connected.
    pub(crate) fn new(
        ring: &Ring,
        stream: UnixStream,
        (names, doorbells): (Names, Doorbells),
        limits: &LinkLimits,
        seat: Rc<Seat>,
    ) -> Result<Self, LinkError> {
        let page = match doorbells {
            Doorbells::Rung => None,
            Doorbells::Polled => Some(DoorbellPage::new()?),
        };
        let common = Arc::new(Common::new(page)?);
        let (submissions, completions) = no_queues()?;
        let admin = Queue::new(
            &common,
            submissions,
            completions,
            limits.queue_entries_max,
            limits.transfer_bytes_max,
        );
        let bell = Fd::from(common.bell.try_clone()?);
        let loss = Loss::told_by(common.bell.try_clone()?);
        let socket = Fd::from(stream);
        let owner = ring.register()?;
        seat.take(&socket);
        Ok(Self {
            owner,
            socket,
            bell,
            server: Server::new(device::description(common.page.is_some())),
            names,
            limits: *limits,
            common,
            view: View {
                windows: Windows::of(Arc::new(loss)),
                ..View::default()
            },
            config: ConfigSpace::new(),
            bar: Bar::new(),
            admin,
            is_attached: false,
            is_live: false,
            is_ready: false,
            queues: Queues::default(),
            submissions: BTreeMap::new(),
            completions: BTreeMap::new(),
            events: VecDeque::new(),
            unmapping: Vec::new(),
            apart: Apart::default(),
            withheld: None,
            early: None,
            resetting: None,
            doorbells_rung: 0,
            receiving: Receiving {
                buffer: vec![0; 64 << 10],
                is_waiting_for_socket: false,
                is_waiting_for_bell: false,
                is_readable: true,
                left: RECEIVES_A_TURN,
            },
            sending: None,
            is_send_timed: false,
            is_over: false,
            seat,
        })
    }

    /// Has every queue take up what was published.
    fn ring_all(&mut self) {
        self.admin.refresh();
        for submissions in self.submissions.values() {
            submissions.bell.ring();
        }
    }
}

impl Drop for FunctionLink {
    fn drop(&mut self) {
        self.seat.leave();
        tracing::info!(
            host = self.names.host.as_str(),
            subsystem = self.names.subsystem.as_str(),
            doorbells = self.doorbells_rung,
            messages = self.apart.messages(),
            "the client of a PCIe function is gone"
        );
    }
}

/// An admin queue that is nowhere: before the controller is enabled.
fn no_queues() -> std::io::Result<(Arc<Submissions>, Arc<Completions>)> {
    let nowhere = CompletionQueue {
        id: QueueId::ADMIN,
        base: 0,
        entries: 2,
        vector: None,
    };
    let completions = Completions::new(&nowhere, None);
    let submissions = Submissions::new(QueueId::ADMIN, (0, 2), None)?;
    Ok((Arc::new(submissions), Arc::new(completions)))
}
