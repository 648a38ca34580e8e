//! The admin queue of a path: commands of the path's machine, and aborts.

use nvme::Time;
use nvme::initiator::path::AdminCommand;
use nvme::initiator::{Command, Transfer};
use nvme::queue::Slot;
use nvme_spec::Cqe;
use reactor::buf::IoBuf;

use crate::queue::{Outcome, Queue, QueueEvent};

/// What a command of the admin queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Path(AdminCommand),
    Shutdown,
    Abort,
    /// The only one there is.
    Single,
}

/// What happened on it.
#[derive(Debug)]
pub(crate) enum AdminEvent {
    Ready,
    Answered {
        purpose: Purpose,
        cqe: Cqe,
        data: Vec<u8>,
    },
    Over(String),
}

#[derive(Debug)]
pub(crate) struct AdminQueue {
    queue: Box<dyn Queue>,
    issued: Vec<(Slot, Purpose)>,
    events: Vec<QueueEvent>,
}

impl AdminQueue {
    pub fn new(queue: Box<dyn Queue>) -> Self {
        Self {
            queue,
            issued: Vec::new(),
            events: Vec::new(),
        }
    }

    pub fn poll(&mut self, now: Time, out: &mut Vec<AdminEvent>) {
        self.queue.poll(now, &mut self.events);
        for event in self.events.drain(..) {
            match event {
                QueueEvent::Ready => out.push(AdminEvent::Ready),
                QueueEvent::Over(error) => out.push(AdminEvent::Over(error.to_string())),
                QueueEvent::Ended { slot, outcome, buf } => {
                    let at = self.issued.iter().position(|(issued, _)| *issued == slot);
                    let Some(at) = at else { continue };
                    let (_, purpose) = self.issued.swap_remove(at);
                    if let Outcome::Answered(cqe) = outcome {
                        let data = buf.map(|buf| buf.to_vec()).unwrap_or_default();
                        out.push(AdminEvent::Answered { purpose, cqe, data });
                    }
                }
            }
        }
    }

    /// Sends a command; says why where it cannot.
    pub fn issue(
        &mut self,
        purpose: Purpose,
        command: &Command,
        data_out: &[u8],
        now: Time,
    ) -> Result<(), String> {
        let buf = match command.transfer {
            Transfer::None => None,
            Transfer::In(bytes) => {
                Some(IoBuf::heap(bytes as usize).map_err(|error| error.to_string())?)
            }
            Transfer::Out(_) => {
                Some(IoBuf::from_bytes(data_out).map_err(|error| error.to_string())?)
            }
        };
        match self.queue.submit(command, buf, now) {
            Ok(slot) => {
                self.issued.push((slot, purpose));
                Ok(())
            }
            Err(_) => Err("the admin queue is full".to_owned()),
        }
    }

    pub fn settle(&mut self) {
        self.queue.settle();
    }

    pub fn deadline(&self) -> Option<Time> {
        self.queue.deadline()
    }

    pub fn close(mut self) -> Box<dyn Queue> {
        self.queue.close();
        self.queue
    }
}
