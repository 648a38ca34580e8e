//! Bringing queues up: the admin queue to a ready controller with its namespaces known, and each I/O queue.
//!
//! ```text
//! admin queue: Connect, CAP, CC.EN = 1, CSTS.RDY, Identify Controller, Number of Queues,
//!              active namespaces, and for each: Identify Namespace, identification descriptors
//! I/O queue:   Connect with the CNTLID that the admin queue was given
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use nvme_spec::feature::NumberOfQueues;
use nvme_spec::identify::Cns;
use nvme_spec::register::{Cap, Cc, Csts, Property};
use nvme_spec::{Cqe, NQN_BYTES_MAX, NSID_LIST_ENTRIES, Nsid, Status};

use crate::Time;

use super::command::{self, Association};
use super::identity::parse_namespace_list;
use super::{
    ConnectParameter, ControllerInfo, InitiatorError, NamespaceInfo, Sequence, Step, expect_success,
};

/// The most namespaces of one controller that a host of ours lists: each costs two commands at attach.
pub const NAMESPACES_MAX: usize = 4096;
/// CSTS is read again after that time.
const CSTS_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// CAP.TO counts such units; 0 there still leaves one.
const CAP_TO_UNIT: Duration = Duration::from_millis(500);

/// What the admin queue's sequence found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// CNTLID, for the I/O queues' Connect.
    pub cntlid: u16,
    /// The controller.
    pub controller: ControllerInfo,
    /// I/O queue pairs the controller grants, at most those asked for; 0 for a discovery controller.
    pub io_queues: u16,
    /// The active namespaces, by NSID.
    pub namespaces: Vec<NamespaceInfo>,
}

/// The admin queue: from Connect to the list of namespaces.
#[derive(Debug)]
pub struct AttachAdmin {
    association: Association,
    entries_z: u16,
    keep_alive_ms: u32,
    io_queues_wanted: u16,
    stage: Stage,
    cntlid: u16,
    cap: Cap,
    ready_by: Time,
    controller: Option<ControllerInfo>,
    io_queues: u16,
    to_identify: VecDeque<Nsid>,
    list_complete: bool,
    listed_up_to: Nsid,
    namespaces: Vec<NamespaceInfo>,
    only: Option<Nsid>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Connect,
    Capabilities,
    Enable,
    WaitReady {
        ask_at: Time,
    },
    IdentifyController,
    Limits,
    NumberOfQueues,
    ListNamespaces,
    IdentifyNamespace(Nsid),
    Descriptors(Box<NamespaceInfo>),
    Done,
    /// An answer was an error: there is no result.
    Failed,
}

impl AttachAdmin {
    /// Starts. `entries_z` is the admin queue's SQSIZE, at least 31 on fabrics; `io_queues_wanted` 0 leaves the number of queues and the
    /// namespaces out, as a discovery controller has neither.
    pub fn new(
        association: Association,
        entries_z: u16,
        keep_alive: Duration,
        io_queues_wanted: u16,
        now: Time,
    ) -> Result<AttachAdmin, InitiatorError> {
        for nqn in [&association.subnqn, &association.hostnqn] {
            if nqn.is_empty() || nqn.len() > NQN_BYTES_MAX {
                return Err(InitiatorError::Nqn(nqn.clone()));
            }
        }
        Ok(AttachAdmin {
            association,
            entries_z,
            keep_alive_ms: u32::try_from(keep_alive.as_millis()).unwrap_or(u32::MAX),
            io_queues_wanted,
            stage: Stage::Connect,
            cntlid: 0,
            cap: Cap::default(),
            ready_by: now,
            controller: None,
            io_queues: 0,
            to_identify: VecDeque::new(),
            list_complete: false,
            listed_up_to: Nsid::NONE,
            namespaces: Vec::new(),
            only: None,
        })
    }

    /// Looks at this namespace alone, whether it is there or not, and not at the list of all.
    pub fn only(mut self, nsid: Nsid) -> AttachAdmin {
        self.only = Some(nsid);
        self
    }

    /// The result, once [`Sequence::step`] said [`Step::Done`]; none after an error.
    pub fn finish(self) -> Option<Attached> {
        (self.stage == Stage::Done).then_some(())?;
        Some(Attached {
            cntlid: self.cntlid,
            controller: self.controller?,
            io_queues: self.io_queues,
            namespaces: self.namespaces,
        })
    }

    fn ready_within(&self) -> Duration {
        CAP_TO_UNIT * u32::from(self.cap.to_500ms()).max(1)
    }

