//! What a host does on its admin queue besides attaching: it enables what it uses, keeps Asynchronous Event Requests outstanding, reads what they
//! tell of, and aborts. Whatever happens to a namespace must have been told by the end, once, in order.

use std::collections::VecDeque;

use nvme::Time;
use nvme::initiator::{Command, KeepAlive, command, nvm};
use nvme::tcp::host::Transfer;
use nvme_spec::feature::{AsyncEvent, FeatureId, async_event_configuration};
use nvme_spec::log::LogPageId;
use nvme_spec::reservation::NotificationType;
use nvme_spec::{AdminOpcode, Cid, Cqe, Nsid, Sqe, Status, U32};

use crate::host::Queue;
use crate::plan::Plan;
use crate::reservations::Effects;
use nvme::simulation::model::Moment;
use nvme::simulation::random::Random;

/// An admin command that is no step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    KeepAlive,
    /// A feature is set.
    Setup,
    /// Asynchronous Event Request.
    Event,
    /// Get Log Page, Reservation Notification.
    Notification,
    /// Get Log Page, Changed Attached Namespace List; since when.
    Changed(Moment),
    /// Abort of a command of an I/O queue.
    Abort {
        qid: u16,
        cid: Cid,
    },
    /// Abort of an Asynchronous Event Request.
    AbortEvent,
}

/// ACL + 1.
const ABORTS_MAX: usize = 4;
/// Entries of the admin queue that stay free for its tasks.
const ROOM_KEPT: usize = 4;

/// What an association's host is owed, and what it does about it.
#[derive(Debug, Default)]
pub struct Extras {
    events_wanted: usize,
    reads_once_in: u64,
    setup: VecDeque<(Command, Vec<u8>)>,
    setup_under_way: bool,
    /// The controller has its features, and nothing takes them away.
    is_live: bool,
    /// The controller is there, and as it is after a reset, from then on.
    since: Option<Moment>,
    /// Reservation Notifications to be read, in their order.
    owed: VecDeque<u8>,
    /// Read before the command that made it was answered.
    early: Vec<u8>,
    /// Such that came while the controller was coming up: it may have them or not, by their type.
    may_come: [u32; 4],
    /// It is not known what happened: any notification may come.
    in_doubt: bool,
    /// The namespace changed, and the host has not read that; a read was under way then.
    changed: Option<Moment>,
    changed_while_read: bool,
    reading_changed: bool,
    reading: usize,
    to_read: VecDeque<LogPageId>,
    aborts: usize,
    /// Asynchronous Event Requests that an Abort has named, and that may end by it.
    event_aborts: usize,
}

impl Extras {
    pub fn new(plan: &Plan) -> Extras {
        Extras {
            events_wanted: plan.events,
            reads_once_in: plan.reads_once_in,
            ..Extras::default()
        }
    }

    /// The controller is ready, for the first time or after a reset.
    pub fn begin(&mut self, now: Moment) {
        self.since = Some(now);
        self.setup.push_back(nvm::enable_copy_formats(1 << 2));
        let notices = async_event_configuration::NAMESPACE_ATTRIBUTE_NOTICES;
        let id = FeatureId::ASYNC_EVENT_CONFIGURATION;
        let configure = admin(AdminOpcode::SET_FEATURES, [u32::from(id.0), notices]);
        self.setup.push_back((configure, Vec::new()));
    }

    /// The host resets the controller, which forgets what it had to tell.
    pub fn reset(&mut self) {
        *self = Extras {
            events_wanted: self.events_wanted,
            reads_once_in: self.reads_once_in,
            may_come: self.may_come,
            ..Extras::default()
        };
    }

    /// Nothing is outstanding or owed.
    pub fn is_settled(&self) -> bool {
        let owed = !self.owed.is_empty() || self.changed.is_some() && self.events_wanted > 0;
        let under_way = self.reading + self.aborts + self.event_aborts + self.to_read.len();
        self.is_live && (self.events_wanted == 0 || !owed) && under_way == 0
    }

    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Reservations changed by a command that was submitted then; none where it is not known how.
    pub fn reservations_changed(&mut self, host: usize, asked: Moment, effects: Option<&Effects>) {
        let early = std::mem::take(&mut self.early);
        let Some(effects) = effects else {
            self.in_doubt = true;
            return;
        };
        let mut early = early.into_iter().peekable();
        for (what, hosts) in [
            (
                NotificationType::REGISTRATION_PREEMPTED,
                &effects.registration_preempted,
            ),
            (
                NotificationType::RESERVATION_RELEASED,
                &effects.reservation_released,
            ),
            (
                NotificationType::RESERVATION_PREEMPTED,
                &effects.reservation_preempted,
            ),
        ] {
            if !hosts.contains(&host) || early.next_if_eq(&what.0).is_some() {
                continue;
            }
            match self.since {
                Some(since) if since < asked => self.owed.push_back(what.0),
                _ => self.may_come[usize::from(what.0)] += 1,
            }
        }
        for what in early {
            self.came_unasked(what);
        }
    }

    /// An operator has changed the namespace.
    pub fn namespace_changed(&mut self, now: Moment) {
        if self.is_live {
            self.changed = Some(now);
            self.changed_while_read = self.reading_changed;
        }
    }

