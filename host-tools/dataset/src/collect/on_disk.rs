//! What a view is: a filesystem, partitions, or bytes without names.

use std::collections::HashSet;
use std::io;
use std::ops::Range;

use erofs::limits::BLOCK_BYTES as EROFS_BLOCK_BYTES;
use erofs::{Attributes, ErofsError, Image, ReadBlocks, Walk};
use gpt::Place;
use volume::blocking::{Files, Reader};
use volume::format::Mapping;
use volume::{SourceId, VolumeError};

use super::{Bytes, CACHE_BYTES, Collected, view_index};
use crate::items::{Item, ItemKind};
use crate::{BLOCK_BYTES, DatasetError};

/// Of the directory of a view that has partitions, and of those that their names lead through.
const FOLDER_PERMISSIONS: u16 = 0o755;
/// Of what has no attributes of its own.
const FILE_PERMISSIONS: u16 = 0o444;

/// What a view puts on the disk.
pub(super) struct Found {
    pub(super) items: Vec<Item<Bytes>>,
    /// What a person should know of it.
    pub(super) note: Option<String>,
}

/// A view, and what it is called in its volume and on the new disk.
struct Looking<'a> {
    collected: &'a Collected,
    volume: usize,
    view: usize,
    /// The directory that it becomes if it is one.
    top: &'a [u8],
}

impl Collected {
    /// What a view puts on the disk: as files below `top`, or as one file.
    ///
    /// A view is a disk itself if it begins as one. Where it begins with the bytes of another file they are not looked at: what a volume maps is not read here.
    pub(super) fn items(
        &mut self,
        volume: usize,
        view: usize,
        top: &[u8],
    ) -> Result<Found, DatasetError> {
        let looking = Looking {
            collected: self,
            volume,
            view,
            top,
        };
        if let Some(found) = looking.look()? {
            if let Some(collected) = self.views.get_mut(view) {
                collected.is_directory = true;
                collected.path = top.to_vec();
            }
            return Ok(found);
        }
        let name = self.volume.view_name(view_index(view));
        let bytes = self.reader(view)?.volume().presented_bytes();
        let all = of_bytes(volume, view, 0..bytes);
        let items = vec![file(name.as_bytes().to_vec(), all)];
        Ok(Found { items, note: None })
    }

    fn reader(&self, view: usize) -> Result<Reader<&Files>, DatasetError> {
        let of_view = self.volume.with_view(view_index(view));
        let of_view = of_view.map_err(|error| DatasetError::volume(&self.path, error))?;
        Ok(Reader::new(of_view, &self.store, CACHE_BYTES))
    }

    /// Whether the volume's own file has all of a range of what a view presents.
    fn has_itself(&self, view: usize, bytes: &Range<u64>) -> bool {
        let extents = self.views.get(view).map_or(&[][..], |it| &it.extents);
        let first = extents.partition_point(|extent| extent.end() <= bytes.start);
        let there = extents.iter().skip(first);
        let mut there = there.take_while(|extent| extent.start < bytes.end);
        there.all(|extent| match extent.mapping {
            Mapping::Linear { stream, .. } => {
                let stream = self.volume.stream(stream);
                stream.is_some_and(|stream| stream.source == SourceId::OWN)
            }
            Mapping::Zero | Mapping::Inline(_) => true,
        })
    }

    /// An error of reading the filesystem of a view.
    fn wrong(&self, error: ErofsError) -> DatasetError {
        let error = match error {
            ErofsError::Read { block, error } => match error.downcast::<VolumeError>() {
                Ok(error) => return DatasetError::volume(&self.path, error),
                Err(error) => ErofsError::Read { block, error },
            },
            error => error,
        };
        self.broken(error)
    }

    fn broken(&self, why: impl ToString) -> DatasetError {
        DatasetError::data(format_args!("{}:", self.path.display()), why.to_string())
    }
}

