//! NVMe over PCIe (PCIe Transport; Base, "Memory-Based Transport Queue Model"): queues in the host's memory, doorbells, PRP lists and SGLs. No I/O here either: a driver
//! copies entries and lists out of the host's memory, once, and hands them in.

mod coalescing;
mod doorbell;
mod prp;
mod queues;
mod ring;
mod sgl;

pub use coalescing::{Aggregation, Coalescing};
pub use doorbell::{
    DOORBELL_BUFFER_BYTES, DOORBELLS_AT, Doorbell, DoorbellBuffers, doorbell_bytes,
};
pub use prp::{PAGE_BYTES, Piece, PrpList, Prps, pieces_max};
pub use queues::{CompletionQueue, QueueCommand, Queues, SubmissionQueue};
pub use ring::{CompletionRing, SubmissionRing, phase_of};
pub use sgl::{DESCRIPTORS_MAX, SglPart, Sgls};
