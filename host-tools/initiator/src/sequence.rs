//! Drives a [`Sequence`] on a queue to its end.

use std::time::Instant;

use nvme::initiator::{Command, InitiatorError, Sequence, Step, Transfer};
use nvme::tcp::batch::Slot;
use nvme_spec::Cqe;

use crate::Error;
use crate::queue::{Buffers, Completed, Queue};

/// The data of the one command that a sequence has outstanding.
struct OneBuffer(Vec<u8>);

impl Buffers for OneBuffer {
    fn incoming(&mut self, _slot: Slot) -> &mut [u8] {
        &mut self.0
    }

    fn outgoing(&self, _slot: Slot) -> &[u8] {
        &self.0
    }
}

pub(crate) fn run(queue: &mut Queue, sequence: &mut impl Sequence) -> Result<(), Error> {
    run_until(queue, sequence, None)
}

/// As [`run`]; no answer is waited for beyond `by`.
pub(crate) fn run_until(
    queue: &mut Queue,
    sequence: &mut impl Sequence,
    by: Option<Instant>,
) -> Result<(), Error> {
    let clock = queue.clock();
    let address = queue.address().to_owned();
    let refused = |source: InitiatorError| Error::Controller {
        address: address.clone(),
        source,
    };
    loop {
        match sequence.step(clock.now()).map_err(refused)? {
            Step::Done => return Ok(()),
            Step::WaitUntil(time) => std::thread::sleep(time.since(clock.now())),
            Step::Issue { command, data_out } => {
                let mut buffer = OneBuffer(match command.transfer {
                    Transfer::None => Vec::new(),
                    Transfer::In(bytes) => vec![0; bytes as usize],
                    Transfer::Out(_) => data_out,
                });
                queue.submit(&command, clock.now())?;
                let completed = complete_one(queue, &mut buffer, by)?;
                sequence
                    .answered(clock.now(), &completed.cqe, &buffer.0)
                    .map_err(refused)?;
            }
        }
    }
}

/// A command that brings data, on a queue with none outstanding: its completion, and what it brought.
pub(crate) fn one(queue: &mut Queue, command: &Command) -> Result<(Cqe, Vec<u8>), Error> {
    let bytes = match command.transfer {
        Transfer::In(bytes) => bytes as usize,
        Transfer::None | Transfer::Out(_) => 0,
    };
    let mut buffer = OneBuffer(vec![0; bytes]);
    let now = queue.clock().now();
    queue.submit(command, now)?;
    let completed = complete_one(queue, &mut buffer, None)?;
    Ok((completed.cqe, buffer.0))
}

/// Waits for the only command outstanding.
fn complete_one(
    queue: &mut Queue,
    buffers: &mut impl Buffers,
    by: Option<Instant>,
) -> Result<Completed, Error> {
    loop {
        let moved = queue.turn(buffers)?;
        if let Some(completed) = queue.next_completed()? {
            return Ok(completed);
        }
        match by {
            _ if moved => {}
            None => queue.wait()?,
            Some(by) if Instant::now() >= by => {
                return Err(Error::Silent {
                    address: queue.address().to_owned(),
                });
            }
            Some(by) => queue.wait_until(by)?,
        }
    }
}
