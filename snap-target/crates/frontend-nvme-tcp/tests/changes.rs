//! What is served changes while hosts are connected: each change is in force when its call returns, and hosts are told of it.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod support;

use frontend_nvme::conformance::served::{Target, disk, memory_of, nqn};
use frontend_nvme::conformance::{Gate, NQN, Place, Queue, memory};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use support::on;
use support::raw::TcpQueue;

use frontend_nvme::{AdminError, Closed, Closing, Gone, Life, TargetEvent, subsystem};
use frontend_nvme_tcp::{SuccessFlag, bind};
use initiator::{DiscoveryRecord, Initiator, Options, discover};
use namespace::{Identity, Namespace};
use nvme::controller::{ControllerLimits, HostPolicy, Referral, Transport, Visibility};
use nvme::nqn::Nqn;
use nvme_spec::{Nsid, Status};
use telemetry::EventKind;

/// Namespace Attribute Notices, and Discovery Log Page Change Notification.
const NAMESPACES: u32 = 1 << 8;
const DISCOVERY: u32 = 1 << 31;
/// DW0 of their events: notice, which one, log page.
const NAMESPACES_CHANGED: u32 = 0x0004_0002;
const DISCOVERY_CHANGED: u32 = 0x0070_F002;
const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

fn names(records: &[DiscoveryRecord]) -> Vec<&str> {
    records.iter().map(|it| it.subnqn.as_str()).collect()
}

fn two_queues() -> Options {
    Options {
        queues: 2,
        ..Options::default()
    }
}

fn host_named(name: &str) -> Options {
    Options {
        hostnqn: name.to_owned(),
        ..two_queues()
    }
}

fn nsids(host: &Initiator) -> Vec<u32> {
    host.namespaces().iter().map(|info| info.nsid.0).collect()
}

fn status_of(result: Result<(), initiator::Error>) -> Option<Status> {
    match result {
        Err(initiator::Error::Command { status, .. }) => Some(status),
        _ => None,
    }
}

/// An admin queue that waits for one event.
fn watcher(place: &Place, notices: u32) -> (Queue, u16) {
    let host = "nqn.2026-11.io.example:watcher";
    let (mut queue, _) = Queue::admin(place, host, std::time::Duration::ZERO);
    queue.notify(notices);
    let request = queue.send_event_request();
    (queue, request)
}

/// Takes the event that a watcher was waiting for, and the namespaces that changed; waits for the next.
fn changed(queue: &mut Queue, request: &mut u16) -> Vec<u32> {
    let event = queue.response();
    assert_eq!(
        (event.cid, event.dw0, event.status),
        (*request, NAMESPACES_CHANGED, 0)
    );
    let page = queue.log_page(0x04, 4096);
    *request = queue.send_event_request();
    let entries = page.chunks_exact(4);
    entries
        .map(|entry| u32::from_le_bytes(entry.try_into().unwrap()))
        .take_while(|&nsid| nsid != 0)
        .collect()
}

#[test]
fn a_namespace_comes_grows_and_goes_under_its_hosts() {
    let (target, place) = Target::serving(&on());
    let address = place.address.to_string();
    let (mut watcher, mut request) = watcher(&place, NAMESPACES);
    let mut early = Initiator::connect(&address, NQN, &two_queues()).unwrap();
    assert_eq!(nsids(&early), []);

    let store = memory_of(1 << 20);
    let first = disk(1, store.clone());
    target.attach(&first).unwrap();
    assert_eq!(changed(&mut watcher, &mut request), [1]);
    let mut host = Initiator::connect(&address, NQN, &two_queues()).unwrap();
    assert_eq!(nsids(&host), [1]);
    host.write(1, 8192, &[7; 8192]).unwrap();

    // Another disk, on a store twice as large, takes its place: the same identity, requests on both reactors reach the new one.
    let larger = memory_of(2 << 20);
    let grown = Namespace::of_store(1, larger, Identity::of_raw("other", b""), 4096);
    target
        .admin
        .replace(&nqn(), Arc::new(grown.succeeding(&first)))
        .unwrap();
    assert_eq!(changed(&mut watcher, &mut request), [1]);
    assert!(Arc::into_inner(first).is_some(), "nobody has the old one");
    let mut after = Initiator::connect(&address, NQN, &two_queues()).unwrap();
    let info = after.namespace(1).unwrap();
    assert_eq!(info.blocks, 512);
    let mut block = [1; 8192];
    for offset in [0, 8192, (2 << 20) - 8192] {
        after.read(1, offset, &mut block).unwrap();
        assert_eq!(block, [0; 8192], "the new store is empty");
    }
    // A host that has not looked again sees the new one as well, as far as it knows.
    host.read(1, 8192, &mut block).unwrap();
    assert_eq!(block, [0; 8192]);

    target.admin.detach(&nqn(), Nsid(1)).unwrap();
    assert_eq!(changed(&mut watcher, &mut request), [1]);
    for host in [&mut host, &mut after] {
        let status = status_of(host.read(1, 0, &mut block));
        assert_eq!(status, Some(Status::INVALID_FIELD.dnr()));
    }
    drop(early.keep_alive());
    assert_eq!(
        target.admin.detach(&nqn(), Nsid(1)),
        Err(AdminError::NoNamespace {
            nqn: nqn(),
            nsid: Nsid(1)
        })
    );
}

