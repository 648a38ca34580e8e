//! What is measured: a file, a block device, or a namespace. Looked at before anything is written there.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use initiator::Url;
use nix::libc;

use crate::engine::{Engine, nvme, uring::Uring};
use crate::error::Error;
use crate::limits;
use crate::number::Amount;
use crate::offsets::Region;
use crate::random::Random;
use crate::spec::{Direction, JobSpec, Verify};
use crate::system;
use crate::verify::MAGIC;
use crate::worker;

/// Where a job's blocks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file or block device.
    Path(PathBuf),
    /// A namespace over NVMe/TCP.
    Namespace(Url),
}

impl Place {
    /// From an option's text.
    ///
    /// # Errors
    /// A URL of another kind, or one that is not complete.
    pub fn parse(text: &str) -> Result<Place, String> {
        if text.is_empty() {
            return Err("a name without a letter is no target".to_owned());
        }
        if !text.contains("://") {
            return Ok(Place::Path(PathBuf::from(text)));
        }
        text.parse()
            .map(Place::Namespace)
            .map_err(|error: initiator::UrlError| error.to_string())
    }

    /// For messages.
    pub fn name(&self) -> String {
        match self {
            Place::Path(path) => path.display().to_string(),
            Place::Namespace(url) => url.to_string(),
        }
    }

    /// Looks at the place before jobs of `specs` (with their number among their like) use it: refuses what they must not write, makes
    /// files that they need, unless `stop` is set meanwhile. Returns its bytes.
    ///
    /// # Errors
    /// The refusal, with the option that lifts it; or what the system says.
    pub fn prepare(&self, users: &[(&JobSpec, u32)], stop: &AtomicBool) -> Result<u64, Error> {
        match self {
            Place::Path(path) => prepare_path(path, users, stop),
            Place::Namespace(url) => prepare_namespace(url, users),
        }
    }

    /// Opens it for one job.
    ///
    /// # Errors
    /// What the system or the controller says.
    pub fn open(&self, spec: &JobSpec, region: Region) -> Result<Box<dyn Engine>, Error> {
        let path = match self {
            Place::Path(path) => path,
            Place::Namespace(url) => return Ok(Box::new(nvme::NvmeTcp::new(url, spec)?)),
        };
        let flags = if spec.direct { libc::O_DIRECT } else { 0 };
        let file = OpenOptions::new()
            .read(true)
            .write(spec.rw.changes())
            .custom_flags(flags)
            .open(path)
            .map_err(|source| Error::io("opening", path, source))?;
        if spec.verify != Verify::None && !spec.rw.changes() {
            // What is checked is what the medium has, not what is on its way there.
            system::forget_copies(&file).map_err(|source| Error::io("syncing", path, source))?;
        }
        system::advise(
            &file,
            region.offset,
            region.bytes,
            spec.invalidate,
            spec.rw.random,
        );
        Ok(Box::new(Uring::new(file, spec)?))
    }
}

/// The part of a target of `bytes` that the `number`-th job of `spec` works on.
///
/// # Errors
/// It is not all there.
pub fn region(spec: &JobSpec, number: u32, bytes: u64) -> Result<Region, Error> {
    let offset = offset(spec, number, bytes);
    let rest = bytes.saturating_sub(offset);
    let len = match spec.size {
        Some(Amount::Bytes(size)) => size,
        Some(Amount::Percent(percent)) => (share(bytes, percent)).min(rest),
        None => rest,
    };
    if len > rest || len == 0 {
        let why = format!("the target has {bytes} bytes: no {len} bytes at offset {offset}");
        return Err(Error::job(&spec.name, why));
    }
    Ok(Region { offset, bytes: len })
}

fn offset(spec: &JobSpec, number: u32, bytes: u64) -> u64 {
    let unit = u64::from(spec.bs.unit().max(1));
    let begin = match spec.offset {
        Amount::Bytes(offset) => offset,
        Amount::Percent(percent) => share(bytes, percent) / unit * unit,
    };
    begin.saturating_add(spec.offset_increment.saturating_mul(u64::from(number)))
}

fn share(bytes: u64, percent: u8) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

fn changed_by<'a>(users: &[(&'a JobSpec, u32)]) -> Option<&'a JobSpec> {
    users
        .iter()
        .map(|(spec, _)| *spec)
        .find(|spec| spec.rw.changes())
}

