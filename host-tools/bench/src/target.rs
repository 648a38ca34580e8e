//! What is measured: a file, a block device, or a namespace. Looked at before anything is written there.

mod path;

use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use initiator::{Nqn, Url};
use nix::libc;

use crate::engine::{Engine, nvme, uring::Uring};
use crate::error::Error;
use crate::limits;
use crate::number::Amount;
use crate::offsets::Region;
use crate::spec::{JobSpec, Verify};
use crate::system;
use crate::verify::MAGIC;

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

    /// Looks at the place before jobs of `users` (each with its number among its like) use it: refuses what they must not write, or would have to make and
    /// must not. Nothing is written yet.
    ///
    /// # Errors
    /// The refusal, with what lifts it; or what the system says; or `stop` was set while it did not say anything.
    pub fn look(&self, users: &[(&JobSpec, u32)], stop: &AtomicBool) -> Result<Found, Error> {
        match self {
            Place::Path(path) => Ok(Found {
                place: self.clone(),
                bytes: path::look(path, users)?,
                with_data: path::is_read(users),
            }),
            Place::Namespace(url) => look_at_namespace(url, users, stop),
        }
    }

    /// Opens it for one job.
    ///
    /// # Errors
    /// What the system or the controller says; or `stop` was set while it did not say anything.
    pub fn open(
        &self,
        spec: &JobSpec,
        region: Region,
        stop: &AtomicBool,
    ) -> Result<Box<dyn Engine>, Error> {
        let path = match self {
            Place::Path(path) => path,
            Place::Namespace(url) => return Ok(Box::new(nvme::NvmeTcp::new(url, spec, stop)?)),
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
        if spec.invalidate {
            system::drop_copies(&file, region);
        }
        let leaps = spec.rw.random || spec.order.is_some();
        system::announce(&file, region, leaps);
        Ok(Box::new(Uring::new(file, spec)?))
    }
}

/// What a place was found to be.
#[derive(Clone, Debug)]
pub struct Found {
    /// With the namespace that is meant where none was named.
    pub place: Place,
    /// From the bytes that it has to those that it is to have when the jobs begin.
    bytes: Range<u64>,
    /// Whether what is missing is read.
    with_data: bool,
}

impl Found {
    /// The part that the `number`-th job of `spec` works on.
    ///
    /// # Errors
    /// It is not all there, and will not be; or it holds no block.
    pub fn region(&self, spec: &JobSpec, number: u32) -> Result<Region, Error> {
        let bytes = self.bytes.end;
        let offset = offset(spec, number, bytes);
        let rest = bytes.saturating_sub(offset);
        let len = match spec.size {
            Some(Amount::Bytes(size)) => size,
            Some(Amount::Percent(percent)) => share(bytes, percent).min(rest),
            None => rest,
        };
        let refused = |why: String| {
            let has = match &self.bytes {
                // What it would get up to the part is nothing of it.
                bytes if bytes.is_empty() || rest == 0 => format!("{} bytes", bytes.start),
                bytes => format!("{} bytes, and would get {}", bytes.start, bytes.end),
            };
            let why = format!("{why}: {} has {has}", self.place.name());
            Error::job(&spec.name, why)
        };
        if rest == 0 {
            return Err(refused(format!("nothing is at offset {offset}")));
        }
        if len > rest {
            return Err(refused(format!("no {len} bytes are at offset {offset}")));
        }
        if len < u64::from(spec.bs_max()) {
            let block = spec.bs_max();
            return Err(refused(format!(
                "a part of {len} bytes does not hold a block of {block}"
            )));
        }
        Ok(Region { offset, bytes: len })
    }

    /// Makes what is missing, unless `stop` is set meanwhile.
    ///
    /// # Errors
    /// No room, or what the system says. The file is as it was.
    pub fn complete(&self, stop: &AtomicBool) -> Result<(), Error> {
        match &self.place {
            Place::Path(path) if !self.bytes.is_empty() => {
                path::make(path, self.bytes.clone(), self.with_data, stop)
            }
            _ => Ok(()),
        }
    }
}

fn offset(spec: &JobSpec, number: u32, bytes: u64) -> u64 {
    let unit = u64::from(spec.bs_unit().max(1));
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

fn look_at_namespace(
    url: &Url,
    users: &[(&JobSpec, u32)],
    stop: &AtomicBool,
) -> Result<Found, Error> {
    // All jobs of a run are of one host.
    let hostnqn = users.first().and_then(|(spec, _)| spec.hostnqn.clone());
    let changes = changed_by(users).is_some();
    let overwrites = allowed(users, |spec| spec.allow_overwrite);
    let named = url.clone();
    nvme::unless_stopped(url, stop, move || {
        namespace_of(&named, hostnqn.as_ref(), changes, overwrites)
    })
}

/// With a connection of its own: what jobs find that change it or do not, and may overwrite what is there or may not.
fn namespace_of(
    url: &Url,
    hostnqn: Option<&Nqn>,
    changes: bool,
    overwrites: bool,
) -> Result<Found, Error> {
    let mut initiator = nvme::connect(url, 1, hostnqn)?;
    let namespace = initiator.namespace_of(url)?.clone();
    let nsid = namespace.nsid.0;
    let bytes = namespace.bytes();
    if changes {
        let refused = |why: &str| Error::Refused {
            target: url.to_string(),
            why: why.to_owned(),
        };
        if namespace.write_protected {
            return Err(refused(
                "the namespace is write-protected; only reads are possible",
            ));
        }
        if !overwrites {
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
    let named = Url {
        nsid: Some(nsid),
        ..url.clone()
    };
    Ok(Found {
        place: Place::Namespace(named),
        bytes: bytes..bytes,
        with_data: false,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

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

    fn of(bytes: Range<u64>) -> Found {
        Found {
            place: Place::Path("disk".into()),
            bytes,
            with_data: true,
        }
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
            let found = of(1 << 20..1 << 20)
                .region(&JobSpec::of(settings), number)
                .ok();
            assert_eq!(
                found.map(|region| (region.offset, region.bytes)),
                expected,
                "{settings:?} {number}"
            );
        }
    }
}
