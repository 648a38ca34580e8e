//! Groups of jobs one after the other, the jobs of a group at the same time, a thread each.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::disk::Disks;
use crate::error::Error;
use crate::limits;
use crate::offsets::Region;
use crate::progress::Progress;
use crate::spec::{JobSpec, Verify};
use crate::stats::{Live, Stats};
use crate::target::{Found, Place};
use crate::worker::{self, Task};

/// How often the progress is shown, and the user's wish to end is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// What all jobs came to.
#[derive(Debug)]
pub struct Report {
    /// In the order of the jobs; one for each group's like jobs where that is asked for.
    pub jobs: Vec<JobReport>,
    /// What the disks below did meanwhile.
    pub disks: Disks,
}

/// What a job, or several that are reported together, came to.
#[derive(Debug)]
pub struct JobReport {
    /// The job; of several, the first.
    pub spec: JobSpec,
    /// Its target.
    pub target: String,
    /// Which group it ran in, from 0.
    pub group: usize,
    /// How many are in this report.
    pub jobs: u32,
    /// What was measured.
    pub stats: Stats,
    /// What ended it before its time, or what its verification found.
    pub error: Option<Error>,
}

/// One thread.
struct Job<'a> {
    spec: &'a JobSpec,
    place: Place,
    /// Among those that `numjobs` makes.
    number: u32,
    seed: u64,
    region: Region,
}

/// Runs jobs to their end, or until `stop` is set.
///
/// # Errors
/// What keeps a group from starting. What a job runs into is in its report.
pub fn run(specs: &[JobSpec], progress: &mut Progress, stop: &AtomicBool) -> Result<Report, Error> {
    let mut jobs = Vec::new();
    let mut threads = 0;
    let places = places(specs)?;
    let disks = Disks::of(places.iter().flatten());
    for (group, members) in groups(specs).into_iter().enumerate() {
        let mut members_jobs = Vec::new();
        for at in members {
            let (Some(spec), Some(places)) = (specs.get(at), places.get(at)) else {
                continue;
            };
            for (number, place) in (0..spec.numjobs).zip(places) {
                members_jobs.push(Job {
                    spec,
                    place: place.clone(),
                    number,
                    seed: spec.seed.wrapping_add(threads),
                    region: Region {
                        offset: 0,
                        bytes: 0,
                    },
                });
                threads += 1;
            }
        }
        prepare(&mut members_jobs, stop)?;
        let results = run_group(&members_jobs, progress, stop)?;
        add_reports(&mut jobs, group, &members_jobs, results);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(Report {
        jobs,
        disks: disks.since_then(),
    })
}

/// The place of each of the jobs that a spec makes.
fn places(specs: &[JobSpec]) -> Result<Vec<Vec<Place>>, Error> {
    let total: u64 = specs.iter().map(|spec| u64::from(spec.numjobs)).sum();
    if let (true, Some(spec)) = (total > limits::JOBS_MAX as u64, specs.first()) {
        let why = format!(
            "{total} jobs are more than the limit of {}",
            limits::JOBS_MAX
        );
        return Err(Error::job(&spec.name, why));
    }
    specs
        .iter()
        .map(|spec| {
            (0..spec.numjobs)
                .map(|number| place(spec, number))
                .collect()
        })
        .collect()
}

/// The file that is named, or one of the job's own in the directory, with fio's name.
fn place(spec: &JobSpec, number: u32) -> Result<Place, Error> {
    let parsed = |text: &str| Place::parse(text).map_err(|why| Error::job(&spec.name, why));
    match (&spec.filename, &spec.directory) {
        (Some(filename), None) => parsed(filename),
        (Some(filename), Some(directory)) => match parsed(filename)? {
            Place::Path(path) => Ok(Place::Path(PathBuf::from(directory).join(path))),
            namespace @ Place::Namespace(_) => Ok(namespace),
        },
        (None, Some(directory)) => {
            let name = format!("{}.{number}.0", spec.name);
            Ok(Place::Path(PathBuf::from(directory).join(name)))
        }
        (None, None) => Err(Error::job(
            &spec.name,
            "no target; name a file, a device, nvme+tcp://HOST:PORT/NQN?nsid=N, or a --directory",
        )),
    }
}

/// A stonewall begins a new group.
fn groups(specs: &[JobSpec]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, spec) in specs.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if !spec.stonewall => group.push(at),
            _ => groups.push(vec![at]),
        }
    }
    groups
}

