//! Resets, deletions, windows that go, and clients that do: in what order, and what is touched afterwards.

use nvme_spec::{Status, U32};

use crate::client::Client;
use crate::driver::{BASE, DATA, Guest, MEMORY_BYTES, Machine, command, pattern, status, transfer};
use frontend_nvme::conformance::Gate;
use frontend_nvme::conformance::memory;
use frontend_vfio_user::Doorbells;

/// CC.EN = 0 with a write that the store has: registers are answered, CSTS.RDY waits, and nothing of the old commands comes afterwards.
#[test]
fn a_reset_waits_for_the_last_write() {
    let (gate, store) = Gate::over(memory(), 1);
    let machine = Machine::start(store, 2);
    let mut guest = machine.running();
    guest.submit(1, transfer(1, 0, 1, DATA, 0));
    gate.wait_held(1);
    guest.write_register(0x14, 0x0046_0000);
    for _ in 0..50 {
        assert_eq!(guest.csts() & 1, 1, "the store still has a write");
    }
    gate.open();
    guest.wait_ready(false);
    assert!(guest.peek(1).is_none(), "nobody waits for its completion");
    guest.enable();
    guest.create_pair(1);
    assert_eq!(
        status(&guest.run(1, transfer(2, 0, 1, DATA, 0))),
        Status::SUCCESS
    );
}

/// CC.EN = 1 before the reset is complete, which no host may write: it sees CSTS.RDY as 0 all the same, and has a controller without queues then.
#[test]
fn a_controller_that_is_enabled_too_early_shows_that_it_was_reset() {
    let (gate, store) = Gate::over(memory(), 1);
    let machine = Machine::start(store, 2);
    let mut guest = machine.running();
    guest.submit(1, transfer(1, 0, 1, DATA, 0));
    gate.wait_held(1);
    for cc in [0x0046_0000, 0x0046_0001, 0x0046_0000, 0x0046_0001] {
        guest.write_register(0x14, cc);
        assert_eq!(guest.csts() & 1, 1, "the store still has a write");
        assert_eq!(guest.read_register(0x14, 4), 0x0046_0000);
    }
    gate.open();
    guest.wait_ready(false);
    guest.wait_ready(true);
    assert_eq!(guest.read_register(0x14, 4), 0x0046_0001);
    guest.enable();
    // The numbers of the queues that there were are free.
    guest.create_pair(1);
    let read = guest.run(1, transfer(2, 0, 1, DATA, 0));
    assert_eq!(status(&read), Status::SUCCESS);
}

#[test]
fn what_waits_on_the_admin_queue_is_forgotten_by_a_reset() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.running();
    for _ in 0..3 {
        // An Asynchronous Event Request is answered when something happens: nothing does.
        for _ in 0..4 {
            guest.submit(0, command(0x0C, 0));
        }
        guest.submit(0, command(0x0C, 0));
        assert_eq!(
            status(&guest.complete(0)),
            Status::ASYNC_EVENT_LIMIT_EXCEEDED
        );
        guest.disable();
        assert!(guest.peek(0).is_none());
        guest.enable();
        assert!(
            guest.peek(0).is_none(),
            "what was forgotten is not answered"
        );
    }
}

/// Its answer comes when the queue's last write has ended.
#[test]
fn a_queue_is_deleted_after_its_last_write() {
    let (gate, store) = Gate::over(memory(), 1);
    let machine = Machine::start(store, 2);
    let mut guest = machine.running();
    guest.submit(1, transfer(1, 0, 1, DATA, 0));
    gate.wait_held(1);
    let mut delete = command(0x00, 0);
    delete.cdw10 = U32::new(1);
    guest.submit(0, delete);
    // A second one meanwhile finds that it goes already.
    guest.submit(0, delete);
    assert_eq!(status(&guest.complete(0)), Status::INVALID_QUEUE_ID);
    let mut identify = command(0x0A, 0);
    identify.cdw10 = U32::new(0x07);
    guest.run(0, identify);
    assert!(guest.peek(0).is_none(), "the store still has a write");
    gate.open();
    assert_eq!(status(&guest.complete(0)), Status::SUCCESS);
    guest.delete(0x04, 1).unwrap();
    guest.create_pair(1);
    assert_eq!(
        status(&guest.run(1, transfer(2, 0, 1, DATA, 0))),
        Status::SUCCESS
    );
}

/// DEVICE_RESET: the controller is disabled, configuration space as at power-on, and the answer comes then.
#[test]
fn a_reset_of_the_device_is_answered_when_it_is_done() {
    let (gate, store) = Gate::over(memory(), 1);
    let machine = Machine::start(store, 1);
    let mut guest = machine.running();
    let write = [
        0x04_u64.to_le_bytes().to_vec(),
        vec![7, 0, 0, 0, 2, 0, 0, 0, 6, 0],
    ]
    .concat();
    guest.client.call(10, &write, &[]).unwrap();
    assert_eq!(guest.read_config(4, 2), 6);
    guest.submit(1, transfer(1, 0, 1, DATA, 0));
    gate.wait_held(1);
    let id = guest.client.send(13, 0, &[], &[]);
    let again = guest.client.send(13, 0, &[], &[]);
    assert_eq!(guest.client.reply(again), Err(16), "one at a time");
    assert!(guest.client.is_silent());
    gate.open();
    assert_eq!(guest.client.reply(id), Ok(vec![]));
    assert_eq!((guest.csts(), guest.read_config(4, 2)), (0, 0));
    assert_eq!(guest.read_register(0x24, 4), 0);
    guest.enable();
    // Of a device that is disabled it is answered at once.
    guest.disable();
    assert_eq!(guest.client.call(13, &[], &[]), Ok(vec![]));
}

