//! What a client can make us hold.

/// Bytes of a message's header.
pub const HEADER_BYTES: usize = 16;
/// Data of one REGION_READ, REGION_WRITE, DMA_READ or DMA_WRITE (`max_data_xfer_size`; the protocol's default).
pub const DATA_BYTES_MAX: u32 = 1 << 20;
/// A message: its header, the longest fixed part, and data.
pub const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + 64 + DATA_BYTES_MAX as usize;
/// Descriptors that one message brings (`max_msg_fds`): as many as QEMU sends.
pub const MESSAGE_FDS_MAX: usize = 16;
/// JSON of a VERSION message.
pub const VERSION_DATA_BYTES_MAX: usize = 4096;
/// Windows of the client's memory at a time (`max_dma_maps`). Each may be a mapping of this process, of which Linux allows 65,530 by default, for all
/// clients and everything else: 64 clients may have half of them.
pub const DMA_MAPS_MAX: u32 = 512;
/// Replies that the client has not taken: with more no message is read.
pub const OUTGOING_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
/// DMA_READ and DMA_WRITE that the client has not answered.
pub const DMA_REQUESTS_MAX: usize = 256;

/// The page size of DMA windows (`pgsizes`).
pub const PAGE_BYTES: u64 = 4096;

const _: () = assert!(VERSION_DATA_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(OUTGOING_BYTES_MAX > MESSAGE_BYTES_MAX);
