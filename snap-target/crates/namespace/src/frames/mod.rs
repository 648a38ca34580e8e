//! Frames: each has one engine as its home, which fetches it once, has it decoded once, and keeps it.
//!
//! ```text
//!   request wants a frame
//!     |  home is another engine: a message                      its answer: the frame, shared
//!     v                                                                  ^
//!   home: in the cache? ---------------------------------------------> answer
//!     |   on its way?  wait with the others ----------------------.      ^
//!     v                                                           v      |
//!   run of neighbours -> store -> stored bytes -> decode -> cache -> everyone who waits
//!                                                   |   ^
//!                                          over 50 us: a worker
//! ```
//! No two engines can wait for each other: what an engine needs to answer (staging, a place in its cache, a worker) is never held by a request;
//! answers are taken and used up whatever else is short; and a request waits for all its frames before it ends, so none is left behind.

mod answering;
mod decode;
mod fetching;
mod job;
mod link;
mod run;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use reactor::{Receiver, Ring, channel};
use smallvec::SmallVec;
use store::StoreError;
use volume::{Cache, FrameId, StoredFrame, Witness};

pub use job::{FrameQueue, FrameWorkers};
pub(crate) use link::Answer;
pub use link::Peer;
pub(crate) use link::WantId;
use link::{Link, SlotWant, WantRun};
use run::{Run, RunId};

use crate::ahead::{AheadWitness, Purpose};
use crate::attached::Attached;
use crate::attachments::Attachments;
use crate::frames::job::Job;
use crate::limits::{
    DECODE_INLINE_NS_MAX, GROUP_FRAMES, JOBS_MAX, MESSAGES_MAX, SLICE_NS_MAX, TURN_DECODE_NS_MAX,
};
use crate::parts::Parts;
use crate::{NamespaceError, NamespaceKey};

/// How an engine decodes frames, and how it talks to others about them. The defaults serve; tests take smaller ones.
#[derive(Clone, Debug)]
pub struct FrameConfig {
    /// Who decodes frames that take long; `None`: the engine itself.
    pub workers: Option<FrameQueue>,
    /// Estimated nanoseconds from which on a decode goes to a worker.
    pub decode_inline_ns_max: u64,
    /// Estimated nanoseconds of decoding in one turn of the ring; one frame more when they are used up.
    pub turn_decode_ns_max: u64,
    /// Estimated nanoseconds of decoding for one fetch before others have their turn.
    pub slice_ns_max: u64,
    /// Frames of this engine that the workers have at a time.
    pub jobs_max: usize,
    /// Messages of each kind that wait for this engine.
    pub messages_max: usize,
}

impl Default for FrameConfig {
    fn default() -> Self {
        Self {
            workers: None,
            decode_inline_ns_max: DECODE_INLINE_NS_MAX,
            turn_decode_ns_max: TURN_DECODE_NS_MAX,
            slice_ns_max: SLICE_NS_MAX,
            jobs_max: JOBS_MAX,
            messages_max: MESSAGES_MAX,
        }
    }
}

/// A frame that a request of this engine wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) key: NamespaceKey,
    pub(crate) slot: u32,
    pub(crate) id: WantId,
    pub(crate) frame: StoredFrame,
    /// When the request is given up.
    pub(crate) deadline: Option<Instant>,
    /// Nobody waits for it: what somebody waits for comes first.
    pub(crate) is_ahead: bool,
    /// What it is fetched ahead for.
    pub(crate) purpose: Purpose,
}

/// Who waits for a frame.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    reactor: u16,
    slot: u32,
    id: WantId,
    /// When it is given up.
    deadline: Option<Instant>,
    /// It came when the store had been asked: on terms that were not its own.
    has_joined: bool,
}

impl Waiter {
    fn is_ahead(&self) -> bool {
        self.id == WantId::Ahead
    }
}

/// A frame on its way.
#[derive(Debug, Default)]
struct Pending {
    waiters: SmallVec<[Waiter; 4]>,
    /// Who waits for it are fetches ahead only.
    is_ahead: bool,
    /// It was a fetch ahead that wanted it first.
    was_ahead: bool,
    run: RunId,
    /// Of the namespace that it was wanted of first.
    nsid: u32,
    /// Told what becomes of it.
    witness: Option<Arc<AheadWitness>>,
    /// Times that it was read again.
    reads_again: u32,
}

