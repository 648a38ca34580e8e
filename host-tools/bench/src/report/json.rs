//! fio's JSON, field by field (version 3.33, with `--slat_percentiles=1 --lat_percentiles=1`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use printout::size::whole;
use serde_json::{Map, Value, json};

use crate::histogram::Histogram;
use crate::report::{PERCENTILES, Spread};
use crate::run::{JobReport, Report};
use crate::spec::{Direction, JobSpec};
use crate::stats::{DEPTH_NAMES, DirectionStats};

const KIB: f64 = 1024.0;
const BATCHES: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];
const BOUNDS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// The whole report.
pub fn print(report: &Report) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let value = value(report, now);
    // Numbers and strings only: this cannot fail.
    let mut text = serde_json::to_string_pretty(&value).unwrap_or_default();
    text.push('\n');
    text
}

fn value(report: &Report, now: Duration) -> Value {
    let jobs: Vec<Value> = report
        .jobs
        .iter()
        .map(|job| job_value(job, &report.jobs))
        .collect();
    let disks: Vec<Value> = report
        .disks
        .disks
        .iter()
        .map(|disk| {
            let mut fields = Map::new();
            fields.insert("name".to_owned(), disk.name.clone().into());
            for (name, count) in disk.fields() {
                fields.insert(name.to_owned(), count.into());
            }
            let busy = 100.0 * disk.busy_ms() as f64 / report.disks.elapsed_ms.max(1) as f64;
            fields.insert("util".to_owned(), busy.min(100.0).into());
            fields.into()
        })
        .collect();
    let mut value = json!({
        "fio version": concat!("xio-", env!("CARGO_PKG_VERSION")),
        "timestamp": now.as_secs(),
        "timestamp_ms": u64::try_from(now.as_millis()).unwrap_or(0),
        "time": time_text(now.as_secs()),
        "jobs": jobs,
        "disk_util": disks,
    });
    // As fio: only where a job file has them.
    let globals: Map<String, Value> = report
        .jobs
        .iter()
        .flat_map(|job| options(&job.spec, true))
        .collect();
    if let (Some(fields), false) = (value.as_object_mut(), globals.is_empty()) {
        fields.insert("global options".to_owned(), globals.into());
    }
    value
}

/// What was given in `[global]`, or for the job itself.
fn options(spec: &JobSpec, global: bool) -> impl Iterator<Item = (String, Value)> {
    let given = spec
        .given
        .iter()
        .filter(move |given| given.global == global);
    given.map(|given| (given.name.clone(), given.value.clone().into()))
}

fn job_value(job: &JobReport, all: &[JobReport]) -> Value {
    let (spec, stats) = (&job.spec, &job.stats);
    let elapsed = (stats.elapsed_ns as f64 * f64::from(job.jobs) / 1e9).max(1e-9);
    let options: Map<String, Value> = options(spec, false).collect();
    let mut value = json!({
        "jobname": spec.name,
        "groupid": job.group,
        "error": job.error.as_ref().map_or(0, crate::Error::errno),
        "eta": 0,
        "elapsed": (stats.elapsed_ns + u64::try_from(spec.ramp_time.as_nanos()).unwrap_or(0)).div_ceil(1_000_000_000),
        "job options": options,
        "sync": {
            "total_ios": stats.sync.total(),
            "lat_ns": latency(&stats.sync),
        },
        "job_runtime": stats.elapsed_ns * u64::from(job.jobs) / 1_000_000,
        "usr_cpu": 100.0 * stats.usage.user.as_secs_f64() / elapsed,
        "sys_cpu": 100.0 * stats.usage.system.as_secs_f64() / elapsed,
        "ctx": stats.usage.switches,
        "majf": stats.usage.major_faults,
        "minf": stats.usage.minor_faults,
        "iodepth_level": shares(&DEPTH_NAMES, &stats.depths),
        "iodepth_submit": shares(&BATCHES, &stats.submits),
        "iodepth_complete": shares(&BATCHES, &stats.completes),
        "latency_depth": spec.iodepth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
    });
    let latencies = latency_shares(job);
    if let Some(fields) = value.as_object_mut() {
        for direction in Direction::ALL {
            fields.insert(
                direction.name().to_owned(),
                direction_value(direction, job, all),
            );
        }
        fields.extend(latencies);
    }
    value
}

