//! Get Log Page (Base, "Get Log Page command").

use super::association::Controller;
use super::discovery::pad;
use super::feature::SUPPORTED;
use crate::Time;
use nvme_spec::feature::{CAPABILITY_NAMESPACE_SPECIFIC, FeatureId};
use nvme_spec::identify::CSI_NVM;
use nvme_spec::log::{
    CommandsSupportedLog, FirmwareSlotLog, GetLogPage, LOG_SUPPORTED, LogPageId,
    SUPPORTED_LOG_BYTES, SmartLog, command_effect, feature_effect,
};
use nvme_spec::{AdminOpcode, IoOpcode, Nsid, Sqe, Status, U32, U128};
use zerocopy::{FromZeros, IntoBytes};

/// Log pages of an I/O controller.
const IO_PAGES: [LogPageId; 8] = [
    LogPageId::SUPPORTED_LOG_PAGES,
    LogPageId::ERROR_INFORMATION,
    LogPageId::SMART,
    LogPageId::FIRMWARE_SLOT,
    LogPageId::CHANGED_NAMESPACES,
    LogPageId::COMMANDS_SUPPORTED,
    LogPageId::FEATURES_SUPPORTED,
    LogPageId::RESERVATION_NOTIFICATION,
];

/// Log pages of a discovery controller.
const DISCOVERY_PAGES: [LogPageId; 2] = [LogPageId::SUPPORTED_LOG_PAGES, LogPageId::DISCOVERY];

/// Admin commands of an I/O controller.
const ADMIN_COMMANDS: [AdminOpcode; 7] = [
    AdminOpcode::GET_LOG_PAGE,
    AdminOpcode::IDENTIFY,
    AdminOpcode::ABORT,
    AdminOpcode::SET_FEATURES,
    AdminOpcode::GET_FEATURES,
    AdminOpcode::ASYNC_EVENT_REQUEST,
    AdminOpcode::KEEP_ALIVE,
];

/// Those of a PCIe function besides.
const PCIE_COMMANDS: [AdminOpcode; 5] = [
    AdminOpcode::DELETE_IO_SQ,
    AdminOpcode::CREATE_IO_SQ,
    AdminOpcode::DELETE_IO_CQ,
    AdminOpcode::CREATE_IO_CQ,
    AdminOpcode::DOORBELL_BUFFER_CONFIG,
];

/// I/O commands, and what they change.
const IO_COMMANDS: [(IoOpcode, u32); 13] = [
    (IoOpcode::FLUSH, 0),
    (
        IoOpcode::WRITE,
        command_effect::LOGICAL_BLOCK_CONTENT_CHANGE,
    ),
    (IoOpcode::READ, 0),
    (
        IoOpcode::WRITE_UNCORRECTABLE,
        command_effect::LOGICAL_BLOCK_CONTENT_CHANGE,
    ),
    (IoOpcode::COMPARE, 0),
    (
        IoOpcode::WRITE_ZEROES,
        command_effect::LOGICAL_BLOCK_CONTENT_CHANGE,
    ),
    (
        IoOpcode::DATASET_MANAGEMENT,
        command_effect::LOGICAL_BLOCK_CONTENT_CHANGE,
    ),
    (IoOpcode::VERIFY, 0),
    (IoOpcode::COPY, command_effect::LOGICAL_BLOCK_CONTENT_CHANGE),
    (IoOpcode::RESERVATION_REGISTER, 0),
    (IoOpcode::RESERVATION_REPORT, 0),
    (IoOpcode::RESERVATION_ACQUIRE, 0),
    (IoOpcode::RESERVATION_RELEASE, 0),
];

/// A part of a log page.
pub(super) struct Window {
    /// The page, or what of it lies in the window.
    page: Vec<u8>,
    /// Where in that the window begins.
    offset: usize,
    /// Bytes that the host asked for; those beyond the page read as zeros.
    pub bytes: u32,
}

impl Window {
    /// Copies the window into `out`, which is as long as it.
    pub fn copy_to(&self, out: &mut [u8]) {
        out.fill(0);
        let part = self.page.get(self.offset..).unwrap_or(&[]);
        for (to, from) in out.iter_mut().zip(part) {
            *to = *from;
        }
    }
}

