//! Reservations as a transcript of the specification's sentences rather than a state machine. The simulation of both ends has it, too.

use super::{Persistence, Request};

pub const HOSTS: u8 = 4;

/// What the specification's sentences speak of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub keys: [Option<u64>; HOSTS as usize],
    /// RTYPE, and the host that acquired it.
    pub reservation: Option<(u8, usize)>,
    pub generation: u32,
    pub ptpl: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effects {
    pub registration_preempted: Vec<usize>,
    pub reservation_released: Vec<usize>,
    pub reservation_preempted: Vec<usize>,
    pub aborted: Vec<usize>,
}

const CONFLICT: u16 = 0x83;
const INVALID_FIELD: u16 = 0x02;

fn all_registrants(rtype: u8) -> bool {
    rtype == 5 || rtype == 6
}

impl Model {
    pub fn registrants(&self) -> Vec<usize> {
        (0..HOSTS.into())
            .filter(|&host| self.keys[host].is_some())
            .collect()
    }

    fn others(&self, me: usize) -> Vec<usize> {
        let mut others = self.registrants();
        others.retain(|&host| host != me);
        others
    }

    pub fn holds(&self, host: usize) -> bool {
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

    pub fn apply(&mut self, me: usize, request: &Request) -> Result<Effects, u16> {
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
