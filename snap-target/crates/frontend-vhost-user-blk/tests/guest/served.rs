//! A device whose queues one reactor thread serves.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use frontend_vhost_user_blk::{Device, Disk, Door, Share};
use namespace::{Engine, EngineConfig, Identity, Namespace, NamespaceSet};
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

impl Served {
    pub fn new(store: SharedStore) -> Self {
        Self::with(store, |_| {})
    }

    pub fn with(store: SharedStore, change: impl FnOnce(&mut Namespace)) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "vhost-{}-{}.sock",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        let mut namespace = Namespace::of_store(
            1,
            store.clone(),
            Identity {
                uuid: *b"0123456789abcdef",
            },
            4096,
        );
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
        let path = self.path.with_extension("other");
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
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let set = NamespaceSet::new(vec![namespace]);
    let mut engine = Engine::new(&ring, &set, &EngineConfig::default()).unwrap();
    let (mut share, door) = Share::new(&ring, token);
    doors.send((door, ring.waker())).unwrap();
    let mut done = Vec::new();
    let mut is_behind = false;
    while !ends.load(Ordering::SeqCst) {
        let wait = match is_behind || engine.has_work() {
            true => Wait::Poll,
            false => Wait::Block { until: None },
        };
        ring.turn(wait).unwrap();
        share.turn(&mut engine);
        while let Some(owner) = ring.next_ready() {
            share.ready(owner, &mut engine);
        }
        loop {
            engine.poll(&mut done);
            let answered = !done.is_empty();
            for answer in done.drain(..) {
                #[allow(clippy::cast_possible_truncation, reason = "takes the token apart")]
                let (high, low) = ((answer.token >> 32) as u32, answer.token as u16);
                share.answered(high, low, answer);
            }
            is_behind = share.settle(&mut engine);
            if !answered {
                break;
            }
        }
    }
}
