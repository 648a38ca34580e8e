//! What hosts may be told of reservations: the states that a namespace may be in, by the specification's sentences and what hosts were told.

use nvme::controller::reservation::{Key, Persistence, Request};
use nvme_spec::reservation::{AcquireAction, RegisterAction, ReleaseAction, ReservationType};
use nvme_spec::{IoOpcode, Nsid, Sqe, Status, U32};

use nvme::tcp::host::{Command, Transfer};

use nvme::simulation::model::Moment;
use nvme::simulation::random::Random;

#[path = "../../src/controller/reservation/tests/sentences.rs"]
mod sentences;

pub use sentences::Effects;
use sentences::Model as State;

/// Bytes of a report with as many registrants as there are hosts.
pub const REPORT_BYTES: u32 = 64 + 64 * 4;
const KEYS: [u64; 3] = [11, 22, 33];

/// What a reservation makes of commands (NVM, "Command Behavior in the Presence of a Reservation").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Read,
    Write,
}

/// A state, and when the namespace may have been in it.
#[derive(Clone, Debug)]
struct Era {
    state: State,
    from: Moment,
    until: Option<Moment>,
}

/// See the module. One command that changes reservations is under way at a time.
#[derive(Debug)]
pub struct Reservations {
    eras: Vec<Era>,
    pending: Option<(usize, Request, Moment)>,
    /// When the last one ended.
    busy_until: Moment,
    /// Preempt and Abort: whose, and when.
    preempts: Vec<(usize, Option<Moment>)>,
}

impl Reservations {
    pub fn new() -> Reservations {
        Reservations {
            eras: vec![Era {
                state: State::default(),
                from: 0,
                until: None,
            }],
            pending: None,
            busy_until: 0,
            preempts: Vec::new(),
        }
    }

    pub fn is_busy(&self) -> bool {
        self.pending.is_some()
    }

    /// Something that a host may ask for, mostly with the right keys.
    pub fn pick(&self, host: usize, random: &mut Random) -> Request {
        let state = &self.eras.last().unwrap().state;
        let any_key = Key(random.of(&KEYS));
        let mine = match state.keys[host] {
            Some(key) if !random.once_in(8) => Key(key),
            _ => any_key,
        };
        let other = state.keys[1 - host].map_or(any_key, Key);
        let rtype = ReservationType(u8::try_from(random.within(1..7)).unwrap());
        let held = state
            .reservation
            .map_or(rtype, |(held, _)| ReservationType(held));
        let persistence = Persistence::Keep;
        let register = Request::Register {
            new: mine,
            persistence,
        };
        match (random.within(0..20), state.reservation) {
            (0..2, _) => register,
            (2, _) => Request::Unregister {
                current: (!random.once_in(3)).then_some(mine),
                persistence,
            },
            (3, _) => Request::Replace {
                current: (!random.once_in(3)).then_some(mine),
                new: any_key,
                persistence,
            },
            (4, _) => Request::Clear { current: mine },
            _ if state.keys[host].is_none() => register,
            (5..8, Some(_)) => Request::Release {
                current: mine,
                rtype: if random.once_in(6) { rtype } else { held },
            },
            (8..10, _) | (_, None) => Request::Acquire {
                current: mine,
                rtype,
            },
            (_, Some(_)) => Request::Preempt {
                current: mine,
                preempt: random.of(&[other, other, other, Key(0), mine]),
                rtype,
                abort: !random.once_in(3),
            },
        }
    }

    pub fn begin(&mut self, host: usize, request: &Request, now: Moment) {
        let next: Vec<State> = (self.current())
            .filter_map(|era| after(&era.state, host, request).ok())
            .map(|(state, _)| state)
            .collect();
        for state in next {
            self.add(state, now);
        }
        if matches!(request, Request::Preempt { abort: true, .. }) {
            self.preempts.push((host, None));
        }
        self.pending = Some((host, *request, now));
    }

