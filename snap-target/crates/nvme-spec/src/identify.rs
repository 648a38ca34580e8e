//! Identify data structures (Base, "Identify command"; NVM, "Identify command").

use crate::NQN_FIELD_BYTES;
use crate::open_enum::{assert_bytes, open_enum};
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

open_enum! {
    /// CNS: CDW10 7:0 of Identify.
    pub struct Cns(u8) {
        /// Identify Namespace (NVM command set).
        NAMESPACE = 0x00,
        /// Identify Controller.
        CONTROLLER = 0x01,
        /// Active Namespace ID list.
        ACTIVE_NAMESPACES = 0x02,
        /// Namespace Identification Descriptor list.
        NAMESPACE_DESCRIPTORS = 0x03,
        /// I/O Command Set specific Identify Namespace.
        IO_COMMAND_SET_NAMESPACE = 0x05,
        /// I/O Command Set specific Identify Controller.
        IO_COMMAND_SET_CONTROLLER = 0x06,
        /// I/O Command Set specific Active Namespace ID list.
        IO_COMMAND_SET_ACTIVE_NAMESPACES = 0x07,
        /// I/O Command Set Independent Identify Namespace.
        INDEPENDENT_NAMESPACE = 0x08,
        /// Identify I/O Command Set.
        IO_COMMAND_SETS = 0x1C,
    }
}

/// CSI of the NVM command set (Base, "I/O Command Set Identifiers").
pub const CSI_NVM: u8 = 0x00;

