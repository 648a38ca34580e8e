//! What is fetched before anybody asks for it, through the daemon: orders over the admin service, and hints of hosts. Counted exactly.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use admin_proto::v1;
use admin_proto::v1::namespace_service_client::NamespaceServiceClient;
use admin_proto::v1::prefetch_request::What;
use admin_proto::v1::stats_service_client::StatsServiceClient;
use initiator::{Initiator, Options};
use nvme_spec::Status as NvmeStatus;
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::admin::{Client, start, with_admin};
use crate::target::{Folder, NQN, Random, Target};

const FRAME: u64 = 64 << 10;
const BLOCK: u64 = 4096;
const REACTORS: &str = "3";

/// A daemon of several reactors with a disk that nobody changes at the end of a line.
struct World {
    client: Client,
    target: Target,
    path: PathBuf,
    frames: u64,
    _folder: Folder,
}

/// Each 8 bytes of a frame say where they are.
fn content(frame: u64) -> Vec<u8> {
    let words = (frame * FRAME..(frame + 1) * FRAME).step_by(8);
    words.flat_map(u64::to_le_bytes).collect()
}

impl World {
    fn start(name: &str, frames: u64, limit: &str) -> World {
        let folder = Folder::new(name);
        let path = folder.path("disk.raw");
        let bytes: Vec<u8> = (0..frames).flat_map(content).collect();
        std::fs::write(&path, bytes).unwrap();
        let (socket, mut arguments) = with_admin(&folder);
        let more = ["--reactors", REACTORS, "--immutable", "--limit", limit];
        arguments.extend(more.map(str::to_owned));
        let target = start(&arguments, &[&format!("file:{}", path.display())]);
        World {
            client: Client::connect(&socket),
            target,
            path,
            frames,
            _folder: folder,
        }
    }

    /// A host with a queue on several reactors.
    fn host(&self) -> Initiator {
        self.target.host(&Options {
            queues: 2,
            ..Options::default()
        })
    }

    fn stats(&self) -> v1::NamespaceStats {
        let request = v1::GetStatsRequest::default();
        let call = async |channel| StatsServiceClient::new(channel).get_stats(request).await;
        let all = self.client.call(call).unwrap().namespaces;
        all.into_iter().find(|row| row.nsid == 1).unwrap()
    }

    fn ahead(&self) -> v1::PrefetchStats {
        self.stats().prefetch.unwrap()
    }

    /// Waits until so many frames have been fetched ahead.
    fn wait_fetched(&self, frames: u64) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let ahead = self.ahead();
            if ahead.fetched >= frames {
                assert_eq!(ahead.fetched, frames, "{ahead:?}");
                return;
            }
            assert!(Instant::now() < deadline, "{ahead:?}");
        }
    }

    fn order(&self, epoch: &str, quota_frames: u64) -> Order<'_> {
        let begin = v1::PrefetchBegin {
            subsystem_nqn: NQN.to_owned(),
            nsid: 1,
            epoch_id: epoch.to_owned(),
            quota_bytes: quota_frames * FRAME,
            ..v1::PrefetchBegin::default()
        };
        let (requests, stream) = mpsc::channel(16);
        let begin = v1::PrefetchRequest {
            what: Some(What::Begin(begin)),
        };
        requests.try_send(begin).unwrap();
        let call = async |channel| {
            NamespaceServiceClient::new(channel)
                .prefetch(ReceiverStream::new(stream))
                .await
        };
        Order {
            progress: self.client.call(call).unwrap(),
            requests: Some(requests),
            client: &self.client,
        }
    }
}

/// An order that is being given.
struct Order<'a> {
    client: &'a Client,
    requests: Option<Sender<v1::PrefetchRequest>>,
    progress: Streaming<v1::PrefetchResponse>,
}

impl Order<'_> {
    fn give(&self, frames: &[u64]) {
        let range = |frame: &u64| v1::PrefetchRange {
            offset: frame * FRAME,
            bytes: FRAME,
        };
        self.give_ranges(frames.iter().map(range).collect());
    }

    fn give_ranges(&self, ranges: Vec<v1::PrefetchRange>) {
        let what = Some(What::Ranges(v1::PrefetchRanges { ranges }));
        let requests = self.requests.as_ref().unwrap();
        requests.try_send(v1::PrefetchRequest { what }).unwrap();
    }

    /// There are no more.
    fn end(&mut self) {
        self.requests = None;
    }

    fn told(&mut self) -> Result<v1::PrefetchResponse, Status> {
        let told = self.client.runtime.block_on(self.progress.message());
        told.map(|told| told.expect("it ended without a last word"))
    }

    /// Until that is so.
    fn told_until(
        &mut self,
        is_so: impl Fn(&v1::PrefetchResponse) -> bool,
    ) -> v1::PrefetchResponse {
        loop {
            let told = self.told().unwrap();
            if is_so(&told) {
                return told;
            }
            assert!(!told.complete, "{told:?}");
        }
    }

    /// Why it ends.
    fn refused(&mut self) -> Status {
        loop {
            if let Err(status) = self.told() {
                return status;
            }
        }
    }
}