    /// The command was answered. Its effects, where there is no doubt about them.
    pub fn answered(&mut self, status: Status, now: Moment) -> Option<Effects> {
        let (host, request, began) = self.pending.take().unwrap();
        let before: Vec<State> = (self.current())
            .filter(|era| era.from < began)
            .map(|era| era.state.clone())
            .collect();
        let mut next = Vec::new();
        let mut effects: Vec<Effects> = Vec::new();
        for state in &before {
            match after(state, host, &request) {
                Ok((state, what)) if status.is_success() => {
                    next.push(state);
                    effects.push(what);
                }
                Err(code) if status.code() == Status::new(0, u8::try_from(code).unwrap()) => {
                    next.push(state.clone());
                }
                _ if status.code() == Status::ABORT_REQUESTED => next.push(state.clone()),
                _ => {}
            }
        }
        assert!(
            !next.is_empty(),
            "{request:?} of host {host}: {status}, from {before:?}"
        );
        self.settle(now, |state| next.contains(state));
        self.ended(now);
        effects.dedup();
        (effects.len() == 1).then(|| effects.remove(0))
    }

    /// Its connection ended before it was answered: it happened by now, or never does.
    pub fn lost(&mut self, now: Moment) {
        self.pending = None;
        self.ended(now);
    }

    fn ended(&mut self, now: Moment) {
        self.busy_until = now;
        for (_, until) in &mut self.preempts {
            until.get_or_insert(now);
        }
    }

    /// A report, of a command that began then.
    pub fn check_report(&mut self, report: &[u8], began: Moment, now: Moment) {
        let report = by_host(report);
        let is_shown = |state: &State| report_of(state) == report;
        let mut possible = self.eras.iter().filter(|era| era.was_since(began));
        assert!(
            possible.any(|era| is_shown(&era.state)),
            "the report shows none of the states that there may be: {report:?}"
        );
        // Where nothing could change meanwhile, it shows what is.
        if self.pending.is_none() && self.busy_until < began {
            self.settle(now, is_shown);
        }
    }

    /// Whether a command of this host, that began then, may have gone through, and may have met a conflict.
    pub fn may(&self, host: usize, group: Group, began: Moment) -> (bool, bool) {
        let eras = self.eras.iter().filter(|era| era.was_since(began));
        eras.fold((false, false), |(pass, conflict), era| {
            let allowed = allows(&era.state, host, group);
            (pass | allowed, conflict | !allowed)
        })
    }

    /// Whether another host has preempted this one, with its commands, since then.
    pub fn may_be_preempted(&self, host: usize, began: Moment) -> bool {
        let mut preempts = self.preempts.iter();
        preempts.any(|(by, until)| *by != host && until.is_none_or(|until| until > began))
    }

    fn current(&self) -> impl Iterator<Item = &Era> {
        self.eras.iter().filter(|era| era.until.is_none())
    }

    fn add(&mut self, state: State, from: Moment) {
        if !self.current().any(|era| era.state == state) {
            self.eras.push(Era {
                state,
                from,
                until: None,
            });
        }
    }

    fn settle(&mut self, now: Moment, is: impl Fn(&State) -> bool) {
        for era in &mut self.eras {
            if era.until.is_none() && !is(&era.state) {
                era.until = Some(now);
            }
        }
        assert!(self.current().next().is_some());
    }
}

impl Era {
    fn was_since(&self, began: Moment) -> bool {
        self.until.is_none_or(|until| until > began)
    }
}

fn after(state: &State, host: usize, request: &Request) -> Result<(State, Effects), u16> {
    let mut next = state.clone();
    let effects = next.apply(host, request)?;
    Ok((next, effects))
}

fn allows(state: &State, host: usize, group: Group) -> bool {
    let is_registrant = state.keys[host].is_some();
    match state.reservation {
        None => true,
        Some((1 | 3 | 5, _)) if group == Group::Read => true,
        Some((1 | 2, holder)) => holder == host,
        Some(_) => is_registrant,
    }
}

