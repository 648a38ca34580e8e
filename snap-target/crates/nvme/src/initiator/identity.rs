//! What a controller says of itself and of its namespaces, parsed once. The bytes come from outside: each field is checked
//! before anything is computed from it.

use std::fmt;
use std::time::Duration;

use nvme_spec::command::SQE_BYTES;
use nvme_spec::identify::{
    ControllerType, IdentifyController, IdentifyNamespace, NSATTR_WRITE_PROTECTED,
    NamespaceDescriptorHeader, NamespaceIdType, NvmIdentifyController, OFCS_DISCONNECT, cmic,
    ctratt, vwc,
};
use nvme_spec::nvm::{dlfeat, oncs};
use nvme_spec::register::Cap;
use nvme_spec::{IDENTIFY_BYTES, NSID_LIST_ENTRIES, Nsid};
use zerocopy::FromBytes;

use super::InitiatorError;
use super::split::Geometry;

/// The most bytes of one command that a host of ours uses, where the controller has no lower limit (MDTS).
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Least and greatest LBADS that we work with: 512 bytes to 64 KiB.
const LBADS_MIN: u8 = 9;
const LBADS_MAX: u8 = 16;
/// MDTS counts pages of 2 ^ (12 + CAP.MPSMIN) bytes.
const PAGE_SHIFT_MIN: u32 = 12;

/// A controller, as far as a host needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// CNTLID.
    pub cntlid: u16,
    /// SN, without its padding.
    pub serial: String,
    /// MN, without its padding.
    pub model: String,
    /// FR, without its padding.
    pub firmware: String,
    /// Whether it is a discovery controller.
    pub is_discovery: bool,
    /// The most bytes of one command: MDTS, and never more than [`TRANSFER_BYTES_MAX`].
    pub transfer_bytes_max: u32,
    /// The most bytes of a write that go into an I/O queue's command capsule.
    pub in_capsule_bytes_max: u32,
    /// The most commands outstanding on an I/O queue: CAP.MQES and MAXCMD.
    pub io_queue_depth_max: u16,
    /// A volatile write cache is present: what was written is durable only after a flush.
    pub volatile_write_cache: bool,
    /// The Disconnect command is there.
    pub disconnect: bool,
    /// Granularity of the keep-alive timer in milliseconds; 0 = no keep alive.
    pub keep_alive_granularity_ms: u32,
    /// TBKAS: any command restarts its keep-alive timer, and it looks at the end of each timeout only.
    pub traffic_based_keep_alive: bool,
    /// CQT: so long after its keep-alive expired the controller may still carry out a command; zero = it does not say.
    pub quiesce_time: Duration,
    /// Write Zeroes is there.
    pub writes_zeroes: bool,
    /// Dataset Management is there.
    pub deallocates: bool,
    /// DMRSL and DMSL: blocks of one Dataset Management command with one range.
    pub deallocate_blocks_max: u32,
    /// It reports asymmetric access to its namespaces (the ANA log).
    pub reports_ana: bool,
    /// ACL: Abort commands that it takes at a time.
    pub aborts_max: u16,
    /// OAES: the notices that it can be asked for, as Set Features has them.
    pub notices: u32,
}

