//! Work on a long run of bytes, a chunk at a time on every core, with an outcome that does not depend on the number of threads.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::failure::Failure;

/// Bytes of a chunk: many frames, little memory.
pub const CHUNK_BYTES: u64 = 4 << 20;

/// Calls `work` for each chunk of `0..total`, each thread with a state of its own made by `state`. `on_done` is told how many bytes are done.
///
/// # Errors
/// That of the first chunk which failed, in the order of the bytes.
pub fn for_each<S>(
    total: u64,
    threads: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, Range<u64>) -> Result<(), Failure> + Sync,
    on_done: impl Fn(u64) + Sync,
) -> Result<(), Failure> {
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let first: Mutex<Option<(u64, Failure)>> = Mutex::new(None);
    let run = || {
        let mut state = state();
        // Chunks are taken in order: when one has failed, every earlier one was taken, and is worked to its end.
        while !failed.load(Ordering::Relaxed) {
            let start = next.fetch_add(1, Ordering::Relaxed) * CHUNK_BYTES;
            if start >= total {
                break;
            }
            let range = start..(start + CHUNK_BYTES).min(total);
            let bytes = range.end - range.start;
            match work(&mut state, range) {
                Ok(()) => on_done(done.fetch_add(bytes, Ordering::Relaxed) + bytes),
                Err(failure) => {
                    failed.store(true, Ordering::Relaxed);
                    let mut first = first
                        .lock()
                        .unwrap_or_else(|poisoned| poisoned.into_inner());
                    if first.as_ref().is_none_or(|(at, _)| start < *at) {
                        *first = Some((start, failure));
                    }
                }
            }
        }
    };
    let threads = u64::try_from(threads)
        .unwrap_or(1)
        .min(total.div_ceil(CHUNK_BYTES));
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    let first = first
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    first.map_or(Ok(()), |(_, failure)| Err(failure))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn every_byte_is_worked_on_once() {
        for total in [0, 1, CHUNK_BYTES, 5 * CHUNK_BYTES + 3] {
            for threads in [1, 3] {
                let seen = Mutex::new(Vec::new());
                for_each(
                    total,
                    threads,
                    || (),
                    |(), range| {
                        seen.lock().unwrap().push((range.start, range.end));
                        Ok(())
                    },
                    |_| {},
                )
                .unwrap();
                let mut seen = seen.into_inner().unwrap();
                seen.sort_unstable();
                assert!(seen.windows(2).all(|pair| pair[0].1 == pair[1].0));
                assert_eq!(seen.first().map_or(0, |range| range.0), 0);
                assert_eq!(seen.last().map_or(0, |range| range.1), total);
            }
        }
    }

    #[test]
    fn the_first_failure_in_the_order_of_the_bytes_is_reported() {
        for threads in [1, 4] {
            let failure = for_each(
                20 * CHUNK_BYTES,
                threads,
                || (),
                |(), range| match range.start / CHUNK_BYTES {
                    chunk if chunk >= 3 => Err(Failure::data(anyhow!("chunk {chunk}"))),
                    _ => Ok(()),
                },
                |_| {},
            );
            assert_eq!(failure.unwrap_err().to_string(), "chunk 3");
        }
    }
}
