//! What a device's number has, and what is made there.

use std::time::{Duration, Instant};

use reactor::Errno;
use ublk::{DeviceInfo, DeviceState, Features, UblkError};

use crate::disk::{Disk, Stamp};
use crate::driver::Driver;
use crate::error::DeviceError;
use crate::limits::{
    DEPTH, DRAIN_PATIENCE, GOING_PATIENCE, GONE_PATIENCE, GONE_PAUSE, QUEUES_MAX, REQUEST_BYTES_MAX,
};

/// That a device outlives its server.
pub(crate) const RECOVERY: Features = Features::USER_RECOVERY.and(Features::USER_RECOVERY_REISSUE);
/// In [`DeviceInfo::server`]: nobody.
const NO_SERVER: i32 = -1;
/// What is not done without.
pub(crate) const NEEDED: Features = RECOVERY
    .and(Features::USER_COPY)
    .and(Features::IOCTL_ENCODE);
/// What is used where the kernel has it.
const WANTED: Features = Features::USER_COPY
    .and(Features::IOCTL_ENCODE)
    .and(Features::UPDATE_SIZE);
/// The same of a device that outlives its server.
const WANTED_TO_STAY: Features = WANTED.and(RECOVERY).and(Features::QUIESCE);

/// What there is of a device's number.
pub(crate) enum Found {
    Nothing,
    /// One of ours whose disk is gone; it goes as well, when nobody has it open.
    Deleted,
    /// Our disk, ready to be taken over.
    Left(DeviceInfo),
}

pub(crate) fn find(
    driver: &mut dyn Driver,
    number: u32,
    stamp: Stamp,
) -> Result<Found, DeviceError> {
    let begun = Instant::now();
    loop {
        let info = driver.info(number);
        if is_going(&info) {
            return Ok(Found::Deleted);
        }
        let Some(info) = info? else {
            return Ok(Found::Nothing);
        };
        let found = Stamp::of_bits(info.stamp);
        if found.place != stamp.place || info.has(Features::UNPRIVILEGED) {
            return Err(DeviceError::NotOurs { number });
        }
        // A device that does not outlive its server is dead soon after it.
        match info.state() {
            DeviceState::Dead => {
                driver.delete(number, DRAIN_PATIENCE)?;
                return Ok(Found::Deleted);
            }
            _ if !info.has(RECOVERY) => {}
            _ if found.content != stamp.content => return Err(DeviceError::NotOurs { number }),
            _ => match driver.start_recovery(number, left(begun)) {
                Ok(()) => return Ok(Found::Left(info)),
                Err(error) if error.errno() == Some(Errno::EBUSY) => {}
                // Kernels such as 6.12: it is begun already, by a process that was killed before it had the first queue.
                Err(error) if error.errno() == Some(Errno::EINVAL) => {
                    return Ok(Found::Left(info));
                }
                Err(error) => return Err(error.into()),
            },
        }
        let waited = begun.elapsed();
        if is_running(info.server) && waited > GOING_PATIENCE {
            return Err(DeviceError::Served {
                number,
                server: info.server,
            });
        }
        if waited > GONE_PATIENCE {
            let seconds = waited.as_secs();
            return Err(DeviceError::NotGone { number, seconds });
        }
        std::thread::sleep(GONE_PAUSE);
    }
}

/// What is left of [`GONE_PATIENCE`]: an order takes as long where the kernel waits for the server's end.
fn left(begun: Instant) -> Duration {
    GONE_PATIENCE
        .saturating_sub(begun.elapsed())
        .max(ublk::PATIENCE)
}

/// Whether a device is deleted, and its number lives on until it is closed: its file is gone then, which the driver looks at first.
pub(crate) fn is_going(info: &Result<Option<DeviceInfo>, UblkError>) -> bool {
    info.as_ref()
        .is_err_and(|error| error.errno() == Some(Errno::ENOENT))
}

/// Whether what has a device's number is what `ours` was made as, or taken over as, and this process is the last that served it.
pub(crate) fn is_same(ours: &DeviceInfo, there: &DeviceInfo) -> bool {
    // Nobody serves one that is not started yet, or is dead.
    let is_served_here =
        there.server == NO_SERVER || u32::try_from(there.server) == Ok(std::process::id());
    there.stamp == ours.stamp && is_served_here
}

pub(crate) fn wanted(
    number: u32,
    disk: &Disk,
    stamp: Stamp,
    features: Features,
    reactors: usize,
) -> DeviceInfo {
    let queues = u16::try_from(reactors).unwrap_or(QUEUES_MAX);
    let queues = queues.clamp(1, QUEUES_MAX);
    let wanted = if disk.outlives {
        WANTED_TO_STAY
    } else {
        WANTED
    };
    let mut info = DeviceInfo::new(number, queues, DEPTH, REQUEST_BYTES_MAX);
    info.features = features.within(wanted).0;
    info.stamp = stamp.to_bits();
    info
}

/// A device that has no disk yet.
pub(crate) fn make(
    driver: &mut dyn Driver,
    wanted: &DeviceInfo,
    is_going: bool,
) -> Result<DeviceInfo, DeviceError> {
    let number = wanted.number;
    let begun = Instant::now();
    loop {
        match driver.add(wanted) {
            Ok(info) => return Ok(info),
            Err(error) if error.errno() != Some(Errno::EEXIST) => return Err(error.into()),
            Err(_) if !is_going => return Err(DeviceError::NotOurs { number }),
            Err(_) if begun.elapsed() > GOING_PATIENCE => {
                return Err(DeviceError::StillOpen { number });
            }
            Err(_) => {}
        }
        std::thread::sleep(GONE_PAUSE);
    }
}

/// Whether a process is there, and not on its way out.
pub(crate) fn is_running(process: i32) -> bool {
    // proc(5): the state is behind the name, which may have anything in it and ends with a parenthesis.
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(stamp: u64, server: i32) -> DeviceInfo {
        let mut info = DeviceInfo::new(3, 1, DEPTH, REQUEST_BYTES_MAX);
        (info.stamp, info.server) = (stamp, server);
        info
    }

    #[test]
    fn what_has_taken_a_devices_number_is_told_from_it() {
        let here = std::process::id().cast_signed();
        let made = info(7, NO_SERVER);
        assert!(is_same(&made, &made), "not started yet");
        assert!(is_same(&made, &info(7, here)));
        assert!(is_same(&info(7, 1), &info(7, here)), "taken over");
        assert!(!is_same(&made, &info(7, 1)), "another daemon's");
        assert!(!is_same(&made, &info(8, NO_SERVER)), "another's");
        assert!(!is_same(&made, &info(8, here)));
    }

    #[test]
    fn a_device_without_its_file_is_going() {
        let refused = |source| {
            let what = "asking for /dev/ublkb0".to_owned();
            Err(UblkError::Refused { what, source })
        };
        assert!(is_going(&refused(Errno::ENOENT)));
        assert!(!is_going(&refused(Errno::ENODEV)));
        assert!(!is_going(&refused(Errno::EIO)));
        assert!(!is_going(&Ok(None)));
        let there = DeviceInfo::new(0, 1, DEPTH, REQUEST_BYTES_MAX);
        assert!(!is_going(&Ok(Some(there))));
    }
}
