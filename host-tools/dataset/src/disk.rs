//! The disk: names and attributes as a filesystem, and where each file's bytes come from.

use std::collections::HashMap;

use erofs::{Attributes, Label, Layout, Time, Tree};
use formats::{Part, Presentation};
use sha2::{Digest, Sha256};
use transforms::ViewChain;
use volume::StreamIndex;
use volume::identity::version_8;
use volume::write::ExtentSpec;

use crate::DatasetError;
use crate::scan::{Entry, FileId, Kind, Scan};
use crate::storage::{Piece, Storage};
use crate::view::View;

/// Bytes of a block of the filesystem.
pub const BLOCK_BYTES: u64 = erofs::limits::BLOCK_BYTES as u64;

/// The directory that is not from the inputs.
const OWN_FOLDER: &[u8] = b".xio";
/// What is in it.
const MANIFEST: &[u8] = b"manifest.json";

/// A file of the disk.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// A name of the scan, as it is in one of the views.
    Presented {
        /// Which view.
        view: usize,
        /// Which of [`Scan::entries`].
        entry: usize,
        /// Its source.
        file: FileId,
    },
    /// What the disk says of itself.
    Manifest,
}

/// Names, and what stands behind each file, in the order of the layout's files.
pub(crate) struct Filesystem {
    tree: Tree,
    pub(crate) files: Vec<Content>,
    newest: Time,
}

impl Filesystem {
    /// All views: one is the root, several have a directory each.
    pub(crate) fn new(
        scan: &Scan,
        views: &[View],
        manifest: Option<&[u8]>,
    ) -> Result<Filesystem, DatasetError> {
        let root = scan.entries.first().map(|root| root.attributes);
        let root = root.unwrap_or_else(|| Attributes::new(0o755));
        let newest = scan.entries.iter().map(|it| it.attributes.modified).max();
        let mut made = Filesystem {
            tree: Tree::new(root)?,
            files: Vec::new(),
            newest: newest.unwrap_or_default(),
        };
        if let Some(manifest) = manifest {
            made.add_manifest(scan, views, manifest)?;
        }
        let top = made.tree.root();
        for (index, view) in views.iter().enumerate() {
            let below = match views {
                [_] => top,
                _ => made.tree.add_directory(top, view.name.as_bytes(), root)?,
            };
            made.add_view(scan, (index, view), below)?;
        }
        Ok(made)
    }

    fn add_manifest(
        &mut self,
        scan: &Scan,
        views: &[View],
        manifest: &[u8],
    ) -> Result<(), DatasetError> {
        let taken = scan.entries.iter().find(|entry| entry.path == OWN_FOLDER);
        if let (Some(_), [_]) = (taken, views) {
            let why = "is the name of the folder that a disk keeps its manifest in; rename it, or leave the manifest out with --no-manifest";
            return Err(DatasetError::refused(".xio", why));
        }
        let attributes = |permissions| Attributes {
            modified: self.newest,
            ..Attributes::new(permissions)
        };
        let (folder, file) = (attributes(0o755), attributes(0o444));
        let folder = self
            .tree
            .add_directory(self.tree.root(), OWN_FOLDER, folder)?;
        self.tree
            .add_file(folder, MANIFEST, manifest.len() as u64, file)?;
        self.files.push(Content::Manifest);
        Ok(())
    }

    fn add_view(
        &mut self,
        scan: &Scan,
        (index, view): (usize, &View),
        top: erofs::DirectoryId,
    ) -> Result<(), DatasetError> {
        let mut directories = HashMap::from([(&b""[..], top)]);
        for (place, entry) in scan.entries.iter().enumerate().skip(1) {
            let parent = directories.get(entry.parent()).copied().unwrap_or(top);
            let name = entry.name();
            let file = match (&entry.kind, view.changed.get(&place)) {
                (Kind::Directory, _) => {
                    let directory = self.tree.add_directory(parent, name, entry.attributes)?;
                    directories.insert(&entry.path, directory);
                    continue;
                }
                (Kind::Symlink { target, .. }, None) => {
                    self.tree
                        .add_symlink(parent, name, target, entry.attributes)?;
                    continue;
                }
                (Kind::Symlink { file: None, .. }, Some(_)) => continue,
                (
                    Kind::Symlink {
                        file: Some(file), ..
                    }
                    | Kind::File(file),
                    _,
                ) => *file,
            };
            let source_bytes = scan.file(file).map_or(0, |file| file.bytes);
            let changed = view.changed.get(&place).map(Presentation::bytes);
            let bytes = changed.unwrap_or(source_bytes);
            let attributes = file_attributes(scan, entry, file);
            self.tree.add_file(parent, name, bytes, attributes)?;
            let view = index;
            let entry = place;
            self.files.push(Content::Presented { view, entry, file });
        }
        Ok(())
    }

