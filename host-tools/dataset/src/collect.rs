//! One disk over what several volumes present: their files side by side, and no byte of them copied.

mod manifest;
mod on_disk;

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use erofs::Label;
use transforms::ViewChain;
use volume::blocking::{self, Files, Reader};
use volume::format::{ChainUse, Extent, Layout, Mapping};
use volume::identity::Uuid;
use volume::write::{
    ExtentSpec, FileOutput, Finished, Lender, Options, ViewSpec, WriteError, Writer, Written,
};
use volume::{SourceId, ViewIndex, Volume, VolumeError};

use crate::disk::{Disk, Extents};
use crate::identity::Identity;
use crate::items::{Item, ItemKind};
use crate::scan::VOLUME_SUFFIX;
use crate::{DatasetError, document, items, own};
use manifest::OfView;

/// Memory for reading a volume's filesystem.
const CACHE_BYTES: usize = 16 << 20;
/// Extents that are read at a time.
const EXTENTS_AT_ONCE: usize = 4096;

/// What volumes present, to be put on one disk.
pub struct Collection {
    volumes: Vec<Collected>,
    /// Directories before what is in them.
    items: Vec<Item<Bytes>>,
    /// What a person should know.
    pub notes: Vec<String>,
}

struct Collected {
    path: PathBuf,
    file: File,
    store: Files,
    volume: Volume,
    views: Vec<CollectedView>,
}

struct CollectedView {
    extents: Vec<Extent>,
    /// Where it stands on the disk: a file, or a directory that is its root.
    path: Vec<u8>,
    is_directory: bool,
    manifest: Option<OfView>,
}

/// A run of what a view presents.
#[derive(Clone, Copy)]
struct Bytes {
    volume: usize,
    view: usize,
    start: u64,
    bytes: u64,
}

/// What was made.
#[derive(Debug)]
pub struct MadeCollection {
    /// The volume.
    pub finished: Finished,
    /// The filesystem's identity.
    pub disk_uuid: [u8; 16],
    /// Presented bytes.
    pub disk_bytes: u64,
    /// Files on it.
    pub files: usize,
    /// Their bytes.
    pub file_bytes: u64,
}

/// Whether the file at `path` is a volume, whole or damaged.
#[must_use]
pub fn is_volume(path: &Path) -> bool {
    let Ok((store, bytes)) = Files::open(path) else {
        return false;
    };
    let opened = blocking::open(&store, bytes);
    !matches!(opened, Err(VolumeError::NotAVolume { .. }))
}

impl Collection {
    /// Reads what the volumes present. The files of a view that is a filesystem, and the partitions of one that has a table, stand in a directory that is called as
    /// the volume's file without its ending, or in the root where there is no other view; a view that is neither is a file of the view's name. Of a volume with several
    /// views the directories, too, have the views' names.
    ///
    /// # Errors
    /// Volumes that cannot be read or are damaged; two of one name.
    pub fn new(inputs: &[PathBuf]) -> Result<Collection, DatasetError> {
        let volumes = inputs.iter().map(|path| Collected::open(path));
        let volumes = volumes.collect::<Result<Vec<_>, _>>()?;
        let mut collection = Collection {
            volumes,
            items: Vec::new(),
            notes: Vec::new(),
        };
        let all: Vec<(usize, usize)> = collection
            .volumes
            .iter()
            .enumerate()
            .flat_map(|(volume, it)| (0..it.views.len()).map(move |view| (volume, view)))
            .collect();
        let mut names: HashMap<Vec<u8>, PathBuf> = HashMap::new();
        for &(volume, view) in &all {
            let Some(collected) = collection.volumes.get_mut(volume) else {
                continue;
            };
            let top = match (all.as_slice(), collected.views.len()) {
                ([_], _) => Vec::new(),
                (_, 1) => stem(&collected.path),
                _ => collected.volume.view_name(view_index(view)).into(),
            };
            let found = collected.items(volume, view, &top)?;
            let name = collected.views.get(view).map(|it| it.path.clone());
            let name = name.unwrap_or_default();
            if let Some(before) = names.insert(name.clone(), collected.path.clone()) {
                let why = format!(
                    "is the name on the disk of {} and of {}: rename one of the volumes; one of bare elements is called as --name said when it was packed",
                    before.display(),
                    collected.path.display()
                );
                return Err(DatasetError::refused(erofs::shown(&name), why));
            }
            collection.items.extend(found.items);
            collection.notes.extend(found.note);
        }
        collection.make_room()?;
        let notes = collection.volumes.iter().filter_map(Collected::unprotected);
        collection.notes.extend(notes.collect::<Vec<_>>());
        Ok(collection)
    }

