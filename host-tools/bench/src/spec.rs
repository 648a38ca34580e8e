//! One job: every option, what it is when nobody says, and how its text is read. Command line and job files come through here.

mod block_sizes;
mod moved;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use initiator::Nqn;
use printout::ranges::{self, ReadRange};

use crate::limits;
use crate::number::{self, Amount};
pub use block_sizes::BlockSizes;

/// Which way one command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the target.
    Read = 0,
    /// To the target.
    Write = 1,
    /// Deallocate.
    Trim = 2,
}

impl Direction {
    /// Of what there is one for each direction, this one's.
    pub fn of<T>(self, all: &[T; 3]) -> &T {
        let [read, write, trim] = all;
        match self {
            Direction::Read => read,
            Direction::Write => write,
            Direction::Trim => trim,
        }
    }

    /// In the order of fio's figures.
    pub const ALL: [Direction; 3] = [Direction::Read, Direction::Write, Direction::Trim];

    /// As fio's JSON calls it.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Trim => "trim",
        }
    }
}

/// What a job does, as `--rw` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Places in random order.
    pub random: bool,
    /// Which ways.
    pub mix: Mix,
}

/// Which ways a job's commands go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// One way.
    Only(Direction),
    /// Reads and writes, `rwmixread` in a hundred being reads.
    ReadWrite,
}

const WORKLOADS: [(&str, Workload); 10] = {
    const fn one(random: bool, direction: Direction) -> Workload {
        Workload {
            random,
            mix: Mix::Only(direction),
        }
    }
    const fn both(random: bool) -> Workload {
        Workload {
            random,
            mix: Mix::ReadWrite,
        }
    }
    [
        ("read", one(false, Direction::Read)),
        ("write", one(false, Direction::Write)),
        ("trim", one(false, Direction::Trim)),
        ("randread", one(true, Direction::Read)),
        ("randwrite", one(true, Direction::Write)),
        ("randtrim", one(true, Direction::Trim)),
        ("rw", both(false)),
        ("readwrite", both(false)),
        ("randrw", both(true)),
        ("randreadwrite", both(true)),
    ]
};

impl Workload {
    fn parse(text: &str) -> Result<Workload, String> {
        WORKLOADS
            .iter()
            .find_map(|(name, workload)| (*name == text).then_some(*workload))
            .ok_or_else(|| {
                format!("'{text}' is none of read, write, trim, randread, randwrite, randtrim, rw and randrw")
            })
    }

    /// As fio names it.
    pub fn name(self) -> &'static str {
        WORKLOADS
            .iter()
            .find_map(|(name, workload)| (*workload == self).then_some(*name))
            .unwrap_or("read")
    }

    /// Whether commands of it go that way.
    pub fn does(self, direction: Direction) -> bool {
        match self.mix {
            Mix::Only(only) => only == direction,
            Mix::ReadWrite => direction != Direction::Trim,
        }
    }

    /// Whether it changes the target.
    pub fn changes(self) -> bool {
        self.does(Direction::Write) || self.does(Direction::Trim)
    }
}

/// How each block is vouched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Not at all.
    None,
    /// A header with place, seed, generation and CRC-32C.
    Crc32c,
}

/// One job, with every option. The fields are named as the options; their meaning is in the help of each.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    missing_docs,
    reason = "each is the option of its name, explained in `Arguments`"
)]
pub struct JobSpec {
    pub name: String,
    pub filename: Option<String>,
    pub directory: Option<String>,
    pub rw: Workload,
    /// By direction.
    pub bs: [BlockSizes; 3],
    pub iodepth: u32,
    pub iodepth_batch: u32,
    pub iodepth_batch_complete_min: u32,
    pub iodepth_batch_complete_max: u32,
    pub numjobs: u32,
    pub rate: [Option<u64>; 3],
    pub rate_iops: [Option<u64>; 3],
    pub runtime: Option<Duration>,
    pub time_based: bool,
    pub ramp_time: Duration,
    pub size: Option<Amount>,
    pub io_size: Option<u64>,
    pub offset: Amount,
    pub offset_increment: u64,
    pub rwmixread: u32,
    pub direct: bool,
    pub invalidate: bool,
    pub fsync: u32,
    pub fdatasync: u32,
    pub end_fsync: bool,
    pub verify: Verify,
    pub do_verify: bool,
    pub seed: u64,
    pub norandommap: bool,
    pub loops: u64,
    pub order: Option<Arc<[ReadRange]>>,
    pub fixedbufs: bool,
    pub registerfiles: bool,
    pub sqpoll: bool,
    pub group_reporting: bool,
    pub stonewall: bool,
    pub allow_overwrite: bool,
    pub allow_mounted_write: bool,
    /// `--readonly` is given: nothing is written, made or made longer.
    pub readonly: bool,
    /// `--hostnqn`: the host that connects.
    pub hostnqn: Option<Nqn>,
    /// As they were given, for the report.
    pub given: Vec<Given>,
}

