//! The end of a connection: which commands were answered, and which nobody knows of.

use nvme::queue::Slot;
use store_nvme::queue::{Outcome, QueueError, QueueEvent};

use super::{Phase, RdmaQueue, fetch};
use crate::lane::Lane;

impl RdmaQueue {
    pub(super) fn ended_by_peer(&mut self, why: String) {
        self.end(QueueError::Ended { to: self.to, why });
    }

    pub(super) fn give_up(&mut self, why: String) {
        self.end(QueueError::GivenUp { to: self.to, why });
    }

    /// The connection is over. The queue pair is stopped first: then nothing leaves any more and no key is good, so that what was answered has ended. Buffers
    /// are the caller's; the device has only the staging, which goes with the queue pair.
    pub(super) fn end(&mut self, why: QueueError) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Over => return,
            Phase::Coming { connecting, .. } => self.take_apart(connecting),
            Phase::Ready { mut lane, id } => {
                // The peer is told, as far as it can be: it may be gone.
                let _peer_is_gone = id.disconnect();
                lane.stop();
                self.end_answered(&lane);
                self.take_apart((lane, id));
            }
        }
        self.completed.clear();
        self.events.push(QueueEvent::Over(why));
        self.manager.cancel(&self.owner);
        if let Some(completions) = &self.completions {
            completions.cancel(&self.owner);
        }
        self.end_unanswered();
    }

    /// The device takes its time for the queue pair, for each window and each registration: nobody here waits for that.
    fn take_apart(&mut self, rest: impl Send + 'static) {
        let channel = self.channel.take();
        self.with.control.run(move || {
            drop(rest);
            drop(channel);
        });
    }

    /// Commands whose answer is there and only waited for a key.
    fn end_answered(&mut self, lane: &Lane) {
        let slots: Vec<Slot> = self.commands.slots().collect();
        for slot in slots {
            if let Some(cqe) = self.machine.answer(slot)
                && let Some(command) = self.commands.take(slot)
            {
                let outcome = if fetch(lane, slot, &command, &cqe) {
                    Outcome::Answered(cqe)
                } else {
                    Outcome::Lost { was_sent: true }
                };
                self.events.push(QueueEvent::Ended {
                    slot,
                    outcome,
                    buf: command.buf,
                });
            }
        }
    }

    fn end_unanswered(&mut self) {
        let slots: Vec<Slot> = self.commands.slots().collect();
        for slot in slots {
            if let Some(command) = self.commands.take(slot) {
                self.events.push(QueueEvent::Ended {
                    slot,
                    outcome: Outcome::Lost {
                        was_sent: self.machine.was_sent(slot),
                    },
                    buf: command.buf,
                });
            }
        }
    }
}
