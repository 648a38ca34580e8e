//! The device that a server talks to.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use crate::error::UblkError;

/// How long the device's file takes to appear, where a daemon makes it.
const APPEAR_PATIENCE: Duration = Duration::from_secs(5);
const APPEAR_PAUSE: Duration = Duration::from_millis(10);

/// Opens /dev/ublkcN, which one process has at a time. Duplicates of it serve its queues.
///
/// # Errors
/// EBUSY: another process has it.
pub fn open_queues(number: u32) -> Result<OwnedFd, UblkError> {
    let path = format!("/dev/ublkc{number}");
    let until = Instant::now() + APPEAR_PATIENCE;
    loop {
        // Nonblocking: reads and writes of a ring are then done at once, and not by a thread of the kernel's.
        let mut options = OpenOptions::new();
        let options = options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK);
        match options.open(&path) {
            Ok(file) => return Ok(file.into()),
            Err(error) => {
                let source = Errno::from_raw(error.raw_os_error().unwrap_or(0));
                if source != Errno::ENOENT || Instant::now() > until {
                    return Err(UblkError::of(path, source));
                }
            }
        }
        std::thread::sleep(APPEAR_PAUSE);
    }
}
