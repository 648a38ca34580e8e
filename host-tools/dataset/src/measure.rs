//! What a view presents, byte by byte, before a volume holds it: digests, and the values that a conversion meets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use formats::{ByteSource, Part, Presentation};
use sha2::Sha256;
use transforms::{
    Chain, Decoder, ElementType, Loss, LossMeter, OutSegments, PackedWindow, Packing,
    TransformError, ViewChain,
};

use crate::hash::NamedHash;
use crate::scan::{Scan, SourceFile};
use crate::view::View;
use crate::{DatasetError, parallel};

/// Source bytes that are converted at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// Takes presented bytes, in order.
pub trait Sink {
    /// The next of them.
    fn bytes(&mut self, presented: &[u8]);

    /// What they were in the source, and what they become, where they are converted: called before [`bytes`](Sink::bytes), with whole elements.
    fn converted(&mut self, _stored: (ElementType, &[u8]), _presented: Packing) {}
}

/// Gives all that `presentation` presents of `source` to `sink`.
///
/// # Errors
/// Reads that fail; integers that the presented type does not hold, with their place in the file.
pub fn feed(
    source: &dyn ByteSource,
    path: &Path,
    presentation: &Presentation,
    sink: &mut dyn Sink,
) -> Result<(), DatasetError> {
    feed_parts(source, path, &mut presentation.parts().iter(), sink)
}

fn feed_parts(
    source: &dyn ByteSource,
    path: &Path,
    parts: &mut dyn Iterator<Item = &Part>,
    sink: &mut dyn Sink,
) -> Result<(), DatasetError> {
    let mut buffer = Vec::new();
    let read = |buffer: &mut Vec<u8>, offset: u64, bytes: u64| {
        // At most CHUNK_BYTES.
        buffer.resize(usize::try_from(bytes).unwrap_or(0), 0);
        let read = source.read_at(offset, buffer);
        read.map_err(|error| DatasetError::io("reading", path, error))
    };
    for part in parts {
        match part {
            Part::New(bytes) => sink.bytes(bytes),
            Part::Zero { bytes } => zeros(*bytes, sink),
            Part::Source { offset, bytes } => {
                for (at, chunk) in chunks(*bytes) {
                    read(&mut buffer, offset + at, chunk)?;
                    sink.bytes(&buffer);
                }
            }
            Part::Converted {
                name,
                offset,
                elements,
                stored,
                presented,
            } => {
                let failed = |at: u64, error: TransformError| {
                    let place = match name.as_str() {
                        "" => format!("{}:", path.display()),
                        name => format!("{}: {name}", path.display()),
                    };
                    let why = misfit(*stored, (*offset, at), error);
                    DatasetError::data(place, format!("cannot be {presented}: {why}"))
                };
                let decoder = converter(*stored, *presented).map_err(|error| failed(0, error))?;
                let mut out = Vec::new();
                for (at, chunk) in chunks(elements * stored.bytes() as u64) {
                    read(&mut buffer, offset + at, chunk)?;
                    convert(&decoder, *stored, &buffer, &mut out)
                        .map_err(|error| failed(at, error))?;
                    sink.converted((*stored, &buffer), *presented);
                    sink.bytes(&out);
                }
            }
        }
    }
    Ok(())
}

/// Why elements cannot be converted: those from byte `at` on of a payload that begins at `offset` in its file.
fn misfit(stored: ElementType, (offset, at): (u64, u64), error: TransformError) -> String {
    let width = stored.bytes() as u64;
    let place = |index: u64| {
        let element = at / width + index;
        (element, offset + element * width)
    };
    let (index, value, target) = match error {
        TransformError::OutOfRange {
            index,
            value,
            target,
        } => (index, value, target),
        TransformError::Unscalable { index, bits } => {
            let ((element, byte), number) = (place(index), f32::from_bits(bits));
            return format!(
                "element {element} (byte {byte} of the file) is {number:e}, and the largest number that a block of q8_0 takes is below 8321040; present f16 or bf16"
            );
        }
        error => return format!("from byte {} on: {error}", offset + at),
    };
    let (element, byte) = place(index);
    let range = target.range().map(|range| format!(" ({range})"));
    let range = range.unwrap_or_default();
    format!(
        "element {element} (byte {byte} of the file) is {value}, which does not fit {target}{range}; choose a type that holds it"
    )
}

