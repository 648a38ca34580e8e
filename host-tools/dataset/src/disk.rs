//! The disk: names and attributes as a filesystem, or partitions; and where each file's bytes come from.

use std::collections::HashMap;
use std::io::Read;

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
    pub(crate) fn changed<'a>(&self, views: &'a [View]) -> Option<&'a Presentation> {
        views.get(self.view)?.changed.get(&self.entry)
    }

    /// How many bytes.
    pub(crate) fn bytes(&self, scan: &Scan, views: &[View]) -> u64 {
        let source = || scan.file(self.file).map_or(0, |file| file.bytes);
        self.changed(views).map_or_else(source, Presentation::bytes)
    }
}

/// Every name of every view that is a file there, view by view.
pub(crate) fn presented<'a>(
    scan: &'a Scan,
    views: &'a [View],
) -> impl Iterator<Item = Presented> + 'a {
    views.iter().enumerate().flat_map(move |(view, it)| {
        let entries = scan.entries.iter().enumerate();
        entries.filter_map(move |(entry, found)| {
            let is_file = matches!(found.kind, Kind::File(_)) || it.changed.contains_key(&entry);
            let file = found.file().filter(|_| is_file)?;
            Some(Presented { view, entry, file })
        })
    })
}

/// A file of the filesystem.
enum Content {
    Presented(Presented),
    /// What the disk says of itself.
    Manifest,
}

/// Names, and what stands behind each file, in the order of the layout's files.
pub(crate) struct Filesystem {
    tree: Tree,
    files: Vec<Content>,
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
            made.add_view(scan, views, index, below)?;
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
        views: &[View],
        index: usize,
        top: erofs::DirectoryId,
    ) -> Result<(), DatasetError> {
        let Some(view) = views.get(index) else {
            return Ok(());
        };
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
            let attributes = file_attributes(scan, entry, file);
            let presented = Presented {
                view: index,
                entry: place,
                file,
            };
            let bytes = presented.bytes(scan, views);
            self.tree.add_file(parent, name, bytes, attributes)?;
            self.files.push(Content::Presented(presented));
        }
        Ok(())
    }

    /// Gives everything its place.
    pub(crate) fn lay_out(
        self,
        uuid: [u8; 16],
        label: &str,
        manifest: Option<&[u8]>,
    ) -> Result<Disk, DatasetError> {
        let label = Label {
            uuid,
            built: self.newest,
            volume_name: label.as_bytes().to_vec(),
        };
        let layout = self.tree.lay_out(label)?;
        let mut disk = Disk {
            bytes: u64::from(layout.blocks()) * BLOCK_BYTES,
            metadata_bytes: u64::from(layout.metadata_blocks()) * BLOCK_BYTES,
            ..Disk::default()
        };
        let places: Vec<_> = layout.files().collect();
        let metadata_bytes = disk.metadata_bytes;
        disk.put_own(0, metadata_bytes, Own::Filesystem(Box::new(layout)));
        for (place, content) in places.into_iter().zip(self.files) {
            let at = u64::from(place.first_block) * BLOCK_BYTES;
            match (content, manifest) {
                _ if place.bytes == 0 => {}
                (Content::Manifest, Some(manifest)) => {
                    disk.put_own(at, place.bytes, Own::Bytes(manifest.to_vec()));
                }
                (Content::Manifest, None) => {}
                (Content::Presented(file), _) => disk.put(at, place.bytes, What::File(file)),
            }
        }
        Ok(disk)
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
#[derive(Default)]
pub(crate) struct Disk {
    /// First byte, bytes, what; in ascending order.
    parts: Vec<(u64, u64, What)>,
    /// What no source has: the filesystem's blocks, the manifest, partition tables.
    own: Vec<Own>,
    /// Presented bytes.
    pub(crate) bytes: u64,
    /// Of these, the filesystem's or the table's own.
    pub(crate) metadata_bytes: u64,
    /// Partitions, if it has any: name, first byte, bytes, and how many of these are padding.
    pub(crate) partitions: Vec<Partition>,
}

/// A partition of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The name in the table.
    pub name: String,
    /// Where it begins on the disk.
    pub first_byte: u64,
    /// Its length.
    pub bytes: u64,
    /// Zeros at its end that no file has.
    pub padding_bytes: u64,
}

