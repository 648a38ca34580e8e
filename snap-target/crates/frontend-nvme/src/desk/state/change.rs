//! The steps of one change.

use std::sync::Arc;

use namespace::{HeldFence, KeepError, Namespace, Saved, protection_record};
use nvme::Time;
use nvme::controller::reservation::{Change, Notice, Request};
use nvme::controller::{Controller, ControllerId, Protection};
use nvme::nqn::Nqn;
use nvme_spec::{Nsid, Status};

use super::overdue::in_force;
use super::{Asker, Busy, Item, Next, What};
use crate::desk::{Desk, To};
use crate::event::TargetEvent;
use crate::limits::PREEMPT_PATIENCE;
use crate::message::{Message, Order, PreemptId};

impl Desk {
    /// Begins what waits in a line, as far as nothing is under way there.
    pub(super) fn go_on(&mut self, place: &(Nqn, u32)) {
        while let Some(line) = self.states.lines.get_mut(place) {
            if line.busy.is_some() {
                return;
            }
            let Some(item) = line.waiting.pop_front() else {
                self.states.lines.remove(place);
                return;
            };
            let (asker, namespace) = (item.asker, item.namespace.clone());
            match self.next(&item) {
                Ok(next) => self.keep(place, asker, namespace, next),
                Err(status) => self.state_answer(asker, Err(status), Vec::new()),
            }
        }
    }

    /// The state that a change leads to.
    fn next(&self, item: &Item) -> Result<Next, Status> {
        let access = &item.namespace.access;
        let now = access.reservations();
        match &item.what {
            What::Command { sqe, data } => {
                let Asker::Queue { controller, .. } = item.asker else {
                    return Err(Status::INTERNAL_ERROR);
                };
                // A host that is gone takes what it asked for with it: nothing of it is applied late.
                let controller = self.registry.controller(controller);
                let host = controller
                    .ok_or(Status::ABORT_REQUESTED)?
                    .reservation_host();
                let request = Request::parse(sqe, data, item.namespace.keeper.is_durable())?;
                now.carry_out(host, &request).map(Next::Reservations)
            }
            What::Persistence(persistent) => Ok(Next::Reservations(Change {
                table: now.with_persistence(*persistent),
                notices: Vec::new(),
                aborted: Vec::new(),
            })),
            What::Protection(protection) => {
                access.protection().check_change(*protection)?;
                Ok(Next::Protection(*protection))
            }
        }
    }

    /// Has what survives the loss of power put on stable storage, where it changes.
    fn keep(&mut self, place: &(Nqn, u32), asker: Asker, namespace: Arc<Namespace>, next: Next) {
        let after = match &next {
            Next::Reservations(change) => change.table.to_record(),
            Next::Protection(protection) => protection_record(*protection),
        };
        let kind = next.kind();
        if in_force(&namespace, kind) == after {
            return self.put_in_force(place, asker, &namespace, next);
        }
        let number = self.states.next_number();
        let keeper = namespace.keeper.clone();
        if let Some(line) = self.states.lines.get_mut(place) {
            line.busy = Some(Busy::Keeping {
                number,
                asker,
                namespace,
                next,
                until: self.clock.now() + self.service.keep_patience,
            });
        }
        keeper.save(kind, after, self.on_saved(number));
    }

    /// What a keeper is to call.
    pub(super) fn on_saved(&self, number: u64) -> Saved {
        let (inbox, desk) = (self.states.kept.clone(), self.control.clone());
        Box::new(move |result| inbox.put(number, result, desk.as_ref()))
    }

    /// Takes what keepers have told.
    pub(in crate::desk) fn take_kept(&mut self) {
        for (number, result) in self.states.kept.take() {
            self.kept(number, result);
        }
    }

    fn kept(&mut self, number: u64, result: Result<(), KeepError>) {
        let is_it = |busy: &Busy| match busy {
            Busy::Keeping { number: of, .. } => *of == number,
            Busy::Overdue(overdue) => overdue.number == number,
            Busy::Preempting { .. } => false,
        };
        let mut lines = self.states.lines.iter_mut();
        let found = lines.find(|(_, line)| line.busy.as_ref().is_some_and(is_it));
        let Some((place, line)) = found else {
            return;
        };
        let place = place.clone();
        match line.busy.take() {
            Some(Busy::Keeping {
                asker,
                namespace,
                next,
                ..
            }) => match result {
                Ok(()) => self.put_in_force(&place, asker, &namespace, next),
                Err(error) => {
                    tracing::error!(namespace = namespace.name, %error, "a change of a namespace is refused");
                    self.state_answer(asker, Err(Status::INTERNAL_ERROR), Vec::new());
                }
            },
            Some(Busy::Overdue(overdue)) => self.kept_late(&place, overdue, result),
            _ => {}
        }
        self.go_on(&place);
    }

