//! A device: its life in the kernel, and the thread that leads it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reactor::Errno;
use ublk::{Control, Descriptors, DeviceInfo, DeviceState, Features, UblkError, open_queues};

use crate::disk::{Disk, Stamp};
use crate::error::DeviceError;
use crate::limits::{
    DEPTH, DRAIN_PATIENCE, GOING_PATIENCE, GONE_PATIENCE, GONE_PAUSE, QUEUES_MAX, QUIESCE_PATIENCE,
    REQUEST_BYTES_MAX, START_PATIENCE,
};
use crate::order::{Door, Order, QueueId, Start};

/// That a device outlives its server.
const RECOVERY: Features = Features::USER_RECOVERY.and(Features::USER_RECOVERY_REISSUE);
/// In [`DeviceInfo::server`]: nobody.
const NO_SERVER: i32 = -1;
/// What is not done without.
const NEEDED: Features = RECOVERY
    .and(Features::USER_COPY)
    .and(Features::IOCTL_ENCODE);
/// What is used where the kernel has it.
const WANTED: Features = Features::USER_COPY
    .and(Features::IOCTL_ENCODE)
    .and(Features::UPDATE_SIZE);
/// The same of a device that outlives its server.
const WANTED_TO_STAY: Features = WANTED.and(RECOVERY).and(Features::QUIESCE);

/// A block device of this machine. Dropped, it is left to the next process, or deleted where its content ends with this one.
#[derive(Debug)]
pub struct Device {
    number: u32,
    orders: Sender<Told>,
    /// Whether its size can be changed; false until it is there.
    may_resize: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a device's thread is told.
#[derive(Debug)]
enum Told {
    Disk(Box<Disk>),
    End,
    Delete,
}

impl Device {
    /// Makes /dev/ublkbN, or takes it over from a process that has ended and made it for the same `place` (the name of a namespace) and content. Its queues
    /// go to the reactors behind `doors`, one to each. `then` hears when it is there, or why it is not: from a thread of its own, since the kernel reads
    /// the disk meanwhile.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(
        number: u32,
        place: &str,
        disk: Disk,
        doors: Vec<Door>,
        then: impl FnOnce(Result<(), DeviceError>) + Send + 'static,
    ) -> Result<Self, DeviceError> {
        let (orders, told) = mpsc::channel();
        let may_resize = Arc::new(AtomicBool::new(false));
        let (place, to_tell) = (place.to_owned(), may_resize.clone());
        let thread = std::thread::Builder::new()
            .name(format!("ublk-{number}"))
            .spawn(move || match Life::begin(number, place, disk, doors) {
                Ok(life) => {
                    to_tell.store(life.info.has(Features::UPDATE_SIZE), Ordering::SeqCst);
                    then(Ok(()));
                    life.lead(&told);
                }
                Err(why) => then(Err(why)),
            });
        let thread = thread.map_err(|source| DeviceError::System {
            what: "starting a thread",
            source,
        })?;
        Ok(Self {
            number,
            orders,
            may_resize,
            thread: Some(thread),
        })
    }

    /// Its number: /dev/ublkbN.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether it never came to be, or is deleted.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// That its size can be changed.
    ///
    /// # Errors
    /// The kernel cannot.
    pub fn may_resize(&self) -> Result<(), DeviceError> {
        match self.may_resize.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err(DeviceError::NoResize {
                number: self.number,
            }),
        }
    }

    /// The disk has become another one of the same content: its size may have changed. Requests go there from now on. What stands in the way of that is
    /// told in the log.
    pub fn set_disk(&self, disk: Disk) {
        // A thread that has ended has told why.
        drop(self.orders.send(Told::Disk(Box::new(disk))));
    }

    /// Begins its deletion, which [`Drop`] waits for: it is not left to the next process, however many have it open.
    pub fn begin_delete(&self) {
        drop(self.orders.send(Told::Delete));
    }

    /// Begins its end, which [`Drop`] waits for: so several end at the same time.
    pub fn begin_end(&self) {
        // A thread that has ended needs not be told.
        drop(self.orders.send(Told::End));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.begin_end();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has been told of.
            drop(thread.join());
        }
    }
}

/// Deletes a device that no process serves.
///
/// # Errors
/// There is none, a process serves it, or the driver's.
pub fn delete(number: u32) -> Result<(), DeviceError> {
    let mut control = Control::open()?;
    let info = control.info(number);
    if is_going(&info) {
        return Err(DeviceError::StillOpen { number });
    }
    let Some(info) = info? else {
        let what = format!("/dev/ublkb{number}");
        return Err(UblkError::Refused {
            what,
            source: Errno::ENODEV,
        }
        .into());
    };
    if info.state() == DeviceState::Live && is_running(info.server) {
        return Err(DeviceError::Served {
            number,
            server: info.server,
        });
    }
    Ok(control.delete(number, DRAIN_PATIENCE)?)
}

/// A device while it is served.
struct Life {
    number: u32,
    place: String,
    control: Control,
    info: DeviceInfo,
    /// What the kernel takes its size for.
    sectors: u64,
    disk: Arc<Disk>,
    queues: Vec<(Door, QueueId)>,
}

