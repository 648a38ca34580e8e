//! Where bytes are stored: files cut into runs of one element type, runs that are stored alike in one stream.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::path::PathBuf;

use formats::Part;
use transforms::{Chain, ElementType};

use crate::DatasetError;
use crate::catalogue::{Catalogue, element_of};
use crate::reread::Reread;
use crate::scan::{FileId, Scan, SourceFile};
use crate::view::View;

/// Arrays shorter than this on average are not told from the bytes around them, unless a view converts them or there are few: thousands of
/// small arrays in a file would be thousands of extents.
const RUN_BYTES_MIN: u64 = 4096;
/// So few arrays are told apart however short they are.
const RUNS_ALWAYS: usize = 64;

/// A run of a file's bytes that are stored as elements of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First byte in the file.
    pub offset: u64,
    /// Length, in bytes: whole elements.
    pub bytes: u64,
    /// What they are.
    pub element: ElementType,
    /// Whether a view presents all of it in blocks: then it is a whole number of blocks, and such runs share no stream with others, so that each
    /// begins where a block of its stream does.
    pub is_in_blocks: bool,
}

impl Run {
    /// Where it ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// The runs of each file, by [`FileId`]: each covers its file, in order, without gaps.
#[derive(Debug)]
pub struct Runs(Vec<Vec<Run>>);

impl Runs {
    /// Cuts the files.
    #[must_use]
    pub fn new(scan: &Scan, catalogue: &Catalogue, views: &[View]) -> Runs {
        let converted = changed_files(scan, views);
        let in_blocks = in_blocks(scan, views);
        let cut = |(id, file): (FileId, &SourceFile)| {
            let payloads = catalogue
                .get(id)
                .map(|it| it.description.payloads.as_slice())
                .unwrap_or_default();
            let payload_bytes: u64 = payloads.iter().map(|payload| payload.bytes).sum();
            let is_coarse = payloads.len() <= RUNS_ALWAYS
                || payload_bytes >= payloads.len() as u64 * RUN_BYTES_MIN;
            let mut runs = Vec::new();
            if is_coarse || converted.contains(&id) {
                for payload in payloads {
                    let element = element_of(payload.contents);
                    push(
                        &mut runs,
                        Run {
                            offset: payload.offset,
                            bytes: payload.bytes,
                            element,
                            is_in_blocks: in_blocks.contains(&(id, payload.offset)),
                        },
                    );
                }
            }
            fill_up(&mut runs, file.bytes);
            runs
        };
        Runs(scan.files().map(cut).collect())
    }

    /// The runs of a file.
    #[must_use]
    pub fn of(&self, id: FileId) -> &[Run] {
        self.0
            .get(id.0 as usize)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }
}

/// The files of which a view presents other bytes than they hold.
#[must_use]
pub fn changed_files(scan: &Scan, views: &[View]) -> HashSet<FileId> {
    let changed = views.iter().flat_map(|view| view.changed.keys());
    changed
        .filter_map(|&entry| scan.entries.get(entry)?.file())
        .collect()
}

/// What views present in blocks of several elements: the files, and where it begins in them.
fn in_blocks(scan: &Scan, views: &[View]) -> HashSet<(FileId, u64)> {
    let changed = views.iter().flat_map(|view| &view.changed);
    let parts = changed.filter_map(|(&entry, presentation)| {
        let file = scan.entries.get(entry)?.file()?;
        Some(presentation.parts().iter().map(move |part| (file, part)))
    });
    let in_blocks = parts.flatten().filter_map(|(file, part)| match part {
        Part::Converted {
            offset, presented, ..
        } if presented.unit_elements() > 1 => Some((file, *offset)),
        _ => None,
    });
    in_blocks.collect()
}

/// Behind the last one, or as a part of it.
fn push(runs: &mut Vec<Run>, run: Run) {
    if run.bytes == 0 {
        return;
    }
    match runs.last_mut() {
        Some(last)
            if (last.element, last.is_in_blocks) == (run.element, run.is_in_blocks)
                && last.end() == run.offset =>
        {
            last.bytes += run.bytes;
        }
        _ => runs.push(run),
    }
}

/// What no payload covers is bytes.
fn fill_up(runs: &mut Vec<Run>, file_bytes: u64) {
    let typed = std::mem::take(runs);
    let mut position = 0;
    for run in typed {
        push(runs, bytes_between(position, run.offset));
        position = run.end();
        push(runs, run);
    }
    push(runs, bytes_between(position, file_bytes));
}

fn bytes_between(offset: u64, end: u64) -> Run {
    Run {
        offset,
        bytes: end - offset,
        element: ElementType::U8,
        is_in_blocks: false,
    }
}

/// How runs are stored.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The stored chain; its source type is that of the runs.
    pub chain: Chain,
    /// Source bytes of a frame, where the chain has frames.
    pub frame_bytes: u64,
}

