//! A host with one path and one I/O queue, and nothing above them: what the fabric is tried with.

use std::net::SocketAddr;
use std::time::Duration;

use nvme::Time;
use nvme::initiator::path::{
    ADMIN_ENTRIES_Z, AdminCommand, Path, PathEvent, PathOptions, PathStep,
};
use nvme::initiator::{Association, AttachIo, Blocks, Command, Sequence, Step, Transfer, command};
use nvme::queue::{QueueId, Slot};
use nvme::simulation::target::SUBNQN;
use nvme_spec::{Lba, Nsid, Status};
use reactor::Ring;
use reactor::buf::IoBuf;
use store_nvme::Clock;
use store_nvme::queue::{Outcome, Queue, QueueEvent, QueueOptions, Transport};

use crate::transport::{NO_TIMEOUT, SimTransport};

const NSID: Nsid = Nsid(1);
const DEPTH: u16 = 8;

pub struct Host {
    pub path: Path,
    transport: SimTransport,
    to: SocketAddr,
    clock: Clock,
    digests: bool,
    admin: Option<Box<dyn Queue>>,
    issued: Vec<(Slot, AdminCommand)>,
    attach: Option<AttachIo>,
    io: Option<Box<dyn Queue>>,
    is_running: bool,
    /// What the path said, the I/O queue answered, and went wrong since somebody looked.
    pub seen: Vec<PathEvent>,
    pub ended: Vec<(Slot, Outcome, Option<Vec<u8>>)>,
    pub failures: Vec<String>,
    /// Of the last association that was lost.
    pub dead_at: Option<Time>,
}

pub fn association() -> Association {
    Association {
        host_id: [7; 16],
        hostnqn: "nqn.2026-11.test:host".into(),
        subnqn: SUBNQN.into(),
    }
}

impl Host {
    pub fn new(
        transport: SimTransport,
        to: SocketAddr,
        digests: bool,
        keep_alive: Duration,
        quiesce_margin: Duration,
        clock: &Clock,
    ) -> Host {
        let options = PathOptions {
            association: association(),
            nsid: None,
            io_queues_wanted: 1,
            keep_alive,
            quiesce_margin,
            reconnect_delay_min: Duration::from_millis(50),
            reconnect_delay_max: Duration::from_secs(1),
        };
        Host {
            path: Path::new(options, 1, clock.now()),
            transport,
            to,
            clock: clock.clone(),
            digests,
            admin: None,
            issued: Vec::new(),
            attach: None,
            io: None,
            is_running: false,
            seen: Vec::new(),
            ended: Vec::new(),
            failures: Vec::new(),
            dead_at: None,
        }
    }

    fn queue(&self, ring: &Ring, depth: u16, command_timeout: Duration) -> Box<dyn Queue> {
        let options = QueueOptions {
            qid: QueueId(1),
            cntlid: 1,
            depth,
            in_capsule_bytes_max: 8192,
            header_digest: self.digests,
            data_digest: self.digests,
            connect_timeout: Duration::from_secs(2),
            command_timeout,
        };
        let clock = self.clock.clone();
        self.transport
            .connect(ring, self.to, &options, clock)
            .unwrap()
    }

    /// Whether the I/O queue takes commands.
    pub fn is_running(&self) -> bool {
        self.is_running
    }

    pub fn turn(&mut self, ring: &Ring) {
        let now = self.clock.now();
        self.poll_admin(now, ring);
        self.poll_io(now);
        loop {
            match self.path.step(now) {
                PathStep::Wait | PathStep::WaitUntil(_) => break,
                PathStep::Connect => {
                    self.admin = Some(self.queue(ring, ADMIN_ENTRIES_Z, NO_TIMEOUT));
                }
                PathStep::GiveUp(error) => self.lose(now, error.to_string()),
                PathStep::Issue {
                    of,
                    command,
                    data_out,
                } => {
                    let buf = buffer(&command, &data_out);
                    let admin = self.admin.as_mut().unwrap();
                    let slot = admin.submit(&command, buf, now).unwrap();
                    self.issued.push((slot, of));
                }
            }
        }
        for queue in [&mut self.admin, &mut self.io].into_iter().flatten() {
            queue.settle();
        }
    }

