//! Features that live with a namespace rather than with a controller: Reservation Persistence (83h) and Namespace Write Protection Config (84h).
//!
//! Their values outlive controllers and power, and are in force on every queue before they are answered, so the frontend carries them out.

use super::admin::{Outcome, done};
use super::association::Controller;
use super::{NamespaceInfo, NamespaceSet};
use crate::queue::Completion;
use nvme_spec::feature::{FeatureId, SET_SAVE, Select, write_protection};
use nvme_spec::{Nsid, Sqe, Status};

/// State of Namespace Write Protection Config, as a host set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// No Write Protect.
    #[default]
    None,
    /// Write Protect, until a host lifts it.
    WriteProtect,
    /// Write Protect Until Power Cycle.
    UntilPowerCycle,
    /// Permanent Write Protect.
    Permanent,
}

impl Protection {
    /// From CDW11 2:0 of Set Features.
    pub fn of_wire(state: u32) -> Option<Protection> {
        match state & 0b111 {
            write_protection::NONE => Some(Protection::None),
            write_protection::WRITE_PROTECT => Some(Protection::WriteProtect),
            write_protection::UNTIL_POWER_CYCLE => Some(Protection::UntilPowerCycle),
            write_protection::PERMANENT => Some(Protection::Permanent),
            _ => None,
        }
    }

    /// As DW0 of Get Features tells it.
    pub fn to_wire(self) -> u32 {
        match self {
            Protection::None => write_protection::NONE,
            Protection::WriteProtect => write_protection::WRITE_PROTECT,
            Protection::UntilPowerCycle => write_protection::UNTIL_POWER_CYCLE,
            Protection::Permanent => write_protection::PERMANENT,
        }
    }

    /// Whether a host may have it changed to `next`; the state that holds may always be asked for.
    ///
    /// # Errors
    /// [`Status::FEATURE_NOT_CHANGEABLE`]: no host lifts it (Base, "Namespace Write Protection").
    pub fn check_change(self, next: Protection) -> Result<(), Status> {
        match self {
            Protection::None | Protection::WriteProtect => Ok(()),
            _ if self == next => Ok(()),
            _ => Err(Status::FEATURE_NOT_CHANGEABLE.dnr()),
        }
    }
}

/// What a feature command asks of namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceAsk {
    /// PTPL of this namespace, in DW0.
    GetPersistence(Nsid),
    /// Set PTPL: of this namespace, or with FFFFFFFFh of all that the host sees and that can have it so.
    SetPersistence(Nsid, bool),
    /// Set the write protection of this namespace.
    SetProtection(Nsid, Protection),
}

impl NamespaceInfo {
    /// What a host reads back: what presents a read-only view is protected, whatever hosts set.
    pub(super) fn reported_protection(&self) -> Protection {
        match self.protection {
            Protection::None if self.write_protected => Protection::WriteProtect,
            protection => protection,
        }
    }

    /// No host may write to it.
    pub(super) fn is_protected(&self) -> bool {
        self.write_protected || self.protection != Protection::None
    }
}

impl Controller {
    /// Get Features of what the namespace alone knows; none for all else.
    pub(super) fn get_of_namespace(&self, sqe: &Sqe) -> Result<Option<Outcome>, Status> {
        let current = Select::of_cdw10(sqe.cdw10.get()) == Some(Select::Current);
        if self.is_discovery() || feature(sqe) != FeatureId::RESERVATION_PERSISTENCE || !current {
            return Ok(None);
        }
        let nsid = self.namespaces().require(sqe.nsid())?.nsid;
        let ask = NamespaceAsk::GetPersistence(nsid);
        Ok(Some(Outcome::OfNamespace(ask)))
    }

    /// Set Features of what lives with a namespace; none for other features.
    pub(super) fn set_of_namespace(&self, sqe: &Sqe) -> Result<Option<Outcome>, Status> {
        if self.is_discovery() {
            return Ok(None);
        }
        let set = match feature(sqe) {
            FeatureId::RESERVATION_PERSISTENCE => set_persistence,
            FeatureId::NAMESPACE_WRITE_PROTECTION => set_protection,
            _ => return Ok(None),
        };
        if sqe.cdw10.get() & SET_SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE.dnr());
        }
        set(sqe, self.namespaces()).map(Some)
    }
}

fn feature(sqe: &Sqe) -> FeatureId {
    FeatureId(sqe.cdw10.to_bytes()[0])
}

fn set_persistence(sqe: &Sqe, namespaces: &NamespaceSet) -> Result<Outcome, Status> {
    let value = sqe.cdw11.get();
    if value > 1 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let nsid = sqe.nsid();
    if nsid != Nsid::BROADCAST {
        // RESCAP bit 0: what cannot be kept is not promised.
        let info = namespaces.require(nsid)?;
        if value == 1 && !info.keeps_reservations {
            return Err(Status::INVALID_FIELD.dnr());
        }
    }
    let ask = NamespaceAsk::SetPersistence(nsid, value == 1);
    Ok(Outcome::OfNamespace(ask))
}

fn set_protection(sqe: &Sqe, namespaces: &NamespaceSet) -> Result<Outcome, Status> {
    let next = Protection::of_wire(sqe.cdw11.get()).ok_or(Status::INVALID_FIELD.dnr())?;
    let info = namespaces.require(sqe.nsid())?;
    let now = info.reported_protection();
    if next == now {
        return Ok(done(Completion::SUCCESS));
    }
    // A read-only view: nothing that a host sets lifts or changes that.
    if info.write_protected {
        return Err(Status::FEATURE_NOT_CHANGEABLE.dnr());
    }
    now.check_change(next)?;
    let ask = NamespaceAsk::SetProtection(info.nsid, next);
    Ok(Outcome::OfNamespace(ask))
}
