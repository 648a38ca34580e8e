//! A ring, a pool and a handle, and the way to wait for completions.

use std::time::{Duration, Instant};

use reactor::buf::{IoBuf, Pool, PoolConfig};
use reactor::{Ring, RingConfig, Wait};

use crate::contract::{Completion, Limits, Op, Store, Token};
use crate::shared::SharedStore;

/// Longer than any healthy store takes for one batch of these checks.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Rig {
    pub(super) store: Box<dyn Store>,
    pub(super) pool: Pool,
    pub(super) ring: Ring,
    pub(super) completions: Vec<Completion>,
}

impl Rig {
    pub(super) fn new(shared: &SharedStore) -> Self {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let pool = Pool::new(&ring, &PoolConfig::default()).unwrap();
        Self {
            store: shared.open_handle(&ring).unwrap(),
            pool,
            ring,
            completions: Vec::new(),
        }
    }

    pub(super) fn limits(&self) -> Limits {
        self.store.limits().clone()
    }

    /// Submits what must be taken.
    pub(super) fn submit(&mut self, op: Op, buf: Option<IoBuf>, token: u64) {
        if let Err(rejected) = self.store.submit(op, buf, Token(token)) {
            panic!("{op:?} must be taken, but: {rejected}");
        }
    }

    /// Polls, turning the ring, until `count` completions are there.
    pub(super) fn wait(&mut self, count: usize) -> Vec<Completion> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.store.poll(&mut self.completions);
            if self.completions.len() >= count {
                return std::mem::take(&mut self.completions);
            }
            assert!(
                Instant::now() < deadline,
                "{} of {count} completions came",
                self.completions.len()
            );
            self.ring
                .turn(Wait::Block {
                    until: Some(deadline),
                })
                .unwrap();
        }
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
