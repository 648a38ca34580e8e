//! What a host set and must hold through kill -9 and a restart: a reservation, and write protection.

use std::time::Duration;

use admin_proto::v1::namespace_service_client::NamespaceServiceClient;
use admin_proto::v1::{GetNamespaceRequest, WriteProtection};
use frontend_nvme::conformance::{Queue, host_id};

use crate::admin::{Client, start, with_admin};
use crate::raw::place;
use crate::target::{Folder, NQN, Target};

const A: &str = "nqn.2026-11.io.example:a";
const B: &str = "nqn.2026-11.io.example:b";
const KEY_A: u64 = 0xA1A2_A3A4_A5A6_A7A8;

const SUCCESS: u16 = 0;
/// Reservation Conflict, Do Not Retry.
const CONFLICT: u16 = 0x4083;
/// Namespace is Write Protected, Do Not Retry.
const WRITE_PROTECTED: u16 = 0x4020;

const SET_FEATURES: u8 = 0x09;
const WRITE_PROTECTION: u32 = 0x84;
const REGISTER: u8 = 0x0D;
const REPORT: u8 = 0x0E;
const ACQUIRE: u8 = 0x11;
/// Of Reservation Register.
const PTPL_1: u32 = 3 << 30;
const WRITE_EXCLUSIVE: u32 = 1 << 8;

struct Host {
    admin: Queue,
    io: Queue,
}

impl Host {
    fn connect(target: &Target, name: &str) -> Host {
        let (admin, cntlid) = Queue::admin(&place(&target.address, NQN), name, Duration::ZERO);
        let io = Queue::io(&place(&target.address, NQN), name, cntlid, 1);
        Host { admin, io }
    }

    fn write(&mut self, nsid: u32) -> u16 {
        self.io.bring(0x01, nsid, [0, 0, 0], &[7; 4096]).status
    }

    fn protect(&mut self, nsid: u32, state: u32) -> u16 {
        let cdw = [WRITE_PROTECTION, state, 0];
        self.admin.plain(SET_FEATURES, nsid, cdw).status
    }

    fn report(&mut self) -> Vec<u8> {
        let report = self.io.fetch(REPORT, 1, [4096 / 4 - 1, 1, 0], 4096);
        report.unwrap()[..128].to_vec()
    }
}

/// Who uses a namespace, as an operator is told: name, identifier, controllers, whether it has done I/O, registrant, holder.
type User = (String, String, u32, bool, bool, bool);

fn users(client: &Client, nsid: u32) -> Vec<User> {
    let request = GetNamespaceRequest {
        subsystem_nqn: NQN.to_owned(),
        nsid,
    };
    let answer = client.call(async |channel| {
        NamespaceServiceClient::new(channel)
            .get_namespace(request)
            .await
    });
    let hosts = answer.unwrap().hosts.into_iter();
    hosts
        .map(|it| {
            let has_done_io = it.last_io_at.is_some();
            let (registrant, holder) = (it.registrant, it.reservation_holder);
            (
                it.host_nqn,
                it.host_id,
                it.controllers,
                has_done_io,
                registrant,
                holder,
            )
        })
        .collect()
}

fn user(name: &str, of: &str, controllers: u32, has_done_io: bool, reserves: bool) -> User {
    let id = host_id(of);
    let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
    (
        name.to_owned(),
        id,
        controllers,
        has_done_io,
        reserves,
        reserves,
    )
}

/// Namespaces 1 and 2 are files, one to be reserved and one to be protected.
#[test]
fn reservations_and_write_protection_survive_kill_9() {
    let folder = Folder::new("kept");
    let disks = ["reserved.raw", "protected.raw"].map(|name| {
        let path = folder.path(name);
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        format!("file:{}", path.display())
    });
    let stores = [disks[0].as_str(), disks[1].as_str()];
    let (socket, arguments) = with_admin(&folder);
    let protection = || -> Vec<WriteProtection> {
        let all = Client::connect(&socket).namespaces();
        all.iter().map(|it| it.write_protection()).collect()
    };
    let target = start(&arguments, &stores);
    let (mut a, mut b) = (Host::connect(&target, A), Host::connect(&target, B));
    let keys = [0, KEY_A].map(u64::to_le_bytes).concat();
    let registered = a.io.bring(REGISTER, 1, [PTPL_1, 0, 0], &keys);
    let keys = [KEY_A, 0].map(u64::to_le_bytes).concat();
    let acquired = a.io.bring(ACQUIRE, 1, [WRITE_EXCLUSIVE, 0, 0], &keys);
    assert_eq!((registered.status, acquired.status), (SUCCESS, SUCCESS));
    assert_eq!((b.write(1), b.write(2)), (CONFLICT, SUCCESS));
    assert_eq!(a.protect(2, 1), SUCCESS);
    assert_eq!(b.write(2), WRITE_PROTECTED);
    let reported = a.report();
    assert_eq!(
        (reported[4], reported[9], &reported[80..96]),
        (1, 1, host_id(A).as_slice()),
        "Write Exclusive, PTPLS, HOSTID of the only registrant"
    );
    let told = [WriteProtection::None, WriteProtection::ByHost];
    assert_eq!(protection(), told);
    let client = Client::connect(&socket);
    let both = |nsid, reserves, a_has_done_io| {
        let users = users(&client, nsid);
        let a = user(A, A, 1, a_has_done_io, reserves);
        assert_eq!(users, [a, user(B, B, 1, true, false)], "namespace {nsid}");
    };
    both(1, true, true);
    both(2, false, false);
    target.kill();

    let target = start(&arguments, &stores);
    // Its identifier is all that is known of a host that has a registration and is not there.
    let users = users(&Client::connect(&socket), 1);
    assert_eq!(users, [user("", A, 0, false, true)]);
    let (mut a, mut b) = (Host::connect(&target, A), Host::connect(&target, B));
    assert_eq!(a.report(), reported);
    assert_eq!((a.write(1), b.write(1)), (SUCCESS, CONFLICT));
    assert_eq!((a.write(2), b.write(2)), (WRITE_PROTECTED, WRITE_PROTECTED));
    assert_eq!(protection(), told);
    // Until power cycle: the next start lifts it.
    assert_eq!((a.protect(2, 0), a.protect(2, 2)), (SUCCESS, SUCCESS));
    assert_eq!(
        protection(),
        [WriteProtection::None, WriteProtection::UntilRestart]
    );
    target.kill();
    let target = start(&arguments, &stores);
    assert_eq!(Host::connect(&target, B).write(2), SUCCESS);
    assert_eq!(protection(), [WriteProtection::None; 2]);
}