/// A write that a store holds: the change is answered all the same, its hosts reach nothing, others go on, and the end of the write is told.
fn with_a_held_write(take_away: impl FnOnce(&Target) -> Closed) {
    let (target, place) = Target::serving(&on());
    let address = place.address.to_string();
    let (gate, store) = Gate::over(memory(), 1);
    target.attach(&disk(1, store)).unwrap();
    target.attach(&disk(2, memory())).unwrap();
    let ours = host_named("nqn.2026-11.io.example:ours");
    let mut host = Initiator::connect(&address, NQN, &ours).unwrap();
    let theirs = host_named("nqn.2026-11.io.example:theirs");
    let mut other = Initiator::connect(&address, NQN, &theirs).unwrap();
    let write = thread::spawn(move || host.write(1, 0, &[9; 4096]));
    gate.wait_held(1);
    let Closed::Later(closing) = take_away(&target) else {
        panic!("the store has a write")
    };
    assert!(!closing.is_over(), "the store has it still");
    let mut block = [0; 4096];
    other.read(2, 0, &mut block).unwrap();
    target.attach(&disk(3, memory())).unwrap();
    assert!(!closing.is_over(), "the store has it still");
    gate.open();
    // Whether the host still hears of it is the connection's matter.
    let _answered = write.join().unwrap();
    wait_over(&closing);
}

fn wait_over(closing: &Closing) {
    let by = Instant::now() + Duration::from_secs(10);
    while !closing.is_over() {
        assert!(Instant::now() < by, "the end is not told");
        thread::yield_now();
    }
}

/// A read that a store holds, and then its host is to see the namespace no longer: that is told as closing until the read has ended, which is answered as
/// any other.
#[test]
fn a_namespace_is_hidden_while_a_store_has_a_read() {
    let (target, place) = Target::serving(&on());
    let address = place.address.to_string();
    let (gate, store) = Gate::over_reads(memory(), 1);
    target.attach(&disk(1, store)).unwrap();
    let names = ["ours", "theirs", "third"].map(|name| format!("nqn.2026-11.io.example:{name}"));
    let only = |shown: &[String]| {
        let hosts = shown.iter().map(|name| Nqn::parse(name).unwrap());
        Visibility::Hosts(hosts.collect())
    };
    let [ours, theirs, third] = names
        .each_ref()
        .map(|name| Initiator::connect(&address, NQN, &host_named(name)).unwrap());
    let (mut ours, mut theirs, mut third) = (ours, theirs, third);
    theirs.write(1, 0, &[9; 4096]).unwrap();
    let read = thread::spawn(move || {
        let mut block = [0; 4096];
        let read = ours.read(1, 0, &mut block);
        (ours, read, block)
    });
    gate.wait_held(1);
    let hide = |shown| target.admin.set_visibility(&nqn(), Nsid(1), only(shown));
    let Ok(Closed::Later(closing)) = hide(&names[1..]) else {
        panic!("the store has a read")
    };
    assert!(!closing.is_over(), "the store has it still");
    let mut block = [0; 4096];
    theirs.read(1, 0, &mut block).unwrap();
    assert_eq!(
        hide(&names[1..2]),
        Ok(Closed::Done),
        "the third has nothing there"
    );
    let gone = Some(Status::INVALID_FIELD.dnr());
    assert_eq!(status_of(third.read(1, 0, &mut block)), gone);
    assert!(!closing.is_over(), "the store has it still");
    gate.open();
    let (mut ours, answered, read) = read.join().unwrap();
    answered.unwrap();
    assert_eq!(read, [9; 4096]);
    wait_over(&closing);
    assert_eq!(status_of(ours.read(1, 0, &mut block)), gone);
}