fn direction_value(direction: Direction, job: &JobReport, all: &[JobReport]) -> Value {
    let stats = job.stats.direction(direction);
    let at = direction as usize;
    // What a direction without commands did over time is nothing, and not many times nothing.
    let samples = if stats.ios > 0 {
        job.stats.samples.as_slice()
    } else {
        &[]
    };
    let bytes = Spread::of(samples, |sample| sample.bytes.get(at).copied().unwrap_or(0));
    let ios = Spread::of(samples, |sample| sample.ios.get(at).copied().unwrap_or(0));
    let group = all.iter().filter(|other| other.group == job.group);
    let together: f64 = group
        .map(|other| rate(other.stats.direction(direction)))
        .sum();
    let rate = rate(stats);
    let milliseconds = stats.runtime_ns / 1_000_000;
    json!({
        "io_bytes": stats.bytes,
        "io_kbytes": stats.bytes / 1024,
        "bw_bytes": whole(rate),
        "bw": whole(rate / KIB),
        "iops": if stats.runtime_ns == 0 { 0.0 } else { stats.ios as f64 * 1e9 / stats.runtime_ns as f64 },
        "runtime": if stats.ios == 0 { 0 } else { milliseconds },
        "total_ios": stats.ios,
        "short_ios": stats.short,
        "drop_ios": 0,
        "slat_ns": latency(&stats.slat),
        "clat_ns": latency(&stats.clat),
        "lat_ns": latency(&stats.lat),
        "bw_min": whole(bytes.min / KIB),
        "bw_max": whole(bytes.max / KIB),
        "bw_agg": if together > 0.0 { 100.0 * rate / together } else { 0.0 },
        "bw_mean": bytes.mean / KIB,
        "bw_dev": bytes.deviation / KIB,
        "bw_samples": bytes.samples,
        "iops_min": whole(ios.min),
        "iops_max": whole(ios.max),
        "iops_mean": ios.mean,
        "iops_stddev": ios.deviation,
        "iops_samples": ios.samples,
    })
}

/// Bytes a second.
fn rate(stats: &DirectionStats) -> f64 {
    if stats.runtime_ns == 0 {
        return 0.0;
    }
    stats.bytes as f64 * 1e9 / stats.runtime_ns as f64
}

fn latency(histogram: &Histogram) -> Value {
    let mut value = json!({
        "min": histogram.min_ns(),
        "max": histogram.max_ns(),
        "mean": histogram.mean_ns(),
        "stddev": histogram.deviation_ns(),
        "N": histogram.total(),
    });
    if let (Some(fields), true) = (value.as_object_mut(), histogram.total() > 0) {
        let percentiles: Map<String, Value> = PERCENTILES
            .iter()
            .map(|percent| {
                (
                    format!("{percent:.6}"),
                    histogram.percentile_ns(*percent).into(),
                )
            })
            .collect();
        fields.insert("percentile".to_owned(), percentiles.into());
    }
    value
}

fn shares(names: &[&str; 7], counts: &[u64; 7]) -> Map<String, Value> {
    let total = counts.iter().sum::<u64>().max(1) as f64;
    names
        .iter()
        .zip(counts)
        .map(|(name, count)| ((*name).to_owned(), (100.0 * *count as f64 / total).into()))
        .collect()
}

/// Which share of the commands completed (clat) within each of fio's bounds; to the width of a bucket.
fn latency_shares(job: &JobReport) -> Map<String, Value> {
    let mut slots = [[0u64; 12]; 3];
    let mut total = 0;
    for direction in &job.stats.directions {
        for (ns, count) in direction.clat.buckets() {
            total += count;
            let (scale, value) = match ns {
                0..1_000 => (0, ns),
                1_000..1_000_000 => (1, ns / 1_000),
                _ => (2, ns / 1_000_000),
            };
            let at = match (scale, value) {
                (2, 1_000..2_000) => 10,
                (2, 2_000..) => 11,
                // fio counts to below each bound.
                _ => BOUNDS.iter().position(|bound| value < *bound).unwrap_or(9),
            };
            if let Some(slot) = slots.get_mut(scale).and_then(|slots| slots.get_mut(at)) {
                *slot += count;
            }
        }
    }
    let share = |count: u64| Value::from(100.0 * count as f64 / total.max(1) as f64);
    let mut fields = Map::new();
    for (scale, (name, counts)) in ["latency_ns", "latency_us", "latency_ms"]
        .into_iter()
        .zip(slots)
        .enumerate()
    {
        let mut named: Map<String, Value> = BOUNDS
            .iter()
            .zip(counts)
            .map(|(bound, count)| (bound.to_string(), share(count)))
            .collect();
        if let (2, [.., below, above]) = (scale, counts) {
            named.insert("2000".to_owned(), share(below));
            named.insert(">=2000".to_owned(), share(above));
        }
        fields.insert(name.to_owned(), named.into());
    }
    fields
}

