//! `xio plan`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use printout::size::Size;

use super::presenting::PATTERN_HELP;
use super::storing::Storing;
use super::volumes::Disk;

const PLAN_HELP: &str = "\
Reads all of it, writes nothing. For each file: what it is by its content, the type, number and exact range of its elements, the chain that
'xio pack' with the same options stores it in, bytes now and then, bits for each value. Then what is read of the store, goes over the wire and over PCIe, and
lies in the host's memory, for each place where the chains can be undone; the disk that a host would see, with its partitions; and what a person should know: where narrowing saves nothing, readers that
hard-code a type, malformed files, links that lead nowhere. The volume's length is that of the whole, with checksums, filesystem and manifest.

Sizes of chains that only narrow are exact; '~' marks those of compressed ones, which are scaled from the sample. Of more than 20 files the kinds and the
largest files are shown, unless --all is given.

Exit status 1: 'xio pack' would refuse these files; the plan says why.";

const PLAN_EXAMPLES: &str = "\
Examples:
  xio plan dataset
  xio plan train.bin train.idx --present-as u16
  xio plan model --present-as source,bf16 --prefer ratio
  xio plan shards --gpt --pad
  xio plan corpus --as '*.bin=u16' --access random:16KiB --explain
  xio plan dataset --json | jq '.stored_bytes'";

/// `xio plan`.
#[derive(Debug, Args)]
#[command(after_help = format!("{PLAN_HELP}\n\n{PATTERN_HELP}\n\n{PLAN_EXAMPLES}"))]
pub struct Plan {
    /// Files and folders
    #[arg(required = true, value_name = "PATH")]
    pub inputs: Vec<PathBuf>,

    /// Show every file
    #[arg(long)]
    pub all: bool,

    /// Show all that was tried, and why it is what it is
    #[arg(long)]
    pub explain: bool,

    /// Threads; otherwise one a core
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Logical block size of the namespace: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    pub lba: Size,

    #[command(flatten)]
    pub storing: Storing,

    #[command(flatten)]
    pub disk: Disk,
}
