//! I/O queues when there are places for only some: a host is granted what is left, and each queue that it was granted connects.

use std::time::{Duration, Instant};

use telemetry::EventKind;

use super::{On, Queue, Target, disk, memory};

const PATIENCE: Duration = Duration::from_secs(10);
/// Connect Controller Busy: the host tries again.
const BUSY: u16 = 0x181;

/// A host and the I/O queues that it was granted, all of them connected.
struct Host {
    admin: Queue,
    queues: Vec<Queue>,
}

impl Host {
    /// Asks for so many.
    fn connect(target: &Target, name: &str, wanted: u16) -> Host {
        let (mut admin, cntlid) = Queue::admin(&target.place, name, Duration::ZERO);
        let wanted_z = u32::from(wanted - 1);
        let answer = admin.plain(0x09, 0, [0x07, wanted_z << 16 | wanted_z, 0]);
        assert_eq!(answer.status, 0);
        assert_eq!(answer.dw0 >> 16, answer.dw0 & 0xFFFF);
        let granted = u16::try_from(answer.dw0 & 0xFFFF).unwrap() + 1;
        let queues = (1..=granted).map(|qid| Queue::io(&target.place, name, cntlid, qid));
        let queues = queues.collect();
        Host { admin, queues }
    }

    fn reads_on_each(&mut self) {
        for queue in &mut self.queues {
            assert_eq!(queue.read(0), vec![0; 4096]);
        }
    }
}

/// I/O queues at each reactor.
fn spread(target: &Target) -> Vec<u64> {
    let reactors = target.telemetry.snapshot().reactors;
    reactors.iter().map(|reactor| reactor.connections).collect()
}

/// Returns once so many controllers have ended, the last queue of each before it.
fn wait_ended(target: &Target, controllers: usize) {
    let start = Instant::now();
    let ended = || {
        let events = target.telemetry.events().into_iter();
        let ended = events.filter(|it| it.event.kind == EventKind::ControllerEnded);
        ended.count()
    };
    while ended() < controllers {
        assert!(start.elapsed() < PATIENCE, "a controller does not end");
        std::thread::yield_now();
    }
}

fn host(number: usize) -> String {
    format!("nqn.2026-11.io.example:host-{number}")
}

/// As many as all reactors take together, though each asks for the first queue alone.
pub(super) fn hosts_of_one_queue_each_spread_over_the_reactors(on: &On) {
    let target = Target::start_narrow(on, disk(memory()), 3, 2);
    let mut hosts: Vec<Host> = (0..6)
        .map(|number| Host::connect(&target, &host(number), 1))
        .collect();
    assert_eq!(spread(&target), [2, 2, 2]);
    hosts.iter_mut().for_each(Host::reads_on_each);
    let connect = || Queue::asking_for_admin(&target.place, &host(6)).response();
    assert_eq!(connect().status, BUSY);
    // Both of the second reactor's go: theirs are the places that the next ones get.
    drop((hosts.remove(4), hosts.remove(1)));
    wait_ended(&target, 2);
    assert_eq!(spread(&target), [2, 0, 2]);
    let mut next = [7, 8].map(|number| Host::connect(&target, &host(number), 1));
    assert_eq!(spread(&target), [2, 2, 2]);
    next.iter_mut()
        .chain(&mut hosts)
        .for_each(Host::reads_on_each);
}

pub(super) fn hosts_share_the_queues_that_the_reactors_take(on: &On) {
    let target = Target::start_narrow(on, disk(memory()), 2, 3);
    let mut first = Host::connect(&target, "nqn.2026-11.io.example:first", 4);
    let mut second = Host::connect(&target, "nqn.2026-11.io.example:second", 4);
    assert_eq!((first.queues.len(), second.queues.len()), (4, 2));
    first.reads_on_each();
    second.reads_on_each();
    let third = "nqn.2026-11.io.example:third";
    let connect = || Queue::asking_for_admin(&target.place, third).response();
    assert_eq!(connect().status, BUSY);
    // One that leaves makes room, when the last of its queues has closed.
    drop(first);
    let start = Instant::now();
    while connect().status == BUSY {
        assert!(start.elapsed() < PATIENCE, "no place became free");
    }
    let mut fourth = Host::connect(&target, "nqn.2026-11.io.example:fourth", 1);
    fourth.reads_on_each();
    second.reads_on_each();
    assert_eq!(second.admin.csts() & 1, 1);
}
