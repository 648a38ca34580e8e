//! Properties: CAP, VS, CC, CSTS, CRTO (Base, "Controller Properties"; "Property Get command", "Property Set command").

use super::{Effect, Transport};
use nvme_spec::fabrics::{PROPERTY_4_BYTES, PROPERTY_8_BYTES, PropertySqe};
use nvme_spec::register::{Cap, Cc, Csts, Property, ShutdownNotification};
use nvme_spec::{Sqe, Status, VERSION_2_0};

/// CAP.TO and CRTO.CRWMT: 500 ms units until ready at the latest. We are ready at once; a host may wait that long.
const READY_TIMEOUT_500MS: u8 = 15;
/// The same of a PCIe function, whose host waits so long for a reset as well: for the last request that a store has of it, whose patience is 25 s.
const PCIE_READY_TIMEOUT_500MS: u8 = 60;

/// A controller's state as its properties tell it.
#[derive(Debug)]
pub(super) struct Properties {
    cap: Cap,
    cc: Cc,
    /// What CAP.TO says.
    timeout_500ms: u8,
    state: State,
    shutdown: Shutdown,
}

/// What CC.EN has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Disabled,
    Ready,
    /// Enabled as CAP does not offer it: CSTS.CFS, and never ready.
    Unusable,
    /// CC.EN went to 0 and the I/O queues end. CSTS.RDY stays 1 until the last has, since a host whose controller is not ready counts on
    /// nothing of it touching a namespace any more (Base, "Controller Level Reset").
    Resetting,
}

/// CSTS.SHST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    None,
    InProgress,
    Complete,
    /// What was acknowledged could not be made durable: CSTS.CFS, and never complete.
    Failed,
}

impl Properties {
    pub fn new(queue_entries_max: u16, transport: Transport) -> Properties {
        let timeout_500ms = if transport.is_fabric() {
            READY_TIMEOUT_500MS
        } else {
            PCIE_READY_TIMEOUT_500MS
        };
        let cap = Cap::default()
            .with_mqes_z(queue_entries_max.saturating_sub(1))
            .with_cqr()
            .with_to_500ms(timeout_500ms)
            .with_css_nvm()
            .with_ready_with_media();
        // A host that came over a fabric has its connections to end.
        let cap = match transport.is_fabric() {
            true => cap,
            false => cap.with_nssrs(),
        };
        Properties {
            cap,
            cc: Cc::default(),
            timeout_500ms,
            state: State::Disabled,
            shutdown: Shutdown::None,
        }
    }

    /// Commands other than fabrics commands are taken, and I/O queues: CSTS.RDY is 1 and no reset is under way.
    pub fn ready(&self) -> bool {
        self.state == State::Ready
    }

    pub fn cap(&self) -> Cap {
        self.cap
    }

    /// CRTO: CRWMT alone.
    pub fn crto(&self) -> u32 {
        u32::from(self.timeout_500ms)
    }

    /// CC as the host last wrote it.
    pub fn cc(&self) -> Cc {
        self.cc
    }

    /// Its host has shut it down, or is about to.
    pub fn is_shut_down(&self) -> bool {
        self.shutdown != Shutdown::None
    }

    /// The frontend has done what a shutdown asks of it, or could not.
    pub fn shutdown_ended(&mut self, durable: bool) {
        if self.shutdown == Shutdown::InProgress {
            self.shutdown = if durable {
                Shutdown::Complete
            } else {
                Shutdown::Failed
            };
        }
    }

    /// The last I/O queue has ended. What the host has written to CC meanwhile holds from here on.
    pub fn reset_complete(&mut self) -> Effect {
        if self.state != State::Resetting {
            return Effect::None;
        }
        self.state = State::Disabled;
        self.change(Cc::default(), self.cc)
    }

    /// Property Get: the value, or why not. Size and offset must both be a property's.
    pub fn get(&self, sqe: &Sqe) -> Result<u64, Status> {
        let get = PropertySqe::of(sqe);
        let value = match (Property(get.offset.get()), get.attrib & 0b111) {
            (Property::CAP, PROPERTY_8_BYTES) => self.cap.0,
            (Property::VS, PROPERTY_4_BYTES) => u64::from(VERSION_2_0),
            (Property::CC, PROPERTY_4_BYTES) => u64::from(self.cc.0),
            (Property::CSTS, PROPERTY_4_BYTES) => u64::from(self.csts().0),
            (Property::CRTO, PROPERTY_4_BYTES) => u64::from(self.crto()),
            _ => return Err(Status::INVALID_FIELD.dnr()),
        };
        Ok(value)
    }

    /// Property Set: the CC that the host writes; it may write nothing else.
    pub fn parse_set(sqe: &Sqe) -> Result<Cc, Status> {
        let set = PropertySqe::of(sqe);
        if (Property(set.offset.get()), set.attrib & 0b111) != (Property::CC, PROPERTY_4_BYTES) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let value = u32::try_from(set.value.get()).map_err(|_| Status::INVALID_FIELD.dnr())?;
        Ok(Cc(value))
    }

    pub fn write_cc(&mut self, cc: Cc) -> Effect {
        let cc = Cc(cc.0 & Cc::DEFINED);
        let before = std::mem::replace(&mut self.cc, cc);
        match self.state {
            State::Resetting => Effect::None,
            State::Ready if !cc.enabled() => {
                self.state = State::Resetting;
                self.shutdown = Shutdown::None;
                Effect::Reset
            }
            // It has no queues that could end first.
            State::Unusable if !cc.enabled() => {
                self.state = State::Disabled;
                self.change(Cc::default(), cc)
            }
            _ => self.change(before, cc),
        }
    }

    /// A change of CC that ends no queue.
    fn change(&mut self, before: Cc, cc: Cc) -> Effect {
        if self.state == State::Disabled && cc.enabled() {
            // Base, "Controller Configuration": a host that asks for what CAP does not offer gets a fatal status, not a wrong page size.
            let offered = cc.css() == 0 && cc.mps() == 0 && cc.ams() == 0;
            self.state = if offered {
                State::Ready
            } else {
                State::Unusable
            };
            self.shutdown = Shutdown::None;
        }
        match (before.shn(), cc.shn()) {
            (_, ShutdownNotification::None) => {
                if before.shn() != ShutdownNotification::None {
                    self.shutdown = Shutdown::None;
                }
                Effect::None
            }
            (ShutdownNotification::None, _) => {
                self.shutdown = Shutdown::InProgress;
                Effect::Shutdown
            }
            _ => Effect::None,
        }
    }

    /// CSTS.
    pub fn csts(&self) -> Csts {
        let shst = match self.shutdown {
            Shutdown::None => 0,
            Shutdown::InProgress | Shutdown::Failed => Csts::SHST_IN_PROGRESS,
            Shutdown::Complete => Csts::SHST_COMPLETE,
        };
        let ready = match self.state {
            State::Ready | State::Resetting => Csts::RDY,
            State::Disabled | State::Unusable => 0,
        };
        let fatal = match (self.state, self.shutdown) {
            (State::Unusable, _) | (_, Shutdown::Failed) => Csts::CFS,
            _ => 0,
        };
        Csts(ready | fatal | shst)
    }
}
