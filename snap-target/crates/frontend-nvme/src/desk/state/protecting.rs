//! Write protection: what was written before is on stable storage when the host is told that the namespace is protected (Base, "Namespace Write
//! Protection": the volatile write cache is written out as part of the transition; a Flush has nothing to do afterwards).
//!
//! From when it is in force no write is let in. Those that were let in before may still change the namespace: so hosts are told of it, by its attributes and by
//! the answer, when every reactor has come to the end of them; and the flush begins behind them.

use namespace::{Asked, Done, Engine, Io, NamespaceKey};
use nvme::Time;
use nvme::nqn::Nqn;
use nvme_spec::Status;

use super::Asker;
use crate::desk::{Desk, To};
use crate::message::{Message, Order, ProtectionId};

/// Marks an engine token as such a flush, beside the mark of all flushes of the desk's. Below it lies its number.
const PROTECTION: u64 = 1 << 62;

/// Flushes of namespaces that are protected by now.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// Those whose namespace may still change, and how many reactors have not come to the end of what they let in.
    settling: Vec<(Protected, usize)>,
    to_begin: Vec<(u64, NamespaceKey)>,
    /// Whom to answer.
    askers: Vec<Waiting>,
}

/// A namespace that is protected by now.
#[derive(Debug)]
struct Protected {
    number: u64,
    nqn: Nqn,
    key: NamespaceKey,
}

/// Who waits for such a flush, and until when.
#[derive(Debug)]
struct Waiting {
    number: u64,
    asker: Asker,
    until: Time,
}

impl Flushes {
    /// When the first of them has taken too long.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.askers.iter().map(|waiting| waiting.until).min()
    }

    pub(super) fn wait_to_begin(&self) -> bool {
        !self.to_begin.is_empty()
    }
}

impl Desk {
    /// Answers when nothing changes the namespace any more, and it has been flushed.
    pub(super) fn flush_protected(&mut self, nqn: &Nqn, key: NamespaceKey, asker: Asker) {
        let number = self.states.next_number();
        let until = self.clock.now() + self.service.keep_patience;
        self.states.flushes.askers.push(Waiting {
            number,
            asker,
            until,
        });
        let protected = Protected {
            number,
            nqn: nqn.clone(),
            key,
        };
        let reactors = self.placing.reactors();
        self.states.flushes.settling.push((protected, reactors));
        let order = Order::Settle(ProtectionId(number), key);
        self.requests.push((To::All, Message::Order(order)));
    }

    /// One more reactor has come to the end of what it let in before.
    pub(in crate::desk) fn settled(&mut self, id: ProtectionId) {
        let is_settled = |(protected, left): &mut (Protected, usize)| {
            *left -= usize::from(protected.number == id.0);
            *left == 0
        };
        let settling = &mut self.states.flushes.settling;
        let settled: Vec<_> = settling.extract_if(.., is_settled).collect();
        for (protected, _) in settled {
            self.tell_of_protection(&protected.nqn);
            let flush = (protected.number, protected.key);
            self.states.flushes.to_begin.push(flush);
        }
    }

    /// NSATTR has changed: the hosts are told.
    pub(super) fn tell_of_protection(&mut self, nqn: &Nqn) {
        if let Err(error) = self.publish(nqn) {
            tracing::error!(%error, "hosts are not told of a write protection");
        }
    }

    /// A store does not answer: the namespace is protected, and the host is told that what was written before may not be durable, or not be there yet.
    pub(in crate::desk) fn end_old_flushes(&mut self, now: Time) {
        let is_old = |waiting: &mut Waiting| waiting.until <= now;
        let old: Vec<_> = self.states.flushes.askers.extract_if(.., is_old).collect();
        for Waiting { number, asker, .. } in old {
            tracing::error!(
                "a namespace is write-protected, and its store does not answer what was written before, or a flush of it"
            );
            let settling = self.states.flushes.settling.iter();
            let mut unsettled = settling.filter(|(protected, _)| protected.number == number);
            if let Some(nqn) = unsettled.next().map(|(protected, _)| protected.nqn.clone()) {
                self.tell_of_protection(&nqn);
            }
            self.state_answer(asker, Err(Status::INTERNAL_ERROR), Vec::new());
        }
    }

    pub(in crate::desk) fn begin_flushes_of_protected(&mut self, engine: &mut Engine) {
        for (number, key) in std::mem::take(&mut self.states.flushes.to_begin) {
            let token = Self::FLUSH_TOKEN | PROTECTION | number;
            if let Some(done) = engine.submit(key, Io::Flush, Asked::with(token)) {
                self.flushed(&done);
            }
        }
    }

    /// Whether that was such a flush.
    pub(in crate::desk) fn protected_flushed(&mut self, done: &Done) -> bool {
        if done.token & PROTECTION == 0 {
            return false;
        }
        let askers = &mut self.states.flushes.askers;
        let is_it =
            |waiting: &mut Waiting| Self::FLUSH_TOKEN | PROTECTION | waiting.number == done.token;
        let found = askers.extract_if(.., is_it).next();
        if let Some(Waiting { asker, .. }) = found {
            let result = done.result.as_ref().map_err(|error| {
                tracing::error!(%error, "a namespace is write-protected, and what was written before may be lost");
                Status::INTERNAL_ERROR
            });
            self.state_answer(asker, result.copied(), Vec::new());
        }
        true
    }
}
