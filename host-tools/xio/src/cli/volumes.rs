//! The commands that write volumes: pack, map, format.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use dataset::Shape;
use printout::size::Size;
use transforms::ElementType;

use super::presenting::{PATTERN_HELP, Presenting};
use super::storing::{AUTO_HELP, Storing};
use crate::failure::Failure;

/// What all of them are told.
#[derive(Debug, Args)]
pub struct Output {
    /// The volume to write
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,

    /// Replace OUT if it exists
    #[arg(long)]
    pub force: bool,

    /// Name of the view; otherwise that of the first input
    #[arg(long)]
    pub name: Option<String>,

    /// Logical block size of the namespace: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    pub lba: Size,

    /// Print what was written as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A filesystem's name.
#[derive(Debug, Args)]
pub struct Filesystem {
    /// Name of the filesystem, up to 15 bytes: what blkid calls LABEL
    #[arg(long, default_value = "", hide_default_value = true)]
    pub label: String,
}

/// What a disk is told besides.
#[derive(Debug, Args)]
#[command(next_help_heading = "Disk")]
pub struct Disk {
    #[command(flatten)]
    pub presenting: Presenting,

    #[command(flatten)]
    pub filesystem: Filesystem,

    /// Put the filesystem into a partition, instead of on the whole disk
    #[arg(long, conflicts_with = "gpt")]
    pub partitioned: bool,

    /// No filesystem: a partition for each file, at most 128; a name of more than 36 UTF-16 units is cut, with ~ and 8 digits of its SHA-256
    #[arg(long)]
    pub gpt: bool,

    /// With --gpt: fill files up with zeros to whole logical blocks, instead of refusing them
    #[arg(long, requires = "gpt")]
    pub pad: bool,

