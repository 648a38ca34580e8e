//! One reactor's handle: a read is with one replica at a time.
//!
//! A replica that promises to give a buffer back soon after a cancel has the read's own. One whose medium decides (a file: a hung NFS mount, a disk that retries) gets
//! memory that is lent, out of which the bytes are copied: where it is late, another one is asked at once, and the first answer of either counts.

mod probing;

use std::collections::VecDeque;
use std::ops::{Add, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reactor::Owner;
use reactor::buf::{IoBuf, Pool};
use store::{Completion, Limits, Op, Rejected, Store, StoreError, Terms, Token, WireBytes, check};

use super::doubts::Doubts;
use super::member::{Member, PROBE, index_and_number, name_of};
use super::read::{At, Read, Recall, not_answered};
use super::standing::Standing;
use crate::limits::{AHEAD_MAX, QUEUE_DEPTH_MAX};

pub(super) struct ReplicaHandle {
    name: String,
    limits: Limits,
    members: Vec<Member>,
    standing: Arc<Standing>,
    doubts: Doubts,
    /// Of the timer.
    owner: Owner,
    is_ticking: bool,
    patience: Duration,
    reads: Vec<Option<Read>>,
    /// Requests to replicas so far.
    asked: u64,
    free: Vec<usize>,
    /// Of those in flight, the reads ahead.
    ahead: u32,
    /// Reads that are with no replica: all are full, or the one that had it failed.
    homeless: VecDeque<usize>,
    /// Of reads that ended, for the next poll; and their places.
    done: Vec<Completion>,
    ended: Vec<usize>,
    /// Scratch of a poll.
    arrived: Vec<Completion>,
    closed: bool,
}

impl ReplicaHandle {
    pub fn new(
        name: &str,
        limits: Limits,
        members: Vec<(Box<dyn Store>, Option<Pool>)>,
        (standing, owner, patience): (Arc<Standing>, Owner, Duration),
    ) -> Self {
        let depth = QUEUE_DEPTH_MAX as usize;
        let answered_at = Instant::now();
        let of = |(store, loans)| Member {
            store,
            loans,
            outstanding: 0,
            recalled: 0,
            answered_at,
            probe: None,
        };
        Self {
            name: name.to_owned(),
            limits,
            doubts: Doubts::new(members.len()),
            members: members.into_iter().map(of).collect(),
            standing,
            owner,
            is_ticking: false,
            patience,
            reads: (0..depth).map(|_| None).collect(),
            asked: 0,
            free: (0..depth).rev().collect(),
            ahead: 0,
            homeless: VecDeque::with_capacity(depth),
            done: Vec::with_capacity(depth),
            ended: Vec::with_capacity(depth),
            arrived: Vec::with_capacity(depth),
            closed: false,
        }
    }

    fn in_flight(&self) -> bool {
        self.free.len() < self.reads.len()
    }

    fn read(&mut self, index: usize) -> Option<&mut Read> {
        self.reads.get_mut(index)?.as_mut()
    }

    /// The replica that a read goes to: the one whose turn it is where another one had wrong bytes, else the one with the fewest outstanding; those
    /// that are down, or keep what they were asked to give back, last. `without` are bits of those that are no choice.
    fn choose(&self, bytes: &Range<u64>, without: u16) -> Option<usize> {
        let members = self.members.iter().enumerate();
        let choices = members.filter(|(index, _)| without >> index & 1 == 0);
        let turn = self.doubts.turn_of(bytes);
        let rank = |(index, member): &(usize, &Member)| {
            let is_its_turn = turn.is_none_or(|turn| turn == *index);
            let is_down = member.recalled > 0 || self.standing.is_down(*index);
            (is_down, !is_its_turn, member.outstanding)
        };
        choices.min_by_key(rank).map(|(index, _)| index)
    }

    /// Gives a read to a replica that has not failed it. It stays homeless where all of these are full, and ends where there is none.
    fn place(&mut self, index: usize, now: Instant) {
        let mut full = 0;
        loop {
            match self.next_for(index, full, now) {
                Next::Ask(member) => match self.submit(index, member, now) {
                    Taken::Yes => return,
                    Taken::Full => full |= 1 << member,
                    Taken::Refused => {}
                },
                Next::Wait => return self.homeless.push_back(index),
                Next::Round(among) => {
                    if let Some(read) = self.read(index) {
                        read.begin_again(among);
                    }
                }
                Next::Cancel(offset) => {
                    let store = self.name.clone();
                    return self.end(index, Err(StoreError::Cancelled { store, offset }));
                }
                Next::GiveUp => return self.give_up(index),
            }
        }
    }

    /// Who is asked next, of those that are not full. Replicas whose bytes are known to be wrong come after all others, and not at all while one of these only said
    /// nothing, which is asked again; nor when the time is over: wrong bytes would say that the medium is at fault.
    fn next_for(&self, index: usize, full: u16, now: Instant) -> Next {
        let Some(read) = self.reads.get(index).and_then(Option::as_ref) else {
            return Next::GiveUp;
        };
        let bytes = read.bytes();
        if read.is_cancelled || self.closed {
            return Next::Cancel(bytes.start);
        }
        if read.is_overdue(now) {
            return Next::GiveUp;
        }
        let trusted = !self.doubts.wrong_of(&bytes);
        for among in [trusted, u16::MAX] {
            if let Some(member) = self.choose(&bytes, read.tried | full | !among) {
                return Next::Ask(member);
            }
            if full & among != 0 || read.late & among != 0 {
                return Next::Wait;
            }
            if read.asked_again() & among != 0 {
                return Next::Round(among);
            }
            if read.silent & among != 0 {
                break;
            }
        }
        Next::GiveUp
    }

    fn submit(&mut self, index: usize, member: usize, now: Instant) -> Taken {
        let Some(read) = self.reads.get_mut(index).and_then(Option::as_mut) else {
            return Taken::Yes;
        };
        let there = &mut self.members[member];
        let len = read.buf.as_ref().map_or(0, IoBuf::len);
        let Ok(lent) = there.lend(len, read.terms.is_ahead) else {
            return Taken::Full;
        };
        let is_lent = lent.is_some();
        let buf = lent.or_else(|| read.buf.take());
        let asked = self.asked;
        self.asked += 1;
        let name = name_of(index, asked);
        match there.store.submit(read.op, buf, name, read.terms) {
            Ok(()) => {
                there.outstanding += 1;
                read.at = Some(At {
                    member,
                    asked,
                    since: now,
                    recalled: None,
                });
                Taken::Yes
            }
            Err(Rejected { buf, why, .. }) => {
                if !is_lent {
                    read.buf = buf;
                }
                if matches!(why, StoreError::Busy) {
                    return Taken::Full;
                }
                self.failed(index, member, why, now);
                Taken::Refused
            }
        }
    }

    /// A replica did not answer a read: it does not get it again.
    fn failed(&mut self, index: usize, member: usize, why: StoreError, now: Instant) {
        self.standing.failed(member, why.to_string(), now);
        if let Some(read) = self.read(index) {
            read.tried |= 1 << member;
            read.failure = Some(why);
        }
    }

    /// No replica is left, or no time.
    fn give_up(&mut self, index: usize) {
        let store = self.name.clone();
        let Some(read) = self.read(index) else { return };
        let failure = if read.is_overdue(Instant::now()) {
            let offset = read.op.offset();
            read.silence.take().or(Some(StoreError::Unreachable {
                store: store.clone(),
                what: "reading",
                offset,
                retry_after_ms: None,
            }))
        } else {
            read.silence.take().or(read.failure.take())
        };
        self.end(index, Err(failure.unwrap_or(StoreError::Closed { store })));
    }

    fn end(&mut self, index: usize, result: Result<u32, StoreError>) {
        if let Some(read) = self.reads.get_mut(index).and_then(Option::take) {
            if let Some(at) = read.at {
                self.members[at.member].end_early(index, &at);
            }
            self.ahead -= u32::from(read.terms.is_ahead);
            self.ended.push(index);
            self.done.push(Completion {
                token: read.token,
                buf: read.buf,
                result,
            });
        }
    }

    /// A replica has ended a read.
    fn completed(&mut self, member: usize, completion: Completion, now: Instant) {
        let Completion { token, buf, result } = completion;
        let (index, asked) = index_and_number(token);
        if index == PROBE {
            return self.probed(member, result, now);
        }
        let there = &mut self.members[member];
        there.outstanding -= 1;
        let is_with = |read: &&mut Read| read.at.is_some_and(|at| at.asked == asked);
        let read = self.reads.get_mut(index).and_then(Option::as_mut);
        let Some(read) = read.filter(is_with) else {
            return self.came_late(member, index, asked, (result, buf), now);
        };
        let recalled = read.at.take().and_then(|at| at.recalled);
        there.recalled -= usize::from(recalled.is_some());
        take_in(read, result.is_ok(), buf);
        let closed = self.closed;
        let is_over = read.is_cancelled || closed;
        let offset = read.op.offset();
        match result {
            Ok(bytes) => {
                let served = read.bytes();
                self.members[member].answered_at = now;
                self.standing.answered(member);
                self.doubts.served(served, member);
                self.end(index, Ok(bytes));
            }
            Err(why) if is_over => self.end(index, Err(why)),
            // What that says of the replica was told when it was recalled.
            Err(StoreError::Cancelled { .. } | StoreError::Unreachable { .. })
                if let Some(recalled) = recalled =>
            {
                let after = recalled.after(self.patience);
                read.was_silent(member, not_answered(&self.name, member, offset, after));
                self.homeless.push_back(index);
            }
            Err(why) => {
                self.members[member].answered_at = now;
                self.failed(index, member, why, now);
                self.homeless.push_back(index);
            }
        }
    }

    /// A replica has ended what it was lent, after its read went on. Where that is still without an answer, this is one.
    fn came_late(
        &mut self,
        member: usize,
        index: usize,
        asked: u64,
        (result, buf): (Result<u32, StoreError>, Option<IoBuf>),
        now: Instant,
    ) {
        let there = &mut self.members[member];
        there.recalled -= 1;
        if result.is_ok() {
            there.answered_at = now;
            self.standing.answered(member);
        }
        let is_own = |read: &&mut Read| asked >= read.first_asked;
        let read = self.reads.get_mut(index).and_then(Option::as_mut);
        let Some(read) = read.filter(is_own) else {
            return;
        };
        read.late &= !(1 << member);
        if let (Ok(bytes), Some(_), false) = (result, &read.buf, read.is_cancelled) {
            take_in(read, true, buf);
            let served = read.bytes();
            self.doubts.served(served, member);
            self.homeless.retain(|homeless| *homeless != index);
            self.end(index, Ok(bytes));
        }
    }

    /// Takes back reads that have waited long enough, where another replica may answer them: one that was not asked in this round, or that said nothing when it was.
    /// One that answers nothing rests from now on: it may keep what it has for as long as it likes.
    fn recall(&mut self, now: Instant) {
        let all = (1_u32 << self.members.len()) - 1;
        for (index, read) in self.reads.iter_mut().enumerate() {
            let Some(read) = read else { continue };
            if read.is_overdue(now) && read.buf.is_some() {
                // Whoever has it was lent memory: nothing has to be waited for.
                if let Some(at) = read.at.take() {
                    self.members[at.member].end_early(index, &at);
                    self.homeless.push_back(index);
                }
                continue;
            }
            let have_failed = u32::from(read.tried & !read.asked_again());
            let Some(at) = &mut read.at else { continue };
            let is_alone = have_failed | 1 << at.member == all;
            if is_alone || at.recalled.is_some() {
                continue;
            }
            let there = &mut self.members[at.member];
            let patience = self.patience.saturating_mul(1 << read.round.min(16));
            at.recalled = Recall::due(at.since, there.answered_at, now, patience);
            let Some(recalled) = at.recalled else {
                continue;
            };
            let (member, asked) = (at.member, at.asked);
            there.recalled += 1;
            let after = recalled.after(self.patience);
            let why = not_answered(&self.name, member, read.op.offset(), after);
            if recalled == Recall::Silent {
                self.standing.failed(member, why.to_string(), now);
            }
            if read.buf.is_some() {
                // It may go on: what it says in the end counts. Another one is asked meanwhile.
                read.at = None;
                read.late |= 1 << member;
                read.was_silent(member, why);
                self.homeless.push_back(index);
            } else {
                there.store.cancel(name_of(index, asked));
            }
        }
    }

    /// A read is to end: at once where no replica has its buffer.
    fn cancel_at(&mut self, index: usize) {
        let Some(read) = self.reads.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        read.is_cancelled = true;
        match read.at {
            Some(at) if read.buf.is_some() => {
                read.at = None;
                self.members[at.member].end_early(index, &at);
                self.homeless.push_back(index);
            }
            Some(at) => self.members[at.member]
                .store
                .cancel(name_of(index, at.asked)),
            None => {}
        }
    }

    /// A timer wakes the ring while anything is in flight: a replica that says nothing wakes nobody.
    fn tick(&mut self, now: Instant) {
        let was_due = self.owner.next_event().is_some();
        if was_due {
            self.is_ticking = false;
            self.recall(now);
            self.recall_probes(now);
        }
        self.probe(now);
        if self.in_flight() && !self.is_ticking {
            self.is_ticking = self.owner.timer(now + self.patience / 2, 0).is_ok();
        }
    }

    /// Takes what replicas have done, and places what has no place; true where that may have brought more.
    fn turn(&mut self, now: Instant) -> bool {
        let mut arrived = std::mem::take(&mut self.arrived);
        for member in 0..self.members.len() {
            self.members[member].store.poll(&mut arrived);
            for completion in arrived.drain(..) {
                self.completed(member, completion, now);
            }
        }
        self.arrived = arrived;
        let homeless = self.homeless.len();
        for is_ahead in [false, true] {
            self.place_homeless(is_ahead, now);
        }
        self.homeless.len() < homeless
    }

    /// Those that somebody waits for, or the others; each keeps its place among those that stay.
    fn place_homeless(&mut self, is_ahead: bool, now: Instant) {
        for _ in 0..self.homeless.len() {
            let Some(index) = self.homeless.pop_front() else {
                return;
            };
            let is_meant = |read: &Read| read.terms.is_ahead == is_ahead;
            match self.reads[index].as_ref().is_none_or(is_meant) {
                true => self.place(index, now),
                false => self.homeless.push_back(index),
            }
        }
    }
}

/// What a replica gave back: a read's own buffer, or what it was lent, out of which the bytes are copied where there are some.
fn take_in(read: &mut Read, is_answer: bool, buf: Option<IoBuf>) {
    match (&mut read.buf, buf) {
        (Some(own), Some(lent)) if is_answer => {
            own.copy_from_buf(&lent);
        }
        (Some(_), _) => {}
        (own, buf) => *own = buf,
    }
}

/// What becomes of a read that no replica has.
enum Next {
    Ask(usize),
    /// For room.
    Wait,
    /// Those of these that said nothing are asked again.
    Round(u16),
    /// It was cancelled, at this offset.
    Cancel(u64),
    GiveUp,
}

/// Whether a replica took a read.
enum Taken {
    Yes,
    Full,
    Refused,
}

impl Store for ReplicaHandle {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(
        &mut self,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
        terms: Terms,
    ) -> Result<(), Rejected> {
        let checked = if self.closed {
            let store = self.name.clone();
            Err(StoreError::Closed { store })
        } else {
            check(&op, buf.as_ref(), &self.limits, &self.name)
        };
        let has_room = !terms.is_ahead || self.ahead < AHEAD_MAX;
        let mut place = || self.free.pop_if(|_| has_room).ok_or(StoreError::Busy);
        let index = match checked.and_then(|()| place()) {
            Ok(index) => index,
            Err(why) => return Err(Rejected { op, buf, why }),
        };
        self.ahead += u32::from(terms.is_ahead);
        self.reads[index] = Some(Read {
            token,
            op,
            terms,
            buf,
            first_asked: self.asked,
            late: 0,
            tried: 0,
            silent: 0,
            round: 0,
            at: None,
            failure: None,
            silence: None,
            is_cancelled: false,
        });
        match op {
            // Nothing was ever written.
            Op::Flush => self.end(index, Ok(0)),
            _ => self.place(index, Instant::now()),
        }
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let now = Instant::now();
        self.tick(now);
        // A read goes on to each replica once at most: those that are asked again have let time pass.
        while self.turn(now) {}
        completions.append(&mut self.done);
        self.free.append(&mut self.ended);
    }

    fn close(&mut self) {
        self.closed = true;
        self.members.iter_mut().for_each(|it| it.store.close());
        for index in 0..self.reads.len() {
            self.cancel_at(index);
        }
    }

    fn is_closed(&self) -> bool {
        let are_closed = self.members.iter().all(|it| it.store.is_closed());
        self.closed && !self.in_flight() && are_closed
    }

    fn cancel(&mut self, token: Token) {
        let is_it = |read: &Option<Read>| read.as_ref().is_some_and(|read| read.token == token);
        if let Some(index) = self.reads.iter().position(is_it) {
            self.cancel_at(index);
        }
    }

    fn hurry(&mut self, token: Token) {
        let mut reads = self.reads.iter_mut().enumerate();
        let Some((index, read)) = reads.find_map(|(index, read)| {
            let read = read.as_mut().filter(|read| read.token == token)?;
            Some((index, read))
        }) else {
            return;
        };
        self.ahead -= u32::from(std::mem::take(&mut read.terms.is_ahead));
        if let Some(At { member, asked, .. }) = read.at {
            self.members[member].store.hurry(name_of(index, asked));
        }
    }

    fn doubt(&mut self, offset: u64, len: u64) -> u32 {
        let bytes = offset..offset.saturating_add(len);
        if let Some(member) = self.doubts.doubt(&bytes) {
            self.standing.was_wrong(member, bytes);
        }
        // At most MEMBERS_MAX.
        u32::try_from(self.members.len() - 1).unwrap_or(0)
    }

    fn lease(&mut self, offset: u64, len: u32) -> Option<IoBuf> {
        let bytes = offset..offset.saturating_add(len.into());
        let member = self.doubts.turn_of(&bytes).unwrap_or(0);
        let lease = self.members.get_mut(member)?.store.lease(offset, len)?;
        self.doubts.served(bytes, member);
        Some(lease)
    }

    fn wire(&self) -> WireBytes {
        let all = self.members.iter().map(|it| it.store.wire());
        all.fold(WireBytes::default(), WireBytes::add)
    }
}
