//! The driver's commands about devices, at /dev/ublk-control.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use nix::errno::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::UblkError;
use crate::wire::{
    ADD_DEV, ControlCommand, DEL_DEV, DEL_DEV_ASYNC, DeviceInfo, END_USER_RECOVERY, Features,
    GET_DEV_INFO2, GET_FEATURES, GET_PARAMS, Params, QUIESCE_DEV, SET_PARAMS, START_DEV,
    START_USER_RECOVERY, UPDATE_SIZE,
};

const PATH: &str = "/dev/ublk-control";
/// How long a command may take that waits for nobody.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Room for a command's payload: structures of 64 bytes, behind the path of a device.
const PAYLOAD_BYTES: usize = 128;
/// UBLK_CMD commands that are about no queue.
const NO_QUEUE: u16 = u16::MAX;

type Ring = IoUring<Entry128, cqueue::Entry>;

/// The driver's ear. Commands are given one at a time.
pub struct Control {
    file: File,
    ring: Ring,
    /// What a command tells, and is told.
    payload: Box<[u8; PAYLOAD_BYTES]>,
}

impl Control {
    /// Opens it.
    ///
    /// # Errors
    /// The driver is not there, or may not be used; io_uring cannot be had.
    pub fn open() -> Result<Self, UblkError> {
        let file = OpenOptions::new().read(true).write(true).open(PATH);
        let file = file.map_err(|error| match errno(&error) {
            source @ (Errno::ENOENT | Errno::ENODEV | Errno::ENXIO) => UblkError::NoDriver {
                path: PATH.to_owned(),
                source,
            },
            source => UblkError::of(PATH.to_owned(), source),
        })?;
        Ok(Self {
            file,
            ring: ring()?,
            payload: Box::new([0; PAYLOAD_BYTES]),
        })
    }

    /// What devices of this kernel can.
    ///
    /// # Errors
    /// The driver's.
    pub fn features(&mut self) -> Result<Features, UblkError> {
        let mut bytes = [0; 8];
        self.exchange("asking for ublk's features", GET_FEATURES, 0, &mut bytes)?;
        Ok(Features(u64::from_le_bytes(bytes)))
    }

    /// Makes a device; what it came to be.
    ///
    /// # Errors
    /// EEXIST: there is one of this number.
    pub fn add(&mut self, info: &DeviceInfo) -> Result<DeviceInfo, UblkError> {
        let mut info = *info;
        let what = format!("making /dev/ublkb{}", info.number);
        self.exchange(&what, ADD_DEV, info.number, info.as_mut_bytes())?;
        Ok(info)
    }

    /// What is known of a device; none where there is none of this number.
    ///
    /// # Errors
    /// ENOENT: it is deleted, and the number lives on until whoever has it open has closed it. Else the driver's.
    pub fn info(&mut self, number: u32) -> Result<Option<DeviceInfo>, UblkError> {
        // Of a device that somebody without privileges made, the driver wants the path as well, and its end.
        let path = format!("/dev/ublkc{number}\0");
        let mut payload = [0; PAYLOAD_BYTES];
        let behind = path.len() + size_of::<DeviceInfo>();
        payload[..path.len()].copy_from_slice(path.as_bytes());
        let command = ControlCommand {
            device: number,
            queue: NO_QUEUE,
            // At most 10 digits: it fits.
            path_bytes: u16::try_from(path.len()).unwrap_or(0),
            ..ControlCommand::default()
        };
        let what = format!("asking for /dev/ublkb{number}");
        match self.command(
            &what,
            GET_DEV_INFO2,
            command,
            &mut payload[..behind],
            PATIENCE,
        ) {
            Err(error) if error.errno() == Some(Errno::ENODEV) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(DeviceInfo::read_from_bytes(&payload[path.len()..behind]).ok()),
        }
    }

    /// Says what a device's disk is, before it is started.
    ///
    /// # Errors
    /// The driver's.
    pub fn set_params(&mut self, number: u32, params: &Params) -> Result<(), UblkError> {
        let mut params = *params;
        let what = format!("describing /dev/ublkb{number}");
        self.exchange(&what, SET_PARAMS, number, params.as_mut_bytes())
    }

    /// What a device's disk is.
    ///
    /// # Errors
    /// The driver's.
    pub fn params(&mut self, number: u32) -> Result<Params, UblkError> {
        let mut params = Params::asked();
        let what = format!("asking what /dev/ublkb{number} is");
        self.exchange(&what, GET_PARAMS, number, params.as_mut_bytes())?;
        Ok(params)
    }

    /// Has a disk appear, when all its queues are fetched. The kernel looks for partitions on it before it answers.
    ///
    /// # Errors
    /// The driver's.
    pub fn start(&mut self, number: u32, patience: Duration) -> Result<(), UblkError> {
        let what = format!("starting /dev/ublkb{number}");
        self.order(&what, START_DEV, number, server(), patience)
    }

    /// Begins to take a device over whose server has gone.
    ///
    /// # Errors
    /// EBUSY: it has not, or not completely. Some kernels wait for that instead.
    pub fn start_recovery(&mut self, number: u32, patience: Duration) -> Result<(), UblkError> {
        let what = format!("taking /dev/ublkb{number} over");
        self.order(&what, START_USER_RECOVERY, number, 0, patience)
    }