impl Life {
    fn begin(
        number: u32,
        place: String,
        disk: Disk,
        doors: Vec<Door>,
    ) -> Result<Self, DeviceError> {
        let mut control = Control::open()?;
        let features = control.features()?;
        if !features.has(NEEDED) {
            return Err(DeviceError::TooOld {
                missing: NEEDED.0 & !features.0,
            });
        }
        let stamp = disk.stamp(&place);
        let found = find(&mut control, number, stamp)?;
        let is_new = !matches!(found, Found::Left(_));
        let info = match found {
            Found::Left(info) => info,
            Found::Nothing | Found::Deleted => {
                let wanted = wanted(number, &disk, stamp, features, doors.len());
                make(&mut control, &wanted, matches!(found, Found::Deleted))?
            }
        };
        let mut life = Self {
            number,
            place,
            control,
            info,
            sectors: disk.sectors(),
            disk: Arc::new(disk),
            queues: Vec::new(),
        };
        let begun = match is_new {
            true => life.appear(&doors),
            false => life.take_over(&doors),
        };
        match begun {
            Ok(()) => Ok(life),
            Err(why) => {
                // What was found stays as it was: the next process may have more luck.
                if is_new {
                    life.delete();
                }
                Err(why)
            }
        }
    }

    /// A new disk.
    fn appear(&mut self, doors: &[Door]) -> Result<(), DeviceError> {
        self.control.set_params(self.number, &self.disk.params())?;
        self.start_queues(doors)?;
        self.control.start(self.number, START_PATIENCE)?;
        tracing::info!(
            device = self.number,
            disk = self.disk.name,
            "/dev/ublkb{} is there",
            self.number
        );
        Ok(())
    }

    /// The disk of a process that has ended.
    fn take_over(&mut self, doors: &[Door]) -> Result<(), DeviceError> {
        self.sectors = self.control.params(self.number)?.basic.sectors;
        self.start_queues(doors)?;
        self.control.end_recovery(self.number, START_PATIENCE)?;
        tracing::info!(
            device = self.number,
            disk = self.disk.name,
            "/dev/ublkb{} is taken over",
            self.number
        );
        if self.sectors != self.disk.sectors()
            && let Err(error) = self.resize(self.disk.sectors())
        {
            tracing::error!(%error, "its disk has another size than it is known by: requests beyond its end fail");
        }
        Ok(())
    }

    /// Has reactors fetch requests. All of them are told before the first is waited for: a process that is killed between two queues leaves a device that
    /// kernels such as 6.12 do not give to the next.
    fn start_queues(&mut self, doors: &[Door]) -> Result<(), DeviceError> {
        let number = self.number;
        let failed = |why: String| DeviceError::Queue { number, why };
        let file = open_queues(number)?;
        let mut starts = Vec::new();
        for (queue, door) in (0..self.info.queues).zip(doors.iter().cycle()) {
            let descriptors = Descriptors::map(file.as_fd(), queue, self.info.depth);
            let start = Start {
                id: QueueId::next(),
                name: format!("ublkb{number}/{queue}"),
                number: queue,
                depth: self.info.depth,
                file: duplicate(&file)?,
                descriptors: descriptors.map_err(|error| match error.errno() {
                    Some(Errno::EINVAL) => DeviceError::HalfTaken { number },
                    _ => error.into(),
                })?,
                disk: self.disk.clone(),
            };
            starts.push((door, start));
        }
        let mut asked = Vec::new();
        for (door, start) in starts {
            self.queues.push((door.clone(), start.id));
            let begun = door.0.begin(|answer| Order::Start(Box::new(start), answer));
            asked.push(begun.map_err(|error| failed(error.to_string()))?);
        }
        for asked in asked {
            let started = asked.wait().map_err(|error| failed(error.to_string()))?;
            started.map_err(failed)?;
        }
        Ok(())
    }

    /// Until it is told to end.
    fn lead(mut self, told: &Receiver<Told>) {
        loop {
            match told.recv() {
                Ok(Told::Disk(disk)) => {
                    if let Err(error) = self.set_disk(*disk) {
                        tracing::error!(%error, "a block device of this machine does not follow its namespace: its requests may fail");
                    }
                }
                Ok(Told::Delete) => return self.delete(),
                Ok(Told::End) | Err(_) if self.info.has(RECOVERY) => return self.leave(),
                Ok(Told::End) | Err(_) => return self.delete(),
            }
        }
    }

    fn set_disk(&mut self, disk: Disk) -> Result<(), DeviceError> {
        let number = self.number;
        if disk.stamp(&self.place) != self.disk.stamp(&self.place) {
            return Err(DeviceError::NotOurs { number });
        }
        let sectors = disk.sectors();
        let disk = Arc::new(disk);
        self.disk = disk.clone();
        for (door, id) in &self.queues {
            let told = door.0.send(Order::Disk(*id, disk.clone()));
            told.map_err(|error| DeviceError::Queue {
                number,
                why: error.to_string(),
            })?;
        }
        match sectors == self.sectors {
            true => Ok(()),
            false => self.resize(sectors),
        }
    }

