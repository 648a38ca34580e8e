//! BAR0: the controller's registers, its doorbells, and the MSI-X table (PCIe Transport, "Controller Properties").

use nvme::controller::Registers;
use nvme::pcie::{DOORBELLS_AT, Doorbell, doorbell_bytes};
use nvme_spec::register::{Cc, Csts, Property};

use crate::limits::{ADMIN_ENTRIES_MAX, IO_QUEUES_MAX, MSIX_TABLE_AT, MSIX_TABLE_BYTES};

/// Where the last register ends.
const REGISTERS_END: usize = 0x6C;

/// What NSSR takes: "NVMe".
const RESET_WORD: u32 = 0x4E56_4D65;

/// What a write asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// CC.
    Configure(Cc),
    /// A doorbell, and its value.
    Ring(Doorbell, u32),
    /// INTMS.
    Mask(u32),
    /// INTMC.
    Unmask(u32),
    /// NSSR, with the word that it takes.
    ResetSubsystem,
}

/// An admin queue as its registers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdminQueue {
    pub(crate) base: u64,
    pub(crate) entries: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    shown: Registers,
    aqa: u32,
    asq: u64,
    acq: u64,
    /// CSTS.NSSRO, until the host has cleared it.
    was_reset: bool,
    /// The client keeps the table that is in force, and tells us of descriptors instead: here are bytes.
    msix_table: Vec<u8>,
}

impl Bar {
    /// As at power-on.
    pub(crate) fn new() -> Self {
        Self {
            shown: Registers::default(),
            aqa: 0,
            asq: 0,
            acq: 0,
            was_reset: false,
            msix_table: power_on_table(),
        }
    }

    /// All that is not the controller's is as at power-on again.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            shown: self.shown,
            ..Self::new()
        };
    }

    /// The NVM subsystem was reset. The link of a real device would go down, and its configuration with it: here the table of interrupts stays.
    pub(crate) fn subsystem_was_reset(&mut self) {
        (self.aqa, self.asq, self.acq) = (0, 0, 0);
        self.was_reset = true;
    }

    pub(crate) fn show(&mut self, registers: &Registers) {
        self.shown = *registers;
    }

    pub(crate) fn shown(&self) -> &Registers {
        &self.shown
    }

    /// AQA.ASQS and ASQ.
    pub(crate) fn admin_submission(&self) -> AdminQueue {
        AdminQueue {
            base: self.asq & !0xFFF,
            entries: entries(self.aqa),
        }
    }

    /// AQA.ACQS and ACQ.
    pub(crate) fn admin_completion(&self) -> AdminQueue {
        AdminQueue {
            base: self.acq & !0xFFF,
            entries: entries(self.aqa >> 16),
        }
    }

    /// Bytes from `offset` on. Doorbells and what is not there read as zeros.
    pub(crate) fn read(&self, offset: u64, masked_vectors: u32, out: &mut [u8]) {
        out.fill(0);
        let registers = self.registers(masked_vectors);
        copy_at(&registers, 0, offset, out);
        copy_at(&self.msix_table, MSIX_TABLE_AT, offset, out);
    }

    fn registers(&self, masked_vectors: u32) -> [u8; REGISTERS_END] {
        let mut image = [0; REGISTERS_END];
        let shown = &self.shown;
        put(&mut image, Property::CAP, &shown.cap.0.to_le_bytes());
        put(&mut image, Property::VS, &shown.vs.to_le_bytes());
        put(&mut image, Property::INTMS, &masked_vectors.to_le_bytes());
        put(&mut image, Property::INTMC, &masked_vectors.to_le_bytes());
        put(&mut image, Property::CC, &shown.cc.0.to_le_bytes());
        let was_reset = if self.was_reset { Csts::NSSRO } else { 0 };
        let csts = shown.csts.0 | was_reset;
        put(&mut image, Property::CSTS, &csts.to_le_bytes());
        put(&mut image, Property::AQA, &self.aqa.to_le_bytes());
        put(&mut image, Property::ASQ, &self.asq.to_le_bytes());
        put(&mut image, Property::ACQ, &self.acq.to_le_bytes());
        put(&mut image, Property::CRTO, &shown.crto.to_le_bytes());
        image
    }

    /// A write of 4 bytes, or of 8 as two of them, at a multiple of 4; others have no meaning, and no effect but in the MSI-X table.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], mut then: impl FnMut(Write)) {
        if let Some(at) = offset.checked_sub(MSIX_TABLE_AT)
            && let Some(place) = place(&mut self.msix_table, at, data.len())
        {
            return place.copy_from_slice(data);
        }
        let is_whole = matches!(data.len(), 4 | 8) && offset.is_multiple_of(4);
        if !is_whole {
            return;
        }
        for (behind, bytes) in [0, 4].into_iter().zip(data.chunks_exact(4)) {
            let mut dword = [0; 4];
            dword.copy_from_slice(bytes);
            let value = u32::from_le_bytes(dword);
            let at = offset.checked_add(behind);
            if let Some(write) = at.and_then(|at| self.write_dword(at, value)) {
                then(write);
            }
        }
    }

    fn write_dword(&mut self, offset: u64, value: u32) -> Option<Write> {
        if offset >= DOORBELLS_AT {
            let is_there = offset - DOORBELLS_AT < doorbell_bytes(IO_QUEUES_MAX);
            let doorbell = Doorbell::at(offset).filter(|_| is_there);
            return doorbell.map(|doorbell| Write::Ring(doorbell, value));
        }
        let at = Property(u32::try_from(offset).ok()?);
        match at {
            Property::INTMS => return Some(Write::Mask(value)),
            Property::INTMC => return Some(Write::Unmask(value)),
            Property::CC => return Some(Write::Configure(Cc(value))),
            Property::NSSR if value == RESET_WORD => return Some(Write::ResetSubsystem),
            // Cleared by a 1.
            Property::CSTS if value & Csts::NSSRO != 0 => self.was_reset = false,
            Property::AQA => self.aqa = value & 0x0FFF_0FFF,
            Property::ASQ => set_low(&mut self.asq, value),
            Property::ACQ => set_low(&mut self.acq, value),
            Property(at) if at == Property::ASQ.0 + 4 => set_high(&mut self.asq, value),
            Property(at) if at == Property::ACQ.0 + 4 => set_high(&mut self.acq, value),
            _ => {}
        }
        None
    }
}

