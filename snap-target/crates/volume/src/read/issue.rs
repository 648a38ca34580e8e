//! From stored bytes to fetches: neighbours are fetched together.

use std::ops::Range;

use super::ReadOp;
use super::window::{Body, Unit, Wanted};
use crate::VolumeError;
use crate::fetch::Placement;
use crate::format::raw::BLOCK_BYTES_U64;
use crate::format::{SourceId, SourceKind};
use crate::limits::{FETCH_BYTES_MAX, READ_WINDOW_BYTES_MAX};
use crate::volume::Volume;

/// A fetch that may still grow.
struct Run {
    source: SourceId,
    /// Bytes of the source.
    bytes: Range<u64>,
    units: Range<usize>,
    placement: Placement,
}

/// Where the bytes of a unit are.
struct Wants {
    source: SourceId,
    /// Bytes of the source, rounded out to blocks, but not beyond its end.
    bytes: Range<u64>,
    direct: bool,
}

impl ReadOp {
    /// Asks for the bytes of the next units: as many as a window may have under way, at least one.
    pub(super) fn issue(&mut self, volume: &Volume) -> Result<(), VolumeError> {
        self.window.forget_fetches();
        let mut run: Option<Run> = None;
        let mut issued_bytes = 0;
        while let Some(unit) = self.window.units.get(self.window.issued) {
            let index = self.window.issued;
            let wants = wants(volume, unit)?;
            let out_offset = unit.at - self.range.start;
            let len = wants.bytes.end - wants.bytes.start;
            if let Some(grown) = run.as_mut().and_then(|run| run.grown_by(&wants)) {
                if let Some(run) = &mut run {
                    issued_bytes += grown.end - run.bytes.end;
                    run.bytes = grown;
                    run.units.end = index + 1;
                }
                self.window.issued += 1;
                continue;
            }
            if issued_bytes > 0 && issued_bytes + len > READ_WINDOW_BYTES_MAX {
                break;
            }
            if len > u64::from(FETCH_BYTES_MAX) {
                // There is one assembly: a long frame is fetched alone.
                if issued_bytes == 0 {
                    self.issue_long(index, &wants);
                    self.window.issued += 1;
                }
                break;
            }
            if let Some(run) = run.take() {
                self.ask_run(run);
            }
            let placement = match wants.direct {
                // A read is at most READ_BYTES_MAX long, which is asserted to fit.
                true => Placement::Direct {
                    out_offset: u32::try_from(out_offset).unwrap_or(u32::MAX),
                },
                false => Placement::Staging,
            };
            issued_bytes += len;
            run = Some(Run {
                source: wants.source,
                bytes: wants.bytes,
                units: index..index + 1,
                placement,
            });
            self.window.issued += 1;
        }
        if let Some(run) = run {
            self.ask_run(run);
        }
        Ok(())
    }

    fn ask_run(&mut self, run: Run) {
        // At most FETCH_BYTES_MAX.
        let len = u32::try_from(run.bytes.end - run.bytes.start).unwrap_or(FETCH_BYTES_MAX);
        self.counters.stored_bytes += u64::from(len);
        let wanted = Wanted::Units(run.units);
        self.window
            .ask(run.source, run.bytes.start, len, run.placement, wanted);
    }

    fn issue_long(&mut self, index: usize, wants: &Wants) {
        // A frame has at most 4 MiB.
        let len = usize::try_from(wants.bytes.end - wants.bytes.start).unwrap_or(0);
        self.window.assembly.resize(len, 0);
        self.window.assembly_missing = len;
        self.window.assembly_offset = wants.bytes.start;
        let mut at = wants.bytes.start;
        while at < wants.bytes.end {
            let left = wants.bytes.end - at;
            let len = u32::try_from(left).map_or(FETCH_BYTES_MAX, |left| left.min(FETCH_BYTES_MAX));
            self.counters.stored_bytes += u64::from(len);
            let wanted = Wanted::PartOf(index);
            self.window
                .ask(wants.source, at, len, Placement::Staging, wanted);
            at += u64::from(len);
        }
    }
}

impl Run {
    /// The bytes of the run with another unit's, if one fetch can serve both.
    fn grown_by(&self, wants: &Wants) -> Option<Range<u64>> {
        let near = self.source == wants.source
            && (self.bytes.start..=self.bytes.end).contains(&wants.bytes.start);
        if !near || wants.direct || self.placement != Placement::Staging {
            return None;
        }
        let grown = self.bytes.start..self.bytes.end.max(wants.bytes.end);
        (grown.end - grown.start <= u64::from(FETCH_BYTES_MAX)).then_some(grown)
    }
}

fn wants(volume: &Volume, unit: &Unit) -> Result<Wants, VolumeError> {
    let lost = VolumeError::Usage("a unit was issued before its tables were seen");
    let stream = volume.stream(unit.stream);
    let source = stream.and_then(|stream| Some((stream, volume.source(stream.source)?)));
    let Some((stream, source)) = source else {
        return Err(lost);
    };
    let (stored, direct) = match &unit.body {
        Body::Granules { stored, direct, .. } => (stored.clone(), *direct),
        Body::Frame {
            stored: Some((stored, _)),
            ..
        } => (stored.clone(), false),
        Body::Frame { stored: None, .. } => return Err(lost),
    };
    let source_end = match source.kind {
        SourceKind::Own => volume.superblock().volume_bytes,
        SourceKind::External => source.bytes,
    };
    // Offsets were checked against the source, which ends below 2^56.
    let start = (stream.stored_offset + stored.start) / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
    let end = (stream.stored_offset + stored.end).next_multiple_of(BLOCK_BYTES_U64);
    Ok(Wants {
        source: stream.source,
        bytes: start..end.min(source_end),
        direct,
    })
}
