//! Controllers that break the protocol, over real sockets: the connection ends with every buffer given back, and not a byte outside a command's
//! buffer was touched.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a failure of a test is a panic with its line"
)]

#[allow(dead_code, reason = "each test program uses a part")]
#[path = "../../nvme/tests/hostile_pdus/wire.rs"]
mod wire;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nvme::digest::crc32c;
use nvme::initiator::{Blocks, command};
use nvme::queue::{QueueId, Slot};
use nvme_spec::{Lba, Nsid, Status};
use reactor::buf::IoBuf;
use reactor::{Ring, RingConfig, Wait};
use store_nvme::Clock;
use store_nvme::queue::{Outcome, Queue, QueueError, QueueEvent, QueueOptions, Transport};
use store_nvme_tcp::TcpTransport;
use wire::*;

/// What has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a buffer and its surroundings hold before anything arrives.
const UNTOUCHED: u8 = 0xEE;
/// Bytes on either side of a command's buffer, in the same memory.
const GUARD: usize = 4096;
/// Which digests.
const NONE: u8 = 0;
const DATA: u8 = 2;

/// A host at the mercy of a controller.
struct Victim {
    queue: Box<dyn Queue>,
    ring: Ring,
    clock: Clock,
    to: SocketAddr,
    /// Surroundings of the commands' buffers.
    around: Vec<(IoBuf, usize)>,
    events: Vec<QueueEvent>,
}

/// A controller of a few lines of code.
struct Attack(TcpStream);

impl Attack {
    fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The next PDU of the host, without digests; none at its end.
    fn hear(&mut self) -> Option<Sent> {
        let mut pdu = vec![0; 8];
        self.0.read_exact(&mut pdu).ok()?;
        let plen = u32::from_le_bytes(pdu[4..8].try_into().unwrap());
        pdu.resize(plen as usize, 0);
        self.0.read_exact(&mut pdu[8..]).ok()?;
        Some(Sent(pdu))
    }

    fn greet(&mut self, dgst: u8) {
        assert_eq!(self.hear().unwrap().pdu_type(), IC_REQ);
        self.say(&ic(IC_RESP, 0, dgst, 4096));
    }

    /// The identifier of the command that comes next.
    fn cid(&mut self) -> u16 {
        let capsule = self.hear().unwrap();
        assert_eq!(capsule.pdu_type(), CAPSULE_CMD);
        capsule.half(8 + 2)
    }
}

/// Starts a controller; the host connects to it.
fn attack(dgst: u8, play: impl FnOnce(&mut Attack) + Send + 'static) -> (Victim, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let controller = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        play(&mut Attack(stream));
    });
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let clock = Clock::since(Instant::now());
    let options = QueueOptions {
        qid: QueueId(1),
        cntlid: 1,
        depth: 8,
        in_capsule_bytes_max: 512,
        header_digest: false,
        data_digest: dgst & DATA != 0,
        connect_timeout: PATIENCE,
        command_timeout: PATIENCE,
    };
    let queue = TcpTransport
        .connect(&ring, to, &options, clock.clone())
        .unwrap();
    let victim = Victim {
        queue,
        ring,
        clock,
        to,
        around: Vec::new(),
        events: Vec::new(),
    };
    (victim, controller)
}

impl Victim {
    fn event(&mut self) -> QueueEvent {
        let patience = Instant::now() + PATIENCE;
        while self.events.is_empty() {
            assert!(
                Instant::now() < patience,
                "nothing happens: {:?}",
                self.queue
            );
            self.queue.settle();
            let until = Some(patience);
            self.ring.turn(Wait::Block { until }).unwrap();
            self.queue.poll(self.clock.now(), &mut self.events);
        }
        self.events.remove(0)
    }

    fn ready(&mut self) {
        let event = self.event();
        assert!(matches!(event, QueueEvent::Ready), "{event:?}");
    }

