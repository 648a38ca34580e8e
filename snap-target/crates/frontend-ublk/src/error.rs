//! Why a device is not there.

use std::io;

use ublk::UblkError;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The driver, or the system behind it.
    #[error(transparent)]
    Ublk(#[from] UblkError),
    /// The kernel's ublk cannot do what is needed.
    #[error(
        "this kernel's ublk cannot do what is needed (feature bits {missing:#x} are missing: copies by the server, recovery with reissue); Linux 6.5 or later can"
    )]
    TooOld {
        /// The features that are not there.
        missing: u64,
    },
    /// The number is taken by something else.
    #[error(
        "/dev/ublkb{number} is there already, and is not this disk: another program made it, or it presented another disk, or this one with other blocks or otherwise protected; take another number, or, when nobody uses it any more, delete it: snap-target --delete-ublk {number}"
    )]
    NotOurs {
        /// The device's number.
        number: u32,
    },
    /// One of ours before, which is gone but for those who have it open.
    #[error(
        "/dev/ublkb{number}: the disk that it was is gone, and somebody has it open still: unmount it, or end who has it open"
    )]
    StillOpen {
        /// The device's number.
        number: u32,
    },
    /// Deleted by somebody else.
    #[error(
        "/dev/ublkb{number} is no longer the device that this daemon made: somebody has deleted it, and another program may have taken its number; nothing is done to what is there now"
    )]
    Lost {
        /// The device's number.
        number: u32,
    },
    /// Another process serves it.
    #[error(
        "/dev/ublkb{number} is served by process {server}; end that one, or take another number"
    )]
    Served {
        /// The device's number.
        number: u32,
        /// Who serves it.
        server: i32,
    },
    /// Who served it does not go.
    #[error(
        "/dev/ublkb{number}: the process that served it has ended, and the kernel has not let go of what it had after {seconds} s: a disk below it may hang"
    )]
    NotGone {
        /// The device's number.
        number: u32,
        /// How long it was waited for.
        seconds: u64,
    },
    /// Taken over by half.
    #[error(
        "/dev/ublkb{number}: the process before this one was killed while it took the device over, and this kernel does not give it to another; delete it, when nobody uses it any more: snap-target --delete-ublk {number}"
    )]
    HalfTaken {
        /// The device's number.
        number: u32,
    },
    /// A reactor.
    #[error("/dev/ublkb{number}: {why}")]
    Queue {
        /// The device's number.
        number: u32,
        /// Why.
        why: String,
    },
    /// The kernel cannot change sizes.
    #[error(
        "/dev/ublkb{number}: this kernel cannot change a ublk disk's size while it is there (UBLK_CMD_UPDATE_SIZE, Linux 6.16); delete it and make it again, when nobody uses it"
    )]
    NoResize {
        /// The device's number.
        number: u32,
    },
    /// The system.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}
