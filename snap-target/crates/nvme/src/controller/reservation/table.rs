//! The table: who is registered, who holds the reservation, and what each request makes of them.

use super::{Notice, Persistence, REGISTRANTS_MAX, Request};
use nvme_spec::Status;
use nvme_spec::reservation::{NotificationType, ReservationType};

/// HOSTID, 128 bits: who a host is to reservations, over however many controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub [u8; 16]);

impl HostId {
    /// The identifier of hosts that have none: they cannot be told apart, so reservations are not for them.
    pub const NONE: HostId = HostId([0; 16]);
}

/// A reservation key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub u64);

/// A host that is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registrant {
    /// Who.
    pub host: HostId,
    /// With which key.
    pub key: Key,
}

/// The reservations of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// GEN: wraps.
    pub(super) generation: u32,
    /// In the order in which they registered; at most [`REGISTRANTS_MAX`].
    pub(super) registrants: Vec<Registrant>,
    pub(super) held: Option<Held>,
    /// PTPL.
    pub(super) persistent: bool,
}

/// The reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub rtype: ReservationType,
    pub by: Holder,
}

/// Who holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    One(HostId),
    /// The types of all registrants: each of them holds it.
    AllRegistrants,
}

/// What a request comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The table from now on.
    pub table: Table,
    /// Who is to be told, on each of its controllers, and what.
    pub notices: Vec<Notice>,
    /// Preempt and Abort: the hosts whose commands on this namespace end before it is answered.
    pub aborted: Vec<HostId>,
}

impl Held {
    fn new(rtype: ReservationType, host: HostId) -> Held {
        let by = if is_of_all(rtype) {
            Holder::AllRegistrants
        } else {
            Holder::One(host)
        };
        Held { rtype, by }
    }
}

pub(super) fn is_of_all(rtype: ReservationType) -> bool {
    matches!(
        rtype,
        ReservationType::WRITE_EXCLUSIVE_ALL_REGISTRANTS
            | ReservationType::EXCLUSIVE_ACCESS_ALL_REGISTRANTS
    )
}

const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();

impl Table {
    /// RTYPE of the reservation.
    pub fn reservation_type(&self) -> Option<ReservationType> {
        self.held.map(|held| held.rtype)
    }

    /// PTPL.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// The registrants, in the order in which they registered.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> {
        self.registrants.iter().map(|registrant| registrant.host)
    }

    /// The host's key, where it is registered.
    pub fn key_of(&self, host: HostId) -> Option<Key> {
        self.registrants
            .iter()
            .find(|registrant| registrant.host == host)
            .map(|registrant| registrant.key)
    }

    /// Whether the host holds the reservation, alone or with all registrants.
    pub fn is_holder(&self, host: HostId) -> bool {
        match self.held.map(|held| held.by) {
            Some(Holder::One(holder)) => holder == host,
            Some(Holder::AllRegistrants) => self.key_of(host).is_some(),
            None => false,
        }
    }

    /// The table with another PTPL state (feature 83h).
    #[must_use]
    pub fn with_persistence(&self, persistent: bool) -> Table {
        Table {
            persistent,
            ..self.clone()
        }
    }

    /// What `request` of `host` comes to; this table stays as it is.
    ///
    /// # Errors
    /// The status that the host gets: [`Status::RESERVATION_CONFLICT`] as a rule.
    pub fn carry_out(&self, host: HostId, request: &Request) -> Result<Change, Status> {
        let mut change = Change {
            table: self.clone(),
            notices: Vec::new(),
            aborted: Vec::new(),
        };
        match *request {
            Request::Register { new, persistence } => change.register(host, new, persistence)?,
            Request::Unregister {
                current,
                persistence,
            } => change.unregister(host, current, persistence)?,
            Request::Replace {
                current,
                new,
                persistence,
            } => change.replace(host, current, new, persistence)?,
            Request::Acquire { current, rtype } => {
                self.require(host, current)?;
                change.acquire(host, rtype)?;
            }
            Request::Preempt {
                current,
                preempt,
                rtype,
                abort,
            } => {
                self.require(host, current)?;
                let preempted = change.preempt(host, preempt, rtype)?;
                if abort {
                    change.aborted = preempted;
                }
            }
            Request::Release { current, rtype } => {
                self.require(host, current)?;
                change.release(host, rtype)?;
            }
            Request::Clear { current } => {
                self.require(host, current)?;
                change.clear(host);
            }
        }
        Ok(change)
    }

    /// The host is registered, with this key.
    fn require(&self, host: HostId, key: Key) -> Result<(), Status> {
        match self.key_of(host) {
            Some(registered) if registered == key => Ok(()),
            _ => Err(CONFLICT),
        }
    }

    fn set_persistence(&mut self, persistence: Persistence) {
        match persistence {
            Persistence::Keep => {}
            Persistence::Clear => self.persistent = false,
            Persistence::Set => self.persistent = true,
        }
    }

    fn bump(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    fn add(&mut self, host: HostId, key: Key) -> Result<(), Status> {
        if self.registrants.len() >= REGISTRANTS_MAX {
            return Err(Status::INTERNAL_ERROR);
        }
        self.registrants.push(Registrant { host, key });
        Ok(())
    }

    /// Takes registrants out; those that are left hold what is left to hold.
    fn remove(&mut self, is_out: impl Fn(&Registrant) -> bool) -> Vec<HostId> {
        let (out, left): (Vec<Registrant>, _) = self.registrants.iter().partition(|r| is_out(r));
        self.registrants = left;
        let holds = match self.held.map(|held| held.by) {
            Some(Holder::One(holder)) => self.key_of(holder).is_some(),
            Some(Holder::AllRegistrants) => !self.registrants.is_empty(),
            None => false,
        };
        if !holds {
            self.held = None;
        }
        out.into_iter().map(|registrant| registrant.host).collect()
    }
}

