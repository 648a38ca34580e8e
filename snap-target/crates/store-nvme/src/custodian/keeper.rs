//! One path: its machine, its admin queue, and the queues that it deals out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nvme::Time;
use nvme::initiator::path::{ADMIN_ENTRIES_Z, Path, PathEvent, PathOptions, PathStep};
use nvme::initiator::{AnaState, Association, AttachIo, Sequence, Shutdown, Step, command};
use nvme::queue::QueueId;
use nvme_spec::tcp::ADMIN_CAPSULE_DATA_BYTES;

use super::admin::{AdminEvent, AdminQueue, Purpose};
use super::bringing::{Bringing, Brought, Failure};
use super::members::tell;
use super::refusals::Refusals;
use super::same::is_same;
use super::{Remote, Surroundings};
use crate::message::{Abort, HandleId, ToHandle};
use crate::options::{HANDLES_MAX, RemoteOptions};
use crate::queue::{Queue, QueueOptions};
use crate::shared::{AssociationId, PathIndex, Shared};
use crate::{PathReport, PathState};

/// Time for a controller to shut down.
const SHUTDOWN_WITHIN: Duration = Duration::from_millis(800);

/// Of the aborts that a controller takes at a time, the most that are asked for: the admin queue has other work.
const ABORTS_AT_ONCE_MAX: u16 = 8;

#[derive(Debug)]
pub(super) struct Keeper {
    index: PathIndex,
    /// The path that it is an association of; the first one has its number.
    of_path: PathIndex,
    to: SocketAddr,
    path: Path,
    admin: Option<AdminQueue>,
    events: Vec<AdminEvent>,
    /// Queues of this association, by the handle that has it or will.
    dealt: BTreeMap<HandleId, u16>,
    /// Handles whose queue did not come up: they go without until the next try.
    refused: Refusals,
    bringing: Vec<Bringing>,
    /// What the handles were told of the way.
    ana: AnaState,
    shutdown: Option<Shutdown>,
    shutting_down: bool,
    /// Aborts that are not answered.
    aborts: u16,
    /// Queues that are closed and have commands that have not ended.
    closing: Vec<Box<dyn Queue>>,
    wake_at: Option<Time>,
    /// Why it was lost last.
    failure: Option<String>,
    /// Its last failure is what stands behind it.
    is_foreign: bool,
    losses: u64,
    /// A connection of the association broke, as a handle says.
    broken: Option<String>,
}

impl Keeper {
    pub fn new(
        index: PathIndex,
        of_path: PathIndex,
        to: SocketAddr,
        remote: &Remote,
        seed: u64,
        now: Time,
    ) -> Self {
        let options = &remote.options;
        let path = PathOptions {
            association: association(remote),
            nsid: options.nsid,
            io_queues_wanted: HANDLES_MAX,
            keep_alive: options.keep_alive,
            quiesce_margin: options.quiesce_margin,
            reconnect_delay_min: options.reconnect_delay_min,
            reconnect_delay_max: options.reconnect_delay_max,
        };
        Self {
            index,
            of_path,
            to,
            path: Path::new(path, seed, now),
            admin: None,
            events: Vec::new(),
            dealt: BTreeMap::new(),
            refused: Refusals::default(),
            aborts: 0,
            bringing: Vec::new(),
            ana: AnaState::Inaccessible,
            shutdown: None,
            shutting_down: false,
            closing: Vec::new(),
            wake_at: Some(now),
            failure: None,
            is_foreign: false,
            losses: 0,
            broken: None,
        }
    }

    /// Which association it is.
    pub fn index(&self) -> PathIndex {
        self.index
    }

    pub fn path(&self) -> PathIndex {
        self.of_path
    }

