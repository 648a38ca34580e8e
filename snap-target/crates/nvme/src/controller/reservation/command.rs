//! Reservation commands, from a submission queue entry and its data to a [`Request`].

use super::Key;
use crate::controller::NamespaceSet;
use crate::queue::Transfer;
use nvme_spec::reservation::{
    AcquireAction, AcquireData, ChangePersistence, EXTENDED_DATA_STRUCTURE, IGNORE_EXISTING_KEY,
    RegisterAction, RegisterData, ReleaseAction, ReleaseData, ReservationType,
};
use nvme_spec::{IoOpcode, Nsid, Sqe, Status};
use zerocopy::FromBytes;

/// A reservation command whose entry is in order: its data may be asked for, or its answer made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationCommand {
    /// Register, Acquire or Release: so many bytes of data come first.
    Change {
        /// Which namespace.
        nsid: Nsid,
        /// Data of the host, bytes.
        bytes: u32,
    },
    /// Report.
    Report {
        /// Which namespace.
        nsid: Nsid,
        /// Data to the host, bytes.
        bytes: u32,
    },
}

/// What a host asks of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Register a key.
    Register {
        /// NRKEY.
        new: Key,
        /// CPTPL.
        persistence: Persistence,
    },
    /// End the host's registration.
    Unregister {
        /// CRKEY; none where the host had it ignored (IEKEY).
        current: Option<Key>,
        /// CPTPL.
        persistence: Persistence,
    },
    /// Replace the host's key.
    Replace {
        /// CRKEY; none where the host had it ignored (IEKEY).
        current: Option<Key>,
        /// NRKEY.
        new: Key,
        /// CPTPL.
        persistence: Persistence,
    },
    /// Acquire the reservation.
    Acquire {
        /// CRKEY.
        current: Key,
        /// RTYPE, one of the six.
        rtype: ReservationType,
    },
    /// Preempt registrants, and their reservation with them.
    Preempt {
        /// CRKEY.
        current: Key,
        /// PRKEY.
        preempt: Key,
        /// RTYPE, one of the six.
        rtype: ReservationType,
        /// Their commands end as well.
        abort: bool,
    },
    /// Release the reservation.
    Release {
        /// CRKEY.
        current: Key,
        /// RTYPE.
        rtype: ReservationType,
    },
    /// Clear the reservation and all registrations.
    Clear {
        /// CRKEY.
        current: Key,
    },
}

/// CPTPL: what becomes of the Persist Through Power Loss state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// It stays.
    Keep,
    /// It is set to 0: the state does not survive the loss of power.
    Clear,
    /// It is set to 1: it does.
    Set,
}

impl ReservationCommand {
    /// Checks the entry; none where it is no reservation command. `transfer_bytes_max` is MDTS in bytes.
    pub fn of(
        sqe: &Sqe,
        transfer: Transfer,
        namespaces: &NamespaceSet,
        transfer_bytes_max: u32,
    ) -> Option<Result<ReservationCommand, Status>> {
        let opcode = IoOpcode(sqe.opcode);
        matches!(
            opcode,
            IoOpcode::RESERVATION_REGISTER
                | IoOpcode::RESERVATION_ACQUIRE
                | IoOpcode::RESERVATION_RELEASE
                | IoOpcode::RESERVATION_REPORT
        )
        .then(|| check(opcode, sqe, transfer, namespaces, transfer_bytes_max))
    }
}

fn check(
    opcode: IoOpcode,
    sqe: &Sqe,
    transfer: Transfer,
    namespaces: &NamespaceSet,
    transfer_bytes_max: u32,
) -> Result<ReservationCommand, Status> {
    if sqe.fuse() != 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    if let Transfer::Refused(status) = transfer {
        return Err(status);
    }
    let nsid = namespaces.require(sqe.nsid())?.nsid;
    if opcode == IoOpcode::RESERVATION_REPORT {
        return report(sqe, transfer, nsid, transfer_bytes_max);
    }
    let bytes = if opcode == IoOpcode::RESERVATION_RELEASE {
        size_of::<ReleaseData>()
    } else {
        size_of::<RegisterData>()
    };
    let bytes = u32::try_from(bytes).map_err(|_| Status::INTERNAL_ERROR)?;
    if !transfer.is_for(bytes) {
        return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    }
    Ok(ReservationCommand::Change { nsid, bytes })
}

/// NUMD, zero-based dwords, is CDW10.
fn report(
    sqe: &Sqe,
    transfer: Transfer,
    nsid: Nsid,
    transfer_bytes_max: u32,
) -> Result<ReservationCommand, Status> {
    // Base, "Reservation Report command": hosts have 128-bit identifiers here, which the short structure cannot show.
    if sqe.cdw11.get() & EXTENDED_DATA_STRUCTURE == 0 {
        return Err(Status::HOST_ID_INCONSISTENT.dnr());
    }
    let bytes = sqe
        .cdw10
        .get()
        .checked_add(1)
        .and_then(|dwords| dwords.checked_mul(4))
        .filter(|&bytes| bytes <= transfer_bytes_max)
        .ok_or(Status::INVALID_FIELD.dnr())?;
    if !transfer.has_room_for(bytes.into()) {
        return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    }
    Ok(ReservationCommand::Report { nsid, bytes })
}

