//! Controllers that break the protocol, and fabrics that break under it.

#![allow(clippy::unwrap_used, reason = "a failure of a test is a panic")]

mod support;

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nvme::initiator::command::{read, write};
use nvme::initiator::{Blocks, Command};
use nvme::queue::{QueueId, Slot};
use nvme_spec::rdma::{KeyedDataBlock, RejectStatus};
use nvme_spec::{Lba, Nsid, Status};
use reactor::buf::IoBuf;
use reactor::{Ring, RingConfig, Wait};
use store_nvme::Clock;
use store_nvme::conformance::{Controller, PATIENCE};
use store_nvme::queue::{Outcome, Queue, QueueError, QueueEvent, QueueOptions, Transport};
use verbs::memory::Link;

use support::peer::{Conduct, Peer, keyed, requested, response};
use support::rig::RdmaRig;

/// The host under test.
struct Victim {
    queue: Box<dyn Queue>,
    ring: Ring,
    clock: Clock,
    events: Vec<QueueEvent>,
}

fn reading(number: u64, bytes: u32) -> Command {
    let lba = Lba(number);
    let (count, lba_bytes) = (1, bytes);
    read(
        Nsid(1),
        Blocks {
            lba,
            count,
            lba_bytes,
        },
    )
}

fn writing(number: u64, bytes: u32) -> Command {
    let lba = Lba(number);
    let (count, lba_bytes) = (1, bytes);
    write(
        Nsid(1),
        Blocks {
            lba,
            count,
            lba_bytes,
        },
    )
}

fn options() -> QueueOptions {
    QueueOptions {
        qid: QueueId(5),
        cntlid: 9,
        depth: 8,
        in_capsule_bytes_max: 512,
        header_digest: false,
        data_digest: false,
        connect_timeout: PATIENCE,
        command_timeout: PATIENCE,
    }
}

impl Victim {
    fn connect(rig: &RdmaRig, to: std::net::SocketAddr, options: &QueueOptions) -> Victim {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let clock = Clock::since(Instant::now());
        let queue = rig
            .transport
            .connect(&ring, to, options, clock.clone())
            .unwrap();
        Victim {
            queue,
            ring,
            clock,
            events: Vec::new(),
        }
    }

    fn event(&mut self) -> QueueEvent {
        let patience = Instant::now() + PATIENCE;
        while self.events.is_empty() {
            assert!(Instant::now() < patience, "nothing happens: {self:?}");
            self.turn(patience);
        }
        self.events.remove(0)
    }

    fn turn(&mut self, patience: Instant) {
        self.queue.settle();
        let deadline = self.queue.deadline().map(|at| self.clock.instant(at));
        let until = Some(deadline.map_or(patience, |at| at.min(patience)));
        self.ring.turn(Wait::Block { until }).unwrap();
        let mut found = Vec::new();
        self.queue.poll(self.clock.now(), &mut found);
        self.events.extend(found);
    }

    fn submit(&mut self, command: &Command, buf: IoBuf) -> Slot {
        let now = self.clock.now();
        self.queue.submit(command, Some(buf), now).unwrap()
    }

    fn ready(&mut self) {
        let event = self.event();
        assert!(matches!(event, QueueEvent::Ready), "{event:?}");
    }

    fn over(&mut self) -> QueueError {
        match self.event() {
            QueueEvent::Over(why) => why,
            other => panic!("the connection is to end: {other:?}"),
        }
    }

    fn ended(&mut self) -> (Slot, Outcome, IoBuf) {
        match self.event() {
            QueueEvent::Ended { slot, outcome, buf } => (slot, outcome, buf.unwrap()),
            other => panic!("a command is to end: {other:?}"),
        }
    }
}

impl std::fmt::Debug for Victim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.queue.fmt(f)
    }
}

/// A script and the host that it plays against.
fn against(
    rig: &RdmaRig,
    script: impl FnOnce(&mut Peer) + Send + 'static,
) -> (Victim, JoinHandle<()>) {
    let (channel, listener, to) = rig.listen();
    let conduct = rig.conduct;
    let thread = std::thread::spawn(move || {
        let request = requested(&channel, &listener);
        script(&mut Peer::accept(channel, request, conduct));
    });
    let mut victim = Victim::connect(rig, to, &options());
    victim.ready();
    (victim, thread)
}

