//! From a plan to a volume.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use volume::identity::Uuid;
use volume::write::{
    FileOutput, Finished, Integrity, Options, Output, Progress, Region, StreamSpec, ViewSpec,
    WriteError, Writer, Written,
};

use crate::catalogue::Catalogue;
use crate::collect::locator;
use crate::disk::{self, Disk, Partition};
use crate::manifest::Manifest;
use crate::measure::Measured;
use crate::outline::Form;
use crate::presented::{self, Presented};
use crate::reread::Reread;
use crate::scan::{FileId, Scan};
use crate::storage::{self, Pieces, Storage, StreamPlan};
use crate::survey::Surveyed;
use crate::view::View;
use crate::{DatasetError, document, measure};

/// How the files lie on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// A filesystem, from the first block on.
    #[default]
    Filesystem,
    /// A filesystem in the only partition of a table.
    PartitionedFilesystem,
    /// A partition for each file.
    Partitions {
        /// Whether files are filled up with zeros to whole blocks; otherwise such are refused.
        pad: bool,
    },
}

/// What a disk is made of, and how.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The names and files.
    pub scan: &'a Scan,
    /// What they are.
    pub catalogue: &'a Catalogue,
    /// What is presented of them.
    pub views: &'a [View],
    /// What is stored where.
    pub storage: &'a Storage,
    /// Digests and ranges by file; those of mapped files that no view changes are not asked for.
    pub surveyed: &'a [Option<Surveyed>],
    /// What vouches for bytes that are stored; mapped ones always have checksums.
    pub integrity: Integrity,
    /// How the files lie.
    pub shape: Shape,
    /// Name of the view that the namespace presents.
    pub name: String,
    /// Name of the filesystem: up to 15 bytes.
    pub label: String,
    /// Whether the disk holds its manifest.
    pub with_manifest: bool,
    /// Of the volume.
    pub options: Options,
}

/// What was made.
#[derive(Debug)]
pub struct Made {
    /// The volume.
    pub finished: Finished,
    /// The identity of the filesystem, or of the partition table.
    pub disk_uuid: [u8; 16],
    /// Presented bytes.
    pub disk_bytes: u64,
    /// Of these, the filesystem's or the table's own.
    pub metadata_bytes: u64,
    /// Partitions, if the disk has any.
    pub partitions: Vec<Partition>,
    /// What was written of each of [`Storage::streams`], or of each mapped run.
    pub streams: Vec<Written>,
    /// What was measured of the files that views change.
    pub changed: Vec<Changed>,
}

