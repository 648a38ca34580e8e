//! The command line: what can be asked for, and its help.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use transforms::ElementType;

use crate::failure::Failure;
use crate::format::rule::Rule;
use printout::size::Size;

/// Pack dataset files into volumes that a target serves as NVMe disks, and check them.
#[derive(Debug, Parser)]
#[command(
    name = "xio",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = EXIT_CODES,
    max_term_width = 120
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit status:
  0  done
  1  the data is not right: a value does not fit, bytes differ, or a volume is damaged
  2  the command line is not right
  3  something could not be read, written or reached

Sizes are whole bytes or have KiB, MiB, GiB or TiB behind them: 64KiB.";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Pack files into a volume
    Pack(Pack),
    /// Make a volume of files that stay where they are
    Map(Map),
    /// Lay a folder out as a disk that any Linux mounts, in a volume
    Format(Format),
    /// Show what a volume holds
    Inspect(Inspect),
    /// Check a volume or a served namespace, by itself or against the files it was packed from
    Verify(Verify),
    /// Write the bytes that a volume presents to a file
    Unpack(Unpack),
    /// Copy the files of a mountable disk into a folder, without mounting it
    Cp(Cp),
    /// Pack real data, serve it over NVMe/TCP, read it back, compare every byte, and print what it cost
    Demo(Demo),
    /// Load a file, a block device or a namespace, and measure it, as fio does
    Bench(Box<::bench::Arguments>),
    /// Print a shell's completion script
    Completions(Completions),
}

const PACK_HELP: &str = "\
Stored chains (--store-as): steps joined by '+', element steps before block steps.
  none                 as it is
  u8 u16 u32 u64       each value in a narrower or wider integer type, checked (also i8 i16 i32 i64)
  bitpack:K            each value in K bits, 1 to 32, checked
  shuffle              bytes of equal significance together, frame by frame
  lz4  lz4hc[:LEVEL]   compressed, frame by frame
  zstd:LEVEL           compressed, frame by frame
A value that does not fit is an error with its place, and no volume is written. Nothing is ever truncated.

Several files become one namespace, in the order given. Each starts at a logical block of its own, with zeros in between,
so that every file can be found at lba_bytes * (blocks of the files before it); --concat puts them end to end instead.

Examples:
  xio pack tokens.bin --dtype u32 --store-as u16+lz4 -o tokens.xio
  xio pack shard-*.bin --dtype u32 --store-as bitpack:18+zstd:3 --frame 256KiB -o shards.xio
  xio pack weights.bin --dtype f32 --store-as shuffle+zstd:3 -o weights.xio
  zcat tokens.gz | xio pack - --name tokens --dtype u32 --store-as u16 -o tokens.xio

The same input gives the same volume, byte for byte, on any machine and with any number of threads. The output appears under
its name when it is complete and durable; an interrupted pack leaves no file there.";

/// `xio pack`.
#[derive(Debug, Args)]
#[command(after_help = PACK_HELP)]
pub struct Pack {
    /// Files of little-endian elements without a header; '-' is standard input
    #[arg(required = true, value_name = "IN")]
    pub inputs: Vec<PathBuf>,

    /// Type of their elements: u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64
    #[arg(long, value_name = "TYPE")]
    pub dtype: ElementType,

    /// How they are stored; see below
    #[arg(long, value_name = "CHAIN", default_value = "none")]
    pub store_as: String,

    /// Source bytes of a frame, the unit that chains with block steps are read in
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    pub frame: Size,

    /// Logical block size of the disk: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    pub lba: Size,

    /// Put the files end to end instead of each at a logical block of its own
    #[arg(long)]
    pub concat: bool,

    /// Name of the view; otherwise that of the first file
    #[arg(long)]
    pub name: Option<String>,

    /// What vouches for the stored bytes
    #[arg(long, value_enum, default_value_t = Integrity::Crc32c)]
    pub integrity: Integrity,