#[test]
fn a_detach_is_answered_while_a_store_has_a_write() {
    let detach = |target: &Target| target.admin.detach(&nqn(), Nsid(1)).unwrap();
    with_a_held_write(detach);
}

#[test]
fn a_host_is_denied_while_a_store_has_a_write_of_its() {
    let deny = |target: &Target| {
        let theirs = Nqn::parse("nqn.2026-11.io.example:theirs").unwrap();
        let only = HostPolicy::Only(vec![theirs]);
        target.admin.set_hosts(&nqn(), only).unwrap()
    };
    with_a_held_write(deny);
}

#[test]
fn a_change_that_leaves_nothing_says_so() {
    let (target, place) = Target::serving(&on());
    let address = place.address.to_string();
    target.attach(&disk(1, memory())).unwrap();
    let mut host = Initiator::connect(&address, NQN, &two_queues()).unwrap();
    host.write(1, 0, &[9; 4096]).unwrap();
    let id = target.admin.controllers().unwrap()[0].id;
    assert_eq!(target.admin.end_controller(id), Ok(Closed::Done));
    assert_eq!(target.admin.controllers().unwrap(), []);
    let nobody = Visibility::Hosts(Vec::new());
    let hidden = target.admin.set_visibility(&nqn(), Nsid(1), nobody);
    assert_eq!(hidden, Ok(Closed::Done));
    assert_eq!(target.admin.detach(&nqn(), Nsid(1)), Ok(Closed::Done));
}

/// "My host cannot connect" is told with its name and the reason.
#[test]
fn a_refused_host_is_told() {
    let (target, place) = Target::serving(&on());
    let address = place.address.to_string();
    let only = HostPolicy::Only(Vec::new());
    target.admin.set_hosts(&nqn(), only).unwrap();
    let name = "nqn.2026-11.io.example:ours";
    let nowhere = "nqn.2026-11.io.example:nowhere";
    for (subsystem, status, is_known) in [
        (NQN, Status::CONNECT_INVALID_HOST.dnr(), true),
        (nowhere, Status::CONNECT_INVALID_PARAMETERS.dnr(), false),
    ] {
        assert!(Initiator::connect(&address, subsystem, &host_named(name)).is_err());
        let patience = Duration::from_secs(10);
        let mut told = std::iter::from_fn(|| target.events.recv_timeout(patience).ok());
        let refused = told.find_map(|event| match event {
            TargetEvent::HostRefused(refused) => Some(refused),
            _ => None,
        });
        let refused = refused.unwrap();
        assert_eq!(refused.subsystem, Nqn::parse(subsystem).ok());
        assert_eq!(refused.host, Nqn::parse(name).ok());
        assert_eq!((refused.status, refused.is_known), (status, is_known));
        assert!(refused.peer.ip().is_loopback());
    }
}

#[test]
fn what_cannot_be_attached_leaves_all_as_it_was() {
    let (target, place) = Target::serving(&on());
    let address = place.address.to_string();
    target.attach(&disk(1, memory())).unwrap();
    assert_eq!(
        target.attach(&disk(1, memory())),
        Err(AdminError::NsidTaken {
            nqn: nqn(),
            nsid: Nsid(1)
        })
    );
    let twin = Namespace::of_store(
        5,
        memory(),
        Identity::of_raw("test", &1_u32.to_le_bytes()),
        4096,
    );
    assert_eq!(
        target.attach(&Arc::new(twin)),
        Err(AdminError::SameContent {
            nqn: nqn(),
            nsid: Nsid(1)
        })
    );
    assert!(matches!(
        target.attach(&disk(1025, memory())),
        Err(AdminError::Config(_))
    ));
    let elsewhere = Nqn::parse("nqn.2026-11.io.example:nowhere").unwrap();
    assert_eq!(
        target
            .admin
            .attach(&elsewhere, disk(2, memory()), Visibility::All),
        Err(AdminError::NoSubsystem { nqn: elsewhere })
    );
    let other = Namespace::of_store(1, memory(), Identity::of_raw("test", b"another"), 4096);
    assert_eq!(
        target.admin.replace(&nqn(), Arc::new(other)),
        Err(AdminError::OtherDisk {
            nsid: Nsid(1),
            what: "the UUID"
        })
    );
    let host = Initiator::connect(&address, NQN, &two_queues()).unwrap();
    assert_eq!(nsids(&host), [1]);
}

