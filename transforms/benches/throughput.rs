//! GB/s of every kernel and codec beside `memcpy` of the same wide bytes in the same run.
//!
//! `cargo bench -p transforms`: all of it, on data larger than the last cache. `-- --quick`: half a minute, fewer rows, on less data. Other
//! arguments select the rows whose name contains one of them; `--isa NAME` forces the kernels of an instruction set. `--frame KIB` is for the
//! chains that are framed: 64 when nothing is said. `--weights FILE`, elements or a safetensors file, and `--type TYPE` (f32) give other
//! weights than those of the fixtures; of f32 there are also rows rounded to bf16 and f16.

#![allow(clippy::unwrap_used)] // a benchmark: a panic is the report

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use transforms::{
    Chain, Decoder, ElementType, Encoded, IdCounts, Isa, LossMeter, OutSegments, PackedWindow,
    RankTable, RowMaxima, Scales, Scratch, TableKind, ViewChain,
};

const MIB: usize = 1 << 20;

/// Wide bytes of the runs in the cache: common requests.
const CACHED_BYTES: [usize; 2] = [16 << 10, 128 << 10];

const R50K_CHAINS: &[&str] = &[
    "none",
    "u16",
    "shuffle",
    "u16+shuffle",
    "lz4",
    "u16+lz4",
    "u16+shuffle+lz4",
    "u16+lz4hc:9",
    "zstd:3",
    "u16+zstd:1",
    "u16+zstd:3",
    "u16+zstd:9",
    "u16+shuffle+zstd:3",
    "rank",
    "rank+lz4",
    "rank+lz4hc:9",
    "rank+zstd:1",
    "rank+zstd:3",
    "rank+zstd:9",
];

const O200K_CHAINS: &[&str] = &[
    "bitpack:18",
    "lz4",
    "bitpack:18+lz4",
    "zstd:3",
    "bitpack:18+zstd:3",
    "shuffle+zstd:3",
    "rank",
    "rank+lz4",
    "rank+lz4hc:9",
    "rank+zstd:1",
    "rank+zstd:3",
    "rank+zstd:9",
];

