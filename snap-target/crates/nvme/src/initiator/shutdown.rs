//! Leaving a controller in order: CC.SHN = normal, then wait for CSTS.SHST = complete.

use std::time::Duration;

use nvme_spec::Cqe;
use nvme_spec::register::{Cc, Csts, Property};

use super::command;
use super::{InitiatorError, Sequence, Step, expect_success};
use crate::Time;

/// CSTS is read again after that time.
const CSTS_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// CSTS.SHST: shutdown processing complete.
const SHST_COMPLETE: u8 = 0b10;

/// The admin queue's last commands. The I/O queues' commands are complete before, and all connections are closed after.
#[derive(Debug)]
pub struct Shutdown {
    within: Duration,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Notify,
    Wait { ask_at: Time, until: Time },
    Done,
}

impl Shutdown {
    /// Starts; the controller has `within` to finish.
    pub fn new(within: Duration) -> Shutdown {
        Shutdown {
            within,
            stage: Stage::Notify,
        }
    }
}

impl Sequence for Shutdown {
    fn step(&mut self, now: Time) -> Result<Step, InitiatorError> {
        Ok(match self.stage {
            Stage::Notify => Step::issue(command::property_set_cc(
                Cc::enable_nvm().with_normal_shutdown(),
            )),
            Stage::Wait { ask_at, .. } if now < ask_at => Step::WaitUntil(ask_at),
            Stage::Wait { .. } => Step::issue(command::property_get(Property::CSTS)),
            Stage::Done => Step::Done,
        })
    }

    fn answered(&mut self, now: Time, cqe: &Cqe, _data: &[u8]) -> Result<(), InitiatorError> {
        self.stage = match self.stage {
            Stage::Notify => {
                expect_success("Property Set CC", cqe)?;
                Stage::Wait {
                    ask_at: now,
                    until: now + self.within,
                }
            }
            Stage::Wait { until, .. } => {
                expect_success("Property Get CSTS", cqe)?;
                let csts = Csts(cqe.dw0.get());
                if csts.shst() == SHST_COMPLETE {
                    Stage::Done
                } else if csts.fatal() {
                    return Err(InitiatorError::ControllerFatal);
                } else if now < until {
                    Stage::Wait {
                        ask_at: now + CSTS_POLL_INTERVAL,
                        until,
                    }
                } else {
                    return Err(InitiatorError::NotInTime {
                        action: "shut down",
                        after: self.within,
                    });
                }
            }
            Stage::Done => Stage::Done,
        };
        Ok(())
    }
}