#[test]
fn a_namespace_is_there_for_the_hosts_that_may_see_it() {
    let (target, place) = Target::serving(&on());
    let address = place.address.to_string();
    let (ours, theirs) = (
        "nqn.2026-11.io.example:ours",
        "nqn.2026-11.io.example:theirs",
    );
    let only = |name: &str| Visibility::Hosts(vec![Nqn::parse(name).unwrap()]);
    target.attach(&disk(1, memory())).unwrap();
    target
        .admin
        .attach(&nqn(), disk(2, memory()), only(ours))
        .unwrap();
    let mut mine = Initiator::connect(&address, NQN, &host_named(ours)).unwrap();
    let mut other = Initiator::connect(&address, NQN, &host_named(theirs)).unwrap();
    assert_eq!((nsids(&mine), nsids(&other)), (vec![1, 2], vec![1]));
    let mut block = [0; 4096];
    mine.read(2, 0, &mut block).unwrap();

    // It is hidden from one and shown to the other, who has it at once.
    target
        .admin
        .set_visibility(&nqn(), Nsid(2), only(theirs))
        .unwrap();
    assert_eq!(
        status_of(mine.read(2, 0, &mut block)),
        Some(Status::INVALID_FIELD.dnr())
    );
    mine.read(1, 0, &mut block).unwrap();
    other = Initiator::connect(&address, NQN, &host_named(theirs)).unwrap();
    assert_eq!(nsids(&other), [1, 2]);
    other.read(2, 0, &mut block).unwrap();
}

#[test]
fn a_host_that_is_denied_is_gone_and_stays_out() {
    let (target, place) = Target::serving(&on());
    let address = place.address.to_string();
    let (ours, theirs) = (
        "nqn.2026-11.io.example:ours",
        "nqn.2026-11.io.example:theirs",
    );
    target.attach(&disk(1, memory())).unwrap();
    let mut mine = Initiator::connect(&address, NQN, &host_named(ours)).unwrap();
    let mut other = Initiator::connect(&address, NQN, &host_named(theirs)).unwrap();
    let mut block = [0; 4096];
    other.read(1, 0, &mut block).unwrap();
    let only = HostPolicy::Only(vec![Nqn::parse(ours).unwrap()]);
    target.admin.set_hosts(&nqn(), only).unwrap();
    assert!(other.read(1, 0, &mut block).unwrap_err().ends_connection());
    assert!(Initiator::connect(&address, NQN, &host_named(theirs)).is_err());
    mine.read(1, 0, &mut block).unwrap();
    let gone = target.events.iter().find_map(|event| match event {
        TargetEvent::HostGone { host, why, .. } => Some((host, why)),
        _ => None,
    });
    assert_eq!(gone, Some((Nqn::parse(theirs).unwrap(), Gone::Ended)));
    // The discovery log is the host's own.
    let as_theirs = discover(&address, &host_named(theirs)).unwrap();
    assert_eq!(names(&as_theirs), [DISCOVERY_NQN], "the service itself");
    let as_ours = discover(&address, &host_named(ours)).unwrap();
    assert_eq!(names(&as_ours), [NQN, DISCOVERY_NQN]);
}

