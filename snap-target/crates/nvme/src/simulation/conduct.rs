//! What a simulated target does that its machines do not: ANA, another CQT, refusals, answers that are wrong or never come.

use std::collections::VecDeque;
use std::time::Duration;

use nvme_spec::feature::{FeatureId, async_event_configuration};
use nvme_spec::identify::{Cns, IdentifyController, IdentifyNamespace, cmic};
use nvme_spec::log::{AnaGroup, AnaLogHeader, LogPageId};
use nvme_spec::{AdminOpcode, Sqe, Status, U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::initiator::AnaState;

/// ANAGRPID of all namespaces.
const ANA_GROUP: u32 = 1;
/// ANACAP: every state can be reported.
const ANACAP_ALL_STATES: u8 = 0x1F;
/// ANATT.
const ANA_TRANSITION_TIME_S: u8 = 10;

/// See the module.
#[derive(Debug, Default)]
pub struct Conduct {
    ana: Option<AnaState>,
    pub(super) ana_changes: u64,
    /// CQT; the machines' own where there is none.
    pub quiesce: Option<Duration>,
    /// What the next Connects are answered with.
    pub refused_connects: VecDeque<Status>,
    /// What the next Connects of I/O queues are answered with.
    pub refused_queues: VecDeque<Status>,
    /// What becomes of the next I/O commands.
    pub io_faults: VecDeque<IoFault>,
    /// A Connect does not wait for the writes of its host's last association: other makers' targets do not either.
    pub admits_at_once: bool,
}

/// What becomes of an I/O command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoFault {
    /// It fails with this as it comes, before its data are asked for.
    Refuse(Status),
    /// Its data are taken, nothing is done, and it fails with this.
    Fail(Status),
    /// It is carried out, and fails with this.
    FailDone(Status),
    /// It is not answered; when its connection ends it may be carried out late.
    Silent,
}

impl Conduct {
    /// Reports this state of all namespaces from now on, with an event where another was reported before.
    pub fn set_ana(&mut self, state: AnaState) {
        if self.ana.replace(state) != Some(state) {
            self.ana_changes += 1;
        }
    }

    pub fn ana(&self) -> Option<AnaState> {
        self.ana
    }

    /// What an I/O command is refused with as it comes.
    pub(super) fn refuses_io(&mut self) -> Option<Status> {
        let by_ana = match self.ana {
            Some(AnaState::Inaccessible) => Some(Status::ANA_INACCESSIBLE),
            Some(AnaState::PersistentLoss) => Some(Status::ANA_PERSISTENT_LOSS),
            Some(AnaState::Change) => Some(Status::ANA_TRANSITION),
            Some(AnaState::Optimized | AnaState::NonOptimized) | None => None,
        };
        if by_ana.is_some() {
            return by_ana;
        }
        let Some(IoFault::Refuse(status)) = self.io_faults.front().copied() else {
            return None;
        };
        self.io_faults.pop_front();
        Some(status)
    }

    pub(super) fn next_fault(&mut self) -> Option<IoFault> {
        self.io_faults.pop_front()
    }

    /// The command as the machines understand it: without the notice that they do not know.
    pub(super) fn understood(&self, sqe: &Sqe) -> Sqe {
        let mut sqe = *sqe;
        let configures = sqe.opcode == AdminOpcode::SET_FEATURES.0
            && sqe.cdw10.to_bytes()[0] == FeatureId::ASYNC_EVENT_CONFIGURATION.0;
        if configures && self.ana.is_some() {
            let value = sqe.cdw11.get() & !async_event_configuration::ANA_CHANGE_NOTICES;
            sqe.cdw11 = U32::new(value);
        }
        sqe
    }

    /// Answers Get Log Page of the ANA log; false for any other command.
    pub(super) fn fill_log_page(&self, sqe: &Sqe, out: &mut [u8]) -> bool {
        let asks = sqe.opcode == AdminOpcode::GET_LOG_PAGE.0
            && sqe.cdw10.to_bytes()[0] == LogPageId::ANA.0;
        let Some(state) = self.ana.filter(|_| asks) else {
            return false;
        };
        let header = AnaLogHeader {
            change_count: U64::new(self.ana_changes),
            groups: U16::new(1),
            reserved_10: [0; 6],
        };
        let group = AnaGroup {
            group_id: U32::new(ANA_GROUP),
            namespaces: U32::ZERO,
            change_count: U64::new(self.ana_changes),
            state: to_wire(state),
            reserved_17: [0; 15],
        };
        let log = [header.as_bytes(), group.as_bytes()].concat();
        out[..log.len()].copy_from_slice(&log);
        true
    }

    /// What Identify does not say by itself.
    pub(super) fn amend_identify(&self, sqe: &Sqe, out: &mut [u8]) {
        if sqe.opcode != AdminOpcode::IDENTIFY.0 {
            return;
        }
        match Cns(sqe.cdw10.to_bytes()[0]) {
            Cns::CONTROLLER => {
                let (controller, _) = IdentifyController::mut_from_prefix(out).unwrap();
                if let Some(quiesce) = self.quiesce {
                    controller.cqt_ms = U16::new(quiesce.as_millis() as u16);
                }
                if self.ana.is_some() {
                    let notices = controller.oaes.get();
                    controller.oaes =
                        U32::new(notices | async_event_configuration::ANA_CHANGE_NOTICES);
                    controller.cmic |= cmic::ANA;
                    controller.anatt_s = ANA_TRANSITION_TIME_S;
                    controller.anacap = ANACAP_ALL_STATES;
                    controller.anagrpmax = U32::new(ANA_GROUP);
                    controller.nanagrpid = U32::new(1);
                }
            }
            Cns::NAMESPACE if self.ana.is_some() => {
                let (namespace, _) = IdentifyNamespace::mut_from_prefix(out).unwrap();
                namespace.anagrpid = U32::new(ANA_GROUP);
            }
            _ => {}
        }
    }
}

fn to_wire(state: AnaState) -> u8 {
    match state {
        AnaState::Optimized => 0x1,
        AnaState::NonOptimized => 0x2,
        AnaState::Inaccessible => 0x3,
        AnaState::PersistentLoss => 0x4,
        AnaState::Change => 0xF,
    }
}