    /// A disk that is alone has a manifest where the new disk's is to be, which contains it.
    fn make_room(&mut self) -> Result<(), DatasetError> {
        let mut there = self.items.iter().filter(|item| is_own(item));
        let (folder, manifest, more) = (there.next(), there.next(), there.next());
        if let (Some(_), Some(manifest), None) = (folder, manifest, more)
            && let ItemKind::File { content, .. } = &manifest.kind
            && let Some(collected) = self.volumes.get(content.volume)
            && collected.is_manifest(content)?
        {
            self.items.retain(|item| !is_own(item));
        }
        if self.items.iter().any(is_own) {
            let why = ".xio: the volumes have this name, so that the disk has no manifest there; xio inspect shows the volume's";
            self.notes.push(why.to_owned());
        }
        Ok(())
    }

    /// Bytes of the volumes' files, which are read for their digests.
    #[must_use]
    pub fn volume_bytes(&self) -> u64 {
        let files = self.volumes.iter().map(|it| it.file.metadata());
        files.filter_map(Result::ok).map(|about| about.len()).sum()
    }

    /// The files of the volumes, for who must allow them: in `folder` and below it nothing has to be allowed.
    pub fn outside<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
        let real = self
            .volumes
            .iter()
            .filter_map(|it| it.path.canonicalize().ok());
        real.filter(move |path| !path.starts_with(folder))
    }

    /// Writes the disk into a new volume, that will lie in `folder`. `on_progress` is told how many bytes of the volumes were read.
    ///
    /// # Errors
    /// What the writer and the filesystem say. No volume is left then.
    pub fn make(
        &self,
        output: FileOutput,
        folder: &Path,
        options: Options,
        (name, label): (&str, &str),
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<MadeCollection, DatasetError> {
        let manifest = self.manifest(&options.writer);
        let items = self.items_with(&manifest);
        let is_on_disk = items.len() > self.items.len();
        let uuid = self.uuid(&items, label);
        let label = Label {
            uuid,
            built: self.newest(),
            volume_name: label.as_bytes().to_vec(),
        };
        // What it cannot be is said before the volumes are read.
        let disk = Disk::of_items(items.into_iter(), label)?;
        let mut writer = Writer::new(output, options)?;
        let streams = self.borrow(&mut writer, folder, on_progress)?;
        let own = disk.store_own(&mut writer)?;
        let extents = disk.extents(&own, |extents, file, _| self.slice(file, &streams, extents))?;
        let view = ViewSpec {
            name: name.to_owned(),
            manifest: Some(document::for_a_blob(&manifest, is_on_disk)),
            lossy: self.is_lossy(),
        };
        writer.add_view(view, extents)?;
        Ok(MadeCollection {
            finished: writer.finish()?,
            disk_uuid: uuid,
            disk_bytes: disk.bytes,
            files: self.files().count(),
            file_bytes: self.files().map(|bytes| bytes.bytes).sum(),
        })
    }

    /// What the disk presents, and what it says of that where nothing else has the name.
    fn items_with(&self, manifest: &[u8]) -> Vec<Item<Bytes>> {
        let mut items = self.items.clone();
        if !items.iter().any(is_own) {
            // Behind the root, if it has attributes of its own.
            let place = items.iter().take_while(|item| item.path.is_empty()).count();
            items.splice(place..place, items::own_folder(manifest, self.newest()));
        }
        items
    }

    fn files(&self) -> impl Iterator<Item = &Bytes> {
        self.items.iter().filter_map(|item| match &item.kind {
            ItemKind::File { content, .. } => Some(content),
            _ => None,
        })
    }

    fn is_lossy(&self) -> bool {
        let views = self.volumes.iter().flat_map(|it| it.volume.views());
        views.into_iter().any(|view| view.lossy)
    }

    fn newest(&self) -> erofs::Time {
        let times = self.items.iter().map(|item| item.attributes.modified);
        times.max().unwrap_or_default()
    }

    /// By volume, the indexes of its streams.
    fn borrow(
        &self,
        writer: &mut Writer<FileOutput>,
        folder: &Path,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Vec<Written>>, DatasetError> {
        let mut done = 0;
        let mut all = Vec::with_capacity(self.volumes.len());
        for collected in &self.volumes {
            let lender = Lender {
                volume: &collected.volume,
                store: &collected.store,
                file: &collected.file,
                locator: locator(&collected.path, folder)?,
            };
            let mut locator_of = |id: SourceId| collected.locator_of(id, folder);
            let mut now = 0;
            let streams = writer.borrow_streams(&lender, &mut locator_of, &mut |bytes| {
                now = bytes;
                on_progress(done + bytes);
            });
            let about = Some(collected.path.clone());
            all.push(streams.map_err(|error| DatasetError::Write { about, error })?);
            done += now;
        }
        Ok(all)
    }

    /// The extents that present some bytes of a view, as extents of the new volume.
    fn slice(
        &self,
        bytes: &Bytes,
        streams: &[Vec<Written>],
        into: &mut Extents,
    ) -> Result<(), DatasetError> {
        let lost = || DatasetError::refused("a file", "is of no volume");
        let collected = self.volumes.get(bytes.volume).ok_or_else(lost)?;
        let extents = &collected.views.get(bytes.view).ok_or_else(lost)?.extents;
        let streams = streams.get(bytes.volume).ok_or_else(lost)?;
        let end = bytes.start + bytes.bytes;
        let first = extents.partition_point(|extent| extent.end() <= bytes.start);
        let there = extents.iter().skip(first);
        for extent in there.take_while(|extent| extent.start < end) {
            let from = extent.start.max(bytes.start);
            let len = extent.end().min(end) - from;
            let part = collected.part(extent, from - extent.start, len, streams)?;
            into.push(part, len);
        }
        Ok(())
    }

    /// A function of what is presented: the namespaces that the bytes come from are functions of their content.
    fn uuid(&self, items: &[Item<Bytes>], label: &str) -> Uuid {
        let mut identity = Identity::new(b"xio collection uuid 1", label);
        for item in items {
            identity.add_name(&item.path, &item.attributes);
            match &item.kind {
                ItemKind::Directory => identity.add_directory(),
                ItemKind::Symlink(target) => identity.add_symlink(target),
                ItemKind::File { content, .. } => identity.add_file(&[
                    &self.namespace_uuid(content),
                    &content.start.to_le_bytes(),
                    &content.bytes.to_le_bytes(),
                ]),
                ItemKind::Own(bytes) => identity.add_file(&[bytes]),
            }
        }
        identity.uuid()
    }

    fn namespace_uuid(&self, bytes: &Bytes) -> Uuid {
        let volume = self.volumes.get(bytes.volume);
        let view = volume.and_then(|it| it.volume.with_view(view_index(bytes.view)).ok());
        view.map_or([0; 16], |view| view.namespace_uuid())
    }

    fn manifest(&self, writer: &str) -> Vec<u8> {
        let volumes = self.volumes.iter().map(Collected::to_json);
        let document = document::Manifest {
            writer,
            is_lossy: self.is_lossy(),
            sources: Vec::new(),
            streams: Vec::new(),
            views: Vec::new(),
            volumes: volumes.collect(),
        };
        document.into_json()
    }
}

/// What a volume's file is called, without its ending.
fn stem(path: &Path) -> Vec<u8> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let stem = name.strip_suffix(VOLUME_SUFFIX);
    stem.filter(|it| !it.is_empty()).unwrap_or(name).to_vec()
}

