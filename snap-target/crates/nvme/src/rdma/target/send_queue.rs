//! What is in the queue pair's send queue: in order, from [`SendQueue::post`] until its completion, or that of one behind it, has come.

use crate::Time;
use crate::queue::Slot;
use std::collections::VecDeque;

/// The name of a request that was posted: never given twice in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId(pub u64);

/// What a request did, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// An RDMA READ of so many bytes.
    Read { slot: Slot, bytes: u32 },
    /// An RDMA WRITE.
    Write,
    /// A response; of these slots' answers the data went before it.
    Response { slot: Slot, with_data: bool },
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    done: Done,
    at: Time,
}

/// See the module.
#[derive(Debug)]
pub(super) struct SendQueue {
    posted: VecDeque<Posted>,
    requests_max: usize,
    /// Of the first that is there.
    first: u64,
    /// Everything before this one is done.
    done_before: u64,
    /// RDMA WRITEs since the last request that will be told.
    untold: usize,
    /// One in so many is told at least: the queue never fills with requests of which nothing will be heard.
    tell_every: usize,
    reads: u8,
    reads_max: u8,
    responses: usize,
    responses_max: usize,
}

impl SendQueue {
    /// Of so many requests, of which so many RDMA READs and so many responses at a time.
    pub fn new(requests_max: u16, reads_max: u8, responses_max: u16) -> SendQueue {
        let requests_max = usize::from(requests_max);
        let responses_max = usize::from(responses_max);
        SendQueue {
            posted: VecDeque::with_capacity(requests_max),
            requests_max,
            first: 0,
            done_before: 0,
            untold: 0,
            tell_every: (requests_max / 2).max(1),
            reads: 0,
            reads_max,
            responses: 0,
            responses_max,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    pub fn has_room(&self) -> bool {
        self.posted.len() < self.requests_max
    }

    pub fn takes_read(&self) -> bool {
        self.reads < self.reads_max
    }

    pub fn takes_response(&self) -> bool {
        self.responses < self.responses_max
    }

    /// The name that the next request will have.
    pub fn next_id(&self) -> WorkId {
        WorkId(self.first + self.posted.len() as u64)
    }

    /// Whether its completion is to be told. A response's always is: a host that takes none is noticed by it. RDMA WRITEs have a response behind them.
    pub fn is_told(&self, done: Done) -> bool {
        done != Done::Write || self.untold + 1 >= self.tell_every
    }

    pub fn post(&mut self, done: Done, at: Time) {
        self.untold = if self.is_told(done) {
            0
        } else {
            self.untold + 1
        };
        match done {
            Done::Read { .. } => self.reads += 1,
            Done::Response { .. } => self.responses += 1,
            Done::Write => {}
        }
        self.posted.push_back(Posted { done, at });
    }

    /// The completion of a request came: it is done, and so is all before it. False for one that is not there.
    pub fn completed(&mut self, id: WorkId) -> bool {
        let is_there = id.0 >= self.first && id.0 < self.next_id().0;
        if is_there {
            self.done_before = self.done_before.max(id.0 + 1);
        }
        is_there
    }

    /// The next request that is done.
    pub fn next_done(&mut self) -> Option<Done> {
        if self.first >= self.done_before {
            return None;
        }
        let posted = self.posted.pop_front()?;
        self.first += 1;
        match posted.done {
            Done::Read { .. } => self.reads -= 1,
            Done::Response { .. } => self.responses -= 1,
            Done::Write => {}
        }
        Some(posted.done)
    }

    pub fn has_done(&self) -> bool {
        self.first < self.done_before
    }

    /// Since when the first request has been there.
    pub fn oldest(&self) -> Option<Time> {
        self.posted.front().map(|posted| posted.at)
    }
}