impl Looking<'_> {
    /// What it holds, if it is a disk.
    fn look(&self) -> Result<Option<Found>, DatasetError> {
        let mut reader = self.collected.reader(self.view)?;
        let bytes = reader.volume().presented_bytes();
        if let Some(items) = self.part(0..bytes)? {
            return Ok(Some(Found { items, note: None }));
        }
        let ends = gpt::ends(bytes, |range| self.stored(&mut reader, range))?;
        let Some([head, tail]) = ends else {
            return Ok(None);
        };
        let parsed = gpt::parse(&head, &tail, bytes);
        let Some(parsed) = parsed.map_err(|error| self.collected.broken(error))? else {
            return Ok(None);
        };
        let path = self.collected.path.display();
        let note = parsed.note().map(|note| format!("{path}: {note}"));
        if let [only] = parsed.places.as_slice()
            && let Some(items) = self.part(only.first_byte..only.first_byte + only.bytes)?
        {
            return Ok(Some(Found { items, note }));
        }
        let items = self.partitions(&parsed.places);
        Ok(Some(Found { items, note }))
    }

    /// Bytes, if the volume's own file has them.
    fn stored(
        &self,
        reader: &mut Reader<&Files>,
        range: Range<u64>,
    ) -> Result<Option<Vec<u8>>, DatasetError> {
        if !self.collected.has_itself(self.view, &range) {
            return Ok(None);
        }
        let bytes = usize::try_from(range.end - range.start).unwrap_or_default();
        let mut piece = vec![0; bytes];
        let read = reader.read(range.start, &mut piece);
        read.map_err(|error| DatasetError::volume(&self.collected.path, error))?;
        Ok(Some(piece))
    }

    /// The files of the filesystem that lies in a part of the view, if there is one.
    fn part(&self, part: Range<u64>) -> Result<Option<Vec<Item<Bytes>>>, DatasetError> {
        let first = part.start..part.end.min(part.start + BLOCK_BYTES);
        if !self.collected.has_itself(self.view, &first) {
            return Ok(None);
        }
        let first_byte = part.start;
        let blocks = (part.end - part.start) / BLOCK_BYTES;
        let mut disk = Blocks {
            reader: self.collected.reader(self.view)?,
            part,
        };
        let wrong = |error| self.collected.wrong(error);
        let mut image = match Image::open(&mut disk, blocks) {
            Ok(image) => image,
            Err(ErofsError::NotErofs { .. }) => return Ok(None),
            Err(error) => return Err(wrong(error)),
        };
        let root = image.root().map_err(wrong)?;
        let mut items = vec![Item::directory(self.top, root.attributes)];
        let mut walk = Walk::new();
        while let Some(visit) = walk.next(&mut image).map_err(wrong)? {
            let inode = &visit.inode;
            let kind = match inode.kind {
                erofs::Kind::Directory => ItemKind::Directory,
                erofs::Kind::Symlink => ItemKind::Symlink(image.target(inode).map_err(wrong)?),
                erofs::Kind::File => {
                    let foreign = || {
                        let why = "holds a filesystem of another maker, with file bytes among its metadata";
                        DatasetError::data(self.collected.path.display(), why)
                    };
                    let start = first_byte + plain_start(inode).ok_or_else(foreign)?;
                    let content = of_bytes(self.volume, self.view, start..start + inode.bytes);
                    let bytes = content.bytes;
                    ItemKind::File { bytes, content }
                }
            };
            items.push(Item {
                path: self.below(&visit.path),
                attributes: inode.attributes,
                kind,
            });
        }
        Ok(Some(items))
    }

    /// Each as a file.
    fn partitions(&self, places: &[Place]) -> Vec<Item<Bytes>> {
        let folder = |path: &[u8]| Item::directory(path, Attributes::new(FOLDER_PERMISSIONS));
        let mut items = vec![folder(self.top)];
        let mut folders = HashSet::new();
        for (path, place) in gpt::paths(places).into_iter().zip(places) {
            for (at, _) in path.match_indices('/') {
                let above = self.below(&path.as_bytes()[..at]);
                if folders.insert(above.clone()) {
                    items.push(folder(&above));
                }
            }
            let range = place.first_byte..place.first_byte + place.bytes;
            let content = of_bytes(self.volume, self.view, range);
            items.push(file(self.below(path.as_bytes()), content));
        }
        items
    }

    /// What the new disk calls something of this one.
    fn below(&self, path: &[u8]) -> Vec<u8> {
        match self.top {
            b"" => path.to_vec(),
            top => [top, b"/", path].concat(),
        }
    }
}

fn of_bytes(volume: usize, view: usize, range: Range<u64>) -> Bytes {
    Bytes {
        volume,
        view,
        start: range.start,
        bytes: range.end - range.start,
    }
}

fn file(path: Vec<u8>, content: Bytes) -> Item<Bytes> {
    let bytes = content.bytes;
    Item {
        path,
        attributes: Attributes::new(FILE_PERMISSIONS),
        kind: ItemKind::File { bytes, content },
    }
}

/// Where a file's bytes lie on its disk, if they lie in one piece.
fn plain_start(inode: &erofs::Inode) -> Option<u64> {
    let payload = &inode.payload;
    (payload.bytes == inode.bytes).then(|| u64::from(payload.first_block) * BLOCK_BYTES)
}

/// A part of a view as a disk to read a filesystem's metadata from.
struct Blocks<'a> {
    reader: Reader<&'a Files>,
    part: Range<u64>,
}

impl ReadBlocks for &mut Blocks<'_> {
    fn read_block(&mut self, block: u32, into: &mut [u8; EROFS_BLOCK_BYTES]) -> io::Result<()> {
        let at = self.part.start + u64::from(block) * BLOCK_BYTES;
        if at + BLOCK_BYTES > self.part.end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let read = self.reader.read(at, into);
        read.map(|_| ()).map_err(io::Error::other)
    }
}
