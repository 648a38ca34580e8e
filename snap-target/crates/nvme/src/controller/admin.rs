//! One controller: admin commands in, answers out.

use super::association::{Controller, Role};
use super::error_log::CommandError;
use super::feature::{Context, Features, Value};
use super::property::Properties;
use super::subsystem::ADMIN_DATA_IN_BYTES_MAX;
use super::{NamespaceAsk, identify, log_page};
use crate::Time;
use crate::pcie::QueueCommand;
use crate::queue::{Completion, QueueId, Slot, Transfer};
use nvme_spec::fabrics::FabricsType;
use nvme_spec::feature::{FeatureId, Select};
use nvme_spec::{AdminOpcode, Cid, Direction, Sqe, Status};

/// An admin command whose data, if it brings any, have arrived.
#[derive(Clone, Copy, Debug)]
pub struct AdminCommand<'a> {
    /// The entry.
    pub sqe: &'a Sqe,
    /// Where it is: comes back with asynchronous events.
    pub slot: Slot,
    /// How its data travel.
    pub transfer: Transfer,
    /// The data it brought.
    pub data: &'a [u8],
}

/// What becomes of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done {
        /// How.
        completion: Completion,
        /// Bytes of the output buffer that go to the host.
        data_bytes: u32,
        /// What the frontend does besides.
        effect: Effect,
    },
    /// A feature that lives with a namespace: the frontend carries it out and answers.
    OfNamespace(NamespaceAsk),
    /// An I/O queue of a PCIe function is to be created or deleted, or its doorbells are to be looked for in memory: the frontend carries it out and answers.
    Queue(QueueCommand),
    /// An Asynchronous Event Request: [`Controller::next_async_event`] will answer it.
    Pending,
    /// An Abort: the frontend looks for that command, ends it if it can, and answers the Abort with
    /// [`Controller::abort_finished`].
    Abort {
        /// SQID.
        queue: QueueId,
        /// CID.
        cid: Cid,
    },
}

/// What a command asks of the frontend beyond its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// CC.EN went to 0: end the controller's I/O queues and their connections; when the last command of the last of them has ended, or where
    /// there are none, call [`Controller::reset_complete`]. Until then CSTS.RDY stays 1 and no I/O queue is let in.
    Reset,
    /// CC.SHN was set: make everything durable, then call [`Controller::shutdown_complete`], or [`Controller::shutdown_failed`].
    Shutdown,
}

/// The buffer that an admin command needs, in or out; a status where it asks for too much. Get it before taking the data.
pub fn buffer_bytes(sqe: &Sqe, transfer: Transfer, transfer_bytes_max: u32) -> Result<u32, Status> {
    if let Transfer::Refused(status) = transfer {
        return Err(status);
    }
    let bytes_max = match sqe.direction() {
        Direction::HostToController => ADMIN_DATA_IN_BYTES_MAX,
        _ => transfer_bytes_max,
    };
    let bytes = match transfer {
        Transfer::InMemory => prp_bytes(sqe),
        described => Some(described.bytes()),
    };
    bytes
        .filter(|&bytes| bytes <= bytes_max)
        .ok_or(Status::INVALID_FIELD.dnr())
}

/// Bytes of an admin command's data where nothing but the command says how many; none where they are more than can be counted.
fn prp_bytes(sqe: &Sqe) -> Option<u32> {
    let is_set = AdminOpcode(sqe.opcode) == AdminOpcode::SET_FEATURES;
    let bytes = match (AdminOpcode(sqe.opcode), FeatureId(sqe.cdw10.to_bytes()[0])) {
        (AdminOpcode::IDENTIFY, _) => IDENTIFY_LEN,
        (AdminOpcode::GET_LOG_PAGE, _) => {
            return u32::try_from(nvme_spec::log::GetLogPage::of(sqe).bytes).ok();
        }
        (AdminOpcode::GET_FEATURES, _) if asks_for_capabilities(sqe) => 0,
        (AdminOpcode::GET_FEATURES | AdminOpcode::SET_FEATURES, feature) => match feature {
            FeatureId::TIMESTAMP => TIMESTAMP_LEN,
            FeatureId::HOST_BEHAVIOR_SUPPORT => HOST_BEHAVIOR_LEN,
            FeatureId::HOST_IDENTIFIER if sqe.cdw11.get() & 1 == 1 => HOST_ID_LEN,
            FeatureId::HOST_IDENTIFIER if is_set => HOST_ID_LEN / 2,
            _ => 0,
        },
        _ => 0,
    };
    Some(bytes)
}

/// SEL = 3: the answer is in DW0, whatever the feature.
fn asks_for_capabilities(sqe: &Sqe) -> bool {
    Select::of_cdw10(sqe.cdw10.get()) == Some(Select::Capabilities)
}