/// Of weights, in each type.
const FLOAT_CHAINS: &[&str] = &[
    "none",
    "lz4",
    "shuffle+lz4",
    "zstd:3",
    "shuffle+zstd:3",
    "shuffle+zstd:9",
    "floatsplit",
];

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
    fn elements(&mut self) {
        use ElementType::{I16, I32, I64, U8, U16, U32, U64};
        let pairs = [
            (U32, U16),
            (U32, U8),
            (U16, U8),
            (U64, U32),
            (U64, U16),
            (U64, U8),
            (I32, I16),
            (I64, I32),
            (I64, U16),
        ];
        for (wide, narrow) in pairs {
            self.element_chain(wide, narrow.name(), ElementType::bits(narrow).min(31) - 1);
        }
        for bits in 1..=32 {
            if !self.options.quick || [1, 8, 12, 17, 18, 24, 31].contains(&bits) {
                self.element_chain(U32, &format!("bitpack:{bits}"), bits);
            }
        }
        for bits in [4, 10, 12, 15] {
            self.element_chain(U16, &format!("bitpack:{bits}"), bits);
        }
        for bits in [1, 4, 7] {
            self.element_chain(U8, &format!("bitpack:{bits}"), bits);
        }
        for bits in [17, 18, 32] {
            self.element_chain(U64, &format!("bitpack:{bits}"), bits);
        }
    }

    /// Floating point: stored narrower, and presented as it was.
    fn floats(&mut self) {
        use ElementType::{Bf16, F16, F32, F64};
        for (wide, narrow) in [(F32, Bf16), (F32, F16), (F64, F32), (F64, Bf16), (F64, F16)] {
            self.float_chain(wide, narrow.name(), |packed| fill_numbers(packed, narrow));
        }
        for wide in [F32, Bf16] {
            self.float_chain(wide, "q8_0", fill_groups);
            self.float_chain(wide, "int8:1024", fill_rows);
            self.scales(wide);
        }
        self.loss(F32, Bf16);
        self.loss(F64, F32);
    }

    /// Encode and decode with numbers that the packed form holds, which `fill` makes.
    fn float_chain(&mut self, source: ElementType, narrow: &str, fill: impl Fn(&mut [u8])) {
        let chain = Chain::parse(narrow, source)
            .unwrap()
            .with_isa(self.options.isa);
        let elements = self.memory.wide.len() / source.bytes();
        let chain = match chain.table_kind() {
            Some(TableKind::Scales) => chain.with_table(scales(elements / 1024)).unwrap(),
            _ => chain,
        };
        let names = [
            format!("{source} -> {narrow}"),
            format!("{narrow} -> {source}"),
        ];
        if !names.iter().any(|name| self.wanted(name)) {
            return;
        }
        let Memory { wide, out, packed } = &mut self.memory;
        let wide_bytes = wide.len();
        let packed_bytes = chain.packed_bytes((wide_bytes / source.bytes()) as u64);
        let packed = &mut packed[..usize::try_from(packed_bytes).unwrap()];
        let decoder = Decoder::new(&chain, &ViewChain::identity(), None).unwrap();
        fill(packed);
        expand(&decoder, packed, wide);
        let scratch = &mut self.scratch;
        let row = alternate(self.rounds, wide_bytes, wide, out, |wide, _| {
            chain.encode_frame(wide, scratch, packed).unwrap();
        });
        let cached = CACHED_BYTES.map(|bytes| {
            in_cache(&wide[..bytes], &mut out[..bytes], |wide, _| {
                chain.encode_frame(wide, scratch, packed).unwrap();
            })
        });
        row.print(&names[0], &cached);
        let present = |_: &[u8], out: &mut [u8]| expand(&decoder, packed, out);
        let row = alternate(self.rounds, wide_bytes, wide, out, present);
        let cached = CACHED_BYTES.map(|bytes| in_cache(&wide[..bytes], &mut out[..bytes], present));
        row.print(&names[1], &cached);
        assert!(wide == out, "{narrow}: presented something else");
    }

    /// Finding the scales of rows: what packing them reads the input for before.
    fn scales(&mut self, source: ElementType) {
        let name = format!("scales of int8:1024 of {source}");
        if !self.wanted(&name) {
            return;
        }
        let chain = Chain::parse("int8:1024", source)
            .unwrap()
            .with_isa(self.options.isa);
        fill_numbers(self.memory.wide, source);
        let Memory { wide, out, .. } = &mut self.memory;
        let find = |wide: &[u8], _: &mut [u8]| {
            let mut maxima = RowMaxima::new(&chain).unwrap();
            maxima.add(wide).unwrap();
            std::hint::black_box(maxima.scales().unwrap());
        };
        let row = alternate(self.rounds, wide.len(), wide, out, find);
        let cached = CACHED_BYTES.map(|bytes| in_cache(&wide[..bytes], &mut out[..bytes], find));
        row.print(&name, &cached);
    }

    /// Measuring what rounding does.
    fn loss(&mut self, source: ElementType, narrow: ElementType) {
        let name = format!("loss of {source} as {narrow}");
        if !self.wanted(&name) {
            return;
        }
        let chain = Chain::parse(narrow.name(), source)
            .unwrap()
            .with_isa(self.options.isa);
        fill_numbers(self.memory.wide, source);
        let Memory { wide, out, .. } = &mut self.memory;
        let (wide, out) = (&wide[..96 * MIB], &mut out[..96 * MIB]);
        let measure = |wide: &[u8], _: &mut [u8]| {
            let mut meter = LossMeter::new(&chain, &ViewChain::identity()).unwrap();
            meter.add(wide).unwrap();
            std::hint::black_box(meter.finish());
        };
        let row = alternate(self.rounds, wide.len(), wide, out, measure);
        row.print(&name, &[]);
    }

    /// Encode and decode of an unframed chain, with values of `bits` bits, the last one among them.
    fn element_chain(&mut self, source: ElementType, text: &str, bits: u32) {
        let chain = Chain::parse(text, source)
            .unwrap()
            .with_isa(self.options.isa);
        let names = [format!("{source} -> {text}"), format!("{text} -> {source}")];
        if !names.iter().any(|name| self.wanted(name)) {
            return;
        }
        fill(self.memory.wide, source.bytes(), bits);
        let Memory { wide, out, packed } = &mut self.memory;
        let wide_bytes = wide.len();
        let packed_bytes = wide_bytes / source.bytes() * chain.packed_bits() as usize / 8;
        let packed = &mut packed[..packed_bytes];
        let scratch = &mut self.scratch;
        let mut range = None;
        let row = alternate(self.rounds, wide_bytes, wide, out, |wide, _| {
            range = chain.encode_frame(wide, scratch, packed).unwrap().range;
        });
        let cached = CACHED_BYTES.map(|bytes| {
            in_cache(&wide[..bytes], &mut out[..bytes], |wide, _| {
                chain.encode_frame(wide, scratch, packed).unwrap();
            })
        });
        row.print(&names[0], &cached);
        chain.encode_frame(wide, scratch, packed).unwrap();

        let decoder = Decoder::new(&chain, &ViewChain::identity(), range).unwrap();
        let expand = |_: &[u8], out: &mut [u8]| {
            let window = PackedWindow {
                first_byte: 0,
                bytes: packed,
            };
            let presented = 0..out.len() as u64;
            let mut segments = OutSegments::from_slice(out);
            decoder.expand(window, presented, &mut segments).unwrap();
        };
        let row = alternate(self.rounds, wide_bytes, wide, out, expand);
        let cached = CACHED_BYTES.map(|bytes| in_cache(&wide[..bytes], &mut out[..bytes], expand));
        row.print(&names[1], &cached);
        assert!(wide == out, "{text}: decoded something else");
    }

    fn codecs(&mut self) {
        for (data, chains) in [
            ("r50k-u32.bin", R50K_CHAINS),
            ("o200k-u32.bin", O200K_CHAINS),
        ] {
            let tokens = std::fs::read(fixture(data)).unwrap();
            self.framed_chains(data, &tokens, ElementType::U32, chains);
        }
        let Weights { path, element } = &self.options.weights;
        let (name, element) = (path.display().to_string(), *element);
        let weights = weights(path);
        self.framed_chains(&name, &weights, element, FLOAT_CHAINS);
        if element == ElementType::F32 {
            for narrow in [ElementType::Bf16, ElementType::F16] {
                let rounding = Chain::parse(narrow.name(), element).unwrap();
                let mut rounded = vec![0; weights.len() / 4 * 2];
                rounding
                    .encode_frame(&weights, &mut self.scratch, &mut rounded)
                    .unwrap();
                let name = format!("{name}, rounded to {narrow}");
                self.framed_chains(&name, &rounded, narrow, FLOAT_CHAINS);
            }
        }
    }

    /// A table of chains, on elements that come again and again.
    fn framed_chains(&mut self, name: &str, elements: &[u8], source: ElementType, chains: &[&str]) {
        if !chains
            .iter()
            .any(|text| self.wanted(&format!("{text} of {source}")))
        {
            return;
        }
        let len = if self.options.quick {
            8 * MIB
        } else {
            64 * MIB
        };
        println!(
            "\n{name}, again and again to {} MiB, in frames of {} KiB of source; decode = unblock + expand",
            len / MIB,
            self.options.frame_bytes >> 10
        );
        println!(
            "{:<34} {:>7} {:>7} {:>8} {:>7} {:>6} {:>8} {:>5}",
            "chain", "GB/s", "spread", "memcpy", "spread", "ratio", "a frame", "x"
        );
        for (to, from) in self.memory.wide[..len]
            .iter_mut()
            .zip(elements.iter().cycle())
        {
            *to = *from;
        }
        let table = chains.iter().any(|text| text.starts_with("rank")).then(|| {
            let mut counts = IdCounts::new();
            counts.add(source, elements).unwrap();
            Arc::new(counts.table().unwrap())
        });
        if let Some(table) = &table {
            println!(
                "{table:?}: {} bytes beside the frames",
                table.stored_bytes()
            );
        }
        for text in chains {
            if self.wanted(&format!("{text} of {source}")) {
                self.framed_chain(text, source, len, table.as_ref());
            }
        }
    }

    /// Encode and decode frame by frame.
    fn framed_chain(
        &mut self,
        text: &str,
        source: ElementType,
        len: usize,
        table: Option<&Arc<RankTable>>,
    ) {
        let frame_bytes = self.options.frame_bytes;
        let mut chain = Chain::parse(text, source)
            .unwrap()
            .with_isa(self.options.isa);
        if chain.needs_table() {
            chain = chain.with_table(table.unwrap().clone()).unwrap();
        }
        let Memory {
            wide,
            out,
            packed: stored,
        } = &mut self.memory;
        let (wide, out) = (&mut wide[..len], &mut out[..len]);
        let scratch = &mut self.scratch;
        let frame_elements = (frame_bytes / source.bytes()) as u64;
        let bound = usize::try_from(chain.stored_bytes_max(frame_elements)).unwrap();
        let mut frames = Vec::new();
        let slow = text.contains("hc") || text.contains("zstd:9");
        let rounds = if slow { 3 } else { self.rounds };
        let row = alternate(rounds, len, wide, out, |wide, _| {
            frames.clear();
            let mut at = 0;
            for frame in wide.chunks(frame_bytes) {
                let to = &mut stored[at..at + bound];
                let encoded = chain.encode_frame(frame, scratch, to).unwrap();
                frames.push((at, encoded));
                at += encoded.stored_bytes;
            }
        });
        let stored_bytes: usize = frames.iter().map(|(_, e)| e.stored_bytes).sum();
        #[allow(clippy::cast_precision_loss)]
        let ratio = len as f64 / stored_bytes as f64;
        let mut one = vec![0; bound];
        let (frame, out_frame) = (&wide[..frame_bytes], &mut out[..frame_bytes]);
        let cached = in_cache(frame, out_frame, |frame, _| {
            chain.encode_frame(frame, scratch, &mut one).unwrap();
        });
        row.print(&format!("{text} encode ({ratio:.2}x)"), &[cached]);

        let mut packed = vec![0; bound];
        let mut decode = |out: &mut [u8], (at, encoded): &(usize, Encoded)| {
            let stored = &stored[*at..*at + encoded.stored_bytes];
            // What has no block step is expanded from where it lies.
            let packed = if chain.is_framed() {
                chain.unblock(stored, scratch, &mut packed).unwrap();
                &packed
            } else {
                stored
            };
            let decoder = Decoder::new(&chain, &ViewChain::identity(), encoded.range).unwrap();
            let window = PackedWindow {
                first_byte: 0,
                bytes: packed,
            };
            let presented = 0..out.len() as u64;
            let mut segments = OutSegments::from_slice(out);
            decoder.expand(window, presented, &mut segments).unwrap();
        };
        let row = alternate(self.rounds, len, wide, out, |_, out| {
            for (out, frame) in out.chunks_mut(frame_bytes).zip(&frames) {
                decode(out, frame);
            }
        });
        let (frame, out_frame) = (&wide[..frame_bytes], &mut out[..frame_bytes]);
        let cached = in_cache(frame, out_frame, |_, out| decode(out, &frames[0]));
        row.print(&format!("{text} decode"), &[cached]);
        assert!(wide == out, "{text}: decoded something else");
    }

    fn wanted(&self, name: &str) -> bool {
        let filters = &self.options.filters;
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    }
}

