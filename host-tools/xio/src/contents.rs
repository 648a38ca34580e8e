//! The files of a disk, read without a mount: names, attributes, and where on the disk their bytes lie.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use ::mount::{Filesystem, Medium, MountError, OnDisk, PartitionFile, ReadFailure};
use erofs::limits::BLOCK_BYTES;
use erofs::{Attributes, Inode, Kind, Walk};

use crate::failure::Failure;
use crate::medium::Source;

/// Of a folder that leads to a partition's file: whoever copies it may add to it.
const FOLDER_PERMISSIONS: u16 = 0o755;

/// What has a name.
pub struct Item {
    /// What it is.
    pub kind: Kind,
    /// Mode, owner, time.
    pub attributes: Attributes,
    /// Length of a file, otherwise 0.
    pub bytes: u64,
    /// Where a symbolic link leads.
    pub target: Vec<u8>,
    /// Where a file lies: first byte on the disk and length of up to two runs, one behind the other.
    pub runs: [(u64, u64); 2],
}

/// By path from the root, which is empty: folders come before what is in them.
pub type Items = BTreeMap<Vec<u8>, Item>;

/// What a disk holds, or `None` where it has neither a filesystem nor partitions. `name`: what a person calls the disk, who is told what is damaged of it and can be
/// read all the same.
pub fn of(source: &Source, name: impl Display) -> Result<Option<Items>, Failure> {
    let found =
        OnDisk::look(&source.medium()).map_err(|error| Failure::from(error).about(&name))?;
    if let Some(note) = &found.note {
        printout::stderr::note(format_args!("{name}: {note}"));
    }
    match found.on_disk {
        OnDisk::Filesystem(filesystem) => {
            let items = of_filesystem(filesystem);
            items.map(Some).map_err(|failure| failure.about(&name))
        }
        OnDisk::Partitions(files) => {
            let attributes = source.as_one_file().attributes;
            Ok(Some(of_partitions(&files, attributes)))
        }
        OnDisk::Bytes => Ok(None),
    }
}

/// Reads `into.len()` bytes of a file from its byte `from` on, which it has.
pub fn read(
    medium: &Arc<dyn Medium>,
    [first, second]: [(u64, u64); 2],
    from: u64,
    into: &mut [u8],
) -> Result<(), ReadFailure> {
    let in_first = first.1.saturating_sub(from);
    let in_first = usize::try_from(in_first).map_or(into.len(), |left| left.min(into.len()));
    let (before, behind) = into.split_at_mut(in_first);
    let skipped = from.saturating_sub(first.1);
    for (at, part) in [(first.0 + from, before), (second.0 + skipped, behind)] {
        if !part.is_empty() {
            medium.read(at, part)?;
        }
    }
    Ok(())
}

fn of_filesystem(filesystem: Filesystem) -> Result<Items, Failure> {
    let (mut image, first_byte) = (filesystem.image, filesystem.first_byte);
    let wrong = MountError::from;
    let root = image.root().map_err(wrong)?;
    let mut items = BTreeMap::from([(Vec::new(), Item::new(&root, first_byte, Vec::new()))]);
    let mut walk = Walk::new();
    // Its names are checked: each is one name, and leads nowhere but down.
    while let Some(visit) = walk.next(&mut image).map_err(wrong)? {
        let target = match visit.inode.kind {
            Kind::Symlink => image.target(&visit.inode).map_err(wrong)?,
            Kind::Directory | Kind::File => Vec::new(),
        };
        items.insert(visit.path, Item::new(&visit.inode, first_byte, target));
    }
    Ok(items)
}

fn of_partitions(files: &[PartitionFile], attributes: Attributes) -> Items {
    let folder = || Item {
        kind: Kind::Directory,
        attributes: Attributes {
            permissions: FOLDER_PERMISSIONS,
            ..attributes
        },
        bytes: 0,
        target: Vec::new(),
        runs: [(0, 0); 2],
    };
    let mut items = BTreeMap::from([(Vec::new(), folder())]);
    for file in files {
        for (at, _) in file.path.match_indices('/') {
            let path = file.path.as_bytes()[..at].to_vec();
            items.entry(path).or_insert_with(folder);
        }
        let item = Item {
            kind: Kind::File,
            attributes,
            bytes: file.bytes,
            target: Vec::new(),
            runs: [(file.first_byte, file.bytes), (0, 0)],
        };
        items.insert(file.path.clone().into_bytes(), item);
    }
    items
}

impl Item {
    fn new(inode: &Inode, first_byte: u64, target: Vec<u8>) -> Item {
        let payload = &inode.payload;
        let blocks = u64::from(payload.first_block) * BLOCK_BYTES as u64;
        Item {
            kind: inode.kind,
            attributes: inode.attributes,
            bytes: if inode.kind == Kind::File {
                inode.bytes
            } else {
                0
            },
            target,
            runs: [
                (first_byte + blocks, payload.bytes),
                (first_byte + payload.tail_offset, payload.tail_bytes as u64),
            ],
        }
    }
}