/// An option that somebody gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// In the spelling of a job file.
    pub name: String,
    /// 1 for an option without a value.
    pub value: String,
    /// Whether `[global]` of a job file says it.
    pub global: bool,
}

impl JobSpec {
    /// A job of this name, with fio's defaults.
    pub fn new(name: &str) -> JobSpec {
        JobSpec {
            name: name.to_owned(),
            filename: None,
            directory: None,
            rw: WORKLOADS[0].1,
            bs: Default::default(),
            iodepth: 1,
            iodepth_batch: 1,
            iodepth_batch_complete_min: 1,
            iodepth_batch_complete_max: 0,
            numjobs: 1,
            rate: [None; 3],
            rate_iops: [None; 3],
            runtime: None,
            time_based: false,
            ramp_time: Duration::ZERO,
            size: None,
            io_size: None,
            offset: Amount::Bytes(0),
            offset_increment: 0,
            rwmixread: 50,
            direct: false,
            invalidate: true,
            fsync: 0,
            fdatasync: 0,
            end_fsync: false,
            verify: Verify::None,
            do_verify: true,
            seed: 1,
            norandommap: false,
            loops: 1,
            order: None,
            fixedbufs: false,
            registerfiles: true,
            sqpoll: false,
            group_reporting: false,
            stonewall: false,
            allow_overwrite: false,
            allow_mounted_write: false,
            readonly: false,
            hostnqn: None,
            given: Vec::new(),
        }
    }