enum What {
    /// Of [`Disk::own`].
    Own(usize),
    File(Presented),
}

/// Bytes that no source has.
pub(crate) enum Own {
    Filesystem(Box<Layout>),
    Bytes(Vec<u8>),
}

impl Own {
    pub(crate) fn reader(&self) -> Box<dyn Read + Send + '_> {
        match self {
            Own::Filesystem(layout) => Box::new(layout.metadata()),
            Own::Bytes(bytes) => Box::new(bytes.as_slice()),
        }
    }
}

/// Where the writer put what a disk consists of.
pub(crate) struct Written<'a> {
    pub(crate) views: &'a [View],
    pub(crate) storage: &'a Storage,
    /// By [`Piece::stream`].
    pub(crate) streams: &'a [StreamIndex],
    /// By [`Disk::own`].
    pub(crate) own: &'a [StreamIndex],
    /// What the views present that no source has, in the order of the disk's files.
    pub(crate) new_bytes: Option<StreamIndex>,
}

impl Disk {
    /// A partition for each file; sizes that are no whole number of blocks are refused, or padded with zeros.
    pub(crate) fn of_partitions(
        scan: &Scan,
        views: &[View],
        lba_bytes: u32,
        uuid: [u8; 16],
        pad: bool,
    ) -> Result<Disk, DatasetError> {
        let lba = u64::from(lba_bytes);
        let mut files = Vec::new();
        for file in presented(scan, views) {
            let bytes = file.bytes(scan, views);
            let padded = bytes.next_multiple_of(lba);
            let name = name_in_table(scan, views, &file);
            if bytes == 0 || (padded != bytes && !pad) {
                let why = format!(
                    "is {bytes} bytes; a partition is a whole number of blocks of {lba}, and at least one: fill it up with --pad (an empty file cannot be)"
                );
                let name = String::from_utf8_lossy(&name).into_owned();
                return Err(DatasetError::refused(name, why));
            }
            files.push((file, name, bytes, padded));
        }
        let partitions: Vec<_> = files
            .iter()
            .zip(1u64..)
            .map(|((_, name, _, padded), number)| gpt::Partition {
                name,
                uuid: partition_uuid(uuid, number),
                bytes: *padded,
            })
            .collect();
        let table = gpt::lay_out(table_lba(lba_bytes), uuid, &partitions)?;
        let mut disk = Disk::default();
        disk.put_own(0, table.head().len() as u64, Own::Bytes(table.head()));
        for (place, (file, _, bytes, padded)) in table.places().iter().zip(&files) {
            disk.put(place.first_byte, *bytes, What::File(*file));
            disk.partitions.push(Partition {
                name: place.name.clone(),
                first_byte: place.first_byte,
                bytes: place.bytes,
                padding_bytes: padded - bytes,
            });
        }
        disk.put_tail(&table);
        disk.metadata_bytes = (table.head().len() + table.tail().len()) as u64;
        Ok(disk)
    }

    /// This disk as the only partition of another.
    pub(crate) fn in_partition(
        self,
        name: &str,
        lba_bytes: u32,
        uuid: [u8; 16],
    ) -> Result<Disk, DatasetError> {
        let partition = gpt::Partition {
            name: name.as_bytes(),
            uuid: partition_uuid(uuid, 1),
            bytes: self.bytes,
        };
        let table = gpt::lay_out(table_lba(lba_bytes), uuid, &[partition])?;
        let mut disk = Disk {
            metadata_bytes: self.metadata_bytes,
            own: self.own,
            ..Disk::default()
        };
        disk.put_own(0, table.head().len() as u64, Own::Bytes(table.head()));
        for place in table.places() {
            disk.partitions.push(Partition {
                name: place.name.clone(),
                first_byte: place.first_byte,
                bytes: place.bytes,
                padding_bytes: 0,
            });
        }
        let first_byte = disk.partitions.first().map_or(0, |it| it.first_byte);
        for (at, bytes, what) in self.parts {
            disk.put(first_byte + at, bytes, what);
        }
        disk.put_tail(&table);
        Ok(disk)
    }