    /// Leave /.xio/manifest.json off the disk
    #[arg(long)]
    pub no_manifest: bool,
}

impl Disk {
    /// How the files lie.
    pub fn shape(&self) -> Shape {
        if self.gpt {
            Shape::Partitions { pad: self.pad }
        } else if self.partitioned {
            Shape::PartitionedFilesystem
        } else {
            Shape::Filesystem
        }
    }
}

const PACK_HELP: &str = "\
Without --dtype the inputs are folders and files of any kind, which are recognised by their content. The namespace is a disk: a read-only EROFS that
any Linux mounts ('mount -t erofs -o ro /dev/nvme0n1 /mnt'), with the bytes, names, modes, owners and times of the inputs. The contents of a single folder are
its root; otherwise each input stands in the root. A link to something in the inputs that would not lead there on the disk (it is absolute, or goes
through what is above them) is made relative, and a note says so. See 'xio plan' for what would be done.

With --dtype the inputs are elements without a header, and the namespace is these elements: no names, no filesystem. Several files follow each
other, each from a logical block on, with zeros in between, so that every file can be found at lba_bytes * (blocks of the files before it); --concat
puts them end to end instead.

Stored chains (--store-as): steps joined by '+', element steps before block steps; or auto:lossless, with --dtype one chain for all inputs.
  none                 as it is
  u8 u16 u32 u64       each value in a narrower or wider integer type, checked (also i8 i16 i32 i64)
  bitpack:K            each value in K bits, 1 to 32, checked
  f16 bf16 f32 f64     floats in another type; a narrower one rounds to nearest even, and only with --dtype
  q8_0                 f32, bf16 or f16 in 8 bits with a scale for each 32 (GGUF's Q8_0): not exact, and only with --dtype
  int8:ROW             f32, bf16 or f16 in 8 bits with a scale for each row of ROW elements, which the volume holds: an output channel of a weight
                       matrix, a token of an embedding table; inputs are read once more; not exact, and only with --dtype
  rank                 16- or 32-bit ids below 4,194,304 by frequency, in one to three bytes; alone or before lz4, lz4hc, zstd or zstd-dict;
                       inputs are read once more, for a table of them that the volume holds (u64: u32+rank)
  shuffle              bytes of equal significance together, frame by frame
  lz4  lz4hc[:LEVEL]   compressed, frame by frame
  zstd:LEVEL           compressed, frame by frame
  zstd-dict:LEVEL      the same by a dictionary that the volume holds, of up to 110 KiB: for frames of some KiB (--frame), which have little of their own to
                       compress by; some of the inputs is read once more, and it is trained on that
  floatsplit           floats: their exponents compressed, their fractions as they are, frame by frame; every bit is kept; takes no compressor
                       behind it
A value that does not fit is an error with its place, and no volume is written. Nothing is ever truncated. What rounding lost is
measured, and told by 'xio inspect'.

Presented types (--present-as):
  source               the exact bytes of the inputs; what is presented when nothing is said
  bf16 f16 f32 u16...  tensors and arrays that can become this type are presented in it; headers, indexes and sizes follow
  q8_0                 GGUF tensors whose rows have a multiple of 32 elements, and files of floats without a header, in GGUF's Q8_0 blocks
  RULES                PATTERN[@RANK]=TYPE or =keep, separated by commas; the first that fits a tensor's name decides
Several types have a directory each on the disk, over one stored stream.

The same input gives the same volume, byte for byte, on any machine and with any number of threads. The output appears under
its name when it is complete and durable; an interrupted pack leaves no file there.";

const PACK_EXAMPLES: &str = "\
Examples:
  xio pack dataset -o dataset.xio
  xio pack dataset --access random:16KiB --explain -o dataset.xio
  xio pack train.bin train.idx --store-as u16+zstd:3 -o pair.xio
  xio pack tokens.bin --dtype u32 --store-as rank+zstd:9 -o tokens.xio
  xio pack tokens.bin --dtype u32 --store-as rank+zstd-dict:9 --frame 4KiB -o tokens.xio
  xio pack model --present-as source,bf16 -o model.xio
  xio pack model --present-as 'small:*norm*=keep,*@2+=bf16' -o small.xio
  xio pack shards --gpt --pad -o shards.xio
  xio pack corpus --as '*.bin=u16' --store '*.bin=bitpack:16+lz4' --store '*.json=zstd:9' -o corpus.xio
  xio pack tokens.bin --dtype u32 --store-as u16+lz4 -o tokens.xio
  xio pack tokens-*.bin --dtype u32 --store-as auto:lossless --access random:16KiB -o tokens.xio
  xio pack embeddings.bin --dtype f32 --store-as f16+zstd:3 -o embeddings.xio
  xio pack weights.bin --dtype f32 --store-as int8:768 -o weights.xio
  xio pack shard-*.bin --dtype u32 --store-as bitpack:18+zstd:3 --frame 256KiB -o shards.xio
  zcat tokens.gz | xio pack - --dtype u32 --name tokens --store-as u16 -o tokens.xio";

/// `xio pack`.
#[derive(Debug, Args)]
#[command(after_help = format!("{PACK_HELP}\n\n{PATTERN_HELP}\n\n{AUTO_HELP}\n\n{PACK_EXAMPLES}"))]
pub struct Pack {
    /// Files and folders; with --dtype, '-' is standard input
    #[arg(required = true, value_name = "IN")]
    pub inputs: Vec<PathBuf>,

    /// Threads that encode; otherwise one a core
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,

    /// Show all chains that were tried, not just the best of them
    #[arg(long)]
    pub explain: bool,

    #[command(flatten)]
    pub storing: Storing,

    #[command(flatten)]
    pub volume: Output,

    /// What vouches for the stored bytes
    #[arg(long, value_enum, default_value_t = Integrity::Crc32c)]
    pub integrity: Integrity,

    #[command(flatten)]
    pub disk: Disk,

    #[command(flatten)]
    pub elements: Elements,
}

/// A namespace without a filesystem.
#[derive(Debug, Args)]
#[command(next_help_heading = "Elements without a header")]
pub struct Elements {
    /// Their type: u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64
    #[arg(long, value_name = "TYPE", conflicts_with_all = ["present_as", "types", "keep", "exclude", "label", "partitioned", "gpt", "no_manifest"])]
    pub dtype: Option<ElementType>,

    /// Put the files end to end instead of each at a logical block of its own
    #[arg(long, requires = "dtype")]
    pub concat: bool,
}

const MAP_HELP: &str = "\
Nothing is copied: the volume holds the checksums of the files, and where they are. They are read once; what --present-as changes is
read three times. While the volume is in use the files must stay as they are: a target and `xio verify` refuse a file whose length or
content is another one (a file that was only touched or copied is read again, up to 4 GiB), and a read that meets changed bytes fails
with the file's name and offset: every 4 KiB have a checksum, always.

The files may lie on any file system, NFS and Lustre included. A file in or below the directory of OUT is found by its path from
there, so that both can be moved together, and is opened as a matter of course. Any other is recorded with its whole path, and
opened only where the place is allowed: snap-target --allow-sources DIR, xio verify --allow-sources DIR.

The namespace is a disk with the files, as with `xio pack`; with --dtype it is their elements without a filesystem. Of a disk, files of up to
16 KiB are stored in the volume all the same: their checksums would take as much.";

const MAP_EXAMPLES: &str = "\
Examples:
  xio map dataset -o dataset.xio
  xio map model --present-as bf16 -o model-bf16.xio
  xio map train.bin --dtype u16 -o train.xio
  xio map shards/*.bin --dtype u8 --concat -o shards.xio
  xio verify train.xio";

/// `xio map`.
#[derive(Debug, Args)]
#[command(after_help = format!("{MAP_HELP}\n\n{PATTERN_HELP}\n\n{MAP_EXAMPLES}"))]
pub struct Map {
    /// Files and folders
    #[arg(required = true, value_name = "IN")]
    pub inputs: Vec<PathBuf>,

    #[command(flatten)]
    pub volume: Output,

    #[command(flatten)]
    pub disk: Disk,

    #[command(flatten)]
    pub elements: Elements,
}

/// What vouches for stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Integrity {
    /// A CRC-32C for each frame, or for each 4 KiB
    Crc32c,
    /// Nothing; only for chains without block steps
    None,
}

impl From<Integrity> for volume::write::Integrity {
    fn from(integrity: Integrity) -> volume::write::Integrity {
        match integrity {
            Integrity::Crc32c => volume::write::Integrity::Crc32c,
            Integrity::None => volume::write::Integrity::None,
        }
    }
}

/// What `--lba` says, for the writer to judge.
pub fn lba_bytes(lba: Size) -> Result<u32, Failure> {
    u32::try_from(lba.0)
        .map_err(|_| Failure::usage(anyhow!("--lba {}: 512 and 4096 are possible", lba.0)))
}

const FORMAT_HELP: &str = "\
The disk is a read-only EROFS of blocks of 4 KiB that any Linux mounts ('mount -t erofs -o ro /dev/nvme0n1 /mnt'). A volume of 'xio pack' or 'xio map' that is a disk
itself gives its files, and one with partitions (--gpt) these as files, in a directory that is called as its file is (o200k of sets/o200k.xio), or in the root where
it is the only one; one of bare elements, or of a file that is mapped, gives one file of its view's name (--name, or the file that was packed). Only the filesystem's own blocks and tables are written: the volumes stay where they are,
are read through, and must not change meanwhile. In or below the directory of OUT they are found by their paths from there, elsewhere by their whole paths,
and then opened only where the place is allowed (--allow-sources).

Examples:
  xio format tokens.xio weights.xio -o both.xio
  xio format tokens.xio --label o200k -o disk.xio";

/// `xio format`.
#[derive(Debug, Args)]
#[command(after_help = FORMAT_HELP)]
pub struct Format {
    /// Volumes
    #[arg(required = true, value_name = "VOLUME")]
    pub inputs: Vec<PathBuf>,

    #[command(flatten)]
    pub filesystem: Filesystem,

    #[command(flatten)]
    pub volume: Output,
}