    /// Sets the option `name` to `value`, where 0 of a limit is none, as in fio. The name is in the spelling of a job file (`time_based`; hyphens are the same as underscores).
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let name = canonical(name);
        let depth = || number::count(text(value)?, 1, u64::from(limits::DEPTH_MAX)).map(narrow);
        let whole = |max: u64| number::count(text(value)?, 0, max);
        match name.as_str() {
            "filename" => self.filename = Some(text(value)?.to_owned()),
            "directory" => self.directory = Some(text(value)?.to_owned()),
            "rw" => self.rw = Workload::parse(text(value)?)?,
            "bs" => self.bs = by_direction(text(value)?, BlockSizes::one)?,
            "bsrange" => self.bs = by_direction(text(value)?, BlockSizes::range)?,
            "bssplit" => self.bs = by_direction(text(value)?, BlockSizes::split)?,
            "iodepth" => self.iodepth = depth()?,
            "iodepth_batch" => self.iodepth_batch = depth()?,
            "iodepth_batch_complete_min" => self.iodepth_batch_complete_min = depth()?,
            "iodepth_batch_complete_max" => self.iodepth_batch_complete_max = depth()?,
            "numjobs" => {
                self.numjobs = narrow(number::count(text(value)?, 1, limits::JOBS_MAX as u64)?);
            }
            "rate" => {
                self.rate = by_direction(text(value)?, |text| limit(number::bytes(text)))?;
            }
            "rate_iops" => {
                let parse = |text: &str| limit(number::count(text, 0, u64::MAX >> 32));
                self.rate_iops = by_direction(text(value)?, parse)?;
            }
            "runtime" => {
                self.runtime = Some(number::duration(text(value)?)?).filter(|time| !time.is_zero());
            }
            "time_based" => self.time_based = number::flag(value)?,
            "ramp_time" => self.ramp_time = number::duration(text(value)?)?,
            "size" => {
                let size = number::amount(text(value)?)?;
                self.size = Some(size).filter(|size| *size != Amount::Bytes(0));
            }
            "io_size" => {
                self.io_size = Some(number::bytes(text(value)?)?).filter(|size| *size > 0);
            }
            "offset" => self.offset = number::amount(text(value)?)?,
            "offset_increment" => self.offset_increment = number::bytes(text(value)?)?,
            "rwmixread" => self.rwmixread = narrow(whole(100)?),
            "rwmixwrite" => self.rwmixread = 100 - narrow(whole(100)?),
            "direct" => self.direct = number::flag(value)?,
            "buffered" => self.direct = !number::flag(value)?,
            "invalidate" => self.invalidate = number::flag(value)?,
            "fsync" => self.fsync = narrow(whole(u64::from(u32::MAX))?),
            "fdatasync" => self.fdatasync = narrow(whole(u64::from(u32::MAX))?),
            "end_fsync" => self.end_fsync = number::flag(value)?,
            "verify" => {
                self.verify = match text(value)? {
                    "crc32c" => Verify::Crc32c,
                    "none" | "0" => Verify::None,
                    other => return Err(format!("'{other}' is neither crc32c nor none")),
                };
            }
            "do_verify" => self.do_verify = number::flag(value)?,
            "seed" => self.seed = whole(u64::MAX)?,
            "norandommap" => self.norandommap = number::flag(value)?,
            "loops" => self.loops = number::count(text(value)?, 1, u64::from(u32::MAX >> 1))?,
            "order" => self.order = Some(order(Path::new(text(value)?))?),
            "fixedbufs" => self.fixedbufs = number::flag(value)?,
            "registerfiles" => self.registerfiles = number::flag(value)?,
            "sqpoll" => self.sqpoll = number::flag(value)?,
            "group_reporting" => self.group_reporting = number::flag(value)?,
            "stonewall" => self.stonewall = number::flag(value)?,
            "allow_overwrite" => self.allow_overwrite = number::flag(value)?,
            "allow_mounted_write" => self.allow_mounted_write = number::flag(value)?,
            "name" => self.name = text(value)?.to_owned(),
            "thread" => always(value, "1", "jobs are always threads")?,
            "ioengine" => always(
                value,
                "io_uring",
                "files go through io_uring, nvme+tcp:// through NVMe/TCP",
            )?,
            _ => return Err(unknown(&name)),
        }
        let value = value.unwrap_or("1").to_owned();
        self.given.retain(|known| known.name != name);
        self.given.push(Given {
            name,
            value,
            global: false,
        });
        Ok(())
    }

    /// What was set last stands in `[global]`.
    pub fn last_is_global(&mut self) {
        if let Some(last) = self.given.last_mut() {
            last.global = true;
        }
    }

    /// The most completions that are taken at once.
    pub fn complete_max(&self) -> u32 {
        match self.iodepth_batch_complete_max {
            0 => self.iodepth_batch_complete_min,
            max => max,
        }
        .max(self.iodepth_batch_complete_min)
    }

    /// The block sizes of the directions that the job goes.
    pub fn sizes_used(&self) -> impl Iterator<Item = &BlockSizes> {
        let used = Direction::ALL.into_iter().filter(|way| self.rw.does(*way));
        used.map(|way| way.of(&self.bs))
    }

    /// The smallest of them; places and sizes are multiples of it.
    pub fn bs_unit(&self) -> u32 {
        self.sizes_used().map(BlockSizes::unit).min().unwrap_or(0)
    }

    /// The largest of them.
    pub fn bs_max(&self) -> u32 {
        self.sizes_used().map(BlockSizes::max).max().unwrap_or(0)
    }

    /// Whether there is one size only.
    pub fn bs_is_single(&self) -> bool {
        self.bs_unit() == self.bs_max()
    }

    /// Sizes of several directions have to fit each other.
    fn check_sizes(&self) -> Result<(), String> {
        let unit = self.bs_unit();
        let mut all = self.sizes_used().flat_map(|sizes| &sizes.choices);
        if let Some((bytes, _)) = all.find(|(bytes, _)| !bytes.is_multiple_of(unit.max(1))) {
            return Err(format!(
                "blocks of {bytes} bytes are no multiple of the smallest, {unit} bytes"
            ));
        }
        let first = self.sizes_used().next();
        let differ = self.sizes_used().any(|sizes| Some(sizes) != first);
        if differ && self.rw.random && !self.norandommap {
            return Err("a random map has the same sizes for reads and for writes; give norandommap, or the same sizes".to_owned());
        }
        Ok(())
    }

    /// An order says where each read is.
    fn check_order(&self) -> Result<(), String> {
        let Some(order) = &self.order else {
            return Ok(());
        };
        if order.is_empty() {
            return Err("order: the file has no range".to_owned());
        }
        if self.rw.random || self.rw.changes() {
            return Err("an order is read as it is; leave rw, or order".to_owned());
        }
        if !self.bs_is_single() {
            return Err("an order is cut at one block size; give bs".to_owned());
        }
        Ok(())
    }

    /// Checks what single options cannot know.
    ///
    /// # Errors
    /// Options that contradict each other, and which to leave.
    pub fn check(&self) -> Result<(), String> {
        if self.time_based && self.runtime.is_none() {
            return Err("time_based needs a runtime".to_owned());
        }
        if self.iodepth_batch > self.iodepth || self.iodepth_batch_complete_min > self.iodepth {
            return Err(format!(
                "a batch cannot be more than the iodepth of {}",
                self.iodepth
            ));
        }
        self.check_sizes()?;
        self.check_order()?;
        let buffers = u64::from(self.iodepth) * u64::from(self.bs_max());
        if buffers > limits::BUFFER_BYTES_MAX {
            return Err(format!(
                "iodepth times block size is {buffers} bytes of buffers; {} is the limit",
                limits::BUFFER_BYTES_MAX
            ));
        }
        if self.verify == Verify::None {
            return Ok(());
        }
        let read_only = !self.rw.changes();
        if self.rw.does(Direction::Trim) {
            return Err("what is trimmed cannot be verified; leave verify or trim".to_owned());
        }
        if self.norandommap && self.rw.random && !read_only {
            return Err("verified writes need the random map, so that no block is written twice at once; leave norandommap".to_owned());
        }
        if read_only && !self.bs_is_single() {
            return Err(
                "verified reads need the one block size that was written; give bs".to_owned(),
            );
        }
        Ok(())
    }
}

