//! When a guest is told, and how.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nvme_spec::{Status, U32};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::driver::{BASE, DATA, Guest, Machine, command, status, transfer, words};
use frontend_nvme::conformance::memory;

/// Whether a descriptor is signalled within some time.
fn is_signalled(fd: &OwnedFd, within: Duration) -> bool {
    let until = Instant::now() + within;
    let timeout = rustix::event::Timespec {
        tv_sec: within.as_secs() as i64,
        tv_nsec: i64::from(within.subsec_nanos()),
    };
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let ready = poll(&mut fds, Some(&timeout)).unwrap();
    assert!(ready > 0 || Instant::now() >= until);
    ready > 0
}

fn count(fd: &OwnedFd) -> u64 {
    let mut value = [0; 8];
    rustix::io::read(fd, &mut value).unwrap();
    u64::from_ne_bytes(value)
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn each_queue_interrupts_by_its_vector() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.guest();
    let vectors = [0, 1, 2].map(|vector| guest.vector(vector));
    guest.enable();
    guest.create_pair(1);
    guest.create_pair(2);
    assert!(is_signalled(&vectors[0], LONG));
    count(&vectors[0]);
    for queue in [1, 2, 1] {
        let fd = &vectors[usize::from(queue)];
        assert!(!is_signalled(fd, Duration::ZERO));
        assert_eq!(
            status(&guest.run(queue, transfer(2, 0, 1, DATA, 0))),
            Status::SUCCESS
        );
        assert!(is_signalled(fd, LONG));
        count(fd);
    }
}

/// The entry is there when the guest is told of it.
#[test]
fn entries_come_before_their_interrupts() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.guest();
    let vector = guest.vector(1);
    guest.enable();
    guest.create_pair(1);
    for _ in 0..200 {
        guest.submit(1, transfer(2, 0, 1, DATA, 0));
        assert!(is_signalled(&vector, LONG));
        count(&vector);
        assert!(guest.peek(1).is_some(), "an interrupt for nothing");
        guest.complete(1);
    }
}

/// A vector that is set up late is told of what came before.
#[test]
fn an_interrupt_that_nobody_could_hear_is_not_lost() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.guest();
    let _other = guest.vector(0);
    guest.enable();
    guest.create_pair(1);
    guest.submit(1, transfer(2, 0, 1, DATA, 0));
    while guest.peek(1).is_none() {
        std::thread::yield_now();
    }
    let vector = guest.vector(1);
    assert!(is_signalled(&vector, LONG));
    // Taken away, it is silent; all at once as well.
    guest.complete(1);
    count(&vector);
    guest
        .client
        .call(8, &words(&[20, 4 | 32, 2, 1, 1]), &[])
        .unwrap();
    guest.run(1, transfer(2, 0, 1, DATA, 0));
    guest
        .client
        .call(8, &words(&[20, 1 | 32, 2, 0, 0]), &[])
        .unwrap();
    assert!(!is_signalled(&vector, Duration::ZERO));
}

/// INTx: one signal, then silence until the client unmasks; what is left then is told of again.
#[test]
fn the_line_masks_itself() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.guest();
    let line = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    guest
        .client
        .call(8, &words(&[20, 4 | 32, 0, 0, 1]), &[line.as_fd()])
        .unwrap();
    guest.enable();
    guest.create_pair(1);
    assert!(is_signalled(&line, LONG));
    assert_eq!(count(&line), 1, "of two completions");
    let unmask = words(&[20, 1 | 16, 0, 0, 1]);
    guest.client.call(8, &unmask, &[]).unwrap();
    assert!(!is_signalled(&line, Duration::ZERO), "everything was taken");
    guest.submit(1, transfer(2, 0, 1, DATA, 0));
    assert!(is_signalled(&line, LONG));
    count(&line);
    // It has not taken the entry.
    guest.client.call(8, &unmask, &[]).unwrap();
    assert!(is_signalled(&line, LONG));
    count(&line);
    guest.complete(1);
    guest.client.call(8, &unmask, &[]).unwrap();
    assert!(!is_signalled(&line, Duration::ZERO));

    // Masked by the client, and by INTMS.
    guest
        .client
        .call(8, &words(&[20, 1 | 8, 0, 0, 1]), &[])
        .unwrap();
    guest.run(1, transfer(2, 0, 1, DATA, 0));
    guest.client.call(8, &unmask, &[]).unwrap();
    guest.write_register(0x0C, 0b10);
    assert_eq!(guest.read_register(0x10, 4), 0b10);
    guest.submit(1, transfer(2, 0, 1, DATA, 0));
    while guest.peek(1).is_none() {
        std::thread::yield_now();
    }
    assert!(!is_signalled(&line, Duration::ZERO));
    guest.write_register(0x10, 0b10);
    assert!(is_signalled(&line, LONG));
}