    /// Threads that encode; otherwise one a core
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,

    /// The volume to write
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,

    /// Replace OUT if it exists
    #[arg(long)]
    pub force: bool,

    /// Print what was written as one JSON object
    #[arg(long)]
    pub json: bool,
}

const MAP_HELP: &str = "\
Nothing is copied: the volume holds the checksums of the files, and where they are. They are read once. While the volume is in
use the files must stay as they are: a target and `xio verify` refuse a file whose length or content is another one (a file that
was only touched or copied is read again, up to 4 GiB), and a read that meets changed bytes fails with the file's name and offset.

The files may lie on any file system, NFS and Lustre included. A file in or below the directory of OUT is found by its path from
there, so that both can be moved together, and is opened as a matter of course. Any other is recorded with its whole path, and
opened only where the place is allowed: snap-target --allow-sources DIR, xio verify --allow-sources DIR.

Several files become one namespace, as with `xio pack`.

Examples:
  xio map train.bin --dtype u16 -o train.xio
  xio map shards/*.npy --concat -o shards.xio
  xio verify train.xio";

/// `xio map`.
#[derive(Debug, Args)]
#[command(after_help = MAP_HELP)]
pub struct Map {
    /// Files, presented as they are
    #[arg(required = true, value_name = "IN")]
    pub inputs: Vec<PathBuf>,

    /// Type of their elements, whose range is recorded: u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64
    #[arg(long, value_name = "TYPE", default_value = "u8")]
    pub dtype: ElementType,

    /// Logical block size of the disk: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    pub lba: Size,

    /// Put the files end to end instead of each at a logical block of its own
    #[arg(long)]
    pub concat: bool,

    /// Name of the view; otherwise that of the first file
    #[arg(long)]
    pub name: Option<String>,

    /// What vouches for the stored bytes
    #[arg(long, value_enum, default_value_t = Integrity::Crc32c)]
    pub integrity: Integrity,

    /// The volume to write
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,

    /// Replace OUT if it exists
    #[arg(long)]
    pub force: bool,

    /// Print what was written as one JSON object
    #[arg(long)]
    pub json: bool,
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
The disk is a read-only EROFS of blocks of 4 KiB: folders, files and symbolic links with their modes, owners and times. A host mounts
the namespace with 'mount -t erofs -o ro /dev/nvme0n1 /mnt', and readers open the files as they always did: each presents the bytes
that it has in the folder.

--store says how files are stored; chains are those of 'xio pack'. '*' in PATTERN is any run of bytes; a pattern with a '/' in it
is held against the path from the folder on, another against the file's name. The first rule that fits is taken, and a file that none fits is
stored as it is. The files of one rule share a stream.

Examples:
  xio format dataset -o dataset.xio
  xio format dataset --store '*.bin=u32:u16+lz4' --store '*=u8:zstd:3' --label tokens -o dataset.xio

A file that is changed while it is read is an error. The same folder gives the same volume, byte for byte.";

/// `xio format`.
#[derive(Debug, Args)]
#[command(after_help = FORMAT_HELP)]
pub struct Format {
    /// The folder whose contents are the disk's root
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,

    /// How the files that PATTERN fits are stored; may be given again
    #[arg(long = "store", value_name = "PATTERN=TYPE:CHAIN")]
    pub rules: Vec<Rule>,

    /// Source bytes of a frame, the unit that chains with block steps are read in
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    pub frame: Size,

    /// Logical block size of the disk: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    pub lba: Size,

    /// Name of the view; otherwise that of the folder
    #[arg(long)]
    pub name: Option<String>,

    /// Name of the filesystem, up to 15 bytes: what blkid calls LABEL
    #[arg(long)]
    pub label: Option<String>,

    /// Threads that encode; otherwise one a core
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,

    /// The volume to write
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,

    /// Replace OUT if it exists
    #[arg(long)]
    pub force: bool,

    /// Print what was written as one JSON object
    #[arg(long)]
    pub json: bool,
}

const INSPECT_HELP: &str = "\
Examples:
  xio inspect tokens.xio
  xio inspect shards.xio --extents 1000
  xio inspect tokens.xio --json | jq '.streams[0].bits_per_value'";

/// `xio inspect`.
#[derive(Debug, Args)]
#[command(after_help = INSPECT_HELP)]
pub struct Inspect {
    /// A volume file
    pub volume: PathBuf,

    /// Extents to show of each view
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub extents: usize,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

const VERIFY_HELP: &str = "\
Without --against, all of a volume is read: stored bytes are decoded and held against their checksums, proven ranges and the
SHA-256 of their sources, tables against their rules, and what belongs to nothing must be zero. With --against, the bytes presented are compared with the files, which are laid out as `xio pack` does
with the same files and the same --concat. A namespace can only be compared with files.

Examples:
  xio verify tokens.xio
  xio verify tokens.xio --against tokens.bin
  xio verify 'nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:tokens?nsid=1' --against tokens.bin";

/// `xio verify`.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_HELP)]
pub struct Verify {
    /// A volume file, or nvme+tcp://HOST:PORT/NQN?nsid=N
    pub volume: String,

    /// A file that was packed; once for each, in their order
    #[arg(long, value_name = "FILE")]
    pub against: Vec<PathBuf>,

    /// The files were packed end to end
    #[arg(long, requires = "against")]
    pub concat: bool,

    /// Also open what the volume maps in this directory; its own directory is always allowed
    #[arg(long, value_name = "DIR")]
    pub allow_sources: Vec<PathBuf>,

    /// Print the outcome as one JSON object
    #[arg(long)]
    pub json: bool,
}

const UNPACK_HELP: &str = "\
Of several files that were packed into one volume, all are written, with the zeros between them.

Example:
  xio unpack tokens.xio -o tokens.bin";

/// `xio unpack`.
#[derive(Debug, Args)]
#[command(after_help = UNPACK_HELP)]
pub struct Unpack {
    /// A volume file
    pub volume: PathBuf,

    /// Also open what the volume maps in this directory; its own directory is always allowed
    #[arg(long, value_name = "DIR")]
    pub allow_sources: Vec<PathBuf>,

    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Replace FILE if it exists
    #[arg(long)]
    pub force: bool,
}

const CP_HELP: &str = "\
SOURCE is a volume of 'xio format', or a namespace that is served from one. No root is needed. Files and folders get their permissions
(but not set-user-ID, set-group-ID and sticky) and times; they belong to whoever copies. DIR appears under its name when it is complete.

Examples:
  xio cp dataset.xio dataset
  xio cp 'nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:dataset?nsid=1' dataset";

/// `xio cp`.
#[derive(Debug, Args)]
#[command(after_help = CP_HELP)]
pub struct Cp {
    /// A volume file, or nvme+tcp://HOST:PORT/NQN?nsid=N
    pub source: String,

    /// The folder to make; it must not be there
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,

    /// Also open what the volume maps in this directory; its own directory is always allowed
    #[arg(long, value_name = "DIR")]
    pub allow_sources: Vec<PathBuf>,
}

const DEMO_HELP: &str = "\
Example:
  cargo build --release && target/release/xio demo";

/// `xio demo`.
#[derive(Debug, Args)]
#[command(after_help = DEMO_HELP)]
pub struct Demo {
    /// Folder with the fixtures' data; otherwise fixtures/data of this repository
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,

    /// The target's program; otherwise snap-target beside this program
    #[arg(long, value_name = "PROGRAM")]
    pub target: Option<PathBuf>,

    /// Read the namespaces again and again for about this long
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub seconds: u64,

    /// Print the rows as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `xio completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  xio completions bash > ~/.local/share/bash-completion/completions/xio"
)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
