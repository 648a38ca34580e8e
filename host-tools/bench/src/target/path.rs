//! Files and block devices: what jobs may do with them, and files that are made for them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

use super::{FOREIGN, allowed, changed_by, is_ours, offset};
use crate::error::Error;
use crate::limits;
use crate::number::Amount;
use crate::random::Random;
use crate::spec::{Direction, JobSpec, Verify};
use crate::{system, worker};

/// From the bytes that are there to those that the jobs need.
pub fn look(path: &Path, users: &[(&JobSpec, u32)]) -> Result<Range<u64>, Error> {
    let kind = match std::fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            may_be_made(path, "it is not there", "", users)?;
            return Ok(0..needed(users, 0)?);
        }
        Err(error) => return Err(Error::io("looking at", path, error)),
    };
    if !kind.is_file() && !kind.is_block_device() {
        return Err(refused(path, "it is neither a file nor a block device"));
    }
    let bytes = bytes_of(path, kind.is_block_device(), users)?;
    if bytes == 0 && kind.is_file() {
        may_be_made(path, "it is empty", "", users)?;
        return Ok(0..needed(users, 0)?);
    }
    let ours = is_ours(&start_of(path)?);
    if changed_by(users).is_some() && !ours && !allowed(users, |spec| spec.allow_overwrite) {
        return Err(refused(path, FOREIGN));
    }
    let needed = needed(users, bytes)?;
    if needed <= bytes || !kind.is_file() {
        return Ok(bytes..bytes);
    }
    let has = format!("it has {bytes} bytes, and {needed} are asked for");
    if !ours && !users.iter().any(|(spec, _)| spec.allow_overwrite) {
        return Err(refused(path, &format!("{has}; give a smaller --size")));
    }
    may_be_made(path, &has, ", or give a smaller --size", users)?;
    Ok(bytes..needed)
}

/// Whether data that are not there, as `missing` says, may be made for jobs that read; `or` is another way out.
fn may_be_made(
    path: &Path,
    missing: &str,
    or: &str,
    users: &[(&JobSpec, u32)],
) -> Result<(), Error> {
    if users.iter().any(|(spec, _)| spec.readonly) {
        let why = "with --readonly no file is made or made longer: leave it out";
        return Err(refused(path, &format!("{missing}; {why}{or}")));
    }
    let verified = users.iter().any(|(spec, _)| spec.verify != Verify::None);
    if verified && !users.iter().any(|(spec, _)| spec.rw.does(Direction::Write)) {
        let why = "what was not written cannot be verified: write it with --verify first";
        return Err(refused(path, &format!("{missing}; {why}{or}")));
    }
    Ok(())
}

fn refused(path: &Path, why: &str) -> Error {
    Error::Refused {
        target: path.display().to_string(),
        why: why.to_owned(),
    }
}

/// Of what can be opened as the jobs will open it.
fn bytes_of(path: &Path, is_device: bool, users: &[(&JobSpec, u32)]) -> Result<u64, Error> {
    let changes = changed_by(users).is_some();
    let mut options = OpenOptions::new();
    options.read(true).write(changes);
    if is_device && changes && !allowed(users, |spec| spec.allow_mounted_write) {
        let device = File::open(path).map_err(|source| Error::io("opening", path, source))?;
        let mount =
            system::mounted_at(&device).map_err(|source| Error::io("looking at", path, source))?;
        if let Some(mount) = mount {
            let why = format!(
                "it is mounted at {}; unmount it, or give --allow-mounted-write and lose what is there",
                mount.display()
            );
            return Err(refused(path, &why));
        }
        // The kernel refuses this to a device that anything uses: a mount elsewhere, a volume group, swap.
        options.custom_flags(libc::O_EXCL);
    }
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let why = "the system uses it (a mount, a volume group or swap); give --allow-mounted-write to write it nevertheless";
            return Err(refused(path, why));
        }
        opened => opened.map_err(|source| Error::io("opening", path, source))?,
    };
    system::bytes(&file).map_err(|source| Error::io("looking at", path, source))
}

