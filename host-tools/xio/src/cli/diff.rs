//! `xio diff`.

use std::path::PathBuf;

use clap::Args;

use super::Opening;

const DIFF_HELP: &str = "\
Each side is a folder, a volume, FOLDER@NAME (see 'xio tag'), or a namespace that is served. Disks and folders are compared file by file: names, kinds, links and bytes,
and with --attributes modes, owners and times. What a disk says of itself (.xio/manifest.json) is left out. A link that leads out of a
folder, and is a file on the other side, stands for the file behind it, as 'xio pack' takes it. Volumes without a filesystem are compared element by
element. Nothing is copied; all bytes are read, but with --trust-digests.

Exit status:
  0  the same
  1  different
  2  the command line is not right, or the two cannot be compared
  3  something could not be read or reached, or is damaged

Examples:
  xio diff dataset dataset.xio
  xio diff sets@v1 sets@v2 --trust-digests
  xio diff dataset.xio 'nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:dataset?nsid=1' --json
  xio diff tokens-u16.xio tokens-lz4.xio --layout";

/// `xio diff`.
#[derive(Debug, Args)]
#[command(after_help = DIFF_HELP)]
pub struct Diff {
    /// A folder, a volume file, or nvme+tcp://HOST:PORT/NQN?nsid=N
    #[arg(value_name = "A")]
    pub a: PathBuf,

    /// The same
    #[arg(value_name = "B")]
    pub b: PathBuf,

    /// Compare modes, owners and times of files, folders and links too
    #[arg(long)]
    pub attributes: bool,

    /// Take files for the same whose digests are, where both are volumes that have them in their own .xio/manifest.json
    #[arg(long)]
    pub trust_digests: bool,

    /// Compare how two volumes store it too: streams, chains, stored sizes
    #[arg(long)]
    pub layout: bool,

    #[command(flatten)]
    pub opening: Opening,

    /// Print what was found as one JSON object
    #[arg(long)]
    pub json: bool,
}