impl ControllerInfo {
    /// Reads Identify Controller beside the controller's CAP.
    pub fn parse(data: &[u8], cap: Cap) -> Result<ControllerInfo, InitiatorError> {
        let (identify, _) = IdentifyController::ref_from_prefix(data)
            .map_err(|_| short("Identify Controller", data.len()))?;
        let ioccsz_bytes = u64::from(identify.ioccsz_16b.get()) * 16;
        let in_capsule_bytes = ioccsz_bytes.saturating_sub(SQE_BYTES as u64);
        // MQES counts entries, zero-based, and a full queue has one entry unused: so many commands fit.
        let depth = match identify.maxcmd.get() {
            0 => cap.mqes_z(),
            maxcmd => maxcmd.min(cap.mqes_z()),
        };
        if depth == 0 {
            return Err(InitiatorError::Malformed {
                what: "CAP.MQES",
                found: u64::from(cap.mqes_z()),
                expected: "at least 1 (two entries)",
            });
        }
        Ok(ControllerInfo {
            cntlid: identify.cntlid.get(),
            serial: text(&identify.sn),
            model: text(&identify.mn),
            firmware: text(&identify.fr),
            is_discovery: identify.cntrltype == ControllerType::DISCOVERY.0,
            transfer_bytes_max: transfer_bytes_max(identify.mdts, cap),
            // Data start right behind the entry only where ICDOFF is 0 (mandatory for I/O controllers on TCP).
            in_capsule_bytes_max: if identify.icdoff_16b.get() == 0 {
                u32::try_from(in_capsule_bytes)
                    .unwrap_or(u32::MAX)
                    .min(TRANSFER_BYTES_MAX)
            } else {
                0
            },
            io_queue_depth_max: depth,
            volatile_write_cache: identify.vwc & vwc::PRESENT != 0,
            disconnect: identify.ofcs.get() & OFCS_DISCONNECT != 0,
            keep_alive_granularity_ms: u32::from(identify.kas_100ms.get()) * 100,
            traffic_based_keep_alive: identify.ctratt.get() & ctratt::TRAFFIC_BASED_KEEP_ALIVE != 0,
            quiesce_time: Duration::from_millis(identify.cqt_ms.get().into()),
            writes_zeroes: identify.oncs.get() & oncs::WRITE_ZEROES != 0,
            deallocates: identify.oncs.get() & oncs::DATASET_MANAGEMENT != 0,
            deallocate_blocks_max: u32::MAX,
            reports_ana: identify.cmic & cmic::ANA != 0,
            aborts_max: u16::from(identify.acl_z) + 1,
            notices: identify.oaes.get(),
        })
    }
}

impl ControllerInfo {
    /// Reads Identify Controller of the NVM command set: its limits, where 0 is none.
    pub fn limit(&mut self, data: &[u8]) -> Result<(), InitiatorError> {
        let (limits, _) = NvmIdentifyController::ref_from_prefix(data)
            .map_err(|_| short("Identify Controller of the NVM command set", data.len()))?;
        let of_range = u64::from(limits.dmrsl.get());
        let of_all = limits.dmsl.get();
        let least = [of_range, of_all]
            .into_iter()
            .filter(|blocks| *blocks > 0)
            .min();
        if let Some(blocks) = least {
            self.deallocate_blocks_max = u32::try_from(blocks).unwrap_or(u32::MAX);
        }
        Ok(())
    }
}

fn transfer_bytes_max(mdts: u8, cap: Cap) -> u32 {
    if mdts == 0 {
        return TRANSFER_BYTES_MAX;
    }
    let shift = PAGE_SHIFT_MIN + u32::from(cap.mpsmin()) + u32::from(mdts);
    1u32.checked_shl(shift)
        .unwrap_or(TRANSFER_BYTES_MAX)
        .min(TRANSFER_BYTES_MAX)
}

/// A namespace, as far as a host needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// NSID.
    pub nsid: Nsid,
    /// Bytes of a logical block.
    pub lba_bytes: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Writes are refused (NSATTR bit 0).
    pub write_protected: bool,
    /// Optimal boundary of commands in blocks; 0 = none.
    pub optimal_boundary_blocks: u16,
    /// What was deallocated reads as zeros (DLFEAT).
    pub deallocated_reads_zeros: bool,
    /// ANAGRPID: the group whose access state counts; 0 where none is reported.
    pub ana_group: u32,
    /// What the namespace is called in the world.
    pub ids: NamespaceIds,
}

/// The identifiers of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NamespaceIds {
    /// UUID.
    pub uuid: Option<Uuid>,
    /// NGUID.
    pub nguid: Option<[u8; 16]>,
    /// EUI64.
    pub eui64: Option<[u8; 8]>,
}