    /// A buffer in the midst of other memory.
    fn buffer(&mut self, len: usize) -> IoBuf {
        let mut memory = IoBuf::heap(len + 2 * GUARD).unwrap();
        memory.fill(0, memory.len(), UNTOUCHED);
        let buf = memory.slice(GUARD..GUARD + len);
        self.around.push((memory, len));
        buf
    }

    /// Nothing beside the buffers was written.
    fn check_surroundings(&self) {
        for (memory, len) in &self.around {
            let bytes = memory.to_vec();
            let (before, after) = (&bytes[..GUARD], &bytes[GUARD + len..]);
            assert!(before.iter().chain(after).all(|byte| *byte == UNTOUCHED));
        }
    }

    fn read(&mut self, blocks: u32) -> Slot {
        let buf = self.buffer(blocks as usize * 512);
        let command = command::read(Nsid(1), of(blocks));
        let now = self.clock.now();
        self.queue.submit(&command, Some(buf), now).unwrap()
    }

    fn write(&mut self, blocks: u32) -> Slot {
        let buf = self.buffer(blocks as usize * 512);
        let command = command::write(Nsid(1), of(blocks));
        let now = self.clock.now();
        self.queue.submit(&command, Some(buf), now).unwrap()
    }

    fn over(&mut self) -> QueueError {
        match self.event() {
            QueueEvent::Over(why) => why,
            other => panic!("the connection is to end: {other:?}"),
        }
    }

    /// After the end: so many commands are lost, and the queue comes to rest.
    fn lost(&mut self, count: usize) {
        for _ in 0..count {
            match self.event() {
                QueueEvent::Ended { outcome, buf, .. } => {
                    assert_eq!(outcome, Outcome::Lost { was_sent: true });
                    assert!(buf.is_some());
                }
                other => panic!("a command is to end: {other:?}"),
            }
        }
        let patience = Instant::now() + PATIENCE;
        while !self.queue.is_closed() {
            assert!(Instant::now() < patience, "{:?}", self.queue);
            self.queue.settle();
            let until = Some(patience);
            self.ring.turn(Wait::Block { until }).unwrap();
            self.queue.poll(self.clock.now(), &mut self.events);
        }
        assert!(self.events.is_empty(), "{:?}", self.events);
        self.check_surroundings();
    }

    fn answered(&mut self) -> (Status, Vec<u8>) {
        match self.event() {
            QueueEvent::Ended {
                outcome: Outcome::Answered(cqe),
                buf,
                ..
            } => (cqe.status(), buf.map_or(Vec::new(), |buf| buf.to_vec())),
            other => panic!("a command is to be answered: {other:?}"),
        }
    }
}

fn of(count: u32) -> Blocks {
    Blocks {
        lba: Lba(0),
        count,
        lba_bytes: 512,
    }
}

