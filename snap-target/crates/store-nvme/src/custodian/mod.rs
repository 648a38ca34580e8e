//! Keeps the associations of one remote store: brings paths up and up again, keeps them alive, and deals queues out to the handles.
//!
//! It has a ring and, outside of tests, a thread of its own: data never pass through it, so that a reactor that is busy, or gone, lets no
//! keep-alive expire, and a path that is lost is lost for all handles at one moment.

mod admin;
mod bringing;
mod keeper;
mod members;
mod refusals;
mod same;

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nvme::Time;
use nvme::initiator::NamespaceInfo;
use reactor::{ReactorError, Receiver, Ring, RingConfig, Sender, Wait, channel};
use store::SharedStore;

use crate::OptionsError;
use crate::backend::RemoteBackend;
use crate::clock::Clock;
use crate::message::{ABORTS_MAX, Abort, HandleId, MESSAGES_MAX, ToCustodian};
use crate::options::{PATHS_MAX, RemoteOptions};
use crate::queue::Transport;
use crate::shared::{PathIndex, Shared};
pub(crate) use admin::{AdminEvent, AdminQueue, Purpose};
use keeper::Keeper;
use members::Member;

/// Time for handles to leave and controllers to be shut down once the store is gone.
const FAREWELL: Duration = Duration::from_secs(1);

/// Associations of one path, where a controller grants fewer queues than there are reactors.
const ASSOCIATIONS_PER_PATH_MAX: usize = 8;

/// What a remote store is made of.
#[derive(Clone, Debug)]
pub struct Remote {
    /// As the user named it, for errors and tables.
    pub name: String,
    /// The subsystem.
    pub subnqn: String,
    /// Where it is reached: the paths.
    pub addresses: Vec<SocketAddr>,
    /// What carries the queues.
    pub transport: Arc<dyn Transport>,
    /// Everything else.
    pub options: RemoteOptions,
    /// Whether changes are taken.
    pub is_writable: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Custodian {
    remote: Remote,
    ring: Ring,
    clock: Clock,
    sender: Sender<ToCustodian>,
    inbox: Receiver<ToCustodian>,
    abort_sender: Sender<Abort>,
    aborts: Receiver<Abort>,
    keepers: Vec<Keeper>,
    members: Vec<Member>,
    seed: u64,
    /// Once the namespace is known.
    shared: Option<Arc<Shared>>,
    is_handed_out: bool,
    /// The store is gone; everything ends by then.
    ends_by: Option<Time>,
}

/// What the keepers see of the rest.
struct Surroundings<'a> {
    ring: &'a Ring,
    clock: &'a Clock,
    remote: &'a Remote,
    members: &'a [Member],
    /// Handles that have a queue of another association of the path.
    served: &'a [HandleId],
    shared: &'a mut Option<Arc<Shared>>,
    is_ending: bool,
}

impl Custodian {
    /// One that has begun nothing yet, on a ring of its own for the calling thread.
    ///
    /// # Errors
    /// Options that do not fit together, no path, or no ring.
    pub fn new(remote: Remote, clock: Clock, seed: u64) -> Result<Self, NewError> {
        remote.options.check()?;
        if remote.addresses.is_empty() || remote.addresses.len() > PATHS_MAX {
            return Err(NewError::Options(OptionsError::Paths {
                paths: remote.addresses.len(),
                max: PATHS_MAX,
            }));
        }
        let ring = Ring::new(&ring_config())?;
        let (sender, inbox) = channel(&ring, MESSAGES_MAX);
        let (abort_sender, aborts) = channel(&ring, ABORTS_MAX);
        let now = clock.now();
        let keepers = remote.addresses.iter().enumerate().map(|(index, to)| {
            let index = PathIndex(index);
            Keeper::new(index, index, *to, &remote, seed_of(seed, index), now)
        });
        Ok(Self {
            keepers: keepers.collect(),
            seed,
            remote,
            ring,
            clock,
            sender,
            inbox,
            abort_sender,
            aborts,
            members: Vec::new(),
            shared: None,
            is_handed_out: false,
            ends_by: None,
        })
    }

