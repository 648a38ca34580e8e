//! A store that takes twenty seconds: registers are answered at once meanwhile, and what ends a command's reach ends it for good.

use std::time::{Duration, Instant};

use nvme_spec::{Status, U32};

use crate::driver::{BASE, DATA, Guest, MEMORY_BYTES, Machine, command, pattern, status, transfer};
use frontend_nvme::conformance::{Gate, memory};

/// How long the store takes.
const DELAY: Duration = Duration::from_secs(20);
/// A register's answer at most, on a machine that others use as well.
const AT_ONCE: Duration = Duration::from_secs(2);
/// What a guest does not want changed any more.
const OWN: u8 = 0x5A;

/// Looks at registers for as long as the store takes; the slowest answer.
fn slowest_answer(guest: &mut Guest, begun: Instant, csts: u32) -> Duration {
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < DELAY {
        let asked = Instant::now();
        assert_eq!(guest.csts(), csts);
        assert_eq!(guest.read_config(0x08, 4), 0x0108_0201);
        slowest = slowest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    slowest
}

/// A guest whose write the store has, and does not answer.
fn with_a_write_held() -> (Gate, Machine, Guest) {
    let (gate, store) = Gate::over(memory(), 1);
    let machine = Machine::start(store, 2);
    let mut guest = machine.running();
    guest.put(DATA, &pattern(5, 4096));
    guest.submit(1, transfer(1, 0, 1, DATA, 0));
    gate.wait_held(1);
    (gate, machine, guest)
}

/// Has the store answer the reads that it holds, and waits until the only reactor has taken that up: a message of the client's is looked at in a later turn.
fn let_late_reads_come(gate: &Gate, guest: &mut Guest, reads: usize) {
    gate.open();
    gate.wait_released(reads);
    for _ in 0..2 {
        guest.csts();
    }
}

/// The controller is as new, and the write that it had was done.
fn begins_anew(guest: &mut Guest) {
    guest.enable();
    guest.create_pair(1);
    let read = guest.run(1, transfer(2, 0, 1, DATA + 0x1000, 0));
    assert_eq!(status(&read), Status::SUCCESS);
    assert!(guest.get(DATA + 0x1000, 4096) == pattern(5, 4096));
}

/// CC.EN = 0 while the store has a write: CSTS.RDY says so for 20 s, each time it is asked, and the controller is as new afterwards.
#[test]
fn registers_are_answered_while_a_store_takes_twenty_seconds() {
    let (gate, _machine, mut guest) = with_a_write_held();
    let begun = Instant::now();
    guest.write_register(0x14, 0x0046_0000);
    let slowest = slowest_answer(&mut guest, begun, 1);
    assert!(slowest < AT_ONCE, "{slowest:?}");
    gate.open();
    guest.wait_ready(false);
    assert!(guest.peek(1).is_none());
    begins_anew(&mut guest);
}

/// A read that the store has when the controller is turned off: when CSTS.RDY is 0 its memory is the guest's, whatever the store does then.
#[test]
fn nothing_comes_into_memory_after_a_reset() {
    let (gate, store) = Gate::over_reads(memory(), 4);
    let machine = Machine::start(store, 1);
    let mut guest = machine.running();
    for at in 0..4 {
        guest.submit(1, transfer(2, at, 1, DATA + at * 4096, 0));
    }
    gate.wait_held(4);
    guest.disable();
    let places = guest.pairs[1];
    guest.put(DATA, &[OWN; 4 * 4096]);
    guest.put(places.cq, &[OWN; 0x1000]);
    let_late_reads_come(&gate, &mut guest, 4);
    assert_eq!(guest.get(DATA, 4 * 4096), [OWN; 4 * 4096]);
    assert_eq!(guest.get(places.cq, 0x1000), [OWN; 0x1000]);
    guest.enable();
    guest.create_pair(2);
    let read = guest.run(2, transfer(2, 5, 1, DATA + 0x8000, 0));
    assert_eq!(status(&read), Status::SUCCESS);
    assert_eq!(guest.get(DATA, 4 * 4096), [OWN; 4 * 4096]);
    assert_eq!(guest.get(places.cq, 0x1000), [OWN; 0x1000]);
}

/// The same where the queue is deleted.
#[test]
fn nothing_comes_into_memory_after_a_queue_was_deleted() {
    let (gate, store) = Gate::over_reads(memory(), 4);
    let machine = Machine::start(store, 1);
    let mut guest = machine.running();
    guest.create_pair(2);
    for at in 0..4 {
        guest.submit(1, transfer(2, at, 1, DATA + at * 4096, 0));
    }
    gate.wait_held(4);
    guest.delete(0x00, 1).unwrap();
    guest.delete(0x04, 1).unwrap();
    let places = guest.pairs[1];
    guest.put(DATA, &[OWN; 4 * 4096]);
    guest.put(places.cq, &[OWN; 0x1000]);
    let_late_reads_come(&gate, &mut guest, 4);
    let read = guest.run(2, transfer(2, 5, 1, DATA + 0x8000, 0));
    assert_eq!(status(&read), Status::SUCCESS);
    assert_eq!(guest.get(DATA, 4 * 4096), [OWN; 4 * 4096]);
    assert_eq!(guest.get(places.cq, 0x1000), [OWN; 0x1000]);
}

/// The deletion of a queue, and a reset of the device, whose client is told after four seconds that it has not happened yet: neither ends before the store's write does.
#[test]
fn what_ends_a_queue_waits_for_a_store_that_takes_twenty_seconds() {
    let (gate, _machine, mut guest) = with_a_write_held();
    let begun = Instant::now();
    let mut delete = command(0x00, 0);
    delete.cdw10 = U32::new(1);
    guest.submit(0, delete);
    let slowest = slowest_answer(&mut guest, begun, 1);
    assert!(slowest < AT_ONCE, "{slowest:?}");
    assert!(guest.peek(0).is_none(), "the store still has a write");
    assert_eq!(guest.client.call(13, &[], &[]), Err(110));
    assert_eq!(guest.csts(), 1, "the store still has a write");
    gate.open();
    guest.wait_ready(false);
    assert_eq!(guest.client.call(13, &[], &[]), Ok(vec![]));
    begins_anew(&mut guest);
}

/// Memory of a window that went while the store had a read for it is the guest's from the answer on, also twenty seconds later.
#[test]
fn a_window_that_went_stays_as_it_is_whenever_the_store_answers() {
    let (gate, store) = Gate::over_reads(memory(), 1);
    let machine = Machine::start(store, 2);
    let mut guest = machine.running();
    let apart = BASE + MEMORY_BYTES;
    guest.map(apart, 0x1000, DATA - BASE, 3).unwrap();
    guest.submit(1, transfer(2, 0, 1, apart, 0));
    gate.wait_held(1);
    let begun = Instant::now();
    let unmap = Guest::unmap_body(apart, 0x1000);
    guest.client.call(3, &unmap, &[]).unwrap();
    guest.put(DATA, &[OWN; 4096]);
    let slowest = slowest_answer(&mut guest, begun, 1);
    assert!(slowest < AT_ONCE, "{slowest:?}");
    gate.open();
    let read = guest.complete(1);
    assert_eq!(status(&read), Status::DATA_TRANSFER_ERROR);
    assert_eq!(guest.get(DATA, 4096), [OWN; 4096]);
    guest.still_works();
}