    fn connected(&mut self, cqe: &Cqe) -> Result<(), InitiatorError> {
        self.cntlid = connect_result(&self.association, cqe)?;
        self.stage = Stage::Capabilities;
        Ok(())
    }

    fn status_read(&mut self, now: Time, csts: Csts) -> Result<(), InitiatorError> {
        if csts.fatal() {
            return Err(InitiatorError::ControllerFatal);
        }
        self.stage = if csts.ready() {
            Stage::IdentifyController
        } else if now >= self.ready_by {
            return Err(InitiatorError::NotInTime {
                action: "become ready",
                after: self.ready_within(),
            });
        } else {
            Stage::WaitReady {
                ask_at: now + CSTS_POLL_INTERVAL,
            }
        };
        Ok(())
    }

    fn controller_identified(&mut self, data: &[u8]) -> Result<(), InitiatorError> {
        let controller = ControllerInfo::parse(data, self.cap)?;
        self.stage = if controller.is_discovery || self.io_queues_wanted == 0 {
            Stage::Done
        } else if controller.deallocates {
            Stage::Limits
        } else {
            Stage::NumberOfQueues
        };
        self.controller = Some(controller);
        Ok(())
    }

    fn namespaces_listed(&mut self, data: &[u8]) -> Result<(), InitiatorError> {
        let page = parse_namespace_list(data, self.listed_up_to)?;
        self.list_complete = page.len() < NSID_LIST_ENTRIES;
        if let Some(&last) = page.last() {
            self.listed_up_to = last;
        }
        let found = self.namespaces.len() + page.len();
        if found > NAMESPACES_MAX {
            return Err(InitiatorError::TooMany {
                what: "namespaces",
                found: found as u64,
                limit: NAMESPACES_MAX as u64,
            });
        }
        self.to_identify.extend(page);
        self.stage = self.next_namespace();
        Ok(())
    }

    fn next_namespace(&mut self) -> Stage {
        match self.to_identify.pop_front() {
            Some(nsid) => Stage::IdentifyNamespace(nsid),
            None if self.list_complete => Stage::Done,
            None => Stage::ListNamespaces,
        }
    }
}

impl Sequence for AttachAdmin {
    fn step(&mut self, now: Time) -> Result<Step, InitiatorError> {
        Ok(match &self.stage {
            Stage::Connect => Step::Issue {
                command: command::connect(0, self.entries_z, self.keep_alive_ms),
                data_out: command::connect_data(&self.association, None),
            },
            Stage::Capabilities => Step::issue(command::property_get(Property::CAP)),
            Stage::Enable => Step::issue(command::property_set_cc(Cc::enable_nvm())),
            Stage::WaitReady { ask_at } if now < *ask_at => Step::WaitUntil(*ask_at),
            Stage::WaitReady { .. } => Step::issue(command::property_get(Property::CSTS)),
            Stage::IdentifyController => {
                Step::issue(command::identify(Cns::CONTROLLER, Nsid::NONE))
            }
            Stage::Limits => Step::issue(command::identify(
                Cns::IO_COMMAND_SET_CONTROLLER,
                Nsid::NONE,
            )),
            Stage::NumberOfQueues => {
                Step::issue(command::set_number_of_queues(self.io_queues_wanted))
            }
            Stage::ListNamespaces => {
                Step::issue(command::identify(Cns::ACTIVE_NAMESPACES, self.listed_up_to))
            }
            Stage::IdentifyNamespace(nsid) => Step::issue(command::identify(Cns::NAMESPACE, *nsid)),
            Stage::Descriptors(namespace) => Step::issue(command::identify(
                Cns::NAMESPACE_DESCRIPTORS,
                namespace.nsid,
            )),
            Stage::Done | Stage::Failed => Step::Done,
        })
    }

