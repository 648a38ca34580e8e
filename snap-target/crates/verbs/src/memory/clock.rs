//! A thread that lets the fabric's clock follow the real one.

use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::{Shared, ns};

/// How long it sleeps at most: then it sees whether the fabric is still wanted.
const NAP_MAX: Duration = Duration::from_millis(50);

pub(super) fn run(shared: &Arc<Shared>) -> std::io::Result<()> {
    let shared = Arc::downgrade(shared);
    std::thread::Builder::new()
        .name("verbs-fabric".to_owned())
        .spawn(move || follow(&shared))?;
    Ok(())
}

fn follow(shared: &Weak<Shared>) {
    let start = Instant::now();
    while let Some(shared) = shared.upgrade() {
        let mut world = shared.world.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = ns(start.elapsed());
        while world.step(Some(now_ns)) {}
        world.now_ns = now_ns;
        let nap = world.next_ns().map_or(NAP_MAX, |next_ns| {
            Duration::from_nanos(next_ns.saturating_sub(now_ns)).min(NAP_MAX)
        });
        let awake = shared.changed.wait_timeout(world, nap);
        drop(awake.unwrap_or_else(PoisonError::into_inner));
    }
}
