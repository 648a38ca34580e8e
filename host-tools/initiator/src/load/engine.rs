//! The closed loop: `depth` commands outstanding, each completion checked and replaced at once.

use std::time::{Duration, Instant};

use nvme::digest::crc32c;
use nvme::initiator::{Blocks, command};
use nvme::tcp::batch::Slot;
use nvme_spec::{Lba, Nsid, Status};

use super::{Histogram, Pattern};
use crate::queue::{Buffers, Completed, Queue};
use crate::{Error, Initiator, NamespaceInfo};

/// In which order the blocks are visited, and which way the data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads, one after the other, around the region.
    SequentialRead,
    /// Reads at random places.
    RandomRead,
    /// Writes, one after the other, around the region.
    SequentialWrite,
    /// Writes at random places.
    RandomWrite,
}

impl Access {
    fn writes(self) -> bool {
        matches!(self, Access::SequentialWrite | Access::RandomWrite)
    }

    fn is_random(self) -> bool {
        matches!(self, Access::RandomRead | Access::RandomWrite)
    }
}

/// What is done with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Reads are not looked at; writes send the pattern's first block each time.
    None,
    /// Reads must hold this pattern, which was written before ([`Load::fill`]); writes write it.
    Pattern(Pattern),
    /// Reads must have the CRC-32C that the same block had in a first pass over the region. For namespaces that cannot be written.
    Crc,
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The namespace.
    pub nsid: u32,
    /// Order and direction.
    pub access: Access,
    /// Bytes of one command: a multiple of the namespace's block, at most the controller's largest transfer.
    pub block_bytes: u32,
    /// Commands outstanding; no more than the queue's depth.
    pub depth: usize,
    /// How long.
    pub duration: Duration,
    /// The first so many bytes of the namespace are used; the whole of it where it is shorter.
    pub region_bytes: u64,
    /// What is done with the data.
    pub verify: Verify,
    /// Seed of the random places.
    pub seed: u64,
}

/// What a load achieved.
#[derive(Clone)]
pub struct Report {
    /// Commands completed, each with success and as verified.
    pub commands: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// From the first command to the last completion.
    pub elapsed: Duration,
    /// From submission to completion of each command, as the polling thread saw it.
    pub latency: Histogram,
}

impl Report {
    /// Commands in a second.
    pub fn iops(&self) -> f64 {
        self.commands as f64 / self.elapsed.as_secs_f64()
    }

    /// Gigabytes (10^9) in a second.
    pub fn gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64() / 1e9
    }
}

impl Load {
    /// Writes a pattern over the load's region.
    pub fn fill(&self, initiator: &mut Initiator, pattern: Pattern) -> Result<(), Error> {
        const CHUNK_BYTES: u64 = 4 << 20;
        let region_bytes = self
            .region_bytes
            .min(initiator.namespace(self.nsid)?.bytes());
        let mut chunk = Vec::new();
        let mut offset = 0;
        while offset < region_bytes {
            let len = CHUNK_BYTES.min(region_bytes - offset);
            chunk.resize(usize::try_from(len).unwrap_or(0), 0);
            pattern.fill(offset, &mut chunk);
            initiator.write(self.nsid, offset, &chunk)?;
            offset += len;
        }
        Ok(())
    }

    /// Runs the load on the initiator's first I/O queue. The first wrong status or byte ends it with its error.
    pub fn run(&self, initiator: &mut Initiator) -> Result<Report, Error> {
        let namespace = initiator.namespace(self.nsid)?.clone();
        self.check(&namespace, initiator.controller().transfer_bytes_max)?;
        let units = self.region_bytes.min(namespace.bytes()) / u64::from(self.block_bytes);
        if units == 0 {
            return Err(Error::Load(format!(
                "namespace {} is smaller than one command of {} bytes",
                self.nsid, self.block_bytes
            )));
        }
        let mut checksums = Vec::new();
        if self.verify == Verify::Crc {
            checksums = self.checksums(initiator, units)?;
        }
        initiator.on_queue(|queue| {
            if self.depth == 0 || self.depth > queue.room() {
                return Err(Error::Load(format!(
                    "a depth of {} does not fit a queue of {}",
                    self.depth,
                    queue.room()
                )));
            }
            Engine::new(self, &namespace, units, &checksums).run(queue)
        })
    }

