//! The hosts of functions: each has a name of its own, by which it is counted, sees its namespaces, and has nothing to do with others.

use std::sync::Arc;

use frontend_nvme::conformance::{Gate, NQN, disk, memory};
use frontend_vfio_user::Doorbells;
use namespace::{Identity, Namespace};
use nvme::controller::{HostPolicy, Visibility};
use nvme::nqn::Nqn;
use nvme_spec::{Nsid, Status};

use crate::client::Client;
use crate::driver::{DATA, Guest, Machine, host_of, status, transfer};

const READ: u8 = 2;
const WRITE: u8 = 1;
const DELETE_SQ: u8 = 0;
const SECOND: u16 = 7;

/// A guest of function `pf7`, and the one of `pf0`.
fn guests(machine: &Machine) -> (Guest, Guest) {
    let path = machine.add_function(SECOND, Doorbells::Rung);
    let second = Guest::new(Client::connect(&path)).started();
    (machine.running(), second)
}

fn of_namespace(opcode: u8, nsid: u32) -> nvme_spec::Sqe {
    let mut sqe = transfer(opcode, 0, 1, DATA, 0);
    sqe.nsid = nsid.into();
    sqe
}

#[test]
fn each_is_counted_by_itself() {
    let machine = Machine::start(memory(), 2);
    let (mut first, mut second) = guests(&machine);
    for _ in 0..3 {
        let read = first.run(1, transfer(READ, 0, 1, DATA, 0));
        assert_eq!(status(&read), Status::SUCCESS);
    }
    let written = second.run(1, transfer(WRITE, 0, 2, DATA, DATA + 4096));
    assert_eq!(status(&written), Status::SUCCESS);
    // What a guest has the answer to may be counted a moment later: with the last answers of its turn, which a queue's deletion waits for.
    for guest in [&mut first, &mut second] {
        guest.delete(DELETE_SQ, 1).unwrap();
    }
    let row = |number| machine.target.row(host_of(number).as_str(), 1).unwrap();
    let (one, other) = (row(0), row(SECOND));
    assert_eq!((one.bytes_read, one.bytes_written), (3 * 4096, 0));
    assert_eq!((other.bytes_read, other.bytes_written), (0, 2 * 4096));
}

/// A namespace that is shown to one function alone: it is not there for another, nor for one whose host the list does not name any more.
#[test]
fn each_sees_what_is_shown_to_it() {
    let machine = Machine::start(memory(), 2);
    let (mut first, mut second) = guests(&machine);
    let admin = machine.target.admin();
    let nqn = Nqn::parse(NQN).unwrap();
    let identity = Identity::of_raw("test", b"another");
    let more = Arc::new(Namespace::of_store(2, memory(), identity, 4096));
    let shown_to = |number| Visibility::Hosts(vec![host_of(number)]);
    admin.attach(&nqn, more, shown_to(SECOND)).unwrap();
    let read = |guest: &mut Guest| status(&guest.run(1, of_namespace(READ, 2)));
    // What Base has of an inactive namespace.
    let inactive = Status::INVALID_FIELD;
    assert_eq!(
        (read(&mut first), read(&mut second)),
        (inactive, Status::SUCCESS)
    );
    admin.set_visibility(&nqn, Nsid(2), shown_to(0)).unwrap();
    assert_eq!(
        (read(&mut first), read(&mut second)),
        (Status::SUCCESS, inactive)
    );
}

/// Which hosts may connect over fabrics is nothing to a function: whoever gave its path let it in.
#[test]
fn a_list_of_hosts_ends_none() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    let admin = machine.target.admin();
    let nqn = Nqn::parse(NQN).unwrap();
    let trainer = Nqn::parse("nqn.2026-11.org.example:trainer1").unwrap();
    for hosts in [vec![trainer], vec![]] {
        admin.set_hosts(&nqn, HostPolicy::Only(hosts)).unwrap();
        let read = guest.run(1, transfer(READ, 0, 1, DATA, 0));
        assert_eq!(status(&read), Status::SUCCESS);
        assert_eq!(admin.controllers().unwrap().len(), 1);
    }
    // Nor are there others who come later.
    drop(guest);
    let read = machine.running().run(1, transfer(READ, 0, 1, DATA, 0));
    assert_eq!(status(&read), Status::SUCCESS);
}

/// A client that is gone while a store has its write: one machine may have both functions, so that the other one's next client waits for that write as well.
#[test]
fn a_client_waits_for_the_last_write_of_every_function() {
    let (gate, store) = Gate::over(memory(), 1);
    let machine = Machine::with(vec![disk(store)], 2);
    let mut first = machine.running();
    first.submit(1, transfer(WRITE, 0, 1, DATA, 0));
    gate.wait_held(1);
    drop(first);
    machine.wait_unlinked();
    let path = machine.add_function(SECOND, Doorbells::Rung);
    let mut second = Client::dial(&path);
    let version = second.send(1, 0, &[0; 4], &[]);
    assert!(second.is_silent());
    gate.open();
    second.reply(version).unwrap();
    let mut second = Guest::new(second).started();
    let read = second.run(1, transfer(READ, 0, 1, DATA, 0));
    assert_eq!(status(&read), Status::SUCCESS);
}
