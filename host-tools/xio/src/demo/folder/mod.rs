//! A folder as a disk: packed as anybody would, its files found through the disk's file system, read over NVMe/TCP and compared.

mod f16;
mod report;
mod served;

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::anyhow;
use serde_json::Value;
use transforms::ElementType;

use super::LBA_BYTES;
use super::interrupt::Interrupt;
use super::measure::first_difference;
use super::target::Target;
use crate::failure::Failure;
use f16::Rounding;
pub use report::{to_json, to_text};
use served::Served;

/// The folder, from that of the arrays.
const FOLDER: &str = "../dataset";
/// Bytes of a sample: 4,096 token ids, a sequence of a trainer.
const SAMPLE_BYTES: usize = 16 << 10;
/// How many are read.
const SAMPLES: u64 = 64;

/// A disk that is packed of the folder, or of a part of it.
struct DiskPlan {
    /// The volume's name.
    volume: &'static str,
    /// What of the folder is on it.
    input: &'static str,
    options: [&'static str; 2],
}

const DISKS: [DiskPlan; 2] = [
    DiskPlan {
        volume: "dataset.xio",
        input: "",
        options: ["--present-as", "source,f16"],
    },
    DiskPlan {
        volume: "samples.xio",
        input: "tokens",
        options: ["--access", "random:16KiB"],
    },
];

impl DiskPlan {
    /// As it is typed at the root of the repository.
    fn command(&self) -> String {
        let slash = if self.input.is_empty() { "" } else { "/" };
        let options = self.options.join(" ");
        format!(
            "xio pack fixtures/dataset{slash}{} {options} -o {}",
            self.input, self.volume
        )
    }
}

/// How a file is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From end to end.
    Whole,
    /// Pieces of it, here and there.
    Samples,
    /// From end to end, presented in f16.
    Rounded,
}

/// A file that is read.
struct Plan {
    /// Index in [`DISKS`].
    disk: usize,
    /// On the disk.
    path: &'static str,
    /// In the folder.
    source: &'static str,
    stored: ElementType,
    way: Way,
}

const BIN: &str = "tokens/o200k.bin";

const READS: [Plan; 7] = [
    whole("source/tokens/o200k.bin", BIN, ElementType::I32),
    whole(
        "source/tokens/o200k.idx",
        "tokens/o200k.idx",
        ElementType::U8,
    ),
    Plan {
        way: Way::Samples,
        ..whole("source/tokens/o200k.bin", BIN, ElementType::I32)
    },
    Plan {
        disk: 1,
        way: Way::Samples,
        ..whole("o200k.bin", BIN, ElementType::I32)
    },
    whole(
        "source/model.safetensors",
        "model.safetensors",
        ElementType::Bf16,
    ),
    whole("source/embeddings.npy", "embeddings.npy", ElementType::F32),
    Plan {
        way: Way::Rounded,
        ..whole("f16/embeddings.npy", "embeddings.npy", ElementType::F32)
    },
];

const fn whole(path: &'static str, source: &'static str, stored: ElementType) -> Plan {
    Plan {
        disk: 0,
        path,
        source,
        stored,
        way: Way::Whole,
    }
}

impl Plan {
    /// The name of the disk's volume.
    fn volume(&self) -> &'static str {
        DISKS.get(self.disk).map_or("", |disk| disk.volume)
    }
}

/// What reading a file gave. Bytes are those of one reading: of all of the file, or the mean of the samples.
struct Row {
    plan: &'static Plan,
    stored_chain: String,
    /// Of the whole file.
    presented_bytes: u64,
    /// Of its values; `None` where they share a stream with other files' headers.
    stored_bytes: Option<u64>,
    /// What a plain file would give for it: the blocks that it touches.
    plain_bytes: u64,
    /// Out of the volume file, with nothing in the cache.
    fetched_bytes: u64,
    /// Over the connection.
    wire_bytes: u64,
    first_difference: Option<u64>,
}

/// What all of it came to.
pub struct Outcome {
    rows: Vec<Row>,
    rounding: Rounding,
}

