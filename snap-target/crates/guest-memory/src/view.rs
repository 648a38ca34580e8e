//! Buffers over guest memory.

use std::rc::Rc;
use std::sync::Arc;

use reactor::buf::{IoBuf, Lease, RegionId};

use crate::shared::Shared;
use crate::windows::{Fault, Way, Windows};

/// What a thread's buffers keep windows mapped with. Dropped or cleared, it keeps none but those that buffers still lie in.
#[derive(Debug, Default)]
pub struct Leases {
    of: Vec<(RegionId, Rc<Lease>)>,
}

impl Leases {
    /// Forgets them: after a change of windows.
    pub fn clear(&mut self) {
        self.of.clear();
    }

    /// A buffer over pieces of guest memory (address, bytes), in their order, for bytes that go `way`.
    ///
    /// # Errors
    /// The first byte that cannot be reached so.
    #[inline(always)]
    pub fn view(
        &mut self,
        windows: &Windows,
        pieces: impl IntoIterator<Item = (u64, u32)>,
        way: Way,
    ) -> Result<IoBuf, Fault> {
        let mut buf = IoBuf::empty();
        self.append(&mut buf, windows, pieces, way)?;
        Ok(buf)
    }

    /// The same, put behind what `buf` holds: where the buffer is to stay, for one that is moved is read wider than it was written, and waits there for every store
    /// before it, those to lines that the guest's processor has among them.
    ///
    /// # Errors
    /// The first byte that cannot be reached so; some of what is before it is in the buffer.
    #[inline(always)]
    pub fn append(
        &mut self,
        buf: &mut IoBuf,
        windows: &Windows,
        pieces: impl IntoIterator<Item = (u64, u32)>,
        way: Way,
    ) -> Result<(), Fault> {
        for (address, bytes) in pieces {
            windows.mapped(address, u64::from(bytes), way, |memory, ptr, len| {
                let lease = self.lease(memory);
                // A piece's length is 32 bits, and a run of it no longer.
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                // SAFETY: the run lies inside of the window, whose mapping is as long as it; the lease holds that; what the way asks for, the window
                // allows, and it was mapped so.
                unsafe { buf.push_guest(lease, ptr, len) };
            })?;
        }
        Ok(())
    }

    fn lease(&mut self, memory: &Arc<Shared>) -> Rc<Lease> {
        let region = memory.region();
        let known = self.of.iter().find(|(id, _)| *id == region.id());
        if let Some((_, lease)) = known {
            return lease.clone();
        }
        let lease = Lease::new(memory.clone(), region);
        self.of.push((region.id(), lease.clone()));
        lease
    }
}
