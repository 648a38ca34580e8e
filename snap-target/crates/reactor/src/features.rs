//! Optional io_uring features: probed when the ring is made, each maskable.

use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

/// A set of optional features. Linux 5.15 has none of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(u16);

/// Names, in bit order.
const NAMES: [&str; 8] = [
    "coop_taskrun",
    "single_issuer",
    "defer_taskrun",
    "buffer_rings",
    "multishot_accept",
    "multishot_recv",
    "msg_ring",
    "send_zc",
];

impl Features {
    /// Nothing: the level of Linux 5.15.
    pub const NONE: Self = Self(0);
    /// Completion work runs when the task enters the kernel next, without an interrupt (5.19).
    pub const COOP_TASKRUN: Self = Self(1 << 0);
    /// The kernel is told that one task submits (6.0).
    pub const SINGLE_ISSUER: Self = Self(1 << 1);
    /// Completion work runs only when this task asks for it; needs SINGLE_ISSUER (6.1).
    pub const DEFER_TASKRUN: Self = Self(1 << 2);
    /// Receive buffers are given back through shared memory (5.19).
    pub const BUFFER_RINGS: Self = Self(1 << 3);
    /// One accept for many connections (5.19).
    pub const MULTISHOT_ACCEPT: Self = Self(1 << 4);
    /// One receive for many messages; needs BUFFER_RINGS (6.0).
    pub const MULTISHOT_RECV: Self = Self(1 << 5);
    /// A ring wakes another without an eventfd (5.18).
    pub const MSG_RING: Self = Self(1 << 6);
    /// Zero-copy send of gathered messages (6.1). Used only where a send asks for it: it loses on loopback.
    pub const SEND_ZC: Self = Self(1 << 7);
    /// Everything this crate knows of.
    pub const ALL: Self = Self((1 << NAMES.len()) - 1);

    /// Whether every feature of `other` is in the set.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Drops features whose prerequisite is missing.
    #[must_use]
    pub(crate) fn closed(self) -> Self {
        let mut out = self;
        if !out.contains(Self::SINGLE_ISSUER) {
            out = out - Self::DEFER_TASKRUN;
        }
        if !out.contains(Self::BUFFER_RINGS) {
            out = out - Self::MULTISHOT_RECV;
        }
        out
    }

    /// Each single feature in the set.
    pub fn iter(self) -> impl Iterator<Item = Self> {
        (0..NAMES.len())
            .map(|bit| Self(1 << bit))
            .filter(move |&one| self.contains(one))
    }
}

impl std::str::FromStr for Features {
    type Err = String;

    /// One feature by its name, or `all`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::ALL);
        }
        match NAMES.iter().position(|name| *name == text) {
            Some(bit) => Ok(Self(1 << bit)),
            None => Err(format!("it is one of {}, all", NAMES.join(", "))),
        }
    }
}

impl BitOr for Features {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Features {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for Features {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                if !first {
                    f.write_str(" ")?;
                }
                f.write_str(name)?;
                first = false;
            }
        }
        if first { f.write_str("none") } else { Ok(()) }
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({self})")
    }
}