/// The ranges of a file.
fn order(path: &Path) -> Result<Arc<[ReadRange]>, String> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| format!("reading {name}: {error}"))?;
    let ranges =
        ranges::read(BufReader::new(file), name.clone()).take(limits::ORDER_RANGES_MAX + 1);
    let ranges: Arc<[ReadRange]> = ranges
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    if ranges.len() > limits::ORDER_RANGES_MAX {
        return Err(format!(
            "{name} has more than {} ranges, which is the limit: read it in parts",
            limits::ORDER_RANGES_MAX
        ));
    }
    Ok(ranges)
}

fn text(value: Option<&str>) -> Result<&str, String> {
    value.ok_or_else(|| "this option needs a value".to_owned())
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the caller gave a limit within u32"
)]
fn narrow(count: u64) -> u32 {
    count as u32
}

fn always(value: Option<&str>, only: &str, why: &str) -> Result<(), String> {
    match value {
        Some(value) if value != only => {
            Err(format!("'{value}' cannot be chosen: {why}; leave it out"))
        }
        _ => Ok(()),
    }
}

/// fio's `rate=R` or `rate=R,W` or `rate=R,W,T`: the last value is for the directions that have none, an empty one is the default.
fn by_direction<T: Clone + Default>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<[T; 3], String> {
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err(format!(
            "'{text}' has more than a value for reads, writes and trims each"
        ));
    }
    let mut all: [T; 3] = Default::default();
    let mut last = T::default();
    for (at, one) in all.iter_mut().enumerate() {
        match parts.get(at) {
            Some(&"") if parts.len() > 1 => last = T::default(),
            Some(part) => last = parse(part)?,
            None => {}
        }
        *one = last.clone();
    }
    Ok(all)
}

/// A rate of 0 is no limit.
fn limit(rate: Result<u64, String>) -> Result<Option<u64>, String> {
    rate.map(|rate| Some(rate).filter(|rate| *rate > 0))
}

/// The options by their names in job files, for the hint at an unknown one.
#[rustfmt::skip]
pub const NAMES: [&str; 43] = [
    "filename", "directory", "rw", "bs", "bsrange", "bssplit", "iodepth", "iodepth_batch",
    "iodepth_batch_complete_min", "iodepth_batch_complete_max", "numjobs", "rate", "rate_iops", "runtime",
    "time_based", "ramp_time", "size", "io_size", "offset", "offset_increment", "rwmixread", "rwmixwrite",
    "direct", "buffered", "invalidate", "fsync", "fdatasync", "end_fsync", "verify", "do_verify", "seed",
    "norandommap", "loops", "order", "fixedbufs", "registerfiles", "sqpoll", "group_reporting", "stonewall",
    "allow_overwrite", "allow_mounted_write", "name", "ioengine",
];

fn canonical(name: &str) -> String {
    let name = name.replace('-', "_");
    let alias = match name.as_str() {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "blocksize_range" => "bsrange",
        "iodepth_batch_submit" => "iodepth_batch",
        "iodepth_batch_complete" => "iodepth_batch_complete_min",
        "timeout" => "runtime",
        "io_limit" => "io_size",
        "randseed" => "seed",
        "sqthread_poll" => "sqpoll",
        "wait_for_previous" => "stonewall",
        _ => return name,
    };
    alias.to_owned()
}

fn unknown(name: &str) -> String {
    let nearest = NAMES.iter().min_by_key(|known| distance(name, known));
    match nearest {
        Some(known) if distance(name, known) <= 3.min(name.len() / 2) => {
            format!("option '{name}' is not known; is {known} meant?")
        }
        _ => format!("option '{name}' is not known here; `xio bench --help` lists those that are"),
    }
}

/// Letters to insert, remove or change to come from one word to the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = at;
        let mut left = at + 1;
        for (cell, against) in row.iter_mut().skip(1).zip(&other) {
            let change = diagonal + usize::from(letter != *against);
            diagonal = *cell;
            left = change.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = at + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
impl JobSpec {
    /// A job with these settings, which are right.
    pub fn of(settings: &[(&str, &str)]) -> JobSpec {
        let mut spec = JobSpec::new("job");
        for (name, value) in settings {
            spec.set(name, Some(value)).unwrap();
        }
        spec
    }
}
