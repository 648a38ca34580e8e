//! The admin contract of snap-target as code: messages, clients and servers of package `xio.admin.v1`.
//!
//! The contract itself, with units, limits and errors, is in `snap-target/proto/xio/admin/v1`; `common.proto` has the rules.

#![forbid(unsafe_code)]

/// Version 1.
pub mod v1 {
    #![allow(
        missing_docs,
        clippy::all,
        clippy::cast_possible_truncation,
        elided_lifetimes_in_paths,
        reason = "generated; the proto files carry the documents"
    )]
    tonic::include_proto!("xio.admin.v1");
}

/// The contract as a `google.protobuf.FileDescriptorSet`: names and types for what works on any message, such as a JSON printer.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

pub use prost_types::Timestamp;

mod error_detail;
mod mixed;

pub use error_detail::{code_of, detail_of, details};
pub use mixed::{joined, mixed_parts, mixed_text, parts_of};

/// What this code has of v1; `GetInfoResponse.revision`. It counts up with each addition.
pub const REVISION: u32 = 7;

/// Named limits of the contract; `common.proto` says the same in words.
pub mod limits {
    /// Bytes of a request.
    pub const REQUEST_BYTES_MAX: usize = 512 << 10;
    /// Bytes of an answer, or of one message of a stream. Statistics of more than ten thousand hosts and namespaces with their latencies need more than a page.
    pub const ANSWER_BYTES_MAX: usize = 64 << 20;
    /// Bytes of a page of a list: what clients of revision 2 take of an answer.
    pub const PAGE_BYTES_MAX: usize = 16 << 20;
    /// Rows of a page.
    pub const PAGE_SIZE_MAX: usize = 1000;
    /// Bytes of an announcement's payload.
    pub const PAYLOAD_BYTES_MAX: usize = 4096;
    /// Announcements a second, all hosts together.
    pub const ANNOUNCEMENTS_PER_SECOND_MAX: u32 = 100;
    /// Bytes of a reader's name.
    pub const READER_BYTES_MAX: usize = 256;
    /// Readers whose latest announcement is kept.
    pub const READERS_MAX: usize = 1024;
    /// Announcements that are kept for later subscribers.
    pub const ANNOUNCEMENTS_KEPT: usize = 1024;
    /// Seconds of silence after which a stream of events has a checkpoint.
    pub const CHECKPOINT_SECONDS: u64 = 10;
    /// Bytes of a namespace's source.
    pub const SOURCE_BYTES_MAX: usize = 4096;
    /// Bytes of what says how fast a namespace's stores are at most.
    pub const LIMIT_BYTES_MAX: usize = 128;
    /// Ranges of one message of Prefetch.
    pub const PREFETCH_RANGES_MAX: usize = 4096;
    /// Bytes of the name of an order of Prefetch.
    pub const PREFETCH_EPOCH_BYTES_MAX: usize = 256;
    /// Hosts of one list.
    pub const HOSTS_MAX: usize = 1024;
    /// Hosts of one AllowHosts, DenyHosts, ShowTo or HideFrom.
    pub const HOSTS_PER_CALL_MAX: usize = 256;
    /// Milliseconds between two snapshots of WatchStats, at least.
    pub const STATS_INTERVAL_MS_MIN: u32 = 100;
    /// Milliseconds between two snapshots of WatchStats, at most.
    pub const STATS_INTERVAL_MS_MAX: u32 = 3_600_000;
    /// Milliseconds that a drain may take, at most.
    pub const DRAIN_MS_MAX: u32 = 600_000;
    /// Events of one message of DumpRecorder.
    pub const RECORDER_EVENTS_PER_MESSAGE_MAX: usize = 1024;

    /// Bytes of an NQN.
    const NQN_BYTES_MAX: usize = 223;
    /// What a string of a list costs besides its bytes: its tag, and two bytes of length.
    const STRING_OVERHEAD: usize = 3;

    const _: () = assert!(
        HOSTS_MAX * (NQN_BYTES_MAX + STRING_OVERHEAD) + SOURCE_BYTES_MAX + LIMIT_BYTES_MAX + 1024
            <= REQUEST_BYTES_MAX,
        "a full list of hosts fits a request"
    );
    const _: () = assert!(
        READERS_MAX * (PAYLOAD_BYTES_MAX + READER_BYTES_MAX + 2 * NQN_BYTES_MAX + 128)
            <= ANSWER_BYTES_MAX,
        "the readers' announcements fit an answer"
    );
}