    fn put(&mut self, at: u64, bytes: u64, what: What) {
        self.parts.push((at, bytes, what));
    }

    fn put_own(&mut self, at: u64, bytes: u64, own: Own) {
        self.own.push(own);
        self.put(at, bytes, What::Own(self.own.len() - 1));
    }

    fn put_tail(&mut self, table: &gpt::Layout) {
        let tail = table.tail();
        self.put_own(table.tail_offset(), tail.len() as u64, Own::Bytes(tail));
        self.bytes = table.disk_bytes();
    }

    /// What no source has, to be written.
    pub(crate) fn own(&self) -> &[Own] {
        &self.own
    }

    /// All the bytes that views present and no source has, in the order in which [`extents`](Disk::extents) asks for them.
    pub(crate) fn new_parts<'a>(&self, views: &'a [View]) -> Vec<&'a [u8]> {
        let changed = self.parts.iter().filter_map(|(_, _, what)| match what {
            What::File(file) => file.changed(views),
            What::Own(_) => None,
        });
        changed
            .flat_map(Presentation::parts)
            .filter_map(|part| match part {
                Part::New(bytes) => Some(bytes.as_slice()),
                _ => None,
            })
            .collect()
    }

    /// Each part at its place, and zeros between.
    pub(crate) fn extents(&self, written: &Written<'_>) -> Result<Vec<ExtentSpec>, DatasetError> {
        let mut extents = Extents {
            written,
            list: Vec::new(),
            position: 0,
            new_position: 0,
        };
        for (at, bytes, what) in &self.parts {
            extents.zeros_to(*at);
            match what {
                What::Own(index) => {
                    let stream = written.own.get(*index).copied();
                    let missing =
                        || DatasetError::refused("the disk", "has a part without a stream");
                    extents
                        .list
                        .push(linear(stream.ok_or_else(missing)?, 0, *bytes));
                    extents.position += bytes;
                }
                What::File(file) => extents.file(file, *bytes)?,
            }
        }
        extents.zeros_to(self.bytes);
        Ok(extents.list)
    }
}

/// The path that a file has on the disk, as the name of its partition.
fn name_in_table(scan: &Scan, views: &[View], file: &Presented) -> Vec<u8> {
    let entry = scan.entries.get(file.entry);
    let path = entry.map(|entry| entry.path.as_slice()).unwrap_or_default();
    match (views, views.get(file.view)) {
        ([_], _) | (_, None) => path.to_vec(),
        (_, Some(view)) => [view.name.as_bytes(), b"/", path].concat(),
    }
}

fn table_lba(lba_bytes: u32) -> gpt::LbaBytes {
    if lba_bytes == 512 {
        gpt::LbaBytes::B512
    } else {
        gpt::LbaBytes::B4096
    }
}

/// A function of the disk's identity and the partition's number.
fn partition_uuid(disk: [u8; 16], number: u64) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update(b"xio partition uuid 1");
    hash.update(disk);
    hash.update(number.to_le_bytes());
    version_8(hash.finalize().into())
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

    fn file(&mut self, file: &Presented, bytes: u64) -> Result<(), DatasetError> {
        let Some(presentation) = file.changed(self.written.views) else {
            return self.source(file.file, 0, bytes);
        };
        for part in presentation.parts() {
            self.part(file.file, part)?;
        }
        Ok(())
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
