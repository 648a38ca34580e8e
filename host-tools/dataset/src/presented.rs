//! What views present of a scan: the names and files of a disk, and where each file's bytes come from.

use std::iter;

use erofs::{Attributes, Label};
use formats::{Part, Presentation};
use transforms::{Packing, ViewChain};
use volume::StreamIndex;
use volume::identity::Uuid;
use volume::write::ExtentSpec;

use crate::DatasetError;
use crate::disk::{Disk, Extents, PartitionFile};
use crate::identity::Identity;
use crate::items::{Item, ItemKind, own_folder};
use crate::own::{MANIFEST, OWN_FOLDER};
use crate::scan::{Entry, FileId, Kind, Scan};
use crate::storage::{Piece, Storage};
use crate::view::View;

/// A name of the scan, as it is in one of the views.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Presented {
    /// Which view.
    pub(crate) view: usize,
    /// Which of [`Scan::entries`].
    pub(crate) entry: usize,
    /// Its source.
    pub(crate) file: FileId,
}

impl Presented {
    /// What is presented, where it is not the source's bytes.
    fn changed<'a>(&self, views: &'a [View]) -> Option<&'a Presentation> {
        views.get(self.view)?.changed.get(&self.entry)
    }

    /// How many bytes.
    fn bytes(&self, scan: &Scan, views: &[View]) -> u64 {
        let source = || scan.file(self.file).map_or(0, |file| file.bytes);
        self.changed(views).map_or_else(source, Presentation::bytes)
    }
}

/// What a name of the scan is in one of the views.
enum Shown<'a> {
    Directory,
    Symlink(&'a [u8]),
    File(Presented),
}

/// The names of a view: which of the scan's entries, and what it is there.
fn names<'a>(
    scan: &'a Scan,
    views: &'a [View],
    view: usize,
) -> impl Iterator<Item = (&'a Entry, Shown<'a>)> {
    let is_changed = move |entry| {
        let view = views.get(view);
        view.is_some_and(|view| view.changed.contains_key(&entry))
    };
    let entries = scan.entries.iter().enumerate();
    entries.filter_map(move |(entry, found)| {
        let shown = match &found.kind {
            Kind::Directory => Shown::Directory,
            Kind::Symlink { target, .. } if !is_changed(entry) => Shown::Symlink(target),
            // What changes has a file.
            Kind::File(_) | Kind::Symlink { .. } => {
                let file = found.file()?;
                Shown::File(Presented { view, entry, file })
            }
        };
        Some((found, shown))
    })
}

/// Where a view has its names: one is the root, several have a directory each.
fn path_of(views: &[View], view: &View, path: &[u8]) -> Vec<u8> {
    match views {
        [_] => path.to_vec(),
        _ => [view.name.as_bytes(), b"/", path].concat(),
    }
}

/// A disk with a filesystem.
pub(crate) fn filesystem(
    scan: &Scan,
    views: &[View],
    uuid: Uuid,
    label: &str,
    manifest: Option<&[u8]>,
) -> Result<Disk<Presented>, DatasetError> {
    let has_own_folder = || scan.entries.iter().any(|entry| entry.path == OWN_FOLDER);
    if manifest.is_some() && views.len() == 1 && has_own_folder() {
        let why = "is the name of the folder that a disk keeps its manifest in; rename it, or leave the manifest out with --no-manifest";
        return Err(DatasetError::refused(".xio", why));
    }
    let newest = scan.entries.iter().map(|it| it.attributes.modified).max();
    let newest = newest.unwrap_or_default();
    let root = scan.entries.first().map(|root| root.attributes);
    let root = root.unwrap_or_else(|| Attributes::new(0o755));
    let of_files = file_attributes(scan);
    let of_views = views.iter().enumerate().flat_map(|(index, view)| {
        let folder = Item::directory(view.name.as_bytes(), root);
        let folder = (views.len() > 1).then_some(folder);
        // The root of the scan is the view's folder.
        let names = names(scan, views, index).skip(1);
        let of_files = &of_files;
        let items = names.map(move |(entry, shown)| Item {
            path: path_of(views, view, &entry.path),
            attributes: match (&shown, &entry.kind) {
                // A link that becomes a file gets those of what it leads to.
                (Shown::File(file), Kind::Symlink { .. }) => {
                    let target = of_files.get(file.file.0 as usize).copied().flatten();
                    target.unwrap_or(entry.attributes)
                }
                _ => entry.attributes,
            },
            kind: match shown {
                Shown::Directory => ItemKind::Directory,
                Shown::Symlink(target) => ItemKind::Symlink(target.to_vec()),
                Shown::File(content) => ItemKind::File {
                    bytes: content.bytes(scan, views),
                    content,
                },
            },
        });
        folder.into_iter().chain(items)
    });
    let items = iter::once(Item::directory(b"", root))
        .chain(manifest.into_iter().flat_map(|it| own_folder(it, newest)))
        .chain(of_views);
    let label = Label {
        uuid,
        built: newest,
        volume_name: label.as_bytes().to_vec(),
    };
    Disk::of_items(items, label)
}

/// By file: the attributes of the first name that is its own.
fn file_attributes(scan: &Scan) -> Vec<Option<Attributes>> {
    let mut of_files = vec![None; scan.files.len()];
    for entry in &scan.entries {
        if let Kind::File(id) = entry.kind
            && let Some(of_file) = of_files.get_mut(id.0 as usize)
        {
            of_file.get_or_insert(entry.attributes);
        }
    }
    of_files
}