/// What a Get Log Page asks for. A reading that succeeds has effects on events, and on what some pages hold.
pub(super) fn window(controller: &mut Controller, sqe: &Sqe, now: Time) -> Result<Window, Status> {
    let ask = GetLogPage::of(sqe);
    if ask.offset & 0b11 != 0 || ask.offset_is_index {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let bytes = u32::try_from(ask.bytes)
        .ok()
        .filter(|&bytes| bytes <= controller.limits().transfer_bytes_max)
        .ok_or(Status::INVALID_FIELD.dnr())?;
    let pages = if controller.is_discovery() {
        &DISCOVERY_PAGES[..]
    } else {
        &IO_PAGES[..]
    };
    if !pages.contains(&ask.id) {
        return Err(Status::INVALID_LOG_PAGE.dnr());
    }
    let beyond = Status::INVALID_FIELD.dnr();
    let (page, offset) = if ask.id == LogPageId::DISCOVERY {
        let part = controller.discovery_log(ask.offset, bytes);
        (part.ok_or(beyond)?, 0)
    } else {
        let page = page(controller, &ask, sqe.nsid(), pages, now)?;
        let offset = usize::try_from(ask.offset).map_err(|_| beyond)?;
        if offset > page.len() {
            return Err(beyond);
        }
        (page, offset)
    };
    controller.log_page_was_read(ask.id, ask.retain_event);
    Ok(Window {
        page,
        offset,
        bytes,
    })
}

fn page(
    controller: &Controller,
    ask: &GetLogPage,
    nsid: Nsid,
    pages: &[LogPageId],
    now: Time,
) -> Result<Vec<u8>, Status> {
    let page = match ask.id {
        LogPageId::SUPPORTED_LOG_PAGES => supported_pages(pages),
        LogPageId::ERROR_INFORMATION => controller.error_log().page(),
        // LPA bit 0 is 0: one log for the controller.
        LogPageId::SMART if !matches!(nsid, Nsid::NONE | Nsid::BROADCAST) => {
            return Err(Status::INVALID_FIELD.dnr());
        }
        LogPageId::SMART => smart(controller, now).as_bytes().to_vec(),
        LogPageId::FIRMWARE_SLOT => firmware_slots(controller.names().2).as_bytes().to_vec(),
        LogPageId::CHANGED_NAMESPACES => controller.async_events().changed(),
        LogPageId::COMMANDS_SUPPORTED if ask.csi != CSI_NVM => {
            return Err(Status::INVALID_FIELD.dnr());
        }
        LogPageId::COMMANDS_SUPPORTED => commands_supported(controller).as_bytes().to_vec(),
        LogPageId::FEATURES_SUPPORTED => features_supported(controller),
        LogPageId::RESERVATION_NOTIFICATION => controller.reservation_notification(),
        _ => return Err(Status::INVALID_LOG_PAGE.dnr()),
    };
    Ok(page)
}

/// 00h: 256 entries of 4 bytes, by LID.
fn supported_pages(pages: &[LogPageId]) -> Vec<u8> {
    by_code(|code| {
        if pages.iter().any(|page| page.0 == code) {
            LOG_SUPPORTED
        } else {
            0
        }
    })
}

/// 12h: 256 entries of 4 bytes, by FID.
fn features_supported(controller: &Controller) -> Vec<u8> {
    by_code(|code| {
        let feature = SUPPORTED
            .iter()
            .find(|feature| feature.id == FeatureId(code));
        match feature
            .filter(|feature| feature.is_there(controller.is_discovery(), controller.transport()))
        {
            None => 0,
            Some(feature) if feature.capabilities & CAPABILITY_NAMESPACE_SPECIFIC != 0 => {
                feature_effect::SUPPORTED | feature_effect::SCOPE_NAMESPACE
            }
            Some(_) => feature_effect::SUPPORTED | feature_effect::SCOPE_CONTROLLER,
        }
    })
}

fn by_code(entry: impl Fn(u8) -> u32) -> Vec<u8> {
    let page: Vec<u8> = (0..=u8::MAX)
        .flat_map(|code| entry(code).to_le_bytes())
        .collect();
    debug_assert!(page.len() == SUPPORTED_LOG_BYTES);
    page
}

/// 02h. No temperature sensor, no wear: those fields are zero, spare is full.
fn smart(controller: &Controller, now: Time) -> SmartLog {
    let lifetime = controller.health().lifetime(now);
    let counters = lifetime.counters;
    let mut log = SmartLog::new_zeroed();
    log.available_spare = 100;
    log.data_units_read = data_units(counters.bytes_read);
    log.data_units_written = data_units(counters.bytes_written);
    log.host_read_commands = U128::new(counters.read_commands);
    log.host_write_commands = U128::new(counters.write_commands);
    log.controller_busy_minutes = U128::new(counters.busy_nanos / (60 * 1_000_000_000));
    log.power_cycles = U128::new(lifetime.power_cycles.into());
    log.power_on_hours = U128::new(lifetime.power_on_hours().into());
    log.unsafe_shutdowns = U128::new(lifetime.unsafe_shutdowns.into());
    log.media_errors = U128::new(counters.media_errors);
    log.error_log_entries = U128::new(counters.error_log_entries.into());
    log
}

/// Thousands of 512 bytes, rounded up (Base, "SMART / Health Information": Data Units Read).
fn data_units(bytes: u128) -> U128 {
    U128::new(bytes.div_ceil(512_000))
}

/// 03h.
fn firmware_slots(revision: &str) -> FirmwareSlotLog {
    let mut log = FirmwareSlotLog::new_zeroed();
    log.active_slot = 1;
    pad(&mut log.revisions[0], revision);
    log
}

/// 05h.
fn commands_supported(controller: &Controller) -> CommandsSupportedLog {
    let mut log = CommandsSupportedLog::new_zeroed();
    let of_pcie = PCIE_COMMANDS.iter().filter(|it| controller.supports(**it));
    for opcode in ADMIN_COMMANDS.iter().chain(of_pcie) {
        log.admin[usize::from(opcode.0)] = U32::new(command_effect::SUPPORTED);
    }
    for (opcode, effects) in IO_COMMANDS {
        log.io[usize::from(opcode.0)] = U32::new(command_effect::SUPPORTED | effects);
    }
    log
}