/// A report with its registrants in the order of their hosts: the target's is that of their registration.
fn by_host(report: &[u8]) -> Vec<u8> {
    let (header, entries) = report.split_at(64);
    let there = usize::from(header[5]);
    let mut entries: Vec<&[u8]> = entries.chunks_exact(64).collect();
    entries[..there].sort_by_key(|entry| &entry[16..32]);
    [header, &entries.concat()].concat()
}

/// The Extended Reservation Status data structure, byte by byte.
fn report_of(state: &State) -> Vec<u8> {
    let mut report = vec![0; REPORT_BYTES as usize];
    report[..4].copy_from_slice(&state.generation.to_le_bytes());
    report[4] = state.reservation.map_or(0, |(rtype, _)| rtype);
    report[5] = u8::try_from(state.registrants().len()).unwrap();
    let entries = report[64..].chunks_exact_mut(64);
    for (entry, host) in entries.zip(state.registrants()) {
        entry[..2].copy_from_slice(&[0xFF, 0xFF]);
        entry[2] = u8::from(state.holds(host));
        entry[8..16].copy_from_slice(&state.keys[host].unwrap().to_le_bytes());
        entry[16..32].copy_from_slice(&host_id(host));
    }
    report
}

pub fn host_id(host: usize) -> [u8; 16] {
    [u8::try_from(host).unwrap() + 1; 16]
}

/// A reservation command as it goes to the wire (Base, "Reservation Register command" and its neighbours), and its data.
pub fn command(nsid: Nsid, request: &Request) -> (Command, Vec<u8>) {
    const IGNORE: u32 = 1 << 3;
    let ignore = |current: Option<Key>| if current.is_none() { IGNORE } else { 0 };
    let key = |current: Option<Key>| current.map_or(0, |key| key.0);
    let typed = |rtype: ReservationType| u32::from(rtype.0) << 8;
    let register = IoOpcode::RESERVATION_REGISTER;
    let acquire = IoOpcode::RESERVATION_ACQUIRE;
    let (opcode, cdw10, keys) = match *request {
        Request::Register { new, .. } => (
            register,
            u32::from(RegisterAction::REGISTER.0),
            vec![0, new.0],
        ),
        Request::Unregister { current, .. } => (
            register,
            u32::from(RegisterAction::UNREGISTER.0) | ignore(current),
            vec![key(current), 0],
        ),
        Request::Replace { current, new, .. } => (
            register,
            u32::from(RegisterAction::REPLACE.0) | ignore(current),
            vec![key(current), new.0],
        ),
        Request::Acquire { current, rtype } => {
            let action = u32::from(AcquireAction::ACQUIRE.0);
            (acquire, action | typed(rtype), vec![current.0, 0])
        }
        Request::Preempt {
            current,
            preempt,
            rtype,
            abort,
        } => {
            let action = match abort {
                true => AcquireAction::PREEMPT_AND_ABORT,
                false => AcquireAction::PREEMPT,
            };
            let cdw10 = u32::from(action.0) | typed(rtype);
            (acquire, cdw10, vec![current.0, preempt.0])
        }
        Request::Release { current, rtype } => (
            IoOpcode::RESERVATION_RELEASE,
            u32::from(ReleaseAction::RELEASE.0) | typed(rtype),
            vec![current.0],
        ),
        Request::Clear { current } => (
            IoOpcode::RESERVATION_RELEASE,
            u32::from(ReleaseAction::CLEAR.0),
            vec![current.0],
        ),
    };
    let data: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
    let command = Command {
        sqe: Sqe {
            opcode: opcode.0,
            nsid: U32::new(nsid.0),
            cdw10: U32::new(cdw10),
            ..Sqe::ZERO
        },
        transfer: Transfer::Out(u32::try_from(data.len()).unwrap()),
    };
    (command, data)
}

pub fn report(nsid: Nsid) -> Command {
    Command {
        sqe: Sqe {
            opcode: IoOpcode::RESERVATION_REPORT.0,
            nsid: U32::new(nsid.0),
            cdw10: U32::new(REPORT_BYTES / 4 - 1),
            cdw11: U32::new(1),
            ..Sqe::ZERO
        },
        transfer: Transfer::In(REPORT_BYTES),
    }
}
