//! A dataset and room to write behind it as one disk, from the daemon's command line to the bytes on the wire.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use admin_proto::v1::namespace_service_client::NamespaceServiceClient;
use admin_proto::v1::{NamespaceKind, NamespacePart, WriteProtection};
use frontend_nvme::conformance::Queue;
use initiator::{Initiator, Options};
use nvme_spec::Status;

use crate::admin::{Client, start, with_admin};
use crate::raw::place;
use crate::target::{Folder, NQN, Target, pack, status_of, tokens};

const READ_ONLY_RANGE: Status = Status::WRITE_TO_READ_ONLY_RANGE.dnr();
const HOST: &str = "nqn.2026-11.io.example:host";
const OK: Status = Status::SUCCESS;
const BLOCK: usize = 4096;
/// Blocks of the dataset, and of the room behind it.
const VIEW: u64 = 30;
const ROOM: u64 = 16;

/// The last block of the dataset is not full.
fn dataset() -> Vec<u8> {
    tokens()[..30 * BLOCK - 100].to_vec()
}

/// The whole disk, where the room holds this.
fn disk(room: &[u8]) -> Vec<u8> {
    let mut bytes = dataset();
    bytes.resize(30 * BLOCK, 0);
    bytes.extend(room);
    bytes
}

fn read(host: &mut Initiator) -> Vec<u8> {
    let mut bytes = vec![0xEE; host.namespace(1).unwrap().bytes().try_into().unwrap()];
    host.read(1, 0, &mut bytes).unwrap();
    bytes
}

/// A daemon's mixed namespace 1, and its room.
struct Served {
    folder: Folder,
    spec: String,
    room: File,
}

impl Served {
    /// A plus stands in the name of the dataset.
    fn new(name: &str) -> Served {
        let folder = Folder::new(name);
        let (dataset_path, room_path) = (folder.path("a+b.xvol"), folder.path("room.raw"));
        pack(&dataset_path, "u16+lz4", &dataset());
        let room = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&room_path)
            .unwrap();
        room.set_len(ROOM * BLOCK as u64).unwrap();
        let dataset_path = dataset_path.display().to_string().replace('+', "++");
        let spec = format!("mixed:{dataset_path}+file:{}", room_path.display());
        Served { folder, spec, room }
    }

    fn start(&self) -> Target {
        let (_, arguments) = with_admin(&self.folder);
        start(&arguments, &[&self.spec])
    }
}

#[test]
fn what_is_written_goes_to_the_room_and_a_command_that_touches_the_dataset_is_refused_whole() {
    let served = Served::new("mixed-writes");
    let target = served.start();
    let mut host = target.host(&Options::default());
    let info = host.namespace(1).unwrap();
    assert_eq!(info.bytes(), (VIEW + ROOM) * BLOCK as u64);
    assert!(!info.write_protected, "NSATTR bit 0");
    let at = |lba: u64| lba * BLOCK as u64;
    let mut room = vec![7; 16 * BLOCK];
    host.write(1, at(VIEW), &room).unwrap();
    assert!(read(&mut host) == disk(&room));
    // The last block of the dataset and the first of the room; in the capsule (8 KiB) and by R2T.
    for blocks in [2, 12] {
        let data = vec![9; blocks * BLOCK];
        let lba = VIEW - 1;
        assert_eq!(status_of(host.write(1, at(lba), &data)), READ_ONLY_RANGE);
        let count = u32::try_from(blocks).unwrap();
        let zeroed = host.write_zeroes(1, lba, count, true).unwrap();
        let marked = host.write_uncorrectable(1, lba, count).unwrap();
        let copied = host.copy(1, lba, &[(1, 0, count)], false).unwrap();
        let discarded = host.deallocate(1, &[(VIEW, 4), (lba, count)]).unwrap();
        let all = [zeroed, marked, copied, discarded];
        assert_eq!(all, [READ_ONLY_RANGE; 4], "{blocks} blocks");
    }
    let there = read(&mut host);
    let lba = usize::try_from(VIEW - 1).unwrap();
    let expected = &there[lba * BLOCK..(lba + 2) * BLOCK];
    let fused = host.compare_and_write(1, VIEW - 1, expected, &vec![9; 2 * BLOCK]);
    assert_eq!(fused.unwrap(), [Status::FUSED_FAILED, READ_ONLY_RANGE]);
    assert!(there == disk(&room), "nothing of them was done");
    assert!(read(&mut host) == disk(&room));
    // What does not change the dataset is of all blocks.
    let all = u32::try_from(VIEW + ROOM).unwrap();
    assert_eq!(host.verify(1, 0, all).unwrap(), OK);
    assert_eq!(host.compare(1, 0, &disk(&room)).unwrap(), OK);
    assert_eq!(host.copy(1, VIEW, &[(1, 3, 2)], false).unwrap(), OK);
    room[..2 * BLOCK].copy_from_slice(&dataset()[3 * BLOCK..5 * BLOCK]);
    let (lba, old, new) = (VIEW + 2, vec![7; BLOCK], vec![8; BLOCK]);
    assert_eq!(host.compare_and_write(1, lba, &old, &new).unwrap(), [OK; 2]);
    room[2 * BLOCK..3 * BLOCK].copy_from_slice(&new);
    host.flush(1).unwrap();
    assert!(read(&mut host) == disk(&room));
    let mut stored = vec![0; room.len()];
    served.room.read_exact_at(&mut stored, 0).unwrap();
    assert!(stored == room, "the file is the room alone");
    host.shutdown().unwrap();
}

