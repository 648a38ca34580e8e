//! Identify (Base, "Identify command"; NVM, "Identify command").

use super::association::Controller;
use super::discovery::pad;
use super::keep_alive::KAS_100MS;
use super::subsystem::NAMESPACES_MAX;
use super::{
    COPY_FORMATS, COPY_RANGES_MAX, FUSED_BLOCKS_MAX, NamespaceInfo, NamespaceSet, copy_blocks_max,
};
use crate::nqn::Nqn;
use nvme_spec::identify::{
    CSI_NVM, Cns, ControllerType, DCTYPE_DIRECT, IdentifyController, IdentifyNamespace,
    IndependentIdentifyNamespace, LbaFormat, NSATTR_WRITE_PROTECTED, NSTAT_READY, NWPC_PERMANENT,
    NWPC_UNTIL_POWER_CYCLE, NWPC_WRITE_PROTECT, NamespaceDescriptorHeader, NamespaceIdType,
    NvmIdentifyController, NvmIdentifyNamespace, cmic, ctratt, lpa, nsfeat, oacs, vwc,
};
use nvme_spec::nvm::{FUSES_COMPARE_AND_WRITE, dlfeat, oncs};
use nvme_spec::reservation::rescap;
use nvme_spec::{
    IDENTIFY_BYTES, NSID_LIST_ENTRIES, Nsid, Sqe, Status, U16, U32, U64, U128, VERSION_2_0,
};
use zerocopy::{FromZeros, IntoBytes};

/// Optional commands that [`super::parse_io`] knows (ONCS).
const IO_COMMANDS: u16 = oncs::COMPARE
    | oncs::WRITE_UNCORRECTABLE
    | oncs::DATASET_MANAGEMENT
    | oncs::WRITE_ZEROES
    | oncs::VERIFY
    | oncs::COPY;
/// MSRC.
#[expect(clippy::cast_possible_truncation, reason = "at most 256 - 1: 8 bits")]
const COPY_RANGES_MAX_Z: u8 = (COPY_RANGES_MAX - 1) as u8;
/// SQES and CQES: entries have exactly 64 and 16 bytes.
const SQES: u8 = 0x66;
const CQES: u8 = 0x44;
/// CQT (TP4129): this long after an association was lost nothing of it begins any more. What a store still has then keeps other hosts' writes to
/// that namespace waiting, so that none of them is overtaken.
const QUIESCE_MS: u16 = 1000;
/// WCTEMP, as Base recommends, and CCTEMP: neither may be 0. Nothing here has a temperature that would reach them.
pub(super) const WARNING_TEMPERATURE_K: u16 = 0x157;
const CRITICAL_TEMPERATURE_K: u16 = WARNING_TEMPERATURE_K + 10;
/// FRMW: one firmware slot, read-only.
const FRMW: u8 = 0b0011;
/// NMIC bit 0: may be attached to several controllers.
const NMIC_SHARED: u8 = 1 << 0;