    /// One turn: waits for something to do where `may_wait`, and does it.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn turn(&mut self, may_wait: bool) -> Result<(), ReactorError> {
        let wait = if may_wait {
            let deadline = self.deadline();
            Wait::Block {
                until: deadline.map(|at| self.clock.instant(at)),
            }
        } else {
            Wait::Poll
        };
        self.ring.turn(wait)?;
        while self.ring.next_ready().is_some() {}
        let now = self.clock.now();
        self.take_messages(now);
        let is_ending = self.ends_by.is_some() && self.members.is_empty();
        for index in 0..self.keepers.len() {
            let served = self.served_beside(index);
            let mut around = Surroundings {
                ring: &self.ring,
                clock: &self.clock,
                remote: &self.remote,
                members: &self.members,
                served: &served,
                shared: &mut self.shared,
                is_ending,
            };
            if let Some(keeper) = self.keepers.get_mut(index) {
                keeper.turn(now, &mut around);
            }
        }
        self.extend(now);
        self.lend();
        self.report();
        Ok(())
    }

    /// The handles that have a queue of another association of this one's path.
    fn served_beside(&self, index: usize) -> Vec<HandleId> {
        let Some(path) = self.keepers.get(index).map(Keeper::path) else {
            return Vec::new();
        };
        let others = self.keepers.iter().enumerate();
        let others = others.filter(|(other, keeper)| *other != index && keeper.path() == path);
        others.flat_map(|(_, keeper)| keeper.served()).collect()
    }

    /// Connects a path once more, to another controller, where those that it has grant no queue to some handles.
    fn extend(&mut self, now: Time) {
        if self.ends_by.is_some() {
            return;
        }
        for (path, to) in self.remote.addresses.iter().enumerate() {
            let path = PathIndex(path);
            let of_path = || self.keepers.iter().filter(|keeper| keeper.path() == path);
            let has_queue = |member: &Member| of_path().any(|keeper| keeper.deals_with(member.id));
            let can =
                of_path().count() < ASSOCIATIONS_PER_PATH_MAX && of_path().all(Keeper::is_full);
            if !can || self.members.iter().all(has_queue) {
                continue;
            }
            let index = PathIndex(self.keepers.len());
            let seed = seed_of(self.seed, index);
            let keeper = Keeper::new(index, path, *to, &self.remote, seed, now);
            tracing::info!(store = %self.remote.name, path = %to, "the controller grants fewer queues than there are reactors: the path is connected once more");
            self.keepers.push(keeper);
            return;
        }
    }

    /// Handles without a queue that leads anywhere go through those of others.
    fn lend(&mut self) {
        let Some(shared) = &self.shared else {
            return;
        };
        let keepers = &self.keepers;
        let has_way = |id| keepers.iter().any(|keeper| keeper.carries(id));
        let borrowers = members::arrange(&mut self.members, has_way);
        shared.borrowers.store(borrowers, Ordering::Relaxed);
    }

    /// When the next turn is due though nothing happens.
    fn deadline(&self) -> Option<Time> {
        let of_keepers = self.keepers.iter().filter_map(Keeper::deadline);
        of_keepers.chain(self.ends_by).min()
    }

    fn take_messages(&mut self, now: Time) {
        while let Some(message) = self.inbox.try_recv() {
            match message {
                ToCustodian::Join {
                    handle,
                    sender,
                    lending,
                } => {
                    self.members.push(Member {
                        id: handle,
                        sender,
                        lending,
                        lender: None,
                    });
                }
                ToCustodian::Leave { handle } => {
                    self.members.retain(|member| member.id != handle);
                    for keeper in &mut self.keepers {
                        keeper.left(handle);
                    }
                }
                ToCustodian::QueueLost { association, why } => {
                    if let Some(keeper) = self.keepers.get_mut(association.path.0) {
                        keeper.queue_lost(association, why);
                    }
                }
                ToCustodian::End => {
                    self.ends_by.get_or_insert(now + FAREWELL);
                }
            }
        }
        while let Some(abort) = self.aborts.try_recv() {
            if let Some(keeper) = self.keepers.get_mut(abort.association.path.0) {
                keeper.abort(abort, now);
            }
        }
    }

    /// The store, once, when a path has stood and its namespace was seen. When it and all its handles are gone, everything ends.
    pub fn take_store(&mut self) -> Option<OpenedRemote> {
        let shared = self.shared.as_ref()?.clone();
        if std::mem::replace(&mut self.is_handed_out, true) {
            return None;
        }
        let namespace = shared.namespace.clone();
        let store = SharedStore::new(RemoteBackend::new(
            shared,
            self.sender.clone(),
            self.abort_sender.clone(),
        ));
        Some(OpenedRemote { store, namespace })
    }

    /// Why there is no store, once every path has been tried in vain; a line each.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if self.shared.is_some() {
            return None;
        }
        let lines: Option<Vec<String>> = self.keepers.iter().map(Keeper::failure).collect();
        Some(lines?.join("; "))
    }

    /// How far each path is, while there is no store.
    fn standing(&self) -> String {
        let lines: Vec<String> = self.keepers.iter().map(Keeper::standing).collect();
        lines.join("; ")
    }

    /// Whether the store is gone, and with it all that was kept for it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ends_by.is_some_and(|by| {
            self.clock.now() >= by
                || self.members.is_empty() && self.keepers.iter().all(Keeper::is_gone)
        })
    }

    fn report(&self) {
        let Some(shared) = &self.shared else {
            return;
        };
        let reports = self.keepers.iter().filter_map(|keeper| {
            let path = keeper.path();
            let mut of_path = self.keepers.iter().filter(|keeper| keeper.path() == path);
            let has_none = |member: &&Member| !of_path.clone().any(|it| it.serves(member.id));
            let without = self.members.iter().filter(has_none).count();
            // It is said once of a path.
            let is_first = of_path
                .next()
                .is_some_and(|first| std::ptr::eq(first, keeper));
            if is_first {
                let further = of_path.find_map(Keeper::refused_ever);
                Some((keeper.index(), keeper.report(without, further)))
            } else {
                // One that could not be had is no path that is down.
                keeper
                    .refused_ever()
                    .is_none()
                    .then(|| (keeper.index(), keeper.report(0, None)))
            }
        });
        shared.set_reports(reports.collect());
    }
}

