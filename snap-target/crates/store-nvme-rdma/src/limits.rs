//! The named limits of a queue, in one place.

/// Memory of a queue through which data go: what is outstanding at once, beyond which commands wait. The largest transfer of a remote store fits four times.
pub(crate) const IO_STAGING_BYTES: usize = 4 << 20;
/// The same of an admin queue.
pub(crate) const ADMIN_STAGING_BYTES: usize = 1 << 20;
/// What staging is handed out in.
pub(crate) const STAGING_PAGE_BYTES: usize = 4 << 10;

/// In-capsule data are no more than this, whatever a controller offers: each command has room for them.
pub(crate) const IN_CAPSULE_BYTES_MAX: u32 = 8 << 10;
/// Capsules that are posted with one call of the device: each is a bind and a Send.
pub(crate) const CAPSULES_PER_POST_MAX: usize = verbs::limits::REQUESTS_PER_POST_MAX / 2;
/// Requests of a command: bind, Send, local invalidate.
pub(crate) const REQUESTS_PER_COMMAND: u32 = 3;
/// Completions that a turn takes, so that one queue does not hold its reactor.
pub(crate) const COMPLETIONS_PER_TURN_MAX: usize = 512;
/// RDMA Reads of the controller that may be in progress here (IRD), where the device has as many.
pub(crate) const READS_IN_PROGRESS_MAX: u8 = 16;

const _: () = assert!(IO_STAGING_BYTES >= nvme::initiator::TRANSFER_BYTES_MAX as usize);
const _: () = assert!(ADMIN_STAGING_BYTES >= nvme::initiator::TRANSFER_BYTES_MAX as usize);