    fn check(&self, namespace: &NamespaceInfo, transfer_bytes_max: u32) -> Result<(), Error> {
        let aligned = self.block_bytes != 0 && self.block_bytes.is_multiple_of(namespace.lba_bytes);
        if !aligned || self.block_bytes > transfer_bytes_max {
            return Err(Error::Load(format!(
                "a command of {} bytes is no multiple of the block ({} bytes) or above the controller's limit ({transfer_bytes_max} bytes)",
                self.block_bytes, namespace.lba_bytes
            )));
        }
        if self.access.writes() && self.verify == Verify::Crc {
            return Err(Error::Load(
                "checksums verify reads only; writes use a pattern".into(),
            ));
        }
        Ok(())
    }

    fn checksums(&self, initiator: &mut Initiator, units: u64) -> Result<Vec<u32>, Error> {
        let mut unit = vec![0; self.block_bytes as usize];
        let mut checksums = Vec::new();
        for index in 0..units {
            initiator.read(self.nsid, index * u64::from(self.block_bytes), &mut unit)?;
            checksums.push(crc32c(&unit));
        }
        Ok(checksums)
    }
}

/// What a slot is doing.
#[derive(Clone)]
struct Flight {
    buffer: Box<[u8]>,
    offset: u64,
    sent_ns: u64,
}

struct Flights(Vec<Flight>);

impl Buffers for Flights {
    fn incoming(&mut self, slot: Slot) -> &mut [u8] {
        self.0
            .get_mut(slot.index())
            .map_or(&mut [], |flight| &mut flight.buffer)
    }

    fn outgoing(&self, slot: Slot) -> &[u8] {
        self.0
            .get(slot.index())
            .map_or(&[], |flight| &flight.buffer)
    }
}

/// Data that arrived and are still to be verified; its slot has another buffer meanwhile.
struct Arrived {
    buffer: Box<[u8]>,
    offset: u64,
}

struct Engine<'a> {
    load: &'a Load,
    checksums: &'a [u32],
    flights: Flights,
    arrived: Vec<Arrived>,
    /// Buffers that no slot has.
    spare: Vec<Box<[u8]>>,
    blocks: u32,
    lba_bytes: u32,
    units: u64,
    next_unit: u64,
    random: u64,
    latency: Histogram,
    commands: u64,
}

impl<'a> Engine<'a> {
    fn new(load: &'a Load, namespace: &NamespaceInfo, units: u64, checksums: &'a [u32]) -> Self {
        Engine {
            load,
            checksums,
            flights: Flights(Vec::new()),
            arrived: Vec::new(),
            spare: Vec::new(),
            blocks: load.block_bytes / namespace.lba_bytes,
            lba_bytes: namespace.lba_bytes,
            units,
            next_unit: 0,
            random: load.seed | 1,
            latency: Histogram::default(),
            commands: 0,
        }
    }

    fn run(mut self, queue: &mut Queue) -> Result<Report, Error> {
        let started = Instant::now();
        let until = started + self.load.duration;
        let mut running = true;
        loop {
            let now = Instant::now();
            running &= now < until;
            let elapsed_ns = nanos(now - started);
            while running && queue.outstanding() < self.load.depth {
                self.submit(queue, elapsed_ns)?;
            }
            let sent = queue.send(&self.flights)?;
            // The target works on what was just sent.
            self.verify_arrived()?;
            if queue.outstanding() == 0 && !running {
                break;
            }
            let received = queue.receive(&mut self.flights)?;
            let done_ns = nanos(started.elapsed());
            while let Some(completed) = queue.next_completed()? {
                self.complete(&completed, done_ns)?;
            }
            if !sent && !received {
                queue.wait()?;
            }
        }
        Ok(Report {
            commands: self.commands,
            bytes: self.commands * u64::from(self.load.block_bytes),
            elapsed: started.elapsed(),
            latency: self.latency,
        })
    }

