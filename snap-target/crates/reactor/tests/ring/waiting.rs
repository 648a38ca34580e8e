//! Timers, sleeping, waking, messages; at each feature level.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crate::levels::{PATIENCE, at_each_level, next, settle};
use reactor::{Features, Full, Payload, Ring, RingConfig, Sender, Wait, channel};

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(5)
}

#[test]
fn timers_fire_in_order_and_never_early() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        owner.timer(at(9), 9).unwrap();
        owner.timer(at(3), 3).unwrap();
        let cancelled = owner.timer(at(4), 4).unwrap();
        owner.timer(at(6), 6).unwrap();
        owner.timer(start, 0).unwrap();
        assert!(ring.cancel_timer(cancelled));
        assert!(!ring.cancel_timer(cancelled), "once");
        for ms in [0, 3, 6, 9] {
            let event = next(&owner);
            assert!(Instant::now() >= at(ms), "not early");
            assert_eq!(event.tag, ms);
            assert!(matches!(event.payload, Payload::Timer));
        }
        assert_eq!(ring.stats().timers, 4);
    });
}

#[test]
fn a_turn_ends_when_told() {
    at_each_level(&RingConfig::default(), |ring| {
        let until = soon();
        let turn = ring.turn(Wait::Block { until: Some(until) }).unwrap();
        assert!(Instant::now() >= until);
        assert_eq!((turn.events, turn.notified), (0, false));
        let turn = ring.turn(Wait::Poll).unwrap();
        assert!(!turn.blocked);
    });
}

#[test]
fn a_turn_does_not_wait_while_an_inbox_holds_something() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        owner.timer(Instant::now(), 1).unwrap();
        ring.turn(Wait::Block { until: None }).unwrap();
        assert_eq!(ring.next_ready(), Some(owner.id()));
        // Not drained: this must come back, although nothing else will ever happen.
        let until = Some(Instant::now() + PATIENCE);
        let turn = ring.turn(Wait::Block { until }).unwrap();
        assert!(!turn.blocked);
        assert_eq!(owner.next_event().unwrap().tag, 1);
        assert!(ring.next_ready().is_none());
    });
}

#[test]
fn idle_with_a_far_timer_sleeps_once() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        owner.recv(&ours.into(), 1).unwrap();
        owner
            .timer(Instant::now() + Duration::from_secs(3600), 2)
            .unwrap();
        settle(ring);
        let before = ring.stats();
        let start = Instant::now();
        let until = start + Duration::from_millis(50);
        while Instant::now() < until {
            ring.turn(Wait::Block { until: Some(until) }).unwrap();
        }
        let after = ring.stats();
        assert_eq!(after.completions, before.completions, "nothing happened");
        // One sleep to the end; the kernel's clock may end it a little early, once.
        assert!(after.blocks - before.blocks <= 2, "{before:?} {after:?}");
        assert!(after.enters - before.enters <= 2, "{before:?} {after:?}");
        assert!(after.spins - before.spins <= 1, "{before:?} {after:?}");
        // Nearly all of the 50 ms, on a machine that may be busy with others.
        let slept = Duration::from_nanos(after.slept_ns - before.slept_ns);
        assert!(slept >= Duration::from_millis(25), "{before:?} {after:?}");
        assert!(slept <= start.elapsed(), "{before:?} {after:?}");
    });
}

#[test]
fn a_spin_time_of_zero_sleeps_at_once() {
    let config = RingConfig {
        spin: Duration::ZERO,
        ..RingConfig::default()
    };
    at_each_level(&config, |ring| {
        ring.turn(Wait::Block {
            until: Some(soon()),
        })
        .unwrap();
        assert_eq!(ring.stats().spins, 0);
        assert!(ring.stats().blocks >= 1);
    });
}

