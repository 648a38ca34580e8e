//! The host of the simulation: attaches, keeps alive, and runs reads and writes against the model.

use std::time::Duration;

use nvme::Time;
use nvme::initiator::{
    AttachAdmin, AttachIo, Attached, Blocks, KeepAlive, KeepAliveStep, Sequence, Shutdown, Step,
    command,
};
use nvme::tcp::batch::Slot;
use nvme::tcp::host::{Event, HostError, HostOptions};
use nvme_spec::{Cqe, Lba, Nsid};

use crate::model::Model;
use crate::support::host::HostQueue;
use crate::support::random::Random;

/// One queue of the host, and what it is doing.
pub struct Queue {
    pub queue: HostQueue,
    task: Task,
    ready: bool,
    /// I/O commands outstanding, by slot.
    running: Vec<Option<Io>>,
    /// I/O commands completed, each as the model has it.
    pub completed: u32,
}

enum Task {
    AttachAdmin(Box<AttachAdmin>),
    AttachIo(AttachIo),
    Shutdown(Shutdown),
    /// The admin queue of a running association, or an I/O queue at work.
    Live,
}

#[derive(Clone, Copy, Debug)]
struct Io {
    lba: Lba,
    count: u32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write { version: u64 },
    Flush,
}

/// What a queue's turn came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    Nothing,
    Something,
    /// The admin queue is attached.
    Attached(Box<Attached>),
    /// The I/O queue is connected.
    Connected,
    /// The controller has shut down.
    ShutDown,
    /// The connection is over.
    Ended(HostError),
}

/// What random I/O commands are made of.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub blocks_max: u32,
    pub lba_bytes: u32,
}

impl Queue {
    pub fn admin(attach: AttachAdmin, options: HostOptions, now: Time) -> Queue {
        Queue::new(Task::AttachAdmin(Box::new(attach)), options, now)
    }

    pub fn io(attach: AttachIo, options: HostOptions, now: Time) -> Queue {
        Queue::new(Task::AttachIo(attach), options, now)
    }

    fn new(task: Task, options: HostOptions, now: Time) -> Queue {
        Queue {
            queue: HostQueue::new(options, now),
            task,
            ready: false,
            running: vec![None; usize::from(options.depth)],
            completed: 0,
        }
    }

    /// Ends the association in order.
    pub fn shut_down(&mut self) {
        self.task = Task::Shutdown(Shutdown::new(Duration::from_secs(5)));
    }

    pub fn is_idle(&self) -> bool {
        self.queue.connection.outstanding() == 0
    }

    /// Handles what has arrived, and does the next step of a sequence.
    pub fn turn(
        &mut self,
        model: &mut Model,
        keep_alive: &mut Option<KeepAlive>,
        now: Time,
    ) -> Progress {
        self.queue.connection.tick(now);
        let mut progress = Progress::Nothing;
        while let Some(event) = self.queue.next_event() {
            progress = Progress::Something;
            match event {
                Event::Ready(_) => self.ready = true,
                Event::Completed { slot, cqe, .. } => {
                    self.completed(slot, &cqe, model, keep_alive, now);
                }
                Event::Fatal(error) => return Progress::Ended(error),
            }
        }
        if self.ready && self.is_idle() && !matches!(self.task, Task::Live) {
            return self.step(now).unwrap_or(progress);
        }
        progress
    }

    fn completed(
        &mut self,
        slot: Slot,
        cqe: &Cqe,
        model: &mut Model,
        keep_alive: &mut Option<KeepAlive>,
        now: Time,
    ) {
        let data = self.queue.buffer(slot);
        let answered = match &mut self.task {
            Task::AttachAdmin(attach) => attach.answered(now, cqe, data),
            Task::AttachIo(attach) => attach.answered(now, cqe, data),
            Task::Shutdown(shutdown) => shutdown.answered(now, cqe, data),
            Task::Live => {
                assert!(cqe.status().is_success(), "{}", cqe.status());
                match self.running[slot.index()].take() {
                    Some(io) => {
                        finish(io, data, model);
                        self.completed += 1;
                    }
                    None => keep_alive.as_mut().unwrap().answered(now),
                }
                Ok(())
            }
        };
        answered.unwrap();
    }

    fn step(&mut self, now: Time) -> Option<Progress> {
        let step = match &mut self.task {
            Task::AttachAdmin(attach) => attach.step(now),
            Task::AttachIo(attach) => attach.step(now),
            Task::Shutdown(shutdown) => shutdown.step(now),
            Task::Live => return None,
        };
        match step.unwrap() {
            Step::Issue { command, data_out } => {
                self.queue.submit(&command, data_out, now).unwrap();
                Some(Progress::Something)
            }
            Step::WaitUntil(_) => None,
            Step::Done => Some(match std::mem::replace(&mut self.task, Task::Live) {
                Task::AttachAdmin(attach) => Progress::Attached(Box::new(attach.finish().unwrap())),
                Task::Shutdown(_) => Progress::ShutDown,
                Task::AttachIo(_) | Task::Live => Progress::Connected,
            }),
        }
    }

    /// Sends a Keep Alive where one is due; false where the controller has not answered the last one in time.
    pub fn keep_alive(&mut self, timer: &mut KeepAlive, now: Time) -> bool {
        match timer.step(now) {
            KeepAliveStep::Expired => false,
            KeepAliveStep::WaitUntil(_) => true,
            KeepAliveStep::Send => {
                let command = command::keep_alive();
                self.queue.submit(&command, Vec::new(), now).unwrap();
                timer.sent(now);
                true
            }
        }
    }

    /// Submits one random I/O command, if there is room and its blocks are free. True where it did.
    pub fn submit(
        &mut self,
        model: &mut Model,
        workload: Workload,
        random: &mut Random,
        now: Time,
    ) -> bool {
        if self.queue.connection.room() == 0 {
            return false;
        }
        let lba = Lba(random.within(0..model.blocks() as u64));
        let most = u64::from(workload.blocks_max).min(model.blocks() as u64 - lba.0);
        let count = u32::try_from(random.within(1..most + 1)).unwrap();
        if !model.claim(lba, count) {
            return false;
        }
        let blocks = Blocks {
            lba,
            count,
            lba_bytes: workload.lba_bytes,
        };
        let nsid = Nsid(1);
        let (command, data, kind) = match random.within(0..10) {
            0 => (command::flush(nsid), Vec::new(), Kind::Flush),
            1..=5 => {
                let (version, data) = model.write(lba, count);
                (command::write(nsid, blocks), data, Kind::Write { version })
            }
            _ => (command::read(nsid, blocks), Vec::new(), Kind::Read),
        };
        let slot = self.queue.submit(&command, data, now).unwrap();
        self.running[slot.index()] = Some(Io { lba, count, kind });
        true
    }

    /// The connection is gone: the outcome of each write on it is unknown. Says how many commands were on it.
    pub fn lose(&mut self, model: &mut Model) -> usize {
        let mut lost = 0;
        for io in self.running.iter_mut().filter_map(Option::take) {
            if let Kind::Write { version } = io.kind {
                model.lost(io.lba, io.count, version);
            }
            model.release(io.lba, io.count);
            lost += 1;
        }
        lost
    }
}

fn finish(io: Io, data: &[u8], model: &mut Model) {
    match io.kind {
        Kind::Read => model.check(io.lba, data),
        Kind::Write { version } => model.written(io.lba, io.count, version),
        Kind::Flush => {}
    }
    model.release(io.lba, io.count);
}
