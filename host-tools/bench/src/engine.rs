//! What carries commands: [`uring`] for files and devices, [`nvme`] for namespaces.

pub mod nvme;
pub mod uring;

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::limits;
use crate::offsets::Region;

/// What one command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Into the slot's buffer.
    Read,
    /// Out of the slot's buffer.
    Write,
    /// Deallocates.
    Trim,
    /// Makes all that was written durable.
    Sync,
    /// As [`Operation::Sync`], without what a reader does not need.
    DataSync,
}

impl Operation {
    /// For an error.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Trim => "trim",
            Operation::Sync => "fsync",
            Operation::DataSync => "fdatasync",
        }
    }
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What.
    pub operation: Operation,
    /// Which of the job's slots, and so which buffer.
    pub slot: usize,
    /// Where in the target.
    pub offset: u64,
    /// How much.
    pub len: u32,
    /// How much of the buffer is done already (a short transfer goes on).
    pub skip: u32,
}

/// What became of a command.
#[derive(Debug)]
pub struct Completion {
    /// Its slot.
    pub slot: usize,
    /// Bytes moved (more than asked for = all of them; anything for what moves none), or why not.
    pub result: std::io::Result<u32>,
}

/// Commands out, completions in. A slot has one command at a time; its buffer is the caller's between them.
pub trait Engine {
    /// The buffer of a slot that has no command outstanding.
    fn buffer(&mut self, slot: usize) -> &mut [u8];

    /// Takes a command, to be sent with the next [`Engine::commit`].
    fn push(&mut self, request: &Request) -> Result<(), Error>;

    /// Sends what was pushed.
    fn commit(&mut self) -> Result<(), Error>;

    /// Waits for `min` completions at least, or until `until`, and takes `max` at most.
    fn reap(
        &mut self,
        min: usize,
        max: usize,
        until: Option<Instant>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Error>;

    /// Before a further pass over a part of the target: has the system drop its copies of what is on the medium already.
    fn drop_copies(&mut self, part: Region);

    /// Before what was written is read back: makes it durable, and has the system forget its copies of it, so that reads reach the medium.
    fn forget_copies(&mut self) -> Result<(), Error>;

    /// How long the target may say nothing at the end of a job, before what is outstanding is given up; without it, as long as it takes.
    fn silence_max(&self, _interrupted: bool) -> Option<Duration> {
        Some(limits::SILENCE_MAX)
    }

    /// In the place of [`Engine::close`] where commands had no answer: waits for nothing.
    fn give_up(self: Box<Self>);

    /// At the end of a job.
    fn close(self: Box<Self>) -> Result<(), Error>;
}
