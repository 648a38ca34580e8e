//! A device's life in the kernel.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use reactor::Errno;
use ublk::{DeviceInfo, Features};

use crate::disk::Disk;
use crate::driver::Driver;
use crate::error::DeviceError;
use crate::found::{Found, NEEDED, RECOVERY, find, is_going, is_same, make, wanted};
use crate::limits::{DRAIN_PATIENCE, QUIESCE_PATIENCE, START_PATIENCE};
use crate::order::{Door, Order, QueueId, Start};

/// What a device's thread is told.
#[derive(Debug)]
pub(crate) enum Told {
    Disk(Box<Disk>),
    End,
    Delete,
}

/// A device while it is served.
pub(crate) struct Life {
    number: u32,
    place: String,
    driver: Box<dyn Driver>,
    info: DeviceInfo,
    /// What the kernel takes its size for.
    sectors: u64,
    disk: Arc<Disk>,
    queues: Vec<(Door, QueueId)>,
}

impl Life {
    pub(crate) fn begin(
        mut driver: Box<dyn Driver>,
        number: u32,
        place: String,
        disk: Disk,
        doors: &[Door],
    ) -> Result<Self, DeviceError> {
        let features = driver.features()?;
        if !features.has(NEEDED) {
            return Err(DeviceError::TooOld {
                missing: NEEDED.0 & !features.0,
            });
        }
        let stamp = disk.stamp(&place);
        let found = find(&mut *driver, number, stamp)?;
        let is_new = !matches!(found, Found::Left(_));
        let info = match found {
            Found::Left(info) => info,
            Found::Nothing | Found::Deleted => {
                let wanted = wanted(number, &disk, stamp, features, doors.len());
                make(&mut *driver, &wanted, matches!(found, Found::Deleted))?
            }
        };
        let mut life = Self {
            number,
            place,
            driver,
            info,
            sectors: disk.sectors(),
            disk: Arc::new(disk),
            queues: Vec::new(),
        };
        let begun = match is_new {
            true => life.appear(doors),
            false => life.take_over(doors),
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

    pub(crate) fn has(&self, features: Features) -> bool {
        self.info.has(features)
    }

    /// Queues that the kernel has for it: of one that was taken over, as many as whoever made it asked for.
    pub(crate) fn queue_count(&self) -> u16 {
        self.info.queues
    }

    /// A new disk.
    fn appear(&mut self, doors: &[Door]) -> Result<(), DeviceError> {
        self.driver.set_params(self.number, &self.disk.params())?;
        self.start_queues(doors)?;
        self.driver.start(self.number, START_PATIENCE)?;
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
        self.sectors = self.driver.params(self.number)?.basic.sectors;
        self.start_queues(doors)?;
        self.driver.end_recovery(self.number, START_PATIENCE)?;
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
        let file = self.driver.open(number)?;
        let mut starts = Vec::new();
        for (queue, door) in (0..self.info.queues).zip(doors.iter().cycle()) {
            let descriptors = self.driver.map(&file, queue, self.info.depth);
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
    pub(crate) fn lead(mut self, told: &Receiver<Told>) {
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
        self.driver.update_size(self.number, sectors)?;
        self.sectors = sectors;
        Ok(())
    }

    /// That the number is still this device's: root may have deleted it, and another program made one.
    fn check_ours(&mut self) -> Result<(), DeviceError> {
        let number = self.number;
        let info = self.driver.info(number);
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
            && let Err(error) = self.driver.quiesce(number, QUIESCE_PATIENCE)
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
        if let Err(error) = self.driver.delete(number, DRAIN_PATIENCE) {
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

fn duplicate(file: &OwnedFd) -> Result<OwnedFd, DeviceError> {
    file.try_clone()
        .map_err(|source: io::Error| DeviceError::System {
            what: "duplicating a file descriptor",
            source,
        })
}

#[cfg(test)]
mod tests;