    fn poll_admin(&mut self, now: Time, ring: &Ring) {
        let mut events = Vec::new();
        if let Some(admin) = &mut self.admin {
            admin.poll(now, &mut events);
        }
        for event in events {
            match event {
                QueueEvent::Ready => self.path.admin_up(now),
                QueueEvent::Over(error) => self.lose(now, error.to_string()),
                QueueEvent::Ended { slot, outcome, buf } => {
                    let at = self.issued.iter().position(|(issued, _)| *issued == slot);
                    let (Some(at), Outcome::Answered(cqe)) = (at, outcome) else {
                        continue;
                    };
                    let (_, of) = self.issued.swap_remove(at);
                    let data = buf.map(|buf| buf.to_vec()).unwrap_or_default();
                    match self.path.answered(now, of, &cqe, &data) {
                        Ok(None) => {}
                        Ok(Some(event)) => {
                            self.seen.push(event);
                            if event == PathEvent::Up {
                                self.connect_io(ring);
                            }
                        }
                        Err(error) => self.lose(now, error.to_string()),
                    }
                }
            }
        }
    }

    fn connect_io(&mut self, ring: &Ring) {
        let cntlid = self.path.up().unwrap().cntlid;
        self.attach = Some(AttachIo::new(association(), cntlid, 1, DEPTH));
        self.io = Some(self.queue(ring, DEPTH, Duration::from_secs(20)));
    }

    fn poll_io(&mut self, now: Time) {
        let mut events = Vec::new();
        if let Some(io) = &mut self.io {
            io.poll(now, &mut events);
        }
        for event in events {
            match event {
                QueueEvent::Ready => {
                    let Ok(Step::Issue { command, data_out }) =
                        self.attach.as_mut().unwrap().step(now)
                    else {
                        panic!("nothing to connect");
                    };
                    let io = self.io.as_mut().unwrap();
                    io.submit(&command, buffer(&command, &data_out), now)
                        .unwrap();
                }
                QueueEvent::Over(error) => self.lose(now, error.to_string()),
                QueueEvent::Ended {
                    outcome: Outcome::Answered(cqe),
                    ..
                } if !self.is_running => {
                    match self.attach.as_mut().unwrap().answered(now, &cqe, &[]) {
                        Ok(()) => self.is_running = true,
                        Err(error) => self.lose(now, error.to_string()),
                    }
                }
                QueueEvent::Ended { slot, outcome, buf } => {
                    self.ended
                        .push((slot, outcome, buf.map(|buf| buf.to_vec())));
                }
            }
        }
    }

    /// Closes everything.
    pub fn lose(&mut self, now: Time, why: String) {
        self.failures.push(why);
        if let Some(mut io) = self.io.take() {
            io.close();
            let mut events = Vec::new();
            io.poll(now, &mut events);
            for event in events {
                if let QueueEvent::Ended { slot, outcome, buf } = event {
                    self.ended
                        .push((slot, outcome, buf.map(|buf| buf.to_vec())));
                }
            }
        }
        self.admin = None;
        self.issued.clear();
        self.is_running = false;
        self.dead_at = self.path.lost(now).or(self.dead_at);
    }

    pub fn write(&mut self, lba: u64, data: &[u8]) -> Slot {
        let command = command::write(NSID, blocks(lba, data.len()));
        self.submit(&command, data)
    }

    pub fn read(&mut self, lba: u64, bytes: usize) -> Slot {
        self.submit(&command::read(NSID, blocks(lba, bytes)), &[])
    }

    fn submit(&mut self, command: &Command, data: &[u8]) -> Slot {
        let now = self.clock.now();
        let io = self.io.as_mut().unwrap();
        let slot = io.submit(command, buffer(command, data), now).unwrap();
        io.settle();
        slot
    }

    pub fn abandon(&mut self, slot: Slot) {
        self.io.as_mut().unwrap().abandon(slot);
    }

    pub fn room(&self) -> usize {
        self.io.as_ref().unwrap().room()
    }
}

/// The only answer since somebody looked.
pub fn answer(host: &mut Host) -> Option<(Status, Vec<u8>)> {
    let (_, outcome, data) = host.ended.pop()?;
    assert!(host.ended.is_empty());
    match outcome {
        Outcome::Answered(cqe) => Some((cqe.status(), data.unwrap_or_default())),
        Outcome::Lost { .. } => None,
    }
}

fn blocks(lba: u64, bytes: usize) -> Blocks {
    Blocks {
        lba: Lba(lba),
        count: u32::try_from(bytes / 512).unwrap(),
        lba_bytes: 512,
    }
}

fn buffer(command: &Command, data: &[u8]) -> Option<IoBuf> {
    match command.transfer {
        Transfer::None => None,
        Transfer::In(bytes) => {
            let mut buf = IoBuf::heap(bytes as usize).unwrap();
            // A byte that never arrives must not look like one that was read.
            buf.fill(0, bytes as usize, 0xEE);
            Some(buf)
        }
        Transfer::Out(_) => Some(IoBuf::from_bytes(data).unwrap()),
    }
}
