//! One reactor's handle: an operation is a piece for each unit that it touches, or for each member, and ends when all of them have.

use std::collections::VecDeque;
use std::ops::Add;

use nix::errno::Errno;
use reactor::buf::IoBuf;
use store::{
    Completion, Limits, Op, Rejected, Store, StoreError, TRANSFER_BYTES_MIN, Terms, Token,
    WireBytes, check,
};

use super::geometry::{Geometry, Piece};
use crate::limits::{AHEAD_MAX, MEMBERS_MAX, QUEUE_DEPTH_MAX, UNIT_BYTES_MIN};

/// Pieces of one operation: of a read or write one a unit, of the others one a member.
const PIECES_MAX: usize = (TRANSFER_BYTES_MIN / UNIT_BYTES_MIN) as usize + 1;
const _: () = assert!(PIECES_MAX >= MEMBERS_MAX);

pub(super) struct StripeHandle {
    name: String,
    geometry: Geometry,
    limits: Limits,
    members: Vec<Box<dyn Store>>,
    /// By member: pieces that it had no room for.
    waiting: Vec<Waiting>,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Of those in flight, the reads ahead.
    ahead: u32,
    /// A flight was hurried or cancelled since those that wait were looked through.
    is_to_sort: bool,
    /// Flights whose last piece ended, for the next poll.
    ended: Vec<usize>,
    /// Scratch of a poll.
    arrived: Vec<Completion>,
    closed: bool,
}

/// An operation in flight.
struct Flight {
    token: Token,
    op: Op,
    buf: Option<IoBuf>,
    terms: Terms,
    /// Pieces that have not ended.
    left: usize,
    /// A piece was done.
    did_some: bool,
    failure: Option<StoreError>,
    cancelled: bool,
}

/// A piece of a flight. Its number names it to its member.
#[derive(Clone, Copy)]
struct Part {
    flight: usize,
    number: usize,
    piece: Piece,
}

/// Pieces that wait for room at their member, each kind in its order: those that somebody waits for come first, and do not wait for the others.
struct Waiting {
    wanted: VecDeque<Part>,
    ahead: VecDeque<Part>,
}

impl Waiting {
    fn with_capacity(pieces: usize) -> Self {
        Self {
            wanted: VecDeque::with_capacity(pieces),
            ahead: VecDeque::with_capacity(pieces),
        }
    }

    fn of(&mut self, is_ahead: bool) -> &mut VecDeque<Part> {
        if is_ahead {
            &mut self.ahead
        } else {
            &mut self.wanted
        }
    }

    /// Whether a new piece has none before it.
    fn is_clear(&self, is_ahead: bool) -> bool {
        self.wanted.is_empty() && (!is_ahead || self.ahead.is_empty())
    }
}

impl Part {
    fn token(&self) -> Token {
        Token((self.flight * PIECES_MAX + self.number) as u64)
    }
}

fn flight_of(token: Token) -> usize {
    usize::try_from(token.0).unwrap_or(usize::MAX) / PIECES_MAX
}

impl StripeHandle {
    pub fn new(
        name: &str,
        geometry: Geometry,
        limits: Limits,
        members: Vec<Box<dyn Store>>,
    ) -> Self {
        let depth = QUEUE_DEPTH_MAX as usize;
        let pieces = depth * PIECES_MAX.div_ceil(members.len());
        let queue = || Waiting::with_capacity(pieces);
        Self {
            name: name.to_owned(),
            geometry,
            limits,
            waiting: (0..members.len()).map(|_| queue()).collect(),
            members,
            flights: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            ahead: 0,
            is_to_sort: false,
            ended: Vec::with_capacity(depth),
            arrived: Vec::with_capacity(depth),
            closed: false,
        }
    }

    fn in_flight(&self) -> bool {
        self.free.len() < self.flights.len()
    }

