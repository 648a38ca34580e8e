//! After warm-up, reading allocates nothing: counted by the allocator itself.

#![allow(clippy::unwrap_used)] // a test

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::sync::Arc;

use transforms::{Chain, DictionaryTrainer, ElementType, Scratch, ViewChain};
use volume::blocking::open;
use volume::write::{ExtentSpec, Options, Output, StreamSpec, WriteError, Writer};
use volume::{Cache, OutBuf, Placement, Progress, ReadOp, Volume};

struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

// SAFETY: every call goes on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Default)]
struct Memory(Vec<u8>);

impl Output for &mut Memory {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let start = usize::try_from(offset).unwrap();
        self.0.resize(self.0.len().max(start + bytes.len()), 0);
        self.0[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn publish(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn scratch_file(&self) -> Result<File, WriteError> {
        Err(self.failed("creating", io::ErrorKind::Unsupported.into()))
    }

    fn failed(&self, action: &'static str, error: io::Error) -> WriteError {
        WriteError::Output {
            action,
            path: "memory".into(),
            error,
        }
    }
}

const ELEMENTS: u32 = 1 << 20;

fn volume_of(chain: &str) -> Vec<u8> {
    let mut memory = Memory::default();
    let options = Options {
        lba_bytes: 4096,
        threads: 1,
        volume_uuid: None,
        writer: "test".into(),
    };
    let mut writer = Writer::new(&mut memory, options).unwrap();
    let data: Vec<u8> = (0..ELEMENTS)
        .flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 20).to_le_bytes())
        .collect();
    let mut chain = Chain::parse(chain, ElementType::U32).unwrap();
    if chain.needs_table() {
        let mut trainer = DictionaryTrainer::new(&chain).unwrap();
        for frame in data.chunks(64 << 10) {
            trainer.add_frame(frame).unwrap();
        }
        let dictionary = trainer.train(0).unwrap();
        chain = chain.with_table(Arc::new(dictionary)).unwrap();
    }
    let spec = StreamSpec::new(chain);
    let written = writer
        .add_stream(&spec, &mut &data[..], &mut |_| {})
        .unwrap();
    let run = ExtentSpec::Linear {
        stream: written.stream,
        first_element: 0,
        elements: u64::from(ELEMENTS),
        view: ViewChain::identity(),
    };
    writer.add_view("whole", [run]).unwrap();
    writer.finish().unwrap();
    memory.0
}

struct Reading {
    store: Vec<u8>,
    volume: Volume,
    cache: Cache,
    scratch: Scratch,
    op: ReadOp,
    memory: Vec<u8>,
}

impl Reading {
    fn read(&mut self, offset: u64, len: usize) {
        let out = OutBuf::from_slice(&mut self.memory[..len]);
        let (volume, cache, scratch) = (&self.volume, &mut self.cache, &mut self.scratch);
        self.op.start(volume, offset..offset + len as u64).unwrap();
        let mut progress = self.op.step(volume, cache, scratch, &out).unwrap();
        while progress == Progress::Fetching {
            let fetch = self.op.next_fetch().unwrap();
            let start = usize::try_from(fetch.offset).unwrap();
            let bytes = &self.store[start..start + fetch.len as usize];
            if let Placement::Direct { out_offset } = fetch.placement {
                out.at(out_offset as usize, bytes.len())
                    .unwrap()
                    .write(bytes);
            }
            self.op
                .fetched(fetch.id, &[bytes], volume, cache, scratch, &out)
                .unwrap();
            progress = self.op.progress();
        }
    }

    /// Reads of many sizes all over the view.
    fn round(&mut self) {
        let bytes = u64::from(ELEMENTS) * 4;
        for n in 0..400u64 {
            let len = [4096, 16 << 10, 128 << 10, 1 << 20][(n % 4) as usize];
            let offset = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (bytes - len) / 4096 * 4096;
            self.read(offset, usize::try_from(len).unwrap());
        }
    }
}

#[test]
fn reads_allocate_nothing_after_warm_up() {
    for chain in [
        "none",
        "u16",
        "bitpack:12",
        "u16+lz4",
        "bitpack:12+zstd:1",
        "u16+zstd-dict:1",
    ] {
        let store = volume_of(chain);
        let volume = open(&store, store.len() as u64).unwrap();
        let mut reading = Reading {
            store,
            volume,
            // A cache that holds a part of the frames: they come and go.
            cache: Cache::new(1 << 20),
            scratch: Scratch::new(),
            op: ReadOp::new(),
            memory: vec![0; 1 << 20],
        };
        for _ in 0..2 {
            reading.round();
        }
        let evicted = reading.cache.counters().evictions;
        let before = ALLOCATIONS.get();
        reading.round();
        assert_eq!(ALLOCATIONS.get() - before, 0, "{chain}");
        let is_framed = chain.contains('+');
        assert_eq!(
            reading.cache.counters().evictions > evicted,
            is_framed,
            "{chain}"
        );
    }
}