fn done(thread: JoinHandle<()>) {
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn full(len: u32, byte: u8) -> IoBuf {
    let mut buf = IoBuf::heap(len as usize).unwrap();
    buf.fill(0, len as usize, byte);
    buf
}

#[test]
fn the_request_says_which_queue_it_is_and_what_it_can_take() {
    let rig = RdmaRig::new();
    let (victim, thread) = against(&rig, |peer| {
        let request = &peer.request;
        assert_eq!((request.qid.get(), request.cntlid.get()), (5, 9));
        assert_eq!((request.hrqsize.get(), request.hsqsize_z.get()), (8, 8));
        // The device's 16: the controller may have as many reads in progress here.
        assert_eq!(peer.reads_in_progress, 16);
    });
    done(thread);
    drop(victim);
}

/// A device takes its time for each window, registration and queue: the end of a connection costs its reactor none.
#[test]
fn a_queue_is_taken_apart_elsewhere() {
    let rig = RdmaRig::new();
    let (closed, is_closed) = mpsc::channel::<()>();
    let (mut victim, thread) = against(&rig, move |_| {
        assert!(is_closed.recv().is_err(), "the peer stays until then");
    });
    let before = rig.host.control_calls().len();
    victim.queue.close();
    drop(closed);
    done(thread);
    while !victim.queue.is_closed() {
        victim.event();
    }
    let here = std::thread::current().id();
    let host = rig.host.clone();
    // The last handles to the thread: they wait for it.
    drop((victim, rig));
    let after = host.control_calls().split_off(before);
    assert!(after.iter().all(|(_, by)| *by != here), "{after:?}");
    let mut calls: Vec<_> = after.iter().map(|(call, _)| *call).collect();
    calls.sort_unstable();
    let mut expected = vec!["ibv_dealloc_mw"; 8];
    expected.extend(["ibv_dereg_mr"; 3]);
    expected.extend(["ibv_destroy_cq", "ibv_destroy_qp"]);
    assert_eq!(calls, expected);
}

/// What a controller does with the first read, in place of an answer; and what the host then says.
#[test]
fn a_controller_that_breaks_the_protocol_is_left() {
    type Hostile = fn(&mut Peer, Slot);
    let cases: [(&str, Hostile, &[&str]); 8] = [
        (
            "a message that is no response",
            |peer, _| {
                peer.send(&[0; 15], None);
            },
            &["15 bytes"],
        ),
        (
            "an empty message",
            |peer, _| {
                peer.send(&[], None);
            },
            &["0 bytes"],
        ),
        (
            "a message longer than a response",
            |peer, _| {
                peer.send(&[0; 17], None);
            },
            &["longer than a response"],
        ),
        (
            "an answer to nothing",
            |peer, tag| {
                let mut sqe = peer.command_of(tag);
                sqe.cid = (sqe.cid.get() ^ 0x200).into();
                peer.send(&response(&sqe, Status::SUCCESS, 0), None);
            },
            &["not outstanding"],
        ),
        (
            "two answers",
            |peer, tag| {
                let answer = response(&peer.command_of(tag), Status::LBA_OUT_OF_RANGE, 0);
                peer.send(&answer, None);
                peer.send(&answer, None);
            },
            &["not outstanding"],
        ),
        (
            "another command's key",
            |peer, tag| {
                let other = peer.command().unwrap();
                let key = keyed(&other.sqe).unwrap().key();
                let answer = response(&peer.command_of(tag), Status::SUCCESS, 0);
                peer.send(&answer, Some(key));
            },
            &["is not that command's"],
        ),
        (
            "a key that nobody has",
            |peer, tag| {
                let answer = response(&peer.command_of(tag), Status::SUCCESS, 0);
                peer.send(&answer, Some(0x0BAD_0B00));
            },
            &["a key that it was not given"],
        ),
        (
            "a write beyond the command's data",
            |peer, tag| {
                let block = keyed(&peer.command_of(tag)).unwrap();
                peer.write(&block, 4096 - 8, &[0xEE; 16]);
                peer.until(|_| false);
            },
            // Its own queue pair is in error as well: it may have disconnected by then.
            &["in error", "it disconnected"],
        ),
    ];
    for (what, hostile, words) in cases {
        let rig = RdmaRig::new();
        let (mut victim, thread) = against(&rig, move |peer| {
            let read = peer.command().unwrap();
            hostile(peer, read.tag);
            peer.until(|peer| peer.is_gone);
        });
        let first = victim.submit(&reading(1, 4096), full(4096, 0x11));
        victim.submit(&reading(2, 4096), full(4096, 0x22));
        let mut ends = Vec::new();
        let why = loop {
            match victim.event() {
                QueueEvent::Over(why) => break why.to_string(),
                QueueEvent::Ended { slot, .. } => ends.push(slot),
                QueueEvent::Ready => panic!("{what}: ready twice"),
            }
        };
        assert!(words.iter().any(|it| why.contains(it)), "{what}: {why}");
        while ends.len() < 2 {
            let (slot, outcome, buf) = victim.ended();
            assert_eq!(outcome, Outcome::Lost { was_sent: true }, "{what}");
            let byte = if slot == first { 0x11 } else { 0x22 };
            assert!(
                buf.to_vec().iter().all(|it| *it == byte),
                "{what}: a buffer is written though its command failed"
            );
            ends.push(slot);
        }
        drop(victim);
        done(thread);
    }
}

/// How the key of a command comes to its end.
#[derive(Clone, Copy, Debug)]
enum Ends {
    WithTheResponse,
    ByTheHost,
    WithItsRegistration,
}

impl Ends {
    fn rig(self) -> RdmaRig {
        let mut rig = RdmaRig::new();
        rig.conduct.invalidates = matches!(self, Ends::WithTheResponse);
        if matches!(self, Ends::WithItsRegistration) {
            rig.transport = rig.transport.without_windows();
        }
        rig
    }
}

/// A key is good for its command alone: afterwards the controller has none, though another command is outstanding.
#[test]
fn a_key_is_dead_once_its_command_has_ended() {
    for ends in [
        Ends::WithTheResponse,
        Ends::ByTheHost,
        Ends::WithItsRegistration,
    ] {
        let rig = ends.rig();
        let (allow, allowed) = mpsc::channel();
        let (mut victim, thread) = against(&rig, move |peer| {
            let read = peer.command().unwrap();
            let block = keyed(&read.sqe).unwrap();
            let by_window = !matches!(ends, Ends::WithItsRegistration);
            assert_eq!(block.invalidates(), by_window, "{ends:?}");
            peer.command().unwrap();
            peer.answer(read.tag, Status::SUCCESS, 0, &[0x5A; 4096]);
            allowed.recv().unwrap();
            let is_good = peer.write(&block, 0, &[0xEE; 16]);
            assert!(!is_good, "{ends:?}: the key was good");
        });
        victim.submit(&reading(1, 4096), full(4096, 0x11));
        let other = victim.submit(&reading(2, 4096), full(4096, 0x22));
        let (_, outcome, buf) = victim.ended();
        assert!(matches!(outcome, Outcome::Answered(cqe) if cqe.status().is_success()));
        assert!(buf.to_vec() == [0x5A; 4096]);
        // The other is lost with the connection.
        allow.send(()).unwrap();
        let why = victim.over().to_string();
        assert!(
            why.contains("in error") || why.contains("disconnected"),
            "{ends:?}: {why}"
        );
        let (slot, outcome, untouched) = victim.ended();
        assert_eq!(slot, other);
        assert_eq!(outcome, Outcome::Lost { was_sent: true });
        assert!(untouched.to_vec() == [0x22; 4096]);
        assert!(buf.to_vec() == [0x5A; 4096]);
        drop(victim);
        done(thread);
    }
}

/// A key reaches its command's part and nothing beside it, and only in the command's direction.
#[test]
fn a_key_is_good_for_its_part_and_its_direction() {
    type Reach = fn(&mut Peer, &KeyedDataBlock) -> bool;
    let reaches: [(&str, bool, Reach); 4] = [
        ("a write into what is read", true, |peer, block| {
            peer.write(block, 0, &[0xEE; 16])
        }),
        ("a write behind the part", false, |peer, block| {
            peer.write(block, 4096, &[0xEE; 16])
        }),
        ("a write in front of it", false, |peer, block| {
            let mut before = *block;
            before.address = (block.address.get() - 16).into();
            peer.write(&before, 0, &[0xEE; 16])
        }),
        ("a read of what is written", false, |peer, block| {
            peer.read(block).is_some()
        }),
    ];
    for ends in [Ends::WithTheResponse, Ends::WithItsRegistration] {
        for (what, goes_out, reach) in reaches {
            let rig = ends.rig();
            let (mut victim, thread) = against(&rig, move |peer| {
                peer.command().unwrap();
                let second = peer.command().unwrap();
                let block = keyed(&second.sqe).unwrap();
                assert!(!reach(peer, &block), "{ends:?}: {what}");
            });
            let command = |number| match goes_out {
                true => writing(number, 4096),
                false => reading(number, 4096),
            };
            // Three parts, one behind the other: the second has one on each side.
            for number in 0..3 {
                victim.submit(&command(number), full(4096, 0x11));
            }
            victim.over();
            for _ in 0..3 {
                let (_, outcome, buf) = victim.ended();
                assert_eq!(
                    outcome,
                    Outcome::Lost { was_sent: true },
                    "{ends:?}: {what}"
                );
                assert!(buf.to_vec() == [0x11; 4096], "{ends:?}: {what}");
            }
            drop(victim);
            done(thread);
        }
    }
}

/// Memory that may not be locked just now, since others have it, is locked when it may: the connection stands meanwhile.
#[test]
fn a_command_waits_for_memory_that_may_be_locked() {
    let rig = Ends::WithItsRegistration.rig();
    let (mut victim, thread) = against(&rig, |peer| {
        let read = peer.command().unwrap();
        peer.answer(read.tag, Status::SUCCESS, 0, &[0x5A; 4096]);
    });
    rig.host.lock_at_most(0);
    victim.submit(&reading(1, 4096), full(4096, 0x11));
    let until = Instant::now() + Duration::from_millis(50);
    while Instant::now() < until {
        victim.turn(until);
    }
    assert!(victim.events.is_empty(), "{:?}", victim.events);
    victim.queue.settle();
    let again = victim.queue.deadline().map(|at| victim.clock.instant(at));
    let soon = Instant::now() + Duration::from_secs(1);
    assert!(
        again.is_some_and(|at| at < soon),
        "nothing wakes the ring for it"
    );
    rig.host.lock_at_most(u64::MAX);
    let (_, outcome, buf) = victim.ended();
    assert!(matches!(outcome, Outcome::Answered(cqe) if cqe.status().is_success()));
    assert!(buf.to_vec() == [0x5A; 4096]);
    done(thread);
}

/// More data than the staging has room for wait inside, and all of it arrives.
#[test]
fn what_finds_no_staging_waits() {
    let rig = RdmaRig::new();
    let (tell, told) = mpsc::channel();
    let (mut victim, thread) = against(&rig, move |peer| {
        let first: Vec<_> = (0..4).map(|_| peer.command().unwrap()).collect();
        tell.send(()).unwrap();
        for read in first {
            let byte = u8::try_from(read.sqe.slba().0).unwrap();
            peer.answer(read.tag, Status::SUCCESS, 0, &vec![byte; 1 << 20]);
        }
        while let Some(read) = peer.command() {
            let byte = u8::try_from(read.sqe.slba().0).unwrap();
            peer.answer(read.tag, Status::SUCCESS, 0, &vec![byte; 1 << 20]);
        }
    });
    for number in 1..=8 {
        victim.submit(&reading(number, 1 << 20), full(1 << 20, 0));
    }
    assert_eq!(victim.queue.room(), 0);
    let mut ended = Vec::new();
    while ended.len() < 8 {
        let (_, outcome, buf) = victim.ended();
        assert!(matches!(outcome, Outcome::Answered(_)), "{outcome:?}");
        let bytes = buf.to_vec();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        ended.push(bytes[0]);
    }
    ended.sort_unstable();
    assert_eq!(ended, [1, 2, 3, 4, 5, 6, 7, 8]);
    told.recv().unwrap();
    drop(victim);
    done(thread);
}

/// A controller with fewer receives than the queue has commands is never sent more than it has.
#[test]
fn a_controller_with_two_receives_gets_two_commands() {
    let mut rig = RdmaRig::new();
    rig.conduct = Conduct {
        receives: 2,
        ..rig.conduct
    };
    let (mut victim, thread) = against(&rig, |peer| {
        for _ in 0..4 {
            let both = [peer.command().unwrap(), peer.command().unwrap()];
            for write in both {
                assert_eq!(peer.data(write.tag).unwrap(), [7; 4096]);
                peer.answer(write.tag, Status::SUCCESS, 0, &[]);
            }
        }
    });
    for number in 0..8 {
        victim.submit(&writing(number, 4096), full(4096, 7));
    }
    for _ in 0..8 {
        let (_, outcome, _) = victim.ended();
        assert!(matches!(outcome, Outcome::Answered(cqe) if cqe.status().is_success()));
    }
    done(thread);
}

#[test]
fn every_refusal_is_told_in_words() {
    for status in 1..=10_u8 {
        let rig = RdmaRig::new();
        let (channel, listener, to) = rig.listen();
        let thread = std::thread::spawn(move || {
            let request = requested(&channel, &listener);
            request.reject(&[0, 0, status, 0]).unwrap();
        });
        let mut victim = Victim::connect(&rig, to, &options());
        let why = victim.over().to_string();
        let number = RejectStatus(status.into()).0;
        assert!(why.contains(&format!("(status {number})")), "{why}");
        assert!(why.contains("refused the connection"), "{why}");
        done(thread);
    }
    let rig = RdmaRig::new();
    let (channel, listener, to) = rig.listen();
    let thread = std::thread::spawn(move || drop(requested(&channel, &listener)));
    let mut victim = Victim::connect(&rig, to, &options());
    let why = victim.over().to_string();
    assert!(why.contains("without a word of NVMe"), "{why}");
    done(thread);
}

/// Frames below the connection are lost, late, doubled and overtaken: bytes are right, and nothing ends.
#[test]
fn a_bad_network_costs_time_alone() {
    let rig = RdmaRig::new();
    let (mut victim, thread) = against(&rig, |peer| {
        while let Some(read) = peer.command() {
            let byte = u8::try_from(read.sqe.slba().0).unwrap();
            peer.answer(read.tag, Status::SUCCESS, 0, &[byte; 4096]);
        }
    });
    rig.fabric.set_links(Link {
        delay: Duration::from_micros(20),
        jitter: Duration::from_micros(200),
        lost_ppm: 20_000,
        duplicated_ppm: 50_000,
        cut: false,
    });
    let (mut submitted, mut ended) = (0, 0);
    let mut asked = [0; 8];
    while ended < 200 {
        while submitted < 200 && victim.queue.room() > 0 {
            submitted += 1;
            let number = u8::try_from(submitted % 251).unwrap();
            let slot = victim.submit(&reading(number.into(), 4096), full(4096, 0xFF));
            asked[slot.index()] = number;
        }
        // All of a poll's: a slot that it told of is free.
        loop {
            let (slot, outcome, buf) = victim.ended();
            assert!(matches!(outcome, Outcome::Answered(_)), "{outcome:?}");
            assert!(buf.to_vec() == [asked[slot.index()]; 4096]);
            ended += 1;
            if victim.events.is_empty() {
                break;
            }
        }
    }
    assert!(rig.fabric.counts().lost > 0);
    rig.fabric.set_links(Link::default());
    drop(victim);
    done(thread);
}

/// A peer that is gone without a word is found by what is sent to it.
#[test]
fn a_peer_that_vanishes_ends_the_connection() {
    let rig = RdmaRig::new();
    let (mut victim, thread) = against(&rig, |peer| {
        peer.command();
    });
    rig.fabric.set_links(Link {
        cut: true,
        ..Link::default()
    });
    let slot = victim.submit(&reading(1, 4096), full(4096, 0x11));
    let why = victim.over();
    assert!(why.to_string().contains("does not acknowledge"), "{why}");
    let (ended, outcome, buf) = victim.ended();
    assert_eq!((ended, outcome), (slot, Outcome::Lost { was_sent: true }));
    assert!(buf.to_vec() == [0x11; 4096]);
    rig.target.kill();
    drop(thread);
}

#[test]
fn a_device_that_goes_ends_the_connection() {
    let rig = RdmaRig::new();
    let (allow, allowed) = mpsc::channel::<()>();
    // It hears nothing of it.
    let (mut victim, thread) = against(&rig, move |_| allowed.recv().unwrap());
    let slot = victim.submit(&reading(1, 4096), full(4096, 0x11));
    victim.queue.settle();
    rig.host.remove_device();
    let why = victim.over().to_string();
    assert!(why.contains("device") || why.contains("in error"), "{why}");
    let (ended, outcome, _) = victim.ended();
    assert_eq!((ended, outcome), (slot, Outcome::Lost { was_sent: true }));
    allow.send(()).unwrap();
    drop(victim);
    done(thread);
}
