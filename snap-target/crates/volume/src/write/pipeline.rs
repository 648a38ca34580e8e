//! The stages of a pack, each on its own thread, with a bounded number of batches between them:
//!
//! ```text
//! input -> reader -> hasher -> workers (one a core) -> collector -> output
//!             ^                                            |
//!             +------------------ empty batches -----------+
//! ```
//!
//! Of an input whose digest is known there is no hasher.
//!
//! The batches are made once and go round, so the memory is bounded whatever the input's size and whichever stage is the slowest. The
//! collector takes results in the order of the input: what it writes, and which error it reports, do not depend on the
//! number of threads.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use sha2::{Digest, Sha256};
use transforms::Scratch;

use super::WriteError;
use super::batch::{Batch, Cut};

/// Memory of all batches together.
const BATCHES_BYTES_MAX: usize = 96 << 20;
/// Memory of all workers' codecs together.
const SCRATCH_BYTES_MAX: usize = 96 << 20;
/// Workers that more cores do not add to.
const WORKERS_MAX: usize = 256;

/// What is known of an input after it went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) bytes: u64,
    pub(super) sha256: [u8; 32],
}

/// Encodes `input` as `cut` says and hands every batch to `collect`, in order. `known` is the SHA-256 of the input, where it is known.
///
/// # Errors
/// The first in the order of the input: a value that does not fit comes before a read error behind it.
pub(super) fn run(
    input: &mut (dyn Read + Send),
    known: Option<[u8; 32]>,
    cut: &Cut,
    threads: usize,
    mut collect: impl FnMut(&Batch) -> Result<(), WriteError>,
) -> Result<Input, WriteError> {
    // Most inputs of a test and many of a data set are a single batch: they need no threads.
    let mut reader = Reader::new(input, cut);
    let mut first = Batch::new(cut);
    let first_end = reader.fill(&mut first);
    if !matches!(first_end, Ok(true)) {
        if !first.source.is_empty() {
            first.encode(cut, &mut Scratch::new())?;
            collect(&first)?;
        }
        first_end?;
        return Ok(Input {
            bytes: reader.bytes,
            sha256: known.unwrap_or_else(|| Sha256::digest(&first.source).into()),
        });
    }
    run_threads(reader, first, known, cut, threads, collect)
}

/// A batch and its place in the order.
type Numbered = (u64, Batch);
type Encoded = (u64, Batch, Result<(), WriteError>);