/// Why there is no custodian.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NewError {
    /// What it was told does not fit together.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// No ring.
    #[error(transparent)]
    Ring(#[from] ReactorError),
}

/// Of one path's chances.
fn seed_of(seed: u64, index: PathIndex) -> u64 {
    seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (index.0 as u64 + 1)
}

/// A small ring: admin queues, and I/O queues on their way to their handles.
pub(crate) fn ring_config() -> RingConfig {
    RingConfig {
        ops_max: 512,
        submissions: 64,
        owners_max: 512,
        events_max: 1024,
        timers_max: 512,
        recv_buffers: 8,
        ..RingConfig::default()
    }
}

/// A remote store that is open.
#[derive(Debug)]
pub struct OpenedRemote {
    /// The store. When it and its handles are gone, its controllers are shut down.
    pub store: SharedStore,
    /// The namespace that it is.
    pub namespace: NamespaceInfo,
}

/// Opens a remote store: starts the thread that keeps its associations, and waits until a path stands.
///
/// # Errors
/// [`store::StoreError::Connect`]: what happened on each path; [`store::StoreError::Resources`].
pub fn open(remote: Remote) -> Result<OpenedRemote, store::StoreError> {
    let name = remote.name.clone();
    let resources = |why: String| store::StoreError::Resources {
        store: name.clone(),
        why,
    };
    let (sender, opened) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("nvme-paths".to_owned());
    let kept = remote.clone();
    thread
        .spawn(move || keep(kept, &sender))
        .map_err(|error| resources(format!("starting a thread failed: {error}")))?;
    match opened.recv() {
        Ok(Ok(store)) => Ok(store),
        Ok(Err(why)) => Err(store::StoreError::Connect { store: name, why }),
        Err(_) => Err(resources("its thread ended at once".to_owned())),
    }
}

type Opened = std::sync::mpsc::SyncSender<Result<OpenedRemote, String>>;

/// The custodian's thread.
fn keep(remote: Remote, opened: &Opened) {
    let name = remote.name.clone();
    // By when a store that has not answered counts as not there, though some path is still being tried.
    let patience = remote.options.connect_timeout + remote.options.keep_alive;
    let start = Instant::now();
    // Two hosts, or two paths of one, are not to come back at the same moments.
    let seed = RandomState::new().hash_one(std::process::id());
    let mut custodian = match Custodian::new(remote, Clock::since(start), seed) {
        Ok(custodian) => custodian,
        Err(error) => {
            let _ = opened.send(Err(error.to_string()));
            return;
        }
    };
    let mut waits = true;
    while !custodian.has_ended() {
        if let Err(error) = custodian.turn(true) {
            tracing::error!(store = %name, %error, "the ring of the store's paths is broken: they end");
            return;
        }
        if !waits {
            continue;
        }
        let answer = if let Some(store) = custodian.take_store() {
            Ok(store)
        } else if let Some(why) = custodian.failure() {
            Err(why)
        } else if start.elapsed() >= patience {
            Err(format!(
                "no path stood within {patience:?}: {}",
                custodian.standing()
            ))
        } else {
            continue;
        };
        let is_open = answer.is_ok();
        // Who asked has gone where nobody takes it.
        if opened.send(answer).is_err() || !is_open {
            return;
        }
        waits = false;
    }
}