    /// The handles that have a queue of it, or are about to.
    pub fn served(&self) -> impl Iterator<Item = HandleId> + '_ {
        self.dealt.keys().copied()
    }

    pub fn serves(&self, handle: HandleId) -> bool {
        self.dealt.contains_key(&handle)
    }

    /// Whether a handle's commands go through it now.
    pub fn carries(&self, handle: HandleId) -> bool {
        let is_coming = || self.bringing.iter().any(|it| it.handle == handle);
        self.path.up().is_some() && self.ana.is_usable() && self.serves(handle) && !is_coming()
    }

    /// Whether a handle has a queue, or will be offered one again.
    pub fn deals_with(&self, handle: HandleId) -> bool {
        self.serves(handle) || self.refused.has(handle)
    }

    /// Whether it stands, and every queue that its controller grants is dealt.
    pub fn is_full(&self) -> bool {
        let granted = self.path.up().map(|attached| attached.io_queues);
        granted.is_some_and(|granted| self.dealt.len() >= usize::from(granted))
    }

    fn association_id(&self) -> AssociationId {
        AssociationId {
            path: self.index,
            generation: self.path.generation(),
        }
    }

    /// When to come back though nothing happens.
    pub fn deadline(&self) -> Option<Time> {
        let of_admin = self.admin.as_ref().and_then(AdminQueue::deadline);
        let of_bringing = self.bringing.iter().filter_map(Bringing::deadline);
        let of_closing = self.closing.iter().filter_map(|queue| queue.deadline());
        let of_refused = self.refused.again_at();
        let own = self.wake_at.into_iter().chain(of_admin);
        let own = own.chain(of_refused.filter(|_| self.path.up().is_some()));
        own.chain(of_bringing).chain(of_closing).min()
    }

    pub fn turn(&mut self, now: Time, around: &mut Surroundings<'_>) {
        for queue in &mut self.closing {
            let mut ended = Vec::new();
            queue.poll(now, &mut ended);
            queue.settle();
        }
        self.closing.retain(|queue| !queue.is_closed());
        if let Some(why) = self.broken.take() {
            self.lose(now, why, around);
        }
        self.poll_admin(now, around);
        self.steps(now, around);
        self.deal(now, around);
        self.bring(now, around);
        if let Some(admin) = &mut self.admin {
            admin.settle();
        }
    }

    fn poll_admin(&mut self, now: Time, around: &mut Surroundings<'_>) {
        let mut events = std::mem::take(&mut self.events);
        if let Some(admin) = &mut self.admin {
            admin.poll(now, &mut events);
        }
        for event in events.drain(..) {
            match event {
                AdminEvent::Ready => self.path.admin_up(now),
                AdminEvent::Over(why) => self.lose(now, why, around),
                AdminEvent::Answered { purpose, cqe, data } => match purpose {
                    Purpose::Abort => self.aborts = self.aborts.saturating_sub(1),
                    Purpose::Single => {}
                    Purpose::Shutdown => {
                        self.shutting_down = false;
                        if let Some(shutdown) = &mut self.shutdown {
                            // Whether it went well or not, the connections are closed next.
                            let _ = shutdown.answered(now, &cqe, &data);
                        }
                    }
                    Purpose::Path(of) => match self.path.answered(now, of, &cqe, &data) {
                        Ok(None) => {}
                        Ok(Some(PathEvent::Up)) => self.came_up(now, around),
                        Ok(Some(PathEvent::Changed)) => self.changed(now, around),
                        Err(error) => self.lose(now, error.to_string(), around),
                    },
                },
            }
        }
        self.events = events;
    }

    /// Does what the machine says until it says wait.
    fn steps(&mut self, now: Time, around: &mut Surroundings<'_>) {
        if around.is_ending {
            return self.leave(now, around);
        }
        loop {
            self.wake_at = None;
            match self.path.step(now) {
                PathStep::Wait => return,
                PathStep::WaitUntil(at) => {
                    self.wake_at = Some(at);
                    return;
                }
                PathStep::Connect => self.connect(now, around),
                PathStep::GiveUp(error) => self.lose(now, error.to_string(), around),
                PathStep::Issue {
                    of,
                    command,
                    data_out,
                } => {
                    let purpose = Purpose::Path(of);
                    let issued = match &mut self.admin {
                        Some(admin) => admin.issue(purpose, &command, &data_out, now),
                        None => Err("the admin queue is gone".to_owned()),
                    };
                    if let Err(why) = issued {
                        self.lose(now, why, around);
                    }
                }
            }
        }
    }

    fn connect(&mut self, now: Time, around: &mut Surroundings<'_>) {
        let options = QueueOptions {
            depth: ADMIN_ENTRIES_Z,
            in_capsule_bytes_max: ADMIN_CAPSULE_DATA_BYTES,
            // An Asynchronous Event Request has no time of its own; Keep Alive has, and ends the association.
            command_timeout: Duration::MAX,
            ..queue_options(&around.remote.options)
        };
        let transport = &around.remote.transport;
        match transport.connect(around.ring, self.to, &options, around.clock.clone()) {
            Ok(queue) => self.admin = Some(AdminQueue::new(queue)),
            Err(error) => self.lose(now, error.to_string(), around),
        }
    }

    /// The association is over: every connection of it is closed, the handles are told, and its controller's death is reckoned.
    fn lose(&mut self, now: Time, why: String, around: &mut Surroundings<'_>) {
        let association = self.association_id();
        let was_up = self.path.up().is_some();
        let dead_after = self.path.dead_after();
        let Some(dead_at) = self.path.lost(now) else {
            return;
        };
        if let Some(admin) = self.admin.take() {
            self.closing.push(admin.close());
        }
        for bringing in self.bringing.drain(..) {
            self.closing.extend(bringing.close());
        }
        let dealt = std::mem::take(&mut self.dealt);
        self.refused.association_lost();
        self.aborts = 0;
        self.ana = AnaState::Inaccessible;
        self.wake_at = Some(now);
        if let Some(shared) = around.shared.as_ref() {
            shared.fences.lost(association, dead_at, dead_after, now);
        }
        // Those that have no queue of it have nothing to close, and no change to wait with.
        tell(around.members, &dealt, |_| ToHandle::Lost { association });
        let store = around.remote.name.as_str();
        // One that leads elsewhere comes up, and is let go, each time that it is tried: that is said once.
        let is_known = self.is_foreign && self.failure.as_deref() == Some(why.as_str());
        if was_up && !is_known {
            self.losses += 1;
            tracing::warn!(%store, path = %self.to, %why, "a path was lost");
        } else if self.failure.as_deref() != Some(why.as_str()) {
            // Until there is a store, whoever opens it says what comes next.
            let again = if around.shared.is_some() {
                "; it is tried again"
            } else {
                ""
            };
            tracing::warn!(%store, path = %self.to, %why, "a path cannot be connected{again}");
        }
        self.failure = Some(why);
        self.is_foreign = false;
    }

    fn came_up(&mut self, now: Time, around: &mut Surroundings<'_>) {
        if !self.is_admitted(now, around) {
            return;
        }
        tracing::info!(store = %around.remote.name, path = %self.to, "a path is up");
        self.failure = None;
        self.ana = self.path.ana();
    }

    /// Whether what was found behind the path is the store; if not, the path is lost.
    fn is_admitted(&mut self, now: Time, around: &mut Surroundings<'_>) -> bool {
        let Err(why) = self.admit(around) else {
            return true;
        };
        self.lose(now, why, around);
        self.is_foreign = true;
        false
    }

    /// Whether what was found behind the path is the store; the first one says what the store is.
    fn admit(&self, around: &mut Surroundings<'_>) -> Result<(), String> {
        let attached = self.path.up().ok_or("the path is not up")?;
        let options = &around.remote.options;
        let namespace = match (self.path.namespace(), options.nsid) {
            (Some(namespace), _) => namespace,
            (None, Some(nsid)) => return Err(format!("the subsystem has no namespace {}", nsid.0)),
            (None, None) => return Err("the subsystem has no namespace for this host".to_owned()),
        };
        if attached.controller.keep_alive_granularity_ms == 0 {
            return Err("the controller has no keep-alive timer (KAS = 0), so that nobody knows when it is dead".to_owned());
        }
        options
            .check_death(self.path.dead_after())
            .map_err(|error| error.to_string())?;
        match around.shared.as_ref() {
            Some(shared) => is_same(shared, namespace, attached),
            None => {
                let shared = Shared::new(
                    around.remote.name.clone(),
                    options.clone(),
                    around.clock.clone(),
                    namespace.clone(),
                    attached.controller.clone(),
                    around.remote.is_writable,
                );
                *around.shared = Some(Arc::new(shared));
                Ok(())
            }
        }
    }

    fn changed(&mut self, now: Time, around: &mut Surroundings<'_>) {
        if !self.is_admitted(now, around) {
            return;
        }
        let ana = self.path.ana();
        if ana != self.ana {
            tracing::info!(store = %around.remote.name, path = %self.to, state = %ana, "a path's access state changed");
            self.ana = ana;
            let association = self.association_id();
            tell(around.members, &self.dealt, |_| ToHandle::Ana {
                association,
                ana,
            });
        }
    }

    /// Begins to bring a queue to each handle that has none of this association.
    fn deal(&mut self, now: Time, around: &mut Surroundings<'_>) {
        let Some(attached) = self.path.up() else {
            return;
        };
        if around.is_ending {
            return;
        }
        let (cntlid, granted) = (attached.cntlid, attached.io_queues);
        let depth = around
            .remote
            .options
            .depth
            .clamp(1, attached.controller.io_queue_depth_max);
        let in_capsule_bytes_max = attached.controller.in_capsule_bytes_max;
        for member in around.members {
            if self.dealt.contains_key(&member.id)
                || around.served.contains(&member.id)
                || self.refused.is_early(member.id, now)
            {
                continue;
            }
            let used = |qid: &u16| self.dealt.values().any(|dealt| dealt == qid);
            // Another association of the path may have one, or this one when a handle has left.
            let Some(qid) = (1..=granted).find(|qid| !used(qid)) else {
                break;
            };
            let options = QueueOptions {
                qid: QueueId(qid),
                cntlid,
                depth,
                in_capsule_bytes_max,
                ..queue_options(&around.remote.options)
            };
            let transport = &around.remote.transport;
            match transport.connect(around.ring, self.to, &options, around.clock.clone()) {
                Ok(queue) => {
                    let attach = AttachIo::new(association(around.remote), cntlid, qid, depth);
                    let by = now + around.remote.options.connect_timeout * 2;
                    self.dealt.insert(member.id, qid);
                    self.bringing
                        .push(Bringing::new(member.id, queue, attach, by));
                }
                Err(error) => return self.lose(now, error.to_string(), around),
            }
        }
    }

    fn bring(&mut self, now: Time, around: &mut Surroundings<'_>) {
        let association = self.association_id();
        let mut index = 0;
        while let Some(bringing) = self.bringing.get_mut(index) {
            match bringing.turn(now) {
                Brought::NotYet => index += 1,
                // The association stands as long as its admin queue does: one handle goes without.
                Brought::Failed(failure) => {
                    let bringing = self.bringing.swap_remove(index);
                    let handle = bringing.handle;
                    self.closing.extend(bringing.close());
                    let why = failure.why.clone();
                    if self.refuse(handle, failure, now, around) {
                        let why = format!("its controller has missed the end of a queue: {why}");
                        return self.lose(now, why, around);
                    }
                }
                Brought::Here(queue) => {
                    let handle = bringing.handle;
                    self.bringing.swap_remove(index);
                    self.refused.forget(handle);
                    let member = around.members.iter().find(|member| member.id == handle);
                    let up = ToHandle::QueueUp {
                        association,
                        queue,
                        ana: self.ana,
                    };
                    if member.is_some_and(|member| member.sender.send(up).is_err()) {
                        let why = "a reactor takes no messages".to_owned();
                        return self.lose(now, why, around);
                    }
                }
            }
        }
    }

    /// A handle goes without a queue for a while, each time for longer. True where the association is to be given up for it.
    fn refuse(
        &mut self,
        handle: HandleId,
        failure: Failure,
        now: Time,
        around: &Surroundings<'_>,
    ) -> bool {
        self.dealt.remove(&handle);
        if !self.refused.has(handle) {
            tracing::warn!(store = %around.remote.name, path = %self.to, why = %failure.why, "a reactor has no queue on a path; it is tried again");
        }
        self.refused
            .add(handle, failure, now, &around.remote.options)
    }

    /// A handle is gone; its queue's identifier may be given to another.
    pub fn left(&mut self, handle: HandleId) {
        self.dealt.remove(&handle);
        self.refused.forget(handle);
        let gone = |bringing: &mut Bringing| bringing.handle == handle;
        for bringing in self.bringing.extract_if(.., gone) {
            self.closing.extend(bringing.close());
        }
    }

    /// A handle lost a queue of an association; of one that is over nothing is new.
    pub fn queue_lost(&mut self, association: AssociationId, why: String) {
        if association == self.association_id() && self.path.up().is_some() {
            self.broken = Some(why);
        }
    }

    /// Asks for the abort of a command of a handle's queue. It is a request: where as many are under way as the controller takes, the command ends as it
    /// would.
    pub fn abort(&mut self, abort: Abort, now: Time) {
        let Some(attached) = self.path.up() else {
            return;
        };
        let most = attached.controller.aborts_max.min(ABORTS_AT_ONCE_MAX);
        if abort.association != self.association_id() || self.aborts >= most {
            return;
        }
        let (Some(qid), Some(admin)) = (self.dealt.get(&abort.handle), &mut self.admin) else {
            return;
        };
        let command = command::abort(*qid, abort.cid);
        if admin.issue(Purpose::Abort, &command, &[], now).is_ok() {
            self.aborts += 1;
        }
    }

    /// The store is gone: shuts the controller down and closes.
    fn leave(&mut self, now: Time, around: &mut Surroundings<'_>) {
        self.wake_at = None;
        if self.path.up().is_none() {
            if self.admin.is_some() {
                self.lose(now, "the store is closed".to_owned(), around);
            }
            return;
        }
        let shutdown = self
            .shutdown
            .get_or_insert_with(|| Shutdown::new(SHUTDOWN_WITHIN));
        if self.shutting_down {
            return;
        }
        match shutdown.step(now) {
            Ok(Step::Issue { command, data_out }) => {
                let issued = match &mut self.admin {
                    Some(admin) => admin.issue(Purpose::Shutdown, &command, &data_out, now),
                    None => Err(String::new()),
                };
                self.shutting_down = issued.is_ok();
                if issued.is_err() {
                    self.lose(now, "the store is closed".to_owned(), around);
                }
            }
            Ok(Step::WaitUntil(at)) => self.wake_at = Some(at),
            Ok(Step::Done) | Err(_) => {
                // In order, so that there is nothing to wait for.
                if let Some(admin) = self.admin.take() {
                    self.closing.push(admin.close());
                }
                self.path.lost(now);
            }
        }
    }

    /// Whether nothing is left of it, once the store is gone.
    pub fn is_gone(&self) -> bool {
        self.admin.is_none() && self.closing.is_empty()
    }

    /// Why it is not up, once it was tried.
    pub fn failure(&self) -> Option<String> {
        let why = self.failure.as_ref()?;
        Some(format!("{}: {why}", self.to))
    }

    /// How far it is, for a person who waits for it.
    pub fn standing(&self) -> String {
        self.failure().unwrap_or_else(|| {
            let to = self.to;
            if self.admin.is_none() {
                format!("{to}: not connected yet")
            } else if self.path.up().is_none() {
                format!("{to}: it takes connections, and has not said yet what it is")
            } else {
                format!("{to}: up")
            }
        })
    }

    /// Why it never stood, where it was tried.
    pub fn refused_ever(&self) -> Option<&str> {
        let never_stood = self.losses == 0 && self.path.up().is_none();
        self.failure.as_deref().filter(|_| never_stood)
    }

    /// `further`: why the path has no further association.
    pub fn report(&self, reactors_without: usize, further: Option<&str>) -> PathReport {
        let refused = || self.refused.why().map(str::to_owned);
        let granted = || {
            let granted = self.path.up()?.io_queues;
            let further = further.map_or_else(String::new, |why| {
                format!(", and there is no further one: {why}")
            });
            Some(format!("its controller grants {granted} queues{further}"))
        };
        let without = || (reactors_without > 0).then(|| refused().or_else(granted));
        let state = match self.path.up() {
            Some(_) => PathState::Up(self.ana),
            None => PathState::Down,
        };
        PathReport {
            address: self.to,
            state,
            queues: self.dealt.len(),
            reactors_without: match state {
                PathState::Up(_) => reactors_without,
                PathState::Down => 0,
            },
            losses: self.losses,
            // Counted by the handles.
            reactors_unanswered: 0,
            is_foreign: self.is_foreign,
            failure: self.failure.clone().or_else(|| without().flatten()),
        }
    }
}

fn association(remote: &Remote) -> Association {
    Association {
        host_id: remote.options.host_id,
        hostnqn: remote.options.hostnqn.as_str().to_owned(),
        subnqn: remote.subnqn.clone(),
    }
}

fn queue_options(options: &RemoteOptions) -> QueueOptions {
    QueueOptions {
        qid: QueueId::ADMIN,
        cntlid: 0,
        depth: options.depth,
        in_capsule_bytes_max: 0,
        header_digest: options.header_digest,
        data_digest: options.data_digest,
        connect_timeout: options.connect_timeout,
        command_timeout: options.command_timeout,
    }
}
