//! A driver as awkward as the contract allows: fetches are answered in any order, in several pieces, and the destination is cut into
//! segments at random places.

#![allow(unsafe_code)]

use std::ops::Range;

use transforms::{RawSegment, Scratch};

use super::sample::Random;
use crate::blocking::ReadAt;
use crate::limits::{FETCH_BYTES_MAX, READ_WINDOW_BYTES_MAX};
use crate::{Cache, Fetch, OutBuf, Placement, Progress, ReadCounters, ReadOp, Volume, VolumeError};

pub(crate) struct Driver {
    pub(crate) cache: Cache,
    pub(crate) scratch: Scratch,
    pub(crate) op: ReadOp,
    pub(crate) random: Random,
    /// Every fetch of the last read.
    pub(crate) fetches: Vec<Fetch>,
    /// Whether fetched bytes come in pieces.
    pub(crate) cut_pieces: bool,
}

impl Driver {
    pub(crate) fn new(cache_bytes: usize) -> Driver {
        Driver {
            cache: Cache::new(cache_bytes),
            scratch: Scratch::new(),
            op: ReadOp::new(),
            random: Random::new(7),
            fetches: Vec::new(),
            cut_pieces: true,
        }
    }

    /// Reads `range` into memory that held other bytes before.
    pub(crate) fn read(
        &mut self,
        volume: &Volume,
        store: &dyn ReadAt,
        range: Range<u64>,
    ) -> Result<(Vec<u8>, ReadCounters), VolumeError> {
        let mut memory = vec![0xA5; (range.end - range.start) as usize];
        let base = memory.as_mut_ptr();
        let segments = self.segments(base, memory.len());
        // SAFETY: the segments are disjoint parts of `memory`, which is not touched otherwise until `out` is gone.
        let out = unsafe { OutBuf::from_raw(&segments) };
        self.fetches.clear();
        self.op.start(volume, range)?;
        let mut waiting: Vec<(Fetch, Vec<u8>)> = Vec::new();
        self.op
            .step(volume, &mut self.cache, &mut self.scratch, &out)?;
        loop {
            while let Some(fetch) = self.op.next_fetch() {
                check_fetch(&fetch, volume);
                let mut bytes = vec![0; fetch.len as usize];
                let found = store
                    .read_at(fetch.source, fetch.offset, &mut bytes)
                    .unwrap();
                bytes.truncate(found);
                if let Placement::Direct { out_offset } = fetch.placement {
                    out.at(out_offset as usize, bytes.len())
                        .unwrap()
                        .write(&bytes);
                }
                self.fetches.push(fetch);
                waiting.push((fetch, bytes));
            }
            // A window, or one long frame that is rounded out at both ends.
            let under_way: u64 = waiting.iter().map(|(fetch, _)| u64::from(fetch.len)).sum();
            assert!(
                under_way <= READ_WINDOW_BYTES_MAX + 8192,
                "{under_way} bytes under way"
            );
            if self.op.progress() == Progress::Done {
                assert!(waiting.is_empty(), "done while fetches are under way");
                return Ok((memory, self.op.counters()));
            }
            assert!(!waiting.is_empty(), "fetching, and nothing is under way");
            let next = self.random.below(waiting.len() as u64) as usize;
            let (fetch, bytes) = waiting.swap_remove(next);
            let cut = self.random.below(bytes.len() as u64 + 1) as usize;
            let pieces: &[&[u8]] = match self.cut_pieces && self.random.below(2) > 0 {
                false => &[&bytes],
                true => &[&bytes[..cut], &[], &bytes[cut..]],
            };
            let (cache, scratch) = (&mut self.cache, &mut self.scratch);
            self.op
                .fetched(fetch.id, pieces, volume, cache, scratch, &out)?;
        }
    }

    fn segments(&mut self, base: *mut u8, len: usize) -> Vec<RawSegment> {
        let mut segments = Vec::new();
        let mut at = 0;
        while at < len {
            let longest = [3, 700, 5000, len as u64][self.random.below(4) as usize].max(1);
            let now = (self.random.between(1, longest) as usize).min(len - at);
            segments.push(RawSegment {
                // SAFETY: `at < len`, the length of the memory that `base` points to.
                ptr: unsafe { base.add(at) },
                len: now,
            });
            at += now;
        }
        segments
    }
}

/// What the contract says of every fetch.
fn check_fetch(fetch: &Fetch, volume: &Volume) {
    assert!(fetch.len > 0 && fetch.len <= FETCH_BYTES_MAX);
    assert_eq!(fetch.offset % 4096, 0);
    let source = volume.source(fetch.source).unwrap();
    let end = fetch.offset + u64::from(fetch.len);
    assert!(end <= source.bytes);
    assert!(end.is_multiple_of(4096) || end == source.bytes);
    if let Placement::Direct { out_offset } = fetch.placement {
        assert_eq!(out_offset % 512, 0);
        assert_eq!(fetch.len % 4096, 0);
    }
}
