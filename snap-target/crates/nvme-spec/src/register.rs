//! Controller properties (Base, "Controller Properties"): registers on PCIe, Property Get and Set on fabrics.

use crate::open_enum::open_enum;

open_enum! {
    /// Byte offset of a property.
    pub struct Property(u32) {
        /// Controller Capabilities, 8 bytes.
        CAP = 0x00,
        /// Version, 4 bytes.
        VS = 0x08,
        /// Interrupt Mask Set (PCIe).
        INTMS = 0x0C,
        /// Interrupt Mask Clear (PCIe).
        INTMC = 0x10,
        /// Controller Configuration, 4 bytes.
        CC = 0x14,
        /// Controller Status, 4 bytes.
        CSTS = 0x1C,
        /// NVM Subsystem Reset, 4 bytes.
        NSSR = 0x20,
        /// Admin Queue Attributes (PCIe).
        AQA = 0x24,
        /// Admin Submission Queue Base Address (PCIe).
        ASQ = 0x28,
        /// Admin Completion Queue Base Address (PCIe).
        ACQ = 0x30,
        /// Controller Ready Timeouts, 4 bytes.
        CRTO = 0x68,
    }
}

/// CAP, Controller Capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cap(pub u64);

impl Cap {
    /// With MQES (15:0), zero-based.
    pub const fn with_mqes_z(self, entries_z: u16) -> Cap {
        Cap(self.0 & !0xFFFF | entries_z as u64)
    }

    /// MQES: most entries of an I/O queue, zero-based.
    #[expect(clippy::cast_possible_truncation, reason = "the field's 16 bits")]
    pub const fn mqes_z(self) -> u16 {
        self.0 as u16
    }

    /// With CQR (16): queues must be physically contiguous; always 1 on fabrics.
    pub const fn with_cqr(self) -> Cap {
        Cap(self.0 | 1 << 16)
    }

    /// With TO (31:24): worst time to become ready, in 500 ms units.
    pub const fn with_to_500ms(self, units: u8) -> Cap {
        Cap(self.0 & !(0xFF << 24) | (units as u64) << 24)
    }

    /// TO in 500 ms units.
    pub const fn to_500ms(self) -> u8 {
        (self.0 >> 24 & 0xFF) as u8
    }

    /// With NSSRS (36): NSSR is there.
    pub const fn with_nssrs(self) -> Cap {
        Cap(self.0 | 1 << 36)
    }

    /// With CSS bit 0 (37): the NVM command set.
    pub const fn with_css_nvm(self) -> Cap {
        Cap(self.0 | 1 << 37)
    }

    /// With CSS bit 6 (43): I/O command sets by CC.CSS = 110b.
    pub const fn with_css_io_command_sets(self) -> Cap {
        Cap(self.0 | 1 << 43)
    }

    /// With CRMS.CRWMS (59): Controller Ready With Media.
    pub const fn with_ready_with_media(self) -> Cap {
        Cap(self.0 | 1 << 59)
    }

    /// MPSMIN (51:48): least page size is 2 ^ (12 + MPSMIN).
    pub const fn mpsmin(self) -> u8 {
        (self.0 >> 48 & 0xF) as u8
    }
}

/// CC, Controller Configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cc(pub u32);

impl Cc {
    /// The fields that a host may set: EN, CSS, MPS, AMS, SHN, IOSQES, IOCQES, CRIME.
    pub const DEFINED: u32 = 0x01FF_FFF1;

    /// EN.
    pub const fn enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// CSS (6:4): 0 = NVM command set, 110b = all I/O command sets, 111b = admin only.
    pub const fn css(self) -> u8 {
        (self.0 >> 4 & 0b111) as u8
    }

    /// MPS (10:7): page size is 2 ^ (12 + MPS).
    pub const fn mps(self) -> u8 {
        (self.0 >> 7 & 0xF) as u8
    }

    /// AMS (13:11): arbitration, 0 = round robin.
    pub const fn ams(self) -> u8 {
        (self.0 >> 11 & 0b111) as u8
    }

    /// SHN (15:14).
    pub const fn shn(self) -> ShutdownNotification {
        match self.0 >> 14 & 0b11 {
            0b01 => ShutdownNotification::Normal,
            0b10 => ShutdownNotification::Abrupt,
            0b11 => ShutdownNotification::Reserved,
            _ => ShutdownNotification::None,
        }
    }

    /// IOSQES (19:16): an I/O submission queue entry has 2 ^ IOSQES bytes: 6.
    pub const fn iosqes(self) -> u8 {
        (self.0 >> 16 & 0xF) as u8
    }

    /// IOCQES (23:20): an I/O completion queue entry has 2 ^ IOCQES bytes: 4.
    pub const fn iocqes(self) -> u8 {
        (self.0 >> 20 & 0xF) as u8
    }

    /// What a host writes to enable a controller: NVM command set, 4 KiB pages, round robin, 64- and 16-byte entries.
    pub const fn enable_nvm() -> Cc {
        Cc(1 | 6 << 16 | 4 << 20)
    }

    /// The same with SHN = normal shutdown.
    pub const fn with_normal_shutdown(self) -> Cc {
        Cc(self.0 & !(0b11 << 14) | 0b01 << 14)
    }
}

/// CC.SHN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownNotification {
    /// 00b.
    None,
    /// 01b.
    Normal,
    /// 10b.
    Abrupt,
    /// 11b.
    Reserved,
}

/// CSTS, Controller Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Csts(pub u32);

impl Csts {
    /// RDY.
    pub const RDY: u32 = 1 << 0;
    /// CFS, controller fatal status.
    pub const CFS: u32 = 1 << 1;
    /// NSSRO: the NVM subsystem was reset.
    pub const NSSRO: u32 = 1 << 4;
    /// SHST (3:2) = 01b: shutdown in progress.
    pub const SHST_IN_PROGRESS: u32 = 0b01 << 2;
    /// SHST (3:2) = 10b: shutdown complete.
    pub const SHST_COMPLETE: u32 = 0b10 << 2;

    /// RDY.
    pub const fn ready(self) -> bool {
        self.0 & Csts::RDY != 0
    }

    /// CFS.
    pub const fn fatal(self) -> bool {
        self.0 & Csts::CFS != 0
    }

    /// SHST (3:2): 0 = normal operation, 1 = in progress, 2 = complete.
    pub const fn shst(self) -> u8 {
        (self.0 >> 2 & 0b11) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Base, "Controller Properties": the values that Linux 6.12 writes and expects.
    #[test]
    fn register_fields_stand_where_the_specification_puts_them() {
        assert_eq!(Cc::enable_nvm().0, 0x0046_0001);
        assert_eq!(Cc(0x0046_4001).shn(), ShutdownNotification::Normal);
        let cap = Cap::default()
            .with_mqes_z(127)
            .with_cqr()
            .with_to_500ms(15)
            .with_css_nvm();
        assert_eq!(cap.0, 0x0000_0020_0F01_007F);
        assert_eq!((cap.mqes_z(), cap.to_500ms()), (127, 15));
    }
}