fn allowed(users: &[(&JobSpec, u32)], by: impl Fn(&JobSpec) -> bool) -> bool {
    users.iter().all(|(spec, _)| !spec.rw.changes() || by(spec))
}

fn prepare_namespace(url: &Url, users: &[(&JobSpec, u32)]) -> Result<u64, Error> {
    let mut initiator = nvme::connect(url, 1)?;
    let nsid = nvme::nsid(url);
    let namespace = initiator.namespace(nsid)?.clone();
    let bytes = namespace.bytes();
    if changed_by(users).is_some() {
        let refused = |why: &str| Error::Refused {
            target: url.to_string(),
            why: why.to_owned(),
        };
        if namespace.write_protected {
            return Err(refused(
                "the namespace is write-protected; only reads are possible",
            ));
        }
        if !allowed(users, |spec| spec.allow_overwrite) {
            let len = usize::try_from(bytes).map_or(limits::LOOKED_AT_BYTES, |bytes| {
                bytes.min(limits::LOOKED_AT_BYTES)
            });
            let mut start = vec![0; len];
            initiator.read(nsid, 0, &mut start)?;
            if !is_ours(&start) {
                return Err(refused(FOREIGN));
            }
        }
    }
    initiator.shutdown()?;
    Ok(bytes)
}

const FOREIGN: &str =
    "it holds data that this program did not write; give --allow-overwrite if they may be lost";

/// Nothing yet, or blocks of this program: behind zeros (never written, or trimmed) the first data begin one.
fn is_ours(start: &[u8]) -> bool {
    let Some(data) = start.iter().position(|byte| *byte != 0) else {
        return true;
    };
    let block = data - data % limits::BLOCK_BYTES_MIN as usize;
    start
        .get(block..)
        .is_some_and(|block| block.starts_with(&MAGIC))
}

fn prepare_path(path: &Path, users: &[(&JobSpec, u32)], stop: &AtomicBool) -> Result<u64, Error> {
    let changes = changed_by(users).is_some();
    let refused = |why: String| Error::Refused {
        target: path.display().to_string(),
        why,
    };
    let kind = match std::fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return make(path, users, stop);
        }
        Err(error) => return Err(Error::io("looking at", path, error)),
    };
    if !kind.is_file() && !kind.is_block_device() {
        return Err(refused(
            "it is neither a file nor a block device".to_owned(),
        ));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(changes);
    if kind.is_block_device() && changes && !allowed(users, |spec| spec.allow_mounted_write) {
        let device = File::open(path).map_err(|source| Error::io("opening", path, source))?;
        let mount =
            system::mounted_at(&device).map_err(|source| Error::io("looking at", path, source))?;
        if let Some(mount) = mount {
            let why = format!(
                "it is mounted at {}; unmount it, or give --allow-mounted-write and lose what is there",
                mount.display()
            );
            return Err(refused(why));
        }
        // The kernel refuses this to a device that anything uses: a mount elsewhere, a volume group, swap.
        options.custom_flags(libc::O_EXCL);
    }
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            return Err(refused("the system uses it (a mount, a volume group or swap); give --allow-mounted-write to write it nevertheless".to_owned()));
        }
        opened => opened.map_err(|source| Error::io("opening", path, source))?,
    };
    let bytes = system::bytes(&file).map_err(|source| Error::io("looking at", path, source))?;
    if bytes == 0 && kind.is_file() {
        return make(path, users, stop);
    }
    let ours = is_ours(&start_of(path)?);
    if changes && !ours && !allowed(users, |spec| spec.allow_overwrite) {
        return Err(refused(FOREIGN.to_owned()));
    }
    let needed = needed(users, bytes)?;
    if kind.is_file() && needed > bytes {
        if !ours && !users.iter().any(|(spec, _)| spec.allow_overwrite) {
            return Err(refused(format!(
                "it has {bytes} bytes, and {needed} are asked for; give a smaller --size"
            )));
        }
        lay_out(path, bytes..needed, users, stop)?;
        return Ok(needed);
    }
    Ok(bytes)
}

