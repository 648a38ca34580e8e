//! A queue on a ring, the way to wait for what happens on it, and buffers whose bytes tell their place.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use nvme::Time;
use nvme::initiator::command::{CONNECT_DATA_BYTES, connect, connect_data, flush, read, write};
use nvme::initiator::{Association, Blocks, Command};
use nvme::queue::{QueueId, Slot};
use nvme_spec::fabrics::FabricsType;
use nvme_spec::{Cqe, Lba, Nsid, Status};
use reactor::buf::IoBuf;
use reactor::{Ring, RingConfig, Wait};

use super::{Controller, IN_CAPSULE_BYTES_MAX, PATIENCE, Rig};
use crate::Clock;
use crate::queue::{Outcome, Queue, QueueError, QueueEvent, QueueOptions};

/// A command that ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) slot: Slot,
    pub(super) outcome: Outcome,
    pub(super) buf: Option<IoBuf>,
}

impl Ended {
    /// The controller's answer, which must be one.
    pub(super) fn cqe(&self) -> Cqe {
        match self.outcome {
            Outcome::Answered(cqe) => cqe,
            lost @ Outcome::Lost { .. } => panic!("{:?} was to be answered: {lost:?}", self.slot),
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.buf.as_ref().unwrap().to_vec()
    }
}

pub(super) struct Bench {
    pub(super) queue: Option<Box<dyn Queue>>,
    pub(super) ring: Ring,
    pub(super) clock: Clock,
    events: VecDeque<QueueEvent>,
}

/// As the rig says, of a depth.
pub(super) fn options(rig: &dyn Rig, depth: u16) -> QueueOptions {
    QueueOptions {
        qid: QueueId(1),
        cntlid: 1,
        depth,
        in_capsule_bytes_max: IN_CAPSULE_BYTES_MAX,
        connect_timeout: PATIENCE,
        command_timeout: Duration::from_secs(3600),
        ..rig.options()
    }
}

impl Bench {
    /// On a ring without a queue.
    pub(super) fn empty(clock: Clock) -> Self {
        Self {
            queue: None,
            ring: Ring::new(&RingConfig::default()).unwrap(),
            clock,
            events: VecDeque::new(),
        }
    }

    /// A queue that is on its way to `to`.
    pub(super) fn connecting(
        rig: &dyn Rig,
        to: std::net::SocketAddr,
        options: &QueueOptions,
    ) -> Result<Self, QueueError> {
        let mut bench = Self::empty(Clock::since(Instant::now()));
        let transport = rig.transport();
        bench.queue = Some(transport.connect(&bench.ring, to, options, bench.clock.clone())?);
        Ok(bench)
    }

    /// One whose Connect a script answers that begins with [`admit`].
    pub(super) fn connected(
        rig: &dyn Rig,
        to: std::net::SocketAddr,
        options: &QueueOptions,
    ) -> Self {
        let mut bench = Self::connecting(rig, to, options).unwrap();
        bench.expect_ready();
        bench.send_connect(options.depth);
        assert_eq!(bench.ended().cqe().status(), Status::SUCCESS);
        bench
    }

    pub(super) fn queue(&mut self) -> &mut dyn Queue {
        self.queue.as_mut().unwrap().as_mut()
    }

    pub(super) fn send_connect(&mut self, depth: u16) {
        let association = Association {
            host_id: [7; 16],
            hostnqn: "nqn.2026-11.io.example:host".to_owned(),
            subnqn: "nqn.2026-11.io.example:disk".to_owned(),
        };
        let data = connect_data(&association, Some(1));
        assert_eq!(data.len(), CONNECT_DATA_BYTES as usize);
        let buf = IoBuf::from_bytes(&data).unwrap();
        self.submit(&connect(1, depth.max(2) - 1, 0), Some(buf));
    }

    /// Submits what must be taken.
    pub(super) fn submit(&mut self, command: &Command, buf: Option<IoBuf>) -> Slot {
        let now = self.clock.now();
        let taken = self.queue().submit(command, buf, now);
        taken.expect("there is room for a command")
    }

    /// Settles, turns the ring once and polls. The ring may sleep as long as the contract lets it.
    pub(super) fn turn(&mut self, patience: Instant) {
        let clock = self.clock.clone();
        let queue = self.queue.as_mut().unwrap();
        queue.settle();
        let deadline = queue.deadline().map(|at| clock.instant(at));
        let until = deadline.map_or(patience, |at| at.min(patience));
        self.ring.turn(Wait::Block { until: Some(until) }).unwrap();
        self.poll_at(clock.now());
    }

    /// Polls as if it were `now`.
    pub(super) fn poll_at(&mut self, now: Time) {
        let mut events = Vec::new();
        self.queue().poll(now, &mut events);
        self.events.extend(events);
    }