    /// Has a device's requests come again, when all its queues are fetched.
    ///
    /// # Errors
    /// The driver's.
    pub fn end_recovery(&mut self, number: u32, patience: Duration) -> Result<(), UblkError> {
        let what = format!("taking /dev/ublkb{number} over");
        self.order(&what, END_USER_RECOVERY, number, server(), patience)
    }

    /// Deletes a device. Its requests end before, those to come fail; the number is free when whoever has it open has closed it, which is not waited for.
    ///
    /// # Errors
    /// The driver's.
    pub fn delete(&mut self, number: u32, patience: Duration) -> Result<(), UblkError> {
        let what = format!("deleting /dev/ublkb{number}");
        let deleted = self.order(&what, DEL_DEV_ASYNC, number, 0, patience);
        match deleted {
            // Before Linux 6.9: it waits for those who have it open, and so is given up.
            Err(error) if error.errno() == Some(Errno::EOPNOTSUPP) => {
                self.order(&what, DEL_DEV, number, 0, patience)
            }
            deleted => deleted,
        }
    }

    /// Gives a disk another size, in sectors.
    ///
    /// # Errors
    /// The driver's.
    pub fn update_size(&mut self, number: u32, sectors: u64) -> Result<(), UblkError> {
        let what = format!("changing the size of /dev/ublkb{number}");
        self.order(&what, UPDATE_SIZE, number, sectors, PATIENCE)
    }

    /// Has a device's requests wait for its next server; what its server waits for ends with [`ABORTED`](crate::ABORTED).
    ///
    /// # Errors
    /// EBUSY: its server has had all that a queue may have for so long.
    pub fn quiesce(&mut self, number: u32, patience: Duration) -> Result<(), UblkError> {
        let what = format!("quiescing /dev/ublkb{number}");
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.order(&what, QUIESCE_DEV, number, patience_ms, patience + PATIENCE)
    }

    fn order(
        &mut self,
        what: &str,
        code: u32,
        device: u32,
        data: u64,
        patience: Duration,
    ) -> Result<(), UblkError> {
        let command = ControlCommand {
            device,
            queue: NO_QUEUE,
            data,
            ..ControlCommand::default()
        };
        self.command(what, code, command, &mut [], patience)
    }

    fn exchange(
        &mut self,
        what: &str,
        code: u32,
        device: u32,
        payload: &mut [u8],
    ) -> Result<(), UblkError> {
        let command = ControlCommand {
            device,
            queue: NO_QUEUE,
            ..ControlCommand::default()
        };
        self.command(what, code, command, payload, PATIENCE)
    }

    /// Gives a command, and waits for its end. What the driver left of the payload lies there afterwards.
    fn command(
        &mut self,
        what: &str,
        code: u32,
        mut command: ControlCommand,
        payload: &mut [u8],
        patience: Duration,
    ) -> Result<(), UblkError> {
        let refused = |source| UblkError::of(what.to_owned(), source);
        if let Some(room) = self.payload.get_mut(..payload.len()) {
            room.copy_from_slice(payload);
        }
        // At most PAYLOAD_BYTES.
        command.payload_bytes = u16::try_from(payload.len()).unwrap_or(0);
        if !payload.is_empty() {
            command.payload = self.payload.as_mut_ptr().expose_provenance() as u64;
        }
        let mut bytes = [0; 80];
        bytes[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), code).cmd(bytes);
        // SAFETY: what the entry points at is `self.payload`, which is neither touched nor freed before the command has ended: where it is given up,
        // `forget` leaves it allocated.
        unsafe { self.ring.submission().push(&entry.build()) }
            .map_err(|_| refused(Errno::EBUSY))?;
        match self.wait(Instant::now() + patience) {
            Ok(Some(result)) if result < 0 => Err(refused(Errno::from_raw(-result))),
            Ok(Some(_)) => {
                if let Some(left) = self.payload.get(..payload.len()) {
                    payload.copy_from_slice(left);
                }
                Ok(())
            }
            Ok(None) => {
                self.forget()?;
                Err(UblkError::NotInTime {
                    what: what.to_owned(),
                    patience,
                })
            }
            Err(source) => {
                self.forget()?;
                Err(refused(source))
            }
        }
    }

    /// The result of the one command; none where it takes longer.
    fn wait(&mut self, until: Instant) -> Result<Option<i32>, Errno> {
        loop {
            if let Some(entry) = self.ring.completion().next() {
                return Ok(Some(entry.result()));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let timespec = types::Timespec::from(left);
            let args = types::SubmitArgs::new().timespec(&timespec);
            match self.ring.submitter().submit_with_args(1, &args) {
                Ok(_) => {}
                Err(error) => match errno(&error) {
                    Errno::EINTR | Errno::ETIME => {}
                    source => return Err(source),
                },
            }
        }
    }

    /// Leaves a command that was given up to the kernel, with what it may still read and write.
    fn forget(&mut self) -> Result<(), UblkError> {
        let payload = std::mem::replace(&mut self.payload, Box::new([0; PAYLOAD_BYTES]));
        Box::leak(payload);
        self.ring = ring()?;
        Ok(())
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Control")
    }
}

fn ring() -> Result<Ring, UblkError> {
    let made = IoUring::<Entry128>::builder().build(4);
    made.map_err(|error| {
        let what = "an io_uring of 128-byte entries (Linux 5.19)".to_owned();
        UblkError::of(what, errno(&error))
    })
}

/// This process, as the driver is told who serves.
fn server() -> u64 {
    u64::from(std::process::id())
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}
