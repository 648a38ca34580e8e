//! What the SMART log counts; the frontend feeds it.

/// Totals of a controller since it was made. Queues on other threads report differences with [`ControllerCounters::add`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerCounters {
    /// Bytes that reads returned.
    pub bytes_read: u128,
    /// Bytes that writes brought.
    pub bytes_written: u128,
    /// Read commands completed.
    pub read_commands: u128,
    /// Write commands completed.
    pub write_commands: u128,
    /// Commands that failed because stored bytes did not match their checksum or could not be read.
    pub media_errors: u128,
    /// Nanoseconds with a command outstanding.
    pub busy_nanos: u128,
}

impl ControllerCounters {
    /// Adds what a queue has counted since it last reported.
    pub fn add(&mut self, more: &ControllerCounters) {
        self.bytes_read += more.bytes_read;
        self.bytes_written += more.bytes_written;
        self.read_commands += more.read_commands;
        self.write_commands += more.write_commands;
        self.media_errors += more.media_errors;
        self.busy_nanos += more.busy_nanos;
    }
}