#[test]
fn listeners_and_referrals_come_and_go_and_discovery_tells() {
    let (target, place) = Target::serving(&on());
    let first = place.address.to_string();
    target.attach(&disk(1, memory())).unwrap();
    let host = "nqn.2026-11.io.example:watcher";
    let mut watcher = Queue::admin_of(&place, DISCOVERY_NQN, host);
    watcher.notify(DISCOVERY);
    let request = watcher.send_event_request();
    let mut connected = Initiator::connect(&first, NQN, &two_queues()).unwrap();

    let second = target.listen(2).address.to_string();
    let event = watcher.response();
    assert_eq!(
        (event.cid, event.dw0, event.status),
        (request, DISCOVERY_CHANGED, 0)
    );
    let records = u64::from_le_bytes(watcher.log_page(0x70, 1024)[8..16].try_into().unwrap());
    assert_eq!(records, 4, "the subsystem and the service, each at both");
    let again = bind("127.0.0.1:0".parse().unwrap(), SuccessFlag::Always).unwrap();
    assert_eq!(
        target.admin.add_listener(2, Box::new(again)),
        Err(AdminError::ListenerTaken { port_id: 2 })
    );

    watcher.send_event_request();
    target.admin.remove_listener(1).unwrap();
    assert_eq!(watcher.response().dw0, DISCOVERY_CHANGED);
    assert!(TcpStream::connect(&first).is_err(), "nobody listens there");
    connected.read(1, 0, &mut [0; 4096]).unwrap();
    Initiator::connect(&second, NQN, &two_queues()).unwrap();
    assert_eq!(
        target.admin.remove_listener(1),
        Err(AdminError::NoListener { port_id: 1 })
    );

    let other = "nqn.2026-11.io.example:other";
    target.create(other, HostPolicy::Only(Vec::new()));
    watcher.log_page(0x70, 1024);
    watcher.send_event_request();
    assert_eq!(watcher.response().dw0, DISCOVERY_CHANGED, "it was created");
    watcher.log_page(0x70, 1024);
    watcher.send_event_request();
    // Behind which the request has been taken; nobody is connected to the other subsystem, so nothing else happens.
    watcher.csts();
    let watching = HostPolicy::Only(vec![Nqn::parse(host).unwrap()]);
    let name = Nqn::parse(other).unwrap();
    target.admin.set_hosts(&name, watching).unwrap();
    assert_eq!(watcher.response().dw0, DISCOVERY_CHANGED);
    let records = u64::from_le_bytes(watcher.log_page(0x70, 1024)[8..16].try_into().unwrap());
    assert_eq!(records, 3, "both subsystems and the service, each at one");

    let referral = Referral {
        transport: Transport::Tcp,
        address: "198.51.100.7:8009".parse().unwrap(),
        port_id: 9,
    };
    target.admin.set_referrals(vec![referral]).unwrap();
    let records = discover(&second, &two_queues()).unwrap();
    assert_eq!(names(&records), [NQN, DISCOVERY_NQN, DISCOVERY_NQN]);
    let types: Vec<u8> = records.iter().map(|it| it.subsystem_type).collect();
    assert_eq!(types, [2, 1, 3], "subsystem, referral, this service");
    assert_eq!(records[1].address, "198.51.100.7");
}

#[test]
fn a_deleted_subsystem_takes_its_controllers_and_stores_along() {
    let (target, place) = Target::serving(&on());
    let address = place.address.to_string();
    let first = disk(1, memory());
    target.attach(&first).unwrap();
    let other = "nqn.2026-11.io.example:other";
    target.create(other, HostPolicy::Any);
    // NSIDs are a subsystem's own.
    let elsewhere = disk(1, memory());
    let name = Nqn::parse(other).unwrap();
    target
        .admin
        .attach(&name, elsewhere, Visibility::All)
        .unwrap();
    let mut here = Initiator::connect(&address, NQN, &two_queues()).unwrap();
    let mut there = Initiator::connect(&address, other, &two_queues()).unwrap();
    here.write(1, 0, &[1; 4096]).unwrap();
    there.write(1, 0, &[2; 4096]).unwrap();
    let mut block = [0; 4096];
    here.read(1, 0, &mut block).unwrap();
    assert_eq!(block, [1; 4096]);
    let controllers = target.admin.controllers().unwrap();
    let queues: Vec<_> = controllers.iter().map(|it| it.io_queues.clone()).collect();
    assert_eq!(queues, [[1, 2], [1, 2]]);
    assert!(controllers.iter().all(|it| it.ready && it.peer.is_some()));
    let connected_at = |at: usize| controllers[at].connected_at.unwrap();
    assert!(connected_at(0) <= connected_at(1) && connected_at(1) <= SystemTime::now());
    // When that was does not depend on when it is asked.
    assert_eq!(target.admin.controllers().unwrap(), controllers);

    target.admin.delete_subsystem(&nqn()).unwrap();
    assert!(Arc::into_inner(first).is_some(), "nobody has its namespace");
    assert!(here.read(1, 0, &mut block).unwrap_err().ends_connection());
    assert!(Initiator::connect(&address, NQN, &two_queues()).is_err());
    there.read(1, 0, &mut block).unwrap();
    assert_eq!(block, [2; 4096]);
    let id = target.admin.controllers().unwrap()[0].id;
    target.admin.end_controller(id).unwrap();
    assert!(there.read(1, 0, &mut block).unwrap_err().ends_connection());
}

