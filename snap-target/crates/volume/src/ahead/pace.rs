//! How fast a store is, as its reader sees it.

/// A store that answers within this time needs nobody to read ahead: a reader's next command is there as soon.
const LATENCY_NS_MIN: u64 = 200_000;
/// New figures are a part of the known ones by this.
const LATENCY_SHARE: u64 = 4;
const BANDWIDTH_SHARE: u64 = 8;

/// What is known of a store's latency and bandwidth. The latency is that of an operation which the store has alone: what others add by standing before it is
/// no reason to read further ahead. The bandwidth is what came while a fetch was under way.
#[derive(Debug, Default)]
pub struct Pace {
    latency_ns: Option<u64>,
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
    /// An operation of the store took so long. `was_alone`: the store had no other when it took it. Where others stood before it, it takes longer as a
    /// rule, so that such a time only counts where it is less than what is known.
    pub fn operation(&mut self, took_ns: u64, was_alone: bool) {
        self.latency_ns = Some(match self.latency_ns {
            None => took_ns,
            Some(known) if was_alone => known - known / LATENCY_SHARE + took_ns / LATENCY_SHARE,
            Some(known) => known.min(took_ns),
        });
    }

    /// A fetch begins.
    #[must_use]
    pub fn begin(&self, now_ns: u64) -> Begun {
        Begun {
            at_ns: now_ns,
            fetched_bytes: self.fetched_bytes,
        }
    }

    /// A fetch of `bytes` presented bytes has ended. One that took less than any operation does has asked for none, and says nothing.
    pub fn end(&mut self, begun: Begun, bytes: u64, now_ns: u64) {
        let took_ns = now_ns.saturating_sub(begun.at_ns).max(1);
        if self
            .latency_ns
            .is_none_or(|latency_ns| took_ns < latency_ns)
        {
            return;
        }
        self.fetched_bytes += bytes;
        let came = u128::from(self.fetched_bytes - begun.fetched_bytes);
        let now = u64::try_from(came * 1_000_000_000 / u128::from(took_ns)).unwrap_or(u64::MAX);
        let known = self.bytes_per_second;
        let mixed = known - known / BANDWIDTH_SHARE + now / BANDWIDTH_SHARE;
        self.bytes_per_second = now.max(mixed);
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
