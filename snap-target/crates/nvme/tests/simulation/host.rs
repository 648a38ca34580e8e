//! One queue of a host of the simulation: attaches, resets and shuts down, or runs commands, each as the oracle has it.

use std::time::Duration;

use nvme::Time;
use nvme::initiator::{
    AttachAdmin, AttachIo, Attached, Command, InitiatorError, Sequence, Shutdown, Step, command,
};
use nvme::tcp::batch::Slot;
use nvme::tcp::host::{Event, HostError, HostOptions};
use nvme_spec::register::{Cc, Csts, Property};
use nvme_spec::{Cid, Cqe, Status};

use crate::extras::Extra;
use crate::oracle::{Io, Kind, Oracle, Pair, Who};
use crate::support::host::HostQueue;
use crate::workload::{Next, Workload};
use nvme::simulation::random::Random;

/// CSTS is asked for again after that time.
const CSTS_POLL_INTERVAL: Duration = Duration::from_millis(3);

/// One queue of a host, and what it is doing.
pub struct Queue {
    pub queue: HostQueue,
    who: Who,
    task: Task,
    ready: bool,
    /// Commands outstanding besides those of a task, by slot.
    running: Vec<Option<Running>>,
    /// Asynchronous Event Requests outstanding: they wait for something to happen.
    events: usize,
    /// Fused operations under way, by their numbers.
    pairs: Vec<Option<Pair>>,
    refused: bool,
    /// I/O commands completed, each as the oracle has it.
    pub completed: u32,
    /// What else was answered: what it was, how, and its data.
    pub answers: Vec<(Extra, Cqe, Vec<u8>)>,
    /// I/O commands under way.
    pub under_way: u32,
    /// Of commands that an Abort has named, whether they were aborted: by their own answer, and by the Abort's.
    aborted: Vec<(Cid, bool)>,
    said_aborted: Vec<(Cid, bool)>,
}

enum Running {
    Io(Io),
    Extra(Extra),
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

impl Queue {
    pub fn admin(who: Who, attach: AttachAdmin, options: HostOptions, now: Time) -> Queue {
        Queue::new(who, Task::AttachAdmin(Box::new(attach)), options, now)
    }

    pub fn io(who: Who, attach: AttachIo, options: HostOptions, now: Time) -> Queue {
        Queue::new(who, Task::AttachIo(attach), options, now)
    }

    fn new(who: Who, task: Task, options: HostOptions, now: Time) -> Queue {
        Queue {
            queue: HostQueue::new(options, now),
            who,
            task,
            ready: false,
            running: (0..options.depth).map(|_| None).collect(),
            events: 0,
            pairs: Vec::new(),
            refused: false,
            completed: 0,
            answers: Vec::new(),
            under_way: 0,
            aborted: Vec::new(),
            said_aborted: Vec::new(),
        }
    }