fn read_frame(host: &mut Initiator, frame: u64) {
    let mut found = vec![0; usize::try_from(FRAME).unwrap()];
    host.read(1, frame * FRAME, &mut found).unwrap();
    assert!(found == content(frame), "frame {frame}");
}

fn shuffled(count: u64) -> Vec<u64> {
    let mut frames: Vec<u64> = (0..count).collect();
    let mut random = Random::new(11);
    for at in (1..frames.len()).rev() {
        frames.swap(at, usize::try_from(random.below(at as u64 + 1)).unwrap());
    }
    frames
}

/// The reader of a shuffled order finds each frame, and whoever gave it hears how far it is; it is given in parts. When all of it is fetched its giver
/// goes, and what is left is no stream, neighbours or not.
#[test]
fn an_order_stays_ahead_of_its_reader_by_its_quota_and_is_exactly_what_is_fetched() {
    const QUOTA: u64 = 16;
    let world = World::start("prefetch-order", 256, "1GB/s,latency=1ms");
    let frames = shuffled(world.frames);
    let mut order = world.order("epoch 7", QUOTA);
    order.give(&frames[..100]);
    let told = order.told_until(|told| told.fetched_bytes == QUOTA * FRAME);
    assert_eq!(
        (told.epoch_id.as_str(), told.given_ranges, told.given_bytes),
        ("epoch 7", 100, 100 * FRAME)
    );
    assert_eq!(told.begun_bytes, QUOTA * FRAME);
    assert_eq!(told.ahead_bytes, QUOTA * FRAME);
    assert_eq!((told.hits, told.late, told.wasted), (0, 0, 0));
    order.give(&frames[100..]);
    let mut hosts = [world.host(), world.host()];
    for (n, frame) in (1..).zip(&frames) {
        if n == 100 {
            order.end();
        }
        read_frame(&mut hosts[usize::from(n % 2 == 0)], *frame);
        world.wait_fetched((n + QUOTA).min(world.frames));
        if n + QUOTA == world.frames {
            let last = order.told_until(|told| told.complete);
            assert_eq!(
                (last.given_ranges, last.fetched_bytes, last.ahead_bytes),
                (world.frames, world.frames * FRAME, QUOTA * FRAME)
            );
            assert_eq!((last.hits, last.late, last.wasted), (n, 0, 0));
        }
    }
    let all = world.stats();
    let expected = v1::PrefetchStats {
        fetched: world.frames,
        fetched_bytes: world.frames * FRAME,
        hits: world.frames,
        hit_bytes: world.frames * FRAME,
        ..v1::PrefetchStats::default()
    };
    assert_eq!(all.prefetch, Some(expected));
    assert_eq!(all.stored_bytes, world.frames * FRAME, "nothing twice");
}

#[test]
fn an_order_ends_with_its_reason() {
    let world = World::start("prefetch-ends", 64, "1GB/s,latency=1ms");
    let end = world.frames * FRAME;
    for (range, is) in [
        ((end - 4096, 4097), format!("4097 bytes at {}", end - 4096)),
        ((0, 0), "0 bytes at 0".to_owned()),
        ((u64::MAX, 2), format!("2 bytes at {}", u64::MAX)),
    ] {
        let order = &mut world.order("", 4);
        let (offset, bytes) = range;
        let ranges = [(0, FRAME), (FRAME, FRAME), (offset, bytes)];
        let ranges = ranges.map(|(offset, bytes)| v1::PrefetchRange { offset, bytes });
        order.give_ranges(ranges.to_vec());
        let refused = order.refused();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let why = format!(
            "ranges: range 3 of the order, counted from 1, is {is}: it is empty, or does not lie within the namespace's {end} bytes"
        );
        assert_eq!(refused.message(), why);
    }
    // Nothing is through at once.
    let mut order = world.order("", 4);
    order.end();
    let refused = order.refused();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused.message().contains("the order has none"),
        "{refused}"
    );

    let mut first = world.order("first", 4);
    first.give(&[0, 1, 2, 3, 4, 5]);
    first.told_until(|told| told.fetched_bytes == 4 * FRAME);
    let mut second = world.order("second", 4);
    let replaced = first.refused();
    assert_eq!(replaced.code(), Code::Aborted);
    assert!(replaced.message().contains("another order"), "{replaced}");
    second.give(&[9]);
    second.told_until(|told| told.fetched_bytes == FRAME);

    let request = v1::DetachNamespaceRequest {
        subsystem_nqn: NQN.to_owned(),
        nsid: 1,
        expected_uuid: String::new(),
    };
    let detach = async |channel| {
        NamespaceServiceClient::new(channel)
            .detach_namespace(request)
            .await
    };
    world.client.call(detach).unwrap();
    let detached = second.refused();
    assert_eq!(detached.code(), Code::FailedPrecondition);
    assert!(detached.message().contains("detached"), "{detached}");
    assert!(world.path.exists());
}