/// Connections and queues of one host are bounded, and another host still gets in.
#[test]
fn a_host_has_no_more_than_its_share_of_connections() {
    let target = Target::start(&on());
    let limits = ControllerLimits {
        connections_per_host_max: 4,
        io_queues_per_host_max: 2,
        ..ControllerLimits::default()
    };
    target
        .admin
        .create_subsystem(subsystem(nqn(), HostPolicy::Any, limits), Life::default())
        .unwrap();
    let address = target.listen(1).address.to_string();
    target.attach(&disk(1, memory())).unwrap();
    let ours = host_named("nqn.2026-11.io.example:ours");
    let mut first = Initiator::connect(&address, NQN, &ours).unwrap();
    assert_eq!(first.io_queues(), 2);
    // The fourth connection is the second admin queue; its I/O queue is a third.
    let refused = Initiator::connect(&address, NQN, &ours).err().unwrap();
    assert!(
        refused
            .to_string()
            .contains(&Status::CONNECT_CONTROLLER_BUSY.to_string()),
        "{refused}"
    );
    first.read(1, 0, &mut [0; 4096]).unwrap();
    let other = host_named("nqn.2026-11.io.example:other");
    Initiator::connect(&address, NQN, &other).unwrap();
}

#[test]
fn the_flight_recorder_has_what_was_attached_and_detached() {
    let (target, place) = Target::serving(&on());
    let _ = place.address.to_string();
    let attached = disk(3, memory());
    target.attach(&attached).unwrap();
    let smaller = disk(3, memory()).as_ref().clone().limited_to(1);
    let resized = Arc::new(smaller.succeeding(&attached));
    target.admin.replace(&nqn(), resized).unwrap();
    target.admin.detach(&nqn(), Nsid(3)).unwrap();
    // Refused: nothing changes.
    target.admin.detach(&nqn(), Nsid(3)).unwrap_err();
    let events = target.telemetry.events();
    let told = events.iter().map(|it| (it.event.kind, it.event.nsid));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            (EventKind::Attached, 3),
            (EventKind::Resized, 3),
            (EventKind::Detached, 3)
        ]
    );
}

/// One subsystem's MDTS and queues are smaller than those that connections are made for.
#[test]
fn a_subsystem_may_have_smaller_limits_than_its_connections() {
    let target = Target::start(&on());
    let limits = ControllerLimits {
        transfer_bytes_max: 8192,
        queue_entries_max: 8,
        ..ControllerLimits::default()
    };
    target.create_limited(NQN, HostPolicy::Any, limits);
    let place = target.listen(1);
    target.attach(&disk(1, memory())).unwrap();
    // Its admin queue has the 32 entries of Linux's, its I/O queue eight.
    let host = "nqn.2026-11.io.example:host";
    let (mut admin, cntlid) = Queue::admin(&place, host, Duration::ZERO);
    let identify = admin.fetch(0x06, 0, [1, 0, 0], 4096).unwrap();
    assert_eq!(identify[77], 1, "MDTS");
    let (_, refused) = Queue::try_io(&place, host, cntlid, 1);
    assert_eq!(
        refused.status,
        Status::CONNECT_INVALID_PARAMETERS.dnr().to_wire() >> 1
    );
    let mut io = Queue::io_of(&place, host, cntlid, 8);
    let too_long = Status::INVALID_FIELD.dnr().to_wire() >> 1;
    assert_eq!(io.read_beyond(0, 3).status, too_long);
    let write = io.send_long_write(0, 3);
    let answer = io.response();
    assert_eq!((answer.cid, answer.status), (write, too_long));
    io.write(0, 7);
    assert_eq!(io.response().status, 0);
    assert_eq!(
        io.fetch(0x02, 1, [0, 0, 1], 8192).unwrap()[..4096],
        [7; 4096]
    );
    // What it may not have: longer ones.
    let name = Nqn::parse("nqn.2026-11.io.example:large").unwrap();
    let large = ControllerLimits {
        transfer_bytes_max: 2 << 20,
        ..ControllerLimits::default()
    };
    let refused = target
        .admin
        .create_subsystem(subsystem(name, HostPolicy::Any, large), Life::default());
    assert_eq!(refused, Err(AdminError::Connection));
}
