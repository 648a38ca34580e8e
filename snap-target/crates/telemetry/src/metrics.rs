//! The names of the metrics. `docs/metrics.md` says what they mean; a test keeps both alike.

/// A metric as Prometheus sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, with its unit in it.
    pub name: &'static str,
    /// How it behaves.
    pub kind: MetricKind,
    /// What it means, in one line.
    pub help: &'static str,
}

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, until the target ends.
    Counter,
    /// Grows and falls.
    Gauge,
    /// Cumulative buckets, a sum and a count.
    Histogram,
}

impl MetricKind {
    /// Its name in Prometheus' text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! metrics {
    ($($constant:ident: $kind:ident $name:literal, $help:literal;)*) => {
        $(pub(crate) const $constant: Metric = Metric { name: $name, kind: MetricKind::$kind, help: $help };)*

        /// All metrics, in the order in which they are written.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    UPTIME: Gauge "xio_uptime_seconds", "Time since the target started.";

    COMMANDS: Counter "xio_commands_total", "I/O commands answered, failed ones included, by kind.";
    ERRORS: Counter "xio_command_errors_total", "I/O commands that failed, by class of their status.";
    READ_BYTES: Counter "xio_read_bytes_total", "Bytes that reads returned to the host.";
    WRITTEN_BYTES: Counter "xio_written_bytes_total", "Bytes that writes brought from the host.";
    HOST_WIRE_SENT: Counter "xio_wire_sent_bytes_total", "Bytes sent to the host for commands that were answered, headers and digests included.";
    HOST_WIRE_RECEIVED: Counter "xio_wire_received_bytes_total", "Bytes received from the host for them.";
    IN_FLIGHT: Gauge "xio_commands_in_flight", "I/O commands not answered yet.";
    ABANDONED: Counter "xio_commands_abandoned_total", "I/O commands whose connection ended before their answer.";
    READ_LATENCY: Histogram "xio_read_latency_seconds", "Time of reads that succeeded, from the command's coming to its answer.";
    WRITE_LATENCY: Histogram "xio_write_latency_seconds", "Time of writes that succeeded, from the command's coming to its answer.";

    STORED: Counter "xio_namespace_stored_bytes_total", "Payload bytes fetched from stores, as they are stored.";
    TABLES: Counter "xio_namespace_table_bytes_total", "Bytes of volumes' tables fetched from stores.";
    STORE_WIRE_SENT: Counter "xio_namespace_store_wire_sent_bytes_total", "Bytes sent to remote stores, headers and digests included.";
    STORE_WIRE_RECEIVED: Counter "xio_namespace_store_wire_received_bytes_total", "Bytes received from remote stores, headers and digests included.";
    DELIVERED: Counter "xio_namespace_delivered_bytes_total", "Bytes handed to frontends.";
    COPIED: Counter "xio_namespace_copied_bytes_total", "Bytes copied between store and frontend.";
    STORE_WRITTEN: Counter "xio_namespace_written_bytes_total", "Bytes written to stores.";
    PARKED: Counter "xio_namespace_parked_total", "Requests that waited for memory or a store's queue.";
    FETCHES: Counter "xio_namespace_frame_fetches_total", "Reads of stored frames, neighbours in one.";
    DECODED: Counter "xio_namespace_frames_decoded_total", "Frames decoded.";
    DECODED_BY_WORKERS: Counter "xio_namespace_frames_decoded_by_workers_total", "Frames decoded by worker threads.";
    JOINED: Counter "xio_namespace_joined_misses_total", "Wants of a frame that was on its way for somebody else.";
    FRAME_HITS: Counter "xio_namespace_frame_hits_total", "Wants of a frame that its home had in its cache.";
    CROSS_WANTS: Counter "xio_namespace_cross_reactor_wants_total", "Wants of a frame that another reactor is the home of.";
    PREFETCHED: Counter "xio_prefetch_bytes_total", "Bytes of frames that were fetched before anybody asked for them, as they are kept.";
    PREFETCH_HITS: Counter "xio_prefetch_hit_bytes_total", "Those that were there when they were first read.";
    PREFETCH_LATE: Counter "xio_prefetch_late_bytes_total", "Those that were on their way when they were first wanted.";
    PREFETCH_WASTED: Counter "xio_prefetch_wasted_bytes_total", "Those that left the cache before anybody read them.";
    DAMAGED: Counter "xio_namespace_damaged_reads_total", "Reads that met damage: stored bytes that are not what was written.";
    READ_AGAIN: Counter "xio_namespace_read_again_total", "Times that stored bytes were read again, because what was read was not what was written.";
    STORE_OPERATIONS: Gauge "xio_namespace_store_operations", "Operations that the stores have now: their queue depth.";
    DECODE_SECONDS: Counter "xio_decode_seconds_total", "Time that checking and decoding frames took, by stored chain.";
    DECODE_BYTES: Counter "xio_decode_packed_bytes_total", "Bytes that decoding made of stored frames, by stored chain.";
    DECODE_FRAMES: Counter "xio_decode_frames_total", "Frames decoded, by stored chain.";
    TRANSFORM_SECONDS: Counter "xio_transform_seconds_total", "Time that undoing a transform took.";
    TRANSFORM_BYTES: Counter "xio_transform_bytes_total", "Bytes that undoing a transform made.";

    NAMESPACE: Gauge "xio_namespace_info", "Always 1; where a disk is attached, and what stands behind it.";
    HEALTH: Gauge "xio_health", "1 while there is a problem of this kind, by code.";
    REFUSED: Counter "xio_hosts_refused_total", "Connects that were refused, by reason.";
    REFUSED_CLIENTS: Counter "xio_admin_clients_refused_total", "Clients of the admin service's TCP port that TLS did not let in, by reason.";
    CERTIFICATE: Gauge "xio_admin_certificate_expiry_timestamp_seconds", "When the admin service's certificate expires, in seconds since 1970.";

    REACTOR: Gauge "xio_reactor_info", "Always 1; a reactor's io_uring features.";
    TURNS: Counter "xio_reactor_turns_total", "Turns of a reactor's loop.";
    BUSY: Counter "xio_reactor_busy_seconds_total", "Time that a reactor was not asleep: working or polling.";
    IDLE: Counter "xio_reactor_idle_seconds_total", "Time that a reactor slept in the kernel.";
    SLEEPS: Counter "xio_reactor_sleeps_total", "Times a reactor went to sleep.";
    ENTERS: Counter "xio_reactor_enters_total", "System calls io_uring_enter.";
    SUBMITTED: Counter "xio_reactor_submitted_total", "Entries handed to the kernel.";
    COMPLETIONS: Counter "xio_reactor_completions_total", "Completions taken from the kernel.";
    CONNECTIONS: Gauge "xio_reactor_connections", "I/O queues that a reactor serves.";
    WIRE_SENT: Counter "xio_reactor_wire_sent_bytes_total", "Bytes sent to hosts by I/O queues, headers and digests included.";
    WIRE_RECEIVED: Counter "xio_reactor_wire_received_bytes_total", "Bytes received from hosts by I/O queues, headers and digests included.";
    WIRE_COPIED: Counter "xio_reactor_wire_copied_bytes_total", "Bytes copied between registered memory and commands' buffers.";
    CACHE_HITS: Counter "xio_reactor_cache_hits_total", "Look-ups of frames and table blocks that found them in the cache.";
    CACHE_MISSES: Counter "xio_reactor_cache_misses_total", "Look-ups of frames and table blocks that did not.";
    CACHE_EVICTIONS: Counter "xio_reactor_cache_evictions_total", "Entries that left the cache for others.";
    CACHE_USED: Gauge "xio_reactor_cache_used_bytes", "Bytes in the cache.";
    POOL_USED: Gauge "xio_reactor_pool_used_bytes", "Bytes of a pool in use.";
    POOL_TOTAL: Gauge "xio_reactor_pool_total_bytes", "Bytes that a pool has.";
    POOL_REFUSALS: Counter "xio_reactor_pool_refusals_total", "Requests for memory that a pool could not serve at once.";
}