fn run_threads(
    mut reader: Reader<'_>,
    first: Batch,
    known: Option<[u8; 32]>,
    cut: &Cut,
    threads: usize,
    mut collect: impl FnMut(&Batch) -> Result<(), WriteError>,
) -> Result<Input, WriteError> {
    let workers = worker_count(cut, threads);
    let batches = batch_count(cut, workers);

    // No channel can hold more than the batches that there are, so no send ever waits: only receives do.
    let (empty, empties) = channel();
    for _ in 1..batches {
        // The receiver is alive: it moves to the reader below.
        let _ = empty.send(Batch::new(cut));
    }
    let (to_encode, ready) = sync_channel(batches);
    let (to_collect, encoded) = sync_channel(batches);
    let ready = Mutex::new(ready);

    thread::scope(|scope| {
        let (behind_reader, hashing) = match known {
            Some(_) => (to_encode, None),
            None => {
                let (to_hash, read) = sync_channel(batches);
                (to_hash, Some(scope.spawn(move || hash(&read, &to_encode))))
            }
        };
        let reading = scope.spawn(move || {
            let read = reader.run(first, &empties, &behind_reader);
            read.map(|()| reader.bytes)
        });
        for _ in 0..workers {
            let (ready, to_collect) = (&ready, to_collect.clone());
            scope.spawn(move || work(cut, ready, &to_collect));
        }
        drop(to_collect);
        let collected = collect_in_order(encoded, empty, &mut collect);
        // A stage that finds its neighbour gone ends, so these joins do not wait for more than the read under way.
        let bytes = reading
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let made = hashing.map(|hashing| {
            hashing
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        collected?;
        Ok(Input {
            bytes: bytes?,
            // One of the two is there.
            sha256: made.or(known).unwrap_or_default(),
        })
    })
}

fn worker_count(cut: &Cut, threads: usize) -> usize {
    let by_memory = SCRATCH_BYTES_MAX / cut.scratch_bytes_max().max(1);
    threads.min(by_memory).clamp(1, WORKERS_MAX)
}

/// Each worker has a batch, and one waits for it; the other stages have one each.
fn batch_count(cut: &Cut, workers: usize) -> usize {
    let by_memory = BATCHES_BYTES_MAX / cut.batch_memory_bytes();
    (2 * workers + 3).min(by_memory).max(2)
}

/// Fills batches with whole elements.
struct Reader<'a> {
    input: &'a mut (dyn Read + Send),
    cut: &'a Cut,
    bytes: u64,
}

impl<'a> Reader<'a> {
    fn new(input: &'a mut (dyn Read + Send), cut: &'a Cut) -> Reader<'a> {
        Reader {
            input,
            cut,
            bytes: 0,
        }
    }

    /// Reads the next batch; it may come out empty at the end. `Ok(true)`: there may be more behind it. On an error the batch
    /// holds the whole elements before it.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, WriteError> {
        let element_bytes = self.cut.chain.source().bytes();
        let wanted = self.cut.batch_source_bytes();
        batch.first_element = self.bytes / element_bytes as u64;
        batch.source.resize(wanted, 0);
        let mut filled = 0;
        let mut result = Ok(true);
        while filled < wanted {
            match self.input.read(&mut batch.source[filled..]) {
                Ok(0) => {
                    result = Ok(false);
                    break;
                }
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let offset = self.bytes + filled as u64;
                    result = Err(WriteError::Input { offset, error });
                    break;
                }
            }
        }
        self.bytes += filled as u64;
        let whole = filled - filled % element_bytes;
        batch.source.truncate(whole);
        if whole < filled && result.is_ok() {
            result = Err(WriteError::PartialElement {
                bytes: self.bytes,
                element_type: self.cut.chain.source(),
            });
        }
        result
    }

    /// The reader's thread. Ends at the end of the input, at an error, or when nobody takes its batches.
    fn run(
        &mut self,
        first: Batch,
        empties: &Receiver<Batch>,
        next: &SyncSender<Numbered>,
    ) -> Result<(), WriteError> {
        if next.send((0, first)).is_err() {
            return Ok(());
        }
        for (number, mut batch) in (1..).zip(empties) {
            let more = self.fill(&mut batch);
            let taken = batch.source.is_empty() || next.send((number, batch)).is_ok();
            if !more? || !taken {
                break;
            }
        }
        Ok(())
    }
}

fn hash(read: &Receiver<Numbered>, to_encode: &SyncSender<Numbered>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (number, batch) in read {
        hash.update(&batch.source);
        if to_encode.send((number, batch)).is_err() {
            break;
        }
    }
    hash.finalize().into()
}

fn work(cut: &Cut, ready: &Mutex<Receiver<Numbered>>, to_collect: &SyncSender<Encoded>) {
    let mut scratch = Scratch::new();
    loop {
        // Held while waiting: the others wait for the lock instead of the channel.
        let received = match ready.lock() {
            Ok(ready) => ready.recv(),
            // Another worker panicked; the scope passes that on.
            Err(_) => return,
        };
        let Ok((number, mut batch)) = received else {
            return;
        };
        let result = batch.encode(cut, &mut scratch);
        if to_collect.send((number, batch, result)).is_err() {
            return;
        }
    }
}

/// Ends when every worker is gone, or at the first error; what it owns is dropped then, which ends the other stages.
fn collect_in_order(
    encoded: Receiver<Encoded>,
    empty: Sender<Batch>,
    collect: &mut impl FnMut(&Batch) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let mut early = BTreeMap::new();
    let mut next = 0;
    for (number, batch, result) in encoded {
        early.insert(number, (batch, result));
        while let Some((batch, result)) = early.remove(&next) {
            result?;
            collect(&batch)?;
            // The reader may have ended already.
            let _ = empty.send(batch);
            next += 1;
        }
    }
    Ok(())
}