/// As ctime(3) gives it, in UTC: `Sat Nov 21 16:08:12 2026`.
fn time_text(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have their odd day at the end; 146 097 days are 400 years.
    let from_march = days + 719_468;
    let (era, day) = (from_march / 146_097, from_march % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 2, 0)
    } else {
        (month - 10, 1)
    };
    let name = |names: &[&'static str], at: u64| {
        let at = usize::try_from(at).unwrap_or(0);
        names.get(at).copied().unwrap_or("")
    };
    format!(
        "{} {} {day:2} {:02}:{:02}:{:02} {}",
        name(&DAYS, days % 7),
        name(&MONTHS, month),
        second / 3600,
        second / 60 % 60,
        second % 60,
        era * 400 + year + next,
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::disk::Disks;
    use crate::stats::{Sample, Stats};

    /// Every path of a value; percentiles and options by themselves.
    fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    paths(value, &format!("{path}/{name}"), found);
                }
            }
            Value::Array(values) => values
                .iter()
                .for_each(|value| paths(value, &format!("{path}[]"), found)),
            _ => {
                found.insert(path.to_owned());
            }
        }
    }

    fn job() -> JobReport {
        let mut spec = JobSpec::new("job");
        spec.set("rw", Some("randrw")).unwrap();
        let mut stats = Stats::default();
        for direction in [Direction::Read, Direction::Write] {
            let one = stats.direction_mut(direction);
            for at in 0..100u64 {
                let (slat, clat) = (300 + at, 80_000 + at * 100);
                one.ios += 1;
                one.bytes += 4096;
                one.slat.add(slat);
                one.clat.add(clat);
                one.lat.add(slat + clat);
            }
            one.runtime_ns = 1_000_000_000;
        }
        stats.sync.add(1_000_000);
        stats.elapsed_ns = 1_000_000_000;
        stats.samples = (1..=10)
            .map(|at| Sample {
                at_ns: at * 100_000_000,
                bytes: [at * 40_960, at * 40_960, 0],
                ios: [at * 10, at * 10, 0],
            })
            .collect();
        JobReport {
            spec,
            target: "/x".to_owned(),
            group: 0,
            jobs: 1,
            stats,
            error: None,
        }
    }

    #[test]
    fn the_fields_are_those_of_fio() {
        let mut report = Report {
            jobs: vec![job()],
            disks: Disks::of(std::iter::empty()).since_then(),
        };
        report.disks.disks.push(crate::disk::Disk::of_name("vda"));
        let mut found = BTreeSet::new();
        paths(&value(&report, Duration::from_secs(1)), "", &mut found);
        found.retain(|path| !path.contains("/job options/"));
        let expected: BTreeSet<String> = include_str!("../../tests/fio-fields.txt")
            .lines()
            .map(str::to_owned)
            .collect();
        assert_eq!(
            found.difference(&expected).collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "not fio's"
        );
        assert_eq!(
            expected.difference(&found).collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "missing"
        );
    }

    #[test]
    fn what_global_said_stands_beside_the_jobs() {
        let mut job = job();
        job.spec.set("bs", Some("8k")).unwrap();
        job.spec.last_is_global();
        let report = Report {
            jobs: vec![job],
            disks: Disks::of(std::iter::empty()).since_then(),
        };
        let value = value(&report, Duration::from_secs(1));
        assert_eq!(value["global options"], json!({"bs": "8k"}));
        assert_eq!(value["jobs"][0]["job options"], json!({"rw": "randrw"}));
    }

    #[test]
    fn the_figures_are_in_fios_units() {
        let job = job();
        let value = job_value(&job, std::slice::from_ref(&job));
        let read = &value["read"];
        assert_eq!(read["bw_bytes"], 409_600);
        assert_eq!(read["bw"], 400);
        assert_eq!(read["iops"], 100.0);
        assert_eq!(read["runtime"], 1000);
        assert_eq!(read["bw_mean"], 400.0);
        assert_eq!(read["iops_samples"], 2);
        assert_eq!(read["bw_agg"], 100.0);
        assert_eq!(read["clat_ns"]["min"], 80_000);
        assert_eq!(read["clat_ns"]["N"], 100);
        let median = read["clat_ns"]["percentile"]["50.000000"].as_u64().unwrap();
        assert!(median.abs_diff(84_900) < 84_900 / 64);
        assert_eq!(value["latency_us"]["100"], 100.0);
        assert_eq!(value["trim"]["total_ios"], 0);
        assert_eq!(value["trim"]["bw_samples"], 0);
        assert_eq!(value["job options"]["rw"], "randrw");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_795_277_292, "Sat Nov 21 16:08:12 2026"),
            (4_107_542_399, "Sun Feb 28 23:59:59 2100"),
        ] {
            assert_eq!(time_text(seconds), text);
        }
    }
}
