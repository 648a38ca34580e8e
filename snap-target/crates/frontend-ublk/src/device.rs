//! A device, and the thread that leads its life.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use reactor::Errno;
use ublk::{Control, DeviceState, Features, UblkError};

use crate::disk::Disk;
use crate::error::DeviceError;
use crate::found::{is_going, is_running};
use crate::life::{Life, Told};
use crate::limits::DRAIN_PATIENCE;
use crate::order::Door;

/// A block device of this machine. Dropped, it is left to the next process, or deleted where its content ends with this one.
#[derive(Debug)]
pub struct Device {
    number: u32,
    orders: Sender<Told>,
    /// Whether its size can be changed; false until it is there.
    may_resize: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    /// Makes /dev/ublkbN, or takes it over from a process that has ended and made it for the same `place` (the name of a namespace) and content. Its queues
    /// go to the reactors behind `doors`, one to each. `then` hears when it is there, of so many queues, or why it is not: from a thread of its own, since the kernel reads
    /// the disk meanwhile.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(
        number: u32,
        place: &str,
        disk: Disk,
        doors: Vec<Door>,
        then: impl FnOnce(Result<u16, DeviceError>) + Send + 'static,
    ) -> Result<Self, DeviceError> {
        let (orders, told) = mpsc::channel();
        let may_resize = Arc::new(AtomicBool::new(false));
        let (place, to_tell) = (place.to_owned(), may_resize.clone());
        let thread = std::thread::Builder::new()
            .name(format!("ublk-{number}"))
            .spawn(move || match begin(number, place, disk, &doors) {
                Ok(life) => {
                    to_tell.store(life.has(Features::UPDATE_SIZE), Ordering::SeqCst);
                    then(Ok(life.queue_count()));
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

fn begin(number: u32, place: String, disk: Disk, doors: &[Door]) -> Result<Life, DeviceError> {
    Life::begin(Box::new(Control::open()?), number, place, disk, doors)
}