/// The data structure that an Identify asks for.
pub(super) fn structure(controller: &Controller, sqe: &Sqe) -> Result<Vec<u8>, Status> {
    let cns = Cns(sqe.cdw10.to_bytes()[0]);
    if controller.is_discovery() {
        return match cns {
            Cns::CONTROLLER => Ok(controller_structure(controller).as_bytes().to_vec()),
            _ => Err(Status::INVALID_FIELD.dnr()),
        };
    }
    let namespaces = controller.namespaces();
    let nsid = sqe.nsid();
    let csi = sqe.cdw11.to_bytes()[3];
    match cns {
        Cns::NAMESPACE => {
            of_namespace(namespaces, nsid, |info| namespace(info).as_bytes().to_vec())
        }
        Cns::CONTROLLER => Ok(controller_structure(controller).as_bytes().to_vec()),
        Cns::ACTIVE_NAMESPACES => nsid_list(namespaces, nsid),
        Cns::NAMESPACE_DESCRIPTORS => descriptors(namespaces, nsid),
        Cns::IO_COMMAND_SET_NAMESPACE if csi != CSI_NVM => {
            Err(Status::INVALID_IO_COMMAND_SET.dnr())
        }
        Cns::IO_COMMAND_SET_NAMESPACE => of_namespace(namespaces, nsid, |info| {
            nvm_namespace(info).as_bytes().to_vec()
        }),
        Cns::IO_COMMAND_SET_CONTROLLER | Cns::IO_COMMAND_SET_ACTIVE_NAMESPACES
            if csi != CSI_NVM =>
        {
            Err(Status::INVALID_FIELD.dnr())
        }
        // Commands without data have no limit but NLB's, and Dataset Management none but NR's: zeros.
        Cns::IO_COMMAND_SET_CONTROLLER => {
            Ok(NvmIdentifyController::new_zeroed().as_bytes().to_vec())
        }
        Cns::IO_COMMAND_SET_ACTIVE_NAMESPACES => nsid_list(namespaces, nsid),
        Cns::INDEPENDENT_NAMESPACE => of_namespace(namespaces, nsid, |info| {
            independent(info).as_bytes().to_vec()
        }),
        Cns::IO_COMMAND_SETS => command_sets(controller, sqe),
        _ => Err(Status::INVALID_FIELD.dnr()),
    }
}

/// CNS 00h, 05h, 08h: an inactive NSID reads as zeros, an invalid one fails (Base, "Identify Namespace data structure").
fn of_namespace(
    namespaces: &NamespaceSet,
    nsid: Nsid,
    make: impl FnOnce(&NamespaceInfo) -> Vec<u8>,
) -> Result<Vec<u8>, Status> {
    if nsid == Nsid::NONE || nsid.0 > NAMESPACES_MAX {
        return Err(Status::INVALID_NAMESPACE.dnr());
    }
    Ok(namespaces
        .get(nsid)
        .map_or_else(|| vec![0; IDENTIFY_BYTES], make))
}

fn controller_structure(controller: &Controller) -> IdentifyController {
    let limits = controller.limits();
    let (serial, model, firmware) = controller.names();
    let mut id = IdentifyController::zeroed();
    pad(&mut id.sn, serial);
    pad(&mut id.mn, model);
    pad(&mut id.fr, firmware);
    id.mdts = limits.mdts();
    id.cntlid = U16::new(controller.id().0);
    id.ver = U32::new(VERSION_2_0);
    id.oaes = U32::new(controller.notices());
    id.ctratt = U32::new(ctratt::HOST_ID_128);
    id.aerl_z = limits.async_events_max - 1;
    id.acl_z = limits.aborts_max - 1;
    id.elpe_z = limits.error_log_entries - 1;
    id.frmw = FRMW;
    id.kas_100ms = U16::new(KAS_100MS);
    id.sqes = SQES;
    id.cqes = CQES;
    id.maxcmd = U16::new(limits.queue_entries_max);
    id.sgls = U32::new(controller.transport().sgls());
    if controller.transport().is_fabric() {
        id.ioccsz_16b = U32::new(limits.ioccsz_16b());
        id.iorcsz_16b = U32::new(1);
        id.msdbd = 1;
    } else if controller.has_doorbell_buffers {
        id.oacs = U16::new(oacs::DOORBELL_BUFFER_CONFIG);
    }
    if controller.is_discovery() {
        id.cntrltype = ControllerType::DISCOVERY.0;
        id.dctype = DCTYPE_DIRECT;
        id.lpa = lpa::EXTENDED_DATA;
        id.subnqn = Nqn::discovery().to_field();
        return id;
    }
    id.cntrltype = ControllerType::IO.0;
    id.cqt_ms = U16::new(QUIESCE_MS);
    (id.wctemp_k, id.cctemp_k) = (
        U16::new(WARNING_TEMPERATURE_K),
        U16::new(CRITICAL_TEMPERATURE_K),
    );
    id.ctratt = U32::new(ctratt::HOST_ID_128 | ctratt::RESERVATIONS_NEED_HOST_ID);
    id.lpa = lpa::COMMANDS_SUPPORTED | lpa::EXTENDED_DATA | lpa::SUPPORTED_LOG_PAGES;
    id.cmic = cmic::MULTIPLE_PORTS | cmic::MULTIPLE_CONTROLLERS;
    let [crdt1, crdt2, crdt3] = limits.retry_delays_100ms;
    id.crdt1_100ms = U16::new(crdt1);
    id.crdt2_100ms = U16::new(crdt2);
    id.crdt3_100ms = U16::new(crdt3);
    id.nn = U32::new(NAMESPACES_MAX);
    id.mnan = U32::new(NAMESPACES_MAX);
    id.oncs = U16::new(oncs::SAVE_SELECT | oncs::RESERVATIONS | oncs::TIMESTAMP | IO_COMMANDS);
    id.fuses = U16::new(FUSES_COMPARE_AND_WRITE);
    id.acwu_z = U16::new(FUSED_BLOCKS_MAX - 1);
    id.ocfs = U16::new(COPY_FORMATS);
    // Whatever namespaces there are: a host looks once, when it connects, and a disk attached later would never be flushed.
    id.vwc = vwc::FLUSH_ALL_SUPPORTED | vwc::PRESENT;
    id.nwpc = NWPC_WRITE_PROTECT | NWPC_UNTIL_POWER_CYCLE | NWPC_PERMANENT;
    if let Some(subsystem) = controller.subsystem() {
        id.subnqn = subsystem.nqn.to_field();
    }
    id
}

