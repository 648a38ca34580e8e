//! The named limits of the daemon, in one place and checked against each other.

use std::time::Duration;

/// Namespaces of one subsystem.
pub const NAMESPACES_MAX: usize = nvme::controller::NAMESPACES_MAX as usize;
/// Subsystems, made by the configuration and by the admin plane.
pub const SUBSYSTEMS_MAX: usize = 256;
/// Listeners.
pub const LISTENERS_MAX: usize = 64;
/// Functions of virtual machines, of the configuration and of the admin plane.
pub const FUNCTIONS_MAX: usize = 64;
/// Bytes of guests' memory that all functions together may have mapped, of the 128 TiB of a process's address space; and in how many mappings, of the 65,530 that Linux
/// allows by default.
const GUEST_BYTES_MAX: u64 = 96 << 40;
const GUEST_MAPPINGS_MAX: u64 = 32 << 10;
/// How long the deletion of a virtio disk waits for requests of its guest; longer ones end without anybody who waits.
pub const DISK_END_MAX: Duration = Duration::from_secs(1);
/// Bytes of the path of a Unix socket: of `sockaddr_un`, without the zero behind it.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Referrals to other discovery services.
pub const REFERRALS_MAX: usize = 64;
/// Host names in one list: of a subsystem, or of a namespace.
pub const HOSTS_MAX: usize = 1024;
/// Reactor threads.
pub const REACTORS_MAX: u16 = 64;
/// Decoding threads.
pub const WORKERS_MAX: usize = namespace::limits::WORKERS_MAX;
/// What a reactor may fetch ahead of a namespace's readers, unless said otherwise: half of its cache's default, so that what was read stays a while.
pub const PREFETCH_DEFAULT: usize = 32 << 20;
/// Less is no piece of what is fetched ahead.
pub const PREFETCH_BYTES_MIN: u64 = 1 << 20;
/// Smallest frame and table cache of a reactor.
pub const CACHE_BYTES_MIN: u64 = 1 << 20;
/// A configuration file.
pub const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// How long SIGTERM lets what is in flight end, unless the configuration says otherwise.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(10);
/// The longest that it may say.
pub const DRAIN_MAX: Duration = Duration::from_secs(600);
/// A record of the state folder.
pub const RECORD_BYTES_MAX: u64 = 64 << 20;
/// Records of namespaces that wait to be written.
pub const SAVES_MAX: usize = 1024;
/// How often what subsystems have counted is saved, where something was counted: what a daemon that is killed loses of it at most.
pub const LIFE_INTERVAL: Duration = Duration::from_secs(60);
/// The same where nothing was counted: powered time goes on.
pub const LIFE_IDLE_INTERVAL: Duration = Duration::from_secs(600);
/// How long the manager waits for the state folder with it.
pub const LIFE_PATIENCE: Duration = Duration::from_secs(4);
/// Requests that wait for the thread that saves it.
pub const LIFE_JOBS_MAX: usize = 1024;
/// Events that are kept for those who ask later.
pub const EVENTS_KEPT: usize = 4096;
/// Requests of the admin plane that wait for the manager.
pub const REQUESTS_MAX: usize = 64;
/// Events of the target that wait to be told; more are counted and lost.
pub const TARGET_EVENTS_MAX: usize = 8192;
/// How long a TLS handshake may take.
pub const ADMIN_HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How often the files of the admin service's certificates are looked at.
pub const TLS_LOOK: Duration = Duration::from_secs(10);
/// Files that cannot be used are read once more after this: one of two may have come before the other.
pub const TLS_SETTLE: Duration = Duration::from_secs(1);
/// How long a client of the admin service may be connected before its first call.
pub const ADMIN_FIRST_CALL_MAX: Duration = Duration::from_secs(10);
/// Connections to the admin service's socket, and to its TCP port; more wait to be accepted.
pub const ADMIN_CONNECTIONS_MAX: usize = 64;
/// Calls and streams of one connection at a time.
pub const ADMIN_CALLS_MAX: usize = 32;
/// Names of certificates with one role.
pub const ROLE_NAMES_MAX: usize = 1024;
/// Streams (events, statistics) of all connections to the admin service's socket, and of those to its TCP port.
pub const ADMIN_STREAMS_MAX: usize = 128;
/// Those of one name of certificates.
pub const ADMIN_STREAMS_OF_NAME_MAX: usize = 32;
/// Messages of a stream that wait for its client.
pub const ADMIN_STREAM_MESSAGES: usize = 16;
/// The longest that a call of the admin service may take; a change that the manager has begun is finished all the same.
pub const ADMIN_CALL_TIME_MAX: Duration = Duration::from_secs(120);
/// After so much silence a client of the admin service is asked whether it is still there.
pub const ADMIN_IDLE_CHECK: Duration = Duration::from_secs(30);
/// Events that a subscriber reads at a time.
pub const EVENTS_PER_READ: usize = 64;
/// Connections to the metrics endpoint; more wait to be accepted.
pub const METRICS_CONNECTIONS_MAX: usize = 16;
/// The first line and the headers of a request for metrics.
pub const METRICS_HEAD_BYTES_MAX: usize = 8 << 10;
/// How long such a request, and its answer, may take.
pub const METRICS_TIME_MAX: Duration = Duration::from_secs(10);
/// How long flushing may take at the end; files whose server hangs are left to it.
pub const FLUSH_TIME_MAX: Duration = Duration::from_secs(15);
/// Files that are flushed at a time.
pub const FLUSHERS_MAX: usize = 16;
/// How long the threads may take to end when all is drained: one that hangs in a store is left to the kernel.
pub const THREADS_END_MAX: Duration = Duration::from_secs(5);
/// How much longer than its time draining may take: controllers end, and files are flushed.
pub const DRAIN_MARGIN: Duration = Duration::from_secs(20);
/// How often what could not be had is tried again.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How long a source may take to be opened: a server that hangs does not hold the manager up.
pub const OPEN_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a start waits for block devices of this machine: the kernel looks for partitions on them, and may have to end what the last daemon had.
pub const LOCALS_START_MAX: Duration = Duration::from_secs(120);
/// How long the manager waits for one that is made while serving: as a rule it is there in some milliseconds.
pub const LOCAL_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long the size of a file may take to be changed: shorter than snapctl waits.
pub const RESIZE_TIME_MAX: Duration = Duration::from_secs(25);
/// Sources that are being opened at a time, those that are silent included.
pub const OPENINGS_MAX: usize = 8;
/// How often the manager looks whether what was detached has closed, and whether what is being opened is open.
pub const CLOSING_LOOK: Duration = Duration::from_millis(20);
/// How often stores are asked what is wrong with them: with the time after which a store misses an answer (0.8 s) some 1 s until health says so.
pub const STORES_LOOK: Duration = Duration::from_millis(250);
/// A host that may not connect is told again after this at the earliest.
pub const REFUSAL_INTERVAL: Duration = Duration::from_secs(10);
/// Hosts, with subsystem and reason, that are told in this time.
pub const REFUSALS_KNOWN_MAX: usize = 128;
/// How often draining looks whether commands are still in flight.
pub const DRAIN_LOOK: Duration = Duration::from_millis(10);

