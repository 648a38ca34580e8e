//! Registered memory of a queue, and copies between it and the buffers of commands.
//!
//! A peer that keeps the protocol reaches only what a key was given for; one that does not may write any of it at any time, where a device does not hold windows to
//! their ranges. So nothing here makes a reference to its bytes, and what came is looked at only after it was copied.

use std::sync::Arc;

use reactor::buf::{IoBuf, Mapping};
use verbs::{Access, Domain, HostMemory, Registration, ScatterEntry, VerbsError};

/// Memory of this process that a device may be told of.
#[derive(Debug)]
pub(crate) struct Mapped(Arc<Mapping>);

impl Mapped {
    /// # Errors
    /// There is none.
    pub(crate) fn new(bytes: usize) -> Result<Self, String> {
        let mapping = Mapping::new(bytes).map_err(|error| error.to_string())?;
        Ok(Self(Arc::new(mapping)))
    }

    /// Has the device know all of it.
    pub(crate) fn register(
        &self,
        domain: &Domain,
        access: Access,
    ) -> Result<Registration, VerbsError> {
        domain.register(&HostMemory::of_mapping(&self.0), access)
    }

    /// Has the device know a part of it.
    pub(crate) fn register_part(
        &self,
        domain: &Domain,
        (offset, len): (usize, usize),
        access: Access,
    ) -> Result<Registration, VerbsError> {
        let part = HostMemory::of_part(&self.0, offset, len).ok_or(VerbsError::OutOfBounds {
            offset: offset as u64,
            len: len as u64,
            registered: self.0.len() as u64,
        })?;
        domain.register(&part, access)
    }

    /// Copies a buffer's first `len` bytes in; false where it has fewer, or they do not fit.
    pub(crate) fn take_from(&self, buf: &IoBuf, offset: usize, len: usize) -> bool {
        let Some(mut to) = self.start_of(buf, offset, len) else {
            return false;
        };
        for (from, run) in buf.raw_segments(0, len) {
            // SAFETY: the buffer keeps its runs alive and readable, and they sum up to `len`, which fits behind `to` in the mapping. Nobody has a reference to the
            // mapping's bytes. The two are different memory: buffers do not come from this mapping.
            unsafe {
                std::ptr::copy_nonoverlapping(from.cast_const(), to, run);
                to = to.add(run);
            }
        }
        true
    }

    /// Copies `len` bytes out into a buffer; false where it has no room, or they are not there.
    pub(crate) fn give_to(&self, buf: &IoBuf, offset: usize, len: usize) -> bool {
        let Some(from) = self.start_of(buf, offset, len) else {
            return false;
        };
        // SAFETY: `from` is readable for `len` bytes of the mapping, which may change meanwhile.
        unsafe { buf.copy_from_raw(0, from.cast_const(), len) == len }
    }

    /// The first byte of a range of the mapping, where it is inside and the buffer is as long.
    fn start_of(&self, buf: &IoBuf, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        if end > self.0.len() || len > buf.len() {
            return None;
        }
        self.0.at(offset).map(std::ptr::NonNull::as_ptr)
    }
}

/// Memory that the device knows all of, for messages.
#[derive(Debug)]
pub(crate) struct Memory {
    mapped: Mapped,
    registration: Registration,
}

impl Memory {
    /// # Errors
    /// There is none, or it may not be locked.
    pub(crate) fn new(domain: &Domain, bytes: usize, access: Access) -> Result<Self, String> {
        let mapped = Mapped::new(bytes)?;
        let registration = mapped.register(domain, access);
        Ok(Self {
            registration: registration.map_err(|error| error.to_string())?,
            mapped,
        })
    }

    pub(crate) fn registration(&self) -> &Registration {
        &self.registration
    }

    pub(crate) fn entry(&self, offset: usize, len: u32) -> Result<ScatterEntry, VerbsError> {
        self.registration.entry(offset, len)
    }

    /// See [`Mapped::take_from`].
    pub(crate) fn take_from(&self, buf: &IoBuf, offset: usize, len: usize) -> bool {
        self.mapped.take_from(buf, offset, len)
    }
}
