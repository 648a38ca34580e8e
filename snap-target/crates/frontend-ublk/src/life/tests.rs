//! Starts that fail at each of their steps, over a kernel and a reactor that do what they are told to and write it down.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

use std::collections::HashMap;
use std::io::{PipeReader, Read, pipe};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use reactor::{Errno, Ring, RingConfig, Waker};
use tempfile::NamedTempFile;
use ublk::{Descriptors, DeviceState, Params, UblkError};

use super::*;
use crate::limits::{DEPTH, REQUEST_BYTES_MAX};

const NUMBER: u32 = 3;
const PLACE: &str = "nqn 1";
const QUEUES: u16 = 2;
const PATIENCE: Duration = Duration::from_secs(20);
/// No process has it.
const DEAD: i32 = i32::MAX;

type Log = Arc<Mutex<Vec<String>>>;

fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

/// The driver. Its device's file is a pipe, whose other end tells when nobody has it any more, and its descriptors are a file's.
struct Kernel {
    log: Log,
    fails: &'static str,
    there: Option<DeviceInfo>,
    file: Option<OwnedFd>,
    mapped: Arc<NamedTempFile>,
}

impl Kernel {
    fn step(&self, step: String) -> Result<(), UblkError> {
        let fails = step == self.fails;
        self.log.lock().unwrap().push(step.clone());
        match fails {
            true => Err(UblkError::Refused {
                what: step,
                source: Errno::EIO,
            }),
            false => Ok(()),
        }
    }
}

impl Driver for Kernel {
    fn features(&mut self) -> Result<Features, UblkError> {
        self.step("features".to_owned()).map(|()| NEEDED)
    }

    fn info(&mut self, _number: u32) -> Result<Option<DeviceInfo>, UblkError> {
        Ok(self.there)
    }

    fn add(&mut self, info: &DeviceInfo) -> Result<DeviceInfo, UblkError> {
        self.step("add".to_owned())?;
        self.there = Some(*info);
        Ok(*info)
    }

    fn set_params(&mut self, _number: u32, _params: &Params) -> Result<(), UblkError> {
        self.step("set params".to_owned())
    }

    fn params(&mut self, _number: u32) -> Result<Params, UblkError> {
        let params = crate::disk::tests::disk().params();
        self.step("params".to_owned()).map(|()| params)
    }

    fn start(&mut self, _number: u32, _patience: Duration) -> Result<(), UblkError> {
        self.step("start".to_owned())
    }

    fn start_recovery(&mut self, _number: u32, _patience: Duration) -> Result<(), UblkError> {
        self.step("start recovery".to_owned())
    }

    fn end_recovery(&mut self, _number: u32, _patience: Duration) -> Result<(), UblkError> {
        self.step("end recovery".to_owned())
    }

    fn delete(&mut self, _number: u32, _patience: Duration) -> Result<(), UblkError> {
        self.there = None;
        self.step("delete".to_owned())
    }

    fn update_size(&mut self, _number: u32, _sectors: u64) -> Result<(), UblkError> {
        self.step("update size".to_owned())
    }

    fn quiesce(&mut self, _number: u32, _patience: Duration) -> Result<(), UblkError> {
        self.step("quiesce".to_owned())
    }

    fn open(&mut self, _number: u32) -> Result<OwnedFd, UblkError> {
        self.step("open".to_owned())?;
        Ok(self.file.take().unwrap())
    }

    fn map(&mut self, _file: &OwnedFd, queue: u16, depth: u16) -> Result<Descriptors, UblkError> {
        self.step(format!("map {queue}"))?;
        Descriptors::map(self.mapped.as_file().as_fd(), 0, depth)
    }
}

/// A reactor that has queues and serves none. Joined, it says how many it still has.
struct Reactor {
    door: Door,
    waker: Waker,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Reactor {
    fn start(log: Log, fails: &'static str) -> Self {
        let (tell, told) = std::sync::mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let thread = std::thread::spawn(move || {
            let ring = Ring::new(&RingConfig::default()).unwrap();
            let (door, orders) = reactor::Door::new(&ring, 64, PATIENCE);
            tell.send((Door(door), ring.waker())).unwrap();
            let mut queues = Queues {
                log,
                fails,
                served: HashMap::new(),
            };
            loop {
                let is_over = ends.load(Ordering::SeqCst);
                while let Some(order) = orders.try_recv() {
                    queues.order(order);
                }
                if is_over {
                    return queues.served.len();
                }
                ring.turn(reactor::Wait::Block { until: None }).unwrap();
            }
        });
        let (door, waker) = told.recv().unwrap();
        Self {
            door,
            waker,
            is_over,
            thread,
        }
    }

    fn end(self) -> usize {
        self.is_over.store(true, Ordering::SeqCst);
        self.waker.wake();
        self.thread.join().unwrap()
    }
}

struct Queues {
    log: Log,
    fails: &'static str,
    served: HashMap<QueueId, Start>,
}

impl Queues {
    fn order(&mut self, order: Order) {
        match order {
            Order::Start(start, answer) => {
                let number = start.number;
                self.say("fetch", number);
                if self.fails == format!("fetch {number}") {
                    let _told = answer.send(Err("it is said to fail".to_owned()));
                    return;
                }
                self.served.insert(start.id, *start);
                // Else it says nothing, and has it.
                if self.fails != format!("answer {number}") {
                    // Where another queue has failed, nobody waits for it.
                    let _told = answer.send(Ok(()));
                }
            }
            Order::Await(id, answer) => {
                if let Some(start) = self.served.remove(&id) {
                    self.say("end", start.number);
                }
                let _told = answer.send(());
            }
            Order::Drain(..) | Order::Disk(..) => {}
        }
    }

