//! What a host is told of a subsystem's life is saved before it is told.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nvme::controller::{ControllerCounters, ControllerLimits, HostPolicy, Lifetime};
use nvme::nqn::Nqn;

use super::{On, Queue, Target, memory};
use crate::{Life, LifeKeeper, LifeSaved, subsystem};

const KEPT: &str = "nqn.2026-11.io.example:kept";
const HOST: &str = "nqn.2026-11.io.example:host";

const SMART: u8 = 0x02;
const ERROR_INFORMATION: u8 = 0x01;

/// Hands what it is asked to save to the test, which says how that ends.
#[derive(Debug)]
struct Asked(Mutex<SyncSender<Save>>);

type Save = (Lifetime, LifeSaved);

impl LifeKeeper for Asked {
    fn save(&self, lifetime: Lifetime, saved: LifeSaved) {
        let asked = self.0.lock().unwrap();
        asked.send((lifetime, saved)).ok().unwrap();
    }
}

fn before() -> Lifetime {
    Lifetime {
        power_cycles: 7,
        unsafe_shutdowns: 3,
        powered: Duration::from_secs(5 * 3600),
        counters: ControllerCounters {
            read_commands: 1000,
            error_log_entries: 20,
            ..ControllerCounters::default()
        },
    }
}

/// A target with a subsystem that has lived before, and what its keeper is asked.
fn living(on: &On) -> (Target, Receiver<Save>) {
    let target = Target::start(on, memory());
    let (ask, asked) = sync_channel(16);
    let life = Life {
        lifetime: before(),
        keeper: Some(Arc::new(Asked(Mutex::new(ask)))),
    };
    create(&target, life);
    (target, asked)
}

fn create(target: &Target, life: Life) {
    let kept = subsystem(nqn(), HostPolicy::Any, ControllerLimits::default());
    target.admin().create_subsystem(kept, life).unwrap();
}

fn nqn() -> Nqn {
    Nqn::parse(KEPT).unwrap()
}

/// Host reads, power cycles, power on hours, unsafe shutdowns, error log entries.
fn shown(smart: &[u8]) -> [u64; 5] {
    [64, 112, 128, 144, 176].map(|at| u64::from_le_bytes(smart[at..at + 8].try_into().unwrap()))
}

/// An admin command that fails, and counts as an error.
fn fail(admin: &mut Queue) {
    assert_ne!(admin.plain(0xC1, 0, [0, 0, 0]).status, 0);
}

pub(super) fn a_host_is_told_of_its_counters_when_they_are_saved(on: &On) {
    let (target, asked) = living(on);
    let mut admin = Queue::admin_of(&target.place, KEPT, HOST);
    for (page, errors) in [(SMART, 21), (ERROR_INFORMATION, 22)] {
        fail(&mut admin);
        admin.send_log_page(page, 512);
        let (saving, saved) = asked.recv().unwrap();
        assert_eq!(saving.counters.error_log_entries, errors);
        assert_eq!(saving.counters.read_commands, 1000);
        assert_eq!((saving.power_cycles, saving.unsafe_shutdowns), (7, 3));
        // What came later is answered, so the log is held back.
        assert_eq!(admin.csts(), 1);
        saved(true);
        let log = admin.take_log_page();
        match page {
            SMART => assert_eq!(shown(&log), [1000, 7, 5, 3, errors]),
            _ => assert_eq!(log[..8], errors.to_le_bytes(), "Error Count"),
        }
    }
    // Nothing new can be seen: nothing is saved.
    assert_eq!(shown(&admin.log_page(SMART, 512)), [1000, 7, 5, 3, 22]);
    assert!(asked.try_recv().is_err());
}

pub(super) fn a_keeper_that_fails_holds_no_answer_back_and_is_asked_again(on: &On) {
    let (target, asked) = living(on);
    let mut admin = Queue::admin_of(&target.place, KEPT, HOST);
    for _ in 0..3 {
        admin.send_log_page(SMART, 512);
        let (_, saved) = asked.recv().unwrap();
        saved(false);
        assert_eq!(shown(&admin.take_log_page()), [1000, 7, 5, 3, 20]);
    }
}

pub(super) fn a_keeper_that_is_silent_holds_an_answer_back_for_a_moment(on: &On) {
    let (target, asked) = living(on);
    let mut admin = Queue::admin_of(&target.place, KEPT, HOST);
    let start = Instant::now();
    let log = admin.log_page(SMART, 512);
    assert_eq!(shown(&log), [1000, 7, 5, 3, 20]);
    assert!(start.elapsed() >= Duration::from_secs(2));
    let (_, late) = asked.recv().unwrap();
    late(true);
    // A host that has left is answered by nobody, and the next one is.
    admin.send_log_page(SMART, 512);
    let (_, saved) = asked.recv().unwrap();
    drop(admin);
    saved(true);
    let mut admin = Queue::admin_of(&target.place, KEPT, HOST);
    assert_eq!(shown(&admin.log_page(SMART, 512)), [1000, 7, 5, 3, 20]);
}

pub(super) fn lives_are_told_to_the_operator_and_end_with_their_subsystem(on: &On) {
    let (target, _asked) = living(on);
    let of_kept = || {
        let all = target.admin().lifetimes().unwrap();
        let found = all.into_iter().find(|(name, _)| *name == nqn());
        found.map(|(_, life)| life)
    };
    let mut admin = Queue::admin_of(&target.place, KEPT, HOST);
    fail(&mut admin);
    let life = of_kept().unwrap();
    assert_eq!(life.counters.error_log_entries, 21);
    assert!(life.powered > before().powered);
    target.admin().delete_subsystem(&nqn()).unwrap();
    assert_eq!(of_kept(), None);
    create(&target, Life::default());
    let again = of_kept().unwrap();
    assert_eq!(again.counters, ControllerCounters::default());
    assert_eq!((again.power_cycles, again.unsafe_shutdowns), (1, 0));
    let mut admin = Queue::admin_of(&target.place, KEPT, HOST);
    assert_eq!(shown(&admin.log_page(SMART, 512)), [0, 1, 0, 0, 0]);
}
