//! `--unzip`: compressed MDS shards, as they are while a folder is read.

use std::path::Path;

use dataset::Scan;
use printout::size::grouped;

use crate::failure::Failure;
use crate::progress::Progress;
use crate::spool::Spool;

/// Puts the raw shards of compressed MDS datasets into the scan. They lie in a folder of their own in `beside`, until what this returns is dropped.
pub fn unzip(scan: &mut Scan, beside: &Path) -> Result<Spool, Failure> {
    let spool = Spool::new(beside, ".xio-unzip-")?;
    let progress = Progress::start("unzipping", None);
    let unzipped = dataset::unzip(scan, spool.path(), &mut |bytes| progress.set(bytes))?;
    drop(progress);
    scan.notes.push(match unzipped.shards {
        0 => "--unzip: there is no compressed MDS shard".to_owned(),
        shards => format!(
            "{} compressed MDS shards of {} bytes are presented raw, {} bytes, by an index that says so",
            grouped(shards),
            grouped(unzipped.zip_bytes),
            grouped(unzipped.raw_bytes)
        ),
    });
    Ok(spool)
}
