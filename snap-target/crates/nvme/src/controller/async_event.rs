//! Asynchronous events (Base, "Asynchronous Event Request command").

use crate::queue::{Completion, Slot};
use nvme_spec::feature::AsyncEvent;
use nvme_spec::{Nsid, Status};
use std::collections::VecDeque;

/// Entries of the Changed Attached Namespace List; one more change and the list says only that.
const CHANGED_MAX: usize = 1024;

/// Requests that wait for an event, and events that wait for a request.
#[derive(Debug)]
pub(super) struct AsyncEvents {
    requests: VecDeque<Slot>,
    requests_max: usize,
    /// Answers to hand out.
    answers: VecDeque<(Slot, Completion)>,
    namespaces: Notice,
    discovery: Notice,
    reservations: Notice,
    changed: Vec<Nsid>,
    overflow: bool,
}

/// One kind of event. After it was reported it is masked until the host reads the log page that goes with it.
#[derive(Debug)]
struct Notice {
    event: AsyncEvent,
    pending: bool,
    masked: bool,
}

impl Notice {
    const fn new(event: AsyncEvent) -> Notice {
        Notice {
            event,
            pending: false,
            masked: false,
        }
    }
}

impl AsyncEvents {
    pub fn new(requests_max: u8) -> AsyncEvents {
        AsyncEvents {
            requests: VecDeque::with_capacity(usize::from(requests_max)),
            requests_max: usize::from(requests_max),
            answers: VecDeque::new(),
            namespaces: Notice::new(AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED),
            discovery: Notice::new(AsyncEvent::DISCOVERY_LOG_CHANGED),
            reservations: Notice::new(AsyncEvent::RESERVATION_LOG_AVAILABLE),
            changed: Vec::new(),
            overflow: false,
        }
    }

    /// A host's request: held until something happens.
    pub fn request(&mut self, slot: Slot) -> Result<(), Status> {
        if self.requests.len() >= self.requests_max {
            return Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED.dnr());
        }
        self.requests.push_back(slot);
        self.match_up();
        Ok(())
    }

    /// Namespaces changed; `notify` where the host enabled the notice.
    pub fn namespaces_changed(&mut self, changed: &[Nsid], notify: bool) {
        for &nsid in changed {
            if let Err(place) = self.changed.binary_search(&nsid) {
                self.changed.insert(place, nsid);
            }
        }
        self.overflow |= self.changed.len() > CHANGED_MAX;
        self.changed.truncate(CHANGED_MAX);
        self.namespaces.pending |= notify && !changed.is_empty();
        self.match_up();
    }

    /// The discovery log changed.
    pub fn discovery_changed(&mut self) {
        self.discovery.pending = true;
        self.match_up();
    }

    /// The Changed Attached Namespace List.
    pub fn changed(&self) -> Vec<u8> {
        let mut page = vec![0; CHANGED_MAX * 4];
        let everything = [Nsid::BROADCAST];
        let listed = if self.overflow {
            &everything[..]
        } else {
            &self.changed
        };
        for (to, nsid) in page.chunks_exact_mut(4).zip(listed) {
            to.copy_from_slice(&nsid.0.to_le_bytes());
        }
        page
    }

    /// It was read. Unless `retain` it is empty now and the event may come again: with the next change, since the host has seen those before.
    pub fn changed_read(&mut self, retain: bool) {
        if !retain {
            self.changed.clear();
            self.overflow = false;
            self.namespaces.masked = false;
            self.namespaces.pending = false;
        }
    }

    /// The discovery log was read.
    pub fn discovery_read(&mut self, retain: bool) {
        if !retain {
            self.discovery.masked = false;
            self.match_up();
        }
    }

    /// A Reservation Notification can be read.
    pub fn reservation_notified(&mut self) {
        self.reservations.pending = true;
        self.match_up();
    }

    /// A Reservation Notification was read; `more` wait. Unless `retain` the event may come again, and does where they wait.
    pub fn reservation_read(&mut self, retain: bool, more: bool) {
        if !retain {
            self.reservations.masked = false;
            self.reservations.pending = more;
            self.match_up();
        }
    }

    /// The next request to answer.
    pub fn next_answer(&mut self) -> Option<(Slot, Completion)> {
        self.answers.pop_front()
    }

    /// Ends one request, where this slot is one.
    pub fn abort(&mut self, slot: Slot) -> bool {
        let Some(place) = self.requests.iter().position(|&request| request == slot) else {
            return false;
        };
        self.requests.remove(place);
        self.answers
            .push_back((slot, Completion::of(Status::ABORT_REQUESTED)));
        true
    }

    /// A controller reset: requests end, events are forgotten.
    pub fn reset(&mut self) {
        let aborted = self
            .requests
            .drain(..)
            .map(|slot| (slot, Completion::of(Status::ABORT_REQUESTED)));
        self.answers.extend(aborted);
        self.namespaces = Notice::new(AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED);
        self.discovery = Notice::new(AsyncEvent::DISCOVERY_LOG_CHANGED);
        self.reservations = Notice::new(AsyncEvent::RESERVATION_LOG_AVAILABLE);
        self.changed.clear();
        self.overflow = false;
    }

    fn match_up(&mut self) {
        let notices = [
            &mut self.namespaces,
            &mut self.discovery,
            &mut self.reservations,
        ];
        for notice in notices {
            if notice.pending
                && !notice.masked
                && let Some(slot) = self.requests.pop_front()
            {
                notice.pending = false;
                notice.masked = true;
                self.answers
                    .push_back((slot, Completion::result(notice.event.0)));
            }
        }
    }
}
