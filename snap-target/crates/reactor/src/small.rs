//! Rings that are smaller than was asked for.

use std::fmt;

/// A ring has fewer entries than were asked for: locked memory ended (RLIMIT_MEMLOCK, which recent kernels count rings against; 6.18 does).
///
/// Nothing is lost with it: the kernel keeps completions that find no entry, and a submission that finds none waits for the next system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallRing {
    /// Completions that it holds.
    pub completions: u32,
    /// Completions that were asked for.
    pub wanted: u32,
}

impl SmallRing {
    /// What it costs.
    pub const COSTS: &str = "with many operations in flight the kernel keeps completions apart, which takes more memory and system calls, and begins receives again; everything works";
}

impl fmt::Display for SmallRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            completions,
            wanted,
        } = self;
        write!(
            f,
            "rings of {completions} completions instead of {wanted}: RLIMIT_MEMLOCK (ulimit -l) has no room for more"
        )
    }
}