fn zeros(mut bytes: u64, sink: &mut dyn Sink) {
    const ZEROS: [u8; 4096] = [0; 4096];
    while bytes > 0 {
        let len = usize::try_from(bytes).map_or(ZEROS.len(), |bytes| bytes.min(ZEROS.len()));
        sink.bytes(ZEROS.get(..len).unwrap_or_default());
        bytes -= len as u64;
    }
}

fn chunks(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (0..bytes.div_ceil(CHUNK_BYTES)).map(|chunk| chunk * CHUNK_BYTES);
    starts.map(move |at| (at, CHUNK_BYTES.min(bytes - at)))
}

fn converter(stored: ElementType, presented: Packing) -> Result<Decoder, TransformError> {
    let plain = Chain::from_steps(&[], stored)?;
    let view = ViewChain::parse(&presented.to_string(), stored)?;
    Decoder::new(&plain, &view, None)
}

fn convert(
    decoder: &Decoder,
    stored: ElementType,
    elements: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), TransformError> {
    let elements_count = (elements.len() / stored.bytes()) as u64;
    // At most CHUNK_BYTES became these.
    let presented = usize::try_from(decoder.presented().bytes_of(elements_count)).unwrap_or(0);
    out.resize(presented, 0);
    let window = PackedWindow {
        first_byte: 0,
        bytes: elements,
    };
    decoder.expand(
        window,
        0..presented as u64,
        &mut OutSegments::from_slice(out),
    )
}

/// What rounding lost, by the types before and behind it.
pub type Losses = BTreeMap<(ElementType, Packing), Loss>;

/// What is presented of a file: its digest, and what rounding lost.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Of the presented bytes.
    pub sha256: [u8; 32],
    /// Of conversions of floating point.
    pub losses: Losses,
}

/// What rounding loses, for whoever only plans: view, entry, and what is lost of it. Nothing else is read.
///
/// # Errors
/// As [`feed`]; files that change meanwhile.
pub fn losses(
    scan: &Scan,
    views: &[View],
    threads: usize,
) -> Result<Vec<(usize, usize, Losses)>, DatasetError> {
    each_changed(scan, views, threads, |(view, entry), file, presentation| {
        let is_rounded = |part: &&Part| {
            let Part::Converted {
                stored, presented, ..
            } = part
            else {
                return false;
            };
            let view = ViewChain::parse(&presented.to_string(), *stored);
            view.is_ok_and(|view| view.contract().is_lossy())
        };
        let mut parts = presentation.parts().iter().filter(is_rounded).peekable();
        let mut meters = Meters::default();
        if parts.peek().is_some() {
            let source = file.open()?;
            feed_parts(&source, &file.path, &mut parts, &mut meters)?;
            source.check()?;
        }
        Ok((view, entry, meters.finish(&file.path)?))
    })
}

/// `work` on each file that a view changes: which view and entry it is, the file, and what is presented.
///
/// # Errors
/// What `work` says.
pub(crate) fn each_changed<T: Send>(
    scan: &Scan,
    views: &[View],
    threads: usize,
    work: impl Fn((usize, usize), &SourceFile, &Presentation) -> Result<T, DatasetError> + Sync,
) -> Result<Vec<T>, DatasetError> {
    let mut changed = Vec::new();
    for (view, presented) in views.iter().enumerate() {
        let entries = presented.changed.iter();
        changed.extend(entries.map(|(entry, presentation)| ((view, *entry), presentation)));
    }
    changed.sort_unstable_by_key(|(place, _)| *place);
    parallel::each(changed.len(), threads, |index| {
        let lost = || DatasetError::refused("a file", "is not of this scan");
        let &(place, presentation) = changed.get(index).ok_or_else(lost)?;
        let file = scan.entries.get(place.1).and_then(crate::Entry::file);
        let file = file.and_then(|id| scan.file(id)).ok_or_else(lost)?;
        work(place, file, presentation)
    })
}