    /// Gives each piece of a flight to its member, or lets it wait there.
    fn begin(&mut self, flight: usize, op: Op, len: u64) {
        for (number, piece) in self.pieces(op, len) {
            self.offer(Part {
                flight,
                number,
                piece,
            });
        }
    }

    /// The pieces of an operation and their numbers in it.
    fn pieces(&self, op: Op, len: u64) -> impl Iterator<Item = (usize, Piece)> + use<> {
        let (geometry, members) = (self.geometry, self.members.len());
        let range = op.offset()..op.offset() + len;
        let count = if op.takes_buffer() {
            geometry.units(&range)
        } else {
            members
        };
        (0..count).filter_map(move |number| {
            let share = match op {
                Op::Read { .. } | Op::Write { .. } => {
                    return Some((number, geometry.piece(&range, number)));
                }
                Op::Flush => 0..0,
                Op::Discard { .. } | Op::Zero { .. } => geometry.share(&range, number)?,
            };
            let piece = Piece {
                member: number,
                offset: share.start,
                len: share.end - share.start,
                at: 0,
            };
            Some((number, piece))
        })
    }

    /// A new piece of a flight: behind those that wait for its member.
    fn offer(&mut self, part: Part) {
        let Some(flight) = self.flights.get_mut(part.flight).and_then(Option::as_mut) else {
            return;
        };
        flight.left += 1;
        let (member, is_ahead) = (part.piece.member, flight.terms.is_ahead);
        if !self.waiting[member].is_clear(is_ahead) || !self.submit(part) {
            self.waiting[member].of(is_ahead).push_back(part);
        }
    }

    /// Hands a piece to its member; false where that has no room now.
    fn submit(&mut self, part: Part) -> bool {
        let Some(flight) = self.flights.get(part.flight).and_then(Option::as_ref) else {
            return true;
        };
        let Piece {
            member,
            offset,
            len,
            at,
        } = part.piece;
        let op = match flight.op {
            Op::Read { .. } => Op::Read { offset },
            Op::Write { durable, .. } => Op::Write { offset, durable },
            Op::Flush => Op::Flush,
            Op::Discard { .. } => Op::Discard { offset, len },
            Op::Zero { durable, .. } => Op::Zero {
                offset,
                len,
                durable,
            },
        };
        // A buffer is at most TRANSFER_BYTES_MIN long.
        let bytes = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let buf = flight
            .buf
            .as_ref()
            .map(|buf| buf.slice(bytes(at)..bytes(at + len)));
        let refused = match self.members[member].submit(op, buf, part.token(), flight.terms) {
            Ok(()) => return true,
            Err(Rejected {
                why: StoreError::Busy,
                ..
            }) => return false,
            Err(Rejected { why, .. }) => why,
        };
        self.piece_ended(part.flight, Some(refused));
        true
    }

    fn piece_ended(&mut self, index: usize, failure: Option<StoreError>) {
        let Some(flight) = self.flights.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        match failure {
            None => flight.did_some = true,
            Some(error) if says_less(flight.failure.as_ref(), &error) => {
                flight.failure = Some(error);
            }
            Some(_) => {}
        }
        flight.left -= 1;
        if flight.left == 0 {
            self.ended.push(index);
        }
    }

    /// Takes what members have done, and gives them what waits; true where that may have brought more.
    fn turn(&mut self) -> bool {
        let mut arrived = std::mem::take(&mut self.arrived);
        for member in &mut self.members {
            member.poll(&mut arrived);
        }
        for Completion { token, buf, result } in arrived.drain(..) {
            // A view of the flight's buffer.
            drop(buf);
            self.piece_ended(flight_of(token), result.err());
        }
        self.arrived = arrived;
        let mut any = false;
        for member in 0..self.members.len() {
            any |= self.submit_waiting(member, false);
            if self.waiting[member].wanted.is_empty() {
                any |= self.submit_waiting(member, true);
            }
        }
        any
    }

