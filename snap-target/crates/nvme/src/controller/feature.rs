//! Get and Set Features (Base, "Get Features command", "Set Features command", "Feature Identifiers").

use super::identify::WARNING_TEMPERATURE_K;
use super::keep_alive::KeepAlive;
use super::timestamp::Timestamp;
use super::{CopyFormats, NamespaceSet, Transport};
use crate::Time;
use crate::pcie::Coalescing;
use nvme_spec::feature::{
    CAPABILITY_CHANGEABLE, CAPABILITY_NAMESPACE_SPECIFIC, FeatureId, HostBehaviorSupport,
    NumberOfQueues, SET_SAVE, Select, async_event_configuration,
};
use nvme_spec::reservation::{NotificationType, notification_mask};
use nvme_spec::{Nsid, Sqe, Status};
use std::collections::BTreeSet;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// A feature's value as the command returns it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// In DW0.
    Dw0(u32),
    /// As data.
    Data(Vec<u8>),
}

/// A feature and what may be done with it (DW0 of Get Features with SEL = 3).
pub(super) struct Support {
    pub id: FeatureId,
    pub capabilities: u32,
    pub discovery: bool,
    /// A PCIe function alone has it.
    pub pcie: bool,
}

const fn supported(id: FeatureId, capabilities: u32) -> Support {
    Support {
        id,
        capabilities,
        discovery: false,
        pcie: false,
    }
}

const fn of_pcie(id: FeatureId) -> Support {
    Support {
        pcie: true,
        ..supported(id, CAPABILITY_CHANGEABLE)
    }
}

/// All features there are. Nothing is saveable: a controller lives as long as its association.
pub(super) const SUPPORTED: [Support; 17] = [
    supported(FeatureId::ARBITRATION, CAPABILITY_CHANGEABLE),
    supported(FeatureId::POWER_MANAGEMENT, CAPABILITY_CHANGEABLE),
    supported(FeatureId::TEMPERATURE_THRESHOLD, CAPABILITY_CHANGEABLE),
    supported(
        FeatureId::ERROR_RECOVERY,
        CAPABILITY_CHANGEABLE | CAPABILITY_NAMESPACE_SPECIFIC,
    ),
    supported(FeatureId::VOLATILE_WRITE_CACHE, 0),
    supported(FeatureId::NUMBER_OF_QUEUES, CAPABILITY_CHANGEABLE),
    of_pcie(FeatureId::INTERRUPT_COALESCING),
    of_pcie(FeatureId::INTERRUPT_VECTOR_CONFIGURATION),
    supported(FeatureId::WRITE_ATOMICITY, CAPABILITY_CHANGEABLE),
    Support {
        id: FeatureId::ASYNC_EVENT_CONFIGURATION,
        capabilities: CAPABILITY_CHANGEABLE,
        discovery: true,
        pcie: false,
    },
    supported(FeatureId::TIMESTAMP, CAPABILITY_CHANGEABLE),
    Support {
        id: FeatureId::KEEP_ALIVE_TIMER,
        capabilities: CAPABILITY_CHANGEABLE,
        discovery: true,
        pcie: false,
    },
    supported(FeatureId::HOST_BEHAVIOR_SUPPORT, CAPABILITY_CHANGEABLE),
    supported(FeatureId::HOST_IDENTIFIER, 0),
    supported(
        FeatureId::RESERVATION_NOTIFICATION_MASK,
        CAPABILITY_CHANGEABLE | CAPABILITY_NAMESPACE_SPECIFIC,
    ),
    supported(
        FeatureId::RESERVATION_PERSISTENCE,
        CAPABILITY_CHANGEABLE | CAPABILITY_NAMESPACE_SPECIFIC,
    ),
    supported(
        FeatureId::NAMESPACE_WRITE_PROTECTION,
        CAPABILITY_CHANGEABLE | CAPABILITY_NAMESPACE_SPECIFIC,
    ),
];