/// The frames of an engine that are wanted, fetched, decoded.
pub(crate) struct Frames {
    config: FrameConfig,
    link: Link,
    /// Frames on their way, by where their waiters are.
    pending: HashMap<FrameId, usize>,
    waiters: Vec<Pending>,
    free_waiters: Vec<usize>,
    runs: Vec<Run>,
    free_runs: Vec<usize>,
    /// Runs to be fetched. The last one may still grow.
    missing: VecDeque<usize>,
    /// The same for those that nobody waits for: they are asked for when no other is missing.
    missing_ahead: VecDeque<usize>,
    /// Namespaces that found no room in this pass over them.
    full: Vec<usize>,
    /// Runs whose stored bytes are here. They take turns, so that a long one holds nobody up.
    decoding: VecDeque<usize>,
    /// Those that nobody waits for, behind all others.
    decoding_ahead: VecDeque<usize>,
    /// Jobs that no worker has.
    #[expect(clippy::vec_box, reason = "they travel through queues by their boxes")]
    jobs: Vec<Box<Job>>,
    decoded: Receiver<Box<Job>>,
    /// Answers to requests of this engine.
    answers: VecDeque<Answer>,
    /// The ring's turn that decoding was last charged to, and what was.
    turn: u64,
    turn_ns: u64,
    /// Whether something is to be done that no event will bring about.
    is_behind: bool,
}

impl Frames {
    pub(crate) fn new(ring: &Ring, config: &FrameConfig) -> Self {
        let jobs_max = config.jobs_max.max(1);
        let (answers, decoded) = channel(ring, jobs_max);
        let has_workers = config.workers.is_some();
        let jobs_max = if has_workers { jobs_max } else { 0 };
        Self {
            config: config.clone(),
            link: Link::new(ring, config.messages_max),
            pending: HashMap::new(),
            waiters: Vec::new(),
            free_waiters: Vec::new(),
            runs: Vec::new(),
            free_runs: Vec::new(),
            missing: VecDeque::new(),
            missing_ahead: VecDeque::new(),
            full: Vec::new(),
            decoding: VecDeque::new(),
            decoding_ahead: VecDeque::new(),
            jobs: (0..jobs_max).map(|_| Job::new(answers.clone())).collect(),
            decoded,
            answers: VecDeque::new(),
            turn: 0,
            turn_ns: 0,
            is_behind: false,
        }
    }

    /// Has every other engine look at what it holds back.
    pub(crate) fn wake_peers(&self) {
        self.link.wake_peers();
    }

    pub(crate) fn peer(&self) -> Peer {
        self.link.own()
    }

    pub(crate) fn meet(&mut self, reactor: u16, peers: &[Peer]) {
        self.link.meet(reactor, peers);
    }

    /// Whether there is something to do that no event will bring about: decoding for which the last turn had no time, or messages that
    /// found a channel full.
    pub(crate) fn has_work(&self) -> bool {
        self.is_behind || !self.link.is_flushed()
    }