/// All that there are, or that there is none.
impl fmt::Display for NamespaceIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        let all = [
            self.uuid.map(|uuid| format!("UUID {uuid}")),
            self.nguid.map(|nguid| format!("NGUID {}", hex(&nguid))),
            self.eui64.map(|eui64| format!("EUI64 {}", hex(&eui64))),
        ];
        let all: Vec<_> = all.into_iter().flatten().collect();
        match &all[..] {
            [] => f.write_str("no identifier"),
            all => f.write_str(&all.join(" and ")),
        }
    }
}

/// A UUID, printed the usual way.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl NamespaceInfo {
    /// Reads Identify Namespace; `None` is an inactive namespace (all zeros).
    pub fn parse(nsid: Nsid, data: &[u8]) -> Result<Option<NamespaceInfo>, InitiatorError> {
        let (identify, _) = IdentifyNamespace::ref_from_prefix(data)
            .map_err(|_| short("Identify Namespace", data.len()))?;
        let blocks = identify.nsze.get();
        if blocks == 0 {
            return Ok(None);
        }
        // The index's upper bits are in 6:5, used where there are more than 16 formats.
        let index = usize::from(identify.flbas & 0xF | (identify.flbas >> 5 & 0b11) << 4);
        let format = identify
            .lbaf
            .get(index)
            .ok_or(malformed("FLBAS", index as u64, "0 to 63"))?;
        if !(LBADS_MIN..=LBADS_MAX).contains(&format.lbads) {
            return Err(malformed("LBADS", u64::from(format.lbads), "9 to 16"));
        }
        if format.metadata_bytes.get() != 0 {
            let found = u64::from(format.metadata_bytes.get());
            return Err(malformed(
                "MS (metadata bytes)",
                found,
                "0: this host moves no metadata",
            ));
        }
        if blocks.leading_zeros() < u32::from(format.lbads) {
            return Err(malformed("NSZE", blocks, "fewer than 2^64 bytes"));
        }
        Ok(Some(NamespaceInfo {
            nsid,
            lba_bytes: 1 << format.lbads,
            blocks,
            write_protected: identify.nsattr & NSATTR_WRITE_PROTECTED != 0,
            optimal_boundary_blocks: identify.noiob.get(),
            deallocated_reads_zeros: identify.dlfeat & 0b111 == dlfeat::READS_ZEROS,
            ana_group: identify.anagrpid.get(),
            ids: NamespaceIds {
                uuid: None,
                nguid: some_unless_zero(identify.nguid),
                eui64: some_unless_zero(identify.eui64),
            },
        }))
    }

    /// Bytes of the namespace.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.lba_bytes)
    }

    /// What byte ranges of it are cut by.
    pub fn geometry(&self, transfer_bytes_max: u32) -> Geometry {
        Geometry {
            lba_bytes: self.lba_bytes,
            blocks: self.blocks,
            transfer_bytes_max,
        }
    }
}

impl NamespaceIds {
    /// Adds what the Namespace Identification Descriptor list says.
    pub fn add_descriptors(&mut self, data: &[u8]) -> Result<(), InitiatorError> {
        let mut rest = data.get(..IDENTIFY_BYTES).unwrap_or(data);
        while let Ok((header, after)) = NamespaceDescriptorHeader::ref_from_prefix(rest) {
            if header.nidl == 0 {
                break;
            }
            let length = usize::from(header.nidl);
            let Some((value, after)) = after.split_at_checked(length) else {
                return Err(malformed("NIDL", length as u64, "within the list"));
            };
            self.add(NamespaceIdType(header.nidt), value)?;
            rest = after;
        }
        Ok(())
    }

    fn add(&mut self, kind: NamespaceIdType, value: &[u8]) -> Result<(), InitiatorError> {
        let wrong_length = |_| {
            malformed(
                "NIDL",
                value.len() as u64,
                "the length of the identifier's type",
            )
        };
        match kind {
            NamespaceIdType::EUI64 => {
                self.eui64 = some_unless_zero(value.try_into().map_err(wrong_length)?);
            }
            NamespaceIdType::NGUID => {
                self.nguid = some_unless_zero(value.try_into().map_err(wrong_length)?);
            }
            NamespaceIdType::UUID => {
                let bytes: [u8; 16] = value.try_into().map_err(wrong_length)?;
                self.uuid = some_unless_zero(bytes).map(Uuid);
            }
            // CSI, and types that come later: not identifiers, or not known to us.
            _ => {}
        }
        Ok(())
    }
}

