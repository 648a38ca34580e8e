//! Properties: CAP, VS, CC, CSTS, CRTO (Base, "Controller Properties"; "Property Get command", "Property Set command").

use super::Effect;
use nvme_spec::fabrics::{PROPERTY_4_BYTES, PROPERTY_8_BYTES, PropertySqe};
use nvme_spec::register::{Cap, Cc, Csts, Property, ShutdownNotification};
use nvme_spec::{Sqe, Status, VERSION_2_0};

/// CAP.TO and CRTO.CRWMT: 500 ms units until ready at the latest. We are ready at once; a host may wait that long.
const READY_TIMEOUT_500MS: u8 = 15;

/// A controller's state as its properties tell it.
#[derive(Debug)]
pub(super) struct Properties {
    cap: Cap,
    cc: Cc,
    fatal: bool,
    shutdown: Shutdown,
}

/// CSTS.SHST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    None,
    InProgress,
    Complete,
}

impl Properties {
    pub fn new(queue_entries_max: u16) -> Properties {
        let cap = Cap::default()
            .with_mqes_z(queue_entries_max.saturating_sub(1))
            .with_cqr()
            .with_to_500ms(READY_TIMEOUT_500MS)
            .with_css_nvm()
            .with_ready_with_media();
        Properties {
            cap,
            cc: Cc::default(),
            fatal: false,
            shutdown: Shutdown::None,
        }
    }

    /// CSTS.RDY: commands other than fabrics commands are taken.
    pub fn ready(&self) -> bool {
        self.cc.enabled() && !self.fatal
    }

    /// CC as the host last wrote it.
    pub fn cc(&self) -> Cc {
        self.cc
    }

    /// The frontend has done what a shutdown asks of it.
    pub fn shutdown_complete(&mut self) {
        if self.shutdown == Shutdown::InProgress {
            self.shutdown = Shutdown::Complete;
        }
    }

    /// Property Get: the value, or why not. Size and offset must both be a property's.
    pub fn get(&self, sqe: &Sqe) -> Result<u64, Status> {
        let get = PropertySqe::of(sqe);
        let value = match (Property(get.offset.get()), get.attrib & 0b111) {
            (Property::CAP, PROPERTY_8_BYTES) => self.cap.0,
            (Property::VS, PROPERTY_4_BYTES) => u64::from(VERSION_2_0),
            (Property::CC, PROPERTY_4_BYTES) => u64::from(self.cc.0),
            (Property::CSTS, PROPERTY_4_BYTES) => u64::from(self.csts().0),
            (Property::CRTO, PROPERTY_4_BYTES) => u64::from(READY_TIMEOUT_500MS),
            _ => return Err(Status::INVALID_FIELD.dnr()),
        };
        Ok(value)
    }

    /// Property Set: CC is the only property that a host may write.
    pub fn set(&mut self, sqe: &Sqe) -> Result<Effect, Status> {
        let set = PropertySqe::of(sqe);
        if (Property(set.offset.get()), set.attrib & 0b111) != (Property::CC, PROPERTY_4_BYTES) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let value = u32::try_from(set.value.get()).map_err(|_| Status::INVALID_FIELD.dnr())?;
        Ok(self.write_cc(Cc(value & Cc::DEFINED)))
    }

    fn write_cc(&mut self, cc: Cc) -> Effect {
        let before = std::mem::replace(&mut self.cc, cc);
        if before.enabled() && !cc.enabled() {
            self.fatal = false;
            self.shutdown = if cc.shn() == ShutdownNotification::None {
                Shutdown::None
            } else {
                Shutdown::Complete
            };
            return Effect::Reset;
        }
        if !before.enabled() && cc.enabled() {
            // Base, "Controller Configuration": a host that asks for what CAP does not offer gets a fatal status, not a wrong page size.
            self.fatal = cc.css() != 0 || cc.mps() != 0 || cc.ams() != 0;
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

    fn csts(&self) -> Csts {
        let shst = match self.shutdown {
            Shutdown::None => 0,
            Shutdown::InProgress => 0b01 << 2,
            Shutdown::Complete => Csts::SHST_COMPLETE,
        };
        let ready = if self.cc.enabled() && !self.fatal {
            Csts::RDY
        } else {
            0
        };
        let fatal = if self.fatal { Csts::CFS } else { 0 };
        Csts(ready | fatal | shst)
    }
}
