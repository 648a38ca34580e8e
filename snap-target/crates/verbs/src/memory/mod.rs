//! A fabric in memory: nodes with one device each, links between them, and a clock. For tests of what stands on verbs, and of verbs themselves.
//!
//! **What it is.** Everything that happens is on one list, in the order of a virtual clock; what happens by chance comes from one seed. A test steps
//! the clock ([`Fabric::step`], [`Fabric::advance`]), so it never waits and always sees the same; or the clock follows the real one ([`Fabric::real_time`]), for programs with
//! threads that sleep on descriptors.
//!
//! Links lose, delay, duplicate and reorder what goes below a reliable connection; connections hide it but for time, and count their retries. Payload
//! is copied when it is delivered, with the rights of that moment: what is taken back too early shows as an error, or as a wrong byte.
//!
//! It is stricter than most devices where the specifications leave room: a full send queue makes room when completions are polled, not before; completions of a dropped queue
//! pair still come; private data comes padded.
//!
//! **What it does not do.** A message is one packet, so it arrives as a whole or not at all; there is no congestion, and bandwidth has no end.

mod clock;
mod cm;
mod cm_arrivals;
mod devices;
mod handles;
mod keys;
mod qp;
mod requester;
mod responder;
mod world;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use self::handles::Transport;
pub use self::world::Link;
use self::world::{NodeId, World};
use crate::device::Verbs;

/// The nodes, the links and the clock. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fabric {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    world: Mutex<World>,
    /// Told where a thread runs the clock and something new may be due.
    changed: std::sync::Condvar,
}

impl Shared {
    fn world(&self) -> Using<'_> {
        Using {
            world: self.world.lock().unwrap_or_else(PoisonError::into_inner),
            changed: &self.changed,
        }
    }
}

/// The world, while one thread has it. Whoever runs the clock hears of it afterwards: before, it may not be waiting yet, and would sleep through what is new.
struct Using<'a> {
    world: MutexGuard<'a, World>,
    changed: &'a std::sync::Condvar,
}

impl std::ops::Deref for Using<'_> {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl std::ops::DerefMut for Using<'_> {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.changed.notify_all();
    }
}

impl Fabric {
    /// A fabric without nodes, whose clock stands until it is stepped.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                world: Mutex::new(World::new(seed)),
                changed: std::sync::Condvar::new(),
            }),
        }
    }

    /// A fabric whose clock follows the real one, until its last handle and the last of what was made on it are gone.
    ///
    /// # Errors
    /// The thread that runs the clock could not be started.
    pub fn real_time(seed: u64) -> std::io::Result<Self> {
        let fabric = Self::new(seed);
        clock::run(&fabric.shared)?;
        Ok(fabric)
    }

    /// A fresh node with these addresses and one device.
    ///
    /// # Errors
    /// Its descriptor could not be made.
    pub fn node(&self, addresses: &[IpAddr]) -> crate::Result<Node> {
        let id = self.shared.world().add_node(addresses)?;
        Ok(Node {
            shared: self.shared.clone(),
            id,
        })
    }

    /// How messages go from one node to another, in this direction.
    pub fn set_link(&self, from: &Node, to: &Node, link: Link) {
        self.shared.world().set_link(from.id, to.id, link);
    }

    /// How messages go between all nodes.
    pub fn set_links(&self, link: Link) {
        self.shared.world().set_links(link);
    }

    /// Lets the next thing happen, and sets the clock to its time. False where nothing is to come.
    pub fn step(&self) -> bool {
        self.shared.world().step(None)
    }

    /// Lets everything happen that is due within so much time.
    pub fn advance(&self, by: Duration) {
        let mut world = self.shared.world();
        let until = world.now_ns + ns(by);
        while world.step(Some(until)) {}
        world.now_ns = until;
    }

    /// What the clock shows.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.world().now_ns)
    }

    /// Messages that were handed to links, messages that these lost or duplicated, and messages that connections sent again.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.world().counts
    }
}

/// What happened on a fabric so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages handed to links.
    pub sent: u64,
    /// Messages that a link lost, or that came to a node or queue pair that was gone.
    pub lost: u64,
    /// Messages that a link delivered twice.
    pub duplicated: u64,
    /// Messages that a connection sent again.
    pub resent: u64,
}

/// One node of a fabric. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Node {
    shared: Arc<Shared>,
    id: NodeId,
}

impl Node {
    /// The node's verbs.
    #[must_use]
    pub fn verbs(&self) -> Verbs {
        Verbs::new(Arc::new(Transport {
            shared: self.shared.clone(),
            node: self.id,
        }))
    }

    /// The node is gone, without a word to anybody.
    pub fn kill(&self) {
        self.shared.world().kill(self.id);
    }

    /// No more than so many bytes may be registered on the node from now on, as by RLIMIT_MEMLOCK; what is registered stays.
    pub fn lock_at_most(&self, bytes: u64) {
        self.shared.world().node(self.id).locked_max = bytes;
    }

    /// The node's device has no more memory windows than so many from now on; those that are there stay.
    pub fn have_windows_at_most(&self, count: u64) {
        self.shared.world().node(self.id).windows_max = count;
    }

    /// The node's device refuses to destroy queue pairs from now on, and goes on with them.
    pub fn keep_queue_pairs(&self) {
        self.shared.world().node(self.id).keeps_queue_pairs = true;
    }

    /// Whether the node's processes have no descriptor left for another channel (EMFILE); those that are there stay.
    pub fn run_out_of_descriptors(&self, is_out: bool) {
        self.shared.world().node(self.id).is_out_of_descriptors = is_out;
    }

    /// The calls so far that make, register and destroy, in libibverbs' words, and the threads that made them: a real device takes its time for each.
    #[must_use]
    pub fn control_calls(&self) -> Vec<(&'static str, ThreadId)> {
        self.shared.world().node(self.id).control_calls.clone()
    }

    /// The node's device goes: its identifiers are told, and its queue pairs fail.
    pub fn remove_device(&self) {
        self.shared.world().remove_device(self.id);
    }

    /// After [`Node::remove_device`]: the node has a device again, another one.
    pub fn bring_device(&self) {
        self.shared.world().bring_device(self.id);
    }

    /// The node's addresses move to another device: its identifiers are told.
    pub fn move_addresses(&self) {
        self.shared.world().move_addresses(self.id);
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
