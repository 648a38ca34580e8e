//! The named limits of the frontend, in one place, asserted against each other.

use std::time::Duration;

use namespace::limits::KEEP_PATIENCE;
use nvme::tcp::batch::ITEM_BYTES_MAX;
use nvme_spec::tcp::ADMIN_CAPSULE_DATA_BYTES;

/// PDUs in one gathered send. One send a turn and connection; more gains nothing once a send covers the socket's buffer.
pub(crate) const BATCH_PDUS_MAX: usize = 64;
/// Pieces of one gathered send: header, payload of a few segments, digest, for each PDU.
pub(crate) const BATCH_SEGMENTS_MAX: usize = 512;
/// Header and digest bytes of one gathered send.
pub(crate) const BATCH_HEADER_BYTES: usize = BATCH_PDUS_MAX * ITEM_BYTES_MAX;
/// I/O queues of one reactor: a thousand hosts with four each.
pub(crate) const CONNECTIONS_MAX: usize = 4096;
/// Admin queues, which are all at the desk; those of discovery controllers among them.
pub(crate) const ADMIN_QUEUES_MAX: usize = 1536;
/// Connections that have not finished Connect. A host that opens sockets and says nothing costs no more than this; a cluster that comes back at once
/// after a restart is to find room.
pub(crate) const HANDSHAKES_MAX: usize = 384;
/// Data that the answers of one admin queue have at a time, those that its host has not taken: a host that asks for more waits for its own answers. One
/// answer may always be as long as MDTS says.
pub(crate) const ADMIN_OWED_BYTES_MAX: u64 = 2 << 20;
/// Connections of the reactor that has most: the desk's.
pub(crate) const ALL_CONNECTIONS_MAX: usize = CONNECTIONS_MAX + HANDSHAKES_MAX + ADMIN_QUEUES_MAX;
/// Operations of a ring that connections may have in flight: each a receive and a send, one that has ended a receive, each listener an accept, and the
/// ring's own wake-ups.
pub(crate) const CONNECTION_OPS_MAX: usize =
    2 * ALL_CONNECTIONS_MAX + FAREWELLS_MAX + LISTENERS_MAX + 64;
/// Those who do I/O on a ring: connections, ended or not, listeners, stores, the desk, and the engine twice.
pub(crate) const OWNERS_MAX: usize =
    ALL_CONNECTIONS_MAX + FAREWELLS_MAX + LISTENERS_MAX + STORE_HANDLES_MAX + 3;
/// Timers of a ring: those of connections, one of each that has ended, those of stores, and the engine's.
pub(crate) const TIMERS_MAX: usize =
    CONNECTION_TIMERS_MAX * ALL_CONNECTIONS_MAX + FAREWELLS_MAX + STORE_HANDLES_MAX + 2;
/// Operations of a ring that stores may have in flight besides; with more to do they wait.
pub(crate) const STORE_OPS_MAX: usize = 3072;
/// Handles of stores on one reactor.
pub(crate) const STORE_HANDLES_MAX: usize = 8192;
/// Timers of one connection: its machine's, a lingering end's, a stalled send's.
pub(crate) const CONNECTION_TIMERS_MAX: usize = 4;
/// Messages waiting for one reactor.
pub(crate) const MESSAGES_MAX: usize = 4096;
/// Listener backlog: connections that the kernel has made and that wait to be accepted (it takes no more than net.core.somaxconn says).
pub(crate) const BACKLOG: i32 = 1024;
/// A queue's host is asked for the data of another write (R2T) while less than this is on its way. It covers 100 Gbit/s over 160 us; more would only
/// fill sockets and caches, and a host that sends nothing would hold more of the memory that all share.
pub(crate) const AWAITED_BYTES_MAX: u64 = 2 << 20;
/// Turns in a row that a send may wait for the answers of what is being received, while data arrive faster than they are taken. The host has been
/// asked for the data of at least as many writes then, and goes on with them.
pub(crate) const SEND_POSTPONED_MAX: usize = 8;
/// What a receive in place takes beyond the payload: the next header, seldom more, since what it takes of the next payload is copied.
pub(crate) const LANDING_BYTES: usize = 2 << 10;
/// Receives after the last payload in place that do not repeat yet: more such payload is likely, and would cost a cancellation.
pub(crate) const SINGLE_RECEIVES: u32 = 32;
/// From a command's arrival to its answer, wherever it waits meanwhile: below the 30 s after which hosts take a command for lost.
pub(crate) const COMMAND_PATIENCE: Duration = Duration::from_secs(25);
/// How long a connection in its last send (a fatal error's C2HTermReq) may take to leave; how long what a host still sends on one that has ended here is
/// thrown away; and how long the kernel keeps what a host has not taken of a connection that is closed.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// Connections of a reactor that have ended here, and whose hosts may not know. More are closed at once, and their hosts get a reset.
pub(crate) const FAREWELLS_MAX: usize = 1024;
/// What is thrown away of them at a time.
pub(crate) const FAREWELL_BYTES: usize = 64 << 10;