/// What a feature command may see and change besides the features themselves.
pub(super) struct Context<'a> {
    pub discovery: bool,
    pub transport: Transport,
    pub namespaces: &'a NamespaceSet,
    pub host_id: &'a [u8; 16],
    pub keep_alive: &'a mut KeepAlive,
    pub timestamp: &'a mut Timestamp,
    /// OAES: notices that the controller sends.
    pub notices: u32,
    pub io_queues_max: u16,
    /// What other controllers have left of the queues that there can be.
    pub io_queues_left: u16,
    /// I/O queues exist: their number is settled.
    pub io_queues_connected: bool,
    pub now: Time,
}

/// The features' values.
#[derive(Debug)]
pub(super) struct Features {
    arbitration: u32,
    temperature_over_k: u16,
    temperature_under_k: u16,
    /// Where a namespace's differs from 0.
    error_recovery: Vec<(Nsid, u32)>,
    /// The same.
    notification_masks: Vec<(Nsid, u32)>,
    write_atomicity: u32,
    interrupt_coalescing: u32,
    /// Vectors without coalescing (CD = 1).
    uncoalesced: BTreeSet<u16>,
    async_events: u32,
    io_queues: u16,
    /// The host has asked for that number.
    io_queues_granted: bool,
    host_behavior: HostBehaviorSupport,
    /// What of it the queues look at.
    copy_formats: CopyFormats,
}

impl Features {
    pub fn new(io_queues_max: u16) -> Features {
        Features {
            arbitration: 0,
            temperature_over_k: WARNING_TEMPERATURE_K,
            temperature_under_k: 0,
            error_recovery: Vec::new(),
            notification_masks: Vec::new(),
            write_atomicity: 0,
            interrupt_coalescing: 0,
            uncoalesced: BTreeSet::new(),
            async_events: 0,
            io_queues: io_queues_max,
            io_queues_granted: false,
            host_behavior: HostBehaviorSupport::new_zeroed(),
            copy_formats: CopyFormats::default(),
        }
    }

    /// What was set for namespaces that are gone is forgotten: their NSIDs may be others' one day.
    pub fn keep_of(&mut self, namespaces: &NamespaceSet) {
        let is_there = |(nsid, _): &(Nsid, u32)| namespaces.get(*nsid).is_some();
        self.error_recovery.retain(is_there);
        self.notification_masks.retain(is_there);
    }

    /// Interrupt Coalescing and Interrupt Vector Configuration, for who interrupts.
    pub fn coalescing(&self) -> Coalescing {
        let [threshold_z, time_100us, ..] = self.interrupt_coalescing.to_le_bytes();
        let bits = self.uncoalesced.iter();
        let bits = bits.filter_map(|vector| 1_u128.checked_shl((*vector).into()));
        Coalescing {
            threshold_z,
            time_100us,
            disabled: bits.fold(0, |all, bit| all | bit),
        }
    }

    /// I/O queues granted by Number of Queues.
    pub fn io_queues(&self) -> u16 {
        self.io_queues
    }

    /// The same, where the host has asked.
    pub fn granted_io_queues(&self) -> Option<u16> {
        self.io_queues_granted.then_some(self.io_queues)
    }

    /// The host asked for this notice.
    pub fn notifies(&self, notice: u32) -> bool {
        self.async_events & notice != 0
    }

    /// CDFE: what Host Behavior Support says now and later.
    pub fn copy_formats(&self) -> CopyFormats {
        self.copy_formats.clone()
    }

    /// The host does not want to hear of such changes of this namespace's reservations.
    pub fn masks_notification(&self, nsid: Nsid, what: NotificationType) -> bool {
        of_namespace(&self.notification_masks, nsid) & 1 << what.0 != 0
    }

    /// ACRE: the host honours the retry delay in a status.
    pub fn host_honours_retry_delay(&self) -> bool {
        self.host_behavior.acre == 1
    }

