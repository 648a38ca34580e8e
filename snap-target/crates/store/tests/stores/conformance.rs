//! Every kind of store, and every decorator, against the suite.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::scratch::Scratch;
use crate::threaded::Threaded;
use reactor::buf::{IoBuf, Mapping};
use reactor::{Ring, RingConfig};
use store::conformance::{Subject, run, run_read_only};
use store::decorate::{Delay, Fault, Faulty, Limit, On, What, When};
use store::{Op, OpenOptions, SharedStore, StoreSpec, Terms, Token};

const BYTES: u64 = 4 << 20;

fn open(spec: &str, options: OpenOptions) -> SharedStore {
    SharedStore::open(&StoreSpec::parse(spec).unwrap(), options).unwrap()
}

#[test]
fn mem() {
    run(
        &Subject::new(|| open("mem:4MiB", OpenOptions::read_write()))
            .read_only(|| open("mem:4MiB", OpenOptions::read_only())),
    );
}

#[test]
fn mem_of_an_odd_size() {
    run(&Subject::new(|| {
        open("mem:3000001", OpenOptions::read_write())
    }));
}

#[test]
fn null() {
    let subject = Subject::new(|| open("null:1TiB", OpenOptions::read_write())).forgets();
    run(&subject.read_only(|| open("null:1TiB", OpenOptions::read_only())));
}

/// Where memory is ours it has zeros.
#[test]
fn void() {
    let subject = Subject::new(|| open("void:1TiB", OpenOptions::read_write())).forgets();
    run(&subject.read_only(|| open("void:1TiB", OpenOptions::read_only())));
}

/// A file of fresh zeros for each opening.
fn file_suite(scratch: &Scratch, bytes: u64, options: OpenOptions, read_only: OpenOptions) {
    let fresh = |options| {
        scratch.resize(0);
        scratch.resize(bytes);
        open(&scratch.spec(), options)
    };
    run(&Subject::new(|| fresh(options)).read_only(|| fresh(read_only)));
}

#[test]
fn file_direct() {
    let scratch = Scratch::on_disk();
    let store = scratch.filled(BYTES, OpenOptions::read_write());
    println!("{}", store.describe());
    file_suite(
        &scratch,
        BYTES,
        OpenOptions::read_write(),
        OpenOptions::read_only(),
    );
}

#[test]
fn file_through_the_page_cache() {
    let scratch = Scratch::on_disk();
    file_suite(
        &scratch,
        BYTES,
        OpenOptions::read_write().page_cache(),
        OpenOptions::read_only().page_cache(),
    );
}

#[test]
fn file_of_an_odd_size() {
    let scratch = Scratch::on_disk();
    let store = scratch.filled(BYTES + 333, OpenOptions::read_write());
    assert!(
        store.describe().contains("page cache"),
        "{}",
        store.describe()
    );
    file_suite(
        &scratch,
        BYTES + 333,
        OpenOptions::read_write(),
        OpenOptions::read_only(),
    );
}

#[test]
fn file_in_memory_backed_file_system() {
    let Some(scratch) = Scratch::in_memory() else {
        println!("skipped: /dev/shm is not there");
        return;
    };
    file_suite(
        &scratch,
        BYTES,
        OpenOptions::read_write(),
        OpenOptions::read_only(),
    );
}

#[test]
fn threaded() {
    let zeros = vec![0; 2 << 20];
    let last = RefCell::new(None);
    let open = || {
        let threaded = Threaded::holding(&zeros, true);
        last.replace(Some(threaded.clone()));
        threaded.store()
    };
    let power_loss = |_store| last.borrow().as_ref().unwrap().after_power_loss();
    run(&Subject::new(open)
        .read_only(|| Threaded::holding(&zeros, false).store())
        .crashes(power_loss));
}

#[test]
fn read_only_with_content_that_is_given() {
    let content: Vec<u8> = (0..3_000_001u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0])
        .collect();
    run_read_only(|| Threaded::holding(&content, false).store(), &content);
    let scratch = Scratch::on_disk();
    std::io::Write::write_all(&mut scratch.file(), &content).unwrap();
    for options in [
        OpenOptions::read_only(),
        OpenOptions::read_only().page_cache(),
    ] {
        run_read_only(|| open(&scratch.spec(), options), &content);
    }
}

#[test]
fn delayed() {
    let delay = Delay {
        read: Duration::from_micros(50),
        change: Duration::from_micros(200),
        flush: Duration::from_micros(10),
    };
    run(&Subject::new(|| {
        delay
            .over(open("mem:4MiB", OpenOptions::read_write()))
            .unwrap()
    })
    .stalled(|| {
        let minute = Duration::from_secs(60);
        let stalled = Delay {
            read: minute,
            change: minute,
            flush: minute,
        };
        stalled
            .over(open("mem:4MiB", OpenOptions::read_write()))
            .unwrap()
    }));
    let scratch = Scratch::on_disk();
    run(&Subject::new(|| {
        scratch.resize(0);
        delay
            .over(scratch.filled(BYTES, OpenOptions::read_write()))
            .unwrap()
    }));
}

#[test]
fn limited() {
    let limited = |limit: &str, options| {
        let limit: Limit = limit.parse().unwrap();
        limit.over(vec![open("mem:4MiB", options)]).pop().unwrap()
    };
    run(
        &Subject::new(|| limited("1GB/s,burst=1MiB,latency=50us", OpenOptions::read_write()))
            .stalled(|| limited("1MiB/s,latency=10s", OpenOptions::read_write())),
    );
}

#[test]
fn faulty_without_a_fault_that_strikes() {
    // Faults that never come due leave a store that keeps every promise.
    let never = |on, what| Fault {
        on,
        range: 0..BYTES,
        when: When::Nth(u64::MAX),
        what,
    };
    let faults = || {
        vec![
            never(On::Read, What::Corrupt { offset: 5, bits: 1 }),
            never(On::Read, What::Short { missing: 1 }),
            never(On::Write, What::Stale),
            never(On::Flush, What::Error(nix::errno::Errno::EIO)),
        ]
    };
    run(&Subject::new(|| {
        Faulty::over(faults(), open("mem:4MiB", OpenOptions::read_write()))
            .unwrap()
            .store()
    }));
}

/// A guest's memory stays as it is, whichever way it is read into; ours, which may hold what others have left, has zeros.
#[test]
fn a_void_leaves_a_guests_memory() {
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let store = open("void:1MiB", OpenOptions::read_write());
    let mut handle = store.open_handle(&ring).unwrap();
    let memory = Rc::new(Mapping::new(4096).unwrap());
    for is_guests in [true, false] {
        let mut buf = match is_guests {
            true => IoBuf::guest_in(&memory, &[(0, 2048), (2048, 2048)]).unwrap(),
            false => IoBuf::heap(4096).unwrap(),
        };
        buf.fill(0, 4096, 7);
        let read = Op::Read { offset: 4096 };
        let carried = handle.carry_out(read, &buf).map(Result::unwrap);
        assert_eq!(carried, Some(4096));
        let is_left = vec![if is_guests { 7 } else { 0 }; 4096];
        assert_eq!(buf.to_vec(), is_left);
        buf.fill(0, 4096, 7);
        handle
            .submit(read, Some(buf), Token(1), Terms::default())
            .unwrap();
        let mut done = Vec::new();
        handle.poll(&mut done);
        let came = done.remove(0).buf.unwrap().to_vec();
        assert_eq!(came, is_left);
    }
}