impl Plan<'_> {
    /// Writes the volume. `on_progress` is told how many source bytes were packed or read.
    ///
    /// # Errors
    /// Files that change or cannot be read, values that do not fit, what the writer says. No volume is left then.
    pub fn make(
        &self,
        output: FileOutput,
        folder: &Path,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<Made, DatasetError> {
        let mut writer = Writer::new(output, self.options.clone())?;
        let mut streams = self.pack(&mut writer, on_progress)?;
        let surveyed = self
            .surveyed
            .iter()
            .map(|it| it.as_ref().map(|it| it.sha256));
        let mut digests: Vec<[u8; 32]> = surveyed.map(Option::unwrap_or_default).collect();
        self.map(
            &mut writer,
            folder,
            (&mut streams, &mut digests),
            on_progress,
        )?;
        let changed = self.measure()?;
        let (disk, uuid) = self.present(&mut writer, &streams, &digests, &changed)?;
        Ok(Made {
            finished: writer.finish()?,
            disk_uuid: uuid,
            disk_bytes: disk.bytes,
            metadata_bytes: disk.metadata_bytes,
            partitions: disk.partitions,
            streams,
            changed,
        })
    }

    /// The disk and the view of it, over streams that are written, or taken for that.
    pub(crate) fn present<O: Output>(
        &self,
        writer: &mut Writer<O>,
        streams: &[Written],
        digests: &[[u8; 32]],
        measured: &[Changed],
    ) -> Result<(Disk<Presented>, Uuid), DatasetError> {
        let manifest = Manifest {
            plan: self,
            digests,
            streams,
            measured,
        };
        let manifest = manifest.to_json();
        let on_disk = self.has_manifest_on_disk().then_some(manifest.as_slice());
        let uuid = self.uuid(digests, measured, on_disk);
        let disk = self.disk(uuid, on_disk)?;
        let own = disk.store_own(writer)?;
        let new_parts = presented::new_parts(&disk, self.views);
        let new_bytes = if new_parts.is_empty() {
            None
        } else {
            Some(disk::store(writer, &mut Slices(new_parts))?)
        };
        let indexes: Vec<_> = streams.iter().map(|stream| stream.stream).collect();
        let mut written = presented::Written {
            views: self.views,
            storage: self.storage,
            streams: &indexes,
            new_bytes,
            new_position: 0,
        };
        let extents = disk.extents(&own, |extents, file, bytes| {
            written.put(extents, file, bytes)
        })?;
        let view = ViewSpec {
            name: self.name.clone(),
            manifest: Some(document::for_a_blob(&manifest, on_disk.is_some())),
            lossy: self.is_lossy(),
        };
        writer.add_view(view, extents)?;
        Ok((disk, uuid))
    }

    /// Partitions of files have no place for it.
    fn has_manifest_on_disk(&self) -> bool {
        self.with_manifest && !matches!(self.shape, Shape::Partitions { .. })
    }

    /// A function of all that is presented.
    fn uuid(&self, digests: &[[u8; 32]], measured: &[Changed], manifest: Option<&[u8]>) -> Uuid {
        let changed = measured
            .iter()
            .map(|it| ((it.view, it.entry), it.measured.sha256));
        let changed: HashMap<_, _> = changed.collect();
        let digest_of = |file: &Presented| {
            let source = || digests.get(file.file.0 as usize).copied();
            let changed = changed.get(&(file.view, file.entry)).copied();
            changed.or_else(source).unwrap_or_default()
        };
        presented::uuid(self.scan, self.views, &self.label, manifest, digest_of)
    }

    fn disk(&self, uuid: Uuid, manifest: Option<&[u8]>) -> Result<Disk<Presented>, DatasetError> {
        let form = Form {
            scan: self.scan,
            views: self.views,
            shape: self.shape,
            lba_bytes: self.options.lba_bytes,
            name: &self.name,
            label: &self.label,
        };
        form.disk(uuid, manifest)
    }

    /// Whether what is presented is not what the sources hold.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        let changes = self.views.iter().flat_map(|view| view.changes.keys());
        changes
            .into_iter()
            .any(|(from, to)| from.conversion(*to) == Ok(formats::Conversion::Rounded))
    }

    /// How a stream is written.
    pub(crate) fn spec(&self, plan: &StreamPlan) -> StreamSpec {
        let is_framed = plan.stored.chain.is_framed();
        StreamSpec {
            chain: plan.stored.chain.clone(),
            frame_bytes: plan.stored.frame_bytes,
            integrity: if is_framed {
                Integrity::Crc32c
            } else {
                self.integrity
            },
        }
    }

    fn pack(
        &self,
        writer: &mut Writer<FileOutput>,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Written>, DatasetError> {
        let mut done = 0;
        let mut streams = Vec::with_capacity(self.storage.streams.len());
        for plan in &self.storage.streams {
            let spec = self.spec(plan);
            let mut input = Pieces::new(plan, |id| self.reread(id));
            let mut on_progress = |now: Progress| on_progress(done + now.source_bytes);
            let written = match self.known_digest(plan) {
                Some(sha256) => {
                    writer.add_stream_of_digest(&spec, &mut input, sha256, &mut on_progress)
                }
                None => writer.add_stream(&spec, &mut input, &mut on_progress),
            };
            let written = written.map_err(|error| self.at_its_file(plan, error))?;
            done += written.source_bytes;
            streams.push(written);
        }
        Ok(streams)
    }

    /// The digest of a stream that is one file, whole: the survey made it, and what is read again is the same ([`Reread`]).
    fn known_digest(&self, plan: &StreamPlan) -> Option<[u8; 32]> {
        let [(id, run)] = plan.pieces.as_slice() else {
            return None;
        };
        let file = self.scan.file(*id)?;
        let surveyed = self.surveyed.get(id.0 as usize)?.as_ref()?;
        (run.offset == 0 && run.bytes == file.bytes).then_some(surveyed.sha256)
    }

    /// A file whose bytes must be those that its digest is of.
    fn reread(&self, id: FileId) -> Result<Reread<'_>, DatasetError> {
        Reread::surveyed(self.scan, &self.storage.runs, self.surveyed, id)
    }

    /// The writer counts from the beginning of the stream; a person looks in a file.
    fn at_its_file(&self, plan: &StreamPlan, error: WriteError) -> DatasetError {
        let WriteError::Encode { byte, error, .. } = error else {
            return error.into();
        };
        let element_bytes = plan.stored.chain.source().bytes() as u64;
        let origin = storage::origin(self.scan, plan, byte);
        let (about, byte) = origin.map_or((None, byte), |(path, at)| (Some(path), at));
        let element = byte / element_bytes;
        DatasetError::Write {
            about,
            error: WriteError::Encode {
                element,
                byte,
                error,
            },
        }
    }

    fn map(
        &self,
        writer: &mut Writer<FileOutput>,
        folder: &Path,
        (streams, digests): (&mut Vec<Written>, &mut [[u8; 32]]),
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<(), DatasetError> {
        let mut done: u64 = self.storage.streams.iter().map(|plan| plan.bytes).sum();
        for &id in self.storage.mapped_files() {
            let Some(file) = self.scan.file(id) else {
                continue;
            };
            let regions = self.regions(id);
            let open = file.open()?;
            let locator = locator(&file.path, folder)?;
            let mapped = writer.map_file(&locator, &open.file, &regions, &mut |bytes| {
                on_progress(done + bytes)
            });
            let mapped = mapped.map_err(|error| DatasetError::Write {
                about: Some(file.path.clone()),
                error,
            })?;
            open.check()?;
            done += file.bytes;
            let surveyed = self.surveyed.get(id.0 as usize).and_then(Option::as_ref);
            if surveyed.is_some_and(|surveyed| surveyed.sha256 != mapped.sha256) {
                let path = file.path.clone();
                return Err(DatasetError::Changed { path, cut: None });
            }
            if let Some(digest) = digests.get_mut(id.0 as usize) {
                *digest = mapped.sha256;
            }
            streams.extend(mapped.streams);
        }
        Ok(())
    }

    /// The runs of a file that is mapped.
    pub(crate) fn regions(&self, id: FileId) -> Vec<Region> {
        let runs = self.storage.runs.of(id).iter();
        runs.map(|run| Region {
            element: run.element,
            offset: run.offset,
            elements: run.bytes / run.element.bytes() as u64,
        })
        .collect()
    }

    /// What each file presents that is not its source's bytes.
    fn measure(&self) -> Result<Vec<Changed>, DatasetError> {
        let (scan, views, threads) = (self.scan, self.views, self.options.threads);
        measure::each_changed(scan, views, threads, |(view, entry), file, presentation| {
            let id = scan.entries.get(entry).and_then(crate::Entry::file);
            let lost = || DatasetError::refused("a file", "is not of this scan");
            let source = self.reread(id.ok_or_else(lost)?)?;
            let measured = measure::measure(&source, &file.path, presentation)?;
            source.check()?;
            Ok(Changed {
                view,
                entry,
                bytes: presentation.bytes(),
                measured,
            })
        })
    }
}

/// What a view presents of a file that it changes.
#[derive(Debug, Clone)]
pub struct Changed {
    /// Which of the views.
    pub view: usize,
    /// Which of [`Scan::entries`].
    pub entry: usize,
    /// Presented bytes.
    pub bytes: u64,
    /// What was found.
    pub measured: Measured,
}

/// Slices end to end.
struct Slices<'a>(Vec<&'a [u8]>);

impl Read for Slices<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while let Some(first) = self.0.first_mut() {
            let read = first.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            self.0.remove(0);
        }
        Ok(0)
    }
}
