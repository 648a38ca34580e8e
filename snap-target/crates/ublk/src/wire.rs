//! The driver's structures and numbers (linux/ublk_cmd.h).

use nix::errno::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a sector: the unit in which the driver counts, whatever the block.
pub const SECTOR_BYTES: u32 = 512;
/// Requests of a queue, at most: UBLK_MAX_QUEUE_DEPTH.
pub const DEPTH_MAX: u16 = 4096;
/// Queues of a device, at most: UBLK_MAX_NR_QUEUES.
pub const QUEUES_MAX: u16 = 4096;
/// How a fetch ends whose queue is cancelled: UBLK_IO_RES_ABORT.
pub const ABORTED: Errno = Errno::ENODEV;

/// UBLKSRV_IO_BUF_OFFSET: where requests' data begin in the device's file.
const DATA_OFFSET: u64 = 0x8000_0000;
/// UBLK_TAG_OFF and UBLK_QID_OFF.
const TAG_SHIFT: u32 = 25;
const QUEUE_SHIFT: u32 = TAG_SHIFT + 16;

/// Where byte `byte` of a request's data lies in the device's file, for reads and writes with [`Features::USER_COPY`].
#[must_use]
pub fn copy_offset(queue: u16, tag: u16, byte: u32) -> u64 {
    DATA_OFFSET
        + (u64::from(queue) << QUEUE_SHIFT)
        + (u64::from(tag) << TAG_SHIFT)
        + u64::from(byte)
}

/// An ioctl's number: direction (1 write, 2 read), size, type 'u', number.
const fn number(direction: u32, number: u32, bytes: usize) -> u32 {
    // Sizes are 16 and 32.
    #[allow(clippy::cast_possible_truncation, reason = "16 or 32")]
    let bytes = bytes as u32;
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

const fn control_read(code: u32) -> u32 {
    number(2, code, size_of::<ControlCommand>())
}

const fn control_change(code: u32) -> u32 {
    number(3, code, size_of::<ControlCommand>())
}

pub(crate) const ADD_DEV: u32 = control_change(0x04);
pub(crate) const DEL_DEV: u32 = control_change(0x05);
pub(crate) const START_DEV: u32 = control_change(0x06);
pub(crate) const SET_PARAMS: u32 = control_change(0x08);
pub(crate) const GET_PARAMS: u32 = control_read(0x09);
pub(crate) const START_USER_RECOVERY: u32 = control_change(0x10);
pub(crate) const END_USER_RECOVERY: u32 = control_change(0x11);
pub(crate) const GET_DEV_INFO2: u32 = control_read(0x12);
pub(crate) const GET_FEATURES: u32 = control_read(0x13);
pub(crate) const DEL_DEV_ASYNC: u32 = control_read(0x14);
pub(crate) const UPDATE_SIZE: u32 = control_change(0x15);
pub(crate) const QUIESCE_DEV: u32 = control_change(0x16);

/// `struct ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct ControlCommand {
    pub(crate) device: u32,
    pub(crate) queue: u16,
    pub(crate) payload_bytes: u16,
    pub(crate) payload: u64,
    pub(crate) data: u64,
    pub(crate) path_bytes: u16,
    pub(crate) reserved: [u16; 3],
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct DeviceInfo {
    /// Queues.
    pub queues: u16,
    /// Requests that a queue has at a time.
    pub depth: u16,
    /// [`DeviceInfo::state`].
    state: u16,
    reserved0: u16,
    /// Bytes of one request, at most.
    pub request_bytes_max: u32,
    /// Its number.
    pub number: u32,
    /// Who serves it, or has; -1: nobody.
    pub server: i32,
    reserved1: u32,
    /// What it can.
    pub features: u64,
    /// Whatever its server put there when it made it: the driver keeps it.
    pub stamp: u64,
    /// Who made it.
    pub owner_uid: u32,
    owner_gid: u32,
    reserved2: [u64; 2],
}

impl DeviceInfo {
    /// A device that is to be.
    #[must_use]
    pub fn new(number: u32, queues: u16, depth: u16, request_bytes_max: u32) -> Self {
        Self {
            number,
            queues,
            depth,
            request_bytes_max,
            server: -1,
            ..Self::default()
        }
    }

    /// Where it is in its life.
    #[must_use]
    pub fn state(&self) -> DeviceState {
        match self.state {
            0 => DeviceState::Dead,
            1 => DeviceState::Live,
            // 3, FAIL_IO, is what a device has that fails requests meanwhile, which none of ours does.
            _ => DeviceState::Quiesced,
        }
    }

    /// The same in another place of its life, as the driver would say it.
    #[must_use]
    pub fn in_state(self, state: DeviceState) -> Self {
        let state = state as u16;
        Self { state, ..self }
    }

    /// Whether all of these are among its features.
    #[must_use]
    pub fn has(&self, features: Features) -> bool {
        Features(self.features).has(features)
    }
}

/// Where a device is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// It was not started, or is being deleted: there is no disk.
    Dead = 0,
    /// Somebody serves it, or it is not known yet that nobody does.
    Live = 1,
    /// Nobody serves it: its requests wait.
    Quiesced = 2,
}