    /// Get Features.
    pub fn get(&self, sqe: &Sqe, context: &Context<'_>) -> Result<Value, Status> {
        let cdw10 = sqe.cdw10.get();
        let id = find(sqe, context)?;
        let select = Select::of_cdw10(cdw10).ok_or(Status::INVALID_FIELD.dnr())?;
        match select {
            Select::Capabilities => Ok(Value::Dw0(id.capabilities)),
            Select::Current => self.value(id.id, sqe, context),
            // A clock's value before it was set: the moment of a reset.
            Select::Default | Select::Saved if id.id == FeatureId::TIMESTAMP => {
                Ok(Value::Data(Timestamp::reset(context.now).get(context.now)))
            }
            Select::Default | Select::Saved => {
                Features::new(context.io_queues_max).value(id.id, sqe, context)
            }
        }
    }

    fn value(&self, id: FeatureId, sqe: &Sqe, context: &Context<'_>) -> Result<Value, Status> {
        let value = match id {
            FeatureId::ARBITRATION => self.arbitration,
            FeatureId::POWER_MANAGEMENT => 0,
            FeatureId::TEMPERATURE_THRESHOLD => match Threshold::of(sqe.cdw11.get())? {
                Threshold {
                    sensor: 0,
                    under: false,
                } => u32::from(self.temperature_over_k),
                Threshold {
                    sensor: 0,
                    under: true,
                } => u32::from(self.temperature_under_k),
                _ => return Err(Status::INVALID_FIELD.dnr()),
            },
            FeatureId::ERROR_RECOVERY => of_namespace(
                &self.error_recovery,
                active(sqe.nsid(), context.namespaces)?,
            ),
            FeatureId::RESERVATION_NOTIFICATION_MASK => of_namespace(
                &self.notification_masks,
                active(sqe.nsid(), context.namespaces)?,
            ),
            FeatureId::VOLATILE_WRITE_CACHE => 1,
            FeatureId::NUMBER_OF_QUEUES => {
                NumberOfQueues::new(self.io_queues - 1, self.io_queues - 1).0
            }
            FeatureId::INTERRUPT_COALESCING => self.interrupt_coalescing,
            FeatureId::INTERRUPT_VECTOR_CONFIGURATION => {
                let vector = vector(sqe.cdw11.get(), context)?;
                let coalescing_disabled = u32::from(self.uncoalesced.contains(&vector)) << 16;
                u32::from(vector) | coalescing_disabled
            }
            FeatureId::WRITE_ATOMICITY => self.write_atomicity,
            FeatureId::ASYNC_EVENT_CONFIGURATION => self.async_events,
            FeatureId::KEEP_ALIVE_TIMER => context.keep_alive.kato_ms(),
            FeatureId::HOST_BEHAVIOR_SUPPORT => {
                return Ok(Value::Data(self.host_behavior.as_bytes().to_vec()));
            }
            FeatureId::TIMESTAMP => return Ok(Value::Data(context.timestamp.get(context.now))),
            FeatureId::HOST_IDENTIFIER if sqe.cdw11.get() & 1 == 0 => {
                return Err(Status::INVALID_FIELD.dnr());
            }
            FeatureId::HOST_IDENTIFIER => return Ok(Value::Data(context.host_id.to_vec())),
            // The default; what holds is the namespace's ([`super::namespace_feature`]).
            FeatureId::RESERVATION_PERSISTENCE => {
                active(sqe.nsid(), context.namespaces)?;
                0
            }
            FeatureId::NAMESPACE_WRITE_PROTECTION => {
                let info = context.namespaces.require(sqe.nsid())?;
                info.reported_protection().to_wire()
            }
            _ => return Err(Status::INVALID_FIELD.dnr()),
        };
        Ok(Value::Dw0(value))
    }

