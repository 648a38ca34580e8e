//! Sizes of a function, and what its client can make us hold.

use std::time::Duration;

/// Mappings of a client's memory at a time.
pub const CLIENT_MAPPINGS_MAX: u64 = vfio_user::limits::DMA_MAPS_MAX as u64;
/// I/O queue pairs that a function has doorbells and interrupt vectors for.
pub(crate) const IO_QUEUES_MAX: u16 = 64;
/// MSI-X vectors: one for each completion queue, the admin queue's among them.
pub(crate) const VECTORS: u16 = IO_QUEUES_MAX + 1;
/// BAR0: registers, doorbells, the MSI-X table, its pending bits; a page of each.
pub(crate) const BAR0_BYTES: u64 = 16 << 10;
/// The doorbells' page, which a client may map where they are polled.
pub(crate) const DOORBELL_PAGE_BYTES: u64 = 4096;
/// Where in BAR0 the MSI-X table is.
pub(crate) const MSIX_TABLE_AT: u64 = 0x2000;
/// Where its pending bits are.
pub(crate) const MSIX_PENDING_AT: u64 = 0x3000;
/// Bytes of the MSI-X table.
pub(crate) const MSIX_TABLE_BYTES: u64 = VECTORS as u64 * 16;
/// Configuration space of a PCI Express function.
pub(crate) const CONFIG_BYTES: u64 = 4096;
/// Entries of an admin queue (AQA has 12 bits for it).
pub(crate) const ADMIN_ENTRIES_MAX: u32 = 4096;
/// Messages of a client in one turn of its reactor.
pub(crate) const MESSAGES_A_TURN: u32 = 64;
/// Entries that are copied out of a queue at a time.
pub(crate) const FETCH_MAX: usize = 8;
/// Entries that one queue takes in one turn of its reactor.
pub(crate) const FETCHES_A_TURN: usize = 128;
/// Bytes that are moved while answers wait for others to share a line with: what a few small commands move.
pub(crate) const HELD_BYTES_MAX: u64 = 16 << 10;
/// How long a queue looks for further commands in the guest's memory after the last one: as long as reactors spin.
pub(crate) const LOOK_TIME: Duration = Duration::from_micros(100);
/// When a send that the client took nothing of is tried again, and how long it has for it in all.
pub(crate) const SEND_AGAIN: Duration = Duration::from_millis(2);
/// See [`SEND_AGAIN`]. QEMU waits five seconds for a reply.
pub(crate) const SEND_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of guest memory that one DMA_READ or DMA_WRITE asks for, where the client takes so many. Linux takes a message of up to 36 KiB into a Unix socket whole or not at
/// all. Of a longer answer it may take a part; QEMU 11.1 takes that for the whole, and is out of step from then on.
pub(crate) const DMA_BYTES_MAX: u32 = 32 << 10;
/// Such messages of one queue at a time.
pub(crate) const ASKS_OF_QUEUE_MAX: usize = 3;
/// How long a client has to answer one. The command fails then, and so do others at once until the client has answered what it was asked.
pub(crate) const DMA_PATIENCE: Duration = Duration::from_secs(5);
/// How long a command's data may take that go by messages, all of them together: as long as a command may wait elsewhere.
pub(crate) const MOVE_PATIENCE: Duration = Duration::from_secs(25);
/// How long a reset of the device may take before its client is told that it did not happen: QEMU gives up after five seconds.
pub(crate) const RESET_PATIENCE: Duration = Duration::from_secs(4);

const _: () = assert!(
    ASKS_OF_QUEUE_MAX * (IO_QUEUES_MAX as usize + 1) <= vfio_user::limits::DMA_REQUESTS_MAX
);
const _: () = assert!(DMA_BYTES_MAX <= vfio_user::limits::DATA_BYTES_MAX);
const _: () = assert!(MSIX_TABLE_AT + MSIX_TABLE_BYTES <= MSIX_PENDING_AT);
const _: () = assert!(MSIX_PENDING_AT + (VECTORS as u64).div_ceil(64) * 8 <= BAR0_BYTES);
const _: () = assert!(nvme::pcie::doorbell_bytes(IO_QUEUES_MAX) <= DOORBELL_PAGE_BYTES);
const _: () = assert!(nvme::pcie::DOORBELLS_AT + DOORBELL_PAGE_BYTES <= MSIX_TABLE_AT);