/// UBLK_F_*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// The device outlives its server.
    pub const USER_RECOVERY: Self = Self(1 << 3);
    /// What its server had is issued again to the next one.
    pub const USER_RECOVERY_REISSUE: Self = Self(1 << 4);
    /// Whoever made it need not be privileged.
    pub const UNPRIVILEGED: Self = Self(1 << 5);
    /// Commands are encoded as ioctls.
    pub const IOCTL_ENCODE: Self = Self(1 << 6);
    /// Data are read and written at the device's file.
    pub const USER_COPY: Self = Self(1 << 7);
    /// [`Control::update_size`](crate::Control::update_size) is there (6.16).
    pub const UPDATE_SIZE: Self = Self(1 << 10);
    /// [`Control::quiesce`](crate::Control::quiesce) is there (6.16).
    pub const QUIESCE: Self = Self(1 << 12);

    /// Whether all of these are among them.
    #[must_use]
    pub fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Both.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Those that are in both.
    #[must_use]
    pub const fn within(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }
}

/// UBLK_ATTR_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes;

impl Attributes {
    /// It takes no writes.
    pub const READ_ONLY: u32 = 1 << 0;
    /// Writes may sit in a cache until a flush.
    pub const VOLATILE_CACHE: u32 = 1 << 2;
    /// Single writes can be durable.
    pub const FUA: u32 = 1 << 3;
}

/// `struct ublk_params`, as far as it is used.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Params {
    bytes: u32,
    types: u32,
    /// What every disk has.
    pub basic: Basic,
    /// What one has that takes discards.
    pub discard: Discard,
    reserved: u32,
}

/// `struct ublk_param_basic`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Basic {
    /// [`Attributes`].
    pub attributes: u32,
    /// The logical block: a power of two.
    pub logical_shift: u8,
    /// The physical one.
    pub physical_shift: u8,
    /// What requests cost least in.
    pub io_opt_shift: u8,
    /// The least that does not cost more than its bytes.
    pub io_min_shift: u8,
    /// Sectors of a request, at most.
    pub sectors_max: u32,
    /// Sectors of which no request crosses a multiple; 0: none.
    pub chunk_sectors: u32,
    /// Sectors of the disk.
    pub sectors: u64,
    /// Of a disk whose segments begin and end at multiples of something; 0.
    pub virt_boundary_mask: u64,
}

/// `struct ublk_param_discard`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Discard {
    /// Bytes before the first granule.
    pub alignment: u32,
    /// Bytes that are discarded as a whole, or not.
    pub granularity: u32,
    /// Sectors of a discard, at most.
    pub sectors_max: u32,
    /// Sectors of a zeroing, at most.
    pub zero_sectors_max: u32,
    /// Ranges of a discard, at most: the driver takes 1.
    pub segments_max: u16,
    /// 0.
    pub reserved: u16,
}

impl Params {
    /// UBLK_PARAM_TYPE_BASIC and UBLK_PARAM_TYPE_DISCARD.
    const BASIC: u32 = 1 << 0;
    const DISCARD: u32 = 1 << 1;

    /// Of a disk.
    #[must_use]
    pub fn new(basic: Basic, discard: Option<Discard>) -> Self {
        let of_discard = if discard.is_some() { Self::DISCARD } else { 0 };
        Self {
            types: Self::BASIC | of_discard,
            basic,
            discard: discard.unwrap_or_default(),
            ..Self::asked()
        }
    }

    /// To be filled by the driver.
    pub(crate) fn asked() -> Self {
        Self {
            // 64.
            bytes: u32::try_from(size_of::<Self>()).unwrap_or(0),
            ..Self::default()
        }
    }
}

/// `struct ublksrv_io_cmd`: what a server tells of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IoCommand {
    queue: u16,
    tag: u16,
    result: i32,
    address: u64,
}

impl IoCommand {
    /// Waits for the first request of a tag: UBLK_U_IO_FETCH_REQ.
    pub const FETCH: u32 = number(3, 0x20, size_of::<Self>());
    /// Ends the request of a tag, and waits for its next: UBLK_U_IO_COMMIT_AND_FETCH_REQ.
    pub const COMMIT_AND_FETCH: u32 = number(3, 0x21, size_of::<Self>());

