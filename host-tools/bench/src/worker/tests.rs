//! The loop against a disk in this process, which keeps copies of what was written as a system does.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::*;
use crate::error::ErrorKind;

const BLOCK_BYTES: usize = 4096;

/// Reads come from the copies, where there are any, else from the medium, on which one byte is another than what was written.
struct Disk {
    buffers: Vec<Vec<u8>>,
    copies: BTreeMap<u64, Vec<u8>>,
    medium: BTreeMap<u64, Vec<u8>>,
    wrong_at: Option<u64>,
    reads_until_failure: usize,
    /// Then it says nothing any more, and where the user watches, the user ends the job.
    answers_until_silence: usize,
    ended_by: Option<Arc<AtomicBool>>,
    is_given_up: bool,
    carried_out: usize,
    /// After how many commands the copies were dropped.
    drops: Vec<usize>,
    queued: Vec<Request>,
    done: Vec<Completion>,
}

impl Disk {
    fn new(depth: usize) -> Disk {
        Disk {
            buffers: vec![vec![0; BLOCK_BYTES]; depth],
            copies: BTreeMap::new(),
            medium: BTreeMap::new(),
            wrong_at: None,
            reads_until_failure: usize::MAX,
            answers_until_silence: usize::MAX,
            ended_by: None,
            is_given_up: false,
            carried_out: 0,
            drops: Vec::new(),
            queued: Vec::new(),
            done: Vec::new(),
        }
    }

    fn carry_out(&mut self, request: &Request) -> io::Result<u32> {
        self.carried_out += 1;
        let buffer = &mut self.buffers[request.slot];
        match request.operation {
            Operation::Write => {
                self.copies.insert(request.offset, buffer.clone());
            }
            Operation::Read => {
                if self.reads_until_failure == 0 {
                    return Err(io::ErrorKind::Other.into());
                }
                self.reads_until_failure -= 1;
                let copy = self.copies.get(&request.offset);
                match copy.or(self.medium.get(&request.offset)) {
                    Some(block) => buffer.copy_from_slice(block),
                    // As a file has it that others wrote: no mark anywhere.
                    None => buffer.fill(0x5A),
                }
            }
            Operation::Trim | Operation::Sync | Operation::DataSync => {}
        }
        Ok(request.len)
    }
}