/// Every vector masked.
fn power_on_table() -> Vec<u8> {
    let mut entry = [0; 16];
    entry[12] = 1;
    let vectors = usize::try_from(MSIX_TABLE_BYTES / 16).unwrap_or(0);
    entry.repeat(vectors)
}

/// A zero-based size of AQA; one entry is no queue.
fn entries(field: u32) -> u32 {
    ((field & 0xFFF) + 1).clamp(2, ADMIN_ENTRIES_MAX)
}

fn put(image: &mut [u8], at: Property, bytes: &[u8]) {
    for (place, byte) in image.iter_mut().skip(at.0 as usize).zip(bytes) {
        *place = *byte;
    }
}

/// What of `from`, which begins at `base`, lies in `out`, which begins at `offset`.
fn copy_at(from: &[u8], base: u64, offset: u64, out: &mut [u8]) {
    for (at, place) in (offset..).zip(out) {
        let byte = at.checked_sub(base).and_then(|at| {
            let at = usize::try_from(at).ok()?;
            from.get(at)
        });
        if let Some(byte) = byte {
            *place = *byte;
        }
    }
}

fn place(table: &mut [u8], at: u64, len: usize) -> Option<&mut [u8]> {
    let at = usize::try_from(at).ok()?;
    table.get_mut(at..at.checked_add(len)?)
}

fn set_low(register: &mut u64, value: u32) {
    *register = *register & !0xFFFF_FFFF | u64::from(value);
}

