//! What a record holds.

use nvme_spec::Status;

use super::host::{self, HostName};

macro_rules! kinds {
    ($($(#[$meta:meta])* $kind:ident = $name:literal, [$($field:ident),*];)*) => {
        /// What happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum EventKind {
            $($(#[$meta])* $kind,)*
        }

        impl EventKind {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// Its name in dumps.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The fields of [`Event`] that it fills in.
            pub(crate) const fn fields(self) -> &'static [Field] {
                match self { $(Self::$kind => &[$(Field::$field),*],)* }
            }
        }
    };
}

/// A part of an event. `LatencyUs` and `InFlight` are meanings of [`Event::value`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Cntlid,
    Sqid,
    Cid,
    Opcode,
    Nsid,
    Lba,
    Blocks,
    Status,
    LatencyUs,
    InFlight,
    Host,
}

kinds! {
    /// The target started.
    Started = "started", [];
    /// The target was told to stop.
    Stopping = "stopping", [];
    /// A host's Connect made a controller.
    HostConnected = "host connected", [Cntlid, Host];
    /// A Connect was refused.
    ConnectRefused = "connect refused", [Status, Host];
    /// A controller ended: its host left, or was made to.
    ControllerEnded = "controller ended", [Cntlid, Host];
    /// An I/O queue was taken by its reactor.
    QueueOpened = "queue opened", [Cntlid, Sqid, Host];
    /// An I/O queue closed; `value`: commands that the stores still had.
    QueueClosed = "queue closed", [Cntlid, Sqid, InFlight, Host];
    /// A connection broke the protocol, or was silent for too long. `sqid` 0: an admin queue, or one before Connect.
    ConnectionFailed = "connection failed", [Cntlid, Sqid, Host];
    /// A command failed; `value`: nanoseconds that it took.
    CommandFailed = "command failed", [Cntlid, Sqid, Cid, Opcode, Nsid, Lba, Blocks, Status, LatencyUs, Host];
    /// A command took long; `value`: nanoseconds.
    SlowCommand = "slow command", [Cntlid, Sqid, Cid, Opcode, Nsid, Lba, Blocks, LatencyUs, Host];
    /// A store or a volume could not do what a command asked; the failed command follows.
    StoreFailed = "store failed", [Cntlid, Sqid, Cid, Nsid, Lba, Status, Host];
    /// A controller's keep-alive timer expired.
    KeepAliveExpired = "keep alive expired", [Cntlid, Host];
    /// A controller was reset: CC.EN became 0.
    Reset = "reset", [Cntlid, Host];
    /// A host asked for a shutdown: CC.SHN.
    Shutdown = "shutdown", [Cntlid, Host];
    /// Abort of the command `cid` of queue `sqid`.
    Abort = "abort", [Cntlid, Sqid, Cid, Host];
    /// A namespace was attached to its subsystem.
    Attached = "namespace attached", [Nsid];
    /// An attached namespace has another size.
    Resized = "namespace resized", [Nsid];
    /// A namespace was detached from its subsystem.
    Detached = "namespace detached", [Nsid];
    /// An operator changed subsystems, hosts or listeners; for control threads.
    Changed = "configuration changed", [];
}

/// One event. What its kind does not fill in is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Controller.
    pub cntlid: u16,
    /// Submission queue.
    pub sqid: u16,
    /// Command identifier.
    pub cid: u16,
    /// Opcode of the command.
    pub opcode: u8,
    /// Status of the answer, as [`Status::to_wire`] gives it.
    pub status: u16,
    /// Namespace.
    pub nsid: u32,
    /// First logical block.
    pub lba: u64,
    /// Logical blocks.
    pub blocks: u32,
    /// What the kind says.
    pub value: u64,
    /// Whose controller or queue it is.
    pub host: HostName,
}

/// An event, and when and where it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The reactor; none: a control thread.
    pub reactor: Option<u16>,
    /// Nanoseconds since the target started.
    pub at_ns: u64,
    /// What happened.
    pub event: Event,
}

/// Words of a record behind its sequence number.
pub(super) const WORDS: usize = NUMBERS + host::WORDS;

/// Those of the numbers; the host's name follows.
const NUMBERS: usize = 6;

impl Event {
    /// An event of this kind, with nothing filled in.
    #[must_use]
    pub const fn new(kind: EventKind) -> Self {
        Self {
            kind,
            cntlid: 0,
            sqid: 0,
            cid: 0,
            opcode: 0,
            status: 0,
            nsid: 0,
            lba: 0,
            blocks: 0,
            value: 0,
            host: HostName::NONE,
        }
    }

    /// An event of a host's queue.
    #[must_use]
    pub const fn of_queue(kind: EventKind, cntlid: u16, sqid: u16, host: HostName) -> Self {
        Self {
            cntlid,
            sqid,
            host,
            ..Self::new(kind)
        }
    }

    /// With a status.
    #[must_use]
    pub const fn with_status(self, status: Status) -> Self {
        Self {
            status: status.to_wire(),
            ..self
        }
    }

    pub(super) fn to_words(self, at_ns: u64) -> [u64; WORDS] {
        let names = u64::from(self.cntlid) << 48
            | u64::from(self.sqid) << 32
            | u64::from(self.cid) << 16
            | u64::from(self.opcode) << 8
            | u64::from(self.kind as u8);
        let mut words = [0; WORDS];
        let (numbers, name) = words.split_at_mut(NUMBERS);
        numbers.copy_from_slice(&[
            at_ns,
            names,
            u64::from(self.nsid) << 32 | u64::from(self.blocks),
            self.lba,
            u64::from(self.status),
            self.value,
        ]);
        name.copy_from_slice(&self.host.to_words());
        words
    }
}

impl Recorded {
    #[expect(clippy::cast_possible_truncation, reason = "takes the parts out again")]
    pub(super) fn of_words(reactor: Option<u16>, words: [u64; WORDS]) -> Option<Self> {
        let [at_ns, names, range, lba, status, value, host @ ..] = words;
        let kind = *EventKind::ALL.get(usize::from(names as u8))?;
        Some(Self {
            reactor,
            at_ns,
            event: Event {
                kind,
                cntlid: (names >> 48) as u16,
                sqid: (names >> 32) as u16,
                cid: (names >> 16) as u16,
                opcode: (names >> 8) as u8,
                status: status as u16,
                nsid: (range >> 32) as u32,
                lba,
                blocks: range as u32,
                value,
                host: HostName::of_words(host),
            },
        })
    }
}
