//! Who may do what with a namespace: its reservations, and the write protection that hosts set.
//!
//! Every reactor looks here at each command. Without a reservation and without protection that is one atomic load; with one, a queue keeps what it
//! found out ([`Found`]) until the word changes. A change is in force for every command that is looked at after [`AccessGate::set_reservations`] or
//! [`AccessGate::set_protection`] has returned.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvme::controller::Protection;
use nvme::controller::reservation::{HostId, RecordError, Rights, Table};
use nvme::digest::crc32c;
use nvme_spec::{IoOpcode, Status};

use crate::keeper::{KeepError, Keeper, RecordKind};

/// The gate of one namespace, and of its next states after a resize.
#[derive(Clone, Debug, Default)]
pub struct AccessGate {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// 0: everybody may everything. Else another number after each change.
    word: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    reservations: Table,
    protection: Protection,
    changes: u64,
}

/// What a queue found out of one namespace for its host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    word: u64,
    rights: Option<Rights>,
    is_protected: bool,
}

/// Why what was kept of a namespace cannot be taken up again: it must not be served as if there were nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeUpError {
    /// The record cannot be read.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// The record of reservations is damaged.
    #[error(transparent)]
    Reservations(#[from] RecordError),
    /// The record of the write protection is damaged.
    #[error("the record of the write protection is damaged")]
    Protection,
}

impl AccessGate {
    /// The gate as the last process left it. May block.
    ///
    /// # Errors
    /// A record that is there and cannot be read, or is damaged.
    pub fn taken_up(keeper: &dyn Keeper) -> Result<Self, TakeUpError> {
        let record = |kind| keeper.load(kind).map(Option::unwrap_or_default);
        let gate = Self::default();
        gate.set_reservations(Table::from_record(&record(RecordKind::Reservations)?)?);
        gate.set_protection(protection_of(&record(RecordKind::WriteProtection)?)?);
        Ok(gate)
    }

    /// The status of a command that this host may not have carried out; `changes`: it changes what is in the namespace. `found` is what the
    /// same queue found before.
    ///
    /// # Errors
    /// [`Status::NAMESPACE_WRITE_PROTECTED`] or [`Status::RESERVATION_CONFLICT`].
    #[inline]
    pub fn permit(
        &self,
        opcode: IoOpcode,
        changes: bool,
        host: HostId,
        found: &mut Found,
    ) -> Result<(), Status> {
        let word = self.shared.word.load(Ordering::Acquire);
        if word == 0 {
            return Ok(());
        }
        self.judge(word, opcode, changes, host, found)
    }

    /// The same for one who is no NVMe host and has no identity: a machine that has the namespace as a disk of another kind.
    ///
    /// # Errors
    /// As those of [`AccessGate::permit`].
    pub fn permit_stranger(&self, opcode: IoOpcode, found: &mut Found) -> Result<(), Status> {
        let changes = !matches!(opcode, IoOpcode::READ | IoOpcode::COMPARE | IoOpcode::FLUSH);
        self.permit(opcode, changes, HostId::NONE, found)
    }

    /// True while no command needs [`AccessGate::permit`]: one atomic load.
    #[must_use]
    #[inline]
    pub fn is_open(&self) -> bool {
        self.shared.word.load(Ordering::Acquire) == 0
    }

    fn judge(
        &self,
        word: u64,
        opcode: IoOpcode,
        changes: bool,
        host: HostId,
        found: &mut Found,
    ) -> Result<(), Status> {
        if found.word != word {
            let state = self.state();
            // What is found now may be newer than the word: then the next look finds it again.
            *found = Found {
                word,
                rights: Some(state.reservations.rights(host)),
                is_protected: state.protection != Protection::None,
            };
        }
        if found.is_protected && changes {
            return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
        }
        match found.rights {
            Some(rights) if !rights.allow(opcode) => Err(Status::RESERVATION_CONFLICT.dnr()),
            _ => Ok(()),
        }
    }

    /// The reservations as they are.
    #[must_use]
    pub fn reservations(&self) -> Table {
        self.state().reservations.clone()
    }

    /// These reservations are in force from now on.
    pub fn set_reservations(&self, table: Table) {
        let mut state = self.state();
        state.reservations = table;
        self.publish(&mut state);
    }

