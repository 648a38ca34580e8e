//! File systems and block devices that stores may lie on.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::sys::statfs::statfs;
use nix::unistd::{AccessFlags, access};
use printout::size::Size;

use super::finding::Finding;

/// What a path is, and what was found out about it.
#[derive(Clone, Debug)]
pub enum Storage {
    /// Nothing that could be looked at, and why.
    Unusable(String),
    /// A block device.
    Device(Device),
    /// A folder, or a file in one.
    Files(Files),
}

/// A block device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Whether it can be opened to be read.
    pub read: Result<(), Errno>,
    /// Whether it can be opened to be written, as nobody else on this machine has it in use.
    pub write: Result<(), Errno>,
    /// Bytes of its logical block, where the system says them.
    pub block_bytes: Option<u64>,
}

/// A file system.
#[derive(Clone, Debug)]
pub struct Files {
    /// Its number, as statfs has it.
    pub magic: i64,
    /// The named file can be read; none where a folder was named.
    pub readable: Option<bool>,
    /// What a file of ours showed; why not, where none could be made.
    pub tried: Result<Tried, String>,
}

/// What a file of ours showed.
#[derive(Clone, Debug)]
pub struct Tried {
    /// It can be opened around the page cache (O_DIRECT).
    pub direct: bool,
    /// Holes can be punched.
    pub punch_hole: bool,
    /// Ranges can be zeroed without writing zeros.
    pub zero_range: bool,
    /// The step of its times of change.
    pub time_step: Duration,
}

/// Looks at a path.
pub fn read(path: &Path) -> Storage {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return Storage::Unusable(error.to_string()),
    };
    let may = |what| access(path, what).is_ok();
    if metadata.file_type().is_block_device() {
        return Storage::Device(Device {
            read: opens(path, false, 0),
            write: opens(path, true, OFlag::O_EXCL.bits()),
            block_bytes: block_bytes(metadata.rdev()),
        });
    }
    let folder = match path.parent() {
        _ if metadata.is_dir() => path,
        Some(parent) if metadata.is_file() && !parent.as_os_str().is_empty() => parent,
        Some(_) if metadata.is_file() => Path::new("."),
        _ => return Storage::Unusable("neither a folder, a file nor a block device".to_owned()),
    };
    let magic = match statfs(path) {
        Ok(found) => found.filesystem_type().0,
        Err(error) => return Storage::Unusable(format!("statfs: {error}")),
    };
    Storage::Files(Files {
        magic,
        readable: metadata.is_file().then(|| may(AccessFlags::R_OK)),
        tried: try_in(folder).map_err(|error| error.to_string()),
    })
}

/// Opens as the daemon does: what may be done with a device is not in its mode alone.
fn opens(path: &Path, write: bool, flags: i32) -> Result<(), Errno> {
    let opened = OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(flags)
        .open(path);
    let failed = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
    opened.map(drop).map_err(failed)
}

fn block_bytes(device: u64) -> Option<u64> {
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let base = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition's queue is that of its disk.
    ["queue", "../queue"].iter().find_map(|queue| {
        let text = fs::read_to_string(base.join(queue).join("logical_block_size")).ok()?;
        text.trim().parse().ok()
    })
}

/// A file of ours, gone when it is dropped.
struct Trial(PathBuf);

impl Drop for Trial {
    fn drop(&mut self) {
        // Nothing more can be done about one that does not go.
        let _ = fs::remove_file(&self.0);
    }
}

