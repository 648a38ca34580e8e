//! What hosts may be told: the disk, its reservations, and each I/O command with what is known of it.

use nvme::controller::reservation::Request;
use nvme_spec::Status;

use crate::reservations::{Effects, Group, Reservations};
use nvme::simulation::model::{Model, Moment, Span, Use, Value, WriteId};

/// The oracles of one namespace.
#[derive(Debug)]
pub struct Oracle {
    pub disk: Model,
    pub reservations: Reservations,
    /// Changes of reservations that all hosts are told of without a doubt, and when they were asked for.
    pub effects: Vec<(Moment, Option<Effects>)>,
    /// What came of commands.
    pub seen: Seen,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub conflicts: u32,
    pub preempted: u32,
    pub aborted: u32,
    pub miscompares: u32,
    pub unreadable: u32,
    pub fused: u32,
}

impl Seen {
    /// Both together.
    pub fn plus(self, other: Seen) -> Seen {
        Seen {
            conflicts: self.conflicts + other.conflicts,
            preempted: self.preempted + other.preempted,
            aborted: self.aborted + other.aborted,
            miscompares: self.miscompares + other.miscompares,
            unreadable: self.unreadable + other.unreadable,
            fused: self.fused + other.fused,
        }
    }
}

/// Who sends commands: an association, and the host that it is of.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    pub client: usize,
    pub host: usize,
}

/// An I/O command under way.
#[derive(Clone, Debug)]
pub struct Io {
    pub kind: Kind,
    pub began: Moment,
    pub uses: Vec<(Span, Use)>,
    /// An Abort has named it.
    pub abort_sent: bool,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Flush,
    Read(Span),
    Verify(Span),
    Compare {
        span: Span,
        expected: Vec<Value>,
    },
    /// Write, Write Zeroes, Write Uncorrectable, Dataset Management.
    Change {
        write: WriteId,
        spans: Vec<Span>,
    },
    Copy {
        write: WriteId,
        to: Span,
        sources: Vec<Span>,
    },
    /// A half of a fused operation that is as it should be; the queue brings both answers together.
    Half(usize),
    /// It cannot be carried out, whatever the state.
    Refused(Status),
    Reserve(Request),
    Report,
}

/// Both halves of a fused operation, and their answers.
#[derive(Clone, Debug)]
pub struct Pair {
    pub began: Moment,
    pub write: WriteId,
    pub span: Span,
    pub expected: Vec<Value>,
    pub uses: Vec<(Span, Use)>,
    /// Nothing but fused operations writes there.
    pub is_counted: bool,
    pub answers: [Option<Status>; 2],
}

