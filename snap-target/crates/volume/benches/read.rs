//! What a read costs apart from the store: planning, checksums, decoding, copying; tables and frames in the cache. One core.
//!
//! `cargo bench -p volume --bench read`. Figures of one run are compared with each other; memcpy is printed beside them. Behind the table: what a read with
//! checksums costs beside its slowest step, the chain (a stream without checksums) or the checksums (bytes that are handed on in place); of a store that is larger
//! than the last cache, and of one that lies in the second. `-- passes`: that alone.

use std::fs::File;
use std::hint::black_box;
use std::io;

use nix::time::{ClockId, clock_gettime};
use transforms::{Chain, ElementType, Scratch, ViewChain};
use volume::blocking::open;
use volume::write::{ExtentSpec, Integrity, Options, Output, StreamSpec, WriteError, Writer};
use volume::{Cache, OutBuf, Progress, ReadOp, Volume};

const ELEMENTS: u32 = 16 << 20;
/// Of a store that stays in the cache.
const CACHED_ELEMENTS: u32 = 256 << 10;
const CHAINS: [&str; 5] = ["none", "u16", "bitpack:12", "u16+lz4", "u16+zstd:3"];
/// Of a pass and its steps.
const TURNS: usize = 301;
const TURN_BYTES: u64 = 2 << 20;
const SIZES: [u64; 3] = [4 << 10, 128 << 10, 1 << 20];

#[derive(Default)]
struct Memory(Vec<u8>);

impl Output for &mut Memory {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
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

fn volume_of(
    chain: &str,
    integrity: Integrity,
    elements: u32,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut memory = Memory::default();
    let options = Options {
        lba_bytes: 4096,
        threads: 2,
        volume_uuid: None,
        writer: "bench".into(),
    };
    let mut writer = Writer::new(&mut memory, options)?;
    let data: Vec<u8> = (0..elements)
        .flat_map(|n| (n.wrapping_mul(2_654_435_761) >> (20 + n % 8)).to_le_bytes())
        .collect();
    let spec = StreamSpec {
        integrity,
        ..StreamSpec::new(Chain::parse(chain, ElementType::U32)?)
    };
    let written = writer.add_stream(&spec, &mut &data[..], &mut |_| {})?;
    let run = ExtentSpec::Linear {
        stream: written.stream,
        first_element: 0,
        elements: u64::from(elements),
        view: ViewChain::identity(),
    };
    writer.add_view("whole", [run])?;
    writer.finish()?;
    Ok(memory.0)
}

/// Seconds that this thread has run: what others do on the machine does not count.
fn cpu_seconds() -> f64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(0.0, |time| {
        time.tv_sec() as f64 + time.tv_nsec() as f64 * 1e-9
    })
}

struct Reading {
    store: Vec<u8>,
    volume: Volume,
    cache: Cache,
    scratch: Scratch,
    op: ReadOp,
    memory: Vec<u8>,
    /// Presented bytes of the volume.
    total: u64,
    /// Where the next of the reads begins that go on behind one another.
    at: u64,
}

impl Reading {
    fn new(store: Vec<u8>, volume: Volume, cache_bytes: usize, elements: u32) -> Reading {
        Reading {
            total: u64::from(elements) * 4,
            at: 0,
            store,
            volume,
            cache: Cache::new(cache_bytes),
            scratch: Scratch::new(),
            op: ReadOp::new(),
            memory: vec![0; 1 << 20],
        }
    }

    fn of(
        chain: &str,
        integrity: Integrity,
        elements: u32,
    ) -> Result<Reading, Box<dyn std::error::Error>> {
        let store = volume_of(chain, integrity, elements)?;
        let volume = open(&store, store.len() as u64)?;
        Ok(Reading::new(store, volume, 16 << 20, elements))
    }

    /// A store in memory that is leased: direct fetches are checked where they are.
    fn read(&mut self, offset: u64, len: u64) -> Result<(), volume::VolumeError> {
        let out = OutBuf::from_slice(&mut self.memory[..usize::try_from(len).unwrap_or(0)]);
        let (volume, cache, scratch) = (&self.volume, &mut self.cache, &mut self.scratch);
        self.op.start(volume, offset..offset + len)?;
        let mut progress = self.op.step(volume, cache, scratch, &out)?;
        while progress == Progress::Fetching {
            let Some(fetch) = self.op.next_fetch() else {
                break;
            };
            let start = usize::try_from(fetch.offset).unwrap_or(usize::MAX);
            let bytes = &self.store[start..start + fetch.len as usize];
            self.op
                .fetched(fetch.id, &[bytes], volume, cache, scratch, &out)?;
            progress = self.op.progress();
        }
        Ok(())
    }

