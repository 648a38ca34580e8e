//! The few aligned buffers of a handle for transfers that cannot go direct.

use reactor::buf::IoBuf;

use crate::error::StoreError;

/// Bytes of one bounce buffer: several blocks of the largest alignment.
pub(super) const BOUNCE_BYTES: usize = 256 << 10;
/// Buffers of a handle: unaligned transfers that move at the same time; more wait.
const BOUNCE_BUFFERS: usize = 8;

#[derive(Debug)]
pub(super) struct BouncePool {
    free: Vec<IoBuf>,
}

impl BouncePool {
    /// Buffers for direct I/O; none are needed through the page cache.
    pub(super) fn new(direct: bool, store: &str) -> Result<Self, StoreError> {
        let count = if direct { BOUNCE_BUFFERS } else { 0 };
        let free = (0..count)
            .map(|_| {
                IoBuf::heap(BOUNCE_BYTES).map_err(|error| StoreError::Resources {
                    store: store.to_owned(),
                    why: error.to_string(),
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { free })
    }

    pub(super) fn take(&mut self) -> Option<IoBuf> {
        self.free.pop()
    }

    pub(super) fn give_back(&mut self, buf: IoBuf) {
        self.free.push(buf);
    }
}
