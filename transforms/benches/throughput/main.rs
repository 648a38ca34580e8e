//! GB/s of every kernel and codec beside `memcpy` of the same wide bytes in the same run.
//!
//! `cargo bench -p transforms`: all of it, on data larger than the last cache. `-- --quick`: half a minute, fewer rows, on less data. Other
//! arguments select the rows whose name contains one of them; `--isa NAME` forces the kernels of an instruction set. `--frame KIB` is for the
//! chains that are framed: 64 when nothing is said. `--weights FILE`, elements or a safetensors file, and `--type TYPE` (f32) give other
//! weights than those of the fixtures; of f32 there are also rows rounded to bf16 and f16.

#![allow(clippy::unwrap_used)] // a benchmark: a panic is the report

mod data;
mod framed;
mod measure;
mod unframed;

use std::path::PathBuf;

use transforms::{ElementType, Isa, Scratch};

use data::fixture;

const MIB: usize = 1 << 20;

struct Options {
    quick: bool,
    isa: Isa,
    frame_bytes: usize,
    weights: Weights,
    filters: Vec<String>,
}

/// Elements of a model.
struct Weights {
    path: PathBuf,
    element: ElementType,
}

fn main() {
    let options = options();
    let cache_bytes = last_cache_bytes();
    let wide_bytes = if options.quick {
        96 * MIB
    } else {
        (512 * MIB).max(2 * cache_bytes)
    };
    let rounds = if options.quick { 5 } else { 9 };
    println!(
        "{:?} kernels, {} MiB on the wide side, last cache {} MiB, {rounds} rounds of memcpy and kernel by turns",
        options.isa,
        wide_bytes / MIB,
        cache_bytes / MIB,
    );
    println!("GB/s = 10^9 bytes of the wide side a second, median; spread = (max - min) / median");
    println!(
        "16K, 128K = best GB/s on so much in the cache, and its ratio to the best of memcpy, by turns\n"
    );
    println!(
        "{:<34} {:>7} {:>7} {:>8} {:>7} {:>6} {:>8} {:>5} {:>8} {:>5}",
        "kernel", "GB/s", "spread", "memcpy", "spread", "ratio", "16K", "x", "128K", "x"
    );
    let mut bench = Bench {
        memory: Memory::new(wide_bytes),
        rounds,
        options,
        scratch: Scratch::new(),
    };
    bench.elements();
    bench.floats();
    bench.codecs();
}

fn options() -> Options {
    let mut options = Options {
        quick: false,
        isa: Isa::best(),
        frame_bytes: 64 << 10,
        weights: Weights {
            path: fixture("weights-f32.bin"),
            element: ElementType::F32,
        },
        filters: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {}
            "--quick" => options.quick = true,
            "--isa" => {
                let name = arguments.next().unwrap_or_default();
                let known = Isa::available();
                let found = known
                    .iter()
                    .find(|isa| format!("{isa:?}").eq_ignore_ascii_case(&name));
                match found {
                    Some(isa) => options.isa = *isa,
                    None => {
                        eprintln!("--isa {name:?}: this machine has {known:?}");
                        std::process::exit(2);
                    }
                }
            }
            "--frame" => {
                options.frame_bytes = arguments.next().unwrap().parse::<usize>().unwrap() << 10
            }
            "--weights" => options.weights.path = arguments.next().unwrap().into(),
            "--type" => options.weights.element = arguments.next().unwrap().parse().unwrap(),
            _ => options.filters.push(argument),
        }
    }
    options
}

fn last_cache_bytes() -> usize {
    let read = |index| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(path).ok()?;
        Some(text.trim().strip_suffix('K')?.parse::<usize>().ok()? << 10)
    };
    (0..5).filter_map(read).max().unwrap_or(0)
}

/// The buffers, made and touched once.
struct Memory {
    wide: &'static mut [u8],
    out: &'static mut [u8],
    packed: &'static mut [u8],
}

impl Memory {
    fn new(wide_bytes: usize) -> Memory {
        Memory {
            wide: pages(wide_bytes, 1),
            out: pages(wide_bytes, 2),
            packed: pages(wide_bytes, 3),
        }
    }
}

/// Bytes from the start of a page on, as those of requests are.
fn pages(len: usize, value: u8) -> &'static mut [u8] {
    const PAGE_BYTES: usize = 4096;
    let bytes = vec![value; len + PAGE_BYTES].leak();
    let start = bytes.as_ptr().align_offset(PAGE_BYTES);
    &mut bytes[start..start + len]
}

struct Bench {
    memory: Memory,
    rounds: usize,
    options: Options,
    scratch: Scratch,
}

impl Bench {
    fn wanted(&self, name: &str) -> bool {
        let filters = &self.options.filters;
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    }
}
