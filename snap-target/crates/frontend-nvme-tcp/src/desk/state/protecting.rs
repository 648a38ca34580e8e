//! Write protection: what was written before is on stable storage when the host is told that the namespace is protected (Base, "Namespace Write
//! Protection": the volatile write cache is written out as part of the transition; a Flush has nothing to do afterwards).

use namespace::{Done, Engine, Io, NamespaceKey};
use nvme::Time;
use nvme_spec::Status;

use super::Asker;
use crate::desk::Desk;

/// Marks an engine token as such a flush, beside the mark of all flushes of the desk's. Below it lies its number.
const PROTECTION: u64 = 1 << 62;

/// Flushes of namespaces that are protected by now.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    to_begin: Vec<(u64, NamespaceKey)>,
    /// Whom to answer, and by when.
    askers: Vec<(u64, Asker, Time)>,
}

impl Flushes {
    /// When the first of them has taken too long.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.askers.iter().map(|(_, _, until)| *until).min()
    }

    pub(super) fn wait_to_begin(&self) -> bool {
        !self.to_begin.is_empty()
    }
}

impl Desk {
    /// Answers when the namespace has been flushed.
    pub(super) fn flush_protected(&mut self, key: NamespaceKey, asker: Asker) {
        let number = self.states.next_number();
        self.states.flushes.to_begin.push((number, key));
        let until = self.clock.now() + self.service.keep_patience;
        self.states.flushes.askers.push((number, asker, until));
    }

    /// A store does not answer: the namespace is protected, and the host is told that what was written before may not be durable.
    pub(in crate::desk) fn end_old_flushes(&mut self, now: Time) {
        let is_old = |(_, _, until): &mut (u64, Asker, Time)| *until <= now;
        let old: Vec<_> = self.states.flushes.askers.extract_if(.., is_old).collect();
        for (_, asker, _) in old {
            tracing::error!(
                "a namespace is write-protected, and its store does not answer a flush"
            );
            self.state_answer(asker, Err(Status::INTERNAL_ERROR), Vec::new());
        }
    }

    pub(in crate::desk) fn begin_flushes_of_protected(&mut self, engine: &mut Engine) {
        for (number, key) in std::mem::take(&mut self.states.flushes.to_begin) {
            let token = Self::FLUSH_TOKEN | PROTECTION | number;
            if let Some(done) = engine.submit(key, Io::Flush, false, token) {
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
        let is_it = |(number, _, _): &mut (u64, Asker, Time)| {
            Self::FLUSH_TOKEN | PROTECTION | *number == done.token
        };
        let found = askers.extract_if(.., is_it).next();
        if let Some((_, asker, _)) = found {
            let result = done.result.as_ref().map_err(|error| {
                tracing::error!(%error, "a namespace is write-protected, and what was written before may be lost");
                Status::INTERNAL_ERROR
            });
            self.state_answer(asker, result.copied(), Vec::new());
        }
        true
    }
}
