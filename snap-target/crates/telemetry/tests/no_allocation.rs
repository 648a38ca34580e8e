//! Counting a command and keeping an event allocate nothing: counted by the allocator itself.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use telemetry::{CommandKind, Ended, Event, EventKind, Telemetry, TelemetryConfig};

struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

// SAFETY: every call goes on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn counting_allocates_nothing() {
    let telemetry = Telemetry::new(&TelemetryConfig::default());
    let reactor = telemetry.reactor(0).unwrap();
    let row = reactor.host("nqn.s", "nqn.h", 1, [7; 16]);
    let namespace = reactor.namespace([1; 16], "file:/a");
    let decoder = namespace.decoder("u16+lz4");
    let read = |ns| Ended {
        kind: CommandKind::Read,
        error: None,
        bytes: 4096,
        ns,
        at_ns: 1,
    };
    // The first time of a row takes the memory of all.
    row.begun();
    row.ended(&read(1));
    let before = ALLOCATIONS.get();
    assert!(before > 0, "the allocator counts");
    // More events than the recorder keeps.
    for ns in 0..5_000 {
        row.begun();
        row.ended(&read(ns * 1_000));
        namespace.delivered_bytes.add(4096);
        decoder.decoded(65_536, ns);
        reactor.record(ns, &Event::new(EventKind::SlowCommand));
    }
    assert_eq!(ALLOCATIONS.get(), before);
    // Found again, by its name.
    let again = reactor.host("nqn.s", "nqn.h", 1, [7; 16]);
    assert_eq!(ALLOCATIONS.get(), before);
    assert_eq!(again.nsid, 1);
}
