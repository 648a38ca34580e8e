//! What an order asks for: the ranges of a text, some at a time, each within the disk.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use admin_proto::limits::PREFETCH_RANGES_MAX;
use admin_proto::v1;
use printout::ranges::{self, RangesError, ReadRange};

use crate::failure::Failure;

/// What standard input is called.
const STDIN: &str = "-";

/// How much has been read of what is asked for, for those who show it.
#[derive(Debug, Default)]
pub struct Asked {
    ranges: AtomicU64,
    bytes: AtomicU64,
    is_all: AtomicBool,
}

/// Ranges and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Ranges.
    pub ranges: u64,
    /// Bytes of the disk.
    pub bytes: u64,
    /// There are no more.
    pub is_all: bool,
}

impl Asked {
    /// What has been read by now.
    pub fn sum(&self) -> Sum {
        let is_all = self.is_all.load(Ordering::Acquire);
        Sum {
            ranges: self.ranges.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            is_all,
        }
    }
}

/// A text of ranges, a line each.
pub struct Batches {
    lines: Box<dyn Iterator<Item = Result<ReadRange, RangesError>> + Send>,
    name: String,
    disk_bytes: u64,
    asked: Arc<Asked>,
}

impl Batches {
    /// Of a file, or of standard input where it is `-`.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path, disk_bytes: u64) -> Result<Self, Failure> {
        if path == Path::new(STDIN) {
            let stdin = BufReader::new(std::io::stdin());
            return Ok(Self::new(stdin, "standard input".to_owned(), disk_bytes));
        }
        let name = path.display().to_string();
        let file = File::open(path);
        let file = file.map_err(|error| Failure::here(format!("reading {name}: {error}")))?;
        Ok(Self::new(BufReader::new(file), name, disk_bytes))
    }

    fn new(text: impl BufRead + Send + 'static, name: String, disk_bytes: u64) -> Self {
        Self {
            lines: Box::new(ranges::read(text, name.clone())),
            name,
            disk_bytes,
            asked: Arc::default(),
        }
    }

    /// How much has been read of it.
    pub fn asked(&self) -> Arc<Asked> {
        self.asked.clone()
    }

    /// As many ranges as a message has; none at the end.
    ///
    /// # Errors
    /// A line that is no range, or that no disk of this size has.
    pub fn next(&mut self) -> Result<Option<Vec<v1::PrefetchRange>>, Failure> {
        let mut batch = Vec::new();
        for range in self.lines.by_ref().take(PREFETCH_RANGES_MAX) {
            let ReadRange { offset, bytes } =
                range.map_err(|error| Failure::here(error.to_string()))?;
            // Each line is one.
            let line = self.asked.ranges.fetch_add(1, Ordering::Relaxed) + 1;
            if offset + bytes > self.disk_bytes {
                let (name, disk_bytes) = (&self.name, self.disk_bytes);
                let why = format!(
                    "{name}:{line}: {bytes} bytes at {offset} do not lie within the disk, which has {disk_bytes} bytes"
                );
                return Err(Failure::here(why));
            }
            self.asked.bytes.fetch_add(bytes, Ordering::Relaxed);
            batch.push(v1::PrefetchRange { offset, bytes });
        }
        if batch.len() < PREFETCH_RANGES_MAX {
            self.asked.is_all.store(true, Ordering::Release);
        }
        Ok((!batch.is_empty()).then_some(batch))
    }

    /// That there is nothing in it.
    pub fn none(&self) -> Failure {
        let name = &self.name;
        Failure::here(format!("{name} has no range: nothing was ordered"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(text: String, disk_bytes: u64) -> Batches {
        Batches::new(std::io::Cursor::new(text), "f".to_owned(), disk_bytes)
    }

    #[test]
    fn ranges_are_read_in_batches_and_summed_up() {
        let text = (0..PREFETCH_RANGES_MAX + 1).map(|n| format!("{} 4096\n", n * 4096));
        let mut read = batches(text.collect(), 1 << 40);
        let asked = read.asked();
        let sum = |ranges, is_all| Sum {
            ranges,
            bytes: ranges * 4096,
            is_all,
        };
        let full = PREFETCH_RANGES_MAX as u64;
        assert_eq!(read.next().unwrap().unwrap().len(), PREFETCH_RANGES_MAX);
        assert_eq!(asked.sum(), sum(full, false));
        assert_eq!(read.next().unwrap().unwrap().len(), 1);
        assert_eq!(asked.sum(), sum(full + 1, true));
        assert!(read.next().unwrap().is_none());
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, why) in [
            ("0 1\n1\n", "f:2: `1` is not a first byte"),
            (
                "0 4096\n4096 4096\n4097 4096\n",
                "f:3: 4096 bytes at 4097 do not lie within the disk, which has 8192 bytes",
            ),
        ] {
            let error = batches(text.to_owned(), 8192).next().unwrap_err();
            assert!(error.to_string().starts_with(why), "{error}");
        }
        let mut empty = batches(String::new(), 8192);
        assert!(empty.next().unwrap().is_none());
        assert_eq!(
            empty.none().to_string(),
            "f has no range: nothing was ordered"
        );
    }
}