/// QEMU waits five seconds for a DEVICE_RESET. One that takes longer has not happened when it is told so, and happens.
#[test]
fn a_reset_of_the_device_that_takes_too_long_is_an_error() {
    let (gate, store) = Gate::over(memory(), 1);
    let machine = Machine::start(store, 1);
    let mut guest = machine.running();
    // INTMS: a reset forgets it.
    guest.write_register(0x0C, 0b10);
    guest.submit(1, transfer(1, 0, 1, DATA, 0));
    gate.wait_held(1);
    assert_eq!(guest.client.call(13, &[], &[]), Err(110));
    assert_eq!(guest.csts() & 1, 1, "the store still has a write");
    gate.open();
    guest.wait_ready(false);
    assert_eq!(guest.client.call(13, &[], &[]), Ok(vec![]));
    assert_eq!(guest.read_register(0x0C, 4), 0);
    assert_eq!(guest.read_register(0x24, 4), 0, "AQA");
    guest.enable();
    guest.create_pair(1);
    guest.still_works();
}

/// A window that goes while a command has it: the answer does not wait for the store, and the memory is not touched any more.
#[test]
fn a_window_goes_while_the_store_works() {
    let (gate, store) = Gate::over_reads(memory(), 1);
    let machine = Machine::start(store, 2);
    let mut guest = machine.running();
    // A window of its own, for the data.
    let apart = BASE + MEMORY_BYTES;
    guest.map(apart, 0x1000, DATA - BASE, 3).unwrap();
    guest.put(DATA, &[0xAA; 4096]);
    guest.submit(1, transfer(2, 0, 1, apart, 0));
    gate.wait_held(1);
    let unmapped = guest.client.call(3, &Guest::unmap_body(apart, 0x1000), &[]);
    assert_eq!(unmapped, Ok(Guest::unmap_body(apart, 0x1000)));
    gate.open();
    assert_eq!(status(&guest.complete(1)), Status::DATA_TRANSFER_ERROR);
    assert_eq!(guest.get(DATA, 4096), [0xAA; 4096]);
    let again = guest.client.call(3, &Guest::unmap_body(apart, 0x1000), &[]);
    assert_eq!(again, Err(2));
}

/// A reactor that has a window and is busy elsewhere: the answer waits for it, and registers do not.
#[test]
fn a_window_is_let_go_of_before_the_answer() {
    let (gate, store) = Gate::over_thread(memory());
    let machine = Machine::start(store, 2);
    let mut guest = machine.running();
    // The first queue is on the desk's reactor, the second on the other.
    guest.create_pair(2);
    let apart = BASE + MEMORY_BYTES;
    guest.map(apart, 0x1000, DATA - BASE, 3).unwrap();
    let read = guest.run(2, transfer(2, 0, 1, apart, 0));
    assert_eq!(status(&read), Status::SUCCESS);
    guest.submit(2, transfer(1, 0, 1, DATA, 0));
    gate.wait_held(1);
    let body = Guest::unmap_body(apart, 0x1000);
    let unmap = guest.client.send(3, 0, &body, &[]);
    for _ in 0..50 {
        // Answered at once, which shows that the other is not: replies come in no other order here.
        assert_eq!(guest.csts() & 1, 1);
    }
    gate.open();
    assert_eq!(guest.client.reply(unmap), Ok(body));
    assert_eq!(status(&guest.complete(2)), Status::SUCCESS);
}

/// Storms of windows, with commands under way in others: what SeaBIOS does.
#[test]
fn windows_come_and_go_under_load() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    let apart = BASE + MEMORY_BYTES;
    for round in 0..200_u64 {
        let at = apart + round % 7 * 0x1000;
        guest.map(at, 0x1000, DATA - BASE, 3).unwrap();
        let lba = round % 16;
        guest.put(DATA, &pattern(round, 4096));
        guest.submit(1, transfer(1, lba, 1, at, 0));
        assert_eq!(status(&guest.complete(1)), Status::SUCCESS);
        guest
            .client
            .call(3, &Guest::unmap_body(at, 0x1000), &[])
            .unwrap();
    }
    // All of them.
    let all = [24_u32.to_le_bytes(), 2_u32.to_le_bytes()].concat();
    guest
        .client
        .call(3, &[all, vec![0; 16]].concat(), &[])
        .unwrap();
    guest.map(BASE, MEMORY_BYTES, 0, 3).unwrap();
    assert_eq!(
        status(&guest.run(1, transfer(2, 3, 1, DATA, 0))),
        Status::SUCCESS
    );
}

