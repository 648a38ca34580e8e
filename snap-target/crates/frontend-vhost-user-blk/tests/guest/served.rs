//! A device whose queues one reactor thread serves.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use frontend_vhost_user_blk::{Device, Disk, Door, Share};
use namespace::{Done, Engine, EngineConfig, Identity, Namespace, NamespaceSet};
use reactor::{Ring, RingConfig, Wait, Waker};
use store::{OpenOptions, SharedStore, StoreSpec};

pub const DISK_BYTES: u64 = 8 << 20;

pub struct Served {
    pub path: PathBuf,
    pub device: Option<Device>,
    pub store: SharedStore,
    door: Door,
    disk: Disk,
    pub namespace: Namespace,
    ends: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

pub fn memory() -> SharedStore {
    let spec = StoreSpec::parse("mem:8MiB").unwrap();
    SharedStore::open(&spec, OpenOptions::read_write()).unwrap()
}

/// A file without a name.
pub fn file() -> SharedStore {
    file_of(DISK_BYTES).1
}

/// The same of so many bytes, and the file.
pub fn file_of(bytes: u64) -> (OwnedFd, SharedStore) {
    let file = rustix::fs::memfd_create("disk", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    let spec = format!("file:/proc/self/fd/{}", file.as_raw_fd());
    let spec = StoreSpec::parse(&spec).unwrap();
    let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    (file, store)
}

/// Where nobody else listens.
pub fn socket_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "vhost-{}-{}.sock",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    std::env::temp_dir().join(name)
}

pub fn namespace_of(store: &SharedStore) -> Namespace {
    let identity = Identity {
        uuid: *b"0123456789abcdef",
    };
    Namespace::of_store(1, store.clone(), identity, 4096)
}

impl Served {
    pub fn new(store: SharedStore) -> Self {
        Self::with(store, |_| {})
    }

    pub fn with(store: SharedStore, change: impl FnOnce(&mut Namespace)) -> Self {
        let path = socket_path();
        let mut namespace = namespace_of(&store);
        change(&mut namespace);
        let shared = Arc::new(namespace.clone());
        let ends = Arc::new(AtomicBool::new(false));
        let disk = Disk::of(&namespace);
        let (doors_tx, doors_rx) = std::sync::mpsc::channel();
        let end = ends.clone();
        let thread = std::thread::spawn(move || {
            reactor(shared, &doors_tx, &end);
        });
        let (door, waker) = doors_rx.recv().unwrap();
        let device = Device::listen(&path, disk.clone(), vec![door.clone()]).unwrap();
        Self {
            path,
            device: Some(device),
            store,
            door,
            disk,
            namespace,
            ends,
            waker,
            thread: Some(thread),
        }
    }

    /// Another device on the same reactor, of the same disk.
    pub fn another(&self) -> (PathBuf, Device) {
        self.another_at(0)
    }

    /// One of several.
    pub fn another_at(&self, number: usize) -> (PathBuf, Device) {
        let path = self.path.with_extension(format!("other{number}"));
        let device = Device::listen(&path, self.disk.clone(), vec![self.door.clone()]);
        (path, device.unwrap())
    }

    /// The disk as it would be with so many blocks.
    pub fn resized(&self, blocks: u64) -> Disk {
        let mut namespace = self.namespace.clone();
        namespace.blocks = blocks;
        Disk::of(&namespace)
    }

    /// Another device in its place, as after a start of the daemon.
    pub fn listen_again(&mut self) {
        self.device = None;
        let device = Device::listen(&self.path, self.disk.clone(), vec![self.door.clone()]);
        self.device = Some(device.unwrap());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.device = None;
        self.ends.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn token(high: u32, low: u16) -> u64 {
    u64::from(high) << 32 | 0xFFFF << 16 | u64::from(low)
}

fn reactor(
    namespace: Arc<Namespace>,
    doors: &std::sync::mpsc::Sender<(Door, Waker)>,
    ends: &AtomicBool,
) {
    let (mut reactor, door) = Reactor::new(namespace);
    doors.send((door, reactor.ring.waker())).unwrap();
    while !ends.load(Ordering::SeqCst) {
        reactor.turn(Wait::Block { until: None });
    }
}

/// A reactor whose only queues are those of devices.
pub struct Reactor {
    ring: Ring,
    engine: Engine,
    share: Share,
    done: Vec<Done>,
    is_behind: bool,
}

impl Reactor {
    pub fn new(namespace: Arc<Namespace>) -> (Self, Door) {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let set = NamespaceSet::new(vec![namespace]);
        let engine = Engine::new(&ring, &set, &EngineConfig::default()).unwrap();
        let (share, door) = Share::new(&ring, token);
        let reactor = Self {
            ring,
            engine,
            share,
            done: Vec::new(),
            is_behind: false,
        };
        (reactor, door)
    }

    /// Does what there is; where there is nothing, it waits so.
    pub fn turn(&mut self, wait: Wait) {
        let wait = match self.is_behind || self.engine.has_work() {
            true => Wait::Poll,
            false => wait,
        };
        self.ring.turn(wait).unwrap();
        self.share.turn(&mut self.engine, Instant::now());
        while let Some(owner) = self.ring.next_ready() {
            self.share.ready(owner);
        }
        loop {
            self.engine.poll(&mut self.done);
            if self.done.is_empty() {
                break;
            }
            for answer in self.done.drain(..) {
                #[allow(clippy::cast_possible_truncation, reason = "takes the token apart")]
                let (high, low) = ((answer.token >> 32) as u32, answer.token as u16);
                self.share.answered(high, low, answer);
            }
        }
        self.is_behind = self.share.settle(&mut self.engine);
    }
}
