//! What the SMART log counts goes on over ends of every kind.

use std::path::PathBuf;
use std::time::Duration;

use admin_proto::v1;
use admin_proto::v1::host_policy::Hosts;
use admin_proto::v1::subsystem_service_client::SubsystemServiceClient;
use frontend_nvme::conformance::Queue;
use initiator::{Initiator, Options};

use crate::admin::{Client, start, with_admin};
use crate::raw::place;
use crate::target::{Folder, NQN, Target};

const HOST: &str = "nqn.2026-11.io.example:host";
const OTHER: &str = "nqn.2026-11.io.example:other";
/// A data unit.
const UNIT_BYTES: usize = 512_000;

/// What a SMART log says that lasts a subsystem's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Smart {
    units_read: u64,
    units_written: u64,
    reads: u64,
    writes: u64,
    power_cycles: u64,
    unsafe_shutdowns: u64,
    error_log_entries: u64,
}

impl Smart {
    fn read(admin: &mut Queue) -> Smart {
        let log = admin.log_page(0x02, 512);
        let at = |at| u64::from_le_bytes(log[at..at + 8].try_into().unwrap());
        Smart {
            units_read: at(32),
            units_written: at(48),
            reads: at(64),
            writes: at(80),
            power_cycles: at(112),
            unsafe_shutdowns: at(144),
            error_log_entries: at(176),
        }
    }
}

struct Host {
    admin: Queue,
    io: Queue,
    /// Another host, for what is long.
    long: Initiator,
}

impl Host {
    fn connect(target: &Target) -> Host {
        let (admin, cntlid) = Queue::admin(&place(&target.address, NQN), HOST, Duration::ZERO);
        let io = Queue::io(&place(&target.address, NQN), HOST, cntlid, 1);
        let long = target.host(&Options::default());
        Host { admin, io, long }
    }

    /// One read and one write of a data unit each, a block that cannot be read, and a command that is none.
    fn work(&mut self) {
        let mut unit = vec![7; UNIT_BYTES];
        self.long.write(1, 0, &unit).unwrap();
        self.long.read(1, 0, &mut unit).unwrap();
        let block = [200, 0, 0];
        assert_eq!(self.io.plain(0x04, 1, block).status, 0, "marked");
        assert!(self.io.fetch(0x02, 1, block, 4096).is_err());
        assert_ne!(self.admin.plain(0xC1, 0, [0, 0, 0]).status, 0);
    }

    fn smart(&mut self) -> Smart {
        Smart::read(&mut self.admin)
    }
}

/// What so much work comes to.
fn worked(times: u64, power_cycles: u64, unsafe_shutdowns: u64) -> Smart {
    Smart {
        units_read: times,
        units_written: times,
        reads: times,
        writes: times,
        power_cycles,
        unsafe_shutdowns,
        error_log_entries: 2 * times,
    }
}

fn disk(folder: &Folder) -> String {
    let path = folder.path("disk.raw");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    format!("file:{}", path.display())
}

/// The records of lives in the state folder.
fn lives(folder: &Folder, end: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder.path("state")).unwrap();
    all.map(|it| it.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with(end))
        .collect()
}

#[test]
fn smart_counters_go_on_over_kill_9_and_over_an_orderly_end() {
    let folder = Folder::new("lives");
    let disk = disk(&folder);
    let (_, arguments) = with_admin(&folder);
    let target = start(&arguments, &[&disk]);
    let mut host = Host::connect(&target);
    host.work();
    assert_eq!(host.smart(), worked(1, 1, 0));
    // What a host was told survives the kill that follows at once.
    target.kill();

    let target = start(&arguments, &[&disk]);
    let mut host = Host::connect(&target);
    assert_eq!(host.smart(), worked(1, 2, 1));
    let errors = host.admin.log_page(0x01, 4096);
    assert_eq!(errors, vec![0; 4096], "entries end with the power");
    host.work();
    let errors = host.admin.log_page(0x01, 128);
    let counts = [0, 64].map(|at| u64::from_le_bytes(errors[at..at + 8].try_into().unwrap()));
    assert_eq!(counts, [4, 3], "Error Count");
    // An orderly end keeps what nobody was told of.
    host.work();
    assert_eq!(target.terminate(), Some(0));

    let target = start(&arguments, &[&disk]);
    let mut host = Host::connect(&target);
    assert_eq!(host.smart(), worked(3, 3, 1), "the kill is counted once");
    assert_eq!(target.terminate(), Some(0));
}