    /// The bytes of a command. `result`: bytes that were moved, or an error, negative.
    #[must_use]
    pub fn bytes(queue: u16, tag: u16, result: i32) -> [u8; 16] {
        let command = Self {
            queue,
            tag,
            result,
            address: 0,
        };
        zerocopy::transmute!(command)
    }
}

/// `struct ublksrv_io_desc`: a request of the driver.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Descriptor {
    operation_and_flags: u32,
    /// How many sectors.
    pub sectors: u32,
    /// The first one.
    pub sector: u64,
    address: u64,
}

/// What a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Make what was written durable.
    Flush,
    /// Blocks are not needed any more.
    Discard,
    /// Zeros in blocks.
    WriteZeroes,
    /// What is not known here.
    Other(u8),
}

impl Descriptor {
    /// UBLK_IO_F_FUA and UBLK_IO_F_NOUNMAP.
    const FUA: u32 = 1 << 13;
    const NO_UNMAP: u32 = 1 << 15;

    /// As the driver would.
    #[must_use]
    pub fn new(operation: u8, flags: u32, sector: u64, sectors: u32) -> Self {
        Self {
            operation_and_flags: u32::from(operation) | flags,
            sectors,
            sector,
            address: 0,
        }
    }

    /// What it asks.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self.operation_and_flags.to_le_bytes()[0] {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            3 => Operation::Discard,
            5 => Operation::WriteZeroes,
            other => Operation::Other(other),
        }
    }

    /// It has ended when it is on stable storage.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.operation_and_flags & Self::FUA != 0
    }

    /// Zeros may be had by giving the room back.
    #[must_use]
    pub fn may_unmap(&self) -> bool {
        self.operation_and_flags & Self::NO_UNMAP == 0
    }
}

const _: () = assert!(size_of::<ControlCommand>() == 32);
const _: () = assert!(size_of::<DeviceInfo>() == 64);
const _: () = assert!(size_of::<Params>() == 64);
const _: () = assert!(size_of::<IoCommand>() == 16);
const _: () = assert!(size_of::<Descriptor>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that a C compiler makes of linux/ublk_cmd.h.
    #[test]
    fn commands_have_the_numbers_of_the_header() {
        let all = [
            (ADD_DEV, 0xC020_7504),
            (DEL_DEV, 0xC020_7505),
            (START_DEV, 0xC020_7506),
            (SET_PARAMS, 0xC020_7508),
            (GET_PARAMS, 0x8020_7509),
            (START_USER_RECOVERY, 0xC020_7510),
            (END_USER_RECOVERY, 0xC020_7511),
            (GET_DEV_INFO2, 0x8020_7512),
            (GET_FEATURES, 0x8020_7513),
            (DEL_DEV_ASYNC, 0x8020_7514),
            (UPDATE_SIZE, 0xC020_7515),
            (QUIESCE_DEV, 0xC020_7516),
            (IoCommand::FETCH, 0xC010_7520),
            (IoCommand::COMMIT_AND_FETCH, 0xC010_7521),
        ];
        for (ours, theirs) in all {
            assert_eq!(ours, theirs, "{theirs:#x}");
        }
    }

    #[test]
    fn data_of_requests_have_places_of_their_own() {
        assert_eq!(copy_offset(0, 0, 0), 0x8000_0000);
        assert_eq!(copy_offset(0, 1, 0), 0x8200_0000);
        assert_eq!(copy_offset(1, 0, 7), 0x200_8000_0007);
        // The last byte of a request of 32 MiB is before the next tag's first.
        assert_eq!(copy_offset(3, 9, (32 << 20) - 1) + 1, copy_offset(3, 10, 0));
    }

    #[test]
    fn a_descriptor_says_what_it_asks() {
        let of = |operation, flags| Descriptor::new(operation, flags, 8, 16);
        assert_eq!(of(0, 0).operation(), Operation::Read);
        assert_eq!(of(1, 1 << 13).operation(), Operation::Write);
        assert!(of(1, 1 << 13).is_durable() && !of(1, 1 << 11).is_durable());
        assert!(of(5, 0).may_unmap() && !of(5, 1 << 15).may_unmap());
        assert_eq!(of(4, 0).operation(), Operation::Other(4));
        let bytes = of(5, 1 << 15);
        let bytes: [u8; 24] = zerocopy::transmute!(bytes);
        assert_eq!(
            bytes[..16],
            [5, 0x80, 0, 0, 16, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn a_command_tells_queue_tag_and_result() {
        let bytes = IoCommand::bytes(2, 0x102, -5);
        let expected = [2, 0, 2, 1, 0xFB, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes, expected);
    }
}