/// The line goes down at the client's next access to BAR0, so that there has to be one: Doorbell Buffer Config would spare it.
#[test]
fn a_client_with_the_line_rings_its_doorbells() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.guest();
    let line = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let set_line = words(&[20, 4 | 32, 0, 0, 1]);
    let no_line = words(&[20, 1 | 32, 0, 0, 0]);
    guest.client.call(8, &set_line, &[line.as_fd()]).unwrap();
    guest.enable();
    guest.create_pair(1);
    let (shadow, events) = (BASE + 0x4_0000, BASE + 0x4_1000);
    let refused = guest.share_doorbells(shadow, events);
    assert_eq!(refused, Err(Status::INVALID_OPCODE));
    guest.still_works();
    // As QEMU does when its guest takes MSI-X.
    guest.client.call(8, &no_line, &[]).unwrap();
    guest.share_doorbells(shadow, events).unwrap();
    guest.still_works();
}

/// A line that its client leaves set when it takes MSI-X is used no more.
#[test]
fn a_line_beside_vectors_is_none() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.guest();
    let line = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let set_line = words(&[20, 4 | 32, 0, 0, 1]);
    guest.client.call(8, &set_line, &[line.as_fd()]).unwrap();
    let vector = guest.vector(1);
    guest.enable();
    guest.create_pair(1);
    guest
        .share_doorbells(BASE + 0x4_0000, BASE + 0x4_1000)
        .unwrap();
    guest.still_works();
    assert!(is_signalled(&vector, LONG));
    assert!(!is_signalled(&line, Duration::ZERO));
    // Also while no vector is set, until MSI-X is turned off.
    let set = |guest: &mut Guest, body| guest.client.call(8, &words(body), &[]).unwrap();
    set(&mut guest, &[20, 4 | 32, 2, 1, 1]);
    guest.still_works();
    assert!(!is_signalled(&line, Duration::ZERO));
    set(&mut guest, &[20, 1 | 32, 2, 0, 0]);
    guest.run(1, transfer(2, 0, 1, DATA, 0));
    assert!(is_signalled(&line, LONG));
}

/// Descriptors that are replaced while a queue posts: each entry is told of by the one that is there then, or by the next.
#[test]
fn an_interrupt_is_not_lost_between_two_descriptors() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.guest();
    guest.enable();
    // Queues are on both reactors: the second is not the function's.
    guest.create_pair(1);
    guest.create_pair(2);
    for round in 0..300 {
        let _before = guest.vector(2);
        guest.submit(2, transfer(2, round % 16, 1, DATA, 0));
        let vector = guest.vector(2);
        assert!(is_signalled(&vector, LONG));
        guest.complete(2);
    }
}

#[test]
fn what_the_kinds_do_not_take_is_refused() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.guest();
    for (flags, index) in [(1 | 8, 2), (1 | 16, 2), (1 | 32, 1), (1 | 32, 3)] {
        let body = words(&[20, flags, index, 0, 1]);
        assert_eq!(guest.client.call(8, &body, &[]), Err(22), "{flags} {index}");
    }
    let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let resample = guest
        .client
        .call(8, &words(&[20, 4 | 16, 0, 0, 1]), &[fd.as_fd()]);
    assert_eq!(resample, Err(95));
}

