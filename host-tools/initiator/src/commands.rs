//! Calls for the commands besides Read, Write and Flush: each is one command on the first I/O queue, and its status is told as it came.

use nvme::initiator::command::{self, Blocks};
use nvme::initiator::{Command, nvm};
use nvme::tcp::batch::Slot;
use nvme_spec::nvm::dataset_attribute;
use nvme_spec::{Lba, Nsid, Status};

use crate::queue::{Buffers, Queue};
use crate::{Error, Initiator};

/// What is sent with the commands outstanding, by slot.
struct Sent(Vec<(Slot, Vec<u8>)>);

impl Buffers for Sent {
    fn incoming(&mut self, slot: Slot) -> &mut [u8] {
        let found = self.0.iter_mut().find(|(of, _)| *of == slot);
        found.map_or(&mut [], |(_, bytes)| bytes)
    }

    fn outgoing(&self, slot: Slot) -> &[u8] {
        let found = self.0.iter().find(|(of, _)| *of == slot);
        found.map_or(&[], |(_, bytes)| bytes)
    }
}

impl Initiator {
    /// Compare: whether the blocks from `lba` on hold `data`, whole blocks. Compare Failure is a status like others.
    pub fn compare(&mut self, nsid: u32, lba: u64, data: &[u8]) -> Result<Status, Error> {
        let blocks = self.blocks(nsid, lba, data)?;
        self.one(nvm::compare(Nsid(nsid), blocks), data.to_vec())
    }

    /// Verify of up to 65,536 blocks.
    pub fn verify(&mut self, nsid: u32, lba: u64, blocks: u32) -> Result<Status, Error> {
        self.one(nvm::verify(Nsid(nsid), Lba(lba), blocks), Vec::new())
    }

    /// Write Zeroes of up to 65,536 blocks.
    pub fn write_zeroes(
        &mut self,
        nsid: u32,
        lba: u64,
        blocks: u32,
        deallocate: bool,
    ) -> Result<Status, Error> {
        let command = nvm::write_zeroes(Nsid(nsid), Lba(lba), blocks, deallocate);
        self.one(command, Vec::new())
    }

    /// Write Uncorrectable of up to 65,536 blocks.
    pub fn write_uncorrectable(
        &mut self,
        nsid: u32,
        lba: u64,
        blocks: u32,
    ) -> Result<Status, Error> {
        let command = nvm::write_uncorrectable(Nsid(nsid), Lba(lba), blocks);
        self.one(command, Vec::new())
    }

    /// Dataset Management, deallocate: first block and number of blocks of 1 to 256 ranges.
    pub fn deallocate(&mut self, nsid: u32, ranges: &[(u64, u32)]) -> Result<Status, Error> {
        let ranges: Vec<_> = ranges.iter().map(|&(lba, n)| (Lba(lba), n)).collect();
        let (command, data) = nvm::deallocate(Nsid(nsid), &ranges);
        self.one(command, data)
    }

    /// Dataset Management, integral dataset for read: says that 1 to 256 ranges will be read, by first block and number of blocks.
    pub fn will_read(&mut self, nsid: u32, ranges: &[(u64, u32)]) -> Result<Status, Error> {
        let ranges: Vec<_> = ranges.iter().map(|&(lba, n)| (Lba(lba), n)).collect();
        let (mut command, data) = nvm::deallocate(Nsid(nsid), &ranges);
        command.sqe.cdw11 = nvme_spec::U32::new(dataset_attribute::INTEGRAL_READ);
        self.one(command, data)
    }