/// A peer that says nothing for so long is asked whether it is there (TCP keepalive), so often, so many times: a host without a keep alive timer
/// (KATO 0) that is gone without a word holds its controller no longer than that.
pub(crate) const PEER_IDLE: Duration = Duration::from_secs(15);
pub(crate) const PEER_PROBE_INTERVAL: Duration = Duration::from_secs(5);
pub(crate) const PEER_PROBES: u32 = 3;

/// How long an Abort waits for its command before it is answered that the command was not aborted.
pub(crate) const ABORT_PATIENCE: Duration = Duration::from_secs(2);
/// How long Preempt and Abort waits for the commands of those who were preempted: below the 30 s of a host.
pub(crate) const PREEMPT_PATIENCE: Duration = Duration::from_secs(20);
/// When a host should try again a command whose store cannot say when it is back.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How long an answer that tells of a subsystem's life waits for that to be saved; how many wait at a time, and more are sent at once.
pub(crate) const TELL_PATIENCE: Duration = Duration::from_secs(2);
pub(crate) const ANSWERS_HELD_MAX: usize = 1024;

/// How long the end of what a change took away is waited for, before whoever asked is told that operations are left.
pub(crate) const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
/// How long the last requests of a namespace that is detached may take before they are cancelled.
pub(crate) const DETACH_PATIENCE: Duration = Duration::from_secs(5);
/// How long a detach may take in all, before the log says that a store does not answer.
pub(crate) const DETACH_LIMIT: Duration = Duration::from_secs(20);
/// Addresses that a target listens at.
pub(crate) const LISTENERS_MAX: usize = 64;
/// Subsystems of a target.
pub(crate) const SUBSYSTEMS_MAX: usize = 256;
/// Other discovery services that hosts are told of.
pub(crate) const REFERRALS_MAX: usize = 64;

const _: () = assert!(
    KEEP_PATIENCE.as_secs() + PREEMPT_PATIENCE.as_secs() < 30,
    "a Preempt and Abort is answered before its host gives it up"
);
const _: () = assert!(
    ADMIN_QUEUES_MAX <= nvme::controller::reservation::REGISTRANTS_MAX,
    "every host that is connected can register"
);
const _: () = assert!(
    CONNECTION_OPS_MAX + STORE_OPS_MAX <= 16 << 10,
    "a ring has twice as many completions, and takes no more than 1 MiB of the memory that may be locked (snapctl doctor)"
);
const _: () = assert!(BATCH_SEGMENTS_MAX <= 1024, "IOV_MAX");
const _: () = assert!(
    ALL_CONNECTIONS_MAX + FAREWELLS_MAX < OWNERS_MAX
        && 2 * ALL_CONNECTIONS_MAX + FAREWELLS_MAX < CONNECTION_OPS_MAX,
    "connections that have ended take no room from those that are there"
);
const _: () = assert!(
    ADMIN_CAPSULE_DATA_BYTES <= 8 << 10,
    "in-capsule data come out of the shared buffers, with a copy"
);
const _: () = assert!(
    BATCH_SEGMENTS_MAX >= 3 * BATCH_PDUS_MAX,
    "header, payload and digest of each PDU in one piece each"
);
const _: () = assert!(
    ALL_CONNECTIONS_MAX < 1 << 16,
    "a request token names a connection in 16 bits"
);
