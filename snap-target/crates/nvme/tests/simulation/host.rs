//! The host of the simulation: attaches, keeps alive, and runs reads and writes against the model.

use std::time::Duration;

use nvme::Time;
use nvme::initiator::{
    AttachAdmin, AttachIo, Attached, Blocks, InitiatorError, KeepAlive, KeepAliveStep, Sequence,
    Shutdown, Step, command,
};
use nvme::tcp::batch::Slot;
use nvme::tcp::host::{Event, HostError, HostOptions};
use nvme_spec::register::{Cc, Csts, Property};
use nvme_spec::{Cqe, Lba, Nsid};

use crate::model::Model;
use crate::support::host::HostQueue;
use crate::support::random::Random;

/// CSTS is asked for again after that time.
const CSTS_POLL_INTERVAL: Duration = Duration::from_millis(3);

/// One queue of the host, and what it is doing.
pub struct Queue {
    pub queue: HostQueue,
    task: Task,
    ready: bool,
    /// I/O commands outstanding, by slot.
    running: Vec<Option<Io>>,
    /// The Keep Alive that is outstanding.
    keep_alive: Option<Slot>,
    refused: bool,
    /// I/O commands completed, each as the model has it.
    pub completed: u32,
}

enum Task {
    AttachAdmin(Box<AttachAdmin>),
    AttachIo(AttachIo),
    Shutdown(Shutdown),
    Reset(Reset),
    /// An I/O queue of an association that is over: it must not be let in.
    Stale(AttachIo),
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

/// A controller level reset as a host does it (Base, "Controller Level Reset"): nothing is expected of the controller before CSTS.RDY is 0.
struct Reset {
    stage: ResetStage,
    ask_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResetStage {
    Disable,
    WaitDisabled,
    Enable,
    WaitReady,
    Done,
}

impl Reset {
    fn step(&self, now: Time) -> Step {
        let issue = |command| Step::Issue {
            command,
            data_out: Vec::new(),
        };
        match self.stage {
            ResetStage::Done => Step::Done,
            _ if now < self.ask_at => Step::WaitUntil(self.ask_at),
            ResetStage::Disable => issue(command::property_set_cc(Cc(Cc::enable_nvm().0 & !1))),
            ResetStage::Enable => issue(command::property_set_cc(Cc::enable_nvm())),
            ResetStage::WaitDisabled | ResetStage::WaitReady => {
                issue(command::property_get(Property::CSTS))
            }
        }
    }

    fn answered(&mut self, now: Time, cqe: &Cqe) {
        assert!(cqe.status().is_success(), "{}", cqe.status());
        let is_ready = Csts(cqe.dw0.get()).ready();
        self.stage = match self.stage {
            ResetStage::Disable => ResetStage::WaitDisabled,
            ResetStage::WaitDisabled if !is_ready => ResetStage::Enable,
            ResetStage::Enable => ResetStage::WaitReady,
            ResetStage::WaitReady if is_ready => ResetStage::Done,
            waiting => {
                self.ask_at = now + CSTS_POLL_INTERVAL;
                waiting
            }
        };
    }
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
    /// The controller has been reset, and is ready for I/O queues.
    Reset,
    /// The queue of an association that is over was not let in.
    Refused,
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
            keep_alive: None,
            refused: false,
            completed: 0,
        }
    }

    /// An I/O queue of an association that is over.
    pub fn stale(attach: AttachIo, options: HostOptions, now: Time) -> Queue {
        Queue::new(Task::Stale(attach), options, now)
    }

    /// Resets the controller.
    pub fn reset(&mut self, now: Time) {
        self.task = Task::Reset(Reset {
            stage: ResetStage::Disable,
            ask_at: now,
        });
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
        if self.refused {
            return Progress::Refused;
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
        if self.keep_alive == Some(slot) {
            self.keep_alive = None;
            assert!(cqe.status().is_success(), "{}", cqe.status());
            return keep_alive.as_mut().unwrap().answered(now);
        }
        let data = self.queue.buffer(slot);
        let answered = match &mut self.task {
            Task::AttachAdmin(attach) => attach.answered(now, cqe, data),
            Task::AttachIo(attach) => attach.answered(now, cqe, data),
            Task::Shutdown(shutdown) => shutdown.answered(now, cqe, data),
            Task::Stale(attach) => match attach.answered(now, cqe, data) {
                Err(InitiatorError::ConnectRefused { .. }) => {
                    self.refused = true;
                    Ok(())
                }
                other => panic!("a queue of an association that is over was let in: {other:?}"),
            },
            Task::Reset(reset) => {
                reset.answered(now, cqe);
                Ok(())
            }
            Task::Live => {
                assert!(cqe.status().is_success(), "{}", cqe.status());
                let io = self.running[slot.index()].take().unwrap();
                finish(io, data, model);
                self.completed += 1;
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
            Task::Stale(attach) => attach.step(now),
            Task::Reset(reset) => Ok(reset.step(now)),
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
                Task::Reset(_) => Progress::Reset,
                Task::AttachIo(_) | Task::Stale(_) | Task::Live => Progress::Connected,
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
                let slot = self.queue.submit(&command, Vec::new(), now).unwrap();
                self.keep_alive = Some(slot);
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