    /// Gives everything its place.
    pub(crate) fn lay_out(self, uuid: [u8; 16], label: &str) -> Result<Disk, DatasetError> {
        let label = Label {
            uuid,
            built: self.newest,
            volume_name: label.as_bytes().to_vec(),
        };
        Ok(Disk {
            layout: self.tree.lay_out(label)?,
            files: self.files,
        })
    }
}

/// A link that becomes a file gets the attributes of what it leads to.
fn file_attributes(scan: &Scan, entry: &Entry, file: FileId) -> Attributes {
    if matches!(entry.kind, Kind::File(_)) {
        return entry.attributes;
    }
    let names = scan.entries.iter();
    names
        .filter(|other| matches!(other.kind, Kind::File(id) if id == file))
        .map(|other| other.attributes)
        .next()
        .unwrap_or(entry.attributes)
}

/// The identity of a disk: a function of all that it presents. `digest_of` gives the SHA-256 of what a file of a view presents.
pub(crate) fn uuid(
    scan: &Scan,
    views: &[View],
    digest_of: &dyn Fn(usize, usize, FileId) -> [u8; 32],
    label: &str,
) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update(b"xio erofs uuid 2");
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(label.as_bytes());
    for (index, view) in views.iter().enumerate() {
        add(view.name.as_bytes());
        for (place, entry) in scan.entries.iter().enumerate() {
            let attributes = &entry.attributes;
            add(&entry.path);
            add(&attributes.permissions.to_le_bytes());
            add(&attributes.uid.to_le_bytes());
            add(&attributes.gid.to_le_bytes());
            add(&attributes.modified.seconds.to_le_bytes());
            add(&attributes.modified.nanoseconds.to_le_bytes());
            match &entry.kind {
                Kind::Directory => add(b"directory"),
                Kind::Symlink { target, .. } if !view.changed.contains_key(&place) => {
                    add(b"link");
                    add(target);
                }
                Kind::File(file)
                | Kind::Symlink {
                    file: Some(file), ..
                } => {
                    add(b"file");
                    add(&digest_of(index, place, *file));
                }
                Kind::Symlink { file: None, .. } => add(b"nothing"),
            }
        }
    }
    version_8(hash.finalize().into())
}

/// A disk whose parts have their places.
pub(crate) struct Disk {
    pub(crate) layout: Layout,
    files: Vec<Content>,
}

/// Where the writer put what a disk consists of.
pub(crate) struct Written<'a> {
    pub(crate) views: &'a [View],
    pub(crate) storage: &'a Storage,
    /// By [`Piece::stream`].
    pub(crate) streams: &'a [StreamIndex],
    /// The filesystem's own blocks.
    pub(crate) metadata: StreamIndex,
    /// The manifest.
    pub(crate) manifest: Option<StreamIndex>,
    /// What the views present that no source has, in the order of the disk's files.
    pub(crate) new_bytes: Option<StreamIndex>,
}

impl Disk {
    /// All the bytes that views present and no source has, in the order in which [`extents`](Disk::extents) asks for them.
    pub(crate) fn new_parts<'a>(&self, views: &'a [View]) -> Vec<&'a [u8]> {
        let changed = self.files.iter().filter_map(|content| match content {
            Content::Presented { view, entry, .. } => views.get(*view)?.changed.get(entry),
            Content::Manifest => None,
        });
        changed
            .flat_map(Presentation::parts)
            .filter_map(|part| match part {
                Part::New(bytes) => Some(bytes.as_slice()),
                _ => None,
            })
            .collect()
    }

    /// Metadata, then each file and the zeros up to the next block.
    pub(crate) fn extents(&self, written: &Written<'_>) -> Result<Vec<ExtentSpec>, DatasetError> {
        let metadata_bytes = u64::from(self.layout.metadata_blocks()) * BLOCK_BYTES;
        let mut extents = Extents {
            written,
            list: vec![linear(written.metadata, 0, metadata_bytes)],
            position: metadata_bytes,
            new_position: 0,
        };
        for (place, content) in self.layout.files().zip(&self.files) {
            if place.bytes == 0 {
                continue;
            }
            extents.zeros_to(u64::from(place.first_block) * BLOCK_BYTES);
            extents.file(content, place.bytes)?;
        }
        extents.zeros_to(u64::from(self.layout.blocks()) * BLOCK_BYTES);
        Ok(extents.list)
    }
}

