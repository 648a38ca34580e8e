//! `memcpy` and a kernel by turns.

use std::time::Instant;

use super::MIB;

pub(super) struct Row {
    memcpy: Measured,
    kernel: Measured,
    ratio: f64,
}

struct Measured {
    median: f64,
    spread: f64,
}

/// Runs `memcpy` and `kernel` by turns, and returns GB/s of `wide_bytes` of both, and the median of the rounds' ratios.
pub(super) fn alternate(
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
pub(super) struct Cached {
    gigabytes_per_s: f64,
    /// To `memcpy`.
    ratio: f64,
}

/// The best GB/s of `kernel` on `wide` and `out`, which stay in the cache.
pub(super) fn in_cache(
    wide: &[u8],
    out: &mut [u8],
    mut kernel: impl FnMut(&[u8], &mut [u8]),
) -> Cached {
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
    pub(super) fn print(&self, name: &str, cached: &[Cached]) {
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