    /// Gives a member what waits for it, as far as it has room; true where it took something.
    fn submit_waiting(&mut self, member: usize, is_ahead: bool) -> bool {
        let mut any = false;
        while let Some(part) = self.waiting[member].of(is_ahead).front().copied() {
            if !self.submit(part) {
                break;
            }
            self.waiting[member].of(is_ahead).pop_front();
            any = true;
        }
        any
    }

    /// What an operation came to.
    fn outcome(&self, flight: &mut Flight) -> Result<u32, StoreError> {
        let bytes = flight.buf.as_ref().map_or(0, IoBuf::len);
        match flight.failure.take() {
            None => Ok(u32::try_from(bytes).unwrap_or(u32::MAX)),
            // It took effect in part, which Unreachable denies.
            Some(StoreError::Unreachable { .. }) if flight.op.is_change() && flight.did_some => {
                Err(StoreError::Io {
                    store: self.name.clone(),
                    what: flight.op.what(),
                    offset: flight.op.offset(),
                    source: Errno::EIO,
                    advice: "; a member cannot be reached, and others have done their parts",
                })
            }
            Some(error) => Err(error),
        }
    }

    /// Looks once through all that waits: what was cancelled ends, and what was hurried stands behind what is waited for.
    fn sort_waiting(&mut self) {
        for (member, is_ahead) in (0..self.members.len()).flat_map(|it| [(it, false), (it, true)]) {
            let mut waiting = std::mem::take(self.waiting[member].of(is_ahead));
            for _ in 0..waiting.len() {
                let Some(part) = waiting.pop_front() else {
                    break;
                };
                let flight = self.flights[part.flight].as_ref();
                if self.closed || flight.is_none_or(|flight| flight.cancelled) {
                    self.cancelled_piece(part.flight);
                } else if is_ahead && flight.is_some_and(|flight| !flight.terms.is_ahead) {
                    self.waiting[member].wanted.push_back(part);
                } else {
                    waiting.push_back(part);
                }
            }
            *self.waiting[member].of(is_ahead) = waiting;
        }
        self.is_to_sort = false;
    }

    fn flight_named(&mut self, token: Token) -> Option<(usize, &mut Flight)> {
        let mut flights = self.flights.iter_mut().enumerate();
        flights.find_map(|(index, flight)| {
            let flight = flight.as_mut().filter(|flight| flight.token == token)?;
            Some((index, flight))
        })
    }

    /// Says something of each piece of a flight; a member that does not have it takes no notice.
    fn tell_members(&mut self, index: usize, tell: impl Fn(&mut dyn Store, Token)) {
        let Some(flight) = &self.flights[index] else {
            return;
        };
        let len = bytes_of(flight.op, flight.buf.as_ref());
        for (number, piece) in self.pieces(flight.op, len) {
            let token = Token((index * PIECES_MAX + number) as u64);
            tell(self.members[piece.member].as_mut(), token);
        }
    }

    fn cancelled_piece(&mut self, index: usize) {
        let offset = self.flights[index].as_ref().map_or(0, |it| it.op.offset());
        let store = self.name.clone();
        self.piece_ended(index, Some(StoreError::Cancelled { store, offset }));
    }
}