    /// Goes on until something is so.
    pub(super) fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let patience = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(
                Instant::now() < patience,
                "{what}: not within {PATIENCE:?}; {:?}",
                self.queue
            );
            self.turn(patience);
        }
    }

    /// Goes on until a script says so, which wakes no ring.
    pub(super) fn hear(&mut self, told: &Receiver<()>) {
        let patience = Instant::now() + PATIENCE;
        while told.try_recv().is_err() {
            assert!(Instant::now() < patience, "the script: {:?}", self.queue);
            self.turn(Instant::now() + Duration::from_millis(1));
        }
    }

    /// Goes on until a part of the data has arrived, which `told` says once it has left: eight bytes `at` of the buffer tell, if it is filled in place.
    pub(super) fn until_holds(
        &mut self,
        rig: &dyn Rig,
        told: &Receiver<()>,
        view: &IoBuf,
        (at, data): (usize, &[u8]),
    ) {
        self.hear(told);
        if !rig.fills_in_place() {
            return;
        }
        let mut seen = [0; 8];
        self.until("a part of the data", |_| {
            view.copy_to(at, &mut seen);
            seen == data[at..at + 8]
        });
    }

    /// Whether an event waits.
    pub(super) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn event(&mut self) -> QueueEvent {
        self.until("an event", |bench| !bench.events.is_empty());
        self.events.pop_front().unwrap()
    }

    pub(super) fn expect_ready(&mut self) {
        match self.event() {
            QueueEvent::Ready => {}
            other => panic!("the queue is to become ready: {other:?}"),
        }
    }

    /// The next event, which must be a command's end.
    pub(super) fn ended(&mut self) -> Ended {
        match self.event() {
            QueueEvent::Ended { slot, outcome, buf } => Ended { slot, outcome, buf },
            other => panic!("a command is to end: {other:?}"),
        }
    }

    /// The next event, which must be the connection's end.
    pub(super) fn over(&mut self) -> QueueError {
        match self.event() {
            QueueEvent::Over(why) => why,
            other => panic!("the connection is to end: {other:?}"),
        }
    }

    /// After the connection's end: the ends of so many commands, by slot, and nothing else.
    pub(super) fn lost(&mut self, count: usize) -> Vec<Ended> {
        let mut lost: Vec<Ended> = (0..count).map(|_| self.ended()).collect();
        lost.sort_by_key(|ended| ended.slot);
        self.until("a closed queue", |bench| bench.queue().is_closed());
        self.expect_quiet();
        lost
    }

    /// Closes the queue. What ends before the ring has had a turn is touched by nothing.
    pub(super) fn close(&mut self) {
        self.queue().close();
        self.poll_at(self.clock.now());
        for event in &mut self.events {
            if let QueueEvent::Ended { slot, buf, .. } = event
                && let Some(buf) = buf
            {
                assert!(
                    buf.exclusive().is_some(),
                    "something has the buffer of {slot:?}"
                );
            }
        }
    }

    /// A few turns more: nothing may happen.
    pub(super) fn expect_quiet(&mut self) {
        for _ in 0..3 {
            self.queue().settle();
            self.ring.turn(Wait::Poll).unwrap();
            self.poll_at(self.clock.now());
        }
        assert!(self.events.is_empty(), "out of nothing: {:?}", self.events);
    }

    /// Takes the queue off its ring.
    pub(super) fn part(&mut self) -> Box<dyn crate::queue::Parted> {
        let patience = Instant::now() + PATIENCE;
        loop {
            // Whoever settles after each poll gets there as well.
            self.queue().settle();
            match self.queue.take().unwrap().part() {
                Ok(parted) => return parted,
                Err(queue) => self.queue = Some(queue),
            }
            assert!(Instant::now() < patience, "an idle queue is to part");
            self.turn(patience);
        }
    }
}

/// The controller lets the host in.
pub(super) fn admit(controller: &mut dyn Controller) {
    let connect = controller.command().unwrap();
    assert_eq!(connect.sqe.fctype(), FabricsType::CONNECT.0);
    assert!(connect.is_in_capsule, "Connect brings its data");
    let data = controller.data(connect.tag).unwrap();
    assert_eq!(data.len(), CONNECT_DATA_BYTES as usize);
    controller.answer(connect.tag, Status::SUCCESS, 1, &[]);
}

/// A command whose blocks are bytes, so that it can have any length; `number` is its LBA.
pub(super) fn reading(number: u64, bytes: u32) -> Command {
    read(Nsid(1), blocks(number, bytes))
}

/// As [`reading`].
pub(super) fn writing(number: u64, bytes: u32) -> Command {
    write(Nsid(1), blocks(number, bytes))
}

/// A command without data.
pub(super) fn flushing() -> Command {
    flush(Nsid(1))
}

fn blocks(number: u64, bytes: u32) -> Blocks {
    Blocks {
        lba: Lba(number),
        count: 1,
        lba_bytes: bytes,
    }
}

/// A buffer of `len` bytes in pieces as `cuts` says, over and over, the first one off its page.
pub(super) fn segmented(len: u32, cuts: &[usize]) -> IoBuf {
    const SKEW: usize = 3;
    let mut buf = IoBuf::empty();
    let mut left = len as usize;
    for &cut in cuts.iter().cycle() {
        if left == 0 {
            break;
        }
        let part = cut.min(left);
        buf.append(IoBuf::heap(part + SKEW).unwrap().slice(SKEW..SKEW + part));
        left -= part;
    }
    buf
}

/// Bytes that tell their place, others for each seed (splitmix64).
pub(super) fn pattern(len: u32, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).to_le_bytes()
    });
    words.take(len as usize).collect()
}

/// A buffer with that pattern.
pub(super) fn patterned(len: u32, seed: u64) -> IoBuf {
    IoBuf::from_bytes(&pattern(len, seed)).unwrap()
}