    /// Nanoseconds of processor time of one read: the median of nine runs.
    fn cost(&mut self, len: u64, sequential: bool) -> Result<f64, volume::VolumeError> {
        let total = self.total;
        let reads = ((64 << 20) / len).min(10_000);
        let mut runs = Vec::new();
        for _ in 0..9 {
            let start = cpu_seconds();
            for n in 0..reads {
                let place = match sequential {
                    true => n % (total / len) * len,
                    false => n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (total - len) / 4096 * 4096,
                };
                self.read(place, len)?;
            }
            runs.push((cpu_seconds() - start) * 1e9 / reads as f64);
        }
        runs.sort_by(f64::total_cmp);
        Ok(runs[4])
    }

    /// The same of so many reads that go on where the last one ended, once.
    fn next(&mut self, len: u64, reads: u64) -> Result<f64, volume::VolumeError> {
        let start = cpu_seconds();
        for _ in 0..reads {
            if self.at + len > self.total {
                self.at = 0;
            }
            self.read(self.at, len)?;
            self.at += len;
        }
        Ok((cpu_seconds() - start) * 1e9 / reads as f64)
    }
}

fn memcpy_cost(len: u64) -> f64 {
    let from = vec![1u8; 64 << 20];
    let mut to = vec![0u8; 1 << 20];
    let len = usize::try_from(len).unwrap_or(0);
    let mut runs = Vec::new();
    for _ in 0..9 {
        let start = cpu_seconds();
        for piece in from.chunks_exact(len) {
            black_box(&mut to[..len]).copy_from_slice(black_box(piece));
        }
        runs.push((cpu_seconds() - start) * 1e9 / (from.len() / len) as f64);
    }
    runs.sort_by(f64::total_cmp);
    runs[4]
}

/// A chain and its checksums in one pass, beside the slower of both: all three by turns, some reads each, so that what others do on the machine is the same for
/// each of them. Shown is the tenth percentile of the turns: what interrupts one also empties its cache.
fn passes() -> Result<(), Box<dyn std::error::Error>> {
    println!("\nstore   chain        KiB   chain alone  checksums alone     both  x the slower");
    for (place, elements) in [("memory", ELEMENTS), ("cache", CACHED_ELEMENTS)] {
        let mut plain = Reading::of("none", Integrity::Crc32c, elements)?;
        for chain in ["u16", "bitpack:12", "bitpack:24"] {
            let bits = u64::from(Chain::parse(chain, ElementType::U32)?.packed_bits());
            let mut bare = Reading::of(chain, Integrity::None, elements)?;
            let mut checked = Reading::of(chain, Integrity::Crc32c, elements)?;
            for len in [128 << 10, 1 << 20] {
                let stored = len * bits / 32 / 4096 * 4096;
                let mut all = [(); 3].map(|()| Vec::new());
                for _ in 0..TURNS {
                    let readings = [(&mut bare, len), (&mut plain, stored), (&mut checked, len)];
                    for ((reading, len), costs) in readings.into_iter().zip(&mut all) {
                        if place == "cache" {
                            reading.next(len, reading.total / len)?;
                        }
                        costs.push(reading.next(len, TURN_BYTES / len)?);
                    }
                }
                let [alone, checksums, both] = all.map(|mut costs| {
                    costs.sort_by(f64::total_cmp);
                    costs[TURNS / 10]
                });
                println!(
                    "{place:<7} {chain:<10} {:>5} {alone:>10.0} ns {checksums:>13.0} ns {both:>5.0} ns {:>9.2}",
                    len >> 10,
                    both / alone.max(checksums)
                );
            }
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().any(|argument| argument == "passes") {
        return passes();
    }
    println!(
        "{:<14} {:>8} {:>12} {:>10} {:>12}",
        "chain", "KiB", "ns a read", "GB/s", ""
    );
    for len in SIZES {
        let cost = memcpy_cost(len);
        println!(
            "{:<14} {:>8} {:>12.0} {:>10.2}",
            "memcpy",
            len >> 10,
            cost,
            len as f64 / cost
        );
    }
    for chain in CHAINS {
        let store = volume_of(chain, Integrity::Crc32c, ELEMENTS)?;
        let volume = open(&store, store.len() as u64)?;
        for (cache_bytes, what) in [(256 << 20, "cached"), (1 << 20, "decoded each time")] {
            let is_framed = chain.contains('+');
            if !is_framed && what != "cached" {
                continue;
            }
            let mut reading = Reading::new(store.clone(), volume.clone(), cache_bytes, ELEMENTS);
            for len in SIZES {
                // Random reads of less than a frame, decoded each time, measure the frame.
                let sequential = what != "cached";
                let cost = reading.cost(len, sequential)?;
                let what = if is_framed { what } else { "" };
                println!(
                    "{chain:<14} {:>8} {cost:>12.0} {:>10.2}  {what}",
                    len >> 10,
                    len as f64 / cost
                );
            }
        }
    }
    passes()
}
