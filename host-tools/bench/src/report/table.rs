//! Tables for people.

use std::fmt::{self, Write};

use crate::histogram::Histogram;
use crate::report::Spread;
use crate::run::{JobReport, Report};
use crate::spec::{BlockSizes, Direction};
use crate::stats::{DEPTH_NAMES, DirectionStats};
use crate::units;

/// The columns of a latency row between mean and maximum.
const COLUMNS: [(&str, f64); 8] = [
    ("p1", 1.0),
    ("p10", 10.0),
    ("p50", 50.0),
    ("p90", 90.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("p99.99", 99.99),
];

/// The whole report.
pub fn print(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut text, report);
    text
}

fn write_all(text: &mut String, report: &Report) -> fmt::Result {
    for (at, job) in report.jobs.iter().enumerate() {
        if at > 0 {
            writeln!(text)?;
        }
        write_job(text, job)?;
    }
    if report.jobs.len() > 1 {
        writeln!(text)?;
        write_sums(text, &report.jobs)?;
    }
    for disk in &report.disks.disks {
        let [(_, reads), (_, writes), ..] = disk.fields();
        writeln!(
            text,
            "disk {}: {reads} reads, {writes} writes, busy {:.1} % of {} s",
            disk.name,
            100.0 * disk.busy_ms() as f64 / report.disks.elapsed_ms.max(1) as f64,
            report.disks.elapsed_ms as f64 / 1000.0,
        )?;
    }
    Ok(())
}

fn sizes(sizes: &BlockSizes) -> String {
    let printed = |bytes: u32| units::bytes(f64::from(bytes));
    match sizes.choices.as_slice() {
        choices @ ([] | [_] | [_, _] | [_, _, _]) => {
            let all: Vec<String> = choices.iter().map(|(bytes, _)| printed(*bytes)).collect();
            all.join(", ")
        }
        _ => format!("{}, ..., {}", printed(sizes.unit()), printed(sizes.max())),
    }
}

fn write_job(text: &mut String, job: &JobReport) -> fmt::Result {
    let spec = &job.spec;
    let mut sizes: Vec<String> = spec.sizes_used().map(sizes).collect();
    sizes.dedup();
    writeln!(
        text,
        "{}: {} of {}, depth {}, {} job{}, {}",
        spec.name,
        spec.rw.name(),
        sizes.join(" and "),
        spec.iodepth,
        job.jobs,
        if job.jobs == 1 { "" } else { "s" },
        job.target,
    )?;
    for direction in Direction::ALL {
        let stats = job.stats.direction(direction);
        if stats.ios > 0 {
            write_direction(text, direction, stats, job)?;
        }
    }
    let sync = &job.stats.sync;
    if sync.total() > 0 {
        writeln!(text, "  fsync   {} times", sync.total())?;
        write_header(text)?;
        write_latency(text, "lat", sync)?;
    }
    let usage = &job.stats.usage;
    let elapsed = (job.stats.elapsed_ns as f64 * f64::from(job.jobs) / 1e9).max(1e-9);
    writeln!(
        text,
        "  cpu     user {:.1} %, system {:.1} %, {} context switches, {} / {} major / minor faults",
        100.0 * usage.user.as_secs_f64() / elapsed,
        100.0 * usage.system.as_secs_f64() / elapsed,
        usage.switches,
        usage.major_faults,
        usage.minor_faults,
    )?;
    write_depths(text, &job.stats.depths)?;
    if job.stats.mismatches > 0 {
        writeln!(text, "  verify  {} blocks are WRONG", job.stats.mismatches)?;
    }
    if let Some(error) = &job.error {
        writeln!(text, "  error   {error}")?;
    }
    Ok(())
}

fn write_direction(
    text: &mut String,
    direction: Direction,
    stats: &DirectionStats,
    job: &JobReport,
) -> fmt::Result {
    let seconds = (stats.runtime_ns as f64 / 1e9).max(1e-9);
    let rate = stats.bytes as f64 / seconds;
    writeln!(
        text,
        "  {:7} {} IOPS, {}/s ({}/s), {} in {seconds:.2} s",
        direction.name(),
        units::count(stats.ios as f64 / seconds),
        units::bytes(rate),
        units::decimal_bytes(rate),
        units::bytes(stats.bytes as f64),
    )?;
    write_header(text)?;
    write_latency(text, "slat", &stats.slat)?;
    write_latency(text, "clat", &stats.clat)?;
    write_latency(text, "lat", &stats.lat)?;
    let at = direction as usize;
    let spread = Spread::of(&job.stats.samples, |sample| {
        sample.bytes.get(at).copied().unwrap_or(0)
    });
    if spread.samples > 1 && job.spec.rw.does(direction) {
        writeln!(
            text,
            "    each half second: {}/s to {}/s, mean {}/s, deviation {}/s",
            units::bytes(spread.min),
            units::bytes(spread.max),
            units::bytes(spread.mean),
            units::bytes(spread.deviation),
        )?;
    }
    Ok(())
}

fn write_header(text: &mut String) -> fmt::Result {
    write!(text, "    {:6}{:>9}{:>9}{:>9}", "", "min", "mean", "stdev")?;
    for (name, _) in COLUMNS {
        write!(text, "{name:>9}")?;
    }
    writeln!(text, "{:>9}", "max")
}

fn write_latency(text: &mut String, name: &str, histogram: &Histogram) -> fmt::Result {
    write!(
        text,
        "    {name:6}{:>9}{:>9}{:>9}",
        units::nanos(histogram.min_ns() as f64),
        units::nanos(histogram.mean_ns()),
        units::nanos(histogram.deviation_ns()),
    )?;
    for (_, percent) in COLUMNS {
        write!(
            text,
            "{:>9}",
            units::nanos(histogram.percentile_ns(percent) as f64)
        )?;
    }
    writeln!(text, "{:>9}", units::nanos(histogram.max_ns() as f64))
}

fn write_depths(text: &mut String, depths: &[u64; 7]) -> fmt::Result {
    let total: u64 = depths.iter().sum();
    write!(text, "  depths ")?;
    for (name, count) in DEPTH_NAMES.iter().zip(depths) {
        if *count > 0 {
            write!(
                text,
                " {name}: {:.1} %",
                100.0 * *count as f64 / total.max(1) as f64
            )?;
        }
    }
    writeln!(text)
}

/// What the jobs of each group moved together.
fn write_sums(text: &mut String, jobs: &[JobReport]) -> fmt::Result {
    let groups = jobs.last().map_or(0, |job| job.group + 1);
    for group in 0..groups {
        for direction in Direction::ALL {
            let members = jobs.iter().filter(|job| job.group == group);
            let stats: Vec<_> = members.map(|job| job.stats.direction(direction)).collect();
            let bytes: u64 = stats.iter().map(|stats| stats.bytes).sum();
            let ios: u64 = stats.iter().map(|stats| stats.ios).sum();
            let longest = stats
                .iter()
                .map(|stats| stats.runtime_ns)
                .max()
                .unwrap_or(0);
            if ios == 0 {
                continue;
            }
            let seconds = (longest as f64 / 1e9).max(1e-9);
            writeln!(
                text,
                "group {group}: {:5} {} IOPS, {}/s, {} in {seconds:.2} s",
                direction.name(),
                units::count(ios as f64 / seconds),
                units::bytes(bytes as f64 / seconds),
                units::bytes(bytes as f64),
            )?;
        }
    }
    Ok(())
}
