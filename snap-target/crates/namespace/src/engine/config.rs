//! What an engine is made with, and why it cannot be.

use std::sync::Arc;
use std::time::Duration;

use reactor::buf::PoolConfig;
use store::StoreError;
use telemetry::ReactorTelemetry;

use crate::NamespaceKey;
use crate::frames::FrameConfig;
use crate::limits::KEEP_PATIENCE;

/// Memory of one engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Buffers that answers travel in, buffers for what hosts send, and staging for what stores deliver. Three pools of this shape: a request
    /// that holds an answer buffer waits for staging only, and staging is always given back, so no two requests wait for each other; and a
    /// host that does not send what it announced holds nothing that reads need.
    pub pool: PoolConfig,
    /// Budget of the frame cache and the table cache.
    pub cache_bytes: usize,
    /// What may be fetched ahead and not read yet, as presented bytes of each namespace; half of `cache_bytes` at most. 0: nothing is fetched ahead.
    pub prefetch_bytes: usize,
    /// How frames are decoded and shared.
    pub frames: FrameConfig,
    /// How long a record that must survive restarts may take to reach stable storage before the request that wants it fails.
    pub keep_patience: Duration,
    /// Where it counts what it does; none: in a place of its own.
    pub telemetry: Option<Arc<ReactorTelemetry>>,
}

impl EngineConfig {
    /// What may be fetched ahead and not read yet: what is read leaves first, so the cache holds it with what is on its way.
    pub(crate) fn ahead_bytes(&self) -> usize {
        self.prefetch_bytes.min(self.cache_bytes / 2)
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            pool: PoolConfig::default(),
            cache_bytes: 64 << 20,
            prefetch_bytes: 0,
            frames: FrameConfig::default(),
            keep_patience: KEEP_PATIENCE,
            telemetry: None,
        }
    }
}

/// Why an engine could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A store gave no handle.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A key that the engine has: it names one namespace, and a detach would leave the other.
    #[error("namespace {key} is attached already")]
    Twice {
        /// Which.
        key: NamespaceKey,
    },
    /// No memory for the pools.
    #[error(transparent)]
    Reactor(#[from] reactor::ReactorError),
}