impl Change {
    /// Base, "Registering": again with the same key changes nothing; with another it is a conflict.
    fn register(&mut self, host: HostId, new: Key, persistence: Persistence) -> Result<(), Status> {
        match self.table.key_of(host) {
            None => self.table.add(host, new)?,
            Some(registered) if registered == new => {}
            Some(_) => return Err(CONFLICT),
        }
        self.table.set_persistence(persistence);
        self.table.bump();
        Ok(())
    }

    /// Base, "Unregistering": a reservation of its own goes with it; registrants of the types for registrants are told.
    fn unregister(
        &mut self,
        host: HostId,
        current: Option<Key>,
        persistence: Persistence,
    ) -> Result<(), Status> {
        match (self.table.key_of(host), current) {
            (Some(_), None) => {}
            (Some(registered), Some(current)) if registered == current => {}
            _ => return Err(CONFLICT),
        }
        let before = self.table.reservation_type();
        self.table.remove(|registrant| registrant.host == host);
        if self.table.held.is_none()
            && matches!(
                before,
                Some(
                    ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY
                        | ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS_ONLY
                )
            )
        {
            self.tell_registrants_but(host, NotificationType::RESERVATION_RELEASED);
        }
        self.table.set_persistence(persistence);
        self.table.bump();
        Ok(())
    }

    /// Base, "Registering": IEKEY replaces "without regard to its registration status or current reservation key", so it may also register.
    fn replace(
        &mut self,
        host: HostId,
        current: Option<Key>,
        new: Key,
        persistence: Persistence,
    ) -> Result<(), Status> {
        let registrant = self
            .table
            .registrants
            .iter_mut()
            .find(|registrant| registrant.host == host);
        match (registrant, current) {
            (None, None) => self.table.add(host, new)?,
            (Some(registrant), None) => registrant.key = new,
            (Some(registrant), Some(current)) if registrant.key == current => registrant.key = new,
            _ => return Err(CONFLICT),
        }
        self.table.set_persistence(persistence);
        self.table.bump();
        Ok(())
    }

    /// Base, "Acquiring a Reservation": its holder may ask again for what it has.
    fn acquire(&mut self, host: HostId, rtype: ReservationType) -> Result<(), Status> {
        match self.table.held {
            None => {
                self.table.held = Some(Held::new(rtype, host));
                Ok(())
            }
            Some(held) if held.rtype == rtype && self.table.is_holder(host) => Ok(()),
            Some(_) => Err(CONFLICT),
        }
    }

    /// Base, "Preempting a Reservation or Registration". Returns the other hosts that are registered no more.
    fn preempt(
        &mut self,
        host: HostId,
        preempt: Key,
        rtype: ReservationType,
    ) -> Result<Vec<HostId>, Status> {
        let before = self.table.reservation_type();
        let takes_over = match self.table.held.map(|held| held.by) {
            None => false,
            Some(Holder::AllRegistrants) => preempt == Key(0),
            Some(Holder::One(_)) if preempt == Key(0) => return Err(Status::INVALID_FIELD.dnr()),
            Some(Holder::One(holder)) => self.table.key_of(holder) == Some(preempt),
        };
        let out = if takes_over {
            let all = preempt == Key(0);
            let out = self
                .table
                .remove(|other| other.host != host && (all || other.key == preempt));
            self.table.held = Some(Held::new(rtype, host));
            out
        } else {
            let out = self.table.remove(|registrant| registrant.key == preempt);
            if out.is_empty() {
                return Err(CONFLICT);
            }
            out
        };
        let others: Vec<HostId> = out.into_iter().filter(|&other| other != host).collect();
        self.notices.extend(others.iter().map(|&host| Notice {
            host,
            what: NotificationType::REGISTRATION_PREEMPTED,
        }));
        // A reservation that went, or became another, was released as far as those are concerned who are still registered.
        if before.is_some() && self.table.reservation_type() != before {
            self.tell_registrants_but(host, NotificationType::RESERVATION_RELEASED);
        }
        self.table.bump();
        Ok(others)
    }

    /// Base, "Releasing a Reservation": without a reservation of one's own it succeeds and does nothing.
    fn release(&mut self, host: HostId, rtype: ReservationType) -> Result<(), Status> {
        let Some(held) = self.table.held.filter(|_| self.table.is_holder(host)) else {
            return Ok(());
        };
        if held.rtype != rtype {
            return Err(Status::INVALID_FIELD.dnr());
        }
        self.table.held = None;
        if !matches!(
            rtype,
            ReservationType::WRITE_EXCLUSIVE | ReservationType::EXCLUSIVE_ACCESS
        ) {
            self.tell_registrants_but(host, NotificationType::RESERVATION_RELEASED);
        }
        Ok(())
    }

    /// Base, "Clearing a Reservation".
    fn clear(&mut self, host: HostId) {
        self.tell_registrants_but(host, NotificationType::RESERVATION_PREEMPTED);
        self.table.registrants.clear();
        self.table.held = None;
        self.table.bump();
    }

    fn tell_registrants_but(&mut self, host: HostId, what: NotificationType) {
        let others = self
            .table
            .registrants
            .iter()
            .filter(|registrant| registrant.host != host);
        self.notices.extend(others.map(|registrant| Notice {
            host: registrant.host,
            what,
        }));
    }
}