/// Identify Controller (CNS 01h).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    /// VID: PCI vendor.
    pub vid: U16,
    /// SSVID: PCI subsystem vendor.
    pub ssvid: U16,
    /// SN: ASCII, padded with spaces.
    pub sn: [u8; 20],
    /// MN: ASCII, padded with spaces.
    pub mn: [u8; 40],
    /// FR: ASCII, padded with spaces.
    pub fr: [u8; 8],
    /// RAB: arbitration burst, 2 ^ n.
    pub rab: u8,
    /// IEEE OUI.
    pub ieee: [u8; 3],
    /// CMIC: multi-path capabilities: see [`cmic`].
    pub cmic: u8,
    /// MDTS: most data of one command, 2 ^ n pages of CAP.MPSMIN; 0 = no limit.
    pub mdts: u8,
    /// CNTLID.
    pub cntlid: U16,
    /// VER.
    pub ver: U32,
    /// RTD3R, microseconds.
    pub rtd3r_us: U32,
    /// RTD3E, microseconds.
    pub rtd3e_us: U32,
    /// OAES: see [`crate::feature::async_event_configuration`].
    pub oaes: U32,
    /// CTRATT: see [`ctratt`].
    pub ctratt: U32,
    /// RRLS.
    pub rrls: U16,
    /// Boot partition capabilities.
    pub bpcap: u8,
    /// Reserved.
    pub reserved_103: u8,
    /// NVM subsystem shutdown latency.
    pub nssl: U32,
    /// Reserved.
    pub reserved_108: [u8; 2],
    /// Power loss signaling.
    pub plsi: u8,
    /// CNTRLTYPE: see [`ControllerType`].
    pub cntrltype: u8,
    /// FGUID.
    pub fguid: [u8; 16],
    /// CRDT1, 100 ms units.
    pub crdt1_100ms: U16,
    /// CRDT2, 100 ms units.
    pub crdt2_100ms: U16,
    /// CRDT3, 100 ms units.
    pub crdt3_100ms: U16,
    /// Reserved (reachability, CCR).
    pub reserved_134: [u8; 106],
    /// Management interface.
    pub reserved_240: [u8; 13],
    /// NVMSR.
    pub nvmsr: u8,
    /// VWCI.
    pub vwci: u8,
    /// MEC.
    pub mec: u8,
    /// OACS: optional admin commands.
    pub oacs: U16,
    /// ACL: concurrent Abort commands, zero-based.
    pub acl_z: u8,
    /// AERL: concurrent Asynchronous Event Requests, zero-based.
    pub aerl_z: u8,
    /// FRMW: firmware slots in 3:1, slot 1 read-only in 0.
    pub frmw: u8,
    /// LPA: see [`lpa`].
    pub lpa: u8,
    /// ELPE: entries of the Error Information log, zero-based.
    pub elpe_z: u8,
    /// NPSS: power states, zero-based.
    pub npss_z: u8,
    /// AVSCC.
    pub avscc: u8,
    /// APSTA.
    pub apsta: u8,
    /// WCTEMP, kelvin.
    pub wctemp_k: U16,
    /// CCTEMP, kelvin.
    pub cctemp_k: U16,
    /// MTFA.
    pub mtfa: U16,
    /// HMPRE.
    pub hmpre: U32,
    /// HMMIN.
    pub hmmin: U32,
    /// TNVMCAP, bytes.
    pub tnvmcap: U128,
    /// UNVMCAP, bytes.
    pub unvmcap: U128,
    /// RPMBS.
    pub rpmbs: U32,
    /// EDSTT.
    pub edstt: U16,
    /// DSTO.
    pub dsto: u8,
    /// FWUG.
    pub fwug: u8,
    /// KAS: granularity of the keep alive timer, 100 ms units; 0 = no keep alive.
    pub kas_100ms: U16,
    /// HCTMA.
    pub hctma: U16,
    /// MNTMT.
    pub mntmt: U16,
    /// MXTMT.
    pub mxtmt: U16,
    /// SANICAP.
    pub sanicap: U32,
    /// HMMINDS.
    pub hmminds: U32,
    /// HMMAXD.
    pub hmmaxd: U16,
    /// NSETIDMAX.
    pub nsetidmax: U16,
    /// ENDGIDMAX.
    pub endgidmax: U16,
    /// ANATT, seconds.
    pub anatt_s: u8,
    /// ANACAP.
    pub anacap: u8,
    /// ANAGRPMAX.
    pub anagrpmax: U32,
    /// NANAGRPID.
    pub nanagrpid: U32,
    /// PELS.
    pub pels: U32,
    /// Domain identifier.
    pub did: U16,
    /// KPIOC.
    pub kpioc: u8,
    /// Reserved.
    pub reserved_359: u8,
    /// MPTFAWR.
    pub mptfawr: U16,
    /// Reserved.
    pub reserved_362: [u8; 6],
    /// MEGCAP.
    pub megcap: U128,
    /// TMPTHHA.
    pub tmpthha: u8,
    /// Reserved.
    pub reserved_385: u8,
    /// CQT: Command Quiesce Time, milliseconds (TP4129).
    pub cqt_ms: U16,
    /// Reserved.
    pub reserved_388: [u8; 124],
    /// SQES: required size in 3:0, maximum in 7:4, as powers of two: 66h.
    pub sqes: u8,
    /// CQES: required size in 3:0, maximum in 7:4, as powers of two: 44h.
    pub cqes: u8,
    /// MAXCMD: most outstanding commands of an I/O queue; mandatory on fabrics.
    pub maxcmd: U16,
    /// NN: greatest NSID.
    pub nn: U32,
    /// ONCS: optional NVM commands: see [`crate::nvm::oncs`].
    pub oncs: U16,
    /// FUSES: fused operations: see [`crate::nvm::FUSES_COMPARE_AND_WRITE`].
    pub fuses: U16,
    /// FNA.
    pub fna: u8,
    /// VWC: see [`vwc`].
    pub vwc: u8,
    /// AWUN, zero-based.
    pub awun_z: U16,
    /// AWUPF, zero-based.
    pub awupf_z: U16,
    /// ICSVSCC.
    pub icsvscc: u8,
    /// NWPC: see [`NWPC_WRITE_PROTECT`].
    pub nwpc: u8,
    /// ACWU, zero-based.
    pub acwu_z: U16,
    /// OCFS: copy descriptor formats, a bit each: see [`crate::nvm::copy_format_bit`].
    pub ocfs: U16,
    /// SGLS: see [`sgls`].
    pub sgls: U32,
    /// MNAN: most namespaces; 0 = NN.
    pub mnan: U32,
    /// Domain and other limits.
    pub reserved_544: [u8; 224],
    /// SUBNQN, zero-terminated.
    pub subnqn: [u8; NQN_FIELD_BYTES],
    /// Reserved.
    pub reserved_1024: [u8; 768],
    /// IOCCSZ: command capsule of an I/O queue, 16-byte units.
    pub ioccsz_16b: U32,
    /// IORCSZ: response capsule of an I/O queue, 16-byte units.
    pub iorcsz_16b: U32,
    /// ICDOFF: where in-capsule data start after the entry, 16-byte units.
    pub icdoff_16b: U16,
    /// FCATT: bit 0 = dynamic controller model is 0, static is 1.
    pub fcatt: u8,
    /// MSDBD: most SGL descriptors of one command.
    pub msdbd: u8,
    /// OFCS: optional fabrics commands: see [`OFCS_DISCONNECT`].
    pub ofcs: U16,
    /// DCTYPE: discovery controller type; 0 = not reported.
    pub dctype: u8,
    /// Reserved.
    pub reserved_1807: [u8; 241],
    /// Power state descriptors.
    pub power_states: [PowerState; 32],
    /// Vendor specific.
    pub vendor_3072: [u8; 1024],
}
assert_bytes!(IdentifyController, 4096);