/// One for each conversion of floating point.
#[derive(Default)]
struct Meters {
    meters: BTreeMap<(ElementType, Packing), LossMeter>,
    failed: Option<TransformError>,
}

impl Meters {
    fn finish(self, path: &Path) -> Result<Losses, DatasetError> {
        if let Some(error) = self.failed {
            let what = format!("{}: measuring it:", path.display());
            return Err(DatasetError::data(what, error.to_string()));
        }
        let meters = self.meters.into_iter();
        Ok(meters
            .map(|(types, meter)| (types, meter.finish()))
            .collect())
    }
}

impl Sink for Meters {
    fn bytes(&mut self, _presented: &[u8]) {}

    fn converted(&mut self, (from, stored): (ElementType, &[u8]), to: Packing) {
        if from.is_integer() {
            return;
        }
        let meter = match self.meters.entry((from, to)) {
            Entry::Occupied(there) => Ok(there.into_mut()),
            Entry::Vacant(free) => meter(from, to).map(|meter| free.insert(meter)),
        };
        if let Err(error) = meter.and_then(|meter| meter.add(stored)) {
            self.failed.get_or_insert(error);
        }
    }
}

/// Goes through all that is presented of a file.
///
/// # Errors
/// As [`feed`].
pub fn measure(
    source: &dyn ByteSource,
    path: &Path,
    presentation: &Presentation,
) -> Result<Measured, DatasetError> {
    use sha2::Digest;
    struct All {
        hash: Sha256,
        meters: Meters,
    }
    impl Sink for All {
        fn bytes(&mut self, presented: &[u8]) {
            Digest::update(&mut self.hash, presented);
        }
        fn converted(&mut self, stored: (ElementType, &[u8]), to: Packing) {
            self.meters.converted(stored, to);
        }
    }
    let mut all = All {
        hash: Sha256::new(),
        meters: Meters::default(),
    };
    feed(source, path, presentation, &mut all)?;
    Ok(Measured {
        sha256: all.hash.finalize().into(),
        losses: all.meters.finish(path)?,
    })
}

fn meter(from: ElementType, to: Packing) -> Result<LossMeter, TransformError> {
    LossMeter::new(
        &Chain::from_steps(&[], from)?,
        &ViewChain::parse(&to.to_string(), from)?,
    )
}

/// The hashes of what is presented, as an index asks for them by name; hexadecimal.
///
/// # Errors
/// An algorithm that is not made here; as [`feed`].
pub(crate) fn hashes(
    source: &dyn ByteSource,
    path: &Path,
    presentation: &Presentation,
    names: &[&str],
) -> Result<BTreeMap<String, String>, DatasetError> {
    struct Hashes(Vec<(String, NamedHash)>);
    impl Sink for Hashes {
        fn bytes(&mut self, presented: &[u8]) {
            for (_, hash) in &mut self.0 {
                hash.update(presented);
            }
        }
    }
    let mut hashes = Hashes(Vec::new());
    for name in names {
        let hash = NamedHash::new(name).ok_or_else(|| {
            let why = format!(
                "its index has {name} hashes, which are not made here for a changed shard; known are {}. Leave the shard as it is: --keep '{}'",
                NamedHash::KNOWN.join(", "),
                path.file_name().unwrap_or_default().display()
            );
            DatasetError::refused(format!("{}:", path.display()), why)
        })?;
        hashes.0.push(((*name).to_owned(), hash));
    }
    if !names.is_empty() {
        feed(source, path, presentation, &mut hashes)?;
    }
    let finished = hashes.0.into_iter();
    Ok(finished.map(|(name, hash)| (name, hash.finish())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_does_not_fit_has_its_place_in_the_file() {
        let error = TransformError::OutOfRange {
            index: 700,
            value: 65_536,
            target: Packing::Whole(ElementType::U16),
        };
        // In the second chunk of an array behind a header of 80 bytes.
        assert_eq!(
            misfit(ElementType::U32, (80, CHUNK_BYTES), error),
            "element 262844 (byte 1051456 of the file) is 65536, which does not fit u16 (0..=65535); choose a type that holds it"
        );
    }
}