#[test]
fn wakes_from_another_thread_asleep_or_awake() {
    at_each_level(
        &RingConfig {
            spin: Duration::ZERO,
            ..RingConfig::default()
        },
        |ring| {
            // Awake: the next turn tells, and any number of calls count as one.
            let waker = ring.waker();
            waker.wake();
            waker.wake();
            assert!(ring.turn(Wait::Block { until: None }).unwrap().notified);
            assert!(!ring.turn(Wait::Poll).unwrap().notified);
            // Asleep, many times over: each must end the sleep.
            let rounds = 200;
            let seen = Arc::new(AtomicU64::new(0));
            let other = thread::spawn({
                let (waker, seen) = (ring.waker(), seen.clone());
                move || {
                    for round in 0..rounds {
                        waker.wake();
                        while seen.load(Ordering::Acquire) <= round {
                            thread::yield_now();
                        }
                    }
                }
            });
            let deadline = Instant::now() + PATIENCE;
            for _ in 0..rounds {
                while !ring
                    .turn(Wait::Block {
                        until: Some(deadline),
                    })
                    .unwrap()
                    .notified
                {
                    assert!(Instant::now() < deadline, "a wake-up was lost");
                }
                seen.fetch_add(1, Ordering::Release);
            }
            other.join().unwrap();
        },
    );
}

#[test]
fn a_waker_may_outlive_its_ring() {
    at_each_level(&RingConfig::default(), |ring| {
        let (waker, sender, receiver) = {
            let gone = Ring::new(&RingConfig::default()).unwrap();
            let (sender, receiver) = channel::<u32>(&gone, 4);
            (gone.waker(), sender, receiver)
        };
        waker.wake();
        sender.send(1).unwrap();
        sender.send_via(ring, 2).unwrap();
        settle(ring);
        assert_eq!(
            (receiver.try_recv(), receiver.try_recv()),
            (Some(1), Some(2))
        );
    });
}

#[test]
fn a_full_channel_gives_the_message_back() {
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let (sender, receiver) = channel(&ring, 2);
    sender.send("a").unwrap();
    sender.send_via(&ring, "b").unwrap();
    assert_eq!(sender.send("c"), Err(Full("c")));
    assert!(ring.turn(Wait::Block { until: None }).unwrap().notified);
    assert_eq!(receiver.try_recv(), Some("a"));
    sender.send("c").unwrap();
    assert_eq!(
        (
            receiver.try_recv(),
            receiver.try_recv(),
            receiver.try_recv()
        ),
        (Some("b"), Some("c"), None)
    );
    assert!(receiver.is_empty());
}

/// Two reactors throw a ball to each other; both sleep between throws. A lost wake-up stops the game.
fn rally(mask: Features, by_ring: bool) {
    const THROWS: u64 = 2000;
    let (first_out, first_in) = std::sync::mpsc::channel::<Sender<u64>>();
    let (second_out, second_in) = std::sync::mpsc::channel::<Sender<u64>>();
    let barrier = Arc::new(Barrier::new(2));
    let player = |mine: std::sync::mpsc::Sender<Sender<u64>>,
                  theirs: std::sync::mpsc::Receiver<Sender<u64>>,
                  serves: bool| {
        let barrier = barrier.clone();
        thread::spawn(move || {
            let config = RingConfig {
                spin: Duration::ZERO,
                ..RingConfig::default()
            };
            let ring = Ring::new(&config.mask(mask)).unwrap();
            let (sender, receiver) = channel(&ring, 1);
            mine.send(sender).unwrap();
            let other = theirs.recv().unwrap();
            let throw = |ball: u64| {
                if by_ring {
                    other.send_via(&ring, ball)
                } else {
                    other.send(ball)
                }
                .unwrap()
            };
            if serves {
                throw(1);
            }
            let deadline = Instant::now() + PATIENCE;
            let mut last = 0;
            while last + 1 < THROWS {
                assert!(Instant::now() < deadline, "a message was lost at {last}");
                ring.turn(Wait::Block {
                    until: Some(deadline),
                })
                .unwrap();
                while let Some(ball) = receiver.try_recv() {
                    assert!(ball == last + 2 || last == 0, "each message once, in order");
                    last = ball;
                    if ball < THROWS {
                        throw(ball + 1);
                    }
                }
            }
            // A throw through the ring leaves with the next turn.
            ring.turn(Wait::Poll).unwrap();
            barrier.wait();
            last
        })
    };
    let first = player(first_out, second_in, true);
    let second = player(second_out, first_in, false);
    let ends = [first.join().unwrap(), second.join().unwrap()];
    assert_eq!(ends.iter().max(), Some(&THROWS));
}

#[test]
fn messages_between_sleeping_reactors_are_never_lost() {
    for mask in [
        Features::NONE,
        Features::MSG_RING,
        Features::DEFER_TASKRUN,
        Features::ALL,
    ] {
        rally(mask, true);
    }
    rally(Features::NONE, false);
}
