//! `xio ranges`.

use std::path::PathBuf;

use clap::Args;
use printout::size::Size;

use super::Opening;

const RANGES_HELP: &str = "\
A line for each range: its first byte on the disk and its number of bytes, as 'snapctl namespace prefetch --ranges' and 'xio bench --order' take them. FILE is a
path on the disk, as the mounted disk has it; a folder stands for the files in it. Where no FILE is given, they are all files, by name; of a volume or
namespace without a filesystem or partitions, all of its bytes. A file lies in one piece as a rule, and may have its last bytes elsewhere: a sample that
has some of both is two lines.

With --samples each file is cut into samples of that many bytes, the last one with what is left. --shuffle puts the samples (without --samples the files) into a
random order, the same for the same seed. A program that shuffles by itself takes the lines in its own order: line N is sample N, where files have one piece.

Examples:
  xio ranges dataset.xio
  xio ranges dataset.xio train/tokens.bin --samples 16KiB --shuffle 7 > epoch-7.txt
  xio ranges dataset.xio train --samples 1MiB --shuffle 7 \\
      | snapctl namespace prefetch nqn.2014-08.org.example:dataset 1 --ranges - --epoch 7
  xio bench 'nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:dataset?nsid=1' --order epoch-7.txt --bs 1m";

/// `xio ranges`.
#[derive(Debug, Args)]
#[command(after_help = RANGES_HELP)]
pub struct Ranges {
    /// A volume file, or nvme+tcp://HOST:PORT/NQN?nsid=N
    pub volume: PathBuf,

    /// A file or folder on the disk
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Cut files into samples of so many bytes
    #[arg(long, value_name = "SIZE")]
    pub samples: Option<Size>,

    /// In a random order, which SEED decides
    #[arg(long, value_name = "SEED")]
    pub shuffle: Option<u64>,

    #[command(flatten)]
    pub opening: Opening,
}