const _: () = assert!(FUNCTIONS_MAX <= frontend_nvme::FUNCTIONS_MAX);
const _: () = assert!(FUNCTIONS_MAX as u64 * guest_memory::CLIENT_BYTES_MAX <= GUEST_BYTES_MAX);
const _: () =
    assert!(FUNCTIONS_MAX as u64 * frontend_vfio_user::CLIENT_MAPPINGS_MAX <= GUEST_MAPPINGS_MAX);
const _: () = assert!(
    frontend_vhost_user_blk::CLIENT_MAPPINGS_MAX + 1 < frontend_vfio_user::CLIENT_MAPPINGS_MAX,
    "a function is of either kind"
);
// Doorbells that are polled, and records of what is in flight, are mapped besides.
const _: () = assert!(2 * GUEST_MAPPINGS_MAX <= guest_memory::MAPPINGS_MAX as u64);
const _: () = assert!(
    FLUSH_TIME_MAX.as_secs() + LIFE_PATIENCE.as_secs() < DRAIN_MARGIN.as_secs(),
    "a state folder that hangs does not hold the end up"
);
const _: () = assert!(
    frontend_ublk::APPEAR_TIME_MAX.as_secs() < LOCALS_START_MAX.as_secs(),
    "a block device of this machine that is not there has said why"
);
const _: () = assert!(METRICS_HEAD_BYTES_MAX >= 8192, "hyper asks for that");

/// What the limits of a subsystem may be, in the configuration file and over the admin service alike.
pub mod of_subsystem {
    use std::ops::RangeInclusive;

    /// Controllers of all hosts: as many as a target has admin queues.
    pub const CONTROLLERS: RangeInclusive<u16> = 1..=1536;
    /// Controllers of one host.
    pub const CONTROLLERS_PER_HOST: RangeInclusive<u16> = 1..=256;
    /// Connections of one host: an admin and an I/O queue at least.
    pub const CONNECTIONS_PER_HOST: RangeInclusive<u16> = 2..=u16::MAX;
    /// I/O queues of one host.
    pub const IO_QUEUES_PER_HOST: RangeInclusive<u16> = 1..=u16::MAX;
    /// I/O queues of one controller.
    pub const IO_QUEUES: RangeInclusive<u16> = 1..=64;
    /// Entries of a queue.
    pub const QUEUE_ENTRIES: RangeInclusive<u16> = 8..=128;
    /// Data of one command, in bytes; a power of two.
    pub const TRANSFER_BYTES: RangeInclusive<u64> = 8192..=1 << 20;
    /// Memory of the commands of one host, in bytes.
    pub const MEMORY_PER_HOST_BYTES: RangeInclusive<u64> = 1 << 20..=u64::MAX;
}