/// Bytes of an Identify data structure, a Timestamp, Host Behavior Support, and an extended Host Identifier.
const IDENTIFY_LEN: u32 = 4096;
const TIMESTAMP_LEN: u32 = 8;
const HOST_BEHAVIOR_LEN: u32 = 512;
const HOST_ID_LEN: u32 = 16;
const _: () = assert!(IDENTIFY_LEN as usize == nvme_spec::IDENTIFY_BYTES);
const _: () =
    assert!(HOST_BEHAVIOR_LEN as usize == size_of::<nvme_spec::feature::HostBehaviorSupport>());

impl Controller {
    /// Carries out an admin command. `out` is the buffer for data to the host, as long as [`buffer_bytes`] said; of it, the bytes that the
    /// outcome names are all written.
    pub fn execute(&mut self, command: &AdminCommand<'_>, out: &mut [u8], now: Time) -> Outcome {
        self.keep_alive.restart(now);
        match self.dispatch(command, out, now) {
            Ok(outcome) => outcome,
            Err(status) => {
                self.record_error(&CommandError::of(QueueId::ADMIN, command.sqe, status, None));
                done(Completion::of(status))
            }
        }
    }

    fn dispatch(
        &mut self,
        command: &AdminCommand<'_>,
        out: &mut [u8],
        now: Time,
    ) -> Result<Outcome, Status> {
        let sqe = command.sqe;
        let opcode = AdminOpcode(sqe.opcode);
        if !self.supports(opcode) {
            return Err(Status::INVALID_OPCODE.dnr());
        }
        if sqe.fuse() != 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if let Transfer::Refused(status) = command.transfer {
            return Err(status);
        }
        if opcode == AdminOpcode::FABRICS {
            return self.fabrics(sqe, now);
        }
        if !self.properties.ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        match opcode {
            AdminOpcode::IDENTIFY => {
                let structure = identify::structure(self, sqe)?;
                data(command, out, &structure, 0)
            }
            AdminOpcode::GET_LOG_PAGE => self.get_log_page(command, out, now),
            AdminOpcode::GET_FEATURES => self.get_features(command, out, now),
            AdminOpcode::SET_FEATURES => self.set_features(command, now),
            AdminOpcode::ASYNC_EVENT_REQUEST => {
                self.events.request(command.slot).map(|()| Outcome::Pending)
            }
            AdminOpcode::ABORT => self.abort(sqe),
            _ if let Some(command) = QueueCommand::of(sqe) => command.map(Outcome::Queue),
            _ => Ok(done(Completion::SUCCESS)),
        }
    }

    pub(super) fn supports(&self, opcode: AdminOpcode) -> bool {
        match opcode {
            AdminOpcode::FABRICS => self.transport.is_fabric(),
            AdminOpcode::IDENTIFY
            | AdminOpcode::GET_LOG_PAGE
            | AdminOpcode::GET_FEATURES
            | AdminOpcode::SET_FEATURES
            | AdminOpcode::ASYNC_EVENT_REQUEST
            | AdminOpcode::KEEP_ALIVE => true,
            AdminOpcode::ABORT => !self.is_discovery(),
            AdminOpcode::CREATE_IO_CQ
            | AdminOpcode::CREATE_IO_SQ
            | AdminOpcode::DELETE_IO_CQ
            | AdminOpcode::DELETE_IO_SQ => !self.transport.is_fabric(),
            AdminOpcode::DOORBELL_BUFFER_CONFIG => self.has_doorbell_buffers,
            _ => false,
        }
    }

    fn fabrics(&mut self, sqe: &Sqe, now: Time) -> Result<Outcome, Status> {
        match FabricsType(sqe.fctype()) {
            FabricsType::PROPERTY_GET => {
                let value = self.properties.get(sqe)?;
                let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
                let (dw0, dw1) = (
                    u32::from_le_bytes([a, b, c, d]),
                    u32::from_le_bytes([e, f, g, h]),
                );
                Ok(done(Completion {
                    status: Status::SUCCESS,
                    dw0,
                    dw1,
                }))
            }
            FabricsType::PROPERTY_SET => {
                let cc = Properties::parse_set(sqe)?;
                Ok(Outcome::Done {
                    completion: Completion::SUCCESS,
                    data_bytes: 0,
                    effect: self.write_cc(cc, now),
                })
            }
            FabricsType::CONNECT => Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
            _ => Err(Status::INVALID_OPCODE.dnr()),
        }
    }

