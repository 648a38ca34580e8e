//! Counters of one ring.

/// What a ring did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Calls of [`crate::Ring::turn`].
    pub turns: u64,
    /// System calls io_uring_enter.
    pub enters: u64,
    /// Entries handed to the kernel.
    pub submitted: u64,
    /// Completions taken from the kernel.
    pub completions: u64,
    /// Turns that polled before they blocked or found work.
    pub spins: u64,
    /// Times the thread went to sleep in the kernel.
    pub blocks: u64,
    /// Nanoseconds that it slept there.
    pub slept_ns: u64,
    /// Wake-ups by another thread that were seen.
    pub wakeups: u64,
    /// Timers fired.
    pub timers: u64,
    /// Sends and receives continued after a short transfer.
    pub continued: u64,
}
