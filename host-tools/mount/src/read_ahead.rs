//! Reading ahead of those who go on and on. Linux asks a FUSE mount for 128 KiB at a time at most, which is little for a network and for frames of compressed bytes; and files that are
//! read one after the other lie one after the other on the disk, which the kernel does not know.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::limits::{
    AHEAD_THREADS, CHUNK_BYTES, CHUNKS_AHEAD, CHUNKS_MAX, RUN_BYTES, RUN_REQUESTS, RUN_SLACK_BYTES,
    RUNS_MAX,
};
use crate::medium::{Medium, ReadFailure};

/// A disk that is read by many.
pub(crate) struct ReadAhead {
    shared: Arc<Shared>,
    has_threads: bool,
}

struct Shared {
    medium: Arc<dyn Medium>,
    state: Mutex<State>,
    /// A chunk came, or there is one to be fetched, or it is over.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    chunks: HashMap<u64, Chunk>,
    /// Those that are here, the oldest first.
    here: VecDeque<u64>,
    /// Those that the threads are to fetch.
    wanted: VecDeque<u64>,
    runs: Runs,
    over: bool,
}

enum Chunk {
    Coming,
    Here(Arc<[u8]>),
}

impl ReadAhead {
    pub(crate) fn new(medium: Arc<dyn Medium>) -> ReadAhead {
        let shared = Arc::new(Shared {
            medium,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let thread = |_| {
            let shared = shared.clone();
            let name = "xio-read-ahead".to_owned();
            thread::Builder::new()
                .name(name)
                .spawn(move || shared.work())
        };
        // Without a thread nothing is wanted of it: readers fetch for themselves.
        let started = (0..AHEAD_THREADS).map(thread).filter(Result::is_ok);
        let has_threads = started.count() > 0;
        ReadAhead {
            shared,
            has_threads,
        }
    }

    /// Reads bytes of the disk.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), ReadFailure> {
        let end = at.saturating_add(into.len() as u64);
        if into.is_empty() {
            return Ok(());
        }
        let (first, last) = (at / CHUNK_BYTES, (end - 1) / CHUNK_BYTES);
        let goes_on = {
            let mut state = self.shared.lock();
            let goes_on = state.runs.note(at, end);
            let is_here = |number| matches!(state.chunks.get(&number), Some(Chunk::Here(_)));
            let all_here = (first..=last).all(is_here);
            if !goes_on && !all_here {
                drop(state);
                return self.shared.medium.read(at, into);
            }
            goes_on
        };
        if end > self.shared.medium.bytes() {
            return self.shared.medium.read(at, into);
        }
        for number in first..=last {
            let chunk = match self.shared.chunk(number) {
                Ok(chunk) => chunk,
                // What is damaged may lie beside what is asked for.
                Err(failure) if failure.is_damage => return self.shared.medium.read(at, into),
                Err(failure) => return Err(failure),
            };
            copy_part(number * CHUNK_BYTES, &chunk, at, into);
        }
        if goes_on && self.has_threads {
            self.shared.want(last);
        }
        Ok(())
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        // They end by themselves, and are not waited for: one may wait for a target that does not answer.
        self.shared.changed.notify_all();
    }
}

/// Copies what `chunk`, which begins at byte `start`, has of `into`, which begins at byte `at`.
fn copy_part(start: u64, chunk: &[u8], at: u64, into: &mut [u8]) {
    let from = at.max(start);
    let to = (at + into.len() as u64).min(start + chunk.len() as u64);
    let within = |base: u64| {
        let index = |byte: u64| usize::try_from(byte.saturating_sub(base)).unwrap_or(usize::MAX);
        index(from)..index(to)
    };
    if let (Some(into), Some(bytes)) = (into.get_mut(within(at)), chunk.get(within(start))) {
        into.copy_from_slice(bytes);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A chunk: it is here, or on its way and is waited for, or is fetched.
    fn chunk(&self, number: u64) -> Result<Arc<[u8]>, ReadFailure> {
        let mut state = self.lock();
        loop {
            match state.chunks.get(&number) {
                Some(Chunk::Here(bytes)) => return Ok(bytes.clone()),
                Some(Chunk::Coming) => {
                    // Where no thread has begun with it, whoever needs it fetches it.
                    let waiting = state.wanted.len();
                    state.wanted.retain(|&wanted| wanted != number);
                    if state.wanted.len() < waiting {
                        break;
                    }
                    let woken = self.changed.wait(state);
                    state = woken.unwrap_or_else(PoisonError::into_inner);
                }
                None => {
                    state.chunks.insert(number, Chunk::Coming);
                    break;
                }
            }
        }
        drop(state);
        self.fetch(number)
    }

    /// Fetches a chunk that is marked as coming.
    fn fetch(&self, number: u64) -> Result<Arc<[u8]>, ReadFailure> {
        let at = number * CHUNK_BYTES;
        let bytes = self.medium.bytes().saturating_sub(at).min(CHUNK_BYTES);
        let mut chunk = vec![0; usize::try_from(bytes).unwrap_or(0)];
        let read = self.medium.read(at, &mut chunk);
        let mut state = self.lock();
        let result = match read {
            Ok(()) => {
                let chunk: Arc<[u8]> = chunk.into();
                state.put(number, chunk.clone());
                Ok(chunk)
            }
            // Whoever waits for it tries for itself.
            Err(failure) => {
                state.chunks.remove(&number);
                Err(failure)
            }
        };
        drop(state);
        self.changed.notify_all();
        result
    }

    /// Has the chunks behind `last` fetched.
    fn want(&self, last: u64) {
        let end = self.medium.bytes().div_ceil(CHUNK_BYTES);
        let mut state = self.lock();
        let mut wanted = false;
        for number in (last + 1..end).take(usize::try_from(CHUNKS_AHEAD).unwrap_or(0)) {
            if !state.chunks.contains_key(&number) && state.chunks.len() < CHUNKS_MAX * 2 {
                state.chunks.insert(number, Chunk::Coming);
                state.wanted.push_back(number);
                wanted = true;
            }
        }
        drop(state);
        if wanted {
            self.changed.notify_all();
        }
    }

    /// A thread's life.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if state.over {
                return;
            }
            if let Some(number) = state.wanted.pop_front() {
                drop(state);
                // Why it failed is told to whoever needs it.
                let _ = self.fetch(number);
                state = self.lock();
                continue;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    fn put(&mut self, number: u64, bytes: Arc<[u8]>) {
        self.chunks.insert(number, Chunk::Here(bytes));
        self.here.push_back(number);
        while self.here.len() > CHUNKS_MAX {
            if let Some(oldest) = self.here.pop_front() {
                self.chunks.remove(&oldest);
            }
        }
    }
}

/// Where readers are.
#[derive(Default)]
struct Runs {
    runs: Vec<Run>,
    turn: u64,
}

struct Run {
    begin: u64,
    end: u64,
    /// Of its requests, together.
    bytes: u64,
    requests: u32,
    turn: u64,
}

impl Run {
    /// Whether a request that begins at `at` may be its next.
    fn is_near(&self, at: u64) -> bool {
        at <= self.end.saturating_add(RUN_SLACK_BYTES)
            && at.saturating_add(RUN_SLACK_BYTES) >= self.end
    }

    /// Whether it was read without large gaps: requests of a random order come near each other by chance.
    fn is_dense(&self) -> bool {
        self.bytes >= (self.end - self.begin) / 2
    }
}

impl Runs {
    /// Notes a request; says whether whoever made it goes on and on.
    fn note(&mut self, at: u64, end: u64) -> bool {
        self.turn += 1;
        let single = Run {
            begin: at,
            end,
            bytes: end - at,
            requests: 1,
            turn: self.turn,
        };
        if let Some(run) = self.runs.iter_mut().find(|run| run.is_near(at)) {
            run.begin = run.begin.min(at);
            run.end = run.end.max(end);
            run.bytes = run.bytes.saturating_add(end - at);
            run.requests = run.requests.saturating_add(1);
            run.turn = self.turn;
            if !run.is_dense() {
                *run = single;
                return false;
            }
            return run.requests >= RUN_REQUESTS && run.bytes >= RUN_BYTES;
        }
        if self.runs.len() < RUNS_MAX {
            self.runs.push(single);
        } else if let Some(oldest) = self.runs.iter_mut().min_by_key(|run| run.turn) {
            *oldest = single;
        }
        false
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers of a test")]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const BYTES: u64 = 10 * CHUNK_BYTES + 777;
    const BAD: u64 = 4 * CHUNK_BYTES + 5;

    /// Bytes that tell their place; one of them damaged.
    struct Numbers {
        reads: AtomicUsize,
        seen: Mutex<BTreeSet<(u64, usize)>>,
    }

    fn byte(at: u64) -> u8 {
        (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
    }

    impl Medium for Numbers {
        fn bytes(&self) -> u64 {
            BYTES
        }

        fn read(&self, at: u64, into: &mut [u8]) -> Result<(), ReadFailure> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.seen.lock().unwrap().insert((at, into.len()));
            assert!(at + into.len() as u64 <= BYTES);
            if (at..at + into.len() as u64).contains(&BAD) {
                let why = format!("byte {BAD} is damaged");
                let is_damage = true;
                return Err(ReadFailure { why, is_damage });
            }
            for (at, into) in (at..).zip(into) {
                *into = byte(at);
            }
            Ok(())
        }
    }

    fn numbers() -> (Arc<Numbers>, ReadAhead) {
        let numbers = Arc::new(Numbers {
            reads: AtomicUsize::new(0),
            seen: Mutex::default(),
        });
        let ahead = ReadAhead::new(numbers.clone());
        (numbers, ahead)
    }

    fn expect(at: u64, bytes: &[u8]) {
        assert!((at..).zip(bytes).all(|(at, &found)| found == byte(at)));
    }

    #[test]
    fn in_order_every_byte_comes_once_in_large_pieces_but_for_the_damaged_one() {
        let (numbers, ahead) = numbers();
        let step = 128 << 10;
        let mut failed = Vec::new();
        for at in (0..BYTES).step_by(step) {
            let mut bytes = vec![0; step.min((BYTES - at) as usize)];
            match ahead.read(at, &mut bytes) {
                Ok(()) => expect(at, &bytes),
                Err(failure) => failed.push((at, failure.why)),
            }
        }
        let at = BAD / step as u64 * step as u64;
        assert_eq!(failed, [(at, format!("byte {BAD} is damaged"))]);
        let seen = numbers.seen.lock().unwrap();
        let chunk = |number: u64| (number * CHUNK_BYTES, CHUNK_BYTES as usize);
        for number in (0..10).filter(|&number| number != 0) {
            assert!(seen.contains(&chunk(number)), "{number}: {seen:?}");
        }
        assert!(seen.contains(&(10 * CHUNK_BYTES, 777)), "{seen:?}");
    }

    #[test]
    fn here_and_there_no_more_is_read_than_was_asked_for() {
        let (numbers, ahead) = numbers();
        let places = [9, 2, 7, 0, 5, 3, 8, 1];
        for number in places {
            let mut bytes = [0; 4096];
            let at = number * CHUNK_BYTES + 8192;
            ahead.read(at, &mut bytes).unwrap();
            expect(at, &bytes);
        }
        assert_eq!(numbers.reads.load(Ordering::Relaxed), places.len());
        let seen = numbers.seen.lock().unwrap();
        assert!(seen.iter().all(|&(_, bytes)| bytes == 4096), "{seen:?}");
    }

    #[test]
    fn samples_in_a_random_order_are_no_run_though_they_come_near_each_other() {
        let (numbers, ahead) = numbers();
        let step = 16 << 10;
        let mut random = 7u64;
        let mut order = || {
            // Knuth's MMIX.
            random = random.wrapping_mul(6_364_136_223_846_793_005);
            random = random.wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % (BYTES / step) * step
        };
        let places = (0..200)
            .map(|_| order())
            .filter(|at| BAD / step != at / step);
        for at in places {
            let mut bytes = [0; 16 << 10];
            ahead.read(at, &mut bytes).unwrap();
            expect(at, &bytes);
        }
        let seen = numbers.seen.lock().unwrap();
        assert!(seen.iter().all(|&(_, bytes)| bytes == 16 << 10), "{seen:?}");
        assert!(numbers.reads.load(Ordering::Relaxed) <= 200);
    }

    #[test]
    fn many_at_once_all_read_right() {
        let (_, ahead) = numbers();
        let ahead = &ahead;
        thread::scope(|scope| {
            for reader in 0..8u64 {
                scope.spawn(move || {
                    let step = 64 << 10;
                    let first = reader % 4 * CHUNK_BYTES;
                    for at in (first..first + CHUNK_BYTES).step_by(step) {
                        let mut bytes = vec![0; step];
                        ahead.read(at, &mut bytes).unwrap();
                        expect(at, &bytes);
                    }
                });
            }
        });
    }
}