/// A disk with a partition for each file of each view, by its path.
pub(crate) fn partitions(
    scan: &Scan,
    views: &[View],
    uuid: Uuid,
    lba_bytes: u32,
    pad: bool,
) -> Result<Disk<Presented>, DatasetError> {
    let of_views = views.iter().enumerate().flat_map(|(index, view)| {
        names(scan, views, index).filter_map(move |(entry, shown)| match shown {
            Shown::File(content) => Some(PartitionFile {
                name: path_of(views, view, &entry.path),
                bytes: content.bytes(scan, views),
                content,
            }),
            _ => None,
        })
    });
    Disk::of_partitions(of_views.collect(), lba_bytes, uuid, pad)
}

/// The identity of a disk: a function of all that it presents, its manifest too. `digest_of` gives the SHA-256 of what is presented of a file.
pub(crate) fn uuid(
    scan: &Scan,
    views: &[View],
    label: &str,
    manifest: Option<&[u8]>,
    digest_of: impl Fn(&Presented) -> [u8; 32],
) -> Uuid {
    let mut identity = Identity::new(b"xio erofs uuid 3", label);
    if let Some(manifest) = manifest {
        identity.add(MANIFEST);
        identity.add_file(&[manifest]);
    }
    for (index, view) in views.iter().enumerate() {
        identity.add(view.name.as_bytes());
        for (entry, shown) in names(scan, views, index) {
            identity.add_name(&entry.path, &entry.attributes);
            match shown {
                Shown::Directory => identity.add_directory(),
                Shown::Symlink(target) => identity.add_symlink(target),
                Shown::File(file) => identity.add_file(&[&digest_of(&file)]),
            }
        }
    }
    identity.uuid()
}

/// All the bytes that a disk's files present and no source has, in the order in which [`Written::put`] asks for them.
pub(crate) fn new_parts<'a>(disk: &Disk<Presented>, views: &'a [View]) -> Vec<&'a [u8]> {
    let changed = disk.files().filter_map(|file| file.changed(views));
    let parts = changed.flat_map(Presentation::parts);
    let new = parts.filter_map(|part| match part {
        Part::New(bytes) => Some(bytes.as_slice()),
        _ => None,
    });
    new.collect()
}

/// Where the writer put what files present.
pub(crate) struct Written<'a> {
    pub(crate) views: &'a [View],
    pub(crate) storage: &'a Storage,
    /// By [`Piece::stream`].
    pub(crate) streams: &'a [StreamIndex],
    /// The [`new_parts`].
    pub(crate) new_bytes: Option<StreamIndex>,
    /// How many of these are on the disk already.
    pub(crate) new_position: u64,
}

impl Written<'_> {
    /// What a file presents.
    pub(crate) fn put(
        &mut self,
        extents: &mut Extents,
        file: &Presented,
        bytes: u64,
    ) -> Result<(), DatasetError> {
        let Some(presentation) = file.changed(self.views) else {
            return self.source(extents, file.file, 0, bytes);
        };
        for part in presentation.parts() {
            self.part(extents, file.file, part)?;
        }
        Ok(())
    }

    fn part(
        &mut self,
        extents: &mut Extents,
        file: FileId,
        part: &Part,
    ) -> Result<(), DatasetError> {
        match part {
            Part::New(bytes) => {
                let missing = || DatasetError::refused("the disk", "has no stream of new bytes");
                let stream = self.new_bytes.ok_or_else(missing)?;
                let len = bytes.len() as u64;
                extents.bytes(stream, self.new_position, len);
                self.new_position += len;
                Ok(())
            }
            Part::Zero { bytes } => {
                extents.zeros(*bytes);
                Ok(())
            }
            Part::Source { offset, bytes } => self.source(extents, file, *offset, *bytes),
            Part::Converted {
                offset,
                elements,
                stored,
                presented,
                ..
            } => {
                let view = ViewChain::parse(&presented.to_string(), *stored);
                let view = view.map_err(|error| {
                    DatasetError::refused(format!("{stored} as {presented}:"), error.to_string())
                })?;
                let bytes = elements * stored.bytes() as u64;
                for piece in self.storage.pieces(file, *offset, bytes) {
                    if piece.element != *stored {
                        let why = format!("is stored as {}, not as {stored}", piece.element);
                        return Err(DatasetError::refused("a tensor", why));
                    }
                    self.piece(extents, &piece, view.clone(), *presented)?;
                }
                Ok(())
            }
        }
    }

    fn source(
        &self,
        extents: &mut Extents,
        file: FileId,
        offset: u64,
        bytes: u64,
    ) -> Result<(), DatasetError> {
        for piece in self.storage.pieces(file, offset, bytes) {
            let whole = Packing::Whole(piece.element);
            self.piece(extents, &piece, ViewChain::identity(), whole)?;
        }
        Ok(())
    }

    fn piece(
        &self,
        extents: &mut Extents,
        piece: &Piece,
        view: ViewChain,
        presented: Packing,
    ) -> Result<(), DatasetError> {
        let stream = self.streams.get(piece.stream).copied();
        let stream = stream
            .ok_or_else(|| DatasetError::refused("the disk", "has a run without a stream"))?;
        let width = piece.element.bytes() as u64;
        let inside = piece.first_byte % width + piece.bytes % width;
        if inside != 0 {
            let why = format!("begins or ends inside an element of {}", piece.element);
            return Err(DatasetError::refused("a run of bytes", why));
        }
        let elements = piece.bytes / width;
        let extent = ExtentSpec::Linear {
            stream,
            first_element: piece.first_byte / width,
            elements,
            view,
        };
        extents.push(extent, presented.bytes_of(elements));
        Ok(())
    }
}
