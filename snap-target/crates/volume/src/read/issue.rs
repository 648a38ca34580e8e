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
    is_frame: bool,
}

/// Where the bytes of a unit are.
struct Wants {
    source: SourceId,
    /// Bytes of the source, rounded out to blocks, but not beyond its end.
    bytes: Range<u64>,
    direct: bool,
    is_frame: bool,
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
                is_frame: wants.is_frame,
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
        let mut part = 0;
        while at < wants.bytes.end {
            let left = wants.bytes.end - at;
            let len = u32::try_from(left).map_or(FETCH_BYTES_MAX, |left| left.min(FETCH_BYTES_MAX));
            let wanted = Wanted::PartOf { unit: index, part };
            part += 1;
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
        // A driver may have another place for frames, and none for granules.
        let alike = self.is_frame == wants.is_frame;
        if !near || !alike || wants.direct || self.placement != Placement::Staging {
            return None;
        }
        let grown = self.bytes.start..self.bytes.end.max(wants.bytes.end);
        (grown.end - grown.start <= u64::from(FETCH_BYTES_MAX)).then_some(grown)
    }
}

fn wants(volume: &Volume, unit: &Unit) -> Result<Wants, VolumeError> {
    let lost = VolumeError::Usage("a unit was issued before its tables were seen");
    let (stored, direct) = match &unit.body {
        Body::Granules { stored, direct, .. } => (stored, *direct),
        Body::Frame { stored, .. } => {
            let frame = stored.as_ref().ok_or(lost)?;
            return Ok(Wants {
                source: frame.source,
                bytes: frame.blocks(),
                direct: false,
                is_frame: true,
            });
        }
    };
    let stream = volume.stream(unit.stream);
    let found = stream.and_then(|stream| Some((stream, source_end(volume, stream.source)?)));
    let (stream, source_end) = found.ok_or(lost)?;
    // Offsets were checked against the source, which ends below 2^56.
    let bytes = stream.stored_offset + stored.start..stream.stored_offset + stored.end;
    Ok(Wants {
        source: stream.source,
        bytes: rounded_out(bytes, source_end),
        direct,
        is_frame: false,
    })
}

/// Whole blocks of a source that hold `bytes`, but not beyond its end.
pub(crate) fn rounded_out(bytes: Range<u64>, source_end: u64) -> Range<u64> {
    let start = bytes.start / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
    start..bytes.end.next_multiple_of(BLOCK_BYTES_U64).min(source_end)
}

/// Where the bytes of a source end.
pub(super) fn source_end(volume: &Volume, source: SourceId) -> Option<u64> {
    let source = volume.source(source)?;
    Some(match source.kind {
        SourceKind::Own => volume.superblock().volume_bytes,
        SourceKind::External => source.bytes,
    })
}
