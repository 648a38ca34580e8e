//! `xio demo`: real data packed in several ways, served by snap-target, read back over NVMe/TCP, every byte compared.

mod folder;
mod interrupt;
mod measure;
mod report;
mod rows;
mod target;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use serde_json::json;
use tempfile::TempDir;
use transforms::Chain;
use volume::write::StreamSpec;

use crate::cli;
use crate::failure::Failure;
use crate::layout::Layout;
use crate::pack::{self, Plan, available_threads};
use crate::stdout::{print, print_line};
use interrupt::Interrupt;
use report::Row;
use rows::{DATA, Data};
use target::Target;

/// Where the fixtures' data are, from the repository's root.
const FIXTURES: &str = "fixtures/data";
/// Logical block size of the demo's disks.
const LBA_BYTES: u32 = 4096;

/// Runs the command.
pub fn run(arguments: &cli::Demo) -> Result<(), Failure> {
    let started = Instant::now();
    let program = target::find(arguments.target.as_deref())?;
    let data = find_data(arguments.data.as_deref())?;
    let volumes = TempDir::with_prefix("xio-demo-")
        .map_err(|error| Failure::system(anyhow!("making a folder: {error}")))?;

    let measure_for = Duration::from_secs(arguments.seconds);
    let interrupt = Interrupt::listen()?;
    let sources = read_sources(&data)?;
    let packed = pack_all(&data, volumes.path(), &interrupt)?;
    let disks = folder::pack(&data, volumes.path(), &interrupt)?;
    let ways = packed.iter().map(|packed| &packed.volume);
    let paths: Vec<PathBuf> = ways.chain(&disks).cloned().collect();
    let expected: Vec<&[u8]> = packed
        .iter()
        .map(|packed| &sources[packed.source][..])
        .collect();
    let target = Target::start(&program, &paths)?;
    let measured = measure::read_all(&target, &expected, measure_for, &interrupt)?;
    let first_disk = u32::try_from(packed.len())
        .unwrap_or(u32::MAX)
        .saturating_add(1);
    let outcome = folder::read_all(&target, first_disk, &data, &disks, &interrupt)?;

    let rows: Vec<Row> = packed
        .iter()
        .zip(&measured)
        .map(|(packed, measured)| Row::new(&DATA[packed.source], packed, measured))
        .collect();
    if arguments.json {
        let folder = folder::to_json(&outcome);
        print_line(json!({ "folder": folder, "rows": report::to_json(&rows) }))?;
    } else {
        print(&folder::to_text(&outcome))?;
        print(&report::to_text(&rows, started.elapsed()))?;
    }
    if let Some(failure) = outcome.failure() {
        return Err(failure);
    }
    match rows.iter().find(|row| row.first_difference.is_some()) {
        None => Ok(()),
        Some(row) => Err(Failure::data(anyhow!(
            "{} stored as {}: byte {} is another than the source's",
            row.data.file,
            row.stored_chain,
            row.first_difference.unwrap_or_default()
        ))),
    }
}

/// A volume of the demo.
pub struct Packed {
    /// Index in [`DATA`].
    source: usize,
    stored_chain: String,
    volume: PathBuf,
    source_bytes: u64,
    elements: u64,
    /// Of the values alone.
    stored_bytes: u64,
    /// Of the whole volume file.
    volume_bytes: u64,
    took: Duration,
}

/// The folder with the data: `given`, or the one of the repository that this program or the caller is in.
fn find_data(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let here = std::env::current_dir().ok();
    let program = std::env::current_exe().ok();
    let near = [here, program].into_iter().flatten().flat_map(|path| {
        path.ancestors()
            .map(|folder| folder.join(FIXTURES))
            .collect::<Vec<_>>()
    });
    let folder = given
        .map(Path::to_owned)
        .or_else(|| near.into_iter().find(|folder| folder.is_dir()));
    folder.ok_or_else(|| {
        let why =
            "fixtures/data is neither here nor above this program; name it with --data FOLDER";
        Failure::usage(anyhow!(why))
    })
}

fn read_sources(folder: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let read = |data: &Data| {
        let path = folder.join(data.file);
        fs::read(&path).map_err(|error| Failure::io("reading", &path, error))
    };
    DATA.iter().map(read).collect()
}

fn pack_all(folder: &Path, volumes: &Path, interrupt: &Interrupt) -> Result<Vec<Packed>, Failure> {
    let mut all = Vec::new();
    for (source, data) in DATA.iter().enumerate() {
        for chain in data.chains {
            interrupt.check()?;
            let volume = volumes.join(format!("{}.xio", all.len() + 1));
            all.push(pack_one(folder, source, data, chain, volume)?);
        }
    }
    Ok(all)
}

fn pack_one(
    folder: &Path,
    source: usize,
    data: &Data,
    chain: &str,
    volume: PathBuf,
) -> Result<Packed, Failure> {
    let chain = Chain::parse(chain, data.element_type).map_err(Failure::usage)?;
    let stored_chain = chain.to_string();
    let plan = Plan {
        inputs: vec![folder.join(data.file)],
        spec: StreamSpec::new(chain),
        scaled: Vec::new(),
        layout: Layout {
            lba_bytes: LBA_BYTES,
            concat: false,
        },
        name: data.file.to_owned(),
        lba_bytes: LBA_BYTES,
        threads: available_threads(),
        output: volume.clone(),
        replace: false,
    };
    let started = Instant::now();
    let finished = pack::pack(&plan)?.finished;
    let took = started.elapsed();
    let stream = finished
        .streams
        .first()
        .ok_or_else(|| Failure::data(anyhow!("a volume without a stream was written")))?;
    Ok(Packed {
        source,
        stored_chain,
        volume,
        source_bytes: stream.source_bytes,
        elements: stream.elements,
        stored_bytes: stream.stored_bytes,
        volume_bytes: finished.volume_bytes,
        took,
    })
}
