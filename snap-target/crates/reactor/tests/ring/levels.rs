//! The kernels a test runs as: all that this one has, each feature masked in turn, and the level of Linux 5.15.

use std::time::{Duration, Instant};

use reactor::{Event, Features, Owner, Ring, RingConfig, Wait};

/// Longer than anything here takes; a test that waits this long has lost an event.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `test` once a level. `config` is what the test changes of the defaults.
pub fn at_each_level(config: &RingConfig, test: impl Fn(&Ring)) {
    let mut masks = vec![Features::NONE, Features::ALL];
    masks.extend(Features::ALL.iter());
    for mask in masks {
        let ring = Ring::new(&config.clone().mask(mask)).unwrap();
        assert_eq!(
            ring.features() & mask,
            Features::NONE,
            "masked features are not used"
        );
        println!("with {}", ring.features());
        test(&ring);
    }
}

/// The owner's next event, however many turns it takes.
pub fn next(owner: &Owner) -> Event {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(event) = owner.next_event() {
            return event;
        }
        assert!(Instant::now() < deadline, "no event came");
        owner
            .ring()
            .turn(Wait::Block {
                until: Some(deadline),
            })
            .unwrap();
    }
}

/// Turns until nothing more comes at once.
pub fn settle(ring: &Ring) {
    for _ in 0..3 {
        ring.turn(Wait::Poll).unwrap();
    }
}