fn try_in(folder: &Path) -> io::Result<Tried> {
    let path = folder.join(format!(".snapctl-doctor-{}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    let trial = Trial(path);
    file.set_len(128 << 10)?;
    Ok(Tried {
        direct: OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_DIRECT.bits())
            .open(&trial.0)
            .is_ok(),
        punch_hole: allocates(
            &file,
            FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE,
        )?,
        zero_range: allocates(
            &file,
            FallocateFlags::FALLOC_FL_ZERO_RANGE | FallocateFlags::FALLOC_FL_KEEP_SIZE,
        )?,
        time_step: time_step(&file)?,
    })
}

fn allocates(file: &File, how: FallocateFlags) -> io::Result<bool> {
    match fallocate(file.as_fd(), how, 0, 64 << 10) {
        Ok(()) => Ok(true),
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Sets an odd time and sees what is left of it.
fn time_step(file: &File) -> io::Result<Duration> {
    let second = Duration::from_secs(1_700_000_001);
    let odd = Duration::from_nanos(123_456_789);
    file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + second + odd))?;
    let kept = file
        .metadata()?
        .modified()?
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
    // The largest usual step that the odd time was rounded to.
    let steps = [1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000];
    let nanos = kept.as_nanos();
    let step = steps
        .iter()
        .rev()
        .find(|step| nanos.is_multiple_of(**step))
        .copied()
        .unwrap_or(1);
    let two_seconds = kept.as_secs().is_multiple_of(2) && step == 1_000_000_000;
    Ok(Duration::from_nanos(u64::try_from(step).unwrap_or(1)) * if two_seconds { 2 } else { 1 })
}

/// Everything that is to be said of a path.
pub fn findings(path: &Path, storage: &Storage) -> Vec<Finding> {
    let name = path.display().to_string();
    match storage {
        Storage::Unusable(why) => vec![Finding::fail(
            name,
            why.clone(),
            "no store can be opened there",
            "name a folder, a file or a block device that is there",
        )],
        Storage::Device(device) => vec![device_finding(&name, device)],
        Storage::Files(files) => files_findings(&name, files),
    }
}

fn device_finding(name: &str, device: &Device) -> Finding {
    let block = device.block_bytes.map_or_else(
        || "blocks of unknown size".to_owned(),
        |bytes| format!("blocks of {}", Size(bytes)),
    );
    match (device.read, device.write) {
        (Err(Errno::EPERM), _) => Finding::fail(
            name,
            "a block device that may not be opened here, whoever asks",
            "it cannot be served",
            "let this container or service have it: --device of the container, DeviceAllow= of the unit",
        ),
        (Err(errno), _) => Finding::fail(
            name,
            format!(
                "a block device that this user cannot read: {}",
                errno.desc()
            ),
            "it cannot be served",
            format!("usermod -aG disk USER, or: setfacl -m u:USER:rw {name}"),
        ),
        (Ok(()), Err(Errno::EBUSY)) => Finding::fail(
            name,
            format!(
                "block device, {block}, in use on this machine: mounted, or part of a volume group or RAID"
            ),
            "it is refused where hosts are to write",
            format!(
                "unmount it or take it out of its group; what is only read: read-only = true (lsblk {name} shows its user)"
            ),
        ),
        (Ok(()), Err(errno)) => Finding::warn(
            name,
            format!(
                "block device, {block}, cannot be written by this user: {}",
                errno.desc()
            ),
            "it is served write-protected",
            format!("where hosts should write: setfacl -m u:USER:rw {name}"),
        ),
        (Ok(()), Ok(())) => Finding::ok(
            name,
            format!("block device, {block}, can be read and written"),
        ),
    }
}

fn files_findings(name: &str, files: &Files) -> Vec<Finding> {
    let mut findings = vec![kind_finding(name, files.magic)];
    if files.readable == Some(false) {
        findings.push(Finding::fail(
            format!("{name}: read"),
            "this user may not read the file",
            "it cannot be served",
            format!("chmod or chown it, or: setfacl -m u:USER:rw {name}"),
        ));
    }
    match &files.tried {
        Err(why) => findings.push(Finding::warn(
            format!("{name}: write"),
            format!("no file can be made there: {why}"),
            "volumes and files there are served read-only; direct I/O and holes were not tried",
            "run doctor as the user that snap-target runs as",
        )),
        Ok(tried) => findings.extend(tried_findings(name, tried)),
    }
    findings
}

/// What something costs, and what mends it.
type Drawback = (&'static str, &'static str);

/// Numbers of file systems (statfs(2)), their names, and what they cost; none where nothing.
const KINDS: [(i64, &str, Option<Drawback>); 13] = [
    (0xEF53, "ext4", None),
    (0x5846_5342, "xfs", None),
    (0x9123_683E, "btrfs", None),
    (0xF2F5_2010, "f2fs", None),
    (0xE0F5_E1E2, "erofs", None),
    (0x2FC1_2FC1, "zfs", None),
    (0xCA45_1A4E, "bcachefs", None),
    (0x0102_1994, "tmpfs", Some(MEMORY)),
    (0x8584_58F6, "ramfs", Some(MEMORY)),
    (
        0x6969,
        "nfs",
        Some((
            "a flush is as good as the server's word, and a server that does not answer holds commands up to their deadline",
            "stores on a local file system; for NFS: mount with hard,vers=4.2",
        )),
    ),
    (
        0x794C_7630,
        "overlayfs",
        Some((
            "data go with the container, and the first write to a file copies all of it",
            "a volume of its own: docker run -v /srv/data:/srv/data",
        )),
    ),
    (
        0x6573_5546,
        "fuse",
        Some((
            "each read and write goes through another process, and durability is what that one makes of it",
            "stores on a file system of the kernel",
        )),
    ),
    (
        0x4D44,
        "fat",
        Some((
            "no holes, no direct I/O on some kernels, files of at most 4 GiB",
            "ext4 or xfs",
        )),
    ),
];

const MEMORY: Drawback = (
    "data are gone with the machine, and count as its memory",
    "a file system on a disk, or mem:SIZE, which says so",
);

fn kind_finding(name: &str, magic: i64) -> Finding {
    let check = format!("{name}: file system");
    match KINDS.iter().find(|(known, _, _)| *known == magic) {
        Some((_, kind, None)) => Finding::ok(check, *kind),
        Some((_, kind, Some((costs, mend)))) => Finding::warn(check, *kind, *costs, *mend),
        None => Finding::ok(check, format!("number {magic:x}h")),
    }
}

fn tried_findings(name: &str, tried: &Tried) -> Vec<Finding> {
    let works = |what: &str, works: bool, costs: &str, mend: &str| {
        let check = format!("{name}: {what}");
        if works {
            Finding::ok(check, "works")
        } else {
            Finding::warn(check, "not supported", costs, mend)
        }
    };
    let (step, coarse) = (tried.time_step, Duration::from_secs(1));
    let time = format!("{name}: time of change");
    vec![
        works(
            "direct I/O",
            tried.direct,
            "data pass through the page cache: a copy more, and memory for it",
            "ext4 or xfs; tmpfs has it from Linux 6.6 on",
        ),
        works(
            "punching holes",
            tried.punch_hole,
            "what hosts deallocate keeps its place on the disk",
            "ext4, xfs or btrfs",
        ),
        works(
            "zeroing ranges",
            tried.zero_range,
            "Write Zeroes writes zeros, as long as a write takes",
            "ext4 or xfs",
        ),
        if step < coarse {
            Finding::ok(time, format!("to {step:?}"))
        } else {
            Finding::warn(
                time,
                format!("to {step:?}"),
                "what goes by it (rsync, make) misses a second change within that time",
                "ext4 or xfs",
            )
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    fn verdicts(storage: &Storage) -> Vec<(String, Verdict)> {
        findings(Path::new("/s"), storage)
            .into_iter()
            .map(|finding| (finding.check, finding.verdict))
            .collect()
    }

    const GOOD: Tried = Tried {
        direct: true,
        punch_hole: true,
        zero_range: true,
        time_step: Duration::from_nanos(1),
    };

    fn files(magic: i64, tried: Result<Tried, String>) -> Storage {
        Storage::Files(Files {
            magic,
            readable: None,
            tried,
        })
    }

    #[test]
    fn a_good_file_system_has_nothing_to_say_against_it() {
        let all = verdicts(&files(0xEF53, Ok(GOOD)));
        assert_eq!(all.len(), 5);
        assert!(
            all.iter().all(|(_, verdict)| *verdict == Verdict::Ok),
            "{all:?}"
        );
    }

    #[test]
    fn each_lack_warns_under_its_name() {
        let lacks = Tried {
            direct: false,
            punch_hole: false,
            zero_range: false,
            time_step: Duration::from_secs(2),
        };
        let expected = [
            "file system",
            "direct I/O",
            "punching holes",
            "zeroing ranges",
            "time of change",
        ]
        .map(|what| (format!("/s: {what}"), Verdict::Warn));
        assert_eq!(verdicts(&files(0x0102_1994, Ok(lacks))), expected);
    }

    #[test]
    fn network_and_container_file_systems_warn() {
        for magic in [0x6969, 0x794C_7630, 0x6573_5546, 0x8584_58F6] {
            assert_eq!(
                verdicts(&files(magic, Ok(GOOD)))[0].1,
                Verdict::Warn,
                "{magic:x}"
            );
        }
        let unknown = findings(Path::new("/s"), &files(0xABCD, Ok(GOOD)));
        assert_eq!(
            (unknown[0].verdict, unknown[0].found.as_str()),
            (Verdict::Ok, "number abcdh")
        );
    }

    #[test]
    fn what_cannot_be_read_fails_and_what_cannot_be_written_warns() {
        let device = |read, write| {
            verdicts(&Storage::Device(Device {
                read,
                write,
                block_bytes: Some(512),
            }))[0]
                .1
        };
        assert_eq!(device(Ok(()), Ok(())), Verdict::Ok);
        assert_eq!(device(Ok(()), Err(Errno::EACCES)), Verdict::Warn);
        // Mounted; the daemon refuses it, and does not serve it read-only instead.
        assert_eq!(device(Ok(()), Err(Errno::EBUSY)), Verdict::Fail);
        assert_eq!(
            device(Err(Errno::EACCES), Err(Errno::EACCES)),
            Verdict::Fail
        );
        // A device cgroup.
        assert_eq!(device(Err(Errno::EPERM), Err(Errno::EPERM)), Verdict::Fail);
        let file = verdicts(&Storage::Files(Files {
            magic: 0xEF53,
            readable: Some(false),
            tried: Err("Permission denied".to_owned()),
        }));
        assert_eq!(file[1], ("/s: read".to_owned(), Verdict::Fail));
        assert_eq!(file[2], ("/s: write".to_owned(), Verdict::Warn));
        assert_eq!(
            verdicts(&Storage::Unusable("no".to_owned()))[0].1,
            Verdict::Fail
        );
    }

    #[test]
    fn a_real_folder_is_tried_and_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let Storage::Files(found) = read(folder.path()) else {
            panic!("a folder lies on a file system");
        };
        let tried = found.tried.unwrap();
        assert!(tried.time_step >= Duration::from_nanos(1));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(matches!(
            read(&folder.path().join("x")),
            Storage::Unusable(_)
        ));
        assert!(matches!(read(Path::new("/dev/null")), Storage::Unusable(_)));
        fs::write(folder.path().join("f"), "x").unwrap();
        let Storage::Files(of_file) = read(&folder.path().join("f")) else {
            panic!("a file lies on a file system");
        };
        assert_eq!((of_file.readable, of_file.magic), (Some(true), found.magic));
    }
}