/// Whoever gave it goes: what was fetched stays, and nothing more is. How soon the daemon sees it go is its own matter, but long before the order's end.
#[test]
fn an_order_whose_giver_goes_fetches_no_more() {
    let world = World::start("prefetch-goes", 1024, "1GB/s");
    let frames = shuffled(world.frames);
    let mut order = world.order("", 4);
    order.give(&frames);
    order.told_until(|told| told.fetched_bytes == 4 * FRAME);
    drop(order);
    let mut host = world.host();
    let mut misses = 0;
    for frame in &frames {
        let wanted = |ahead: v1::PrefetchStats| ahead.hits + ahead.late;
        let before = wanted(world.ahead());
        read_frame(&mut host, *frame);
        misses = match world.ahead() {
            ahead if wanted(ahead) > before => 0,
            _ => misses + 1,
        };
        if misses == 16 {
            break;
        }
    }
    assert_eq!(misses, 16, "it goes on: {:?}", world.ahead());
    assert!(world.ahead().fetched < world.frames);
}

/// Several ranges of one command, in no order, and commands of several queues: each frame of them is there when it is read, and is read once.
#[test]
fn what_a_host_says_that_it_will_read_is_there_when_it_does() {
    let world = World::start("prefetch-hints", 128, "1GB/s,latency=1ms");
    let blocks = FRAME / BLOCK;
    let of = |frame: u64, frames: u32| (frame * blocks, frames * u32::try_from(blocks).unwrap());
    let mut hosts = [world.host(), world.host()];
    let hints = [vec![of(100, 1), of(3, 2), of(64, 1)], vec![of(90, 3)]];
    for (host, ranges) in hosts.iter_mut().zip(&hints) {
        assert_eq!(host.will_read(1, ranges).unwrap(), NvmeStatus::SUCCESS);
    }
    world.wait_fetched(7);
    assert_eq!(world.ahead().kept_bytes, 7 * FRAME);
    let stored = world.stats().stored_bytes;
    // To neither host is one of them where its stream would go on.
    for (n, frame) in [92, 3, 4, 91, 100, 64, 90].into_iter().enumerate() {
        read_frame(&mut hosts[n % 2], frame);
    }
    let all = world.stats();
    let expected = v1::PrefetchStats {
        fetched: 7,
        fetched_bytes: 7 * FRAME,
        hits: 7,
        hit_bytes: 7 * FRAME,
        ..v1::PrefetchStats::default()
    };
    assert_eq!(all.prefetch, Some(expected));
    assert_eq!(all.stored_bytes, stored, "no read asked the store");
    assert_eq!(stored, 7 * FRAME);
}

/// The store takes 2 s for everything: a hint is answered before any of it came, and a read elsewhere takes the store's time and not that of the hint too.
#[test]
fn a_hint_delays_no_command() {
    const LATENCY: Duration = Duration::from_secs(2);
    let world = World::start("prefetch-delays", 128, "1GB/s,latency=2s");
    let mut host = world.host();
    let begun = Instant::now();
    let blocks = u32::try_from(64 * FRAME / BLOCK).unwrap();
    let told = host.will_read(1, &[(0, blocks)]).unwrap();
    assert_eq!(told, NvmeStatus::SUCCESS);
    assert!(begun.elapsed() < LATENCY, "{:?}", begun.elapsed());
    assert_eq!(world.ahead().fetched, 0, "it is on its way");
    let begun = Instant::now();
    read_frame(&mut host, 100);
    let took = begun.elapsed();
    assert!((LATENCY..2 * LATENCY).contains(&took), "{took:?}");
    world.wait_fetched(64);
    assert_eq!(world.ahead().late, 0);
}