impl Outcome {
    /// What was not as it must be, if anything.
    pub fn failure(&self) -> Option<Failure> {
        let row = self
            .rows
            .iter()
            .find(|row| row.first_difference.is_some())?;
        Some(Failure::data(anyhow!(
            "{} of {}: byte {} is another than the source's",
            row.plan.path,
            row.plan.volume(),
            row.first_difference.unwrap_or_default()
        )))
    }
}

/// Packs the disks into `volumes`, with this program as a user runs it.
pub fn pack(data: &Path, volumes: &Path, interrupt: &Interrupt) -> Result<Vec<PathBuf>, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::system(anyhow!("finding this program: {error}")))?;
    let mut packed = Vec::new();
    for disk in &DISKS {
        interrupt.check()?;
        let volume = volumes.join(disk.volume);
        let input = data.join(FOLDER).join(disk.input);
        let mut arguments: Vec<OsString> = vec!["pack".into(), input.into(), "-o".into()];
        arguments.push(volume.clone().into());
        arguments.extend(disk.options.map(OsString::from));
        let mut command = Command::new(&program);
        let output = command.args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| Failure::io("starting", &program, error))?;
        // A signal at the terminal reached both.
        interrupt.check()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = anyhow!("{}: {}", disk.command(), said.trim_end());
            return Err(Failure::system(why));
        }
        packed.push(volume);
    }
    Ok(packed)
}

/// Reads the files of the disks. `volumes` are those that [`pack`] made; the first is served as `first_nsid`, the others follow.
pub fn read_all(
    target: &Target,
    first_nsid: u32,
    data: &Path,
    volumes: &[PathBuf],
    interrupt: &Interrupt,
) -> Result<Outcome, Failure> {
    let mut disks = Vec::new();
    for (nsid, volume) in (first_nsid..).zip(volumes) {
        disks.push(Served::connect(&target.address, nsid, volume)?);
    }
    let mut rows = Vec::new();
    let mut rounding = Rounding::default();
    for plan in &READS {
        interrupt.check()?;
        let path = data.join(FOLDER).join(plan.source);
        let source = fs::read(&path).map_err(|error| Failure::io("reading", &path, error))?;
        let disk = disks.get_mut(plan.disk);
        let disk = disk.ok_or_else(|| Failure::system(anyhow!("a disk was not packed")))?;
        let row = match plan.way {
            Way::Whole => read_whole(disk, plan, &source)?,
            Way::Samples => read_samples(disk, plan, &source)?,
            Way::Rounded => {
                let (row, measured) = read_rounded(disk, plan, &source)?;
                rounding = measured;
                row
            }
        };
        rows.push(row);
    }
    for disk in disks {
        disk.close()?;
    }
    Ok(Outcome { rows, rounding })
}

fn read_whole(disk: &mut Served, plan: &'static Plan, source: &[u8]) -> Result<Row, Failure> {
    let place = disk.find(plan.path)?;
    let (bytes, wire_bytes) = disk.read(place.clone())?;
    let mut row = Row::new(disk, plan, &place)?;
    row.wire_bytes = wire_bytes;
    row.fetched_bytes = disk.fetched_bytes(place)?;
    row.first_difference = file_difference(&bytes, source);
    Ok(row)
}

/// The first byte in which a file is not its source; its end, where it is longer, whatever it has there.
fn file_difference(presented: &[u8], source: &[u8]) -> Option<u64> {
    let longer = presented.len() > source.len();
    first_difference(presented, source).or(longer.then_some(source.len() as u64))
}

fn read_samples(disk: &mut Served, plan: &'static Plan, source: &[u8]) -> Result<Row, Failure> {
    let place = disk.find(plan.path)?;
    let mut row = Row::new(disk, plan, &place)?;
    row.plain_bytes = 0;
    for number in 0..SAMPLES {
        let sample = sample(number, source.len() as u64);
        let from = usize::try_from(sample.start).unwrap_or(usize::MAX);
        let expected = source.get(from..).unwrap_or_default();
        let expected = expected.get(..SAMPLE_BYTES).unwrap_or_default();
        let on_disk = place.start + sample.start..place.start + sample.end;
        let (bytes, wire_bytes) = disk.read(on_disk.clone())?;
        row.plain_bytes += blocks_bytes(&sample);
        row.wire_bytes += wire_bytes;
        row.fetched_bytes += disk.fetched_bytes(on_disk)?;
        let differs = first_difference(&bytes, expected).map(|at| sample.start + at);
        row.first_difference = row.first_difference.or(differs);
    }
    row.plain_bytes /= SAMPLES;
    row.wire_bytes /= SAMPLES;
    row.fetched_bytes /= SAMPLES;
    Ok(row)
}

