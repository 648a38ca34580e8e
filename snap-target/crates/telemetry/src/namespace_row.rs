//! What went through one namespace's stores and chains, on one reactor.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::cell::Counter;
use crate::limits::{DECODE_ROWS_MAX, OTHERS, TRANSFORM_ROWS_MAX};
use crate::rows::Row;

macro_rules! namespace_counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Counters of one namespace on one reactor; written by this reactor alone.
        #[derive(Debug)]
        #[repr(align(128))]
        pub struct NamespaceRow {
            /// Its UUID, which a resize and a restart keep.
            pub uuid: [u8; 16],
            /// What it is called: its store.
            pub name: String,
            /// When the row began, in nanoseconds after the target's start.
            pub since_ns: u64,
            $($(#[$meta])* pub $name: Counter,)*
            /// Operations that its stores have now.
            pub store_operations: Counter,
            decoders: Mutex<Vec<Arc<DecodeRow>>>,
            transforms: Mutex<Vec<Arc<TransformRow>>>,
        }

        /// Counters of a namespace, or of several, at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct NamespaceCounters {
            $($(#[$meta])* pub $name: u64,)*
        }

        impl NamespaceCounters {
            /// Adds another's.
            pub fn merge(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl Row for NamespaceRow {
            /// UUID and name.
            type Key = ([u8; 16], String);

            fn new((uuid, name): &Self::Key, since_ns: u64) -> Self {
                Self {
                    uuid: *uuid,
                    name: name.clone(),
                    since_ns,
                    $($name: Counter::default(),)*
                    store_operations: Counter::default(),
                    decoders: Mutex::default(),
                    transforms: Mutex::default(),
                }
            }

            fn last_ns(&self) -> u64 {
                0
            }
        }

        impl NamespaceRow {
            /// A copy for readers.
            #[must_use]
            pub fn counters(&self) -> NamespaceCounters {
                NamespaceCounters { $($name: self.$name.get(),)* }
            }
        }
    };
}

namespace_counters! {
    /// Payload bytes fetched from stores, as they are stored.
    stored_bytes,
    /// Bytes of volumes' tables fetched from stores.
    table_bytes,
    /// Bytes sent to remote stores, headers and digests included.
    store_wire_sent_bytes,
    /// Bytes received from them.
    store_wire_received_bytes,
    /// Bytes handed to frontends.
    delivered_bytes,
    /// Bytes copied on the way: staging to answer. Leases and direct reads copy none.
    copied_bytes,
    /// Bytes written to stores.
    written_bytes,
    /// Requests that waited for memory or a store's queue.
    parked,
    /// Reads of stored frames, neighbours in one.
    frame_fetches,
    /// Frames of this reactor's that are decoded.
    frames_decoded,
    /// Those of them that a worker decoded.
    frames_decoded_by_workers,
    /// Wants of a frame of this reactor's that was on its way for somebody else.
    joined_misses,
    /// Wants of a frame of this reactor's that was in its cache by then.
    frame_hits,
    /// Frames of other reactors that requests of this one wanted.
    cross_reactor_wants,
    /// Frames of this reactor's that were fetched before anybody asked for them.
    prefetched_frames,
    /// Their bytes, as they are kept.
    prefetched_bytes,
    /// Those of them that were there when they were first read.
    prefetch_hits,
    /// Their bytes.
    prefetch_hit_bytes,
    /// Those that were on their way when somebody wanted them.
    prefetch_late,
    /// Their bytes.
    prefetch_late_bytes,
    /// Those that left the cache before anybody read them.
    prefetch_wasted,
    /// Their bytes.
    prefetch_wasted_bytes,
    /// Bytes of what was prefetched that are kept and that nobody has read: what is none of the three, now.
    prefetch_kept_bytes,
    /// Requests that met damage: stored bytes that are not what was written.
    damaged_reads,
    /// Times that stored bytes were read again, because what was read was not what was written.
    reads_again,
}

/// The frames of one namespace that were decoded by one stored chain, on one reactor.
#[derive(Debug)]
pub struct DecodeRow {
    /// The chain as it is written: `u16+lz4`.
    pub chain: String,
    /// Frames decoded.
    pub frames: Counter,
    /// Their packed bytes: what decoding made of the stored ones.
    pub packed_bytes: Counter,
    /// Nanoseconds that checking and decoding took, by whoever did it.
    pub busy_ns: Counter,
}

impl DecodeRow {
    /// Counts a frame.
    pub fn decoded(&self, packed_bytes: u64, ns: u64) {
        self.frames.add(1);
        self.packed_bytes.add(packed_bytes);
        self.busy_ns.add(ns);
    }
}

/// What one transform undid for one namespace, on one reactor.
#[derive(Debug)]
pub struct TransformRow {
    /// As chains name it: `lz4`, `zstd:3`, `shuffle`, `u16`.
    pub transform: String,
    /// Bytes that it made.
    pub bytes: Counter,
    /// Nanoseconds that it took, by whoever did it.
    pub busy_ns: Counter,
}

impl TransformRow {
    /// Counts what was undone.
    pub fn undone(&self, bytes: u64, ns: u64) {
        self.bytes.add(bytes);
        self.busy_ns.add(ns);
    }
}

/// The row that is wanted; a new one where there is room below `max`; the one of all others, `is(_, true)`, where there is not.
fn found_or_made<T>(
    rows: &mut Vec<Arc<T>>,
    max: usize,
    is: impl Fn(&T, bool) -> bool,
    make: impl FnOnce(bool) -> T,
) -> Arc<T> {
    if let Some(row) = rows.iter().find(|row| is(row, false)) {
        return row.clone();
    }
    let others = rows.len() >= max;
    if others && let Some(row) = rows.iter().find(|row| is(row, true)) {
        return row.clone();
    }
    let row = Arc::new(make(others));
    rows.push(row.clone());
    row
}

impl NamespaceRow {
    /// The row of a chain; made where there is none.
    #[must_use]
    pub fn decoder(&self, chain: &str) -> Arc<DecodeRow> {
        let mut rows = self.decoders.lock().unwrap_or_else(PoisonError::into_inner);
        found_or_made(
            &mut rows,
            DECODE_ROWS_MAX,
            |row, others| row.chain == if others { OTHERS } else { chain },
            |others| DecodeRow {
                chain: if others { OTHERS } else { chain }.to_owned(),
                frames: Counter::default(),
                packed_bytes: Counter::default(),
                busy_ns: Counter::default(),
            },
        )
    }

    /// The row of a transform; made where there is none.
    #[must_use]
    pub fn transform(&self, transform: &str) -> Arc<TransformRow> {
        let mut rows = self
            .transforms
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        found_or_made(
            &mut rows,
            TRANSFORM_ROWS_MAX,
            |row, others| row.transform == if others { OTHERS } else { transform },
            |others| TransformRow {
                transform: if others { OTHERS } else { transform }.to_owned(),
                bytes: Counter::default(),
                busy_ns: Counter::default(),
            },
        )
    }

    pub(crate) fn transforms(&self) -> Vec<Arc<TransformRow>> {
        self.transforms
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn decoders(&self) -> Vec<Arc<DecodeRow>> {
        self.decoders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