impl Oracle {
    pub fn new(disk: Model) -> Oracle {
        Oracle {
            disk,
            reservations: Reservations::new(),
            effects: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// A command of `who` was answered.
    pub fn answered(&mut self, io: &Io, who: Who, status: Status, data: &[u8]) {
        match &io.kind {
            Kind::Refused(expected) => assert_eq!(status, *expected, "{io:?}"),
            Kind::Reserve(request) => self.reserved(io, request, who, status),
            Kind::Report => self.reported(io, status, data),
            _ => self.carried_out(io, who, status, data),
        }
        self.disk.release(&io.uses);
    }

    fn carried_out(&mut self, io: &Io, who: Who, status: Status, data: &[u8]) {
        let (may_pass, may_conflict) = self.may(io, who);
        match status.code() {
            Status::RESERVATION_CONFLICT => {
                assert!(may_conflict, "a conflict without a reason: {io:?}");
                self.seen.conflicts += 1;
                self.nothing_done(io);
            }
            Status::ABORT_REQUESTED => {
                assert!(io.abort_sent, "aborted, and nobody asked: {io:?}");
                self.seen.aborted += 1;
                self.never_known(io);
            }
            Status::PREEMPTED => {
                let is_possible = self.reservations.may_be_preempted(who.host, io.began);
                assert!(is_possible, "preempted, and nobody did: {io:?}");
                self.seen.preempted += 1;
                self.never_known(io);
            }
            _ => {
                assert!(
                    may_pass,
                    "no conflict, though there is a reservation: {io:?}"
                );
                self.passed(io, who, status, data);
            }
        }
    }

    fn may(&self, io: &Io, who: Who) -> (bool, bool) {
        let may = |group| self.reservations.may(who.host, group, io.began);
        match io.kind {
            Kind::Read(_) | Kind::Verify(_) | Kind::Compare { .. } => may(Group::Read),
            _ => may(Group::Write),
        }
    }

    fn passed(&mut self, io: &Io, who: Who, status: Status, data: &[u8]) {
        let (disk, began) = (&mut self.disk, io.began);
        let reservations = &self.reservations;
        let could_not_write = |since| !reservations.may(who.host, Group::Write, since).0;
        match (&io.kind, status.code()) {
            (Kind::Read(span), Status::SUCCESS) => disk.check(*span, data, began),
            (Kind::Verify(span), Status::SUCCESS) => {
                assert!(disk.may_be_readable(*span, began), "{io:?}");
            }
            (Kind::Compare { span, expected }, Status::SUCCESS) => {
                for (lba, value) in span.blocks().zip(expected) {
                    disk.saw(lba, *value, began);
                }
            }
            (Kind::Compare { span, expected }, Status::COMPARE_FAILURE) => {
                self.seen.miscompares += 1;
                assert!(disk.may_differ(*span, expected, began), "{io:?}");
            }
            (
                Kind::Read(span) | Kind::Verify(span) | Kind::Compare { span, .. },
                Status::UNRECOVERED_READ_ERROR,
            ) => {
                self.seen.unreadable += 1;
                assert!(disk.may_be_unreadable(*span, began), "{io:?}");
            }
            (Kind::Change { write, spans }, Status::SUCCESS) => {
                for span in spans {
                    disk.written(*write, *span, could_not_write);
                }
            }
            (Kind::Copy { write, to, sources }, Status::SUCCESS) => {
                let mut sources = sources.iter();
                assert!(sources.all(|it| disk.may_be_readable(*it, began)), "{io:?}");
                disk.written(*write, *to, could_not_write);
            }
            (Kind::Copy { write, to, sources }, Status::UNRECOVERED_READ_ERROR) => {
                self.seen.unreadable += 1;
                let mut sources = sources.iter();
                assert!(
                    sources.any(|it| disk.may_be_unreadable(*it, began)),
                    "{io:?}"
                );
                disk.refused(*write, *to);
            }
            (Kind::Flush, Status::SUCCESS) => {}
            _ => panic!("{status} to {io:?}"),
        }
    }

    fn nothing_done(&mut self, io: &Io) {
        for (write, span) in changes(&io.kind) {
            self.disk.refused(write, span);
        }
    }

    fn never_known(&mut self, io: &Io) {
        for (write, span) in changes(&io.kind) {
            self.disk.unknown(write, span);
        }
    }

    fn reserved(&mut self, io: &Io, request: &Request, who: Who, status: Status) {
        let is_aborted = status.code() == Status::ABORT_REQUESTED;
        assert!(
            !is_aborted || io.abort_sent,
            "aborted, and nobody asked: {request:?} of {who:?}"
        );
        let now = self.disk.tick();
        let effects = self.reservations.answered(status, now);
        let is_success = status.is_success();
        if let Some(effects) = effects {
            // Preempt and Abort: what the preempted had under way has ended.
            let aborted = effects.aborted.clone();
            if !aborted.is_empty() {
                self.effects.push((io.began, Some(effects)));
                self.fence(&aborted);
                return;
            }
            self.effects.push((io.began, Some(effects)));
        } else if is_success {
            self.effects.push((io.began, None));
        }
    }

    /// Clients are numbered so that a client's host is its number modulo the hosts.
    fn fence(&mut self, hosts: &[usize]) {
        let now = self.disk.tick();
        let host_of = |client| client % crate::plan::HOSTS;
        let reservations = &self.reservations;
        self.disk.fence(
            |client| hosts.contains(&host_of(client)),
            |client| !reservations.may(host_of(client), Group::Write, now).0,
        );
    }

    fn reported(&mut self, io: &Io, status: Status, data: &[u8]) {
        if status.code() == Status::ABORT_REQUESTED {
            return assert!(io.abort_sent);
        }
        assert!(status.is_success(), "{status}");
        let now = self.disk.tick();
        self.reservations.check_report(data, io.began, now);
    }

    /// Both halves of a fused operation were answered: both done, or the Write not at all.
    pub fn pair_answered(&mut self, pair: &Pair, who: Who) {
        let [Some(first), Some(second)] = pair.answers else {
            return;
        };
        let (may_pass, may_conflict) = self.reservations.may(who.host, Group::Write, pair.began);
        let (disk, write, span) = (&mut self.disk, pair.write, pair.span);
        let reservations = &self.reservations;
        let could_not_write = |since| !reservations.may(who.host, Group::Write, since).0;
        match (first.code(), second.code()) {
            (Status::SUCCESS, Status::SUCCESS) => {
                assert!(
                    may_pass,
                    "no conflict, though there is a reservation: {pair:?}"
                );
                self.seen.fused += 1;
                for (lba, value) in span.blocks().zip(&pair.expected) {
                    disk.saw(lba, *value, pair.began);
                    if pair.is_counted {
                        disk.replaced(lba, *value);
                    }
                }
                disk.written(write, span, could_not_write);
            }
            (Status::COMPARE_FAILURE, Status::FUSED_FAILED) => {
                assert!(
                    may_pass,
                    "no conflict, though there is a reservation: {pair:?}"
                );
                self.seen.miscompares += 1;
                assert!(
                    disk.may_differ(span, &pair.expected, pair.began),
                    "{pair:?}"
                );
                disk.refused(write, span);
            }
            (Status::UNRECOVERED_READ_ERROR, Status::FUSED_FAILED) => {
                self.seen.unreadable += 1;
                assert!(disk.may_be_unreadable(span, pair.began), "{pair:?}");
                disk.refused(write, span);
            }
            (Status::FUSED_FAILED, Status::RESERVATION_CONFLICT) => {
                assert!(may_conflict, "a conflict without a reason: {pair:?}");
                self.seen.conflicts += 1;
                disk.refused(write, span);
            }
            (Status::PREEMPTED, Status::FUSED_FAILED) => {
                let is_possible = self.reservations.may_be_preempted(who.host, pair.began);
                assert!(is_possible, "preempted, and nobody did: {pair:?}");
                self.seen.preempted += 1;
                disk.unknown(write, span);
            }
            _ => panic!("a fused operation came to this: {pair:?}"),
        }
        self.disk.release(&pair.uses);
    }

    /// The connection of a command is gone: what it changes may be applied until its association has ended.
    pub fn lost(&mut self, io: &Io) {
        if let Kind::Reserve(_) = io.kind {
            let now = self.disk.tick();
            self.reservations.lost(now);
            self.effects.push((io.began, None));
        }
        for (write, span) in changes(&io.kind) {
            self.disk.lost(write, span);
        }
        self.disk.release(&io.uses);
    }

    pub fn pair_lost(&mut self, pair: &Pair) {
        self.disk.lost(pair.write, pair.span);
        self.disk.release(&pair.uses);
    }
}

fn changes(kind: &Kind) -> Vec<(WriteId, Span)> {
    match kind {
        Kind::Change { write, spans } => spans.iter().map(|span| (*write, *span)).collect(),
        Kind::Copy { write, to, .. } => vec![(*write, *to)],
        _ => Vec::new(),
    }
}