/// Where a sample is in a file of `bytes`: at any id, all over it, the same each time.
fn sample(number: u64, bytes: u64) -> Range<u64> {
    const ID_BYTES: u64 = 4;
    // Multiples of the golden ratio are spread evenly.
    let scattered = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let last = bytes.saturating_sub(SAMPLE_BYTES as u64) / ID_BYTES;
    let start = ((scattered * last) >> 32) * ID_BYTES;
    start..start + SAMPLE_BYTES as u64
}

fn read_rounded(
    disk: &mut Served,
    plan: &'static Plan,
    source: &[u8],
) -> Result<(Row, Rounding), Failure> {
    let place = disk.find(plan.path)?;
    let (bytes, wire_bytes) = disk.read(place.clone())?;
    let mut row = Row::new(disk, plan, &place)?;
    row.wire_bytes = wire_bytes;
    row.fetched_bytes = disk.fetched_bytes(place)?;
    let about = |failure: Failure| failure.about(plan.path);
    let (rounding, differs) = f16::compare(source, &bytes).map_err(about)?;
    row.first_difference = differs;
    if differs.is_none() {
        let said = disk.rounding().map_err(about)?;
        rounding.check_against(&said).map_err(about)?;
    }
    Ok((row, rounding))
}

impl Row {
    /// More is fetched than a plain file would take.
    fn loses(&self) -> bool {
        self.fetched_bytes > self.plain_bytes
    }

    fn new(disk: &Served, plan: &'static Plan, place: &Range<u64>) -> Result<Row, Failure> {
        let stream = disk.stream(plan.stored)?;
        let alone = plan.stored != ElementType::U8;
        Ok(Row {
            plan,
            stored_chain: stream["stored_chain"].as_str().unwrap_or("?").to_owned(),
            presented_bytes: place.end - place.start,
            stored_bytes: stream["stored_bytes"].as_u64().filter(|_| alone),
            plain_bytes: blocks_bytes(&(0..place.end - place.start)),
            fetched_bytes: 0,
            wire_bytes: 0,
            first_difference: None,
        })
    }
}

/// Bytes of the blocks that hold a range of a file.
fn blocks_bytes(range: &Range<u64>) -> u64 {
    let block = u64::from(LBA_BYTES);
    range.end.next_multiple_of(block) - range.start / block * block
}

/// A member of a list in a manifest.
fn member<'a>(list: &'a Value, name: &str, wanted: &str) -> Option<&'a Value> {
    list.as_array()?
        .iter()
        .find(|member| member[name] == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_ends_where_its_source_does() {
        assert_eq!(file_difference(&[1, 2], &[1, 2]), None);
        assert_eq!(file_difference(&[1, 2, 0], &[1, 2]), Some(2));
        assert_eq!(file_difference(&[1], &[1, 2]), Some(1));
        assert_eq!(file_difference(&[1, 3, 0], &[1, 2]), Some(1));
    }

    #[test]
    fn samples_lie_all_over_the_file_and_not_beyond_it() {
        let bytes = 1_701_376;
        let mut starts: Vec<u64> = (0..SAMPLES).map(|n| sample(n, bytes).start).collect();
        assert!(
            starts
                .iter()
                .all(|start| start % 4 == 0 && start + SAMPLE_BYTES as u64 <= bytes)
        );
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len() as u64, SAMPLES);
        let gaps = starts.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.max() < Some(bytes / 16), "{starts:?}");
        assert_eq!(sample(3, SAMPLE_BYTES as u64).start, 0);
    }
}