/// A descriptor that blocks and is full, as a monitor that means harm leaves it: a reactor that waited there would serve nobody any more.
#[test]
fn a_descriptor_that_blocks_keeps_nobody_waiting() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.guest();
    let vectors = [0, 1].map(|vector| guest.vector(vector));
    let line = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let of_line = words(&[20, 4 | 32, 0, 0, 1]);
    guest.client.call(8, &of_line, &[line.as_fd()]).unwrap();
    for fd in vectors.iter().chain([&line]) {
        rustix::io::write(fd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::empty()).unwrap();
    }
    guest.enable();
    guest.create_pair(1);
    guest.create_pair(2);
    for seed in 0..20 {
        guest.works(1, seed);
        guest.works(2, seed);
    }
    // The client has it interrupt itself, by a descriptor that is full as well.
    for index in [0, 2] {
        guest
            .client
            .call(8, &words(&[20, 1 | 32, index, 0, 1]), &[])
            .unwrap();
    }
    guest.still_works();
    assert!(count(&vectors[1]) >= u64::MAX - 1);
    guest.run(1, transfer(2, 0, 1, DATA, 0));
    assert!(is_signalled(&vectors[1], LONG), "emptied, it hears again");
}

/// What is no eventfd interrupts nobody: a pipe that is full would block.
#[test]
fn descriptors_that_are_none_are_refused() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.guest();
    let (_one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    for index in [0, 2] {
        let body = words(&[20, 4 | 32, index, 0, 1]);
        let refused = guest.client.call(8, &body, &[other.as_fd()]);
        assert_eq!(refused, Err(22));
        let refused = guest.client.call(8, &body, &[guest.memory.as_fd()]);
        assert_eq!(refused, Err(22));
    }
    guest.enable();
    guest.create_pair(1);
    guest.still_works();
}

/// Set Features 08h and 09h.
fn set_feature(guest: &mut Guest, feature: u32, value: u32) {
    let mut sqe = command(0x09, 0);
    sqe.cdw10 = U32::new(feature);
    sqe.cdw11 = U32::new(value);
    assert_eq!(status(&guest.admin(sqe)), Status::SUCCESS);
}

/// Interrupt Coalescing: entries of a vector wait for each other, and the first no longer than its time; those of the admin queue, and of a vector with CD = 1,
/// do not. How many signals there are is exact where the clock is stepped (`aggregate`).
#[test]
fn entries_wait_for_each_other() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.guest();
    let vectors = [0, 1, 2].map(|vector| guest.vector(vector));
    guest.enable();
    guest.create_pair(1);
    guest.create_pair(2);
    // 256 entries in 25.5 ms; not the second vector.
    set_feature(&mut guest, 0x08, 0xFFFF);
    set_feature(&mut guest, 0x09, 1 << 16 | 2);
    let (mut entries, mut signals) = (0, 0);
    while signals == 0 || entries < 500 {
        for _ in 0..20 {
            guest.submit(1, transfer(2, 0, 1, DATA, 0));
        }
        for _ in 0..20 {
            assert_eq!(status(&guest.complete(1)), Status::SUCCESS);
        }
        entries += 20;
        signals += reactor::peer_event::take(&vectors[1]);
    }
    assert!(
        signals < entries / 2,
        "{signals} signals for {entries} entries"
    );
    // One entry alone is told of in the end.
    while is_signalled(&vectors[1], Duration::from_millis(30)) {
        count(&vectors[1]);
    }
    guest.run(1, transfer(2, 0, 1, DATA, 0));
    assert!(is_signalled(&vectors[1], LONG));
    for _ in 0..10 {
        guest.run(2, transfer(2, 0, 1, DATA, 0));
        assert!(is_signalled(&vectors[2], LONG));
        assert_eq!(count(&vectors[2]), 1);
        let mut get = command(0x0A, 0);
        get.cdw10 = U32::new(0x08);
        assert_eq!(guest.admin(get).dw0.get(), 0xFFFF);
        // How many is not said: a guest may see an entry, and send the next command, before it is told.
        assert!(is_signalled(&vectors[0], LONG));
        count(&vectors[0]);
    }
    // A reset forgets it.
    guest.disable();
    guest.enable();
    guest.create_pair(1);
    let _told = reactor::peer_event::take(&vectors[1]);
    for _ in 0..10 {
        guest.run(1, transfer(2, 0, 1, DATA, 0));
        assert!(is_signalled(&vectors[1], LONG));
        assert_eq!(count(&vectors[1]), 1);
    }
}