    /// Has the kernel know of another size.
    fn resize(&mut self, sectors: u64) -> Result<(), DeviceError> {
        if !self.info.has(Features::UPDATE_SIZE) {
            return Err(DeviceError::NoResize {
                number: self.number,
            });
        }
        self.check_ours()?;
        self.control.update_size(self.number, sectors)?;
        self.sectors = sectors;
        Ok(())
    }

    /// That the number is still this device's: root may have deleted it, and another program made one.
    fn check_ours(&mut self) -> Result<(), DeviceError> {
        let number = self.number;
        let info = self.control.info(number);
        if is_going(&info) {
            return Err(DeviceError::Lost { number });
        }
        match info? {
            Some(there) if is_same(&self.info, &there) => Ok(()),
            _ => Err(DeviceError::Lost { number }),
        }
    }

    /// Leaves the device to the next process: what was begun ends, the rest waits in the kernel.
    fn leave(&mut self) {
        let asked: Vec<_> = self
            .queues
            .iter()
            .filter_map(|(door, id)| door.0.begin(|answer| Order::Drain(*id, answer)).ok())
            .collect();
        let drained = asked.into_iter().all(|asked| asked.wait().is_ok());
        let number = self.number;
        if !drained {
            tracing::warn!(
                device = number,
                "requests are under way still: the next process is given them again"
            );
        }
        if let Err(error) = self.check_ours() {
            tracing::warn!(device = number, %error, "a block device of this machine is not left to the next process");
            return;
        }
        if self.info.has(Features::QUIESCE)
            && let Err(error) = self.control.quiesce(number, QUIESCE_PATIENCE)
        {
            tracing::debug!(%error, "the kernel sees with the end of this process that its requests have to wait");
        }
        tracing::warn!(
            device = number,
            "/dev/ublkb{number} stays, and its requests wait, until the daemon serves it again; to be rid of it: snap-target --delete-ublk {number}"
        );
    }

    /// Deletes the device, however many have it open.
    fn delete(&mut self) {
        let number = self.number;
        if let Err(error) = self.check_ours() {
            tracing::warn!(device = number, %error, "a ublk device is not deleted");
            return;
        }
        // Before the kernel ends them: they know then that it was asked for.
        let asked: Vec<_> = self
            .queues
            .iter()
            .map(|(door, id)| door.0.begin(|answer| Order::Await(*id, answer)))
            .collect();
        // Its requests end by the way, those to come with an error.
        if let Err(error) = self.control.delete(number, DRAIN_PATIENCE) {
            tracing::error!(device = number, %error, "a ublk device is not deleted: snap-target --delete-ublk {number}");
            return;
        }
        for asked in asked {
            if asked.and_then(|asked| asked.wait()).is_err() {
                tracing::warn!(device = number, "a queue of a ublk device does not end");
            }
        }
        tracing::info!(device = number, "/dev/ublkb{number} is deleted");
    }
}

/// What there is of a device's number.
enum Found {
    Nothing,
    /// One of ours whose disk is gone; it goes as well, when nobody has it open.
    Deleted,
    /// Our disk, ready to be taken over.
    Left(DeviceInfo),
}

fn find(control: &mut Control, number: u32, stamp: Stamp) -> Result<Found, DeviceError> {
    let begun = Instant::now();
    loop {
        let info = control.info(number);
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
                control.delete(number, DRAIN_PATIENCE)?;
                return Ok(Found::Deleted);
            }
            _ if !info.has(RECOVERY) => {}
            _ if found.content != stamp.content => return Err(DeviceError::NotOurs { number }),
            _ => match control.start_recovery(number, left(begun)) {
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
fn is_going(info: &Result<Option<DeviceInfo>, UblkError>) -> bool {
    info.as_ref()
        .is_err_and(|error| error.errno() == Some(Errno::ENOENT))
}

/// Whether what has a device's number is what `ours` was made as, or taken over as, and this process is the last that served it.
fn is_same(ours: &DeviceInfo, there: &DeviceInfo) -> bool {
    // Nobody serves one that is not started yet, or is dead.
    let is_served_here =
        there.server == NO_SERVER || u32::try_from(there.server) == Ok(std::process::id());
    there.stamp == ours.stamp && is_served_here
}

fn wanted(
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
fn make(
    control: &mut Control,
    wanted: &DeviceInfo,
    is_going: bool,
) -> Result<DeviceInfo, DeviceError> {
    let number = wanted.number;
    let begun = Instant::now();
    loop {
        match control.add(wanted) {
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
fn is_running(process: i32) -> bool {
    // proc(5): the state is behind the name, which may have anything in it and ends with a parenthesis.
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn duplicate(file: &OwnedFd) -> Result<OwnedFd, DeviceError> {
    file.try_clone()
        .map_err(|source: io::Error| DeviceError::System {
            what: "duplicating a file descriptor",
            source,
        })
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