    /// Set Features: DW0 of the completion.
    pub fn set(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        context: &mut Context<'_>,
    ) -> Result<u32, Status> {
        let feature = find(sqe, context)?;
        if sqe.cdw10.get() & SET_SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE.dnr());
        }
        let namespace_specific = feature.capabilities & CAPABILITY_NAMESPACE_SPECIFIC != 0;
        if !namespace_specific && !matches!(sqe.nsid(), Nsid::NONE | Nsid::BROADCAST) {
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC.dnr());
        }
        let value = sqe.cdw11.get();
        match feature.id {
            FeatureId::ARBITRATION => self.arbitration = value,
            // One power state, 0; the workload hint changes nothing.
            FeatureId::POWER_MANAGEMENT if value & 0x1F == 0 => {}
            FeatureId::TEMPERATURE_THRESHOLD => self.set_temperature(value)?,
            FeatureId::ERROR_RECOVERY => {
                self.set_error_recovery(sqe.nsid(), value, context.namespaces)?
            }
            // The cache cannot be turned off; asking for what holds is no error.
            FeatureId::VOLATILE_WRITE_CACHE if value & 1 == 1 => {}
            FeatureId::VOLATILE_WRITE_CACHE => return Err(Status::FEATURE_NOT_CHANGEABLE.dnr()),
            FeatureId::NUMBER_OF_QUEUES => return self.set_queues(NumberOfQueues(value), context),
            FeatureId::INTERRUPT_COALESCING => self.interrupt_coalescing = value & 0xFFFF,
            FeatureId::INTERRUPT_VECTOR_CONFIGURATION => {
                let vector = vector(value, context)?;
                if value & 1 << 16 == 0 {
                    self.uncoalesced.remove(&vector);
                } else {
                    self.uncoalesced.insert(vector);
                }
            }
            FeatureId::WRITE_ATOMICITY => self.write_atomicity = value & 1,
            FeatureId::ASYNC_EVENT_CONFIGURATION => {
                self.set_async_events(value, context.notices)?
            }
            FeatureId::TIMESTAMP => *context.timestamp = Timestamp::set(data, context.now)?,
            FeatureId::KEEP_ALIVE_TIMER => context.keep_alive.set(value, context.now),
            FeatureId::HOST_BEHAVIOR_SUPPORT => self.set_host_behavior(data)?,
            // Base, "Host Identifier": on fabrics it comes with Connect.
            FeatureId::HOST_IDENTIFIER => return Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
            FeatureId::RESERVATION_NOTIFICATION_MASK => {
                if value & !notification_mask::ALL != 0 {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                set_of_namespace(
                    &mut self.notification_masks,
                    sqe.nsid(),
                    value,
                    context.namespaces,
                )?;
            }
            _ => return Err(Status::INVALID_FIELD.dnr()),
        }
        Ok(0)
    }

    fn set_temperature(&mut self, value: u32) -> Result<(), Status> {
        let kelvin = u16::try_from(value & 0xFFFF).unwrap_or(0);
        match Threshold::of(value)? {
            Threshold {
                sensor: 0 | 0xF,
                under: false,
            } => self.temperature_over_k = kelvin,
            Threshold {
                sensor: 0 | 0xF,
                under: true,
            } => self.temperature_under_k = kelvin,
            _ => return Err(Status::INVALID_FIELD.dnr()),
        }
        Ok(())
    }

    fn set_error_recovery(
        &mut self,
        nsid: Nsid,
        value: u32,
        namespaces: &NamespaceSet,
    ) -> Result<(), Status> {
        // DULBE (bit 16) needs deallocated blocks, which no namespace reports.
        if value & !0xFFFF != 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        set_of_namespace(&mut self.error_recovery, nsid, value, namespaces)
    }

    fn set_queues(&mut self, asked: NumberOfQueues, context: &Context<'_>) -> Result<u32, Status> {
        if asked.submission_z() == u16::MAX || asked.completion_z() == u16::MAX {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if context.io_queues_connected {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        // On fabrics a queue is a pair: as many as the smaller number. A function has as many of one kind as of the other, and the host may use fewer.
        let (submission_z, completion_z) = (asked.submission_z(), asked.completion_z());
        let asked_z = match context.transport.is_fabric() {
            true => submission_z.min(completion_z),
            false => submission_z.max(completion_z),
        };
        let granted_z = asked_z
            .min(context.io_queues_max - 1)
            // There is always one: the Connect of the admin queue has seen to that.
            .min(context.io_queues_left.saturating_sub(1));
        self.io_queues = granted_z + 1;
        self.io_queues_granted = true;
        Ok(NumberOfQueues::new(granted_z, granted_z).0)
    }

    fn set_async_events(&mut self, value: u32, notices: u32) -> Result<(), Status> {
        if value & !(async_event_configuration::SMART_MASK | notices) != 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        self.async_events = value;
        Ok(())
    }

    fn set_host_behavior(&mut self, data: &[u8]) -> Result<(), Status> {
        let (behavior, _) = HostBehaviorSupport::ref_from_prefix(data)
            .map_err(|_| Status::DATA_SGL_LENGTH_INVALID.dnr())?;
        if [
            behavior.acre,
            behavior.etdas,
            behavior.lbafee,
            behavior.hdisns,
        ]
        .iter()
        .any(|&flag| flag > 1)
        {
            return Err(Status::INVALID_FIELD.dnr());
        }
        // CDFE may name formats that OCFS does not: hosts enable those that they know (nvme-cli's tests set 2h to 4h at once), and a Copy in a format that is
        // not offered is refused all the same.
        self.host_behavior = *behavior;
        self.copy_formats.enable(behavior.cdfe.get());
        Ok(())
    }
}

/// CDW11 of Temperature Threshold.
struct Threshold {
    /// TMPSEL: 0 = composite, Fh = all.
    sensor: u32,
    /// THSEL = 1.
    under: bool,
}

impl Threshold {
    fn of(cdw11: u32) -> Result<Threshold, Status> {
        let sensor = cdw11 >> 16 & 0xF;
        match cdw11 >> 20 & 0b11 {
            0 => Ok(Threshold {
                sensor,
                under: false,
            }),
            1 => Ok(Threshold {
                sensor,
                under: true,
            }),
            _ => Err(Status::INVALID_FIELD.dnr()),
        }
    }
}

/// The feature a command names, where this controller has it.
fn find(sqe: &Sqe, context: &Context<'_>) -> Result<&'static Support, Status> {
    let id = FeatureId(sqe.cdw10.to_bytes()[0]);
    SUPPORTED
        .iter()
        .find(|feature| feature.id == id && feature.is_there(context.discovery, context.transport))
        .ok_or(Status::INVALID_FIELD.dnr())
}

impl Support {
    /// True where a controller has this feature.
    pub fn is_there(&self, discovery: bool, transport: Transport) -> bool {
        (self.discovery || !discovery) && !(self.pcie && transport.is_fabric())
    }
}

/// IV of Interrupt Vector Configuration: of as many as the function has.
fn vector(cdw11: u32, context: &Context<'_>) -> Result<u16, Status> {
    let vector = u16::try_from(cdw11 & 0xFFFF).unwrap_or(u16::MAX);
    match vector <= context.io_queues_max {
        true => Ok(vector),
        false => Err(Status::INVALID_FIELD.dnr()),
    }
}

/// A value kept by namespace, where it differs from 0.
fn of_namespace(values: &[(Nsid, u32)], nsid: Nsid) -> u32 {
    values
        .iter()
        .find(|(of, _)| *of == nsid)
        .map_or(0, |(_, value)| *value)
}

/// Sets such a value, for one namespace or for all.
fn set_of_namespace(
    values: &mut Vec<(Nsid, u32)>,
    nsid: Nsid,
    value: u32,
    namespaces: &NamespaceSet,
) -> Result<(), Status> {
    let targets: Vec<Nsid> = match nsid {
        Nsid::BROADCAST => namespaces.iter().map(|info| info.nsid).collect(),
        one => vec![active(one, namespaces)?],
    };
    values.retain(|(of, _)| !targets.contains(of));
    if value != 0 {
        values.extend(targets.into_iter().map(|of| (of, value)));
    }
    Ok(())
}

/// An active namespace for a namespace-specific feature.
fn active(nsid: Nsid, namespaces: &NamespaceSet) -> Result<Nsid, Status> {
    namespaces.require(nsid).map(|info| info.nsid)
}
