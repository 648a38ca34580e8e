//! Records that keepers save for one engine's requests, each for so long.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use reactor::{Owner, ReactorError, Receiver, Ring, Sender, channel};

use crate::limits::SAVES_MAX;
use crate::{KeepError, RecordKind, Saved};

/// Which save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number(u64);

/// Saves that keepers have.
pub(crate) struct Saves {
    /// Has the timer.
    owner: Owner,
    patience: Duration,
    sender: Sender<(Number, Result<(), KeepError>)>,
    ended: Receiver<(Number, Result<(), KeepError>)>,
    /// Those that a request waits for, in their order, and until when.
    awaited: VecDeque<(Number, usize, Instant)>,
    /// Those that nobody waits for any more. Their keepers have them all the same.
    overdue: usize,
    last: u64,
    has_timer: bool,
}

/// What became of the wish to save.
pub(crate) enum Begun {
    /// This is what the keeper is to call.
    Save(Saved),
    /// Keepers have enough: once more, when one has ended.
    Later,
    /// They have enough, and do not answer.
    Never,
}

impl Saves {
    pub(crate) fn new(ring: &Ring, patience: Duration) -> Result<Self, ReactorError> {
        let (sender, ended) = channel(ring, SAVES_MAX);
        Ok(Self {
            owner: ring.register()?,
            patience,
            sender,
            ended,
            awaited: VecDeque::with_capacity(SAVES_MAX),
            overdue: 0,
            last: 0,
            has_timer: false,
        })
    }

    /// For the request in `slot`.
    pub(crate) fn begin(&mut self, slot: usize) -> Begun {
        if self.awaited.len() + self.overdue >= SAVES_MAX {
            return if self.overdue > 0 {
                Begun::Never
            } else {
                Begun::Later
            };
        }
        self.last += 1;
        let number = Number(self.last);
        let until = Instant::now() + self.patience;
        self.awaited.push_back((number, slot, until));
        self.arm();
        let sender = self.sender.clone();
        Begun::Save(Box::new(move |result| {
            // There is room: no more saves than that are begun. Where the engine is gone, nobody waits.
            let _sent = sender.send((number, result));
        }))
    }

    /// The keeper was not asked after all.
    pub(crate) fn never_mind(&mut self) {
        self.awaited.pop_back();
    }

    /// A save that has ended, or was waited for long enough, and whose request goes on.
    pub(crate) fn next_end(&mut self) -> Option<(usize, Result<(), KeepError>)> {
        while let Some((number, result)) = self.ended.try_recv() {
            let at = self.awaited.iter().position(|(of, ..)| *of == number);
            match at.and_then(|at| self.awaited.remove(at)) {
                Some((_, slot, _)) => return Some((slot, result)),
                None => self.overdue -= 1,
            }
        }
        while self.owner.next_event().is_some() {
            self.has_timer = false;
        }
        let first = self.awaited.front();
        if first.is_some_and(|(.., until)| *until <= Instant::now())
            && let Some((_, slot, _)) = self.awaited.pop_front()
        {
            self.overdue += 1;
            return Some((slot, Err(not_answered())));
        }
        self.arm();
        None
    }

    /// A timer for the first of them, where none is armed: all wait equally long.
    fn arm(&mut self) {
        if let Some((.., until)) = self.awaited.front()
            && !self.has_timer
        {
            // Without one they are looked at when anything else happens.
            self.has_timer = self.owner.timer(*until, 0).is_ok();
        }
    }
}

pub(crate) fn not_answered() -> KeepError {
    KeepError {
        kind: RecordKind::Uncorrectable,
        why: "whoever keeps it does not answer".to_owned(),
    }
}