fn namespace(info: &NamespaceInfo) -> IdentifyNamespace {
    let mut id = IdentifyNamespace::zeroed();
    id.nsze = U64::new(info.block_count);
    id.ncap = U64::new(info.block_count);
    id.nuse = U64::new(info.block_count);
    id.nsfeat = common_nsfeat(info);
    id.nmic = NMIC_SHARED;
    id.rescap = rescap(info);
    if info.deallocated_reads_zeros {
        id.dlfeat = dlfeat::READS_ZEROS | dlfeat::WRITE_ZEROES_DEALLOCATES;
    }
    let copy_blocks = copy_blocks_max(info.lba_bytes);
    id.mssrl = U16::new(copy_blocks);
    id.mcl = U32::new(u32::from(copy_blocks));
    id.msrc_z = COPY_RANGES_MAX_Z;
    if info.atomic_blocks > 1 {
        let atomic_z = U16::new(info.atomic_blocks - 1);
        id.nsfeat |= nsfeat::ATOMIC_SIZES;
        // A write is whole within a multiple of it, with power or without: size and boundary are one.
        (id.nawun_z, id.nawupf_z) = (atomic_z, atomic_z);
        (id.nabsn_z, id.nabspf_z) = (atomic_z, atomic_z);
    }
    id.noiob = U16::new(info.optimal_boundary_blocks);
    id.nvmcap = U128::new(u128::from(info.block_count) * u128::from(info.lba_bytes));
    if let Some(optimal_z) = info.optimal_blocks.checked_sub(1) {
        id.nsfeat |= nsfeat::OPTIMAL_PERFORMANCE | nsfeat::OPTIMAL_READ_PERFORMANCE;
        id.npwg_z = U16::new(optimal_z);
        id.npwa_z = U16::new(optimal_z);
        id.nows_z = U16::new(optimal_z);
        id.npdg_z = U16::new(optimal_z);
        id.npda_z = U16::new(optimal_z);
    }
    id.nsattr = nsattr(info);
    id.nguid = info.nguid;
    id.eui64 = info.eui64.unwrap_or_default();
    id.lbaf[0] = LbaFormat {
        metadata_bytes: U16::ZERO,
        lbads: info.lbads(),
        relative_performance: 0,
    };
    id
}