fn set_high(register: &mut u64, value: u32) {
    *register = *register & 0xFFFF_FFFF | u64::from(value) << 32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme::queue::QueueId;
    use nvme_spec::register::Cap;

    fn written(bar: &mut Bar, offset: u64, data: &[u8]) -> Vec<Write> {
        let mut writes = Vec::new();
        bar.write(offset, data, |write| writes.push(write));
        writes
    }

    fn read<const N: usize>(bar: &Bar, offset: u64) -> [u8; N] {
        let mut out = [0xEE; N];
        bar.read(offset, 0x8000_0001, &mut out);
        out
    }

    #[test]
    fn registers_read_as_they_were_shown() {
        let mut bar = Bar::new();
        bar.show(&Registers {
            cap: Cap(0x0123_4567_89AB_CDEF),
            vs: 0x0002_0000,
            cc: Cc(0x0046_0001),
            csts: Csts(1),
            crto: 60,
            io_queues: 4,
            ..Registers::default()
        });
        assert_eq!(u64::from_le_bytes(read(&bar, 0)), 0x0123_4567_89AB_CDEF);
        assert_eq!(u32::from_le_bytes(read(&bar, 4)), 0x0123_4567);
        assert_eq!(u32::from_le_bytes(read(&bar, 0x08)), 0x0002_0000);
        assert_eq!(u32::from_le_bytes(read(&bar, 0x0C)), 0x8000_0001);
        assert_eq!(u32::from_le_bytes(read(&bar, 0x14)), 0x0046_0001);
        assert_eq!(u32::from_le_bytes(read(&bar, 0x1C)), 1);
        assert_eq!(read::<2>(&bar, 0x68), [60, 0]);
        // Beyond the registers, doorbells, pending bits.
        for offset in [0x6C, 0xFFC, 0x1000, 0x1208, 0x3000, 0x3FF8] {
            assert_eq!(read::<8>(&bar, offset), [0; 8], "{offset:#x}");
        }
    }

    #[test]
    fn a_reset_of_the_subsystem_is_told_until_it_is_cleared() {
        let mut bar = Bar::new();
        written(&mut bar, 0x24, &0x003F_001F_u32.to_le_bytes());
        written(&mut bar, 0x28, &0x1234_5000_u64.to_le_bytes());
        bar.subsystem_was_reset();
        assert_eq!(u32::from_le_bytes(read(&bar, 0x1C)), 0x10);
        assert_eq!(read::<24>(&bar, 0x20), [0; 24], "NSSR, AQA, ASQ, ACQ");
        written(&mut bar, 0x1C, &0x0F_u32.to_le_bytes());
        assert_eq!(u32::from_le_bytes(read(&bar, 0x1C)), 0x10);
        written(&mut bar, 0x1C, &0x10_u32.to_le_bytes());
        assert_eq!(u32::from_le_bytes(read(&bar, 0x1C)), 0);
    }

    #[test]
    fn admin_queues_are_written_in_halves_or_whole() {
        let mut bar = Bar::new();
        let nothing = Vec::<Write>::new();
        assert_eq!(
            written(&mut bar, 0x24, &0x003F_001F_u32.to_le_bytes()),
            nothing
        );
        written(&mut bar, 0x28, &0x1234_5000_u32.to_le_bytes());
        written(&mut bar, 0x2C, &0x9_u32.to_le_bytes());
        written(&mut bar, 0x30, &0x0000_0007_8765_4FFF_u64.to_le_bytes());
        let submission = AdminQueue {
            base: 0x9_1234_5000,
            entries: 32,
        };
        let completion = AdminQueue {
            base: 0x7_8765_4000,
            entries: 64,
        };
        assert_eq!(bar.admin_submission(), submission);
        assert_eq!(bar.admin_completion(), completion);
        bar.reset();
        assert_eq!(bar.admin_submission().entries, 2);
    }

    #[test]
    fn writes_with_a_meaning_are_told() {
        let mut bar = Bar::new();
        let ring = |doorbell, value| vec![Write::Ring(doorbell, value)];
        for (offset, value, expected) in [
            (
                0x14_u64,
                0x0046_0001,
                vec![Write::Configure(Cc(0x0046_0001))],
            ),
            (0x0C, 1, vec![Write::Mask(1)]),
            (0x10, 1, vec![Write::Unmask(1)]),
            (0x1000, 5, ring(Doorbell::Submission(QueueId(0)), 5)),
            (0x100C, 6, ring(Doorbell::Completion(QueueId(1)), 6)),
            // CAP, CSTS: read-only.
            (0x00, 1, vec![]),
            // The last doorbell, and what would be the next.
            (0x1204, 7, ring(Doorbell::Completion(QueueId(64)), 7)),
            (0x1208, 7, vec![]),
            (0x1C, 1, vec![]),
            (0x20, 0x4E56_4D65, vec![Write::ResetSubsystem]),
            (0x20, 0x4E56_4D64, vec![]),
            (0x20, 0, vec![]),
        ] {
            let data = u32::to_le_bytes(value);
            assert_eq!(written(&mut bar, offset, &data), expected, "{offset:#x}");
        }
        // Two doorbells in one.
        let both = written(&mut bar, 0x1008, &[1, 0, 0, 0, 2, 0, 0, 0]);
        let expected = [
            Write::Ring(Doorbell::Submission(QueueId(1)), 1),
            Write::Ring(Doorbell::Completion(QueueId(1)), 2),
        ];
        assert_eq!(both, expected);
        for (offset, data) in [
            (0x14, &[1, 0][..]),
            (0x16, &[1, 0, 0, 0]),
            (0x1002, &[1, 0, 0, 0]),
            (0x14, &[]),
            (0x14, &[0; 16]),
            (u64::MAX - 3, &[0; 8]),
        ] {
            assert_eq!(written(&mut bar, offset, data), [], "{offset:#x} {data:?}");
        }
    }

    #[test]
    fn the_interrupt_table_is_memory_whose_vectors_begin_masked() {
        let mut bar = Bar::new();
        assert_eq!(read::<16>(&bar, 0x2010)[12], 1);
        written(&mut bar, 0x2010, &[1, 2, 3, 4, 5, 6, 7, 8]);
        written(&mut bar, 0x201C, &[0]);
        assert_eq!(read::<8>(&bar, 0x2010), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(read::<16>(&bar, 0x2010)[12], 0);
        // The last entry's end.
        assert_eq!(written(&mut bar, 0x240C, &[0xFF; 8]), []);
    }
}
