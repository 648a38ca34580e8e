//! The named limits of the frontend, in one place, asserted against each other.

use std::time::Duration;

use namespace::limits::KEEP_PATIENCE;

use crate::link::{LINK_OPS_MAX, LINK_TIMERS_MAX};

/// I/O queues of one reactor: a thousand hosts with four each.
pub(crate) const CONNECTIONS_MAX: usize = 4096;
/// Admin queues, which are all at the desk; those of discovery controllers among them.
pub(crate) const ADMIN_QUEUES_MAX: usize = 1536;
/// Connections that have not finished Connect. A host that opens sockets and says nothing costs no more than this; a cluster that comes back at once
/// after a restart is to find room.
pub(crate) const HANDSHAKES_MAX: usize = 320;
/// Data that the answers of one admin queue have at a time, those that its host has not taken: a host that asks for more waits for its own answers. One
/// answer may always be as long as MDTS says.
pub(crate) const ADMIN_OWED_BYTES_MAX: u64 = 2 << 20;
/// PCIe functions, whose clients are this machine's own: each has an admin queue besides those, and an I/O queue that is kept for it.
pub const FUNCTIONS_MAX: usize = 64;
/// Connections that the desk has besides its reactor's I/O queues.
pub(crate) const VISITORS_MAX: usize = HANDSHAKES_MAX + ADMIN_QUEUES_MAX + FUNCTIONS_MAX;
/// Connections of the reactor that has most: the desk's.
pub(crate) const ALL_CONNECTIONS_MAX: usize = CONNECTIONS_MAX + VISITORS_MAX;
/// Queues of lodgers on a reactor. Each is an owner with a timer.
pub const LODGER_QUEUES_MAX: usize = 512;
/// Operations of such a queue: it waits for its driver, as one that has ended before it may still do.
pub const LODGER_QUEUE_OPS_MAX: usize = 2;
/// Operations of a ring that connections may have in flight, those that have ended, listeners and lodgers among them, and the ring's own wake-ups.
pub(crate) const CONNECTION_OPS_MAX: usize = LINK_OPS_MAX * ALL_CONNECTIONS_MAX
    + FAREWELLS_MAX
    + LINK_OPS_MAX * LISTENERS_MAX
    + LODGER_QUEUE_OPS_MAX * LODGER_QUEUES_MAX
    + 64;
/// Those who do I/O on a ring: connections, ended or not, listeners, queues of lodgers, stores, the desk, and the engine twice.
pub(crate) const OWNERS_MAX: usize =
    ALL_CONNECTIONS_MAX + FAREWELLS_MAX + LISTENERS_MAX + LODGER_QUEUES_MAX + STORE_HANDLES_MAX + 3;
/// Timers of a ring: those of connections, one of each that has ended, one of each listener and each queue of a lodger, those of stores, and the
/// engine's.
pub(crate) const TIMERS_MAX: usize = LINK_TIMERS_MAX * ALL_CONNECTIONS_MAX
    + FAREWELLS_MAX
    + LISTENERS_MAX
    + LODGER_QUEUES_MAX
    + STORE_HANDLES_MAX
    + 2;
/// Operations of a ring that stores may have in flight besides; with more to do they wait.
pub(crate) const STORE_OPS_MAX: usize = 1984;
/// Handles of stores on one reactor.
pub(crate) const STORE_HANDLES_MAX: usize = 8192;
/// Messages waiting for one reactor.
pub(crate) const MESSAGES_MAX: usize = 4096;
/// A queue's host is asked for the data of another write while less than this is on its way. It covers 100 Gbit/s over 160 us; more would only
/// fill sockets and caches, and a host that sends nothing would hold more of the memory that all share.
pub(crate) const AWAITED_BYTES_MAX: u64 = 2 << 20;
/// From a command's arrival to its answer, wherever it waits meanwhile: below the 30 s after which hosts take a command for lost.
pub(crate) const COMMAND_PATIENCE: Duration = Duration::from_secs(25);
/// Connections of a reactor that have ended here, and whose hosts may not know. More are cut off at once.
pub(crate) const FAREWELLS_MAX: usize = 1024;
/// Turns of a reactor that polls, one after the other, in which only what is polled is looked at: some 10 us where there is nothing to do.
pub(crate) const QUIET_TURNS_MAX: u32 = 64;
/// The same in time, where there is much to do: timers, the desk and its deadlines wait no longer, and one turn's work.
pub(crate) const QUIET_NS_MAX: u64 = 50_000;
/// Looks at the polled queues of a reactor in one of those turns.
pub(crate) const QUIET_LOOKS_MAX: u32 = 8;
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
/// Where a target takes connections: at addresses of fabrics, and at the sockets of functions.
pub(crate) const LISTENERS_MAX: usize = 64 + 64;
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
const _: () = assert!(
    ALL_CONNECTIONS_MAX + FAREWELLS_MAX + LODGER_QUEUES_MAX < OWNERS_MAX
        && LINK_OPS_MAX * ALL_CONNECTIONS_MAX
            + FAREWELLS_MAX
            + LODGER_QUEUE_OPS_MAX * LODGER_QUEUES_MAX
            < CONNECTION_OPS_MAX,
    "connections that have ended, and lodgers, take no room from those that are there"
);
const _: () = assert!(
    ALL_CONNECTIONS_MAX < (1 << 16) - 1,
    "a request token names a connection in 16 bits, and lodgers have the last of them"
);