    /// Sends what is to be sent.
    pub fn turn(&mut self, queue: &mut Queue, moment: Moment, random: &mut Random, now: Time) {
        if self.since.is_none() {
            return;
        }
        if !self.is_live {
            if !self.setup_under_way
                && let Some((command, data)) = self.setup.pop_front()
            {
                self.setup_under_way = true;
                queue.send_extra(Extra::Setup, &command, data, now);
            }
            return;
        }
        while queue.events() < self.events_wanted {
            let request = admin(AdminOpcode::ASYNC_EVENT_REQUEST, [0, 0]);
            queue.send_extra(Extra::Event, &request, Vec::new(), now);
        }
        // A host has other things to do, too; and a reset may come first.
        while random.once_in(self.reads_once_in)
            && let Some(page) = self.to_read.pop_front()
        {
            let (extra, bytes) = match page {
                LogPageId::CHANGED_NAMESPACES => (Extra::Changed(moment), 4096),
                _ => (Extra::Notification, 64),
            };
            self.reading += 1;
            self.reading_changed |= extra != Extra::Notification;
            let read = command::get_log_page(page, Nsid(0), 0, bytes);
            queue.send_extra(extra, &read, Vec::new(), now);
        }
    }

    /// Whether an Abort may be sent.
    pub fn may_abort(&self, queue: &Queue) -> bool {
        self.is_live && self.aborts < ABORTS_MAX && queue.room() > ROOM_KEPT
    }

    pub fn send_abort(&mut self, queue: &mut Queue, qid: u16, cid: Cid, now: Time) {
        self.aborts += 1;
        let extra = match qid {
            0 => Extra::AbortEvent,
            _ => Extra::Abort { qid, cid },
        };
        self.event_aborts += usize::from(qid == 0);
        let named = u32::from(qid) | u32::from(cid.0) << 16;
        let abort = admin(AdminOpcode::ABORT, [named, 0]);
        queue.send_extra(extra, &abort, Vec::new(), now);
    }

    /// An admin command was answered. What is left to its I/O queue: the command that an Abort named, and whether it was aborted.
    /// `reservations_change`: a command is under way that changes them.
    pub fn answered(
        &mut self,
        (extra, cqe, data): (Extra, Cqe, Vec<u8>),
        keep_alive: Option<&mut KeepAlive>,
        reservations_change: bool,
        now: Time,
    ) -> Option<(u16, Cid, bool)> {
        let status = cqe.status();
        if extra == Extra::Event {
            self.event(&cqe);
            return None;
        }
        assert!(status.is_success(), "{status} to {extra:?}");
        let is_aborted = cqe.dw0.get() & 1 == 0;
        match extra {
            Extra::KeepAlive => {
                if let Some(timer) = keep_alive {
                    timer.answered(now);
                }
            }
            Extra::Setup => {
                self.setup_under_way = false;
                self.is_live = self.setup.is_empty();
            }
            Extra::Notification => self.notified(&data, reservations_change),
            Extra::Changed(began) => self.changed_was_read(began, &data),
            Extra::Abort { qid, cid } => {
                self.aborts -= 1;
                return Some((qid, cid, is_aborted));
            }
            Extra::AbortEvent => {
                self.aborts -= 1;
                if !is_aborted {
                    self.event_aborts = self.event_aborts.checked_sub(1).unwrap();
                }
            }
            Extra::Event => {}
        }
        None
    }

    fn event(&mut self, cqe: &Cqe) {
        // A reset ends them all.
        if !self.is_live {
            return;
        }
        if cqe.status().code() == Status::ABORT_REQUESTED {
            let left = self.event_aborts.checked_sub(1);
            self.event_aborts = left.expect("a request for events ended, and nobody asked");
            return;
        }
        assert!(cqe.status().is_success(), "{}", cqe.status());
        self.to_read.push_back(match AsyncEvent(cqe.dw0.get()) {
            AsyncEvent::RESERVATION_LOG_AVAILABLE => LogPageId::RESERVATION_NOTIFICATION,
            AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED => LogPageId::CHANGED_NAMESPACES,
            other => panic!("event {other:?}"),
        });
    }

    fn notified(&mut self, page: &[u8], reservations_change: bool) {
        self.reading -= 1;
        let what = page[8];
        assert!((1..4).contains(&what), "an event, and no notification");
        assert_eq!(page[12..16], [1, 0, 0, 0], "of the namespace");
        if self.owed.front() == Some(&what) {
            self.owed.pop_front();
        } else if reservations_change {
            self.early.push(what);
        } else {
            self.came_unasked(what);
        }
    }

    /// A notification that no answered command has led to since the controller came up.
    fn came_unasked(&mut self, what: u8) {
        match self.may_come[usize::from(what)].checked_sub(1) {
            Some(left) => self.may_come[usize::from(what)] = left,
            None => assert!(
                self.in_doubt,
                "notification {what}, owed are {:?}",
                self.owed
            ),
        }
    }

    fn changed_was_read(&mut self, began: Moment, page: &[u8]) {
        self.reading -= 1;
        self.reading_changed = false;
        if self.changed.is_some_and(|changed| changed < began) {
            assert_eq!(page[..4], [1, 0, 0, 0], "the change is not told");
            self.changed = None;
        } else if self.changed_while_read {
            // This reading told of it, or an event still will.
            self.changed = None;
        }
        self.changed_while_read = false;
    }
}

fn admin(opcode: AdminOpcode, [cdw10, cdw11]: [u32; 2]) -> Command {
    Command {
        sqe: Sqe {
            opcode: opcode.0,
            cdw10: U32::new(cdw10),
            cdw11: U32::new(cdw11),
            ..Sqe::ZERO
        },
        transfer: Transfer::None,
    }
}
