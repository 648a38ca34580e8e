//! The disk: a filesystem or partitions, and where each part's bytes come from.

use std::io::Read;

use erofs::{Label, Layout};
use transforms::{Chain, ElementType, ViewChain};
use volume::StreamIndex;
use volume::identity::Uuid;
use volume::write::{ExtentSpec, Output, StreamSpec, Writer};

use crate::items::{Content, Item};
use crate::names::listed;
use crate::{DatasetError, identity, items};

/// Bytes of a block of the filesystem.
pub const BLOCK_BYTES: u64 = erofs::limits::BLOCK_BYTES as u64;

/// What is stored that no source has: mostly zeros and names.
const OWN_CHAIN: &str = "lz4";

/// A disk whose parts have their places; `F` stands for the bytes of a file.
pub(crate) struct Disk<F> {
    /// First byte, bytes, what; in ascending order.
    parts: Vec<(u64, u64, What<F>)>,
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

enum What<F> {
    /// Of [`Disk::own`].
    Own(usize),
    File(F),
}

/// Bytes that no source has.
enum Own {
    Filesystem(Box<Layout>),
    Bytes(Vec<u8>),
}

/// A file that is to be a partition.
pub(crate) struct PartitionFile<F> {
    /// The name in the table.
    pub(crate) name: Vec<u8>,
    pub(crate) bytes: u64,
    pub(crate) content: F,
}

impl<F> Disk<F> {
    fn new() -> Disk<F> {
        Disk {
            parts: Vec::new(),
            own: Vec::new(),
            bytes: 0,
            metadata_bytes: 0,
            partitions: Vec::new(),
        }
    }

    /// A filesystem, as [`items::tree`] makes it.
    pub(crate) fn of_items(
        items: impl Iterator<Item = Item<F>>,
        label: Label,
    ) -> Result<Disk<F>, DatasetError> {
        let (tree, files) = items::tree(items)?;
        let layout = tree.lay_out(label)?;
        let metadata_bytes = u64::from(layout.metadata_blocks()) * BLOCK_BYTES;
        let mut disk = Disk {
            bytes: u64::from(layout.blocks()) * BLOCK_BYTES,
            metadata_bytes,
            ..Disk::new()
        };
        let places: Vec<_> = layout.files().collect();
        disk.put_own(0, metadata_bytes, Own::Filesystem(Box::new(layout)));
        for (place, content) in places.into_iter().zip(files) {
            let at = u64::from(place.first_block) * BLOCK_BYTES;
            match content {
                _ if place.bytes == 0 => {}
                Content::Own(bytes) => disk.put_own(at, place.bytes, Own::Bytes(bytes)),
                Content::File(content) => disk.put(at, place.bytes, What::File(content)),
            }
        }
        Ok(disk)
    }