    fn get_log_page(
        &mut self,
        command: &AdminCommand<'_>,
        out: &mut [u8],
        now: Time,
    ) -> Result<Outcome, Status> {
        // The host's descriptor is looked at first: reading some pages changes what they hold.
        let asked = nvme_spec::log::GetLogPage::of(command.sqe).bytes;
        if asked <= u64::from(self.limits.transfer_bytes_max)
            && !command.transfer.has_room_for(asked)
        {
            return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
        }
        let window = log_page::window(self, command.sqe, now)?;
        let out = reply(command, out, window.bytes)?;
        window.copy_to(out);
        Ok(Outcome::Done {
            completion: Completion::SUCCESS,
            data_bytes: window.bytes,
            effect: Effect::None,
        })
    }

    fn get_features(
        &mut self,
        command: &AdminCommand<'_>,
        out: &mut [u8],
        now: Time,
    ) -> Result<Outcome, Status> {
        if let Some(outcome) = self.get_of_namespace(command.sqe)? {
            return Ok(outcome);
        }
        let (features, context) = self.feature_context(now);
        match features.get(command.sqe, &context)? {
            Value::Dw0(dw0) => Ok(done(Completion::result(dw0))),
            Value::Data(bytes) => data(command, out, &bytes, 0),
        }
    }

    fn set_features(&mut self, command: &AdminCommand<'_>, now: Time) -> Result<Outcome, Status> {
        if let Some(outcome) = self.set_of_namespace(command.sqe)? {
            return Ok(outcome);
        }
        let (features, mut context) = self.feature_context(now);
        let dw0 = features.set(command.sqe, command.data, &mut context)?;
        Ok(done(Completion::result(dw0)))
    }

    /// Whether this is the command that a host asks for I/O queues with.
    pub(super) fn asks_for_queues(sqe: &Sqe) -> bool {
        AdminOpcode(sqe.opcode) == AdminOpcode::SET_FEATURES
            && FeatureId(sqe.cdw10.to_bytes()[0]) == FeatureId::NUMBER_OF_QUEUES
    }

    fn feature_context(&mut self, now: Time) -> (&mut Features, Context<'_>) {
        let notices = self.notices();
        let context = Context {
            discovery: matches!(self.role, Role::Discovery { .. }),
            transport: self.transport,
            namespaces: &self.namespaces,
            host_id: &self.host_id,
            keep_alive: &mut self.keep_alive,
            timestamp: &mut self.timestamp,
            notices,
            io_queues_max: self.limits.io_queues_max,
            io_queues_left: self.io_queues_left,
            io_queues_connected: self.io_queues_connected,
            now,
        };
        (&mut self.features, context)
    }

    /// Base, "Abort command": SQID in CDW10 15:0, CID in 31:16.
    fn abort(&mut self, sqe: &Sqe) -> Result<Outcome, Status> {
        if self.aborts >= self.limits.aborts_max {
            return Err(Status::ABORT_LIMIT_EXCEEDED.dnr());
        }
        self.aborts += 1;
        let [a, b, c, d] = sqe.cdw10.to_bytes();
        Ok(Outcome::Abort {
            queue: QueueId(u16::from_le_bytes([a, b])),
            cid: Cid(u16::from_le_bytes([c, d])),
        })
    }

    /// The answer to an [`Outcome::Abort`]: DW0 bit 0 is 0 where the command was aborted.
    pub fn abort_finished(&mut self, aborted: bool) -> Completion {
        self.aborts = self.aborts.saturating_sub(1);
        Completion::result(u32::from(!aborted))
    }

    /// Ends an Asynchronous Event Request that an Abort found in this slot; its answer comes by [`Controller::next_async_event`].
    pub fn abort_async_event(&mut self, slot: Slot) -> bool {
        self.events.abort(slot)
    }
}

pub(super) fn done(completion: Completion) -> Outcome {
    Outcome::Done {
        completion,
        data_bytes: 0,
        effect: Effect::None,
    }
}

/// Success with `bytes` as data.
fn data(
    command: &AdminCommand<'_>,
    out: &mut [u8],
    bytes: &[u8],
    dw0: u32,
) -> Result<Outcome, Status> {
    let data_bytes = u32::try_from(bytes.len()).map_err(|_| Status::INTERNAL_ERROR)?;
    reply(command, out, data_bytes)?.copy_from_slice(bytes);
    Ok(Outcome::Done {
        completion: Completion::result(dw0),
        data_bytes,
        effect: Effect::None,
    })
}

/// Room for `bytes` of data to the host.
fn reply<'a>(
    command: &AdminCommand<'_>,
    out: &'a mut [u8],
    bytes: u32,
) -> Result<&'a mut [u8], Status> {
    if !command.transfer.has_room_for(bytes.into()) {
        return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    }
    let bytes = usize::try_from(bytes).map_err(|_| Status::INTERNAL_ERROR)?;
    out.get_mut(..bytes).ok_or(Status::INTERNAL_ERROR)
}