    /// The write protection that hosts set.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.state().protection
    }

    /// This write protection is in force from now on.
    pub fn set_protection(&self, protection: Protection) {
        let mut state = self.state();
        state.protection = protection;
        self.publish(&mut state);
    }

    fn publish(&self, state: &mut State) {
        state.changes += 1;
        let is_open =
            state.reservations.reservation_type().is_none() && state.protection == Protection::None;
        let word = if is_open { 0 } else { state.changes };
        self.shared.word.store(word, Ordering::Release);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

const PROTECTION_MAGIC: [u8; 8] = *b"XIOPROT1";

/// The record of a write protection: "XIOPROT1", the state as feature 84h tells it, three zeros, CRC-32C. Empty where nothing survives the loss of
/// power.
#[must_use]
pub fn protection_record(protection: Protection) -> Vec<u8> {
    if matches!(protection, Protection::None | Protection::UntilPowerCycle) {
        return Vec::new();
    }
    let mut record = PROTECTION_MAGIC.to_vec();
    record.extend_from_slice(&protection.to_wire().to_le_bytes());
    let crc = crc32c(&record);
    record.extend_from_slice(&crc.to_le_bytes());
    record
}

fn protection_of(record: &[u8]) -> Result<Protection, TakeUpError> {
    if record.is_empty() {
        return Ok(Protection::None);
    }
    let all = [Protection::WriteProtect, Protection::Permanent];
    all.into_iter()
        .find(|protection| protection_record(*protection) == record)
        .ok_or(TakeUpError::Protection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme::controller::reservation::{Key, Persistence, Request};
    use nvme_spec::reservation::ReservationType;

    const HOLDER: HostId = HostId([1; 16]);
    const OTHER: HostId = HostId([2; 16]);

    fn held(persistence: Persistence) -> Table {
        let key = Key(7);
        let register = Request::Register {
            new: key,
            persistence,
        };
        let acquire = Request::Acquire {
            current: key,
            rtype: ReservationType::WRITE_EXCLUSIVE,
        };
        let registered = Table::default().carry_out(HOLDER, &register).unwrap().table;
        registered.carry_out(HOLDER, &acquire).unwrap().table
    }

    #[test]
    fn what_a_queue_found_holds_until_the_next_change() {
        let gate = AccessGate::default();
        let mut found = Found::default();
        let mut permit = |gate: &AccessGate, opcode| {
            gate.permit(opcode, opcode == IoOpcode::WRITE, OTHER, &mut found)
        };
        assert!(gate.is_open());
        assert_eq!(permit(&gate, IoOpcode::WRITE), Ok(()));
        gate.set_reservations(held(Persistence::Keep));
        let conflict = Err(Status::RESERVATION_CONFLICT.dnr());
        assert_eq!(permit(&gate, IoOpcode::WRITE), conflict);
        assert_eq!(permit(&gate, IoOpcode::FLUSH), conflict);
        assert_eq!(permit(&gate, IoOpcode::READ), Ok(()));
        gate.set_protection(Protection::WriteProtect);
        let protected = Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
        assert_eq!(permit(&gate, IoOpcode::WRITE), protected);
        assert_eq!(permit(&gate, IoOpcode::FLUSH), conflict);
        gate.set_reservations(Table::default());
        assert_eq!(permit(&gate, IoOpcode::FLUSH), Ok(()));
        assert_eq!(permit(&gate, IoOpcode::WRITE), protected);
        gate.set_protection(Protection::None);
        assert!(gate.is_open());
        assert_eq!(permit(&gate, IoOpcode::WRITE), Ok(()));
    }

    /// A keeper that has these records.
    #[derive(Debug)]
    struct Kept(Vec<u8>, Vec<u8>);

    impl Keeper for Kept {
        fn is_durable(&self) -> bool {
            true
        }

        fn save(&self, _kind: RecordKind, _bytes: Vec<u8>, saved: crate::Saved) {
            saved(Ok(()));
        }

        fn load(&self, kind: RecordKind) -> Result<Option<Vec<u8>>, KeepError> {
            Ok(match kind {
                RecordKind::Reservations => Some(self.0.clone()),
                RecordKind::WriteProtection => Some(self.1.clone()),
                RecordKind::Uncorrectable => None,
            })
        }
    }

    #[test]
    fn what_was_kept_is_in_force_again_and_damage_is_not_passed_over() {
        let table = held(Persistence::Set);
        for protection in [
            Protection::None,
            Protection::WriteProtect,
            Protection::UntilPowerCycle,
            Protection::Permanent,
        ] {
            let kept = Kept(table.to_record(), protection_record(protection));
            let gate = AccessGate::taken_up(&kept).unwrap();
            assert_eq!(gate.reservations(), table);
            let survives = protection != Protection::UntilPowerCycle;
            let expected = if survives {
                protection
            } else {
                Protection::None
            };
            assert_eq!(gate.protection(), expected);
            let write = gate.permit(IoOpcode::WRITE, true, OTHER, &mut Found::default());
            assert!(write.is_err());
        }
        for place in 0..16 {
            let mut damaged = protection_record(Protection::Permanent);
            damaged[place] ^= 1;
            let taken_up = AccessGate::taken_up(&Kept(Vec::new(), damaged));
            assert_eq!(taken_up.unwrap_err(), TakeUpError::Protection);
        }
        let mut damaged = table.to_record();
        damaged[21] ^= 1;
        let taken_up = AccessGate::taken_up(&Kept(damaged, Vec::new()));
        assert!(matches!(taken_up, Err(TakeUpError::Reservations(_))));
    }
}
