//! Whether what is to be written fits where it goes: asked before the work, not found out at its end.

use std::path::Path;

use anyhow::anyhow;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use printout::size::grouped;

use crate::disk::folder_of;
use crate::failure::Failure;

/// What every volume takes: superblocks, and the first blocks of its tables (docs/format.md).
pub const VOLUME_BYTES_MIN: u64 = 32 << 10;
/// A size that is scaled from samples is believed to this share, in percent, when it is too large.
const BELIEVED: u64 = 90;

/// Bytes that will be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needed {
    /// Exactly these.
    pub exact: u64,
    /// And about these: scaled from samples.
    pub about: u64,
    /// And more, of which nothing is known.
    pub and_more: bool,
}

impl Needed {
    /// So many.
    pub fn exactly(bytes: u64) -> Needed {
        Needed {
            exact: bytes,
            ..Needed::default()
        }
    }

    /// So many, and more.
    pub fn at_least(bytes: u64) -> Needed {
        Needed {
            and_more: true,
            ..Needed::exactly(bytes)
        }
    }

    /// What it is at least.
    fn least(self) -> u64 {
        let about = u128::from(self.about) * u128::from(BELIEVED) / 100;
        self.exact
            .saturating_add(u64::try_from(about).unwrap_or(u64::MAX))
    }

    fn shown(self) -> String {
        let bytes = grouped(self.exact.saturating_add(self.about));
        match self {
            Needed { and_more: true, .. } => format!("at least {bytes} bytes"),
            Needed { about: 0, .. } => format!("{bytes} bytes"),
            _ => format!("about {bytes} bytes"),
        }
    }
}

/// Refuses to write `needed` as, or into, `output` where the file system or the limit on files of this process is too small.
///
/// # Errors
/// That, with both sizes. What cannot be asked is not refused.
pub fn check(output: &Path, needed: Needed) -> Result<(), Failure> {
    check_limit(output, needed)?;
    check_file_system(output, needed)
}

/// As [`check`], for files of which `needed` is the sum: each has to be within the limit on its own ([`check_limit`]).
pub fn check_file_system(output: &Path, needed: Needed) -> Result<(), Failure> {
    let folder = folder_of(output)?;
    let left = statvfs(&folder).ok().filter(|it| it.blocks() > 0);
    let left = left.map(|it| it.blocks_available().saturating_mul(it.fragment_size()));
    match left.filter(|&left| left < needed.least()) {
        None => Ok(()),
        Some(left) => Err(Failure::system(anyhow!(
            "{} takes {}, and the file system of {} has {} left; choose another place, or make room",
            output.display(),
            needed.shown(),
            folder.display(),
            grouped(left)
        ))),
    }
}

/// As [`check`], for a file whose file system is asked about with others.
///
/// # Errors
/// That, with both sizes.
pub fn check_limit(output: &Path, needed: Needed) -> Result<(), Failure> {
    let limit = getrlimit(Resource::RLIMIT_FSIZE).map(|(soft, _)| soft);
    match limit.ok().filter(|&limit| limit < needed.least()) {
        None => Ok(()),
        Some(limit) => Err(Failure::system(anyhow!(
            "{} takes {}, and this process may write files of {} (RLIMIT_FSIZE; ulimit -f unlimited)",
            output.display(),
            needed.shown(),
            grouped(limit)
        ))),
    }
}
