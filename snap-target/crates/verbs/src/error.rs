//! What can go wrong, said so that a person knows what to do.

use reactor::Errno;

use crate::completion::QpState;

/// Results of this crate.
pub type Result<T> = std::result::Result<T, VerbsError>;

/// Errors of this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerbsError {
    /// A library is not installed.
    #[error(
        "{library} was not found: install rdma-core (Debian and Ubuntu: apt-get install librdmacm1 ibverbs-providers; RHEL: dnf install \
         librdmacm libibverbs rdma-core). The loader says: {cause}"
    )]
    LibraryMissing {
        /// Its file name.
        library: &'static str,
        /// What the loader said.
        cause: String,
    },
    /// A library is too old.
    #[error("{library} has no {symbol}: rdma-core 32 or newer is needed")]
    SymbolMissing {
        /// Its file name.
        library: &'static str,
        /// What it lacks.
        symbol: &'static str,
    },
    /// A call of the library or the kernel failed.
    #[error("{call} failed on {subject}: {errno}{}{}", if advice.is_empty() { "" } else { "; " }, advice)]
    Call {
        /// The call.
        call: &'static str,
        /// The device, address or queue pair that it was made for.
        subject: String,
        /// The answer.
        errno: Errno,
        /// What to do, where that is known.
        advice: &'static str,
    },
    /// More than a limit was asked for.
    #[error("{what}: {asked} asked for, at most {max} are possible on {subject}")]
    Limit {
        /// Which limit.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// What is possible.
        max: u64,
        /// Whose limit it is: a device, or this crate.
        subject: String,
    },
    /// A range lies outside the memory that was registered.
    #[error("bytes {offset} to {offset}+{len} lie outside a registration of {registered} bytes")]
    OutOfBounds {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes of the registration.
        registered: u64,
    },
    /// A work queue or completion queue has no room.
    #[error(
        "the {queue} of queue pair {queue_pair} is full ({capacity}): poll completions, then post again"
    )]
    QueueFull {
        /// Which queue.
        queue: &'static str,
        /// The queue pair's number.
        queue_pair: u32,
        /// How many requests it holds.
        capacity: u32,
    },
    /// A call that the state of its object does not allow.
    #[error("{call} is not possible while {subject} is {state}")]
    State {
        /// The call.
        call: &'static str,
        /// What it was made for.
        subject: String,
        /// Its state.
        state: &'static str,
    },
    /// Objects were put together that do not belong together, or arguments contradict each other.
    #[error("{call}: {what}")]
    Misuse {
        /// The call.
        call: &'static str,
        /// What is wrong, and what is right.
        what: &'static str,
    },
    /// The device cannot do it.
    #[error("{device} does not support {what}")]
    Unsupported {
        /// The device.
        device: String,
        /// What.
        what: &'static str,
    },
}

impl VerbsError {
    /// The kernel's answer, where there is one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Call { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    pub(crate) fn call(call: &'static str, subject: impl Into<String>, errno: Errno) -> Self {
        Self::Call {
            call,
            subject: subject.into(),
            errno,
            advice: advice(call, errno),
        }
    }

    pub(crate) fn state(call: &'static str, queue_pair: u32, state: QpState) -> Self {
        Self::State {
            call,
            subject: format!("queue pair {queue_pair}"),
            state: state.name(),
        }
    }
}

/// What mends it, where the call and the answer say so.
fn advice(call: &'static str, errno: Errno) -> &'static str {
    match (call, errno) {
        ("ibv_reg_mr", Errno::ENOMEM) => {
            "registered memory is locked: raise RLIMIT_MEMLOCK (ulimit -l; LimitMEMLOCK= of a systemd unit), or register less"
        }
        ("rdma_create_event_channel", Errno::ENOENT | Errno::ENODEV) => {
            "the kernel has no RDMA connection manager: modprobe rdma_ucm"
        }
        ("rdma_create_event_channel" | "rdma_get_devices", Errno::EACCES | Errno::EPERM) => {
            "/dev/infiniband is not open to this user: see its group and mode"
        }
        ("rdma_get_devices", Errno::ENODEV | Errno::ENOENT) => {
            "there is no RDMA device; for soft-RoCE: rdma link add rxe0 type rxe netdev DEVICE"
        }
        ("rdma_resolve_addr" | "rdma_bind_addr", Errno::ENODEV | Errno::EADDRNOTAVAIL) => {
            "no RDMA device has this address: rdma link show, ip address show"
        }
        ("rdma_bind_addr" | "rdma_listen", Errno::EADDRINUSE) => "another program listens there",
        ("ibv_create_cq" | "rdma_create_qp", Errno::ENOMEM) => {
            "ask for fewer entries, or raise RLIMIT_MEMLOCK: queues are locked memory too"
        }
        ("ibv_dereg_mr", Errno::EBUSY | Errno::EINVAL) => "a memory window is bound to it",
        _ => "",
    }
}

/// Some of the requests were posted, then one was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {posted} of the list: {error}")]
pub struct PostError {
    /// How many were posted: the refused one is the next.
    pub posted: usize,
    /// Why it was refused.
    #[source]
    pub error: VerbsError,
}