impl IdentifyController {
    /// All zeros.
    pub fn zeroed() -> IdentifyController {
        IdentifyController::new_zeroed()
    }
}

/// Power state descriptor (32 bytes).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PowerState {
    /// MP: greatest power in units of 10 mW.
    pub max_power_10mw: U16,
    /// Everything else: 0 = not reported.
    pub reserved_2: [u8; 30],
}
assert_bytes!(PowerState, 32);

open_enum! {
    /// CNTRLTYPE.
    pub struct ControllerType(u8) {
        /// I/O controller.
        IO = 1,
        /// Discovery controller.
        DISCOVERY = 2,
        /// Administrative controller.
        ADMINISTRATIVE = 3,
    }
}

/// Bits of CMIC.
pub mod cmic {
    /// The subsystem may have more than one port.
    pub const MULTIPLE_PORTS: u8 = 1 << 0;
    /// The subsystem may have more than one controller.
    pub const MULTIPLE_CONTROLLERS: u8 = 1 << 1;
    /// Asymmetric namespace access is reported.
    pub const ANA: u8 = 1 << 3;
}

/// Bits of CTRATT.
pub mod ctratt {
    /// HIDS: 128-bit host identifier.
    pub const HOST_ID_128: u32 = 1 << 0;
    /// TBKAS: traffic based keep alive.
    pub const TRAFFIC_BASED_KEEP_ALIVE: u32 = 1 << 6;
    /// RHII: reservations are for hosts with an identifier other than 0.
    pub const RESERVATIONS_NEED_HOST_ID: u32 = 1 << 18;
}

/// Bits of LPA.
pub mod lpa {
    /// Commands Supported and Effects log.
    pub const COMMANDS_SUPPORTED: u8 = 1 << 1;
    /// Extended data for Get Log Page: NUMDU and the offset.
    pub const EXTENDED_DATA: u8 = 1 << 2;
    /// Logs 00h, 05h, 12h, 13h are there (LPA bit 5).
    pub const SUPPORTED_LOG_PAGES: u8 = 1 << 5;
}

/// Bits of VWC.
pub mod vwc {
    /// A volatile write cache is present.
    pub const PRESENT: u8 = 1 << 0;
    /// 2:1 = 11b: Flush with NSID FFFFFFFFh flushes all namespaces.
    pub const FLUSH_ALL_SUPPORTED: u8 = 0b11 << 1;
    /// 2:1 = 10b: Flush with NSID FFFFFFFFh fails.
    pub const FLUSH_ALL_UNSUPPORTED: u8 = 0b10 << 1;
}

/// NWPC bit 0: No Write Protect and Write Protect states.
pub const NWPC_WRITE_PROTECT: u8 = 1 << 0;
/// NWPC bit 1: Write Protect Until Power Cycle.
pub const NWPC_UNTIL_POWER_CYCLE: u8 = 1 << 1;
/// NWPC bit 2: Permanent Write Protect.
pub const NWPC_PERMANENT: u8 = 1 << 2;
/// DCTYPE: a direct discovery controller, which tells of its own target.
pub const DCTYPE_DIRECT: u8 = 1;
/// OFCS bit 0: Disconnect.
pub const OFCS_DISCONNECT: u16 = 1 << 0;

/// Bits of OACS.
pub mod oacs {
    /// Doorbell Buffer Config.
    pub const DOORBELL_BUFFER_CONFIG: u16 = 1 << 8;
}