    fn answered(&mut self, now: Time, cqe: &Cqe, data: &[u8]) -> Result<(), InitiatorError> {
        match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Connect => return self.connected(cqe),
            Stage::Capabilities => {
                expect_success("Property Get CAP", cqe)?;
                self.cap = Cap(cqe.result());
                self.stage = Stage::Enable;
            }
            Stage::Enable => {
                expect_success("Property Set CC", cqe)?;
                self.ready_by = now + self.ready_within();
                self.stage = Stage::WaitReady { ask_at: now };
            }
            Stage::WaitReady { .. } => {
                expect_success("Property Get CSTS", cqe)?;
                return self.status_read(now, Csts(cqe.dw0.get()));
            }
            Stage::IdentifyController => {
                expect_success("Identify Controller", cqe)?;
                return self.controller_identified(data);
            }
            Stage::Limits => {
                // One that does not know the command has no such limits to tell of.
                if let Some(controller) = &mut self.controller
                    && cqe.status().is_success()
                {
                    controller.limit(data)?;
                }
                self.stage = Stage::NumberOfQueues;
            }
            Stage::NumberOfQueues => {
                expect_success("Set Features, Number of Queues", cqe)?;
                let granted = NumberOfQueues(cqe.dw0.get());
                let pairs_z = granted.submission_z().min(granted.completion_z());
                self.io_queues = pairs_z.saturating_add(1).min(self.io_queues_wanted);
                self.list_complete = self.only.is_some();
                self.stage = match self.only {
                    Some(nsid) => Stage::IdentifyNamespace(nsid),
                    None => Stage::ListNamespaces,
                };
            }
            Stage::ListNamespaces => {
                expect_success("Identify, active namespaces", cqe)?;
                return self.namespaces_listed(data);
            }
            Stage::IdentifyNamespace(nsid) => {
                // An NSID that is not there at all is answered with an error, one that is not attached with zeros.
                let is_unknown = cqe.status().code() == Status::INVALID_NAMESPACE;
                if self.only.is_some() && is_unknown {
                    self.stage = Stage::Done;
                    return Ok(());
                }
                expect_success("Identify Namespace", cqe)?;
                self.stage = match NamespaceInfo::parse(nsid, data)? {
                    Some(namespace) => Stage::Descriptors(Box::new(namespace)),
                    // Detached since it was listed.
                    None => self.next_namespace(),
                };
            }
            Stage::Descriptors(mut namespace) => {
                expect_success("Identify, namespace identification descriptors", cqe)?;
                namespace.ids.add_descriptors(data)?;
                self.namespaces.push(*namespace);
                self.stage = self.next_namespace();
            }
            stage @ (Stage::Done | Stage::Failed) => self.stage = stage,
        }
        Ok(())
    }
}

/// An I/O queue: Connect, and nothing else.
#[derive(Debug)]
pub struct AttachIo {
    association: Association,
    cntlid: u16,
    qid: u16,
    entries_z: u16,
    connected: bool,
}

impl AttachIo {
    /// Queue `qid`, from 1 on, of the controller that [`Attached::cntlid`] names.
    pub fn new(association: Association, cntlid: u16, qid: u16, entries_z: u16) -> AttachIo {
        AttachIo {
            association,
            cntlid,
            qid,
            entries_z,
            connected: false,
        }
    }
}

impl Sequence for AttachIo {
    fn step(&mut self, _now: Time) -> Result<Step, InitiatorError> {
        Ok(if self.connected {
            Step::Done
        } else {
            Step::Issue {
                command: command::connect(self.qid, self.entries_z, 0),
                data_out: command::connect_data(&self.association, Some(self.cntlid)),
            }
        })
    }

    fn answered(&mut self, _now: Time, cqe: &Cqe, _data: &[u8]) -> Result<(), InitiatorError> {
        let cntlid = connect_result(&self.association, cqe)?;
        if cntlid != self.cntlid {
            return Err(InitiatorError::Malformed {
                what: "CNTLID in an I/O queue's Connect response",
                found: u64::from(cntlid),
                expected: "the CNTLID of the admin queue",
            });
        }
        self.connected = true;
        Ok(())
    }
}

/// Reads Connect's completion (Base, "Connect Response"): the CNTLID.
fn connect_result(association: &Association, cqe: &Cqe) -> Result<u16, InitiatorError> {
    let status = cqe.status();
    let [low, high, attributes, _] = cqe.dw0.to_bytes();
    let low_half = u16::from_le_bytes([low, high]);
    if status.is_success() {
        // AUTHREQ: ATR is bit 17 of DW0, ASCR bit 18.
        return if attributes & 0b110 == 0 {
            Ok(low_half)
        } else {
            Err(InitiatorError::AuthenticationRequired)
        };
    }
    let parameter =
        (status.code() == Status::CONNECT_INVALID_PARAMETERS).then_some(ConnectParameter {
            // IPO in 15:0, IATTR in 23:16.
            in_data: attributes & 1 != 0,
            offset: low_half,
        });
    Err(InitiatorError::ConnectRefused {
        subnqn: association.subnqn.clone(),
        status,
        parameter,
    })
}
