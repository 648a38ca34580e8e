//! Changes that do not reach stable storage in time.
//!
//! Whoever asked is told Internal Error, and the change is not in force. The keeper still has it, though, and may put it there at any moment. So
//! changes of that namespace are refused at once until the keeper has told how it ended; where it was kept after all, the state that is in force is
//! saved over it first. A target that ends before that may find the refused change in force when it starts again: the host was told of a failure,
//! not that nothing had changed.

use std::sync::Arc;

use namespace::{KeepError, Namespace, RecordKind, protection_record};
use nvme::Time;
use nvme::nqn::Nqn;
use nvme_spec::Status;

use super::{Busy, Line, Next};
use crate::desk::Desk;

/// A save that nobody waits for any more.
#[derive(Debug)]
pub(super) struct Overdue {
    pub(super) number: u64,
    kind: RecordKind,
    namespace: Arc<Namespace>,
    /// It is of the state in force.
    restores: bool,
}

impl Next {
    pub(super) fn kind(&self) -> RecordKind {
        match self {
            Next::Reservations(_) => RecordKind::Reservations,
            Next::Protection(_) => RecordKind::WriteProtection,
        }
    }
}

impl Line {
    /// Whether this namespace's keeper owes an answer for too long. Another namespace that was given the NSID meanwhile has nothing to do with it.
    pub(super) fn is_stuck(&mut self, namespace: &Namespace) -> bool {
        let Some(Busy::Overdue(overdue)) = &self.busy else {
            return false;
        };
        let is_same = Arc::ptr_eq(&overdue.namespace.keeper, &namespace.keeper);
        if !is_same {
            self.busy = None;
        }
        is_same
    }
}

/// The record of the state in force.
pub(super) fn in_force(namespace: &Namespace, kind: RecordKind) -> Vec<u8> {
    match kind {
        RecordKind::WriteProtection => protection_record(namespace.access.protection()),
        _ => namespace.access.reservations().to_record(),
    }
}

impl Desk {
    /// Refuses changes that have not been kept by now, and those that wait behind them.
    pub(in crate::desk) fn end_old_saves(&mut self, now: Time) {
        let mut refused = Vec::new();
        for (place, line) in &mut self.states.lines {
            match line.busy.take() {
                Some(Busy::Keeping {
                    number,
                    asker,
                    namespace,
                    next,
                    until,
                }) if until <= now => {
                    tracing::error!(
                        nsid = place.1,
                        "a change of a namespace is not kept in time"
                    );
                    refused.push(asker);
                    refused.extend(line.waiting.drain(..).map(|item| item.asker));
                    line.busy = Some(Busy::Overdue(Overdue {
                        number,
                        kind: next.kind(),
                        namespace,
                        restores: false,
                    }));
                }
                busy => line.busy = busy,
            }
        }
        for asker in refused {
            self.state_answer(asker, Err(Status::INTERNAL_ERROR), Vec::new());
        }
    }

    /// A save that was given up has ended.
    pub(super) fn kept_late(
        &mut self,
        place: &(Nqn, u32),
        overdue: Overdue,
        result: Result<(), KeepError>,
    ) {
        match result {
            Ok(()) if overdue.restores => return,
            Ok(()) => {}
            Err(error) => {
                return tracing::error!(nsid = place.1, %error, "what was not kept in time failed");
            }
        }
        let number = self.states.next_number();
        let (kind, namespace) = (overdue.kind, overdue.namespace.clone());
        let (keeper, record) = (namespace.keeper.clone(), in_force(&namespace, kind));
        if let Some(line) = self.states.lines.get_mut(place) {
            line.busy = Some(Busy::Overdue(Overdue {
                number,
                restores: true,
                ..overdue
            }));
        }
        keeper.save(kind, record, self.on_saved(number));
    }
}