/// Bits of SGLS.
pub mod sgls {
    /// 1:0 = 01b: SGLs supported, no alignment required.
    pub const SUPPORTED: u32 = 0b01;
    /// Keyed SGL data block (RDMA).
    pub const KEYED_DATA_BLOCK: u32 = 1 << 2;
    /// SGL length may exceed the data.
    pub const LENGTH_LARGER_THAN_DATA: u32 = 1 << 18;
    /// Address of an SGL data block may be an offset into the capsule.
    pub const OFFSET_SUPPORTED: u32 = 1 << 20;
    /// Transport SGL data block.
    pub const TRANSPORT_DATA_BLOCK: u32 = 1 << 21;
}

/// Identify Namespace of the NVM command set (CNS 00h).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// NSZE, blocks.
    pub nsze: U64,
    /// NCAP, blocks.
    pub ncap: U64,
    /// NUSE, blocks.
    pub nuse: U64,
    /// NSFEAT: see [`nsfeat`].
    pub nsfeat: u8,
    /// NLBAF, zero-based.
    pub nlbaf_z: u8,
    /// FLBAS: format in use in 3:0.
    pub flbas: u8,
    /// MC.
    pub mc: u8,
    /// DPC.
    pub dpc: u8,
    /// DPS.
    pub dps: u8,
    /// NMIC: bit 0 = may be attached to several controllers.
    pub nmic: u8,
    /// RESCAP.
    pub rescap: u8,
    /// FPI.
    pub fpi: u8,
    /// DLFEAT: see [`crate::nvm::dlfeat`].
    pub dlfeat: u8,
    /// NAWUN, zero-based.
    pub nawun_z: U16,
    /// NAWUPF, zero-based.
    pub nawupf_z: U16,
    /// NACWU, zero-based.
    pub nacwu_z: U16,
    /// NABSN, zero-based.
    pub nabsn_z: U16,
    /// NABO.
    pub nabo: U16,
    /// NABSPF, zero-based.
    pub nabspf_z: U16,
    /// NOIOB: optimal I/O boundary, blocks; 0 = none.
    pub noiob: U16,
    /// NVMCAP, bytes.
    pub nvmcap: U128,
    /// NPWG: preferred write granularity, zero-based blocks.
    pub npwg_z: U16,
    /// NPWA: preferred write alignment, zero-based blocks.
    pub npwa_z: U16,
    /// NPDG, zero-based.
    pub npdg_z: U16,
    /// NPDA, zero-based.
    pub npda_z: U16,
    /// NOWS: optimal write size, zero-based blocks.
    pub nows_z: U16,
    /// MSSRL: longest source range of a Copy, blocks.
    pub mssrl: U16,
    /// MCL: blocks of all source ranges of a Copy.
    pub mcl: U32,
    /// MSRC: source ranges of a Copy, zero-based.
    pub msrc_z: u8,
    /// KPIOS.
    pub kpios: u8,
    /// NULBAF.
    pub nulbaf: u8,
    /// Reserved.
    pub reserved_83: u8,
    /// KPIODAAG.
    pub kpiodaag: U32,
    /// Reserved.
    pub reserved_88: [u8; 4],
    /// ANAGRPID.
    pub anagrpid: U32,
    /// Reserved.
    pub reserved_96: [u8; 3],
    /// NSATTR: see [`NSATTR_WRITE_PROTECTED`].
    pub nsattr: u8,
    /// NVMSETID.
    pub nvmsetid: U16,
    /// ENDGID.
    pub endgid: U16,
    /// NGUID; zeros = none.
    pub nguid: [u8; 16],
    /// EUI64; zeros = none.
    pub eui64: [u8; 8],
    /// LBA formats.
    pub lbaf: [LbaFormat; 64],
    /// Vendor specific.
    pub vendor_384: [u8; 3712],
}
assert_bytes!(IdentifyNamespace, 4096);

impl IdentifyNamespace {
    /// All zeros: what an inactive NSID answers.
    pub fn zeroed() -> IdentifyNamespace {
        IdentifyNamespace::new_zeroed()
    }
}

/// NSATTR bit 0: currently write protected.
pub const NSATTR_WRITE_PROTECTED: u8 = 1 << 0;