/// A stream that is to be written: runs end to end.
#[derive(Debug)]
pub struct StreamPlan {
    /// How it is stored.
    pub stored: Stored,
    /// What it is made of.
    pub pieces: Vec<(FileId, Run)>,
    /// Source bytes.
    pub bytes: u64,
}

/// Where a run lies in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Which of [`Storage::streams`]; behind these, the runs of the mapped files, one after the other.
    pub stream: usize,
    /// Bytes of the stream, as the source has them, before it.
    pub first_byte: u64,
}

/// What is stored where.
#[derive(Debug)]
pub struct Storage {
    /// The runs.
    pub runs: Runs,
    /// In the order in which they are written.
    pub streams: Vec<StreamPlan>,
    /// By file, for each of its runs.
    places: Vec<Vec<Place>>,
    /// Files that are not packed, in their order.
    mapped: Vec<FileId>,
}

impl Storage {
    /// Puts the runs into streams. `choose` says how each run of a file is stored; those that are stored alike share a stream.
    ///
    /// # Errors
    /// What `choose` says.
    pub fn packed<E>(
        scan: &Scan,
        runs: Runs,
        choose: impl FnMut(FileId, &Run) -> Result<Stored, E>,
    ) -> Result<Storage, E> {
        Storage::pack(scan, runs, |_| true, choose)
    }

    fn pack<E>(
        scan: &Scan,
        runs: Runs,
        is_packed: impl Fn(&SourceFile) -> bool,
        mut choose: impl FnMut(FileId, &Run) -> Result<Stored, E>,
    ) -> Result<Storage, E> {
        let mut storage = Storage {
            runs,
            streams: Vec::new(),
            places: Vec::new(),
            mapped: Vec::new(),
        };
        let mut known: HashMap<(ElementType, String, u64, bool), usize> = HashMap::new();
        for (id, file) in scan.files() {
            let mut places = Vec::new();
            let runs = storage.runs.of(id).iter();
            for run in runs.filter(|_| is_packed(file)) {
                let stored = choose(id, run)?;
                let frame_bytes = if stored.chain.is_framed() {
                    stored.frame_bytes
                } else {
                    0
                };
                let chain = stored.chain.to_string();
                let key = (run.element, chain, frame_bytes, run.is_in_blocks);
                let stream = *known.entry(key).or_insert_with(|| {
                    storage.streams.push(StreamPlan {
                        stored,
                        pieces: Vec::new(),
                        bytes: 0,
                    });
                    storage.streams.len() - 1
                });
                if let Some(plan) = storage.streams.get_mut(stream) {
                    let first_byte = plan.bytes;
                    plan.pieces.push((id, *run));
                    plan.bytes += run.bytes;
                    places.push(Place { stream, first_byte });
                }
            }
            storage.places.push(places);
        }
        Ok(storage)
    }

    /// Leaves the runs where they are: each is a stream of its own, behind the streams that are written. Files of up to `small_bytes_max` bytes are
    /// packed by `choose` all the same: the tables of a mapped one would take more.
    ///
    /// # Errors
    /// What `choose` says.
    pub fn mapped<E>(
        scan: &Scan,
        runs: Runs,
        small_bytes_max: u64,
        choose: impl FnMut(FileId, &Run) -> Result<Stored, E>,
    ) -> Result<Storage, E> {
        let is_small = |file: &SourceFile| file.bytes <= small_bytes_max;
        let mut storage = Storage::pack(scan, runs, is_small, choose)?;
        let mut next = storage.streams.len();
        for (id, _) in scan.files().filter(|(_, file)| !is_small(file)) {
            let places = storage.runs.of(id).iter().map(|_| {
                next += 1;
                Place {
                    stream: next - 1,
                    first_byte: 0,
                }
            });
            let places: Vec<Place> = places.collect();
            if let Some(of_file) = storage.places.get_mut(id.0 as usize) {
                *of_file = places;
            }
            storage.mapped.push(id);
        }
        Ok(storage)
    }

