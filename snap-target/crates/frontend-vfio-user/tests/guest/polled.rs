//! Doorbells that the client maps: what is written there is carried out without a message, whatever else is written there changes nothing, and a function that
//! nobody uses sleeps.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use frontend_vfio_user::Doorbells;
use nvme_spec::{Status, U32};
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_get_seals, ftruncate};

use crate::client::Client;
use crate::driver::{DATA, Guest, Machine, command, pattern, places, set_prps, status, transfer};
use frontend_nvme::conformance::{Gate, memory};

const PATIENCE: Duration = Duration::from_secs(20);
/// Words of the page.
const WORDS: usize = 0x1000 / 4;

/// Waits until the first reactor has slept once more. It says so at the end of the turn that follows, so it is woken for it.
fn wait_asleep(machine: &Machine, mut wake: impl FnMut()) {
    let before = sleeps(machine);
    let until = Instant::now() + PATIENCE;
    while sleeps(machine) == before {
        assert!(Instant::now() < until, "a reactor does not sleep");
        wake();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How often the first reactor has slept.
fn sleeps(machine: &Machine) -> u64 {
    machine.target.telemetry.snapshot().reactors[0].sleeps
}

/// As VFIO_REGION_INFO_CAP_SPARSE_MMAP tells it; the file stays as long as it is.
#[test]
fn the_page_of_doorbells_can_be_mapped_and_not_be_made_shorter() {
    let machine = Machine::polled(memory(), 1);
    let mut guest = machine.guest();
    let (info, fds) = guest.region_info(0);
    let word = |at: usize| u32::from_le_bytes(info[at..at + 4].try_into().unwrap());
    // argsz, flags (read, write, mmap, capabilities), index, where the capability is.
    assert_eq!([0, 4, 8, 12].map(word), [64, 0xF, 0, 32]);
    assert_eq!(info[16..24], 0x4000_u64.to_le_bytes());
    // Sparse areas, version 1, the last one.
    assert_eq!([32, 36].map(word), [1 | 1 << 16, 0]);
    assert_eq!(fds.len(), 1);
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    assert_eq!(fcntl_get_seals(&fds[0]), Ok(all));
    for bytes in [0, 0x1000, 0x1FFF, 0x10_0000] {
        assert_eq!(ftruncate(&fds[0], bytes), Err(rustix::io::Errno::PERM));
    }
    // Configuration space has none.
    let (info, fds) = guest.region_info(7);
    assert_eq!((info.len(), info[4], fds.len()), (32, 3, 0));
    // A function that is not polled has nothing to map.
    let other = machine.add_function(2, Doorbells::Rung);
    let (info, fds) = Guest::new(Client::connect(&other)).region_info(0);
    assert_eq!((info.len(), info[4], fds.len()), (32, 3, 0));
    // A hole in it is zeros.
    guest.enable();
    let (_, fds) = guest.region_info(0);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&fds[0], hole, 0x1000, 0x1000).unwrap();
    guest.disable();
    guest.enable();
    guest.create_pair(1);
    guest.still_works();
}

#[test]
fn commands_that_nothing_tells_of() {
    for reactors in [1, 2] {
        let machine = Machine::polled(memory(), reactors);
        let mut guest = machine.running();
        for round in 0..200 {
            guest.works(1, round);
            let cids: Vec<u16> = (0..40)
                .map(|at| guest.submit(1, transfer(2, at % 16, 1, DATA + at * 4096, 0)))
                .collect();
            let mut came: Vec<u16> = (0..40).map(|_| guest.complete(1).cid.get()).collect();
            came.sort_unstable();
            assert_eq!(came, cids);
        }
    }
}

/// Its doorbells have one place: Doorbell Buffer Config is neither offered nor taken.
#[test]
fn doorbells_are_not_elsewhere_as_well() {
    let machine = Machine::polled(memory(), 1);
    let mut guest = machine.running();
    let mut identify = command(0x06, 0);
    set_prps(&mut identify, DATA, 0);
    identify.cdw10 = U32::new(1);
    assert_eq!(status(&guest.admin(identify)), Status::SUCCESS);
    assert_eq!(guest.get(DATA + 256, 2), [0, 0], "OACS");
    // Commands Supported and Effects.
    let mut log = command(0x02, 0);
    set_prps(&mut log, DATA, 0);
    log.cdw10 = U32::new(0x05 | 1023 << 16);
    assert_eq!(status(&guest.admin(log)), Status::SUCCESS);
    assert_eq!(guest.get(DATA + 4 * 0x05, 4), [1, 0, 0, 0]);
    assert_eq!(guest.get(DATA + 4 * 0x7C, 4), [0, 0, 0, 0]);
    let refused = guest.share_doorbells(DATA, DATA + 0x1000);
    assert_eq!(refused, Err(Status::INVALID_OPCODE));
    guest.still_works();
}

/// A queue whose number is taken: the doorbell of the one that runs stays where it was, or all that its ring has would be taken once more.
#[test]
fn a_queue_that_is_refused_leaves_the_doorbell_of_the_one_that_runs() {
    let machine = Machine::polled(memory(), 1);
    let mut guest = machine.running();
    guest.works(1, 1);
    let page = guest.page.clone().unwrap();
    // Submission Queue 1 Tail Doorbell.
    let tail = page.load32(8);
    assert_ne!(tail, 0);
    let (sq, _) = places(9);
    assert_eq!(guest.create_sq(1, 1, sq, 16), Err(Status::INVALID_QUEUE_ID));
    assert_eq!(page.load32(8), tail);
    // Completion Queue 1 Head Doorbell.
    let (head, (_, cq)) = (page.load32(12), places(9));
    assert_ne!(head, 0);
    assert_eq!(guest.create_cq(1, cq, 16), Err(Status::INVALID_QUEUE_ID));
    assert_eq!(page.load32(12), head);
    guest.works(1, 2);
}

/// A client that has mapped nothing, or that rings some and writes others.
#[test]
fn doorbells_of_a_polled_function_may_be_rung() {
    let machine = Machine::polled(memory(), 2);
    let mut guest = machine.running();
    let page = guest.page.take();
    for round in 0..100 {
        guest.works(1, round);
    }
    guest.create_pair(2);
    guest.works(2, 1);
    guest.page = page;
    guest.works(2, 2);
    guest.delete(0x00, 2).unwrap();
    guest.page = None;
    guest.delete(0x04, 2).unwrap();
    guest.works(1, 3);
}

/// Every word of the page, at once and one by one: what names no entry and no queue changes nothing, here or at another function.
#[test]
fn a_page_of_doorbells_that_means_harm() {
    let machine = Machine::polled(memory(), 2);
    let mut guest = machine.running();
    let mut other = Guest::new(Client::connect(&machine.add_function(2, Doorbells::Polled)));
    other.map_doorbells();
    other.enable();
    other.create_pair(1);
    let page = guest.page.clone().unwrap();
    for value in [64, 65, 0xFFFF, 0x1_0000, 1 << 31, u32::MAX] {
        let good: Vec<u32> = (0..WORDS).map(|at| page.load32(at * 4)).collect();
        for at in 0..WORDS {
            page.store32(at * 4, value);
        }
        other.still_works();
        assert_eq!(guest.csts(), 1);
        // Heads that pass what was given, and doorbells of queues that are not there.
        for (at, good) in good.iter().enumerate() {
            page.store32(at * 4, *good);
        }
        for at in [5, 6, 129, 130, 131, WORDS - 1] {
            page.store32(at * 4, value % 64);
        }
        guest.works(1, value.into());
    }
    // A head that goes back, where answers wait for room: they go on waiting, and come when it says so.
    let (sq, cq) = places(2);
    guest.create_cq(2, cq, 4).unwrap();
    guest.create_sq(2, 2, sq, 64).unwrap();
    for lba in 0..10 {
        guest.submit(2, transfer(2, lba, 1, DATA, 0));
    }
    guest.pairs[2].entries = 4;
    for head in [4, 63, u32::MAX] {
        page.store32(5 * 4, head);
        assert_eq!(guest.csts(), 1);
    }
    for _ in 0..10 {
        assert_eq!(status(&guest.complete(2)), Status::SUCCESS);
    }
    assert!(guest.peek(2).is_none());
    // Entries that were never written, as many as the tail says: each is refused.
    guest.create_pair(3);
    let (sq, _) = places(3);
    guest.put(sq, &[0xFF; 64 * 64]);
    page.store32(6 * 4, 63);
    for _ in 0..63 {
        assert_eq!(status(&guest.complete(3)), Status::INVALID_OPCODE);
    }
    other.still_works();
    guest.disable();
    other.still_works();
}

/// What is left of doorbells from before: nothing of it is a doorbell of what begins afterwards.
#[test]
fn stale_doorbells_tell_of_nothing() {
    let machine = Machine::polled(memory(), 2);
    let mut guest = machine.running();
    guest.put(DATA, &pattern(1, 4096));
    let written = guest.run(1, transfer(1, 0, 1, DATA, 0));
    assert_eq!(status(&written), Status::SUCCESS);
    guest.put(DATA, &[0xEE; 4096]);
    let page = guest.page.clone().unwrap();
    for round in 0..20 {
        // The queue is full of commands that write.
        let (sq, _) = places(1);
        for entry in 0..64 {
            let write = transfer(1, 0, 1, DATA, 0);
            guest.put(sq + entry * 64, zerocopy::IntoBytes::as_bytes(&write));
        }
        if round % 2 == 0 {
            guest.disable();
            assert_eq!(page.load32(8), 0, "a reset is as power-on");
            // Before the controller is there, and before its queues are.
            (0..WORDS).for_each(|at| page.store32(at * 4, 7));
            guest.enable();
            (2..WORDS).for_each(|at| page.store32(at * 4, 9));
        } else {
            guest.delete(0x00, 1).unwrap();
            (2..WORDS).for_each(|at| page.store32(at * 4, 11));
            guest.delete(0x04, 1).unwrap();
        }
        guest.create_pair(1);
        assert_eq!([page.load32(8), page.load32(12)], [0, 0]);
        // A command behind which all that was wrongly taken would have been answered.
        let read = guest.run(1, transfer(2, 0, 1, DATA + 0x1000, 0));
        assert_eq!((status(&read), read.sqhd.get()), (Status::SUCCESS, 1));
        assert!(guest.get(DATA + 0x1000, 4096) == pattern(1, 4096));
        assert!(guest.peek(1).is_none());
    }
}

/// While a controller is enabled its reactor does not sleep; when it is not, or nobody is there, it does.
#[test]
fn a_function_that_nobody_uses_sleeps() {
    let machine = Machine::polled(memory(), 1);
    let mut guest = machine.guest();
    wait_asleep(&machine, || assert_eq!(guest.csts() & 1, 0));
    for _ in 0..3 {
        guest.enable();
        guest.create_pair(1);
        guest.still_works();
        let before = sleeps(&machine);
        for round in 0..200 {
            guest.works(1, round);
            guest.csts();
        }
        assert_eq!(sleeps(&machine), before, "it slept while it was to look");
        guest.disable();
        wait_asleep(&machine, || assert_eq!(guest.csts() & 1, 0));
    }
    // A shutdown, as Linux leaves a controller when its driver goes: CC.EN stays. It works again when it is enabled anew.
    guest.enable();
    guest.create_pair(1);
    guest.still_works();
    guest.write_register(0x14, 0x0046_4001);
    let until = Instant::now() + PATIENCE;
    while guest.csts() & 0b1100 != 0b1000 {
        assert!(Instant::now() < until, "the shutdown does not end");
    }
    wait_asleep(&machine, || assert_eq!(guest.csts(), 0b1001));
    guest.disable();
    // A client that goes without a word.
    guest.enable();
    guest.create_pair(1);
    guest.still_works();
    drop(guest);
    drop(machine.guest());
    wait_asleep(&machine, || drop(machine.guest()));
}

/// With a store that has its write: the client goes while its queue is polled, the next one waits for the write, and is served.
#[test]
fn a_client_goes_away_while_it_is_polled() {
    for _ in 0..5 {
        let (gate, store) = Gate::over(memory(), 1);
        let machine = Machine::polled(store, 2);
        let mut guest = machine.running();
        let page = guest.page.clone().unwrap();
        guest.submit(1, transfer(1, 0, 1, DATA, 0));
        gate.wait_held(1);
        drop(guest);
        // It has the page still, and writes there.
        for value in [1, 2, 63, u32::MAX] {
            (0..WORDS).for_each(|at| page.store32(at * 4, value));
        }
        gate.open();
        let mut next = machine.guest();
        next.enable();
        next.create_pair(1);
        (0..WORDS).for_each(|at| page.store32(at * 4, 3));
        next.still_works();
        assert!(
            next.page.as_ref().unwrap().load32(8) != 3,
            "each has its own page"
        );
    }
}

/// One function is polled and one is not: both are served, on the same reactor and on two, whatever the polled one does.
#[test]
fn two_functions_of_which_one_is_polled() {
    for reactors in [1, 2] {
        let machine = Machine::polled(memory(), reactors);
        let mut rung = Guest::new(Client::connect(&machine.add_function(2, Doorbells::Rung)));
        rung.enable();
        rung.create_pair(1);
        rung.works(1, 5);
        let mut polled = machine.running();
        for round in 0..100 {
            // Its queue is full all the time.
            for at in 0..60 {
                polled.submit(1, transfer(2, at % 16, 1, DATA + at * 4096, 0));
            }
            rung.works(1, round);
            for _ in 0..60 {
                assert_eq!(status(&polled.complete(1)), Status::SUCCESS);
            }
        }
        rung.share_doorbells(DATA + 0x80_0000, DATA + 0x80_1000)
            .unwrap();
        rung.works(1, 6);
        polled.disable();
        rung.works(1, 7);
        drop(polled);
        rung.works(1, 8);
    }
}

/// Windows go and come while their queue is polled: whoever waits for a window that goes hears of it though no doorbell is rung.
#[test]
fn a_window_goes_while_it_is_polled() {
    let machine = Machine::polled(memory(), 2);
    let mut guest = machine.running();
    let (place, bytes) = (0x1_0000_0000, 0x10_0000);
    for round in 0..50 {
        guest.map(place, bytes, 0x20_0000, 3).unwrap();
        let read = guest.run(1, transfer(2, 0, 1, place, 0));
        assert_eq!(status(&read), Status::SUCCESS);
        let body = Guest::unmap_body(place, bytes);
        assert_eq!(guest.client.call(3, &body, &[]), Ok(body.clone()));
        let read = guest.run(1, transfer(2, 0, 1, place, 0));
        assert_eq!(status(&read), Status::DATA_TRANSFER_ERROR);
        guest.works(1, round);
    }
    let (_, fds) = guest.region_info(0);
    // The page of doorbells is no memory of the guest's until it says so, and then it is: what a read writes there are values as any others.
    let page = fds[0].as_fd();
    let window = [
        crate::driver::words(&[32, 3]),
        crate::driver::longs(&[0x1000, 0x2_0000_0000, 0x1000]),
    ];
    guest.client.call(2, &window.concat(), &[page]).unwrap();
    let read = guest.submit(1, transfer(2, 0, 1, 0x2_0000_0000, 0));
    assert_eq!(guest.complete(1).cid.get(), read);
    assert_eq!(guest.csts(), 1);
    guest.disable();
    guest.enable();
    guest.create_pair(1);
    guest.still_works();
}
