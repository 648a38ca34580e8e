//! What the requests of one engine work with: memory, caches, counters.

use std::sync::Arc;

use reactor::buf::{IoBuf, Pool, PoolConfig};
use reactor::{ReactorError, Ring};
use telemetry::{PoolCounters, ReactorTelemetry};
use transforms::Scratch;
use volume::Cache;

use crate::EngineConfig;
use crate::ahead::Fills;
use crate::attached::Attached;
use crate::frames::Wanted;
use crate::limits::SHARE_OF_WHAT_IS_LEFT;

/// What requests work with.
pub(crate) struct Parts {
    answers: Pool,
    /// Bytes that the request at hand was given of it.
    pub(crate) granted: usize,
    /// Whether there is somebody to share it with.
    is_shared: bool,
    /// What hosts send.
    pub(crate) incoming: Pool,
    pub(crate) staging: Pool,
    /// For what is fetched ahead, and for plain frames.
    pub(crate) ahead_staging: Pool,
    /// Reads of stored bytes that wait for plain frames.
    pub(crate) fills: Fills,
    pub(crate) cache: Cache,
    pub(crate) scratch: Scratch,
    /// Stored bytes of a frame that lie in several pieces.
    pub(crate) assembly: Vec<u8>,
    /// Frames that requests want, on their way to [`Frames`].
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) telemetry: Arc<ReactorTelemetry>,
    /// This engine's number.
    pub(crate) reactor: u16,
    /// Another engine may wait for what happened here.
    pub(crate) wake_peers: bool,
}

impl Parts {
    pub(crate) fn new(ring: &Ring, config: &EngineConfig) -> Result<Self, ReactorError> {
        let unregistered = PoolConfig {
            register: false,
            ..config.pool.clone()
        };
        Ok(Self {
            answers: Pool::new(ring, &config.pool)?,
            granted: 0,
            is_shared: false,
            incoming: Pool::new(ring, &unregistered)?,
            staging: Pool::new(ring, &unregistered)?,
            ahead_staging: Pool::new(ring, &ahead_pool(config))?,
            fills: Fills::default(),
            cache: Cache::new(config.cache_bytes),
            scratch: Scratch::new(),
            assembly: Vec::new(),
            wanted: Vec::new(),
            telemetry: config
                .telemetry
                .clone()
                .unwrap_or_else(ReactorTelemetry::alone),
            reactor: 0,
            wake_peers: false,
        })
    }

    /// Says whether several namespaces share the memory of answers.
    pub(crate) fn share(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
    }

    /// Says how full the pools and the cache are.
    pub(crate) fn publish(&self) {
        let counters = &self.telemetry.counters;
        for (pool, counters) in [
            (&self.answers, &counters.answers),
            (&self.incoming, &counters.incoming),
            (&self.staging, &counters.staging),
        ] {
            publish_pool(pool, counters);
        }
        let cache = self.cache.counters();
        counters.cache_hits.set(cache.hits);
        counters.cache_misses.set(cache.misses);
        counters.cache_evictions.set(cache.evictions);
        counters.cache_used_bytes.set(cache.used_bytes as u64);
    }

    /// Bytes of the free memory that answers of `len` bytes could be made of.
    pub(crate) fn free_answer_bytes(&self, len: usize) -> usize {
        self.answers.free_bytes_for(len)
    }

    /// Memory for an answer of a namespace. Where several share the pool, one gets less of it the more it holds already, and the less is left: a
    /// namespace whose store does not answer ends at a part of the pool (the dynamic thresholds of shared switch memory: Choudhury and Hahne,
    /// 1998). One answer it always gets, if there is room.
    pub(crate) fn alloc_answer(&mut self, attached: &Attached, len: usize) -> Option<IoBuf> {
        if self.is_shared && attached.answer_bytes > 0 {
            let left = self.answers.free_bytes_for(len);
            if attached.answer_bytes + len > SHARE_OF_WHAT_IS_LEFT * left {
                return None;
            }
        }
        let before = self.answers.usage();
        let buf = self.answers.alloc(len)?;
        // Slots, not bytes: a small answer may have had to take a large one.
        self.granted += self.answers.usage().used_bytes - before.used_bytes;
        Some(buf)
    }
}

/// Staging for what is fetched ahead: less than for what is waited for, and next to none where nothing is.
fn ahead_pool(config: &EngineConfig) -> PoolConfig {
    let slots_1m = u32::try_from(config.ahead_bytes() >> 20).unwrap_or(u32::MAX);
    PoolConfig {
        slots_4k: 64,
        slots_16k: 32,
        slots_64k: 32,
        slots_128k: 16,
        slots_1m: slots_1m.clamp(1, 16),
        register: false,
    }
}

fn publish_pool(pool: &Pool, counters: &PoolCounters) {
    let usage = pool.usage();
    counters.used_bytes.set(usage.used_bytes as u64);
    counters.total_bytes.set(usage.total_bytes as u64);
    counters.refusals.set(usage.refusals);
}