fn start_of(path: &Path) -> Result<Vec<u8>, Error> {
    let file = File::open(path).map_err(|source| Error::io("opening", path, source))?;
    let mut start = Vec::new();
    file.take(limits::LOOKED_AT_BYTES as u64)
        .read_to_end(&mut start)
        .map_err(|source| Error::io("reading", path, source))?;
    Ok(start)
}

fn needed(users: &[(&JobSpec, u32)], bytes: u64) -> Result<u64, Error> {
    let mut needed = 0;
    for (spec, number) in users {
        let len = match spec.size {
            Some(Amount::Bytes(size)) => size,
            _ if bytes == 0 => {
                return Err(Error::job(
                    &spec.name,
                    "the file is to be made: give its --size in bytes",
                ));
            }
            _ => 0,
        };
        needed = needed.max(offset(spec, *number, bytes).saturating_add(len));
    }
    Ok(needed)
}

/// A file that is not there, or empty.
fn make(path: &Path, users: &[(&JobSpec, u32)], stop: &AtomicBool) -> Result<u64, Error> {
    let writes = users.iter().any(|(spec, _)| spec.rw.does(Direction::Write));
    let verified = users.iter().find(|(spec, _)| spec.verify != Verify::None);
    if let (Some((spec, _)), false) = (verified, writes) {
        let why = format!(
            "{} is not there or empty: nothing can be verified; write it with --verify first",
            path.display()
        );
        return Err(Error::job(&spec.name, why));
    }
    let needed = needed(users, 0)?;
    let was_there = path.exists();
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|source| Error::io("making", path, source))?;
    let laid_out = lay_out(path, 0..needed, users, stop);
    if laid_out.is_err() && !was_there {
        // It is empty again; the error is what matters.
        let _ = std::fs::remove_file(path);
    }
    laid_out.map(|()| needed)
}

/// Makes a file longer: with data where jobs read them, else with space only. Where that fails or is to end, it is as long as it was.
fn lay_out(
    path: &Path,
    part: Range<u64>,
    users: &[(&JobSpec, u32)],
    stop: &AtomicBool,
) -> Result<(), Error> {
    let failed = |source| Error::io("laying out", path, source);
    let mut file = OpenOptions::new().append(true).open(path).map_err(failed)?;
    let (bytes, room) = (part.end - part.start, system::room(&file).map_err(failed)?);
    if room.is_some_and(|room| room < bytes) {
        let room = room.unwrap_or(0);
        return Err(Error::Refused {
            target: path.display().to_string(),
            why: format!(
                "its file system has room for {room} bytes more, and {bytes} are asked for; give a smaller --size"
            ),
        });
    }
    let from = part.start;
    let outcome = fill_out(&mut file, part, users, stop).map_err(failed);
    if outcome.is_err() {
        // What was there stays; what cannot be had is not kept in part.
        let _ = file.set_len(from);
    }
    outcome
}