/// Reads an Active Namespace ID list: identifiers greater than `after`, ascending, ended by a zero.
pub fn parse_namespace_list(data: &[u8], after: Nsid) -> Result<Vec<Nsid>, InitiatorError> {
    let mut found: Vec<Nsid> = Vec::new();
    let mut last = after;
    for entry in data.chunks_exact(4).take(NSID_LIST_ENTRIES) {
        let nsid = Nsid(u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]));
        if nsid == Nsid::NONE {
            break;
        }
        if nsid <= last || nsid == Nsid::BROADCAST {
            return Err(malformed(
                "Active Namespace ID list",
                u64::from(nsid.0),
                "ascending NSIDs",
            ));
        }
        last = nsid;
        found.push(nsid);
    }
    Ok(found)
}

/// An ASCII field without its padding; what is not printable becomes `?`, so that it can be shown anywhere.
pub(super) fn text(field: &[u8]) -> String {
    let end = field
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(field.len());
    let shown: String = field
        .iter()
        .take(end)
        .map(|&byte| {
            if byte.is_ascii_graphic() || byte == b' ' {
                char::from(byte)
            } else {
                '?'
            }
        })
        .collect();
    shown.trim_end().to_owned()
}

fn some_unless_zero<const N: usize>(bytes: [u8; N]) -> Option<[u8; N]> {
    (bytes != [0; N]).then_some(bytes)
}

fn malformed(what: &'static str, found: u64, expected: &'static str) -> InitiatorError {
    InitiatorError::Malformed {
        what,
        found,
        expected,
    }
}

