//! After the opening a store allocates nothing for an operation. A program of its own, because it counts every allocation.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

use reactor::buf::{IoBuf, Lease, Mapping, Pool, PoolConfig};
use reactor::{Ring, RingConfig, Wait};
use store::{Completion, Op, OpenOptions, SharedStore, Store, StoreSpec, Terms, Token};

/// Pages of a guest's buffer of 1 MiB that begins in the middle of one.
const GUEST_PAGES: usize = 257;

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

fn run(
    ring: &Ring,
    store: &mut dyn Store,
    done: &mut Vec<Completion>,
    op: Op,
    buf: Option<IoBuf>,
) -> Option<IoBuf> {
    assert!(store.submit(op, buf, Token(1), Terms::default()).is_ok());
    loop {
        store.poll(done);
        if let Some(done) = done.pop() {
            assert!(done.result.is_ok());
            return done.buf;
        }
        ring.turn(Wait::Block { until: None }).unwrap();
    }
}

fn rounds_without_allocations(shared: &SharedStore) {
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let pool = Pool::new(&ring, &PoolConfig::default()).unwrap();
    let mut store = shared.open_handle(&ring).unwrap();
    let mut done = Vec::with_capacity(16);
    let guest = Rc::new(Mapping::new(GUEST_PAGES * 8192).unwrap());
    let keeper = Lease::new(guest.clone(), guest.region());
    let pages: Vec<(NonNull<u8>, u32)> = (0..GUEST_PAGES)
        .map(|page| match page {
            // 1 MiB from the middle of a page to the middle of another.
            0 => (guest.at(2048).unwrap(), 2048),
            last if last + 1 == GUEST_PAGES => (guest.at(last * 8192).unwrap(), 2048),
            page => (guest.at(page * 8192).unwrap(), 4096),
        })
        .collect();
    let mut round = || {
        // Aligned, then with edges that bounce, then without a buffer.
        for (offset, len) in [(4096, 64 << 10), (777, 10_000), (0, 2 << 20)] {
            let buf = pool.alloc(len);
            let buf = run(
                &ring,
                &mut *store,
                &mut done,
                Op::Write {
                    offset,
                    durable: false,
                },
                buf,
            );
            run(&ring, &mut *store, &mut done, Op::Read { offset }, buf);
        }
        run(&ring, &mut *store, &mut done, Op::Flush, None);
        run(
            &ring,
            &mut *store,
            &mut done,
            Op::Zero {
                offset: 100,
                len: 9000,
                durable: false,
            },
            None,
        );
        drop(store.lease(0, 4096));
        // A guest's pages: aligned to sectors, then at an odd place, through bounce buffers.
        for offset in [1 << 20, 777] {
            // SAFETY: every page is inside the mapping, which the keeper holds.
            let buf = unsafe { IoBuf::guest(&keeper, &pages) };
            assert_eq!(buf.segments().len(), GUEST_PAGES);
            let write = Op::Write {
                offset,
                durable: false,
            };
            let buf = run(&ring, &mut *store, &mut done, write, Some(buf));
            run(&ring, &mut *store, &mut done, Op::Read { offset }, buf);
        }
    };
    (0..3).for_each(|_| round());
    let before = ALLOCATIONS.with(Cell::get);
    (0..20).for_each(|_| round());
    assert_eq!(
        ALLOCATIONS.with(Cell::get) - before,
        0,
        "{}: {}",
        shared.name(),
        shared.describe()
    );
}

#[test]
fn operations_allocate_nothing() {
    let path = std::env::temp_dir().join(format!("store-allocations-{}", std::process::id()));
    std::fs::File::create_new(&path)
        .unwrap()
        .set_len(4 << 20)
        .unwrap();
    let file = StoreSpec::File { path: path.clone() };
    for (spec, options) in [
        (StoreSpec::Mem { bytes: 4 << 20 }, OpenOptions::read_write()),
        (
            StoreSpec::Null { bytes: 4 << 20 },
            OpenOptions::read_write(),
        ),
        (file.clone(), OpenOptions::read_write()),
        (file, OpenOptions::read_write().page_cache()),
    ] {
        rounds_without_allocations(&SharedStore::open(&spec, options).unwrap());
    }
    std::fs::remove_file(path).unwrap();
}
