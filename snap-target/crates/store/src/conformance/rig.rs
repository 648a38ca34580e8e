//! A ring, a pool and a handle, and the way to wait for completions.

use std::rc::Rc;
use std::time::{Duration, Instant};

use reactor::buf::{IoBuf, Mapping, PAGE_BYTES, Pool, PoolConfig};
use reactor::{Ring, RingConfig, Wait};

use crate::contract::{Completion, Limits, Op, Store, Terms, Token};
use crate::shared::SharedStore;

pub(super) struct Rig {
    pub(super) store: Box<dyn Store>,
    pub(super) pool: Pool,
    pub(super) ring: Ring,
    pub(super) completions: Vec<Completion>,
    patience: Duration,
}

impl Rig {
    pub(super) fn new(shared: &SharedStore, patience: Duration) -> Self {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let pool = Pool::new(&ring, &PoolConfig::default()).unwrap();
        Self {
            store: shared.open_handle(&ring).unwrap(),
            pool,
            ring,
            completions: Vec::new(),
            patience,
        }
    }

    pub(super) fn limits(&self) -> Limits {
        self.store.limits().clone()
    }

    /// Submits what must be taken.
    pub(super) fn submit(&mut self, op: Op, buf: Option<IoBuf>, token: u64) {
        if let Err(rejected) = self.store.submit(op, buf, Token(token), Terms::default()) {
            panic!("{op:?} must be taken, but: {rejected}");
        }
    }

    /// Polls, turning the ring, until `count` completions are there.
    pub(super) fn wait(&mut self, count: usize) -> Vec<Completion> {
        self.wait_for(count, self.patience)
    }

    /// As [`Rig::wait`], for so long.
    pub(super) fn wait_for(&mut self, count: usize, patience: Duration) -> Vec<Completion> {
        let deadline = Instant::now() + patience;
        self.store.poll(&mut self.completions);
        while self.completions.len() < count {
            self.ring
                .turn(Wait::Block {
                    until: Some(deadline),
                })
                .unwrap();
            // Before the poll: a completion that only a poll finds has woken nobody.
            assert!(
                Instant::now() < deadline,
                "{} of {count} completions came within {patience:?}, and nothing woke the ring for more",
                self.completions.len()
            );
            self.store.poll(&mut self.completions);
        }
        std::mem::take(&mut self.completions)
    }

    /// Turns and polls a little: nothing more may come.
    pub(super) fn expect_quiet(&mut self) {
        for _ in 0..3 {
            self.ring.turn(Wait::Poll).unwrap();
            self.store.poll(&mut self.completions);
        }
        assert!(
            self.completions.is_empty(),
            "a completion without an operation: {:?}",
            self.completions
        );
    }

    /// One operation from submit to its successful end; gives its buffer back.
    pub(super) fn run(&mut self, op: Op, buf: Option<IoBuf>) -> Option<IoBuf> {
        let expected = buf.as_ref().map_or(0, IoBuf::len);
        self.submit(op, buf, u64::MAX);
        let mut done = self.wait(1);
        assert_eq!(done.len(), 1, "one completion for one operation");
        let done = done.remove(0);
        assert_eq!(
            done.token,
            Token(u64::MAX),
            "the completion carries the token"
        );
        match done.result {
            Ok(count) => assert_eq!(
                count as usize, expected,
                "{op:?} completes with all its bytes"
            ),
            Err(error) => panic!("{op:?} failed: {error}"),
        }
        assert_eq!(
            done.buf.is_some(),
            op.takes_buffer(),
            "the buffer comes back"
        );
        done.buf
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let buf = IoBuf::from_bytes(bytes).unwrap();
        self.run(
            Op::Write {
                offset,
                durable: false,
            },
            Some(buf),
        );
    }

    pub(super) fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        let buf = self.run(Op::Read { offset }, Some(IoBuf::heap(len).unwrap()));
        buf.unwrap().to_vec()
    }
}

/// A buffer of `len` bytes cut into segments as `cuts` says (over and over), the first one `skew` bytes off its page.
pub(super) fn segmented(len: usize, cuts: &[usize], skew: usize) -> IoBuf {
    let mut buf = IoBuf::empty();
    let mut left = len;
    for (index, &cut) in cuts.iter().cycle().enumerate() {
        if left == 0 {
            break;
        }
        let part = cut.min(left);
        let skew = if index == 0 { skew } else { 0 };
        buf.append(IoBuf::heap(part + skew).unwrap().slice(skew..skew + part));
        left -= part;
    }
    buf
}

/// A buffer of `len` bytes as a guest has it: 4 KiB pages, the first one from its middle on, the last one up to its middle.
pub(super) fn scattered_pages(len: usize) -> IoBuf {
    let mut buf = segmented(2048, &[2048], 2048);
    let mut left = len - 2048;
    while left > 0 {
        let part = left.min(4096);
        buf.append(IoBuf::heap(part).unwrap());
        left -= part;
    }
    buf
}

/// `len` bytes in the memory of something that plays a guest: pages that are scattered, none beside its neighbour.
pub(super) fn guest_pages(len: usize) -> IoBuf {
    let pages = len.div_ceil(PAGE_BYTES) + 1;
    let memory = Rc::new(Mapping::new(2 * PAGE_BYTES * pages).unwrap());
    let mut parts = Vec::new();
    let mut left = len;
    for page in 0..pages {
        // The first page from its middle on.
        let skip = if page == 0 { PAGE_BYTES / 2 } else { 0 };
        let part = left.min(PAGE_BYTES - skip);
        parts.push((2 * PAGE_BYTES * page + skip, u32::try_from(part).unwrap()));
        left -= part;
    }
    IoBuf::guest_in(&memory, &parts).unwrap()
}

/// Bytes that tell their place: a different content for each `seed`.
pub(super) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    bytes.truncate(len);
    bytes
}

/// splitmix64: small, seeded, the same everywhere.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}