/// Of the disk's own folder.
fn is_own(item: &Item<Bytes>) -> bool {
    let rest = item.path.strip_prefix(own::OWN_FOLDER);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

impl Collected {
    fn open(path: &Path) -> Result<Collected, DatasetError> {
        let failed = |error| DatasetError::volume(path, error);
        let (store, bytes) = Files::open(path).map_err(failed)?;
        let volume = blocking::open(&store, bytes).map_err(failed)?;
        let file = File::open(path).map_err(|error| DatasetError::io("opening", path, error))?;
        let mut views = Vec::with_capacity(volume.views().len());
        for index in (0..volume.views().len()).map(view_index) {
            let of_view = volume.with_view(index).map_err(failed)?;
            views.push(CollectedView {
                extents: extents(&of_view, &store).map_err(failed)?,
                path: of_view.name().as_bytes().to_vec(),
                is_directory: false,
                manifest: OfView::read(&of_view, &store).map_err(failed)?,
            });
        }
        Ok(Collected {
            path: path.to_owned(),
            file,
            store,
            volume,
            views,
        })
    }

    /// What nobody checks: streams that were packed without checksums have none on another disk either.
    fn unprotected(&self) -> Option<String> {
        let streams = self.volume.streams().iter().filter(|stream| {
            let layout = &stream.layout;
            matches!(
                layout,
                Layout::Unframed {
                    checksums: None,
                    ..
                }
            )
        });
        let bytes: u64 = streams.map(|stream| stream.stored_bytes).sum();
        (bytes > 0).then(|| {
            format!(
                "{}: {bytes} bytes have no checksums (--integrity none): damage to them is presented by this disk too, and only xio verify tells; pack it again without that option",
                self.path.display()
            )
        })
    }

    /// A part of an extent, `skip` presented bytes into it.
    fn part(
        &self,
        extent: &Extent,
        skip: u64,
        bytes: u64,
        streams: &[Written],
    ) -> Result<ExtentSpec, DatasetError> {
        let broken = |why: &str| DatasetError::data(self.path.display(), why);
        let (stream, first_element, view_chain) = match extent.mapping {
            Mapping::Zero => return Ok(ExtentSpec::Zero { bytes }),
            Mapping::Inline(data) => {
                let from = usize::try_from(skip).ok();
                let to = usize::try_from(skip + bytes).ok();
                let part = from.zip(to).and_then(|(from, to)| data.get(from..to));
                let part = part.ok_or_else(|| broken("has an inline extent that is too short"))?;
                return Ok(ExtentSpec::Inline(part.to_vec()));
            }
            Mapping::Linear {
                stream,
                first_element,
                view_chain,
            } => (stream, first_element, view_chain),
        };
        let taken = streams.get(stream.0 as usize);
        let source = self.volume.stream(stream);
        let (Some(taken), Some(source)) = (taken, source) else {
            return Err(broken("has an extent of a stream that it does not have"));
        };
        let view = match view_chain.map(|chain| self.volume.chains().get(chain.0 as usize)) {
            None => ViewChain::identity(),
            Some(Some(ChainUse::View(_, view))) => view.clone(),
            Some(_) => return Err(broken("has an extent whose view chain is none")),
        };
        let presented = view.presented(source.element_type());
        let presented = presented.map_err(|error| broken(&error.to_string()))?;
        let (width, elements) = (presented.unit_bytes(), presented.unit_elements());
        if !(skip.is_multiple_of(width) && bytes.is_multiple_of(width)) {
            return Err(broken("has a file that begins or ends inside an element"));
        }
        Ok(ExtentSpec::Linear {
            stream: taken.stream,
            first_element: first_element + skip / width * elements,
            elements: bytes / width * elements,
            view,
        })
    }

    /// How a file that the volume maps is found from `folder`.
    fn locator_of(&self, id: SourceId, folder: &Path) -> Result<Vec<u8>, WriteError> {
        let refused = |why: String| WriteError::Refused {
            field: "source",
            why,
        };
        match self.volume.locator(id) {
            None => Err(refused(format!("{id} has no locator"))),
            Some(volume::Locator::Url(url)) => Ok(url.as_bytes().to_vec()),
            Some(volume::Locator::Path(path)) => {
                // Relative to where the volume lies, not to where a link to it does.
                let own = self.path.canonicalize();
                let own = own.map_err(|error| refused(error.to_string()))?;
                let at = own.parent().unwrap_or(&own).join(path);
                locator(&at, folder).map_err(|error| refused(error.to_string()))
            }
        }
    }
}

fn extents(volume: &Volume, store: &Files) -> Result<Vec<Extent>, VolumeError> {
    let reader = Reader::new(volume.clone(), store, CACHE_BYTES);
    let count = volume.view().extents.entry_count();
    let mut extents = Vec::new();
    while (extents.len() as u64) < count {
        extents.extend(reader.extents(extents.len() as u64, EXTENTS_AT_ONCE)?);
    }
    Ok(extents)
}

fn view_index(index: usize) -> ViewIndex {
    // A volume has at most 4,096.
    ViewIndex(u32::try_from(index).unwrap_or(u32::MAX))
}

/// How readers of a volume in `folder` find a file: relative to that, where it is in or below it.
pub(crate) fn locator(path: &Path, folder: &Path) -> Result<Vec<u8>, DatasetError> {
    let real = path.canonicalize();
    let real = real.map_err(|error| DatasetError::io("looking at", path, error))?;
    let shown = real.strip_prefix(folder).unwrap_or(&real);
    Ok(shown.as_os_str().as_bytes().to_vec())
}