impl Request {
    /// Reads Register, Acquire or Release with its data. `is_durable`: the namespace can keep its state through the loss of power.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`]: a reserved action or type, IEKEY where it must be 0, a new key of 0, or a persistence that cannot be had.
    /// [`Status::DATA_SGL_LENGTH_INVALID`]: data too short.
    pub fn parse(sqe: &Sqe, data: &[u8], is_durable: bool) -> Result<Request, Status> {
        match IoOpcode(sqe.opcode) {
            IoOpcode::RESERVATION_REGISTER => register(sqe, data, is_durable),
            IoOpcode::RESERVATION_ACQUIRE => acquire(sqe, data),
            IoOpcode::RESERVATION_RELEASE => release(sqe, data),
            _ => Err(Status::INVALID_OPCODE.dnr()),
        }
    }
}

/// CDW10 2:0 of all three.
fn action(sqe: &Sqe) -> u8 {
    sqe.cdw10.to_bytes()[0] & 0b111
}

fn ignores_key(sqe: &Sqe) -> bool {
    sqe.cdw10.get() & IGNORE_EXISTING_KEY != 0
}

fn read<T: FromBytes>(data: &[u8]) -> Result<T, Status> {
    T::read_from_prefix(data)
        .map(|(read, _)| read)
        .map_err(|_| Status::DATA_SGL_LENGTH_INVALID.dnr())
}

fn register(sqe: &Sqe, data: &[u8], is_durable: bool) -> Result<Request, Status> {
    let keys: RegisterData = read(data)?;
    let persistence = match ChangePersistence(sqe.cdw10.to_bytes()[3] >> 6) {
        ChangePersistence::NO_CHANGE => Persistence::Keep,
        ChangePersistence::CLEAR => Persistence::Clear,
        ChangePersistence::SET if is_durable => Persistence::Set,
        _ => return Err(Status::INVALID_FIELD.dnr()),
    };
    let current = (!ignores_key(sqe)).then(|| Key(keys.current_key.get()));
    // A key of 0 could not be told from no key: PRKEY 0 means every other registrant.
    let new = Some(Key(keys.new_key.get())).filter(|key| *key != Key(0));
    let new = || new.ok_or(Status::INVALID_FIELD.dnr());
    match RegisterAction(action(sqe)) {
        RegisterAction::REGISTER => Ok(Request::Register {
            new: new()?,
            persistence,
        }),
        RegisterAction::UNREGISTER => Ok(Request::Unregister {
            current,
            persistence,
        }),
        RegisterAction::REPLACE => Ok(Request::Replace {
            current,
            new: new()?,
            persistence,
        }),
        _ => Err(Status::INVALID_FIELD.dnr()),
    }
}

fn acquire(sqe: &Sqe, data: &[u8]) -> Result<Request, Status> {
    let keys: AcquireData = read(data)?;
    // Base, "Reservation Acquire": IEKEY set is an invalid field.
    if ignores_key(sqe) {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let rtype = rtype(sqe)?;
    let current = Key(keys.current_key.get());
    match AcquireAction(action(sqe)) {
        AcquireAction::ACQUIRE => Ok(Request::Acquire { current, rtype }),
        action @ (AcquireAction::PREEMPT | AcquireAction::PREEMPT_AND_ABORT) => {
            Ok(Request::Preempt {
                current,
                preempt: Key(keys.preempt_key.get()),
                rtype,
                abort: action == AcquireAction::PREEMPT_AND_ABORT,
            })
        }
        _ => Err(Status::INVALID_FIELD.dnr()),
    }
}

fn release(sqe: &Sqe, data: &[u8]) -> Result<Request, Status> {
    let keys: ReleaseData = read(data)?;
    if ignores_key(sqe) {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let current = Key(keys.current_key.get());
    match ReleaseAction(action(sqe)) {
        ReleaseAction::RELEASE => Ok(Request::Release {
            current,
            rtype: ReservationType(sqe.cdw10.to_bytes()[1]),
        }),
        ReleaseAction::CLEAR => Ok(Request::Clear { current }),
        _ => Err(Status::INVALID_FIELD.dnr()),
    }
}

/// RTYPE, where it is one of the six.
fn rtype(sqe: &Sqe) -> Result<ReservationType, Status> {
    match sqe.cdw10.to_bytes()[1] {
        rtype @ 1..=6 => Ok(ReservationType(rtype)),
        _ => Err(Status::INVALID_FIELD.dnr()),
    }
}