/// Base, "Error Information": the entry of a refused write has the first block that nobody may write, and not the first of the command.
#[test]
fn a_refused_write_is_in_the_error_log_with_its_first_protected_block() {
    let folder = Folder::new("mixed-log");
    let path = folder.path("tokens.xvol");
    pack(&path, "none", &tokens()[..4 * BLOCK]);
    // Room before it as well: 8 blocks.
    let spec = format!("mixed:mem:32KiB+{}+mem:32KiB", path.display());
    let target = Target::start(&[&spec]);
    let (mut admin, cntlid) = Queue::admin(&place(&target.address, NQN), HOST, Duration::ZERO);
    let mut io = Queue::io(&place(&target.address, NQN), HOST, cntlid, 1);
    // 7 to 8, 8, 11 to 12, 12: blocks 8 to 11 are the dataset's.
    let write = |io: &mut Queue, lba: u32, blocks: u32| {
        let data = vec![1; usize::try_from(blocks).unwrap() * BLOCK];
        io.bring(0x01, 1, [lba, 0, blocks - 1], &data).status
    };
    let statuses = [(7, 2), (8, 1), (11, 2), (12, 1)].map(|(lba, n)| write(&mut io, lba, n));
    // DNR, SCT 1h, SC 82h.
    assert_eq!(statuses, [0x4182, 0x4182, 0x4182, 0]);
    let log = admin.log_page(0x01, 4 * 64);
    let number = |at: usize, bytes: usize| -> u64 {
        let bytes = log[at..at + bytes].iter().rev();
        bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    // The newest first: error count, SQID, status (phase in bit 0), LBA, NSID.
    let entry = |n: usize| {
        let at = n * 64;
        let status = number(at + 12, 2) >> 1;
        (
            number(at, 8),
            number(at + 8, 2),
            status,
            number(at + 16, 8),
            number(at + 24, 4),
        )
    };
    assert_eq!(entry(0), (3, 1, 0x4182, 11, 1));
    assert_eq!(entry(1), (2, 1, 0x4182, 8, 1));
    assert_eq!(entry(2), (1, 1, 0x4182, 8, 1));
    assert_eq!(entry(3).0, 0);
}

/// Set Features 84h is of the whole namespace: it comes first while it is set, and lifts nothing when it goes.
#[test]
fn write_protection_by_a_host_is_on_top_of_a_parts_own() {
    let served = Served::new("mixed-protected");
    let target = served.start();
    let (mut admin, cntlid) = Queue::admin(&place(&target.address, NQN), HOST, Duration::ZERO);
    let mut io = Queue::io(&place(&target.address, NQN), HOST, cntlid, 1);
    let mut both = || {
        [0, VIEW].map(|lba| {
            let lba = u32::try_from(lba).unwrap();
            io.bring(0x01, 1, [lba, 0, 0], &[5; BLOCK]).status
        })
    };
    let mut protect = |state| admin.plain(0x09, 1, [0x84, state, 0]).status;
    assert_eq!(both(), [0x4182, 0]);
    assert_eq!(protect(1), 0);
    assert_eq!(both(), [0x4020, 0x4020], "Namespace is Write Protected");
    assert_eq!(protect(0), 0);
    assert_eq!(both(), [0x4182, 0]);
    // It survives kill -9 as that of any other.
    assert_eq!(admin.plain(0x09, 1, [0x84, 1, 0]).status, 0);
    target.kill();
    let target = served.start();
    let mut host = target.host(&Options::default());
    let written = status_of(host.write(1, VIEW * BLOCK as u64, &[6; BLOCK]));
    assert_eq!(written, Status::NAMESPACE_WRITE_PROTECTED.dnr());
}

#[test]
fn the_same_disk_comes_back_after_kill_9() {
    let served = Served::new("mixed-killed");
    let (socket, arguments) = with_admin(&served.folder);
    let target = start(&arguments, &[]);
    let client = Client::connect(&socket);
    let nqn = crate::target::NQN;
    let attached = client
        .attach(crate::admin::source(nqn, &served.spec))
        .unwrap();
    assert_eq!((attached.nsid, &attached.source_text), (1, &served.spec));
    assert_eq!(attached.kind(), NamespaceKind::Mixed);
    assert_eq!(attached.write_protection(), WriteProtection::None);
    type Part = (u64, u64, NamespaceKind, bool, bool);
    let of = |part: &NamespacePart| -> Part {
        let has_view = part.view.is_some();
        (
            part.first_lba,
            part.block_count,
            part.kind(),
            part.read_only,
            has_view,
        )
    };
    let parts: Vec<_> = attached.parts.iter().map(of).collect();
    let view = (0, VIEW, NamespaceKind::View, true, true);
    let room = (VIEW, ROOM, NamespaceKind::Raw, false, false);
    assert_eq!(parts, [view, room]);
    let paths: Vec<_> = attached
        .parts
        .iter()
        .map(|part| part.path.as_str())
        .collect();
    let [dataset_path, room_path] = ["a+b.xvol", "room.raw"].map(|name| served.folder.path(name));
    assert_eq!(
        paths,
        [dataset_path.to_str().unwrap(), room_path.to_str().unwrap()]
    );
    // What is behind a part is served once.
    let again = client.attach(crate::admin::source(
        nqn,
        &format!("file:{}", room_path.display()),
    ));
    assert!(again.unwrap_err().message().contains("serve it once"));
    // Its end is where it is: that of a view, were it the last.
    let backwards = format!(
        "mixed:mem:1MiB+{}",
        dataset_path.display().to_string().replace('+', "++")
    );
    let nsid = client
        .attach(crate::admin::source(nqn, &backwards))
        .unwrap()
        .nsid;
    let resized = client.call(async |channel| {
        let request = crate::admin::resize(nsid, 8 << 20, true);
        NamespaceServiceClient::new(channel)
            .resize_namespace(request)
            .await
    });
    let refused = resized.unwrap_err();
    assert!(
        refused
            .message()
            .contains("the last part of this mixed namespace is a view"),
        "{refused}"
    );
    let mut host = target.host(&Options::default());
    let room = vec![3; 16 * BLOCK];
    host.write(1, VIEW * BLOCK as u64, &room).unwrap();
    host.flush(1).unwrap();
    let ids = host.namespace(1).unwrap().ids;
    target.kill();
    let target = start(&arguments, &[]);
    let mut host = target.host(&Options::default());
    assert_eq!(host.namespace(1).unwrap().ids, ids);
    assert!(read(&mut host) == disk(&room));
    let again = Client::connect(&socket).namespaces();
    assert_eq!(
        (again[0].uuid.as_str(), again[0].parts.len()),
        (attached.uuid.as_str(), 2)
    );
}

/// The parts before the last one stay what they are, memory among them.
#[test]
fn a_disk_that_grows_keeps_what_its_other_parts_hold() {
    let folder = Folder::new("mixed-grows");
    let (socket, arguments) = with_admin(&folder);
    let path = folder.path("room.raw");
    std::fs::write(&path, vec![2; 8 * BLOCK]).unwrap();
    let spec = format!("mixed:mem:32KiB+file:{}", path.display());
    let target = start(&arguments, &[&spec]);
    let mut host = target.host(&Options::default());
    host.write(1, 0, &vec![1; 8 * BLOCK]).unwrap();
    let client = Client::connect(&socket);
    let resized = client.call(async |channel| {
        let request = crate::admin::resize(1, 24 * BLOCK as u64, false);
        NamespaceServiceClient::new(channel)
            .resize_namespace(request)
            .await
    });
    assert_eq!(resized.unwrap().bytes_before, 16 * BLOCK as u64);
    let mut host = target.host(&Options::default());
    let mut bytes = vec![0xEE; 24 * BLOCK];
    host.read(1, 0, &mut bytes).unwrap();
    let wanted: Vec<u8> = [1, 2, 0]
        .into_iter()
        .flat_map(|byte| vec![byte; 8 * BLOCK])
        .collect();
    assert!(bytes == wanted);
    host.write(1, 23 * BLOCK as u64, &[4; BLOCK]).unwrap();
    host.flush(1).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 16 * BLOCK as u64);
    assert_eq!(std::fs::read(&path).unwrap()[15 * BLOCK..], [4; BLOCK]);
}