struct Row {
    memcpy: Measured,
    kernel: Measured,
    ratio: f64,
}

struct Measured {
    median: f64,
    spread: f64,
}

/// Runs `memcpy` and `kernel` by turns, and returns GB/s of `wide_bytes` of both, and the median of the rounds' ratios.
fn alternate(
    rounds: usize,
    wide_bytes: usize,
    wide: &[u8],
    out: &mut [u8],
    mut kernel: impl FnMut(&[u8], &mut [u8]),
) -> Row {
    let (mut copies, mut kernels) = (Vec::new(), Vec::new());
    // One round for the caches, the page tables and the clock.
    for round in 0..=rounds {
        let copied = seconds(|| std::hint::black_box(&mut *out).copy_from_slice(wide));
        let run = seconds(|| kernel(wide, out));
        std::hint::black_box(&mut *out);
        if round > 0 {
            #[allow(clippy::cast_precision_loss)]
            let gigabytes = wide_bytes as f64 / 1e9;
            copies.push(gigabytes / copied);
            kernels.push(gigabytes / run);
        }
    }
    let ratios = kernels.iter().zip(&copies).map(|(k, c)| k / c).collect();
    Row {
        ratio: measured(ratios).median,
        memcpy: measured(copies),
        kernel: measured(kernels),
    }
}