fn short(what: &'static str, found: usize) -> InitiatorError {
    malformed(what, found as u64, "4096 bytes")
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_spec::{U16, U32, U64};
    use zerocopy::IntoBytes;

    fn namespace(blocks: u64, lbads: u8) -> IdentifyNamespace {
        let mut identify = IdentifyNamespace::zeroed();
        identify.nsze = U64::new(blocks);
        identify.lbaf[0].lbads = lbads;
        identify
    }

    fn field_of(result: Result<Option<NamespaceInfo>, InitiatorError>) -> &'static str {
        match result {
            Err(InitiatorError::Malformed { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_namespace_is_read_from_the_format_in_use() {
        let mut identify = namespace(1000, 9);
        identify.flbas = 0x21;
        identify.lbaf[17].lbads = 12;
        identify.nsattr = 1;
        identify.nguid = [3; 16];
        let info = NamespaceInfo::parse(Nsid(4), identify.as_bytes())
            .unwrap()
            .unwrap();
        assert_eq!(
            (info.lba_bytes, info.blocks, info.bytes()),
            (4096, 1000, 4_096_000)
        );
        assert!(info.write_protected);
        assert_eq!(info.ids.nguid, Some([3; 16]));
        assert_eq!(info.ids.eui64, None);
        let inactive = IdentifyNamespace::zeroed();
        assert_eq!(
            NamespaceInfo::parse(Nsid(4), inactive.as_bytes()).unwrap(),
            None
        );
    }

    #[test]
    fn impossible_namespaces_are_refused_by_field() {
        let parse =
            |identify: &IdentifyNamespace| NamespaceInfo::parse(Nsid(1), identify.as_bytes());
        for lbads in [0, 8, 17, 64, 255] {
            assert_eq!(field_of(parse(&namespace(1, lbads))), "LBADS");
        }
        assert_eq!(field_of(parse(&namespace(1 << 52, 12))), "NSZE");
        assert!(parse(&namespace((1 << 52) - 1, 12)).is_ok());
        let mut metadata = namespace(1, 12);
        metadata.lbaf[0].metadata_bytes = U16::new(8);
        assert_eq!(field_of(parse(&metadata)), "MS (metadata bytes)");
        assert!(NamespaceInfo::parse(Nsid(1), &[0; 4095]).is_err());
    }

    #[test]
    fn the_transfer_limit_is_two_to_the_mdts_pages_and_never_above_ours() {
        let limit = |mdts| transfer_bytes_max(mdts, Cap::default());
        assert_eq!((limit(0), limit(1), limit(5)), (1 << 20, 8192, 1 << 17));
        assert_eq!(
            (limit(9), limit(20), limit(255)),
            (1 << 20, 1 << 20, 1 << 20)
        );
    }

    #[test]
    fn queue_and_capsule_limits_come_from_the_controller() {
        let mut identify = IdentifyController::zeroed();
        identify.ioccsz_16b = U32::new(4 + 512);
        identify.maxcmd = U16::new(64);
        let cap = Cap::default().with_mqes_z(127);
        let info = ControllerInfo::parse(identify.as_bytes(), cap).unwrap();
        assert_eq!(
            (info.in_capsule_bytes_max, info.io_queue_depth_max),
            (8192, 64)
        );
        identify.ioccsz_16b = U32::new(u32::MAX);
        identify.maxcmd = U16::ZERO;
        let info = ControllerInfo::parse(identify.as_bytes(), cap).unwrap();
        assert_eq!(
            (info.in_capsule_bytes_max, info.io_queue_depth_max),
            (1 << 20, 127)
        );
        identify.icdoff_16b = U16::new(1);
        let info = ControllerInfo::parse(identify.as_bytes(), cap).unwrap();
        assert_eq!(info.in_capsule_bytes_max, 0);
        assert!(ControllerInfo::parse(identify.as_bytes(), Cap::default()).is_err());
    }

    #[test]
    fn descriptors_are_walked_within_the_list() {
        let mut list = vec![0; IDENTIFY_BYTES];
        list[..4].copy_from_slice(&[NamespaceIdType::UUID.0, 16, 0, 0]);
        list[4..20].copy_from_slice(&[0xAB; 16]);
        list[20..24].copy_from_slice(&[NamespaceIdType::CSI.0, 1, 0, 0]);
        list[25..29].copy_from_slice(&[NamespaceIdType::EUI64.0, 8, 0, 0]);
        list[29..37].copy_from_slice(&[1; 8]);
        let mut ids = NamespaceIds::default();
        ids.add_descriptors(&list).unwrap();
        assert_eq!(
            ids.uuid.unwrap().to_string(),
            "abababab-abab-abab-abab-abababababab"
        );
        assert_eq!(ids.eui64, Some([1; 8]));

        list[1] = 15;
        assert!(NamespaceIds::default().add_descriptors(&list).is_err());
        let past_the_end = [vec![NamespaceIdType::UUID.0, 16, 0, 0], vec![1; 15]].concat();
        assert!(
            NamespaceIds::default()
                .add_descriptors(&past_the_end)
                .is_err()
        );
    }

    #[test]
    fn a_namespace_list_must_ascend() {
        let list = |nsids: &[u32]| {
            let mut data = vec![0; IDENTIFY_BYTES];
            for (index, nsid) in nsids.iter().enumerate() {
                data[index * 4..][..4].copy_from_slice(&nsid.to_le_bytes());
            }
            data
        };
        assert_eq!(
            parse_namespace_list(&list(&[2, 3, 9]), Nsid(1)).unwrap(),
            [Nsid(2), Nsid(3), Nsid(9)]
        );
        assert!(parse_namespace_list(&list(&[2, 2]), Nsid(0)).is_err());
        assert!(parse_namespace_list(&list(&[5]), Nsid(5)).is_err());
        assert!(parse_namespace_list(&list(&[u32::MAX]), Nsid(0)).is_err());
        let full: Vec<u32> = (1..=1024).collect();
        assert_eq!(
            parse_namespace_list(&list(&full), Nsid(0)).unwrap().len(),
            1024
        );
    }

    #[test]
    fn text_fields_hold_nothing_that_a_terminal_would_obey() {
        assert_eq!(text(b"XIO\x1b[2J disk   "), "XIO?[2J disk");
        assert_eq!(text(b"a\0b"), "a");
    }
}
