//! How files are stored: what `xio pack` and `xio plan` are told.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use dataset::choose;
use printout::size::Size;

use crate::disk::rule::Rule;

/// How files are stored.
#[derive(Debug, Args)]
#[command(next_help_heading = "Storing")]
pub struct Storing {
    /// How elements are stored: a chain, or 'auto:lossless' (without --dtype: when nothing is said); see below
    #[arg(long, value_name = "CHAIN")]
    pub store_as: Option<String>,

    /// How files that PATTERN fits are stored, before --store-as; may be given again
    #[arg(long = "store", value_name = "PATTERN=CHAIN")]
    pub rules: Vec<Rule>,

    /// Source bytes of a frame, the unit that chains with block steps are read in, at most 4MiB; otherwise 64KiB, and what auto:lossless chooses
    #[arg(long, value_name = "SIZE")]
    pub frame: Option<Size>,

    /// What matters more to auto:lossless [default: balanced]
    #[arg(long, value_enum)]
    pub prefer: Option<Prefer>,

    /// How the data will be read, for auto:lossless: 'sequential', or 'random:SIZE' with the bytes of a sample [default: sequential]
    #[arg(long, value_name = "ACCESS")]
    pub access: Option<Access>,

    /// Store what compressed MDS shards (zstd, gz, bz2) decompress to, and present them raw, by an index that says so
    #[arg(long)]
    pub unzip: bool,
}

impl Storing {
    /// What auto:lossless is to choose.
    pub fn wish(&self) -> choose::Wish {
        choose::Wish {
            prefer: self.prefer.map(Into::into).unwrap_or_default(),
            access: self.access.map(|it| it.0).unwrap_or_default(),
            frame_bytes: self.frame.map(|it| it.0),
        }
    }
}

/// The rule of auto:lossless, for the help of commands that have it.
pub const AUTO_HELP: &str = "\
auto:lossless tries every chain that keeps the bytes on a sample of each kind of file (1 to 2 MiB, whole frames, spread over the data): each width
that the exact range of the values allows, times nothing, lz4, lz4hc:9 and zstd, times shuffle; ids also by rank; floats in floatsplit; in frames of up
to 16 KiB also zstd-dict, by a dictionary of other pieces than those that it is tried on. It chooses the least sum of
  stored bytes         and rank's table, and the dictionary; each counts as much as copying 24 bytes (--prefer balanced), 8 (speed), or 2,048 (ratio): balanced is for a
                       store that gives some 300 MB/s to each core that decodes, speed for one that gives three times that
  work to read them    for each byte that goes through it: lz4 3, zstd 10, floatsplit 2, rank 4, shuffle 1; unpacking and widening cost nothing beside the
                       copy; for each frame the tables of zstd, 30,000, and of floatsplit
  work to pack them    a 64th of it: floatsplit 8, rank 10, lz4 20, zstd:3 40, lz4hc:9 and zstd:9 160
  (zstd-dict as zstd)
so lz4 has to save 14 % of what goes into it, and zstd 45 % (balanced). The frame is the smallest, of 64 to 256 KiB, whose ratio is within 5 % of the
best (ratio: 1 %); with --access random:SIZE the one with the least sum, of 4 to 64 KiB (from 512KiB on: 16 to 256 KiB), where whole frames count for
each sample. No stopwatch decides: the same input gives the same chains everywhere. What does not shrink stays as it is.";

/// What matters more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Prefer {
    /// Few stored bytes
    Ratio,
    /// Both
    Balanced,
    /// Little work to read them
    Speed,
}

impl From<Prefer> for choose::Prefer {
    fn from(prefer: Prefer) -> choose::Prefer {
        match prefer {
            Prefer::Ratio => choose::Prefer::Ratio,
            Prefer::Balanced => choose::Prefer::Balanced,
            Prefer::Speed => choose::Prefer::Speed,
        }
    }
}

/// `sequential` or `random:SIZE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(pub choose::Access);

/// The largest sample: beyond it a read is as good as sequential.
const SAMPLE_BYTES_MAX: u64 = 1 << 30;

impl FromStr for Access {
    type Err = String;

    fn from_str(text: &str) -> Result<Access, String> {
        if text == "sequential" {
            return Ok(Access(choose::Access::Sequential));
        }
        let Some(size) = text.strip_prefix("random:") else {
            return Err("it is 'sequential' or 'random:SIZE', such as random:16KiB".to_owned());
        };
        let sample_bytes = size.parse::<Size>()?.0;
        if !(1..=SAMPLE_BYTES_MAX).contains(&sample_bytes) {
            return Err("a sample has 1 byte to 1GiB".to_owned());
        }
        Ok(Access(choose::Access::Random { sample_bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_read_or_refused() {
        let read = |text: &str| text.parse::<Access>().map(|it| it.0);
        assert_eq!(read("sequential"), Ok(choose::Access::Sequential));
        let sample_bytes = 16 << 10;
        assert_eq!(
            read("random:16KiB"),
            Ok(choose::Access::Random { sample_bytes })
        );
        for wrong in [
            "",
            "random",
            "random:",
            "random:0",
            "random:2GiB",
            "random:16K",
            "linear",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