/// Bits of NSFEAT.
pub mod nsfeat {
    /// NAWUN, NAWUPF and NACWU are defined.
    pub const ATOMIC_SIZES: u8 = 1 << 1;
    /// NPWG, NPWA, NPDG, NPDA and NOWS are defined.
    pub const OPTIMAL_PERFORMANCE: u8 = 1 << 4;
    /// OPTRPERF: NPRG, NPRA and NORS (CNS 05h) are defined.
    pub const OPTIMAL_READ_PERFORMANCE: u8 = 1 << 7;
    /// UIDREUSE: NGUID and EUI64 are never used again.
    pub const IDENTIFIERS_NOT_REUSED: u8 = 1 << 3;
}

/// LBA format (4 bytes).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LbaFormat {
    /// MS: metadata bytes.
    pub metadata_bytes: U16,
    /// LBADS: a block has 2 ^ LBADS bytes.
    pub lbads: u8,
    /// RP: relative performance, 0 = best.
    pub relative_performance: u8,
}
assert_bytes!(LbaFormat, 4);

/// I/O Command Set specific Identify Namespace of the NVM command set (CNS 05h, CSI 0).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NvmIdentifyNamespace {
    /// LBSTM.
    pub lbstm: U64,
    /// PIC.
    pub pic: u8,
    /// Reserved.
    pub reserved_9: [u8; 3],
    /// Extended LBA formats.
    pub elbaf: [U32; 64],
    /// NPDGL: preferred deallocate granularity, zero-based blocks.
    pub npdgl_z: U32,
    /// NPRG: preferred read granularity, zero-based blocks.
    pub nprg_z: U32,
    /// NPRA: preferred read alignment, zero-based blocks.
    pub npra_z: U32,
    /// NORS: optimal read size, zero-based blocks.
    pub nors_z: U32,
    /// NPDAL: preferred deallocate alignment, zero-based blocks.
    pub npdal_z: U32,
    /// Later fields: 0 = not reported.
    pub reserved_288: [u8; 3808],
}
assert_bytes!(NvmIdentifyNamespace, 4096);

/// I/O Command Set specific Identify Controller of the NVM command set (CNS 06h, CSI 0).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NvmIdentifyController {
    /// VSL: Verify size limit.
    pub vsl: u8,
    /// WZSL: Write Zeroes size limit.
    pub wzsl: u8,
    /// WUSL: Write Uncorrectable size limit.
    pub wusl: u8,
    /// DMRL: ranges of one Dataset Management.
    pub dmrl: u8,
    /// DMRSL: blocks of one range.
    pub dmrsl: U32,
    /// DMSL: blocks of all ranges.
    pub dmsl: U64,
    /// Later limits: 0 = not reported.
    pub reserved_16: [u8; 4080],
}
assert_bytes!(NvmIdentifyController, 4096);

/// I/O Command Set Independent Identify Namespace (CNS 08h).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IndependentIdentifyNamespace {
    /// NSFEAT: common bits.
    pub nsfeat: u8,
    /// NMIC.
    pub nmic: u8,
    /// RESCAP.
    pub rescap: u8,
    /// FPI.
    pub fpi: u8,
    /// ANAGRPID.
    pub anagrpid: U32,
    /// NSATTR.
    pub nsattr: u8,
    /// Reserved.
    pub reserved_9: u8,
    /// NVMSETID.
    pub nvmsetid: U16,
    /// ENDGID.
    pub endgid: U16,
    /// NSTAT: bit 0 = ready.
    pub nstat: u8,
    /// KPIOS and later.
    pub reserved_15: [u8; 4081],
}
assert_bytes!(IndependentIdentifyNamespace, 4096);

/// NSTAT bit 0: NRDY, the namespace is ready.
pub const NSTAT_READY: u8 = 1 << 0;

/// Header of a namespace identification descriptor (CNS 03h); NIDL bytes follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NamespaceDescriptorHeader {
    /// NIDT: see [`NamespaceIdType`].
    pub nidt: u8,
    /// NIDL: bytes of the identifier.
    pub nidl: u8,
    /// Reserved.
    pub reserved_2: [u8; 2],
}
assert_bytes!(NamespaceDescriptorHeader, 4);

open_enum! {
    /// NIDT.
    pub struct NamespaceIdType(u8) {
        /// EUI64, 8 bytes.
        EUI64 = 1,
        /// NGUID, 16 bytes.
        NGUID = 2,
        /// UUID, 16 bytes.
        UUID = 3,
        /// CSI, 1 byte.
        CSI = 4,
    }
}