/// What a kernel does in the cache.
struct Cached {
    gigabytes_per_s: f64,
    /// To `memcpy`.
    ratio: f64,
}

/// The best GB/s of `kernel` on `wide` and `out`, which stay in the cache.
fn in_cache(wide: &[u8], out: &mut [u8], mut kernel: impl FnMut(&[u8], &mut [u8])) -> Cached {
    const BYTES: usize = MIB;
    let times = BYTES / wide.len();
    let (mut copied, mut run) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..40 {
        let copy = seconds(|| {
            for _ in 0..times {
                std::hint::black_box(&mut *out).copy_from_slice(std::hint::black_box(wide));
            }
        });
        let kernel = seconds(|| (0..times).for_each(|_| kernel(wide, out)));
        copied = copied.min(copy);
        run = run.min(kernel);
    }
    #[allow(clippy::cast_precision_loss)]
    let gigabytes = (times * wide.len()) as f64 / 1e9;
    Cached {
        gigabytes_per_s: gigabytes / run,
        ratio: copied / run,
    }
}

fn seconds(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

fn measured(mut values: Vec<f64>) -> Measured {
    values.sort_by(f64::total_cmp);
    let median = values[values.len() / 2];
    Measured {
        median,
        spread: (values[values.len() - 1] - values[0]) / median,
    }
}

impl Row {
    /// One line.
    fn print(&self, name: &str, cached: &[Cached]) {
        print!(
            "{name:<34} {:>7.2} {:>6.0}% {:>8.2} {:>6.0}% {:>6.2}",
            self.kernel.median,
            self.kernel.spread * 100.0,
            self.memcpy.median,
            self.memcpy.spread * 100.0,
            self.ratio
        );
        for cached in cached {
            print!(" {:>8.1} {:>5.2}", cached.gigabytes_per_s, cached.ratio);
        }
        println!();
    }
}

/// Fills `wide` with elements of `size` bytes whose values have `bits` bits.
fn fill(wide: &mut [u8], size: usize, bits: u32) {
    let mask = u64::MAX >> (64 - bits);
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for element in wide.chunks_exact_mut(size) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        element.copy_from_slice(&((state >> 31) & mask).to_le_bytes()[..size]);
    }
}

