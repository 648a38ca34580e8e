//! Random reads and writes through a queue to the project's own target, against a model: whatever carries the queue.

use namespace::{Identity, Namespace};
use nvme::initiator::{Blocks, command};
use nvme_spec::{Lba, Nsid, Status};
use reactor::buf::IoBuf;
use store::{OpenOptions, SharedStore, StoreSpec};
use store_nvme::queue::{QueueOptions, Transport};

use crate::host::Host;
use frontend_nvme::conformance::{NQN, Target};

/// Bytes of the disk.
pub const DISK: usize = 4 << 20;
/// Commands of one round.
const COMMANDS: usize = 600;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from(word ^ (word >> 31)).unwrap() % limit
    }
}

/// A range of the disk, and what a read must find there; a write has changed it already.
struct Running {
    start: usize,
    len: usize,
    expected: Option<Vec<u8>>,
}

/// What is served.
pub fn disk(lba_bytes: u32) -> Namespace {
    let spec = StoreSpec::Mem { bytes: DISK as u64 };
    let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    Namespace::of_store(1, store, Identity::of_raw("test", b"disk"), lba_bytes)
}

/// Reads and writes of 512 bytes to 1 MiB at random places of the [`disk`], none of which overlaps another that is under way, against a model.
pub fn agrees(transport: &dyn Transport, target: &Target, lba_bytes: u32, options: &QueueOptions) {
    let to = target.address.parse().unwrap();
    let mut host = Host::attach(transport, to, NQN, options);
    let depth = options.depth;
    assert_eq!(host.attached.namespaces[0].lba_bytes, lba_bytes);
    let mut random = Random(u64::from(lba_bytes) + u64::from(depth));
    let mut model = vec![0u8; DISK];
    let mut running: Vec<Option<Running>> = (0..depth).map(|_| None).collect();
    let (mut submitted, mut ended) = (0, 0);
    while ended < COMMANDS {
        while submitted < COMMANDS && host.io.queue.room() > 0 {
            let unit = lba_bytes as usize;
            let longest = (1 << random.below(21)).max(unit) / unit;
            let len = unit * (1 + random.below(longest));
            let start = unit * random.below((DISK - len) / unit + 1);
            let is_free =
                |other: &Running| start + len <= other.start || other.start + other.len <= start;
            if !running.iter().flatten().all(is_free) {
                break;
            }
            submitted += 1;
            let blocks = Blocks {
                lba: Lba((start / unit) as u64),
                count: u32::try_from(len / unit).unwrap(),
                lba_bytes,
            };
            let place = &mut model[start..start + len];
            let (slot, expected) = if random.below(2) == 0 {
                let fill = u8::try_from(submitted % 251).unwrap();
                place
                    .iter_mut()
                    .zip(0u8..=255)
                    .for_each(|(byte, at)| *byte = at ^ fill);
                place[len - 1] = fill;
                let buf = IoBuf::from_bytes(place).unwrap();
                (
                    host.io.submit(&command::write(Nsid(1), blocks), Some(buf)),
                    None,
                )
            } else {
                let expected = place.to_vec();
                let buf = IoBuf::heap(len).unwrap();
                let slot = host.io.submit(&command::read(Nsid(1), blocks), Some(buf));
                (slot, Some(expected))
            };
            running[slot.index()] = Some(Running {
                start,
                len,
                expected,
            });
        }
        host.io.turn();
        for (slot, cqe, buf) in host.io.ended() {
            ended += 1;
            assert_eq!(cqe.status(), Status::SUCCESS);
            let done = running[slot.index()].take().unwrap();
            let bytes = buf.unwrap().to_vec();
            assert_eq!(bytes.len(), done.len);
            assert!(
                done.expected.is_none_or(|expected| expected == bytes),
                "at {}",
                done.start
            );
        }
    }
    assert_eq!(host.io.queue.room(), usize::from(depth));
    let (cqe, _) = host.io.one(&command::flush(Nsid(1)), None);
    assert_eq!(cqe.status(), Status::SUCCESS);
    drop(host);
}