/// Each violation ends the connection with its words, and with the TermReq that the specification has for it; with a reset in its place where a write is
/// outstanding, which must not arrive late.
#[test]
fn who_breaks_the_protocol_is_told_so() {
    type Violation = fn(u16, u16) -> Vec<u8>;
    let violations: [(Violation, u16, &str); 9] = [
        (
            |_, _| c2h_data(LAST_PDU, 0x7777, 0, &[1; 512]),
            HEADER_FIELD,
            "not outstanding",
        ),
        (
            |_, write| c2h_data(LAST_PDU, write, 0, &[1; 512]),
            HEADER_FIELD,
            "reads no data",
        ),
        (
            |read, _| c2h_data(LAST_PDU, read, 512, &[1; 512]),
            OUT_OF_RANGE,
            "out of order",
        ),
        (
            |read, _| c2h_data(LAST_PDU, read, 0, &[1; 9 * 512]),
            OUT_OF_RANGE,
            "beyond",
        ),
        (
            |read, _| c2h_data(LAST_PDU, read, u32::MAX - 3, &[1; 8]),
            OUT_OF_RANGE,
            "beyond",
        ),
        (|read, _| response(read, 0), SEQUENCE, "success before"),
        (|_, write| r2t(write, 1, 0, 1 << 20), OUT_OF_RANGE, "beyond"),
        (
            |_, write| r2t(write, 1, 4096, 512),
            OUT_OF_RANGE,
            "out of order",
        ),
        (|_, _| vec![0xFF; 64], HEADER_FIELD, ""),
    ];
    let both = violations
        .into_iter()
        .flat_map(|it| [(it, false), (it, true)]);
    for ((violation, fes, words), writes) in both {
        // Of a write only where there is one.
        if !writes && violation(1, 2) != violation(1, 3) {
            continue;
        }
        let (mut victim, controller) = attack(NONE, move |attack| {
            attack.greet(NONE);
            let read = attack.cid();
            let write = if writes { attack.cid() } else { 0 };
            attack.say(&violation(read, write));
            if writes {
                let end = attack.0.read(&mut [0; 1]);
                let end = end.map_err(|error| error.kind());
                assert_eq!(end, Err(ErrorKind::ConnectionReset), "{words}");
                return;
            }
            let term = attack.hear().expect("the host says why");
            assert_eq!(term.pdu_type(), H2C_TERM);
            assert_eq!(term.fault().0, fes, "{words}");
            assert_eq!(attack.hear(), None);
        });
        victim.ready();
        victim.read(8);
        if writes {
            victim.write(16);
        }
        match victim.over() {
            QueueError::GivenUp { to, why } => {
                assert_eq!(to, victim.to);
                assert!(
                    why.starts_with("the controller broke the protocol: "),
                    "{why}"
                );
                assert!(why.contains(words), "{why}: {words}");
            }
            other => panic!("{words}: {other:?}"),
        }
        victim.lost(if writes { 2 } else { 1 });
        drop(victim);
        controller.join().unwrap();
    }
}

#[test]
fn what_the_controller_says_at_the_end_is_passed_on() {
    let (mut victim, controller) = attack(NONE, |attack| {
        attack.greet(NONE);
        attack.cid();
        let mut rest = vec![0; 16];
        rest[0] = 2;
        rest[2] = 9;
        attack.say(&pdu(C2H_TERM, 0, 24, 0, &rest));
    });
    victim.ready();
    victim.read(8);
    match victim.over() {
        QueueError::Ended { to, why } => {
            assert_eq!(to, victim.to);
            assert!(
                why.starts_with("TermReq, ") && why.ends_with("FEI 0x9"),
                "{why}"
            );
        }
        other => panic!("{other:?}"),
    }
    victim.lost(1);
    controller.join().unwrap();
}

#[test]
fn a_digest_that_is_refused_is_an_error_that_says_so() {
    let (mut victim, controller) = attack(DATA, |attack| {
        attack.greet(NONE);
        assert_eq!(attack.hear(), None);
    });
    match victim.over() {
        QueueError::GivenUp { why, .. } => assert_eq!(
            why,
            "the controller does not use data digests; connect without, or enable them at the target"
        ),
        other => panic!("{other:?}"),
    }
    victim.lost(0);
    controller.join().unwrap();
}

/// Data with a digest, damaged or not.
fn digested(cid: u16, data: &[u8], damage: u32) -> Vec<u8> {
    let mut pdu = c2h_data(LAST_PDU | SUCCESS | 1 << 1, cid, 0, data);
    pdu.extend((crc32c(data) ^ damage).to_le_bytes());
    let plen = pdu.len() as u32;
    pdu[4..8].copy_from_slice(&plen.to_le_bytes());
    pdu
}

