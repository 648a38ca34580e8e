//! What engines tell each other about frames, and how.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Instant;

use reactor::{Full, Receiver, Ring, Sender, Waker, channel};
use smallvec::SmallVec;
use volume::{Frame, FrameWantId, StoredFrame};

use crate::ahead::Purpose;
use crate::limits::GROUP_FRAMES;
use crate::{NamespaceError, NamespaceKey};

/// To a home: neighbouring frames that requests of another engine wait for.
#[derive(Debug)]
pub(crate) struct WantRun {
    pub(crate) key: NamespaceKey,
    /// Who asks.
    pub(crate) reactor: u16,
    pub(crate) wants: SmallVec<[SlotWant; GROUP_FRAMES]>,
}

/// A frame that the request in a slot waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotWant {
    pub(crate) slot: u32,
    pub(crate) id: WantId,
    pub(crate) frame: StoredFrame,
    pub(crate) deadline: Option<Instant>,
    /// Nobody waits for it.
    pub(crate) is_ahead: bool,
    /// What it is fetched ahead for.
    pub(crate) purpose: Purpose,
}

/// What a frame is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WantId {
    /// A read of a view, which named it so.
    Frame(FrameWantId),
    /// A read of stored bytes; where the frame lies in its source.
    Fill {
        /// First byte.
        at: u64,
    },
    /// A fetch ahead.
    Ahead,
    /// Not wanted: its bytes were wrong, and it is not to be kept. There is no answer.
    Wrong,
}

/// To the engine that asked. Every want is answered once, but for [`WantId::Wrong`].
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) slot: u32,
    pub(crate) id: WantId,
    /// Whose frame it is.
    pub(crate) home: u16,
    pub(crate) result: Result<Frame, NamespaceError>,
}

/// Reaches an engine's frames from other threads; see [`Engine::meet`](crate::Engine::meet).
#[derive(Clone, Debug)]
pub struct Peer {
    wants: Sender<WantRun>,
    answers: Sender<Answer>,
    waker: Waker,
    /// Set while it waits for frames that others hold.
    starving: Arc<AtomicBool>,
}

impl Peer {
    /// Tells a home that a frame of its was let go.
    fn let_go(&self) {
        // The frame was let go before we look, and the home says that it starves before it looks for frames: one sees the other.
        fence(Ordering::SeqCst);
        if self.starving.load(Ordering::Relaxed) {
            self.waker.wake();
        }
    }
}

/// One engine's end of the channels to the others, this one included.
pub(crate) struct Link {
    ring: Ring,
    pub(crate) reactor: u16,
    peers: Vec<Peer>,
    own: Peer,
    wants: Receiver<WantRun>,
    answers: Receiver<Answer>,
    /// Messages that found a channel full; they go again in their order, and the engine does not sleep meanwhile.
    unsent_wants: VecDeque<(u16, WantRun)>,
    unsent_answers: VecDeque<(u16, Answer)>,
}

impl Link {
    pub(crate) fn new(ring: &Ring, messages_max: usize) -> Self {
        let (wants_to, wants) = channel(ring, messages_max);
        let (answers_to, answers) = channel(ring, messages_max);
        let own = Peer {
            wants: wants_to,
            answers: answers_to,
            waker: ring.waker(),
            starving: Arc::new(AtomicBool::new(false)),
        };
        Self {
            ring: ring.clone(),
            reactor: 0,
            peers: vec![own.clone()],
            own,
            wants,
            answers,
            unsent_wants: VecDeque::new(),
            unsent_answers: VecDeque::new(),
        }
    }

    pub(crate) fn own(&self) -> Peer {
        self.own.clone()
    }

    pub(crate) fn meet(&mut self, reactor: u16, peers: &[Peer]) {
        self.reactor = reactor;
        self.peers = peers.to_vec();
    }

    /// Has the other engines take a turn.
    pub(crate) fn wake_peers(&self) {
        for (reactor, peer) in self.peers.iter().enumerate() {
            if reactor != usize::from(self.reactor) {
                peer.waker.wake();
            }
        }
    }

    /// Engines that share the frames.
    pub(crate) fn reactors(&self) -> u64 {
        self.peers.len().max(1) as u64
    }

    pub(crate) fn next_wants(&self) -> Option<WantRun> {
        self.wants.try_recv()
    }

    pub(crate) fn next_answer(&self) -> Option<Answer> {
        self.answers.try_recv()
    }

    pub(crate) fn send_wants(&mut self, home: u16, run: WantRun) {
        self.unsent_wants.push_back((home, run));
    }

    pub(crate) fn send_answer(&mut self, reactor: u16, answer: Answer) {
        self.unsent_answers.push_back((reactor, answer));
    }

    /// Sends what can be sent.
    #[expect(
        clippy::result_large_err,
        reason = "a channel that is full gives the message back: boxing it would allocate"
    )]
    pub(crate) fn flush(&mut self) {
        let (ring, peers) = (&self.ring, &self.peers);
        flush(&mut self.unsent_wants, |to, run| match peers.get(to) {
            Some(peer) => peer.wants.send_via(ring, run),
            None => Ok(()),
        });
        flush(&mut self.unsent_answers, |to, answer| match peers.get(to) {
            Some(peer) => peer.answers.send_via(ring, answer),
            None => Ok(()),
        });
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.unsent_wants.is_empty() && self.unsent_answers.is_empty()
    }

    /// Says whether this engine waits for frames that others hold: they wake it when they let go. It has to look once more after it said so.
    pub(crate) fn starve(&self, is_starving: bool) {
        self.own.starving.store(is_starving, Ordering::Relaxed);
        if is_starving {
            fence(Ordering::SeqCst);
        }
    }

    /// A frame of `home`'s was let go by this engine.
    pub(crate) fn let_go(&self, home: u16) {
        if home != self.reactor
            && let Some(peer) = self.peers.get(usize::from(home))
        {
            peer.let_go();
        }
    }
}

/// Tries each message once; those that are refused keep their order.
fn flush<T>(
    unsent: &mut VecDeque<(u16, T)>,
    mut send: impl FnMut(usize, T) -> Result<(), Full<T>>,
) {
    for _ in 0..unsent.len() {
        let Some((to, message)) = unsent.pop_front() else {
            return;
        };
        if let Err(Full(message)) = send(usize::from(to), message) {
            unsent.push_back((to, message));
        }
    }
}