    /// A partition for each file; sizes that are no whole number of blocks are refused, or padded with zeros.
    pub(crate) fn of_partitions(
        files: Vec<PartitionFile<F>>,
        lba_bytes: u32,
        uuid: Uuid,
        pad: bool,
    ) -> Result<Disk<F>, DatasetError> {
        let lba = u64::from(lba_bytes);
        check_sizes(&files, lba, pad)?;
        let mut partitions = Vec::with_capacity(files.len());
        for (file, number) in files.iter().zip(1..) {
            let bytes = file.bytes.next_multiple_of(lba);
            partitions.push(gpt::Partition {
                name: &file.name,
                uuid: identity::of_partition(uuid, number),
                bytes,
            });
        }
        let table = gpt::lay_out(table_lba(lba_bytes), uuid, &partitions)?;
        let mut disk = Disk::new();
        disk.put_head(&table);
        for (partition, file) in disk.partitions.iter_mut().zip(&files) {
            partition.padding_bytes = partition.bytes - file.bytes;
        }
        for (place, file) in table.places().iter().zip(files) {
            disk.put(place.first_byte, file.bytes, What::File(file.content));
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
        uuid: Uuid,
    ) -> Result<Disk<F>, DatasetError> {
        let partition = gpt::Partition {
            name: name.as_bytes(),
            uuid: identity::of_partition(uuid, 1),
            bytes: self.bytes,
        };
        let table = gpt::lay_out(table_lba(lba_bytes), uuid, &[partition])?;
        let mut disk = Disk {
            metadata_bytes: self.metadata_bytes,
            own: self.own,
            ..Disk::new()
        };
        disk.put_head(&table);
        let first_byte = disk.partitions.first().map_or(0, |it| it.first_byte);
        for (at, bytes, what) in self.parts {
            disk.put(first_byte + at, bytes, what);
        }
        disk.put_tail(&table);
        Ok(disk)
    }

    fn put(&mut self, at: u64, bytes: u64, what: What<F>) {
        self.parts.push((at, bytes, what));
    }

    fn put_own(&mut self, at: u64, bytes: u64, own: Own) {
        self.own.push(own);
        self.put(at, bytes, What::Own(self.own.len() - 1));
    }

    fn put_head(&mut self, table: &gpt::Layout) {
        let head = table.head();
        self.put_own(0, head.len() as u64, Own::Bytes(head));
        let partitions = table.places().iter().map(|place| Partition {
            name: place.name.clone(),
            first_byte: place.first_byte,
            bytes: place.bytes,
            padding_bytes: 0,
        });
        self.partitions = partitions.collect();
    }

    fn put_tail(&mut self, table: &gpt::Layout) {
        let tail = table.tail();
        self.put_own(table.tail_offset(), tail.len() as u64, Own::Bytes(tail));
        self.bytes = table.disk_bytes();
    }

    /// Its files that have bytes, in ascending order.
    pub(crate) fn files(&self) -> impl Iterator<Item = &F> {
        self.parts.iter().filter_map(|(_, _, what)| match what {
            What::File(content) => Some(content),
            What::Own(_) => None,
        })
    }

    /// Stores what no source has.
    pub(crate) fn store_own<O: Output>(
        &self,
        writer: &mut Writer<O>,
    ) -> Result<Vec<StreamIndex>, DatasetError> {
        let stored = self.own.iter().map(|own| match own {
            Own::Filesystem(layout) => store(writer, &mut layout.metadata()),
            Own::Bytes(bytes) => store(writer, &mut bytes.as_slice()),
        });
        stored.collect()
    }

    /// Each part at its place, and zeros between: `own` is what [`store_own`](Disk::store_own) gave, and `put` adds the bytes of a file.
    pub(crate) fn extents(
        &self,
        own: &[StreamIndex],
        mut put: impl FnMut(&mut Extents, &F, u64) -> Result<(), DatasetError>,
    ) -> Result<Vec<ExtentSpec>, DatasetError> {
        let mut extents = Extents::default();
        for (at, bytes, what) in &self.parts {
            extents.zeros(at.saturating_sub(extents.position));
            match what {
                What::Own(index) => {
                    let missing =
                        || DatasetError::refused("the disk", "has a part without a stream");
                    let stream = own.get(*index).copied().ok_or_else(missing)?;
                    extents.bytes(stream, 0, *bytes);
                }
                What::File(content) => put(&mut extents, content, *bytes)?,
            }
        }
        extents.zeros(self.bytes.saturating_sub(extents.position));
        Ok(extents.list)
    }
}

/// Refuses files that no partition is, all at once.
fn check_sizes<F>(files: &[PartitionFile<F>], lba: u64, pad: bool) -> Result<(), DatasetError> {
    let refuse = |names: Vec<String>, rule: &str, what: [&str; 2], way_out: &str| {
        let (count, what) = match names.len() {
            0 => return Ok(()),
            1 => ("1 file".to_owned(), what[0]),
            count => (format!("{count} files"), what[1]),
        };
        let why = format!(
            "{rule}, and {count} {what} ({}): {way_out}",
            listed(names, ", ")
        );
        Err(DatasetError::refused("a partition", why))
    };
    let empty = files.iter().filter(|file| file.bytes == 0);
    let empty = empty.map(|file| erofs::shown(&file.name)).collect();
    let rule = format!("has at least one block, of {lba} bytes");
    let way_out = "leave empty files out (--exclude), or make a filesystem, without --gpt";
    refuse(empty, &rule, ["is empty", "are empty"], way_out)?;
    if pad {
        return Ok(());
    }
    let odd = files.iter().filter(|file| !file.bytes.is_multiple_of(lba));
    let odd = odd.map(|file| format!("{}: {} bytes", erofs::shown(&file.name), file.bytes));
    let rule = format!("is a whole number of blocks of {lba} bytes");
    let way_out = "--pad fills them up with zeros";
    refuse(odd.collect(), &rule, ["is not", "are not"], way_out)
}

/// Stores bytes that no source has.
pub(crate) fn store<O: Output>(
    writer: &mut Writer<O>,
    input: &mut (dyn Read + Send),
) -> Result<StreamIndex, DatasetError> {
    let chain = Chain::parse(OWN_CHAIN, ElementType::U8)
        .map_err(|error| DatasetError::refused(OWN_CHAIN, error.to_string()))?;
    let written = writer.add_stream(&StreamSpec::new(chain), input, &mut |_| {})?;
    Ok(written.stream)
}

/// What a disk presents, one part behind the other.
#[derive(Default)]
pub(crate) struct Extents {
    list: Vec<ExtentSpec>,
    /// Presented bytes so far.
    position: u64,
}

impl Extents {
    /// What presents `bytes` bytes.
    pub(crate) fn push(&mut self, extent: ExtentSpec, bytes: u64) {
        self.list.push(extent);
        self.position += bytes;
    }

    pub(crate) fn zeros(&mut self, bytes: u64) {
        if bytes > 0 {
            self.push(ExtentSpec::Zero { bytes }, bytes);
        }
    }

    /// Bytes of a stream of bytes.
    pub(crate) fn bytes(&mut self, stream: StreamIndex, first: u64, bytes: u64) {
        let extent = ExtentSpec::Linear {
            stream,
            first_element: first,
            elements: bytes,
            view: ViewChain::identity(),
        };
        self.push(extent, bytes);
    }
}

fn table_lba(lba_bytes: u32) -> gpt::LbaBytes {
    if lba_bytes == 512 {
        gpt::LbaBytes::B512
    } else {
        gpt::LbaBytes::B4096
    }
}
