//! The ghost write, on real connections: a write is delayed on a path that its sender has lost, a newer one goes over another path, and then
//! the first path heals. (`store-nvme`'s test `fabric` has it in simulation, over thousands of seeds.)

use std::time::{Duration, Instant};

use initiator::{Initiator, Options};

use crate::proxy::Proxy;
use crate::remote::{patient, url};
use crate::target::Target;

/// 1 s to the keep-alive's end, 1 s quiesce time of our own target, 1 s for what the network holds.
const TIMES: &str = "kato=1s&timeout=1s&margin=1s";
const DEAD_AFTER: Duration = Duration::from_secs(3);

/// A daemon whose store is another one's memory, over two ways.
struct Remote {
    far: Target,
    near: Target,
    one: Proxy,
    _two: Proxy,
}

impl Remote {
    fn start(times: &str) -> Remote {
        let far = Target::start(&["mem:1MiB"]);
        let (one, two) = (Proxy::before(&far.address), Proxy::before(&far.address));
        let both = format!("{},{}", one.address, two.address);
        Remote {
            near: Target::start(&[&format!("{}&{times}", url(&both, 1))]),
            far,
            one,
            _two: two,
        }
    }
}

/// What a write of `value` over `held` met, whichever of both paths its turn was.
struct Delayed {
    value: u8,
    took: Duration,
}

/// Writes until one is held on its way; `when_lost` happens when its sender has lost that path.
fn delay_one(host: &mut Initiator, held: &Proxy, when_lost: impl Fn(u8)) -> Delayed {
    wait_for_writes_over(host, held);
    held.hold();
    for value in 2.. {
        let began = Instant::now();
        let was_held = std::thread::scope(|scope| {
            let write = scope.spawn(|| host.write(1, 0, &[value; 4096]).unwrap());
            while !held.holds(&[value; 4096]) {
                if write.is_finished() {
                    return false;
                }
                std::thread::yield_now();
            }
            held.cut_from_host();
            when_lost(value);
            true
        });
        if was_held {
            let took = began.elapsed();
            return Delayed { value, took };
        }
    }
    unreachable!("every second write goes over each path")
}

/// The daemon is ready with its first path; the other one may come up later.
fn wait_for_writes_over(host: &mut Initiator, path: &Proxy) {
    let asked = Instant::now();
    loop {
        let before = path.carried();
        host.write(1, 0, &[1; 4096]).unwrap();
        if path.carried() >= before + 4096 {
            return;
        }
        let waited = asked.elapsed();
        assert!(waited < Duration::from_secs(20), "it does not come up");
    }
}

fn block(host: &mut Initiator) -> [u8; 4096] {
    let mut block = [0; 4096];
    host.read(1, 0, &mut block).unwrap();
    block
}

#[test]
fn a_write_that_a_cut_path_delays_does_not_land_on_a_newer_one() {
    let Remote { far, near, one, .. } = Remote::start(TIMES);
    let mut host = near.host(&patient());
    let delayed = delay_one(&mut host, &one, |_| ());
    // It was sent again over the other path, and only when the controller that may still get it was dead.
    assert!(delayed.took >= DEAD_AFTER, "{:?}", delayed.took);
    let mut there = far.host(&Options::default());
    assert_eq!(block(&mut there), [delayed.value; 4096]);
    host.write(1, 0, &[0xEE; 4096]).unwrap();
    one.release();
    assert_eq!(block(&mut there), [0xEE; 4096]);
    assert_eq!(block(&mut host), [0xEE; 4096]);
}

/// What the test above takes for granted: the bytes that are held are a whole write, and a path that heals in time delivers it.
#[test]
fn a_write_that_is_delayed_for_less_lands_and_nothing_newer_is_acknowledged_before() {
    // Nobody is dead for 10 s.
    let Remote { far, near, one, .. } = Remote::start("kato=8s&timeout=1s&margin=1s");
    let mut host = near.host(&patient());
    let mut there = far.host(&Options::default());
    let there = std::sync::Mutex::new(&mut there);
    let delayed = delay_one(&mut host, &one, |value| {
        let mut there = there.lock().unwrap();
        assert_ne!(block(&mut there), [value; 4096]);
        one.let_arrive();
        let began = Instant::now();
        while block(&mut there) != [value; 4096] {
            assert!(began.elapsed() < Duration::from_secs(8), "it did not land");
        }
    });
    assert!(
        delayed.took >= Duration::from_secs(10),
        "{:?}",
        delayed.took
    );
    host.write(1, 0, &[0xEE; 4096]).unwrap();
    let there = there.into_inner().unwrap();
    assert_eq!(block(there), [0xEE; 4096]);
}
