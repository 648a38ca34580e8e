//! How many, how large.

/// Members of an array.
pub const MEMBERS_MAX: usize = 16;
/// Smallest stripe unit: a read or write is cut into one operation for each unit.
pub const UNIT_BYTES_MIN: u32 = 64 << 10;
/// Largest stripe unit.
pub const UNIT_BYTES_MAX: u32 = 64 << 20;
/// Operations in flight on one handle.
pub const QUEUE_DEPTH_MAX: u32 = 128;
/// Of them, reads ahead: the other half is for those that are waited for.
pub const AHEAD_MAX: u32 = QUEUE_DEPTH_MAX / 2;
/// Reads that a handle remembers, by the replica that served them: more than are under way, in decoding too.
pub(crate) const SERVED_MAX: usize = 512;
/// Slots of 4, 16, 64, 128 KiB and 1 MiB of memory for the reads of each replica whose medium decides when it gives a buffer back: 12 MiB of address space,
/// touched as it is used.
pub(crate) const LOAN_SLOTS: [u32; 5] = [64, 32, 16, 16, 8];
/// Of them, what reads ahead leave.
pub(crate) const LOAN_BYTES_KEPT: usize = 4 << 20;
/// Ranges for which a handle remembers that a replica had wrong bytes; of more, the oldest is forgotten, and found again.
pub(crate) const DOUBTS_MAX: usize = 64;
/// At the end of each member of a stripe: its label.
pub const LABEL_BYTES: u32 = 4096;
/// What replicas have in common is looked at in so many of their first bytes (a volume's superblocks and the directory between them and the data), and its
/// last [`LABEL_BYTES`] (a volume's tail superblock).
pub const HEAD_BYTES: u32 = 32 << 10;

// A read's place is the low byte of the name that a replica knows it by; 255 is no read's.
const _: () = assert!(QUEUE_DEPTH_MAX < 256);
