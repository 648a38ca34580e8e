//! A request as an engine has it.

use std::time::Instant;

use reactor::buf::IoBuf;
use store::Token;
use volume::ReadOp;

use crate::NamespaceError;
use crate::attached::WaitsFor;
use crate::compound::Compound;
use crate::exclusive::Ticket;
use crate::limits::FETCHES_MAX;
use crate::raw::Raw;
use crate::view::ViewRead;

pub(crate) struct Request {
    pub(crate) attached: usize,
    pub(crate) token: u64,
    /// When whoever asked gives it up.
    pub(crate) deadline: Option<Instant>,
    pub(crate) work: Work,
    /// The request that it is a part of.
    pub(crate) parent: Option<usize>,
    pub(crate) entry: Entry,
    /// Bytes of an answer that it holds.
    pub(super) answer_bytes: usize,
    /// Bytes of a read that reading ahead was told of, and is to be told of again at its end.
    pub(super) noted_bytes: u64,
    pub(super) was_parked: bool,
    pub(crate) is_write: bool,
    /// Its host is gone, and it keeps the fence of its namespace up.
    pub(super) is_abandoned: bool,
    /// Recycled: a request makes no allocation after its slot's first.
    pub(super) op: Option<Box<ReadOp>>,
}

impl Request {
    /// Whether it has not been answered.
    pub(super) fn is_taken(&self) -> bool {
        !matches!(self.work, Work::Free)
    }
}

/// Where a request stands toward its namespace's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It has not been through.
    Outside,
    /// A write that was kept out.
    KeptOut,
    /// A write that the store has.
    Inside,
    /// It is to keep the others out when its turn comes.
    InLine(Ticket),
    /// It keeps the others out.
    Excludes,
    /// A part of one that does.
    Exempt,
}

#[expect(
    clippy::large_enum_variant,
    reason = "lives in the request table, which is made once; a box would be an allocation a request"
)]
pub(crate) enum Work {
    Free,
    /// Waits for memory or a store's queue; retried whenever something was given back.
    Raw(Raw),
    /// The store has it.
    Submitted,
    View(ViewRead),
    /// Several parts, one after the other.
    Compound(Box<Compound>),
}

/// How far a request came.
pub(crate) enum Step {
    /// Answered.
    Done(Result<Option<IoBuf>, NamespaceError>),
    /// The store has it.
    Waiting,
    /// It waits, and is tried again.
    Parked(WaitsFor),
}

/// A store token names the request and the fetch.
pub(crate) fn token_of(slot: usize, fetch: usize) -> Token {
    debug_assert!(fetch < FETCHES_MAX);
    Token((slot * FETCHES_MAX + fetch) as u64)
}

pub(super) fn parts_of(token: Token) -> (usize, usize) {
    let value = usize::try_from(token.0).unwrap_or(usize::MAX);
    (value / FETCHES_MAX, value % FETCHES_MAX)
}