    /// Copy to `lba` of `nsid`: namespace, first block and number of blocks of 1 to 128 sources. `anywhere`: descriptor format 2h, which the host
    /// has to enable; otherwise 0h, and the sources' namespace is the destination's.
    pub fn copy(
        &mut self,
        nsid: u32,
        lba: u64,
        sources: &[(u32, u64, u32)],
        anywhere: bool,
    ) -> Result<Status, Error> {
        let sources: Vec<_> = sources
            .iter()
            .map(|&(nsid, lba, n)| (Nsid(nsid), Lba(lba), n))
            .collect();
        let (mut command, data) = nvm::copy(Nsid(nsid), Lba(lba), &sources);
        if !anywhere {
            let cdw12 = command.sqe.cdw12.get();
            command.sqe.cdw12 = nvme_spec::U32::new(cdw12 & !0xF00);
        }
        self.one(command, data)
    }

    /// Fused Compare and Write: writes `data` where `expected` is found, both whole blocks; the status of each half.
    pub fn compare_and_write(
        &mut self,
        nsid: u32,
        lba: u64,
        expected: &[u8],
        data: &[u8],
    ) -> Result<[Status; 2], Error> {
        let mut first = nvm::compare(Nsid(nsid), self.blocks(nsid, lba, expected)?);
        let mut second = command::write(Nsid(nsid), self.blocks(nsid, lba, data)?);
        nvm::fuse(&mut first, &mut second);
        let commands = vec![(first, expected.to_vec()), (second, data.to_vec())];
        let statuses = self.commands(commands)?;
        Ok([0, 1].map(|half| {
            statuses
                .get(half)
                .copied()
                .unwrap_or(Status::INTERNAL_ERROR)
        }))
    }

    /// Sends commands one behind the other on the first I/O queue, with their data, and waits for all: their statuses, in the same order. For
    /// sequences that no other call makes.
    pub fn commands(&mut self, commands: Vec<(Command, Vec<u8>)>) -> Result<Vec<Status>, Error> {
        self.on_queue(|queue| run(queue, commands))
    }

    /// Set Features, Host Behavior Support: enables Copy descriptor format 2h.
    pub fn enable_copy_anywhere(&mut self) -> Result<Status, Error> {
        let (command, data) = nvm::enable_copy_formats(nvme_spec::nvm::copy_format_bit(2));
        let statuses = self.on_admin(|queue| run(queue, vec![(command, data)]))?;
        Ok(statuses.first().copied().unwrap_or(Status::INTERNAL_ERROR))
    }

    /// Flush of every namespace.
    pub fn flush_all(&mut self) -> Result<Status, Error> {
        self.one(command::flush(Nsid::BROADCAST), Vec::new())
    }

    fn one(&mut self, command: Command, data: Vec<u8>) -> Result<Status, Error> {
        let statuses = self.commands(vec![(command, data)])?;
        Ok(statuses.first().copied().unwrap_or(Status::INTERNAL_ERROR))
    }

    fn blocks(&self, nsid: u32, lba: u64, data: &[u8]) -> Result<Blocks, Error> {
        let lba_bytes = self.namespace(nsid)?.lba_bytes;
        let count = data.len() / lba_bytes.max(1) as usize;
        Ok(Blocks {
            lba: Lba(lba),
            count: u32::try_from(count).unwrap_or(u32::MAX),
            lba_bytes,
        })
    }
}

fn run(queue: &mut Queue, commands: Vec<(Command, Vec<u8>)>) -> Result<Vec<Status>, Error> {
    let mut sent = Sent(Vec::new());
    for (command, data) in commands {
        let now = queue.clock().now();
        let slot = queue.submit(&command, now)?;
        sent.0.push((slot, data));
    }
    let mut statuses = vec![None; sent.0.len()];
    while statuses.iter().any(Option::is_none) {
        let moved = queue.turn(&mut sent)?;
        let mut ended = false;
        while let Some(completed) = queue.next_completed()? {
            ended = true;
            let at = sent.0.iter().position(|(slot, _)| *slot == completed.slot);
            if let Some(status) = at.and_then(|at| statuses.get_mut(at)) {
                *status = Some(completed.cqe.status());
            }
        }
        if !moved && !ended {
            queue.wait()?;
        }
    }
    Ok(statuses.into_iter().flatten().collect())
}
