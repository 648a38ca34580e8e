//! A host on a ring of its own: an admin queue and an I/O queue to a real target, brought up with the machines of `nvme::initiator`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nvme::initiator::{
    Association, AttachAdmin, AttachIo, Attached, Command, Sequence, Step, Transfer,
};
use nvme::queue::{QueueId, Slot};
use nvme_spec::Cqe;
use reactor::buf::IoBuf;
use reactor::{Ring, RingConfig, Wait};
use store_nvme::Clock;
use store_nvme::queue::{Outcome, Queue, QueueEvent, QueueOptions, Transport};

/// What has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// One queue on a ring.
pub struct Driven {
    pub queue: Box<dyn Queue>,
    pub ring: Ring,
    pub clock: Clock,
    events: Vec<QueueEvent>,
}

impl Driven {
    pub fn connect(
        transport: &dyn Transport,
        ring: &Ring,
        to: SocketAddr,
        options: &QueueOptions,
    ) -> Driven {
        let clock = Clock::since(Instant::now());
        let queue = transport.connect(ring, to, options, clock.clone()).unwrap();
        let mut driven = Driven {
            queue,
            ring: ring.clone(),
            clock,
            events: Vec::new(),
        };
        while driven.events.is_empty() {
            driven.turn();
        }
        let event = driven.events.remove(0);
        assert!(matches!(event, QueueEvent::Ready), "{event:?}");
        driven
    }

    /// Sends what is there, waits for something, and takes it in.
    pub fn turn(&mut self) {
        self.queue.settle();
        let patience = Instant::now() + PATIENCE;
        let deadline = self.queue.deadline().map(|at| self.clock.instant(at));
        let until = deadline.map_or(patience, |at| at.min(patience));
        self.ring.turn(Wait::Block { until: Some(until) }).unwrap();
        self.queue.poll(self.clock.now(), &mut self.events);
    }

    /// The ends of commands of the last turn.
    pub fn ended(&mut self) -> impl Iterator<Item = (Slot, Cqe, Option<IoBuf>)> + '_ {
        self.events.drain(..).map(|event| match event {
            QueueEvent::Ended {
                slot,
                outcome: Outcome::Answered(cqe),
                buf,
            } => (slot, cqe, buf),
            other => panic!("a command is to be answered: {other:?}"),
        })
    }

    pub fn submit(&mut self, command: &Command, buf: Option<IoBuf>) -> Slot {
        let now = self.clock.now();
        self.queue.submit(command, buf, now).unwrap()
    }

    /// One command from submit to its end.
    pub fn one(&mut self, command: &Command, buf: Option<IoBuf>) -> (Cqe, Option<IoBuf>) {
        self.submit(command, buf);
        while self.events.is_empty() {
            self.turn();
        }
        let (_, cqe, buf) = self.ended().next().unwrap();
        (cqe, buf)
    }

    fn run(&mut self, sequence: &mut impl Sequence) {
        loop {
            let (command, data_out) = match sequence.step(self.clock.now()).unwrap() {
                Step::Done => return,
                Step::Issue { command, data_out } => (command, data_out),
                // A controller that is not ready yet is asked again.
                Step::WaitUntil(at) => {
                    let until = Some(self.clock.instant(at));
                    self.ring.turn(Wait::Block { until }).unwrap();
                    continue;
                }
            };
            let buf = match command.transfer {
                Transfer::None => None,
                Transfer::In(bytes) => Some(IoBuf::heap(bytes as usize).unwrap()),
                Transfer::Out(_) => Some(IoBuf::from_bytes(&data_out).unwrap()),
            };
            let (cqe, buf) = self.one(&command, buf);
            let data = buf.map_or(Vec::new(), |buf| buf.to_vec());
            sequence.answered(self.clock.now(), &cqe, &data).unwrap();
        }
    }
}

/// An association with one I/O queue.
pub struct Host {
    pub admin: Driven,
    pub io: Driven,
    pub attached: Attached,
}

impl Host {
    pub fn attach(
        transport: &dyn Transport,
        to: SocketAddr,
        subnqn: &str,
        options: &QueueOptions,
    ) -> Host {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let association = Association {
            host_id: [9; 16],
            hostnqn: "nqn.2026-11.io.example:queue".to_owned(),
            subnqn: subnqn.to_owned(),
        };
        let of_admin = QueueOptions {
            qid: QueueId::ADMIN,
            cntlid: 0,
            depth: 32,
            ..options.clone()
        };
        let mut admin = Driven::connect(transport, &ring, to, &of_admin);
        let now = admin.clock.now();
        let mut attach = AttachAdmin::new(association.clone(), 31, Duration::ZERO, 1, now).unwrap();
        admin.run(&mut attach);
        let attached = attach.finish().unwrap();
        let of_io = QueueOptions {
            qid: QueueId(1),
            cntlid: attached.cntlid,
            in_capsule_bytes_max: attached.controller.in_capsule_bytes_max,
            ..options.clone()
        };
        let mut io = Driven::connect(transport, &ring, to, &of_io);
        let entries_z = options.depth.max(2) - 1;
        io.run(&mut AttachIo::new(
            association,
            attached.cntlid,
            1,
            entries_z,
        ));
        Host {
            admin,
            io,
            attached,
        }
    }
}