    fn put_in_force(
        &mut self,
        place: &(Nqn, u32),
        asker: Asker,
        namespace: &Namespace,
        next: Next,
    ) {
        let (nqn, nsid) = (&place.0, Nsid(place.1));
        match next {
            Next::Reservations(change) => {
                let preempted = self.controllers_of(nqn, |controller| {
                    change.aborted.contains(&controller.reservation_host())
                });
                // Before anybody can see the new state and write by it.
                let fence = (!preempted.is_empty()).then(|| namespace.fence.hold());
                namespace.access.set_reservations(change.table);
                self.tell_of_reservations(nqn, nsid, &change.notices);
                if let Some(fence) = fence {
                    return self.preempt(place, asker, preempted, fence);
                }
            }
            Next::Protection(protection) => {
                namespace.access.set_protection(protection);
                if protection != Protection::None {
                    return self.flush_protected(nqn, namespace.key, asker);
                }
                self.tell_of_protection(nqn);
            }
        }
        self.state_answer(asker, Ok(()), Vec::new());
    }

    fn tell_of_reservations(&mut self, nqn: &Nqn, nsid: Nsid, notices: &[Notice]) {
        for notice in notices {
            let theirs = self.controllers_of(nqn, |it| it.reservation_host() == notice.host);
            for id in theirs {
                if let Some(controller) = self.registry.controller_mut(id) {
                    controller.notify_reservation(nsid, notice.what);
                }
            }
            self.service.events.send(TargetEvent::ReservationChanged {
                subsystem: nqn.clone(),
                nsid: nsid.0,
                host_id: notice.host.0,
                what: notice.what,
            });
        }
        if !notices.is_empty() {
            self.answer_all_async_events();
        }
    }

    /// The controllers of a subsystem that are such.
    pub(in crate::desk) fn controllers_of(
        &self,
        nqn: &Nqn,
        are: impl Fn(&Controller) -> bool,
    ) -> Vec<ControllerId> {
        let of_subsystem = self.registry.controllers().filter(|controller| {
            let theirs = controller.subsystem();
            theirs.is_some_and(|subsystem| subsystem.nqn == *nqn)
        });
        of_subsystem
            .filter(|controller| are(controller))
            .map(Controller::id)
            .collect()
    }

    /// Preempt and Abort: every reactor ends the commands of these controllers before it is answered.
    fn preempt(
        &mut self,
        place: &(Nqn, u32),
        asker: Asker,
        preempted: Vec<ControllerId>,
        fence: HeldFence,
    ) {
        let id = PreemptId(self.states.next_number());
        let reactors = self.placing.reactors();
        self.states.fences.begin(id, reactors, fence);
        if let Some(line) = self.states.lines.get_mut(place) {
            line.busy = Some(Busy::Preempting {
                id,
                asker,
                awaited: reactors,
                until: self.clock.now() + PREEMPT_PATIENCE,
            });
        }
        let order = Order::Preempt(id, Nsid(place.1), preempted.into());
        self.requests.push((To::All, Message::Order(order)));
    }

    /// On one more reactor the commands of the preempted have ended.
    pub(in crate::desk) fn preempted(&mut self, ended: PreemptId) {
        let mut over = None;
        for (place, line) in &mut self.states.lines {
            if let Some(Busy::Preempting {
                id, asker, awaited, ..
            }) = &mut line.busy
                && *id == ended
            {
                *awaited -= 1;
                if *awaited == 0 {
                    over = Some((place.clone(), *asker));
                }
            }
        }
        if let Some((place, asker)) = over {
            self.preempting_ends(&place, asker, Ok(()));
        }
    }

    /// A store does not let go of what a preempted host wrote. The reservation has changed all the same, and no write that follows begins before
    /// that one has ended; the host is told that the commands have not.
    pub(in crate::desk) fn end_old_preempts(&mut self, now: Time) {
        let is_old = |busy: &Busy| match busy {
            Busy::Preempting { asker, until, .. } if *until <= now => Some(*asker),
            _ => None,
        };
        let lines = self.states.lines.iter();
        let old =
            lines.filter_map(|(place, line)| Some((place.clone(), is_old(line.busy.as_ref()?)?)));
        for (place, asker) in old.collect::<Vec<_>>() {
            tracing::error!(nsid = place.1, "commands of a preempted host do not end");
            self.preempting_ends(&place, asker, Err(Status::INTERNAL_ERROR));
        }
    }

    /// When [`Desk::end_old_preempts`], [`Desk::end_old_saves`] or [`Desk::end_old_flushes`] is next due.
    pub(in crate::desk) fn states_deadline(&self) -> Option<Time> {
        let busy = self
            .states
            .lines
            .values()
            .filter_map(|line| line.busy.as_ref());
        busy.filter_map(|busy| match busy {
            Busy::Preempting { until, .. } | Busy::Keeping { until, .. } => Some(*until),
            Busy::Overdue(_) => None,
        })
        .chain(self.states.flushes.deadline())
        .min()
    }

    fn preempting_ends(&mut self, place: &(Nqn, u32), asker: Asker, result: Result<(), Status>) {
        if let Some(line) = self.states.lines.get_mut(place) {
            line.busy = None;
        }
        self.state_answer(asker, result, Vec::new());
        self.go_on(place);
    }
}