    fn say(&self, what: &str, number: u16) {
        self.log.lock().unwrap().push(format!("{what} {number}"));
    }
}

/// What a start does at the kernel, and at the reactor, and how many queues that has afterwards; the device is one that a dead process has left, or none is
/// there. Nothing of one that fails stays but these queues.
fn start(is_left: bool, fails: &'static str) -> (Vec<String>, Vec<String>, usize) {
    let disk = crate::disk::tests::disk();
    let mut left = DeviceInfo::new(NUMBER, QUEUES, DEPTH, REQUEST_BYTES_MAX);
    left.features = NEEDED.0;
    left.stamp = disk.stamp(PLACE).to_bits();
    left.server = DEAD;
    let left = left.in_state(DeviceState::Quiesced);
    let (alive, file) = pipe().unwrap();
    let mapped = Arc::new(NamedTempFile::new().unwrap());
    mapped.as_file().set_len(4096).unwrap();
    let (at_kernel, at_reactor) = (Log::default(), Log::default());
    let kernel = Kernel {
        log: at_kernel.clone(),
        fails,
        there: is_left.then_some(left),
        file: Some(file.into()),
        mapped: mapped.clone(),
    };
    let reactor = Reactor::start(at_reactor.clone(), fails);
    let doors = vec![reactor.door.clone(); QUEUES.into()];
    let begun = Life::begin(Box::new(kernel), NUMBER, PLACE.to_owned(), disk, &doors);
    assert_eq!(begun.is_err(), !fails.is_empty(), "{fails}");
    let queues = reactor.end();
    if let Err(why) = begun {
        assert!(
            is_closed(alive),
            "{fails}: {why}: somebody has the device's file"
        );
        assert!(!is_mapped(&mapped), "{fails}: descriptors are mapped");
    }
    (take(&at_kernel), take(&at_reactor), queues)
}

fn is_closed(mut alive: PipeReader) -> bool {
    // Nobody writes: it ends when all have closed it, and would else wait for ever.
    alive.read(&mut [0]).unwrap() == 0
}

fn is_mapped(file: &NamedTempFile) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains(file.path().to_str().unwrap())
}

/// The first of these, and what follows them.
fn until(steps: &[&str], count: usize, then: &[&str]) -> Vec<String> {
    let steps = steps.iter().take(count).chain(then);
    steps.map(|step| (*step).to_owned()).collect()
}

const FETCHED: [&str; 2] = ["fetch 0", "fetch 1"];
const ENDED: [&str; 2] = ["end 0", "end 1"];

#[test]
fn each_step_of_a_new_device_fails_once_and_what_was_made_is_undone() {
    let steps = [
        "features",
        "add",
        "set params",
        "open",
        "map 0",
        "map 1",
        "start",
    ];
    let whole = (until(&steps, 7, &[]), until(&FETCHED, 2, &[]), 2);
    assert_eq!(start(false, ""), whole);

    for (place, step) in steps.iter().enumerate() {
        let (at_kernel, at_reactor, left) = start(false, step);
        let deleted: &[&str] = if place > 1 { &["delete"] } else { &[] };
        assert_eq!(at_kernel, until(&steps, place + 1, deleted), "{step}");
        let queues = match *step {
            "start" => until(&FETCHED, 2, &ENDED),
            _ => Vec::new(),
        };
        assert_eq!((at_reactor, left), (queues, 0), "{step}");
    }
    for (step, ended) in [
        ("fetch 0", &["end 1"][..]),
        ("fetch 1", &["end 0"]),
        ("answer 0", &ENDED),
        ("answer 1", &ENDED),
    ] {
        let (at_kernel, at_reactor, left) = start(false, step);
        assert_eq!(at_kernel, until(&steps, 6, &["delete"]), "{step}");
        assert_eq!((at_reactor, left), (until(&FETCHED, 2, ended), 0), "{step}");
    }
}

#[test]
fn each_step_of_a_take_over_fails_once_and_the_device_is_not_deleted() {
    let steps = [
        "features",
        "start recovery",
        "params",
        "open",
        "map 0",
        "map 1",
        "end recovery",
    ];
    let whole = (until(&steps, 7, &[]), until(&FETCHED, 2, &[]), 2);
    assert_eq!(start(true, ""), whole);

    for (place, step) in steps.iter().enumerate() {
        let (at_kernel, at_reactor, left) = start(true, step);
        assert_eq!(at_kernel, until(&steps, place + 1, &[]), "{step}");
        // The kernel takes no fetch back: what was fetched ends with the process, or the device.
        let queues = match *step {
            "end recovery" => (until(&FETCHED, 2, &[]), 2),
            _ => (Vec::new(), 0),
        };
        assert_eq!((at_reactor, left), queues, "{step}");
    }
    for (step, left) in [
        ("fetch 0", 1),
        ("fetch 1", 1),
        ("answer 0", 2),
        ("answer 1", 2),
    ] {
        let (at_kernel, at_reactor, has) = start(true, step);
        assert_eq!(at_kernel, until(&steps, 6, &[]), "{step}");
        assert_eq!((at_reactor, has), (until(&FETCHED, 2, &[]), left), "{step}");
    }
}