    /// Whether frames are on their way.
    pub(crate) fn are_coming(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes what requests of this engine want: to its home each, neighbours together.
    pub(crate) fn want_all(&mut self, attached: &mut Attachments, parts: &mut Parts) -> bool {
        if parts.wanted.is_empty() {
            return false;
        }
        let mut wanted = std::mem::take(&mut parts.wanted);
        let mut message: Option<(u16, WantRun)> = None;
        for wanted in wanted.drain(..) {
            let Wanted {
                key,
                slot,
                id,
                frame,
                deadline,
                is_ahead,
                purpose,
            } = wanted;
            let want = SlotWant {
                slot,
                id,
                frame,
                deadline,
                is_ahead,
                purpose,
            };
            let home = self.home(frame.id);
            if home == self.link.reactor {
                self.want(attached, parts, key, home, want);
                continue;
            }
            if let Some(of) = attached.find(key) {
                attached[of].row.cross_reactor_wants.add(1);
            }
            match &mut message {
                Some((to, run))
                    if *to == home && run.key == key && run.wants.len() < GROUP_FRAMES =>
                {
                    run.wants.push(want);
                }
                _ => {
                    let run = WantRun {
                        key,
                        reactor: self.link.reactor,
                        wants: SmallVec::from_iter([want]),
                    };
                    if let Some((to, full)) = message.replace((home, run)) {
                        self.link.send_wants(to, full);
                    }
                }
            }
        }
        if let Some((to, run)) = message {
            self.link.send_wants(to, run);
        }
        self.link.flush();
        parts.wanted = wanted;
        true
    }

    /// The engine that a frame belongs to.
    fn home(&self, id: FrameId) -> u16 {
        let home = id.group_hash(GROUP_FRAMES as u64) % self.link.reactors();
        // Below the number of reactors, which are at most 2^16.
        u16::try_from(home).unwrap_or(0)
    }

    /// Takes what other engines and the workers sent.
    pub(crate) fn take_mail(&mut self, attached: &mut Attachments, parts: &mut Parts) -> bool {
        let mut moved = false;
        while let Some(WantRun {
            key,
            reactor,
            wants,
        }) = self.link.next_wants()
        {
            moved = true;
            for want in wants {
                self.want(attached, parts, key, reactor, want);
            }
        }
        while let Some(answer) = self.link.next_answer() {
            moved = true;
            self.answers.push_back(answer);
        }
        while let Some(job) = self.decoded.try_recv() {
            moved = true;
            self.job_done(attached, parts, job);
        }
        moved
    }

    /// An answer to a request of this engine. After the frame in it was let go, [`Frames::let_go`] has to be told.
    pub(crate) fn next_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// A frame of `home`'s was let go.
    pub(crate) fn let_go(&self, home: u16) {
        self.link.let_go(home);
    }

    /// A request of `reactor`'s wants a frame of this engine's.
    fn want(
        &mut self,
        attached: &mut Attachments,
        parts: &mut Parts,
        key: NamespaceKey,
        reactor: u16,
        want: SlotWant,
    ) {
        let SlotWant {
            slot,
            id,
            frame,
            deadline,
            is_ahead,
            purpose,
        } = want;
        let mut waiter = Waiter {
            reactor,
            slot,
            id,
            deadline,
            has_joined: false,
        };
        if id == WantId::Wrong {
            return parts.cache.drop_frame(frame.id);
        }
        let found = attached.find(key);
        if let Some(at) = self.pending.get(&frame.id).copied() {
            match is_ahead {
                true => self.handed_on(at, found.map(|of| &attached[of]), purpose),
                false => waiter.has_joined = self.joined(at, attached, found, deadline),
            }
            self.waiters[at].waiters.push(waiter);
            return;
        }
        let found = found.map(|of| &attached[of]);
        if is_ahead && let Some(of) = found {
            hand_on(&mut parts.cache, of, frame.id, purpose);
        }
        if let Some(frame) = kept(parts, frame.id, is_ahead) {
            if let Some(of) = found.filter(|_| !is_ahead) {
                of.row.frame_hits.add(1);
            }
            self.answer(waiter, Ok(frame));
            return;
        }
        let Some(of) = found else {
            self.answer(waiter, Err(NamespaceError::Detached { key }));
            return;
        };
        let nsid = of.shared.nsid;
        if frame.id.is_plain() && !is_ahead {
            // Only its own bytes are wanted, and whoever asks has memory for them.
            let cause = StoreError::Busy;
            self.answer(waiter, Err(NamespaceError::Store { nsid, cause }));
            return;
        }
        let witness = is_ahead.then(|| of.witness(purpose)).flatten();
        if let Some(witness) = witness.as_ref().filter(|_| frame.id.is_plain()) {
            witness.coming(frame.id);
        }
        let at = self.free_waiters.pop().unwrap_or_else(|| {
            self.waiters.push(Pending::default());
            self.waiters.len() - 1
        });
        let run = self.run_for(of.place, frame, deadline, is_ahead);
        let pending = &mut self.waiters[at];
        pending.waiters.push(waiter);
        pending.is_ahead = is_ahead;
        pending.was_ahead = is_ahead;
        pending.reads_again = 0;
        pending.run = run;
        pending.nsid = nsid;
        pending.witness = witness;
        self.pending.insert(frame.id, at);
    }

    /// Fetches and decodes as far as memory, the stores, the workers and the turn allow; true when anything moved.
    pub(crate) fn work(
        &mut self,
        attached: &mut Attachments,
        parts: &mut Parts,
        turn: u64,
    ) -> bool {
        let fetched = self.fetch(attached, parts);
        let decoded = self.decode(attached, parts, turn);
        self.link.flush();
        fetched || decoded
    }
}

/// A frame that this engine keeps for something else, and that nobody has read, is an order's from now on if it was ordered.
fn hand_on(cache: &mut Cache, of: &Attached, id: FrameId, purpose: Purpose) {
    if !matches!(purpose, Purpose::Order(_)) {
        return;
    }
    let Some(witness) = of.witness(purpose) else {
        return;
    };
    let told: Arc<dyn Witness> = witness.clone();
    if let Some(bytes) = cache.unread_of_others(id, &told) {
        cache.hand_on(id, told, witness.takes_over(bytes));
    }
}

/// A frame that this engine has. That somebody fetches ahead is no use of it.
fn kept(parts: &Parts, id: FrameId, is_ahead: bool) -> Option<volume::Frame> {
    match is_ahead {
        true => parts.cache.peek(id),
        false => parts.cache.frame(id),
    }
}