/// Fills `elements` with finite numbers between 2^-8 and 2^8 and of both signs.
fn fill_numbers(elements: &mut [u8], element: ElementType) {
    let (fraction_bits, bias) = match element {
        ElementType::F16 => (10, 15),
        ElementType::Bf16 => (7, 127),
        ElementType::F32 => (23, 127),
        _ => (52, 1023),
    };
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for to in elements.chunks_exact_mut(element.bytes()) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let exponent = bias - 8 + (state >> 60);
        let fraction = (state >> 1) & ((1 << fraction_bits) - 1);
        let sign = (state >> 59 & 1) << (element.bits() - 1);
        let bits = sign | exponent << fraction_bits | fraction;
        to.copy_from_slice(&bits.to_le_bytes()[..element.bytes()]);
    }
}

/// Fills `groups` with those of `q8_0`, whose largest steps are 127: what is made of these numbers again. Scales are powers of two, so that bf16 holds
/// all numbers, too.
fn fill_groups(groups: &mut [u8]) {
    let scales = [0x2C00u16, 0x3C00, 0x2000, 0x5400];
    for (group, scale) in groups.chunks_exact_mut(34).zip(scales.iter().cycle()) {
        for (index, steps) in (0u8..).zip(&mut group[2..]) {
            *steps = index.wrapping_mul(89) | 1;
        }
        group[..2].copy_from_slice(&scale.to_le_bytes());
        group[2] = 127;
    }
}

/// Fills `rows` with multiples of every kind.
fn fill_rows(rows: &mut [u8]) {
    for (index, steps) in rows.iter_mut().enumerate() {
        #[allow(clippy::cast_possible_truncation)] // any will do, but -128
        let any = (index as u8).wrapping_mul(89);
        *steps = any | 1;
    }
}

/// So many scales, powers of two, so that bf16 holds all multiples, too.
fn scales(rows: usize) -> Arc<Scales> {
    let scales = [1.0f32, 0.0625, 8.0, 0.001_953_125];
    let scales = scales.iter().cycle().take(rows);
    let bytes: Vec<u8> = scales.flat_map(|it| it.to_le_bytes()).collect();
    Arc::new(Scales::parse(&bytes).unwrap())
}

/// Presents all of `packed`, from the first element on, as far as `out` goes.
fn expand(decoder: &Decoder, packed: &[u8], out: &mut [u8]) {
    let window = PackedWindow {
        first_byte: 0,
        bytes: packed,
    };
    let presented = 0..out.len() as u64;
    let mut segments = OutSegments::from_slice(out);
    decoder.expand(window, presented, &mut segments).unwrap();
}

/// Real data of this repository.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/data")
        .join(name)
}

/// The elements of a file; the header of a safetensors file, behind its length in eight bytes, is none.
fn weights(path: &Path) -> Vec<u8> {
    let mut bytes =
        std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if path.extension().is_some_and(|it| it == "safetensors") {
        let header = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        bytes.drain(..8 + usize::try_from(header).unwrap());
    }
    let whole = bytes.len() / 8 * 8;
    bytes.truncate(whole);
    bytes
}
