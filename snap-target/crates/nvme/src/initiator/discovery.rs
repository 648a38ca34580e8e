//! Reading a discovery log in pieces (Base, "Discovery Log Page"): header, records, header again; where the generation
//! counter moved meanwhile, the log is read anew.

use nvme_spec::discovery::{DiscoveryLogEntry, DiscoveryLogHeader, TransportType};
use nvme_spec::log::LogPageId;
use nvme_spec::{Cqe, Nsid};
use zerocopy::FromBytes;

use super::command;
use super::identity::text;
use super::{InitiatorError, Sequence, Step, expect_success};
use crate::Time;

/// The most records that a host of ours takes from one discovery controller.
pub const DISCOVERY_RECORDS_MAX: u64 = 1024;
/// Times a log is read anew before the host gives up.
const RESTARTS_MAX: u32 = 4;
/// Records of one Get Log Page: 32 KiB, below any controller's MDTS but the smallest, which is asked for.
const RECORDS_PER_COMMAND_MAX: u64 = 32;

const HEADER_BYTES: u32 = 1024;
const RECORD_BYTES: u64 = 1024;
const _: () = assert!(size_of::<DiscoveryLogHeader>() == HEADER_BYTES as usize);
const _: () = assert!(size_of::<DiscoveryLogEntry>() as u64 == RECORD_BYTES);

/// One way to reach one subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryRecord {
    /// TRTYPE.
    pub transport: TransportType,
    /// SUBTYPE: see [`nvme_spec::discovery::SubsystemType`].
    pub subsystem_type: u8,
    /// PORTID.
    pub port_id: u16,
    /// TRADDR, the address.
    pub address: String,
    /// TRSVCID, the port.
    pub service: String,
    /// SUBNQN.
    pub subnqn: String,
    /// Whether TLS is used there (TSAS, or TREQ says that a secure channel is required).
    pub requires_tls: bool,
}

impl DiscoveryRecord {
    fn parse(entry: &DiscoveryLogEntry) -> DiscoveryRecord {
        let transport = TransportType(entry.trtype);
        let [security, ..] = entry.tsas;
        // What TSAS says depends on the transport: of RDMA its first byte is the kind of queue pair.
        let is_secured = transport == TransportType::TCP && security != 0;
        DiscoveryRecord {
            transport,
            subsystem_type: entry.subtype,
            port_id: entry.port_id.get(),
            address: text(&entry.traddr),
            service: text(&entry.trsvcid),
            subnqn: text(&entry.subnqn),
            requires_tls: is_secured || entry.treq & 0b11 == 0b01,
        }
    }
}

/// The sequence that reads a discovery log on an admin queue that [`super::AttachAdmin`] brought up.
#[derive(Debug)]
pub struct ReadDiscoveryLog {
    records_per_command: u64,
    generation: u64,
    expected: u64,
    records: Vec<DiscoveryRecord>,
    restarts: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Header,
    Records,
    HeaderAgain,
    Done,
}

impl ReadDiscoveryLog {
    /// Starts; `transfer_bytes_max` is the controller's, see [`super::ControllerInfo`].
    pub fn new(transfer_bytes_max: u32) -> ReadDiscoveryLog {
        ReadDiscoveryLog {
            records_per_command: (u64::from(transfer_bytes_max) / RECORD_BYTES)
                .clamp(1, RECORDS_PER_COMMAND_MAX),
            generation: 0,
            expected: 0,
            records: Vec::new(),
            restarts: 0,
            stage: Stage::Header,
        }
    }

    /// The records, once [`Sequence::step`] said [`Step::Done`].
    pub fn finish(self) -> Option<Vec<DiscoveryRecord>> {
        (self.stage == Stage::Done).then_some(self.records)
    }

    fn records_of_next_command(&self) -> u64 {
        (self.expected - self.records.len() as u64).min(self.records_per_command)
    }

    fn begin(&mut self, header: &DiscoveryLogHeader) -> Result<(), InitiatorError> {
        let (found, format) = (header.records.get(), header.record_format.get());
        if format != 0 {
            return Err(InitiatorError::Malformed {
                what: "discovery log RECFMT",
                found: u64::from(format),
                expected: "0",
            });
        }
        if found > DISCOVERY_RECORDS_MAX {
            return Err(InitiatorError::TooMany {
                what: "discovery records",
                found,
                limit: DISCOVERY_RECORDS_MAX,
            });
        }
        self.generation = header.generation.get();
        self.expected = found;
        self.records.clear();
        self.stage = if found == 0 {
            Stage::Done
        } else {
            Stage::Records
        };
        Ok(())
    }

    fn add_records(&mut self, data: &[u8]) -> Result<(), InitiatorError> {
        let wanted = self.records_of_next_command();
        let mut rest = data;
        for _ in 0..wanted {
            let Ok((entry, after)) = DiscoveryLogEntry::ref_from_prefix(rest) else {
                return Err(InitiatorError::Malformed {
                    what: "discovery log length",
                    found: data.len() as u64,
                    expected: "1024 bytes for each record asked for",
                });
            };
            self.records.push(DiscoveryRecord::parse(entry));
            rest = after;
        }
        if self.records.len() as u64 >= self.expected {
            self.stage = Stage::HeaderAgain;
        }
        Ok(())
    }

    fn compare(&mut self, header: &DiscoveryLogHeader) -> Result<(), InitiatorError> {
        if header.generation.get() == self.generation {
            self.stage = Stage::Done;
            return Ok(());
        }
        self.restarts += 1;
        if self.restarts > RESTARTS_MAX {
            return Err(InitiatorError::DiscoveryUnstable(self.restarts));
        }
        self.begin(header)
    }
}

impl Sequence for ReadDiscoveryLog {
    fn step(&mut self, _now: Time) -> Result<Step, InitiatorError> {
        let read = |offset, bytes| {
            Step::issue(command::get_log_page(
                LogPageId::DISCOVERY,
                Nsid::NONE,
                offset,
                bytes,
            ))
        };
        Ok(match self.stage {
            Stage::Header | Stage::HeaderAgain => read(0, HEADER_BYTES),
            Stage::Records => {
                let offset = u64::from(HEADER_BYTES) + self.records.len() as u64 * RECORD_BYTES;
                let bytes = self.records_of_next_command() * RECORD_BYTES;
                read(offset, u32::try_from(bytes).unwrap_or(HEADER_BYTES))
            }
            Stage::Done => Step::Done,
        })
    }

    fn answered(&mut self, _now: Time, cqe: &Cqe, data: &[u8]) -> Result<(), InitiatorError> {
        expect_success("Get Log Page, discovery", cqe)?;
        if self.stage == Stage::Records {
            return self.add_records(data);
        }
        let Ok((header, _)) = DiscoveryLogHeader::ref_from_prefix(data) else {
            return Err(InitiatorError::Malformed {
                what: "discovery log length",
                found: data.len() as u64,
                expected: "a header of 1024 bytes",
            });
        };
        match self.stage {
            Stage::Header => self.begin(header),
            Stage::HeaderAgain => self.compare(header),
            Stage::Records | Stage::Done => Ok(()),
        }
    }
}
