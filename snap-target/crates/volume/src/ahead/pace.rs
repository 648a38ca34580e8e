//! How fast a store is, as its reader sees it.

/// A store that answers within this time needs nobody to read ahead: a reader's next command is there as soon.
const LATENCY_NS_MIN: u64 = 200_000;
/// Samples after which the least time is taken anew.
const SAMPLES: u32 = 64;
/// Fetches are a part of the new bandwidth by this, where it is less.
const SHARE: u64 = 8;

/// What is known of a store's latency and bandwidth. The latency is the least of the last times, so that what a queue adds does not count; the
/// bandwidth is what came while a fetch was under way.
#[derive(Debug, Default)]
pub struct Pace {
    latency_ns: Option<u64>,
    /// The least of the samples since `latency_ns` was taken.
    least_ns: Option<u64>,
    samples: u32,
    bytes_per_second: u64,
    /// Of all fetches that have ended.
    fetched_bytes: u64,
}

/// When a fetch began.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    at_ns: u64,
    fetched_bytes: u64,
}

impl Pace {
    /// An operation of the store took so long.
    pub fn operation(&mut self, took_ns: u64) {
        let least = self.least_ns.map_or(took_ns, |least| least.min(took_ns));
        self.least_ns = Some(least);
        self.latency_ns = Some(self.latency_ns.map_or(least, |known| known.min(least)));
        self.samples += 1;
        if self.samples == SAMPLES {
            self.latency_ns = self.least_ns.take();
            self.samples = 0;
        }
    }

    /// A fetch begins.
    #[must_use]
    pub fn begin(&self, now_ns: u64) -> Begun {
        Begun {
            at_ns: now_ns,
            fetched_bytes: self.fetched_bytes,
        }
    }

    /// A fetch of `bytes` presented bytes has ended.
    pub fn end(&mut self, begun: Begun, bytes: u64, now_ns: u64) {
        self.fetched_bytes += bytes;
        let took_ns = now_ns.saturating_sub(begun.at_ns).max(1);
        let came = u128::from(self.fetched_bytes - begun.fetched_bytes);
        let now = u64::try_from(came * 1_000_000_000 / u128::from(took_ns)).unwrap_or(u64::MAX);
        let known = self.bytes_per_second;
        self.bytes_per_second = now.max(known - known / SHARE + now / SHARE);
    }

    /// Whether reading ahead is worth it.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.latency_ns.is_some_and(|ns| ns >= LATENCY_NS_MIN)
    }

    /// Presented bytes that come in the time that an operation takes.
    #[must_use]
    pub fn carried_bytes(&self) -> u64 {
        let latency_ns = u128::from(self.latency_ns.unwrap_or(0));
        let bytes = u128::from(self.bytes_per_second) * latency_ns / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).min(1 << 40)
    }
}
