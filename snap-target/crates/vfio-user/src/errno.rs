//! What an error reply says.

use std::num::NonZeroU32;

/// A Unix errno: positive, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(NonZeroU32);

macro_rules! errnos {
    ($($(#[$meta:meta])* $name:ident = $value:literal;)*) => {
        impl Errno {
            $($(#[$meta])* pub const $name: Errno = Errno(NonZeroU32::new($value).unwrap());)*
        }
    };
}

errnos! {
    /// No such window.
    ENOENT = 2;
    /// The device failed.
    EIO = 5;
    /// More than the limit that was announced.
    E2BIG = 7;
    /// Memory that is not there.
    EFAULT = 14;
    /// It is still doing something else.
    EBUSY = 16;
    /// The window overlaps another.
    EEXIST = 17;
    /// The message contradicts itself, or the device's description.
    EINVAL = 22;
    /// As many as there may be.
    ENOSPC = 28;
    /// No such command.
    ENOSYS = 38;
    /// The command is known and not offered.
    ENOTSUP = 95;
    /// It did not happen in time.
    ETIMEDOUT = 110;
}

impl Errno {
    /// The number on the wire.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// A client's error: one that says 0 is an I/O error.
    #[must_use]
    pub fn of_wire(value: u32) -> Errno {
        NonZeroU32::new(value).map_or(Self::EIO, Errno)
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "errno {}", self.0)
    }
}