/// A shutdown makes durable what was written; CSTS says when it has.
#[test]
fn a_shutdown_is_told_when_it_is_complete() {
    let (gate, store) = Gate::over_flushes(memory(), 1);
    let machine = Machine::start(store, 1);
    let mut guest = machine.running();
    assert_eq!(
        status(&guest.run(1, transfer(1, 0, 1, DATA, 0))),
        Status::SUCCESS
    );
    guest.write_register(0x14, 0x0046_4001);
    gate.wait_held(1);
    assert_eq!(guest.csts() >> 2 & 3, 1, "in progress");
    gate.open();
    while guest.csts() >> 2 & 3 != 2 {}
}

/// One client at a time; the next gets a controller that works, when the last write of the one before has ended.
#[test]
fn a_function_has_one_client_after_the_other() {
    let (gate, store) = Gate::over(memory(), 1);
    let machine = Machine::start(store, 2);
    let mut first = machine.running();
    let mut second = Client::dial(&machine.socket());
    assert!(second.is_let_go());
    first.submit(1, transfer(1, 0, 1, DATA, 0));
    gate.wait_held(1);
    drop(first);
    machine.wait_unlinked();
    // Its controller has a write left.
    assert_eq!(machine.target.admin().controllers().unwrap().len(), 1);
    let mut third = Client::dial(&machine.socket());
    let version = third.send(1, 0, &[0; 4], &[]);
    // The old controller's write could still be applied behind one of the new.
    assert!(third.is_silent());
    gate.open();
    third.reply(version).unwrap();
    let mut guest = Guest::new(third).started();
    guest.put(DATA, &pattern(9, 4096));
    assert_eq!(
        status(&guest.run(1, transfer(1, 5, 1, DATA, 0))),
        Status::SUCCESS
    );
}

/// A client that comes back before its last connection's end was taken in (SPDK's does) waits for that, and one more is let go. The one reactor has the store
/// meanwhile, so that it hears of all of them in one turn.
#[test]
fn a_client_that_comes_back_at_once_is_let_in() {
    let (gate, store) = Gate::over_thread(memory());
    let machine = Machine::start(store, 1);
    let mut first = machine.running();
    first.submit(1, transfer(1, 0, 1, DATA, 0));
    gate.wait_held(1);
    drop(first);
    let mut second = Client::dial(&machine.socket());
    let version = second.send(1, 0, &[0; 4], &[]);
    let mut third = Client::dial(&machine.socket());
    gate.open();
    assert!(third.is_let_go());
    second.reply(version).unwrap();
    let mut guest = Guest::new(second).started();
    let read = guest.run(1, transfer(2, 0, 1, DATA, 0));
    assert_eq!(status(&read), Status::SUCCESS);
    drop(guest);
    for _ in 0..200 {
        drop(machine.guest());
    }
}

/// NSSR: both functions of the subsystem are reset, the last write of each first. CSTS.NSSRO says so until it is cleared, and a DEVICE_RESET, which is power-on,
/// says nothing.
#[test]
fn a_subsystem_reset_resets_every_function() {
    let (gate, store) = Gate::over(memory(), 1);
    let machine = Machine::start(store, 2);
    let path = machine.add_function(7, Doorbells::Rung);
    let mut first = machine.running();
    let mut second = Guest::new(Client::connect(&path)).started();
    assert_eq!(first.read_register(0, 8) >> 36 & 1, 1, "CAP.NSSRS");
    // Any other word changes nothing.
    first.write_register(0x20, 0x4E56_4D64);
    first.write_register(0x20, 0);
    assert_eq!((first.csts(), second.csts()), (1, 1));

    second.submit(1, transfer(1, 0, 1, DATA, 0));
    gate.wait_held(1);
    first.write_register(0x20, 0x4E56_4D65);
    first.wait_ready(false);
    assert_eq!(first.csts(), 0x10, "NSSRO");
    assert_eq!(second.csts(), 0x11, "the store still has a write");
    gate.open();
    second.wait_ready(false);
    for guest in [&mut first, &mut second] {
        for at in [0x14, 0x20, 0x24, 0x28, 0x2C, 0x30, 0x34] {
            assert_eq!(guest.read_register(at, 4), 0, "{at:#x}");
        }
        assert!(guest.peek(1).is_none(), "nobody waits for its completion");
        guest.enable();
        assert_eq!(guest.csts(), 0x11);
        guest.create_pair(1);
        let read = guest.run(1, transfer(2, 0, 1, DATA, 0));
        assert_eq!(status(&read), Status::SUCCESS);
    }
    first.write_register(0x1C, 0x10);
    assert_eq!((first.csts(), second.csts()), (1, 0x11));
    assert_eq!(second.client.call(13, &[], &[]), Ok(vec![]));
    assert_eq!(second.csts(), 0);
    assert_eq!(machine.target.admin().controllers().unwrap().len(), 2);
}