/// It fails its command alone, whether the data were copied or received in place.
#[test]
fn damaged_data_fail_their_command() {
    for blocks in [1, 128] {
        let (mut victim, controller) = attack(DATA, move |attack| {
            attack.greet(DATA);
            for damage in [0, 1 << 31, 0] {
                let cid = attack.cid();
                attack.say(&digested(cid, &vec![7; blocks as usize * 512], damage));
            }
            assert_eq!(attack.hear(), None);
        });
        victim.ready();
        for damaged in [false, true, false] {
            victim.read(blocks);
            let (status, data) = victim.answered();
            if damaged {
                assert_eq!(status, Status::TRANSIENT_TRANSPORT_ERROR);
            } else {
                assert_eq!(status, Status::SUCCESS);
                assert!(data.iter().all(|byte| *byte == 7));
            }
        }
        victim.check_surroundings();
        drop(victim);
        controller.join().unwrap();
    }
}

/// A stream is the same however it is cut.
#[test]
fn data_that_come_byte_by_byte_are_the_same() {
    let (mut victim, controller) = attack(DATA, |attack| {
        attack.0.set_nodelay(true).unwrap();
        attack.greet(DATA);
        let cid = attack.cid();
        let data: Vec<u8> = (0..1024u32).map(|at| ((at * 7) >> 3) as u8).collect();
        for byte in digested(cid, &data, 0) {
            attack.say(&[byte]);
        }
        assert_eq!(attack.hear(), None);
    });
    victim.ready();
    victim.read(2);
    let (status, data) = victim.answered();
    assert_eq!(status, Status::SUCCESS);
    let expected: Vec<u8> = (0..1024u32).map(|at| ((at * 7) >> 3) as u8).collect();
    assert_eq!(data, expected);
    victim.check_surroundings();
    drop(victim);
    controller.join().unwrap();
}

/// At every byte of a conversation: the greeting, and the answer to a read.
#[test]
fn a_controller_that_goes_at_any_byte_is_gone() {
    let greeting = ic(IC_RESP, 0, NONE, 4096);
    for cut in (0..greeting.len()).step_by(9) {
        let part = greeting[..cut].to_vec();
        let (mut victim, controller) = attack(NONE, move |attack| {
            attack.hear().unwrap();
            attack.say(&part);
        });
        let over = victim.over();
        assert!(matches!(over, QueueError::Ended { .. }), "{over:?}");
        victim.lost(0);
        controller.join().unwrap();
    }
    for cut in (0..24 + 1024).step_by(31) {
        let (mut victim, controller) = attack(NONE, move |attack| {
            attack.greet(NONE);
            let cid = attack.cid();
            attack.say(&c2h_data(LAST_PDU | SUCCESS, cid, 0, &[9; 1024])[..cut]);
            attack.0.shutdown(Shutdown::Write).unwrap();
            assert_eq!(attack.hear(), None);
        });
        victim.ready();
        victim.read(2);
        let over = victim.over();
        assert!(matches!(over, QueueError::Ended { .. }), "{over:?}");
        victim.lost(1);
        controller.join().unwrap();
    }
}

/// Commands are answered with noise: the connection ends, whatever it is.
#[test]
fn noise_ends_the_connection() {
    for seed in 1..40u64 {
        let (mut victim, controller) = attack(NONE, move |attack| {
            attack.greet(NONE);
            let cid = attack.cid();
            let mut state = seed;
            let mut noise = Vec::new();
            while noise.len() < 1 << 16 {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                noise.extend((state >> 16).to_le_bytes());
            }
            // Something that begins well, at times.
            if seed % 2 == 0 {
                attack.say(&c2h_data(0, cid, 0, &[1; 512]));
            }
            // The host may be gone before all of it is said.
            let _refused = attack.0.write_all(&noise);
            while attack.hear().is_some() {}
        });
        victim.ready();
        victim.read(8);
        let over = victim.over();
        assert!(
            matches!(over, QueueError::GivenUp { .. }),
            "{seed}: {over:?}"
        );
        victim.lost(1);
        drop(victim);
        controller.join().unwrap();
    }
}