impl Engine for &mut Disk {
    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        &mut self.buffers[slot]
    }

    fn push(&mut self, request: &Request) -> Result<(), Error> {
        self.queued.push(*request);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Error> {
        for request in std::mem::take(&mut self.queued) {
            let result = self.carry_out(&request);
            self.done.push(Completion {
                slot: request.slot,
                result,
            });
        }
        Ok(())
    }

    fn reap(
        &mut self,
        _min: usize,
        max: usize,
        _until: Option<Instant>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        let count = max.min(self.done.len()).min(self.answers_until_silence);
        self.answers_until_silence -= count;
        if let (0, Some(stop)) = (self.answers_until_silence, &self.ended_by) {
            stop.store(true, Ordering::Relaxed);
        }
        completions.extend(self.done.drain(..count));
        Ok(())
    }

    fn drop_copies(&mut self, part: Region) {
        assert_eq!((part.offset, part.bytes), (0, 64 * BLOCK_BYTES as u64));
        assert!(
            self.queued.is_empty() && self.done.is_empty(),
            "a command is on its way"
        );
        self.drops.push(self.carried_out);
    }

    fn forget_copies(&mut self) -> Result<(), Error> {
        self.medium.append(&mut self.copies);
        if let Some(at) = self.wrong_at {
            let block = at - at % BLOCK_BYTES as u64;
            let byte = usize::try_from(at - block).unwrap();
            self.medium.get_mut(&block).unwrap()[byte] ^= 1;
        }
        Ok(())
    }

    fn silence_max(&self, _interrupted: bool) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn give_up(self: Box<Self>) {
        self.is_given_up = true;
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

fn run_on(disk: &mut Disk, settings: &[(&str, &str)]) -> (Stats, Option<Error>) {
    let spec = JobSpec::of(settings);
    spec.check().unwrap();
    let stop = disk.ended_by.clone().unwrap_or_default();
    let task = Task {
        spec: &spec,
        region: Region {
            offset: 0,
            bytes: 64 * BLOCK_BYTES as u64,
        },
        seed: 1,
        live: &Live::default(),
        stop: &stop,
    };
    run(task, Box::new(disk))
}

#[test]
fn what_is_verified_is_what_the_medium_has() {
    let settings = [("rw", "randwrite"), ("iodepth", "4"), ("verify", "crc32c")];
    let mut disk = Disk::new(4);
    let (stats, error) = run_on(&mut disk, &settings);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(
        (stats.direction(Direction::Read).ios, stats.mismatches),
        (64, 0)
    );
    let mut disk = Disk::new(4);
    disk.wrong_at = Some(77_777);
    let (stats, error) = run_on(&mut disk, &settings);
    assert_eq!(stats.mismatches, 1);
    let error = error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(
        error.to_string().contains("byte at offset 77777 is"),
        "{error}"
    );
}

/// The first pass's are dropped when the target is opened.
#[test]
fn the_page_cache_is_dropped_before_each_pass() {
    const LOOPS: [(&str, &str); 2] = [("loops", "3"), ("iodepth", "4")];
    for (settings, expected) in [
        (&[("rw", "read")][..], &[64, 128][..]),
        (&[("rw", "randread")], &[64, 128]),
        (&[("rw", "randread"), ("norandommap", "1")], &[64, 128]),
        (&[("rw", "randwrite")], &[64, 128]),
        (&[("rw", "read"), ("invalidate", "0")], &[]),
        (&[("rw", "read"), ("direct", "1")], &[]),
    ] {
        let mut disk = Disk::new(4);
        let (_, error) = run_on(&mut disk, &[&LOOPS, settings].concat());
        assert!(error.is_none(), "{error:?}");
        assert_eq!(disk.carried_out, 192);
        assert_eq!(disk.drops, expected, "{settings:?}");
    }
}

#[test]
fn every_sector_that_a_mixed_job_writes_is_marked() {
    let mut disk = Disk::new(4);
    let (stats, error) = run_on(&mut disk, &[("rw", "randrw"), ("iodepth", "4")]);
    assert!(error.is_none(), "{error:?}");
    assert!(stats.direction(Direction::Read).ios > 8);
    assert!(disk.copies.len() > 8);
    for block in disk.copies.values() {
        assert!(
            block
                .chunks(512)
                .all(|sector| sector.starts_with(&verify::MAGIC))
        );
    }
}

#[test]
fn a_job_that_fails_keeps_the_time_that_its_figures_took() {
    let mut disk = Disk::new(1);
    disk.reads_until_failure = 9;
    let (stats, error) = run_on(&mut disk, &[("rw", "read")]);
    assert_eq!(error.unwrap().kind(), ErrorKind::System);
    let read = stats.direction(Direction::Read);
    assert_eq!(read.ios, 9);
    assert!(read.runtime_ns > 0 && read.runtime_ns <= stats.elapsed_ns);
    // Also where it fails while it reads back.
    let mut disk = Disk::new(1);
    disk.reads_until_failure = 9;
    let (stats, error) = run_on(&mut disk, &[("rw", "write"), ("verify", "crc32c")]);
    assert_eq!(error.unwrap().kind(), ErrorKind::System);
    assert_eq!(stats.direction(Direction::Read).ios, 9);
    assert!(stats.direction(Direction::Read).runtime_ns > 0);
    assert!(stats.direction(Direction::Write).runtime_ns > 0);
}

/// At its end a job waits for its target, but not for one that says nothing, and that time is not in the figures.
#[test]
fn a_target_that_falls_silent_is_given_up_after_the_end() {
    const DEPTH: (&str, &str) = ("iodepth", "4");
    const FOR_A_TIME: [(&str, &str); 3] = [("runtime", "20ms"), ("time_based", "1"), DEPTH];
    const VERIFIED: [(&str, &str); 3] = [("rw", "write"), ("verify", "crc32c"), DEPTH];
    for (settings, answers, interrupted) in [
        (&FOR_A_TIME[..], 9, false),
        (&[DEPTH][..], 9, true),
        // While it reads back what it has written.
        (&VERIFIED[..], 64 + 9, true),
    ] {
        let mut disk = Disk::new(4);
        disk.answers_until_silence = answers;
        disk.ended_by = interrupted.then(Arc::default);
        let (stats, error) = run_on(&mut disk, settings);
        let Some(Error::Unanswered {
            count,
            interrupted: by_user,
            ..
        }) = error
        else {
            panic!("{settings:?}: {error:?}");
        };
        // The user's wish comes with the last answer, before another command takes its slot.
        let outstanding = if interrupted { 3 } else { 4 };
        assert_eq!((count, by_user), (outstanding, interrupted), "{settings:?}");
        assert_eq!(stats.direction(Direction::Read).ios, 9, "{settings:?}");
        assert!(disk.is_given_up);
    }
}