/// CNS 05h: no protection information, no extended formats; how reads cost least.
fn nvm_namespace(info: &NamespaceInfo) -> NvmIdentifyNamespace {
    let mut id = NvmIdentifyNamespace::new_zeroed();
    if let Some(optimal_z) = info.optimal_blocks.checked_sub(1) {
        let optimal_z = U32::new(u32::from(optimal_z));
        (id.nprg_z, id.npra_z, id.nors_z) = (optimal_z, optimal_z, optimal_z);
    }
    id
}

fn independent(info: &NamespaceInfo) -> IndependentIdentifyNamespace {
    let mut id = IndependentIdentifyNamespace::new_zeroed();
    id.nsfeat = common_nsfeat(info);
    id.nmic = NMIC_SHARED;
    id.rescap = rescap(info);
    id.nsattr = nsattr(info);
    id.nstat = NSTAT_READY;
    id
}

/// RESCAP.
fn rescap(info: &NamespaceInfo) -> u8 {
    let persistence = if info.keeps_reservations {
        rescap::PERSIST_THROUGH_POWER_LOSS
    } else {
        0
    };
    rescap::ALL_TYPES | rescap::IGNORE_EXISTING_KEY_1_3 | persistence
}

/// UIDREUSE: identifiers are a function of the content, so the same one never names another.
fn common_nsfeat(info: &NamespaceInfo) -> u8 {
    if info.nguid != [0; 16] || info.eui64.is_some() {
        nsfeat::IDENTIFIERS_NOT_REUSED
    } else {
        0
    }
}

fn nsattr(info: &NamespaceInfo) -> u8 {
    if info.is_protected() {
        NSATTR_WRITE_PROTECTED
    } else {
        0
    }
}

/// CNS 02h, 07h: active NSIDs greater than the one given.
fn nsid_list(namespaces: &NamespaceSet, after: Nsid) -> Result<Vec<u8>, Status> {
    if after.0 >= 0xFFFF_FFFE {
        return Err(Status::INVALID_NAMESPACE.dnr());
    }
    let listed = namespaces
        .iter()
        .map(|info| info.nsid)
        .filter(|&nsid| nsid > after)
        .take(NSID_LIST_ENTRIES);
    let mut list: Vec<u8> = listed.flat_map(|nsid| nsid.0.to_le_bytes()).collect();
    list.resize(IDENTIFY_BYTES, 0);
    Ok(list)
}

/// CNS 03h: every identifier that is there, and the command set.
fn descriptors(namespaces: &NamespaceSet, nsid: Nsid) -> Result<Vec<u8>, Status> {
    let info = namespaces
        .get(nsid)
        .ok_or(Status::INVALID_NAMESPACE.dnr())?;
    let mut list = Vec::with_capacity(IDENTIFY_BYTES);
    let mut add = |id_type: NamespaceIdType, id: &[u8]| {
        let nidl = u8::try_from(id.len()).unwrap_or(0);
        let header = NamespaceDescriptorHeader {
            nidt: id_type.0,
            nidl,
            reserved_2: [0; 2],
        };
        list.extend_from_slice(header.as_bytes());
        list.extend_from_slice(id);
    };
    if let Some(eui64) = &info.eui64 {
        add(NamespaceIdType::EUI64, eui64);
    }
    if info.nguid != [0; 16] {
        add(NamespaceIdType::NGUID, &info.nguid);
    }
    if info.uuid != [0; 16] {
        add(NamespaceIdType::UUID, &info.uuid);
    }
    add(NamespaceIdType::CSI, &[CSI_NVM]);
    list.resize(IDENTIFY_BYTES, 0);
    Ok(list)
}

/// CNS 1Ch: one combination, the NVM command set alone. CNTID in CDW10 31:16, FFFFh = this controller.
fn command_sets(controller: &Controller, sqe: &Sqe) -> Result<Vec<u8>, Status> {
    let [_, _, low, high] = sqe.cdw10.to_bytes();
    let cntid = u16::from_le_bytes([low, high]);
    if cntid != 0xFFFF && cntid != controller.id().0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let mut combinations = vec![0; IDENTIFY_BYTES];
    if let Some(first) = combinations.first_mut() {
        *first = 1 << CSI_NVM;
    }
    Ok(combinations)
}