/// A controller that asks for data and does not take them: what is on its way comes back, what did not leave is not said to have.
#[test]
fn a_controller_that_takes_nothing_keeps_no_buffer() {
    const BLOCKS: u32 = 32 << 11;
    let (tell, told) = std::sync::mpsc::channel();
    let (mut victim, controller) = attack(NONE, move |attack| {
        attack.greet(NONE);
        let cid = attack.cid();
        attack.say(&r2t(cid, 1, 0, BLOCKS * 512));
        // Then it takes nothing, until the host is gone.
        told.recv().unwrap();
    });
    victim.ready();
    let now = victim.clock.now();
    let buf = IoBuf::heap(BLOCKS as usize * 512).unwrap();
    let command = command::write(Nsid(1), of(BLOCKS));
    let stuck = victim.queue.submit(&command, Some(buf), now).unwrap();
    // More than sockets hold is to be sent: after a while no turn brings anything.
    let mut turns_in_vain = 0;
    while turns_in_vain < 10 {
        let before = victim.ring.stats().completions;
        victim.queue.settle();
        let until = Some(Instant::now() + Duration::from_millis(1));
        victim.ring.turn(Wait::Block { until }).unwrap();
        victim.queue.poll(victim.clock.now(), &mut victim.events);
        let is_vain = victim.ring.stats().completions == before;
        turns_in_vain = if is_vain { turns_in_vain + 1 } else { 0 };
    }
    let unsent = victim.write(1);
    victim.queue.settle();
    victim.queue.close();
    victim.queue.poll(victim.clock.now(), &mut victim.events);
    assert_eq!(victim.over(), QueueError::Closed { to: victim.to });
    // Before the ring has had a turn the send has not ended.
    let at_once = victim.events.iter().filter_map(|event| match event {
        QueueEvent::Ended { slot, .. } => Some(*slot),
        _ => None,
    });
    assert_eq!(at_once.collect::<Vec<_>>(), [unsent]);
    let mut lost = Vec::new();
    for _ in 0..2 {
        match victim.event() {
            QueueEvent::Ended {
                slot,
                outcome: Outcome::Lost { was_sent },
                buf,
            } => {
                let mut buf = buf.unwrap();
                assert_eq!(buf.exclusive().is_some(), slot == stuck, "no send has it");
                lost.push((slot, was_sent, buf.len()));
            }
            other => panic!("{other:?}"),
        }
    }
    lost.sort();
    assert_eq!(
        lost,
        [(stuck, true, BLOCKS as usize * 512), (unsent, false, 512)]
    );
    victim.lost(0);
    tell.send(()).unwrap();
    controller.join().unwrap();
}

/// With commands outstanding the end is a reset, so that nothing that the kernel still has of them leaves; otherwise it is in order.
#[test]
fn a_queue_that_is_closed_leaves_nothing_behind() {
    for is_outstanding in [false, true] {
        let (tell, told) = std::sync::mpsc::channel();
        let (mut victim, controller) = attack(NONE, move |attack| {
            attack.greet(NONE);
            if is_outstanding {
                attack.cid();
            }
            tell.send(()).unwrap();
            let end = attack.0.read(&mut [0]);
            match end.map_err(|error| error.kind()) {
                Err(ErrorKind::ConnectionReset) if is_outstanding => {}
                Ok(0) if !is_outstanding => {}
                other => panic!("outstanding {is_outstanding}: {other:?}"),
            }
        });
        victim.ready();
        if is_outstanding {
            victim.read(8);
        }
        let patience = Instant::now() + PATIENCE;
        while told.try_recv().is_err() {
            assert!(Instant::now() < patience);
            victim.queue.settle();
            let until = Some(Instant::now() + Duration::from_millis(1));
            victim.ring.turn(Wait::Block { until }).unwrap();
            victim.queue.poll(victim.clock.now(), &mut victim.events);
        }
        victim.queue.close();
        assert_eq!(victim.over(), QueueError::Closed { to: victim.to });
        victim.lost(usize::from(is_outstanding));
        controller.join().unwrap();
    }
}