fn fill_out(
    file: &mut File,
    part: Range<u64>,
    users: &[(&JobSpec, u32)],
    stop: &AtomicBool,
) -> io::Result<()> {
    let read = users
        .iter()
        .any(|(spec, _)| !spec.rw.does(Direction::Write) || spec.rw.does(Direction::Read));
    let mut random = Random::new(part.start ^ part.end);
    let mut chunk = vec![0; limits::LOOKED_AT_BYTES];
    let mut at = part.start;
    // Of a file that is written only, the first block says whose it is.
    let end = if read {
        part.end
    } else {
        part.end.min(part.start + 4096)
    };
    while at < end {
        let len = usize::try_from(end - at).map_or(chunk.len(), |left| left.min(chunk.len()));
        worker::fill(&mut chunk, &mut random);
        file.write_all(chunk.get(..len).unwrap_or(&[]))?;
        at += len as u64;
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("ended by a signal"));
        }
    }
    if !read {
        system::reserve(file, part.end)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(path: &Path, settings: &[(&str, &str)]) -> Result<u64, Error> {
        Place::Path(path.to_owned())
            .prepare(&[(&JobSpec::of(settings), 0)], &AtomicBool::new(false))
    }

    #[test]
    fn a_file_with_foreign_data_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        std::fs::write(&path, b"a letter").unwrap();
        for rw in ["write", "randrw", "randtrim"] {
            let error = prepare(&path, &[("rw", rw)]).unwrap_err();
            assert!(
                matches!(&error, Error::Refused { why, .. } if why.contains("--allow-overwrite")),
                "{error}"
            );
        }
        // Nor is it made longer for a reader.
        let error = prepare(&path, &[("rw", "read"), ("size", "1m")]).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"a letter");
        assert_eq!(prepare(&path, &[("rw", "read")]).unwrap(), 8);
        assert_eq!(
            prepare(&path, &[("rw", "write"), ("allow_overwrite", "1")]).unwrap(),
            8
        );
    }

    #[test]
    fn its_own_blocks_are_known_behind_trimmed_ones() {
        let with = |at: usize, bytes: &[u8]| {
            let mut start = vec![0; 8192];
            start[at..at + bytes.len()].copy_from_slice(bytes);
            is_ours(&start)
        };
        assert!(is_ours(&[0; 4096]) && is_ours(&[]));
        assert!(with(0, &MAGIC) && with(512, &MAGIC) && with(4096, &MAGIC));
        assert!(!with(1, &MAGIC) && !with(0, b"xio:bl") && !with(8191, b"x"));
        // An ext4 superblock's magic.
        assert!(!with(1080, b"\x53\xef"));
    }

    #[test]
    fn a_file_of_its_own_is_made_extended_and_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own");
        assert!(
            prepare(&path, &[("rw", "write")]).is_err(),
            "no size is given"
        );
        assert_eq!(
            prepare(&path, &[("rw", "write"), ("size", "64k")]).unwrap(),
            65536
        );
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 65536);
        assert_eq!(
            prepare(&path, &[("rw", "read"), ("size", "128k")]).unwrap(),
            131_072
        );
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 131_072);
        assert!(
            bytes[65536..]
                .chunks(64)
                .all(|part| part.iter().any(|byte| *byte != 0)),
            "holes are no data"
        );
        assert_eq!(prepare(&path, &[("rw", "randwrite")]).unwrap(), 131_072);
    }

    #[test]
    fn nothing_is_verified_in_a_file_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none");
        let error = prepare(
            &path,
            &[("rw", "read"), ("size", "64k"), ("verify", "crc32c")],
        )
        .unwrap_err();
        assert!(
            error.to_string().contains("nothing can be verified"),
            "{error}"
        );
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_cannot_be_laid_out_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        let room = system::room(&File::open(folder.path()).unwrap()).unwrap();
        let size = (room.unwrap() + (1 << 40)).to_string();
        for rw in ["read", "write"] {
            let error = prepare(&path, &[("rw", rw), ("size", &size)]).unwrap_err();
            assert!(
                matches!(&error, Error::Refused { why, .. } if why.contains("has room for")),
                "{error}"
            );
            assert!(!path.exists());
        }
        // One that is there keeps its length, also when a signal ends the work.
        prepare(&path, &[("rw", "write"), ("size", "64k")]).unwrap();
        assert!(prepare(&path, &[("rw", "read"), ("size", &size)]).is_err());
        let stopped = Place::Path(path.clone()).prepare(
            &[(&JobSpec::of(&[("rw", "read"), ("size", "8m")]), 0)],
            &AtomicBool::new(true),
        );
        let error = stopped.unwrap_err().to_string();
        assert!(error.ends_with("ended by a signal"), "{error}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 65536);
    }

    #[test]
    fn regions_are_parts_of_the_target() {
        for (settings, number, expected) in [
            (&[][..], 0, Some((0, 1 << 20))),
            (&[("offset", "4k")], 0, Some((4096, (1 << 20) - 4096))),
            (
                &[("size", "25%"), ("offset", "50%")],
                0,
                Some((1 << 19, 1 << 18)),
            ),
            (
                &[("size", "64k"), ("offset_increment", "64k")],
                3,
                Some((3 << 16, 1 << 16)),
            ),
            (&[("size", "64k"), ("offset_increment", "64k")], 16, None),
            (&[("size", "2m")], 0, None),
            (&[("offset", "1m")], 0, None),
        ] {
            let found = region(&JobSpec::of(settings), number, 1 << 20).ok();
            assert_eq!(
                found.map(|region| (region.offset, region.bytes)),
                expected,
                "{settings:?} {number}"
            );
        }
    }
}