#[test]
fn a_damaged_record_is_set_aside_and_counting_begins_anew() {
    let folder = Folder::new("lives-damaged");
    let disk = disk(&folder);
    let (_, arguments) = with_admin(&folder);
    let target = start(&arguments, &[&disk]);
    let mut host = Host::connect(&target);
    host.work();
    assert_eq!(target.terminate(), Some(0));
    let [record] = &lives(&folder, ".life")[..] else {
        panic!("one record")
    };
    let mut bytes = std::fs::read(record).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    std::fs::write(record, &bytes).unwrap();
    let target = start(&arguments, &[&disk]);
    let mut host = Host::connect(&target);
    assert_eq!(host.smart(), worked(0, 1, 0));
    let [aside] = &lives(&folder, ".life.aside")[..] else {
        panic!("one set aside")
    };
    assert_eq!(std::fs::read(aside).unwrap(), bytes);
}

#[test]
fn each_subsystem_has_a_life_of_its_own_that_ends_with_it() {
    let folder = Folder::new("lives-two");
    let disk = disk(&folder);
    let (socket, arguments) = with_admin(&folder);
    let create = |client: &Client| {
        let made = client.call(async |channel| {
            let request = v1::CreateSubsystemRequest {
                nqn: OTHER.to_owned(),
                hosts: Some(v1::HostPolicy {
                    hosts: Some(Hosts::Any(v1::AnyHost {})),
                }),
                ..v1::CreateSubsystemRequest::default()
            };
            let mut service = SubsystemServiceClient::new(channel);
            service.create_subsystem(request).await
        });
        made.unwrap();
    };
    let smart_of_other = |target: &Target| {
        let mut admin = Queue::admin_of(&place(&target.address, NQN), OTHER, HOST);
        // A command that is none.
        assert_ne!(admin.plain(0xC1, 0, [0, 0, 0]).status, 0);
        Smart::read(&mut admin)
    };
    let other = |entries, power_cycles, unsafe_shutdowns| Smart {
        error_log_entries: entries,
        ..worked(0, power_cycles, unsafe_shutdowns)
    };
    let target = start(&arguments, &[&disk]);
    Host::connect(&target).work();
    create(&Client::connect(&socket));
    assert_eq!(smart_of_other(&target), other(1, 1, 0));
    assert_eq!(target.terminate(), Some(0));

    let target = start(&arguments, &[&disk]);
    assert_eq!(smart_of_other(&target), other(2, 2, 0));
    assert_eq!(Host::connect(&target).smart(), worked(1, 2, 0));
    target.kill();

    let target = start(&arguments, &[&disk]);
    assert_eq!(smart_of_other(&target), other(3, 3, 1));
    let client = Client::connect(&socket);
    let deleted = client.call(async |channel| {
        let request = v1::DeleteSubsystemRequest {
            nqn: OTHER.to_owned(),
            force: true,
        };
        let mut service = SubsystemServiceClient::new(channel);
        service.delete_subsystem(request).await
    });
    deleted.unwrap();
    create(&client);
    assert_eq!(smart_of_other(&target), other(1, 1, 0));
    assert_eq!(Host::connect(&target).smart(), worked(1, 3, 1));
    target.kill();

    let target = start(&arguments, &[&disk]);
    assert_eq!(smart_of_other(&target), other(2, 2, 1));
    assert_eq!(Host::connect(&target).smart(), worked(1, 4, 2));
    assert_eq!(lives(&folder, ".life").len(), 2);
}

#[test]
fn without_a_state_folder_the_counters_are_of_this_run() {
    let folder = Folder::new("lives-none");
    let disk = disk(&folder);
    for _ in 0..2 {
        let target = Target::start(&[&disk]);
        let mut host = Host::connect(&target);
        host.work();
        assert_eq!(host.smart(), worked(1, 1, 0));
        assert_eq!(target.terminate(), Some(0));
    }
}