fn start_of(path: &Path) -> Result<Vec<u8>, Error> {
    let file = File::open(path).map_err(|source| Error::io("opening", path, source))?;
    let mut start = Vec::new();
    file.take(limits::LOOKED_AT_BYTES as u64)
        .read_to_end(&mut start)
        .map_err(|source| Error::io("reading", path, source))?;
    Ok(start)
}

/// Bytes at the end of the last part that a job names by its size.
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

/// Whether jobs read anything that they have not written before.
pub fn is_read(users: &[(&JobSpec, u32)]) -> bool {
    users
        .iter()
        .any(|(spec, _)| !spec.rw.does(Direction::Write) || spec.rw.does(Direction::Read))
}

/// Makes a file that is not there, or one longer. Where that fails, or `stop` is set, it is as it was.
pub fn make(
    path: &Path,
    part: Range<u64>,
    with_data: bool,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let was_there = path.exists();
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|source| Error::io("making", path, source))?;
    let laid_out = lay_out(path, part, with_data, stop);
    if laid_out.is_err() && !was_there {
        // It is empty again; the error is what matters.
        let _ = std::fs::remove_file(path);
    }
    laid_out
}

/// Makes a file longer: with data where jobs read them, else with space only. Where that fails or is to end, it is as long as it was.
fn lay_out(path: &Path, part: Range<u64>, with_data: bool, stop: &AtomicBool) -> Result<(), Error> {
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
    let outcome = fill_out(&mut file, part, with_data, stop).map_err(failed);
    if outcome.is_err() {
        // What was there stays; what cannot be had is not kept in part.
        let _ = file.set_len(from);
    }
    outcome
}

fn fill_out(
    file: &mut File,
    part: Range<u64>,
    with_data: bool,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut random = Random::new(part.start ^ part.end);
    let mut chunk = vec![0; limits::LOOKED_AT_BYTES];
    let mut at = part.start;
    // Of a file that is written only, the first block says whose it is.
    let end = if with_data {
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
    if !with_data {
        system::reserve(file, part.end)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::super::Place;
    use super::*;

    fn prepare(path: &Path, settings: &[(&str, &str)]) -> Result<u64, Error> {
        prepare_unless(path, settings, &AtomicBool::new(false))
    }

    fn prepare_unless(
        path: &Path,
        settings: &[(&str, &str)],
        stop: &AtomicBool,
    ) -> Result<u64, Error> {
        let spec = JobSpec::of(settings);
        let found = Place::Path(path.to_owned()).look(&[(&spec, 0)], &AtomicBool::new(false))?;
        found.complete(stop)?;
        Ok(found.bytes.end)
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
    fn readonly_makes_nothing_and_lengthens_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let place = Place::Path(path.clone());
        let mut spec = JobSpec::of(&[("rw", "read"), ("size", "64k")]);
        spec.readonly = true;
        let refused = |spec: &JobSpec| match place
            .look(&[(spec, 0)], &AtomicBool::new(false))
            .unwrap_err()
        {
            Error::Refused { why, .. } => why,
            error => panic!("{error}"),
        };
        assert_eq!(
            refused(&spec),
            "it is not there; with --readonly no file is made or made longer: leave it out"
        );
        assert!(!path.exists());
        std::fs::write(&path, vec![0; 32 << 10]).unwrap();
        assert_eq!(
            refused(&spec),
            "it has 32768 bytes, and 65536 are asked for; with --readonly no file is made or made longer: leave it out, or give a smaller --size"
        );
        spec.size = None;
        let found = place.look(&[(&spec, 0)], &AtomicBool::new(false)).unwrap();
        found.complete(&AtomicBool::new(false)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), vec![0; 32 << 10]);
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
            error
                .to_string()
                .contains("what was not written cannot be verified"),
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
        let settings = [("rw", "read"), ("size", "8m")];
        let stopped = prepare_unless(&path, &settings, &AtomicBool::new(true));
        let error = stopped.unwrap_err().to_string();
        assert!(error.ends_with("ended by a signal"), "{error}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 65536);
    }
}
