//! Every limit of this crate, in one place. A device may allow less ([`crate::DeviceAttributes`]); nothing here allows more.

use std::time::Duration;

/// Private data of a connect request. The message has 92 bytes, of which the IP addressing header takes 36 (InfiniBand spec, annex A11).
pub const CONNECT_DATA_BYTES_MAX: usize = 56;
/// Private data of an accept (InfiniBand spec 12.6.8, REP).
pub const ACCEPT_DATA_BYTES_MAX: usize = 196;
/// Private data of a reject (InfiniBand spec 12.6.7, REJ).
pub const REJECT_DATA_BYTES_MAX: usize = 148;
/// Retries after a lost acknowledgement (a field of three bits, InfiniBand spec 12.7.38).
pub const RETRY_COUNT_MAX: u8 = 7;
/// Retries after "receiver not ready"; this value itself means without end (InfiniBand spec 12.7.39).
pub const RNR_RETRY_ENDLESS: u8 = 7;
/// Connect requests that may wait for an answer at one listener.
pub const BACKLOG_MAX: u32 = 4096;
/// Longest wait for an address or a route.
pub const RESOLVE_TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Bytes of one message (InfiniBand spec 9.7.8: 2^31).
pub const MESSAGE_BYTES_MAX: u64 = 1 << 31;
/// Scatter entries of one work request.
pub const SCATTER_ENTRIES_MAX: u32 = 32;
/// Bytes that a work request may carry in itself.
pub const INLINE_BYTES_MAX: u32 = 1024;
/// Work requests that a queue holds.
pub const WORK_REQUESTS_MAX: u32 = 1 << 15;
/// Entries of a completion queue.
pub const COMPLETION_ENTRIES_MAX: u32 = 1 << 20;
/// Completions that one poll takes.
pub const COMPLETIONS_PER_POLL_MAX: usize = 32;
/// Work requests that are handed to the device at once; longer lists are handed over in parts.
pub const REQUESTS_PER_POST_MAX: usize = 32;
/// Entries of a device's GID table that are read.
pub const GIDS_MAX: usize = 1024;
/// Devices that are listed.
pub const DEVICES_MAX: usize = 256;
