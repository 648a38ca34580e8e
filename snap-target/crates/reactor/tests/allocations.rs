//! After start-up the loop allocates nothing. A program of its own, because it counts every allocation.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use reactor::buf::{Pool, PoolConfig};
use reactor::{
    Event, Fd, Features, Owner, Payload, Ring, RingConfig, SendBatch, Wait, WriteMode, channel,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: hands everything to the system's allocator; counting touches a thread-local cell without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn next(owner: &Owner) -> Event {
    loop {
        if let Some(event) = owner.next_event() {
            return event;
        }
        owner.ring().turn(Wait::Block { until: None }).unwrap();
    }
}

#[test]
fn a_round_of_everything_allocates_nothing() {
    for mask in [Features::NONE, Features::ALL] {
        let ring = Ring::new(&RingConfig::default().mask(mask)).unwrap();
        let owner = ring.register().unwrap();
        let pool = Pool::new(&ring, &PoolConfig::default()).unwrap();
        let (sender, receiver) = channel::<u64>(&ring, 4);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Fd::from(ours);
        let path = std::env::temp_dir().join(format!("reactor-allocations-{}", std::process::id()));
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        let file = Fd::from(file);
        let mut batch = Some(SendBatch::new(256, 16));
        let mut armed = false;
        let mut round = || {
            // A request comes in ...
            if !armed {
                owner.recv(&ours, 1).unwrap();
            }
            theirs.write_all(&[1; 72]).unwrap();
            let event = next(&owner);
            armed = event.more;
            assert_eq!(event.result, Ok(72));
            drop(event);
            // ... is written to a file, read back, and sent with a header ...
            let buf = pool.alloc(4096).unwrap();
            owner.write_at(&file, 0, buf, WriteMode::Cached, 2).unwrap();
            let Payload::Buf(buf) = next(&owner).payload else {
                panic!("no buffer")
            };
            owner.read_at(&file, 0, buf, 3).unwrap();
            let Payload::Buf(buf) = next(&owner).payload else {
                panic!("no buffer")
            };
            let mut out = batch.take().unwrap();
            out.clear();
            assert!(
                out.push_bytes(&[2; 24])
                    && out.push_payload(&buf, 0..2048)
                    && out.push_payload(&buf, 2048..4096)
            );
            owner.send(&ours, out, 4).unwrap();
            let Payload::Sent(out) = next(&owner).payload else {
                panic!("no batch")
            };
            batch = Some(out);
            let mut got = [0; 24 + 4096];
            theirs.read_exact(&mut got).unwrap();
            // ... with a timer, a message and a cancelled operation in between.
            owner.timer(Instant::now(), 5).unwrap();
            assert!(matches!(next(&owner).payload, Payload::Timer));
            sender.send_via(&ring, 7).unwrap();
            assert_eq!(receiver.try_recv(), Some(7));
            let op = owner.poll(&file, 0, 6).unwrap();
            ring.cancel(op);
            assert_eq!(next(&owner).tag, 6);
        };
        (0..3).for_each(|_| round());
        let before = ALLOCATIONS.with(Cell::get);
        (0..200).for_each(|_| round());
        assert_eq!(
            ALLOCATIONS.with(Cell::get) - before,
            0,
            "with {}",
            ring.features()
        );
    }
}
