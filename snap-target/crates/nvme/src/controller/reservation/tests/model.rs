//! Random commands of four hosts, against a model that is a transcript of the specification's sentences rather than a state machine.

use super::*;
use proptest::prelude::*;

const HOSTS: u8 = 4;

/// What the specification's sentences speak of.
#[derive(Clone, Debug, Default)]
struct Model {
    keys: [Option<u64>; HOSTS as usize],
    /// RTYPE, and the host that acquired it.
    reservation: Option<(u8, usize)>,
    generation: u32,
    ptpl: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Effects {
    registration_preempted: Vec<usize>,
    reservation_released: Vec<usize>,
    reservation_preempted: Vec<usize>,
    aborted: Vec<usize>,
}

const CONFLICT: u16 = 0x83;
const INVALID_FIELD: u16 = 0x02;

fn all_registrants(rtype: u8) -> bool {
    rtype == 5 || rtype == 6
}

impl Model {
    fn registrants(&self) -> Vec<usize> {
        (0..HOSTS.into())
            .filter(|&host| self.keys[host].is_some())
            .collect()
    }

    fn others(&self, me: usize) -> Vec<usize> {
        let mut others = self.registrants();
        others.retain(|&host| host != me);
        others
    }

    fn holds(&self, host: usize) -> bool {
        match self.reservation {
            Some((rtype, _)) if all_registrants(rtype) => self.keys[host].is_some(),
            Some((_, holder)) => holder == host,
            None => false,
        }
    }

    fn set_ptpl(&mut self, change: Persistence) {
        self.ptpl = match change {
            Persistence::Keep => self.ptpl,
            Persistence::Clear => false,
            Persistence::Set => true,
        };
    }

    /// A reservation without anybody who could hold it is none.
    fn forget_orphan(&mut self) {
        let orphan = match self.reservation {
            Some((rtype, _)) if all_registrants(rtype) => self.registrants().is_empty(),
            Some((_, holder)) => self.keys[holder].is_none(),
            None => false,
        };
        if orphan {
            self.reservation = None;
        }
    }

    fn apply(&mut self, me: usize, request: &Request) -> Result<Effects, u16> {
        let mut effects = Effects::default();
        let mine = self.keys[me];
        match *request {
            Request::Register { new, persistence } => {
                if mine.is_some_and(|key| key != new.0) {
                    return Err(CONFLICT);
                }
                self.keys[me] = Some(new.0);
                self.set_ptpl(persistence);
                self.generation += 1;
            }
            Request::Unregister {
                current,
                persistence,
            } => {
                let key = mine.ok_or(CONFLICT)?;
                if current.is_some_and(|current| current.0 != key) {
                    return Err(CONFLICT);
                }
                if let Some((3 | 4, holder)) = self.reservation
                    && holder == me
                {
                    effects.reservation_released = self.others(me);
                }
                self.keys[me] = None;
                self.forget_orphan();
                self.set_ptpl(persistence);
                self.generation += 1;
            }
            Request::Replace {
                current,
                new,
                persistence,
            } => {
                if current.is_some_and(|current| mine != Some(current.0)) {
                    return Err(CONFLICT);
                }
                self.keys[me] = Some(new.0);
                self.set_ptpl(persistence);
                self.generation += 1;
            }
            Request::Acquire { current, rtype } => {
                if mine != Some(current.0) {
                    return Err(CONFLICT);
                }
                match self.reservation {
                    None => self.reservation = Some((rtype.0, me)),
                    Some((held, _)) if held == rtype.0 && self.holds(me) => {}
                    Some(_) => return Err(CONFLICT),
                }
            }
            Request::Preempt {
                current,
                preempt,
                rtype,
                abort,
            } => {
                if mine != Some(current.0) {
                    return Err(CONFLICT);
                }
                let before = self.registrants();
                self.preempt(me, preempt.0, rtype.0, &mut effects)?;
                let gone = before
                    .into_iter()
                    .filter(|&host| host != me && self.keys[host].is_none());
                effects.registration_preempted = gone.collect();
                if abort {
                    effects.aborted = effects.registration_preempted.clone();
                }
                self.generation += 1;
            }
            Request::Release { current, rtype } => {
                if mine != Some(current.0) {
                    return Err(CONFLICT);
                }
                if self.holds(me) {
                    if self.reservation.unwrap().0 != rtype.0 {
                        return Err(INVALID_FIELD);
                    }
                    if rtype.0 > 2 {
                        effects.reservation_released = self.others(me);
                    }
                    self.reservation = None;
                }
            }
            Request::Clear { current } => {
                if mine != Some(current.0) {
                    return Err(CONFLICT);
                }
                effects.reservation_preempted = self.others(me);
                self.keys = [None; HOSTS as usize];
                self.reservation = None;
                self.generation += 1;
            }
        }
        Ok(effects)
    }