impl Store for StripeHandle {
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
        let len = bytes_of(op, buf.as_ref());
        self.flights[index] = Some(Flight {
            token,
            op,
            buf,
            terms,
            // Held until all pieces were offered: none of them is the last before.
            left: 1,
            did_some: false,
            failure: None,
            cancelled: false,
        });
        self.begin(index, op, len);
        if let Some(flight) = self.flights[index].as_mut() {
            flight.left -= 1;
            if flight.left == 0 {
                self.ended.push(index);
            }
        }
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        if self.is_to_sort {
            self.sort_waiting();
        }
        // What was given to a member that ends it at once is there with the next look; bounded by what waits.
        while self.turn() {}
        let mut ended = std::mem::take(&mut self.ended);
        for index in ended.drain(..) {
            if let Some(mut flight) = self.flights[index].take() {
                self.ahead -= u32::from(flight.terms.is_ahead);
                let result = self.outcome(&mut flight);
                completions.push(Completion {
                    token: flight.token,
                    buf: flight.buf,
                    result,
                });
                self.free.push(index);
            }
        }
        self.ended = ended;
    }

    fn close(&mut self) {
        self.closed = true;
        self.is_to_sort = true;
        self.members.iter_mut().for_each(|member| member.close());
    }

    fn is_closed(&self) -> bool {
        self.closed && !self.in_flight() && self.members.iter().all(|member| member.is_closed())
    }

    fn cancel(&mut self, token: Token) {
        let Some((index, flight)) = self.flight_named(token) else {
            return;
        };
        if std::mem::replace(&mut flight.cancelled, true) {
            return;
        }
        self.is_to_sort = true;
        self.tell_members(index, |member, piece| member.cancel(piece));
    }

    fn hurry(&mut self, token: Token) {
        let Some((index, flight)) = self.flight_named(token) else {
            return;
        };
        if !std::mem::take(&mut flight.terms.is_ahead) {
            return;
        }
        self.ahead -= 1;
        self.is_to_sort = true;
        self.tell_members(index, |member, piece| member.hurry(piece));
    }

    fn doubt(&mut self, offset: u64, len: u64) -> u32 {
        let range = offset..offset.saturating_add(len).min(self.limits.bytes);
        let members = self.members.iter_mut().enumerate();
        let copies = members.filter_map(|(index, member)| {
            let share = self.geometry.share(&range, index)?;
            Some(member.doubt(share.start, share.end - share.start))
        });
        copies.max().unwrap_or(0)
    }

    fn lease(&mut self, offset: u64, len: u32) -> Option<IoBuf> {
        let end = offset
            .checked_add(len.into())
            .filter(|end| *end <= self.limits.bytes)?;
        let piece = self.geometry.piece(&(offset..end), 0);
        let is_whole = piece.len == u64::from(len);
        is_whole.then(|| self.members[piece.member].lease(piece.offset, len))?
    }

    fn wire(&self) -> WireBytes {
        let all = self.members.iter().map(|member| member.wire());
        all.fold(WireBytes::default(), WireBytes::add)
    }
}

/// How many bytes an operation is about.
fn bytes_of(op: Op, buf: Option<&IoBuf>) -> u64 {
    match op {
        Op::Discard { len, .. } | Op::Zero { len, .. } => len,
        _ => buf.map_or(0, IoBuf::len) as u64,
    }
}

/// Whether what is known of an operation's failure says less about what became of it than another member's failure does: that a part never happened is
/// nothing beside one that may have, and that beside one that may yet.
fn says_less(known: Option<&StoreError>, error: &StoreError) -> bool {
    let rank = |error: &StoreError| match error {
        StoreError::Unreachable { .. } => 1,
        StoreError::Cancelled { .. } => 2,
        StoreError::Unsettled { .. } => 4,
        _ => 3,
    };
    known.map_or(0, rank) < rank(error)
}

#[cfg(test)]
mod tests {
    use store::StoreError;

    use super::says_less;

    #[test]
    fn the_failure_that_leaves_most_open_is_told() {
        let (store, offset) = (|| "a".to_owned(), 0);
        let rising = [
            StoreError::Unreachable {
                store: store(),
                what: "writing",
                offset,
                retry_after_ms: None,
            },
            StoreError::Cancelled {
                store: store(),
                offset,
            },
            StoreError::Closed { store: store() },
        ];
        for (at, known) in rising.iter().enumerate() {
            assert!(says_less(None, known));
            for (other, error) in rising.iter().enumerate() {
                assert_eq!(
                    says_less(Some(known), error),
                    at < other,
                    "{known}, {error}"
                );
            }
        }
    }
}