fn linear(stream: StreamIndex, first_element: u64, elements: u64) -> ExtentSpec {
    ExtentSpec::Linear {
        stream,
        first_element,
        elements,
        view: ViewChain::identity(),
    }
}

struct Extents<'a> {
    written: &'a Written<'a>,
    list: Vec<ExtentSpec>,
    /// Presented bytes so far.
    position: u64,
    /// New bytes so far.
    new_position: u64,
}

impl Extents<'_> {
    fn zeros_to(&mut self, end: u64) {
        self.zeros(end.saturating_sub(self.position));
    }

    fn zeros(&mut self, bytes: u64) {
        if bytes > 0 {
            self.list.push(ExtentSpec::Zero { bytes });
            self.position += bytes;
        }
    }

    fn file(&mut self, content: &Content, bytes: u64) -> Result<(), DatasetError> {
        let missing = || DatasetError::refused("the disk", "has a file without a stream");
        match content {
            Content::Manifest => {
                let stream = self.written.manifest.ok_or_else(missing)?;
                self.list.push(linear(stream, 0, bytes));
                self.position += bytes;
                Ok(())
            }
            Content::Presented { view, entry, file } => {
                let views = self.written.views;
                let changed = views.get(*view).and_then(|view| view.changed.get(entry));
                match changed {
                    None => self.source(*file, 0, bytes),
                    Some(presentation) => {
                        for part in presentation.parts() {
                            self.part(*file, part)?;
                        }
                        Ok(())
                    }
                }
            }
        }
    }

    fn part(&mut self, file: FileId, part: &Part) -> Result<(), DatasetError> {
        match part {
            Part::New(bytes) => {
                let missing = || DatasetError::refused("the disk", "has no stream of new bytes");
                let stream = self.written.new_bytes.ok_or_else(missing)?;
                let len = bytes.len() as u64;
                self.list.push(linear(stream, self.new_position, len));
                self.new_position += len;
                self.position += len;
                Ok(())
            }
            Part::Zero { bytes } => {
                self.zeros(*bytes);
                Ok(())
            }
            Part::Source { offset, bytes } => self.source(file, *offset, *bytes),
            Part::Converted {
                offset,
                elements,
                stored,
                presented,
                ..
            } => {
                let view = ViewChain::parse(presented.name(), *stored);
                let view = view.map_err(|error| {
                    DatasetError::refused(format!("{stored} as {presented}:"), error.to_string())
                })?;
                let bytes = elements * stored.bytes() as u64;
                for piece in self.written.storage.pieces(file, *offset, bytes) {
                    if piece.element != *stored {
                        let why = format!("is stored as {}, not as {stored}", piece.element);
                        return Err(DatasetError::refused("a tensor", why));
                    }
                    let presented = presented.bytes() as u64;
                    self.piece(&piece, view.clone(), presented)?;
                }
                Ok(())
            }
        }
    }

    fn source(&mut self, file: FileId, offset: u64, bytes: u64) -> Result<(), DatasetError> {
        for piece in self.written.storage.pieces(file, offset, bytes) {
            let width = piece.element.bytes() as u64;
            self.piece(&piece, ViewChain::identity(), width)?;
        }
        Ok(())
    }

    fn piece(
        &mut self,
        piece: &Piece,
        view: ViewChain,
        presented_bytes: u64,
    ) -> Result<(), DatasetError> {
        let stream = self.written.streams.get(piece.stream).copied();
        let stream = stream
            .ok_or_else(|| DatasetError::refused("the disk", "has a run without a stream"))?;
        let width = piece.element.bytes() as u64;
        let inside = piece.first_byte % width + piece.bytes % width;
        if inside != 0 {
            let why = format!("begins or ends inside an element of {}", piece.element);
            return Err(DatasetError::refused("a run of bytes", why));
        }
        let elements = piece.bytes / width;
        self.list.push(ExtentSpec::Linear {
            stream,
            first_element: piece.first_byte / width,
            elements,
            view,
        });
        self.position += elements * presented_bytes;
        Ok(())
    }
}