    /// An I/O queue of an association that is over.
    pub fn stale(who: Who, attach: AttachIo, options: HostOptions, now: Time) -> Queue {
        Queue::new(who, Task::Stale(attach), options, now)
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

    /// Nothing is outstanding but what waits for events.
    pub fn is_idle(&self) -> bool {
        self.queue.connection.outstanding() == self.events
    }

    /// Asynchronous Event Requests outstanding.
    pub fn events(&self) -> usize {
        self.events
    }

    pub fn room(&self) -> usize {
        self.queue.connection.room()
    }

    /// Handles what has arrived, and does the next step of a sequence.
    pub fn turn(&mut self, oracle: &mut Oracle, now: Time) -> Progress {
        self.queue.connection.tick(now);
        let mut progress = Progress::Nothing;
        while let Some(event) = self.queue.next_event() {
            progress = Progress::Something;
            match event {
                Event::Ready(_) => self.ready = true,
                Event::Completed { slot, cqe, .. } => self.completed(slot, &cqe, oracle, now),
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

    fn completed(&mut self, slot: Slot, cqe: &Cqe, oracle: &mut Oracle, now: Time) {
        match self.running[slot.index()].take() {
            Some(Running::Io(io)) => self.io_completed(slot, &io, cqe, oracle),
            Some(Running::Extra(extra)) => {
                self.events -= usize::from(extra == Extra::Event);
                let data = self.queue.buffer(slot).to_vec();
                self.answers.push((extra, *cqe, data));
            }
            None => self.task_completed(slot, cqe, now),
        }
    }

    fn task_completed(&mut self, slot: Slot, cqe: &Cqe, now: Time) {
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
            Task::Live => panic!("an answer to nothing: {cqe:?}"),
        };
        answered.unwrap();
    }

    fn io_completed(&mut self, slot: Slot, io: &Io, cqe: &Cqe, oracle: &mut Oracle) {
        let status = cqe.status();
        self.completed += 1;
        self.under_way -= 1;
        if io.abort_sent {
            let is_aborted = status.code() == Status::ABORT_REQUESTED;
            self.aborted.push((cqe.cid(), is_aborted));
            self.compare_aborts();
        }
        let Kind::Half(number) = io.kind else {
            let data = self.queue.buffer(slot);
            return oracle.answered(io, self.who, status, data);
        };
        let pair = self.pairs[number].as_mut().unwrap();
        let is_write = self.queue.is_second_half(slot);
        pair.answers[usize::from(is_write)] = Some(status);
        if pair.answers.iter().all(Option::is_some) {
            let pair = self.pairs[number].take().unwrap();
            oracle.pair_answered(&pair, self.who);
        }
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

    /// Sends an admin command that is no step of a task.
    pub fn send_extra(&mut self, extra: Extra, command: &Command, data: Vec<u8>, now: Time) {
        let slot = self.queue.submit(command, data, now).unwrap();
        self.events += usize::from(extra == Extra::Event);
        if extra == Extra::Event {
            // Nobody knows when it is answered: it has no timeout.
            assert!(self.queue.connection.abandon(slot));
        }
        self.running[slot.index()] = Some(Running::Extra(extra));
    }

    /// The identifier of one such command that is outstanding.
    pub fn outstanding(&self, extra: Extra) -> Option<Cid> {
        let is_it =
            |running: &Option<Running>| matches!(running, Some(Running::Extra(it)) if *it == extra);
        let index = self.running.iter().position(is_it)?;
        self.cid_of(index)
    }

    /// An I/O command to abort, which counts as named from here on.
    pub fn name_for_abort(&mut self) -> Option<Cid> {
        let can = |running: &Option<Running>| match running {
            Some(Running::Io(io)) => {
                !io.abort_sent && !matches!(io.kind, Kind::Half(_) | Kind::Refused(_))
            }
            _ => false,
        };
        let index = self.running.iter().position(can)?;
        if let Some(Running::Io(io)) = &mut self.running[index] {
            io.abort_sent = true;
        }
        self.cid_of(index)
    }

    fn cid_of(&self, index: usize) -> Option<Cid> {
        self.queue
            .connection
            .cid(Slot(u16::try_from(index).unwrap()))
    }

    /// Submits random I/O commands, if there is room and their blocks are free. Says how many.
    pub fn submit(
        &mut self,
        oracle: &mut Oracle,
        workload: Workload,
        random: &mut Random,
        most: u32,
        now: Time,
    ) -> u32 {
        let room = self.room().min(most as usize);
        if room == 0 {
            return 0;
        }
        let free = self.pairs.iter().position(Option::is_none);
        let number = free.unwrap_or(self.pairs.len());
        match workload.next(oracle, random, self.who, room, number) {
            None => 0,
            Some(Next::One(command, data, io)) => {
                self.submit_one(&command, data, io, now);
                1
            }
            Some(Next::Two(halves, pair)) => {
                if pair.is_some() {
                    self.pairs
                        .resize_with(self.pairs.len().max(number + 1), || None);
                    self.pairs[number] = pair;
                }
                for (command, data, io) in *halves {
                    self.submit_one(&command, data, io, now);
                }
                2
            }
        }
    }

    fn submit_one(&mut self, command: &Command, data: Vec<u8>, io: Io, now: Time) {
        let slot = self.queue.submit(command, data, now).unwrap();
        self.running[slot.index()] = Some(Running::Io(io));
        self.under_way += 1;
    }

    /// What an Abort's answer says of the command that it named.
    pub fn abort_answered(&mut self, cid: Cid, is_aborted: bool) {
        self.said_aborted.push((cid, is_aborted));
        self.compare_aborts();
    }

    fn compare_aborts(&mut self) {
        // Identifiers come again: what is compared is forgotten.
        let said = &mut self.said_aborted;
        self.aborted.retain(|(cid, is_aborted)| {
            let Some(place) = said.iter().position(|(of, _)| of == cid) else {
                return true;
            };
            let (_, said) = said.swap_remove(place);
            assert_eq!(
                *is_aborted, said,
                "the Abort says another thing than {cid:?}"
            );
            false
        });
    }

    /// The connection is gone: the outcome of each write on it is unknown. Says how many commands were on it.
    pub fn lose(&mut self, oracle: &mut Oracle) -> u32 {
        let mut lost = 0;
        for running in self.running.iter_mut().filter_map(Option::take) {
            if let Running::Io(io) = running {
                oracle.lost(&io);
                lost += 1;
            }
        }
        for pair in self.pairs.iter_mut().filter_map(Option::take) {
            oracle.pair_lost(&pair);
        }
        (self.events, self.under_way) = (0, 0);
        lost
    }
}
