//! What a device's thread asks of the kernel: a seam, at which tests see it fail.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use ublk::{Control, Descriptors, DeviceInfo, Features, Params, UblkError, open_queues};

/// [`Control`], and what it does not have: the device's file, and its queues' descriptors.
pub(crate) trait Driver {
    fn features(&mut self) -> Result<Features, UblkError>;
    fn info(&mut self, number: u32) -> Result<Option<DeviceInfo>, UblkError>;
    fn add(&mut self, info: &DeviceInfo) -> Result<DeviceInfo, UblkError>;
    fn set_params(&mut self, number: u32, params: &Params) -> Result<(), UblkError>;
    fn params(&mut self, number: u32) -> Result<Params, UblkError>;
    fn start(&mut self, number: u32, patience: Duration) -> Result<(), UblkError>;
    fn start_recovery(&mut self, number: u32, patience: Duration) -> Result<(), UblkError>;
    fn end_recovery(&mut self, number: u32, patience: Duration) -> Result<(), UblkError>;
    fn delete(&mut self, number: u32, patience: Duration) -> Result<(), UblkError>;
    fn update_size(&mut self, number: u32, sectors: u64) -> Result<(), UblkError>;
    fn quiesce(&mut self, number: u32, patience: Duration) -> Result<(), UblkError>;

    fn open(&mut self, number: u32) -> Result<OwnedFd, UblkError> {
        open_queues(number)
    }

    fn map(&mut self, file: &OwnedFd, queue: u16, depth: u16) -> Result<Descriptors, UblkError> {
        Descriptors::map(file.as_fd(), queue, depth)
    }
}

impl Driver for Control {
    fn features(&mut self) -> Result<Features, UblkError> {
        self.features()
    }

    fn info(&mut self, number: u32) -> Result<Option<DeviceInfo>, UblkError> {
        self.info(number)
    }

    fn add(&mut self, info: &DeviceInfo) -> Result<DeviceInfo, UblkError> {
        self.add(info)
    }

    fn set_params(&mut self, number: u32, params: &Params) -> Result<(), UblkError> {
        self.set_params(number, params)
    }

    fn params(&mut self, number: u32) -> Result<Params, UblkError> {
        self.params(number)
    }

    fn start(&mut self, number: u32, patience: Duration) -> Result<(), UblkError> {
        self.start(number, patience)
    }

    fn start_recovery(&mut self, number: u32, patience: Duration) -> Result<(), UblkError> {
        self.start_recovery(number, patience)
    }

    fn end_recovery(&mut self, number: u32, patience: Duration) -> Result<(), UblkError> {
        self.end_recovery(number, patience)
    }

    fn delete(&mut self, number: u32, patience: Duration) -> Result<(), UblkError> {
        self.delete(number, patience)
    }

    fn update_size(&mut self, number: u32, sectors: u64) -> Result<(), UblkError> {
        self.update_size(number, sectors)
    }

    fn quiesce(&mut self, number: u32, patience: Duration) -> Result<(), UblkError> {
        self.quiesce(number, patience)
    }
}