    /// The four cases of "Preempting a Reservation or Registration".
    fn preempt(
        &mut self,
        me: usize,
        key: u64,
        rtype: u8,
        effects: &mut Effects,
    ) -> Result<(), u16> {
        let matching: Vec<usize> = self
            .registrants()
            .into_iter()
            .filter(|&host| self.keys[host] == Some(key))
            .collect();
        match self.reservation {
            // All registrants, PRKEY 0: everybody else goes, and the reservation is made anew.
            Some((held, _)) if all_registrants(held) && key == 0 => {
                for host in self.others(me) {
                    self.keys[host] = None;
                }
                self.reservation = Some((rtype, me));
            }
            // One holder, PRKEY 0: an invalid field.
            Some((held, _)) if !all_registrants(held) && key == 0 => return Err(INVALID_FIELD),
            // One holder, its key: those with the key go, the issuing host excepted, and the reservation is made anew.
            Some((held, holder)) if !all_registrants(held) && self.keys[holder] == Some(key) => {
                for host in matching {
                    if host != me {
                        self.keys[host] = None;
                    }
                }
                self.reservation = Some((rtype, me));
                if held != rtype {
                    effects.reservation_released = self.others(me);
                }
            }
            // Otherwise those with the key go, whoever they are, and nobody is a conflict.
            _ => {
                if matching.is_empty() {
                    return Err(CONFLICT);
                }
                for host in matching {
                    self.keys[host] = None;
                }
                self.forget_orphan();
            }
        }
        Ok(())
    }
}

fn requests() -> impl Strategy<Value = (u8, Request)> {
    let key = || (1_u64..4).prop_map(Key);
    let current = || prop_oneof![1 => Just(None), 3 => (1_u64..4).prop_map(|key| Some(Key(key)))];
    let persistence = || {
        prop_oneof![
            Just(Persistence::Keep),
            Just(Persistence::Clear),
            Just(Persistence::Set)
        ]
    };
    let rtype = || (1_u8..=6).prop_map(ReservationType);
    let request = prop_oneof![
        4 => (key(), persistence()).prop_map(|(new, persistence)| Request::Register { new, persistence }),
        1 => (current(), persistence())
            .prop_map(|(current, persistence)| Request::Unregister { current, persistence }),
        1 => (current(), key(), persistence())
            .prop_map(|(current, new, persistence)| Request::Replace { current, new, persistence }),
        4 => (key(), rtype()).prop_map(|(current, rtype)| Request::Acquire { current, rtype }),
        4 => (key(), 0_u64..4, rtype(), any::<bool>()).prop_map(|(current, preempt, rtype, abort)| {
            Request::Preempt { current, preempt: Key(preempt), rtype, abort }
        }),
        2 => (key(), rtype()).prop_map(|(current, rtype)| Request::Release { current, rtype }),
        1 => key().prop_map(|current| Request::Clear { current }),
    ];
    (0..HOSTS, request)
}

fn told(change: &Change, what: NotificationType) -> Vec<usize> {
    let mut hosts: Vec<usize> = change
        .notices
        .iter()
        .filter(|notice| notice.what == what)
        .map(|notice| usize::from(notice.host.0[0]))
        .collect();
    hosts.sort_unstable();
    hosts
}

fn numbers(hosts: &[HostId]) -> Vec<usize> {
    let mut numbers: Vec<usize> = hosts.iter().map(|host| usize::from(host.0[0])).collect();
    numbers.sort_unstable();
    numbers
}

/// The report, read by hand.
fn check_report(table: &Table, model: &Model) {
    let report = table.report(64 + usize::from(HOSTS) * 64);
    assert_eq!(report[..4], model.generation.to_le_bytes());
    assert_eq!(report[4], model.reservation.map_or(0, |(rtype, _)| rtype));
    assert_eq!(usize::from(report[5]), model.registrants().len());
    assert_eq!(report[9], u8::from(model.ptpl));
    let mut reported = Vec::new();
    for entry in report[64..].chunks_exact(64).take(report[5].into()) {
        let key = u64::from_le_bytes(entry[8..16].try_into().unwrap());
        reported.push((usize::from(entry[16]), key, entry[2] == 1));
    }
    reported.sort_unstable();
    let expected: Vec<_> = model
        .registrants()
        .into_iter()
        .map(|host| (host, model.keys[host].unwrap(), model.holds(host)))
        .collect();
    assert_eq!(reported, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_sequence_of_commands_does_what_the_specification_says(
        commands in proptest::collection::vec(requests(), 1..60)
    ) {
        let (mut table, mut model) = (Table::default(), Model::default());
        for (who, request) in commands {
            let before = table.clone();
            let done = table.carry_out(host(who), &request);
            let expected = model.apply(who.into(), &request);
            match (done, expected) {
                (Ok(change), Ok(effects)) => {
                    let seen = Effects {
                        registration_preempted: told(&change, NotificationType::REGISTRATION_PREEMPTED),
                        reservation_released: told(&change, NotificationType::RESERVATION_RELEASED),
                        reservation_preempted: told(&change, NotificationType::RESERVATION_PREEMPTED),
                        aborted: numbers(&change.aborted),
                    };
                    prop_assert_eq!(seen, effects, "{:?}", request);
                    table = change.table;
                }
                (Err(status), Err(code)) => {
                    prop_assert_eq!(status, Status::new(0, u8::try_from(code).unwrap()).dnr());
                }
                (done, expected) => prop_assert!(false, "{request:?}: {done:?}, {expected:?}"),
            }
            // What was refused has changed nothing.
            if table == before {
                check_report(&before, &model);
            }
            check_report(&table, &model);
            // And what is kept is the whole of it.
            let kept = Table::from_record(&table.to_record()).unwrap();
            prop_assert_eq!(kept, if table.is_persistent() { table.clone() } else { Table::default() });
        }
    }
}