/// Looks at each place once, cuts the jobs' parts, and only where nothing is to be refused makes what is missing.
fn prepare(jobs: &mut [Job<'_>], stop: &AtomicBool) -> Result<(), Error> {
    let mut known: Vec<(Place, Found)> = Vec::new();
    for at in 0..jobs.len() {
        let Some(place) = jobs.get(at).map(|job| job.place.clone()) else {
            continue;
        };
        let found = match known.iter().find(|(known, _)| *known == place) {
            Some((_, found)) => found.clone(),
            None => {
                let users: Vec<_> = jobs
                    .iter()
                    .filter(|job| job.place == place)
                    .map(|job| (job.spec, job.number))
                    .collect();
                let found = place.look(&users, stop)?;
                known.push((place, found.clone()));
                found
            }
        };
        if let Some(job) = jobs.get_mut(at) {
            job.region = found.region(job.spec, job.number)?;
            job.place = found.place;
        }
    }
    check_apart(jobs)?;
    known.iter().try_for_each(|(_, found)| found.complete(stop))
}

/// A job whose writes are verified shares no byte with another one that writes.
fn check_apart(jobs: &[Job<'_>]) -> Result<(), Error> {
    let verified = |job: &Job<'_>| job.spec.verify != Verify::None;
    for (at, job) in jobs.iter().enumerate() {
        for other in jobs.iter().skip(at + 1) {
            let overlap = job.region.offset < other.region.offset + other.region.bytes
                && other.region.offset < job.region.offset + job.region.bytes;
            let changed = job.spec.rw.changes() || other.spec.rw.changes();
            if job.place == other.place && overlap && changed && (verified(job) || verified(other))
            {
                return Err(Error::job(
                    &job.spec.name,
                    "several jobs write the same bytes, so that nothing can be verified; give --offset-increment and --size, or a stonewall",
                ));
            }
        }
    }
    Ok(())
}

fn run_group(
    jobs: &[Job<'_>],
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<Vec<(Stats, Option<Error>)>, Error> {
    let lives: Vec<Live> = jobs.iter().map(|_| Live::default()).collect();
    let start = Start {
        barrier: Barrier::new(jobs.len() + 1),
        given_up: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let (ended, endings) = mpsc::channel::<()>();
        let threads: Vec<_> = jobs
            .iter()
            .zip(&lives)
            .map(|(job, live)| {
                let (ended, start) = (ended.clone(), &start);
                scope.spawn(move || {
                    let result = run_job(job, live, stop, start);
                    // Nobody listens any more only where a thread has panicked.
                    let _ = ended.send(());
                    result
                })
            })
            .collect();
        start.barrier.wait();
        let began = Instant::now();
        let specs: Vec<&JobSpec> = jobs.iter().map(|job| job.spec).collect();
        progress.begin(&specs, jobs.iter().map(|job| job.region.bytes));
        let mut running = jobs.len();
        while running > 0 {
            match endings.recv_timeout(LOOK_INTERVAL) {
                Ok(()) => running -= 1,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    progress.show(began.elapsed(), running, &lives);
                    progress.warn_of_silence(&lives);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        progress.end();
        let mut results = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(result) => results.push(result?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(results)
    })
}

struct Start {
    barrier: Barrier,
    given_up: AtomicBool,
}

/// One thread: opens, waits until all have opened, and runs. An error is one that kept it from starting.
fn run_job(
    job: &Job<'_>,
    live: &Live,
    stop: &AtomicBool,
    start: &Start,
) -> Result<(Stats, Option<Error>), Error> {
    let engine = job.place.open(job.spec, job.region, stop);
    if engine.is_err() {
        start.given_up.store(true, Ordering::Release);
    }
    start.barrier.wait();
    let engine = engine?;
    if start.given_up.load(Ordering::Acquire) {
        return Ok((Stats::default(), None));
    }
    let task = Task {
        spec: job.spec,
        region: job.region,
        seed: job.seed,
        live,
        stop,
    };
    Ok(worker::run(task, engine))
}

fn add_reports(
    reports: &mut Vec<JobReport>,
    group: usize,
    jobs: &[Job<'_>],
    results: Vec<(Stats, Option<Error>)>,
) {
    for (job, (stats, error)) in jobs.iter().zip(results) {
        let together = reports.last_mut().filter(|report| {
            job.spec.group_reporting && report.group == group && report.spec.group_reporting
        });
        match together {
            Some(report) => {
                report.jobs += 1;
                report.stats.merge(&stats);
                if report.error.is_none() {
                    report.error = error;
                }
            }
            None => reports.push(JobReport {
                spec: job.spec.clone(),
                target: job.place.name(),
                group,
                jobs: 1,
                stats,
                error,
            }),
        }
    }
}
