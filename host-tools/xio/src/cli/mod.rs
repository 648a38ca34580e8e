//! The command line: what can be asked for, and its help.

mod diff;
mod mount;
mod opening;
mod plan;
mod presenting;
mod ranges;
mod storing;
mod tag;
mod volumes;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub use diff::Diff;
pub use mount::Mount;
pub use opening::Opening;
pub use plan::Plan;
pub use presenting::Presenting;
pub use ranges::Ranges;
pub use storing::Storing;
pub use tag::Tag;
pub use volumes::{Disk, Format, Integrity, Map, Output, Pack, lba_bytes};

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
  130  in a shell: ended by Ctrl-C; by another signal, 128 and its number

Sizes are whole bytes or have KiB, MiB, GiB or TiB behind them: 64KiB.";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say what files are, how they would be stored, and what that saves; write nothing
    Plan(Plan),
    /// Pack files and folders into a volume
    Pack(Pack),
    /// Make a volume of files and folders that stay where they are
    Map(Map),
    /// Put what volumes hold on one disk that any Linux mounts, copying nothing
    Format(Format),
    /// Show what a volume holds
    Inspect(Inspect),
    /// Check a volume or a served namespace, by itself or against the files it was packed from
    Verify(Verify),
    /// Print where files lie on a disk, in the order in which they will be read
    Ranges(Ranges),
    /// Write the bytes that a volume presents to a file
    Unpack(Unpack),
    /// Copy the files of a mountable disk into a folder, without mounting it
    Cp(Cp),
    /// Show the files of a volume or a served namespace in a folder, read-only
    Mount(Mount),
    /// Show what differs between two volumes, namespaces or folders
    Diff(Diff),
    /// Name volumes, as people name versions, and list the names
    Tag(Tag),
    /// Pack real data, serve it over NVMe/TCP, read it back, compare every byte, and print what it cost
    Demo(Demo),
    /// Load a file, a block device or a namespace, and measure it, as fio does
    Bench(Box<::bench::Arguments>),
    /// Print a shell's completion script
    Completions(Completions),
}

const INSPECT_HELP: &str = "\
What is damaged of superblocks and manifests is said, the rest is shown, and the exit status is 1, as that of 'xio verify', which reads the data too.

Examples:
  xio inspect tokens.xio
  xio inspect shards.xio --extents 1000
  xio inspect tokens.xio --json | jq '.streams[0].bits_per_value'
  xio inspect model.xio --json | jq '.views[0].manifest.sources'";

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
SHA-256 of their sources, tables against their rules, and what belongs to nothing must be zero. Of a disk, the files that damage is
in are named: ten of them, with --json all. With --against, the bytes presented are compared with the files, which are laid out as
`xio pack` does with the same files and the same --concat. A namespace can only be compared with files.

Examples:
  xio verify tokens.xio
  xio verify tokens.xio --against tokens.bin
  xio verify 'nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:tokens?nsid=1' --against tokens.bin";

/// `xio verify`.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_HELP)]
pub struct Verify {
    /// A volume file, or nvme+tcp://HOST:PORT/NQN?nsid=N
    pub volume: PathBuf,

    /// A file that was packed; once for each, in their order
    #[arg(long, value_name = "FILE")]
    pub against: Vec<PathBuf>,

    /// The files were packed end to end
    #[arg(long, requires = "against")]
    pub concat: bool,

    #[command(flatten)]
    pub opening: Opening,

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

    /// The file to write; '-' is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Replace FILE if it exists
    #[arg(long)]
    pub force: bool,
}

const CP_HELP: &str = "\
SOURCE is a disk: a volume of 'xio pack', 'xio map' or 'xio format', FOLDER@NAME (see 'xio tag'), or a namespace that is served from one. No root is
needed. Files and folders get their permissions (but not set-user-ID, set-group-ID and sticky) and times, links their times; they belong to whoever copies. DIR appears
under its name when it is complete; ended with Ctrl-C or SIGTERM the command leaves nothing, and ended with kill -9 a folder .xio-cp-* beside DIR,
which the next xio cp into that place removes. A connection that cannot be made, or is lost, is tried again for 30 s.

Examples:
  xio cp dataset.xio dataset
  xio cp 'nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:dataset?nsid=1' dataset";

/// `xio cp`.
#[derive(Debug, Args)]
#[command(after_help = CP_HELP)]
pub struct Cp {
    /// A volume file, or nvme+tcp://HOST:PORT/NQN?nsid=N
    pub source: PathBuf,

    /// The folder to make; it must not be there
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,

    #[command(flatten)]
    pub opening: Opening,
}

const DEMO_HELP: &str = "\
Example:
  cargo build --release && target/release/xio demo";

/// `xio demo`.
#[derive(Debug, Args)]
#[command(after_help = DEMO_HELP)]
pub struct Demo {
    /// Folder with the fixtures' data, 'dataset' beside it; otherwise fixtures/data of this repository
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,

    /// The target's program; otherwise snap-target beside this program
    #[arg(long, value_name = "PROGRAM")]
    pub target: Option<PathBuf>,

    /// Read the namespaces again and again for about this long
    #[arg(long, value_name = "N", default_value_t = 6)]
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