    /// The files that stay where they are, in their order.
    #[must_use]
    pub fn mapped_files(&self) -> &[FileId] {
        &self.mapped
    }

    /// Whether the file stays where it is.
    #[must_use]
    pub fn is_mapped(&self, id: FileId) -> bool {
        self.mapped.binary_search(&id).is_ok()
    }

    /// The stored pieces of the file's bytes `offset` to `offset + bytes`: runs, and what of each is asked for.
    pub fn pieces(
        &self,
        id: FileId,
        offset: u64,
        bytes: u64,
    ) -> impl Iterator<Item = Piece> + use<'_> {
        let runs = self.runs.of(id);
        let places = self.places.get(id.0 as usize).map(Vec::as_slice);
        let end = offset + bytes;
        let first = runs.partition_point(|run| run.end() <= offset);
        let there = runs.iter().zip(places.unwrap_or_default()).skip(first);
        there
            .take_while(move |(run, _)| run.offset < end)
            .map(move |(run, place)| {
                let from = run.offset.max(offset);
                Piece {
                    stream: place.stream,
                    element: run.element,
                    first_byte: place.first_byte + (from - run.offset),
                    bytes: run.end().min(end) - from,
                }
            })
    }
}

/// A run of a stream's source bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Which of [`Storage::streams`]; behind these, the runs of the mapped files, one after the other.
    pub stream: usize,
    /// Its element type.
    pub element: ElementType,
    /// Bytes of the stream, as the source has them, before it.
    pub first_byte: u64,
    /// How many.
    pub bytes: u64,
}

/// The source bytes of a stream. A file that is not what it was when it was surveyed is an error.
pub(crate) struct Pieces<'a, F> {
    open_file: F,
    left: std::slice::Iter<'a, (FileId, Run)>,
    open: Option<(FileId, Reread<'a>)>,
    at: u64,
    end: u64,
}

impl<'a, F> Pieces<'a, F>
where
    F: Fn(FileId) -> Result<Reread<'a>, DatasetError>,
{
    pub(crate) fn new(plan: &'a StreamPlan, open_file: F) -> Pieces<'a, F> {
        Pieces {
            open_file,
            left: plan.pieces.iter(),
            open: None,
            at: 0,
            end: 0,
        }
    }

    /// The next run; `false` behind the last.
    fn go_on(&mut self) -> io::Result<bool> {
        let next = self.left.next();
        let is_open = |id| self.open.as_ref().is_some_and(|(open, _)| *open == id);
        if next.is_none_or(|(id, _)| !is_open(*id)) {
            if let Some((_, file)) = self.open.take() {
                file.check().map_err(io::Error::other)?;
            }
            if let Some((id, _)) = next {
                let file = (self.open_file)(*id).map_err(io::Error::other)?;
                self.open = Some((*id, file));
            }
        }
        let Some((_, run)) = next else {
            return Ok(false);
        };
        (self.at, self.end) = (run.offset, run.end());
        Ok(true)
    }
}

impl<'a, F> Read for Pieces<'a, F>
where
    F: Fn(FileId) -> Result<Reread<'a>, DatasetError>,
{
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.end {
            if !self.go_on()? {
                return Ok(0);
            }
        }
        let Some((_, open)) = &self.open else {
            return Ok(0);
        };
        let left = self.end - self.at;
        let wanted = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
        let wanted = into.get_mut(..wanted).unwrap_or_default();
        formats::ByteSource::read_at(open, self.at, wanted)?;
        self.at += wanted.len() as u64;
        Ok(wanted.len())
    }
}

/// The file and the byte of it that byte `at` of the stream comes from.
pub(crate) fn origin(scan: &Scan, plan: &StreamPlan, at: u64) -> Option<(PathBuf, u64)> {
    let mut start = 0;
    for (id, run) in &plan.pieces {
        if at < start + run.bytes {
            let file = scan.file(*id)?;
            return Some((file.path.clone(), run.offset + (at - start)));
        }
        start += run.bytes;
    }
    None
}
