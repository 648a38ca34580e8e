//! An I/O queue on its way to its handle: connected, Connect answered, taken off this ring.

use nvme::Time;
use nvme::initiator::{AttachIo, Sequence, Step};
use nvme_spec::Status;
use reactor::buf::IoBuf;

use crate::message::HandleId;
use crate::queue::{Outcome, Parted, Queue, QueueEvent};

#[derive(Debug)]
pub(super) struct Bringing {
    pub handle: HandleId,
    queue: Option<Box<dyn Queue>>,
    attach: AttachIo,
    events: Vec<QueueEvent>,
    stage: Stage,
    by: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Attaching,
    Parting,
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Brought {
    NotYet,
    Here(Box<dyn Parted>),
    Failed(Failure),
}

/// Why it did not come up.
#[derive(Debug)]
pub(super) struct Failure {
    pub why: String,
    /// The controller answers that a queue of that number is connected already.
    pub is_taken: bool,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self {
            why,
            is_taken: false,
        }
    }
}

impl Bringing {
    /// `by`: when it has failed.
    pub fn new(handle: HandleId, queue: Box<dyn Queue>, attach: AttachIo, by: Time) -> Self {
        Self {
            handle,
            queue: Some(queue),
            attach,
            events: Vec::new(),
            stage: Stage::Connecting,
            by,
        }
    }

    pub fn turn(&mut self, now: Time) -> Brought {
        let Some(mut queue) = self.queue.take() else {
            return Brought::NotYet;
        };
        queue.poll(now, &mut self.events);
        for event in std::mem::take(&mut self.events) {
            let went_well = match event {
                QueueEvent::Ready => self.attach(&mut *queue, now).map_err(Failure::from),
                QueueEvent::Over(error) => Err(error.to_string().into()),
                QueueEvent::Ended {
                    outcome: Outcome::Answered(cqe),
                    ..
                } => self
                    .attach
                    .answered(now, &cqe, &[])
                    .map(|()| self.stage = Stage::Parting)
                    .map_err(|error| Failure {
                        why: error.to_string(),
                        is_taken: says_taken(cqe.status()),
                    }),
                QueueEvent::Ended { .. } => {
                    Err("the connection ended during Connect".to_owned().into())
                }
            };
            if let Err(failure) = went_well {
                self.queue = Some(queue);
                return Brought::Failed(failure);
            }
        }
        if now >= self.by {
            self.queue = Some(queue);
            return Brought::Failed("an I/O queue did not come up in time".to_owned().into());
        }
        queue.settle();
        if self.stage == Stage::Parting {
            match queue.part() {
                Ok(parted) => return Brought::Here(parted),
                Err(busy) => queue = busy,
            }
        }
        self.queue = Some(queue);
        Brought::NotYet
    }

    fn attach(&mut self, queue: &mut dyn Queue, now: Time) -> Result<(), String> {
        self.stage = Stage::Attaching;
        let step = self.attach.step(now).map_err(|error| error.to_string())?;
        let Step::Issue { command, data_out } = step else {
            return Err("there was nothing to connect".to_owned());
        };
        let buf = IoBuf::from_bytes(&data_out).map_err(|error| error.to_string())?;
        match queue.submit(&command, Some(buf), now) {
            Ok(_) => Ok(()),
            Err(_) => Err("the queue takes no Connect".to_owned()),
        }
    }

    pub fn deadline(&self) -> Option<Time> {
        let of_queue = self.queue.as_ref().and_then(|queue| queue.deadline());
        Some(of_queue.map_or(self.by, |at| at.min(self.by)))
    }

    pub fn close(self) -> Option<Box<dyn Queue>> {
        let mut queue = self.queue?;
        queue.close();
        Some(queue)
    }
}

/// What Connect of a queue that is connected is answered with (Fabrics, "Connect Command": Command Sequence Error), and what some targets say in its place.
fn says_taken(status: Status) -> bool {
    let is = |other: Status| status == other || status == other.dnr();
    is(Status::COMMAND_SEQUENCE_ERROR) || is(Status::CONNECT_INVALID_PARAMETERS)
}
