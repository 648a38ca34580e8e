//! What the kernel counted of the disks below the files, for fio's disk_util.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::stat::{major, minor};

use crate::target::Place;

/// The disks, with their counters at one time or between two.
#[derive(Debug)]
pub struct Disks {
    at: Instant,
    /// By name.
    pub disks: Vec<Disk>,
    /// Between the two times.
    pub elapsed_ms: u64,
}

/// One disk. Fields as in the kernel's Documentation/block/stat.rst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// As in /dev.
    pub name: String,
    path: PathBuf,
    counters: [u64; 11],
}

impl Disks {
    /// The disks below `places`, as they are now.
    pub fn of<'a>(places: impl Iterator<Item = &'a Place>) -> Disks {
        let mut disks: Vec<Disk> = Vec::new();
        for place in places {
            let Place::Path(path) = place else { continue };
            if let Some(disk) = Disk::below(path)
                && !disks.iter().any(|known| known.name == disk.name)
            {
                disks.push(disk);
            }
        }
        Disks {
            at: Instant::now(),
            disks,
            elapsed_ms: 0,
        }
    }

    /// What they did since.
    pub fn since_then(mut self) -> Disks {
        for disk in &mut self.disks {
            let before = disk.counters;
            disk.counters = counters(&disk.path).unwrap_or(before);
            for (now, before) in disk.counters.iter_mut().zip(before) {
                *now = now.saturating_sub(before);
            }
        }
        self.elapsed_ms = u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        self
    }
}

impl Disk {
    /// The disk that a file is on, or that a device is, or is a part of; of a file that is yet to be made, that of its folder.
    fn below(path: &Path) -> Option<Disk> {
        let metadata = path.metadata().or_else(|_| folder(path).metadata()).ok()?;
        let number = if metadata.file_type().is_block_device() {
            metadata.rdev()
        } else {
            metadata.dev()
        };
        let link = format!("/sys/dev/block/{}:{}", major(number), minor(number));
        let mut path = std::fs::canonicalize(link).ok()?;
        if path.join("partition").exists() {
            path.pop();
        }
        Some(Disk {
            name: path.file_name()?.to_str()?.to_owned(),
            counters: counters(&path)?,
            path,
        })
    }

    fn counter(&self, at: usize) -> u64 {
        self.counters.get(at).copied().unwrap_or(0)
    }

    /// fio's fields of it, but for name and utilisation.
    pub fn fields(&self) -> [(&'static str, u64); 7] {
        [
            ("read_ios", self.counter(0)),
            ("write_ios", self.counter(4)),
            ("read_merges", self.counter(1)),
            ("write_merges", self.counter(5)),
            ("read_ticks", self.counter(3)),
            ("write_ticks", self.counter(7)),
            ("in_queue", self.counter(10)),
        ]
    }

    /// Milliseconds in which it had anything to do.
    pub fn busy_ms(&self) -> u64 {
        self.counter(9)
    }
}

fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn counters(path: &Path) -> Option<[u64; 11]> {
    let text = std::fs::read_to_string(path.join("stat")).ok()?;
    let mut counters = [0; 11];
    for (counter, word) in counters.iter_mut().zip(text.split_whitespace()) {
        *counter = word.parse().ok()?;
    }
    Some(counters)
}

#[cfg(test)]
impl Disk {
    /// One that did nothing.
    pub fn of_name(name: &str) -> Disk {
        Disk {
            name: name.to_owned(),
            path: PathBuf::new(),
            counters: [0; 11],
        }
    }
}