    fn submit(&mut self, queue: &mut Queue, now_ns: u64) -> Result<(), Error> {
        let offset = self.next_offset();
        let blocks = Blocks {
            lba: Lba(offset / u64::from(self.lba_bytes)),
            count: self.blocks,
            lba_bytes: self.lba_bytes,
        };
        let nsid = Nsid(self.load.nsid);
        let command = if self.load.access.writes() {
            command::write(nsid, blocks)
        } else {
            command::read(nsid, blocks)
        };
        let slot = queue.submit(&command, queue.clock().now())?;
        if self.flights.0.len() <= slot.index() {
            let unused = Flight {
                buffer: vec![0; self.load.block_bytes as usize].into(),
                offset: 0,
                sent_ns: 0,
            };
            self.flights.0.resize(slot.index() + 1, unused);
        }
        if let Some(flight) = self.flights.0.get_mut(slot.index()) {
            flight.offset = offset;
            flight.sent_ns = now_ns;
            if let (true, Verify::Pattern(pattern)) = (self.load.access.writes(), self.load.verify)
            {
                pattern.fill(offset, &mut flight.buffer);
            }
        }
        Ok(())
    }

    fn complete(&mut self, completed: &Completed, now_ns: u64) -> Result<(), Error> {
        let Some(flight) = self.flights.0.get_mut(completed.slot.index()) else {
            return Ok(());
        };
        self.latency.add_ns(now_ns.saturating_sub(flight.sent_ns));
        let offset = flight.offset;
        let status = completed.cqe.status();
        if !status.is_success() {
            return Err(self.failed(offset, status));
        }
        if self.load.access.writes() || self.load.verify == Verify::None {
            self.commands += 1;
            return Ok(());
        }
        let fresh = self.spare.pop();
        let fresh = fresh.unwrap_or_else(|| vec![0; self.load.block_bytes as usize].into());
        let buffer = std::mem::replace(&mut flight.buffer, fresh);
        self.arrived.push(Arrived { buffer, offset });
        Ok(())
    }

    fn verify_arrived(&mut self) -> Result<(), Error> {
        while let Some(arrived) = self.arrived.pop() {
            self.verify(&arrived)?;
            self.commands += 1;
            self.spare.push(arrived.buffer);
        }
        Ok(())
    }

    fn verify(&self, arrived: &Arrived) -> Result<(), Error> {
        let offset = arrived.offset;
        match self.load.verify {
            Verify::None => Ok(()),
            Verify::Pattern(pattern) => {
                pattern
                    .check(offset, &arrived.buffer)
                    .map_err(|mismatch| Error::Mismatch {
                        nsid: self.load.nsid,
                        offset: mismatch.offset_bytes,
                        found: mismatch.found,
                        expected: mismatch.expected,
                    })
            }
            Verify::Crc => {
                let found = crc32c(&arrived.buffer);
                let unit = offset / u64::from(self.load.block_bytes);
                let index = usize::try_from(unit).unwrap_or(usize::MAX);
                match self.checksums.get(index) {
                    Some(&expected) if expected != found => Err(Error::Changed {
                        nsid: self.load.nsid,
                        offset,
                        len: self.load.block_bytes,
                        found,
                        expected,
                    }),
                    _ => Ok(()),
                }
            }
        }
    }

    fn failed(&self, offset: u64, status: Status) -> Error {
        Error::Command {
            command: if self.load.access.writes() {
                "Write"
            } else {
                "Read"
            },
            nsid: self.load.nsid,
            lba: offset / u64::from(self.lba_bytes),
            blocks: self.blocks,
            status,
        }
    }

    fn next_offset(&mut self) -> u64 {
        let unit = if self.load.access.is_random() {
            self.random_unit()
        } else {
            let unit = self.next_unit;
            self.next_unit = (unit + 1) % self.units;
            unit
        };
        unit * u64::from(self.load.block_bytes)
    }

    /// xorshift64*, its high bits scaled to the region.
    fn random_unit(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let drawn = self.random.wrapping_mul(0x2545_F491_4F6C_DD1D);
        let scaled = (u128::from(drawn) * u128::from(self.units)) >> 64;
        u64::try_from(scaled).unwrap_or(0)
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
