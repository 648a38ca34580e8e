//! The memory through which data of commands go, and the keys that let a peer at it.

use nvme::queue::Slot;
use nvme::rdma::host::{Grant, Lasts};
use reactor::buf::IoBuf;
use verbs::{Access, Device, Domain, MemoryWindow, Operation, Registration, VerbsError};

use crate::limits::STAGING_PAGE_BYTES;
use crate::memory::Mapped;

/// How a peer is let at a command's part.
#[derive(Debug)]
enum Keys {
    /// A window for each slot, bound to its part of what is registered as a whole.
    Windows {
        windows: Vec<MemoryWindow>,
        whole: Registration,
    },
    /// Each slot's part is registered by itself, from before its capsule is sent until its memory is another's.
    Regions {
        domain: Domain,
        of_slots: Vec<Option<Registration>>,
    },
}

/// What a slot has.
#[derive(Clone, Copy, Debug)]
struct Held {
    part: Part,
    bytes: u32,
    access: Access,
}

/// A part for a command, or why there is none.
#[derive(Debug)]
pub(crate) enum Taken {
    Granted(Grant),
    /// A command that ends makes room.
    Full,
    /// The device takes no more registrations now, or no more memory may be locked: what others hold comes back.
    Later,
    /// It is longer than all of the staging.
    TooLong,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Staging {
    // In the order in which they go.
    keys: Keys,
    memory: Mapped,
    pages: Pages,
    slots: Vec<Option<Held>>,
}

impl Staging {
    /// With a window for each slot where the device has as many, and they are wanted.
    ///
    /// # Errors
    /// There is no memory, or it may not be locked: in words.
    pub(crate) fn new(
        device: &Device,
        domain: Domain,
        slots: u16,
        bytes: usize,
        with_windows: bool,
    ) -> Result<Self, String> {
        let pages = Pages::new(bytes);
        let memory = Mapped::new(pages.bytes())?;
        let windows = with_windows
            .then(|| windows(device, &domain, slots))
            .flatten();
        let keys = match windows {
            Some(windows) => {
                let whole = memory.register(&domain, Access::LOCAL_WRITE | Access::WINDOW_BIND);
                let whole = whole.map_err(|error| error.to_string())?;
                Keys::Windows { windows, whole }
            }
            None => {
                // So that too little that may be locked is told here, and not with the first command.
                let whole = memory.register(&domain, Access::LOCAL_WRITE);
                let whole = whole.map_err(|error| error.to_string())?;
                whole.deregister().map_err(|(_, error)| error.to_string())?;
                Keys::Regions {
                    domain,
                    of_slots: (0..slots).map(|_| None).collect(),
                }
            }
        };
        Ok(Self {
            keys,
            memory,
            pages,
            slots: vec![None; slots.into()],
        })
    }

    /// Memory for `bytes` of a command that the peer reads, which are copied in, or writes.
    pub(crate) fn take(&mut self, slot: Slot, bytes: u32, going_out: Option<&IoBuf>) -> Taken {
        if bytes as usize > self.pages.bytes() {
            return Taken::TooLong;
        }
        let Some(part) = self.pages.take(bytes) else {
            return Taken::Full;
        };
        let access = match going_out {
            Some(_) => Access::REMOTE_READ,
            None => Access::REMOTE_WRITE,
        };
        let held = Held {
            part,
            bytes,
            access,
        };
        match self.grant(slot, held) {
            Ok(grant) => {
                if let Some(buf) = going_out {
                    self.memory.take_from(buf, part.offset, bytes as usize);
                }
                if let Some(place) = self.slots.get_mut(slot.index()) {
                    *place = Some(held);
                }
                Taken::Granted(grant)
            }
            Err(error) => {
                self.pages.give_back(part);
                tracing::debug!(%error, bytes, "memory for a command is registered later");
                Taken::Later
            }
        }
    }

    fn grant(&mut self, slot: Slot, held: Held) -> Result<Grant, VerbsError> {
        let no_slot = VerbsError::Misuse {
            call: "Staging::take",
            what: "the slot is beyond the queue's depth",
        };
        let Held {
            part,
            bytes,
            access,
        } = held;
        match &mut self.keys {
            Keys::Windows { windows, whole } => {
                let window = windows.get(slot.index()).ok_or(no_slot)?;
                Ok(Grant {
                    address: whole.remote_address(part.offset)?,
                    key: window.next_rkey().0,
                    lasts: Lasts::AsTheCommand,
                })
            }
            Keys::Regions { domain, of_slots } => {
                let place = of_slots.get_mut(slot.index()).ok_or(no_slot)?;
                let access = access | Access::LOCAL_WRITE;
                let range = (part.offset, bytes as usize);
                let region = self.memory.register_part(domain, range, access)?;
                let grant = Grant {
                    address: region.remote_address(0)?,
                    key: region.rkey().0,
                    lasts: Lasts::AsTheConnection,
                };
                *place = Some(region);
                Ok(grant)
            }
        }
    }

    /// What makes a slot's key good: to be posted in front of its capsule. None where it is already.
    pub(crate) fn bind(&self, slot: Slot) -> Option<Operation<'_>> {
        let Keys::Windows { windows, whole } = &self.keys else {
            return None;
        };
        let held = self.slots.get(slot.index()).copied().flatten()?;
        Some(Operation::Bind {
            window: windows.get(slot.index())?,
            registration: whole,
            offset: held.part.offset,
            len: held.bytes as usize,
            access: held.access,
        })
    }

    /// Copies what the peer wrote for a command into its buffer; false where there is nothing.
    pub(crate) fn fetch(&self, slot: Slot, buf: &IoBuf, bytes: u32) -> bool {
        let held = self.slots.get(slot.index()).copied().flatten();
        held.is_some_and(|held| {
            bytes <= held.bytes && self.memory.give_to(buf, held.part.offset, bytes as usize)
        })
    }

    /// The command of a slot is over: its memory is another's, and the peer's key to it is good no more.
    pub(crate) fn release(&mut self, slot: Slot) {
        let Some(held) = self.slots.get_mut(slot.index()).and_then(Option::take) else {
            return;
        };
        if let Keys::Regions { of_slots, .. } = &mut self.keys
            && let Some(region) = of_slots.get_mut(slot.index()).and_then(Option::take)
            && let Err((region, error)) = region.deregister()
        {
            // The peer may write there still: it stays nobody's, and goes with the queue.
            tracing::warn!(%error, bytes = region.len(), "the device keeps a registration whose command is over");
            return;
        }
        self.pages.give_back(held.part);
    }

    /// The windows, which go before their queue pair: Linux's soft-RoCE counts bound windows among its users, and would wait for them, 50 s long.
    pub(crate) fn drop_windows(&mut self) {
        if let Keys::Windows { windows, .. } = &mut self.keys {
            windows.clear();
        }
    }
}

/// A window for each slot; none where the device has not as many.
fn windows(device: &Device, domain: &Domain, slots: u16) -> Option<Vec<MemoryWindow>> {
    let attributes = device.attributes();
    if !attributes.mw_type_2b || !attributes.invalidate {
        return None;
    }
    let windows = (0..slots).map(|_| domain.allocate_window());
    match windows.collect::<Result<Vec<_>, _>>() {
        Ok(windows) => Some(windows),
        Err(error) => {
            tracing::warn!(
                %error, device = attributes.name,
                "the device has no memory windows left: memory is registered for each command of this queue"
            );
            None
        }
    }
}

/// A part of the staging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) offset: usize,
    pages: usize,
}

/// Which pages of the staging are taken: a run of pages at a time.
#[derive(Debug)]
pub(crate) struct Pages {
    /// A bit for each.
    taken: Box<[u64]>,
}

impl Pages {
    /// For so many bytes, in whole words of pages.
    pub(crate) fn new(bytes: usize) -> Self {
        let words = bytes / STAGING_PAGE_BYTES / 64;
        Self {
            taken: vec![0; words.max(1)].into(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.taken.len() * 64 * STAGING_PAGE_BYTES
    }

    /// The first run that has room.
    pub(crate) fn take(&mut self, bytes: u32) -> Option<Part> {
        let pages = (bytes as usize).div_ceil(STAGING_PAGE_BYTES).max(1);
        let count = self.taken.len() * 64;
        let (mut page, mut run) = (0, 0);
        while page < count {
            if page % 64 == 0 && self.taken[page / 64] == u64::MAX {
                (page, run) = (page + 64, 0);
                continue;
            }
            run = if self.is_taken(page) { 0 } else { run + 1 };
            page += 1;
            if run == pages {
                let first = page - pages;
                self.mark(first, pages, true);
                let offset = first * STAGING_PAGE_BYTES;
                return Some(Part { offset, pages });
            }
        }
        None
    }

    pub(crate) fn give_back(&mut self, part: Part) {
        self.mark(part.offset / STAGING_PAGE_BYTES, part.pages, false);
    }

    fn is_taken(&self, page: usize) -> bool {
        self.taken[page / 64] >> (page % 64) & 1 == 1
    }

    fn mark(&mut self, first: usize, pages: usize, taken: bool) {
        for page in first..first + pages {
            let bit = 1 << (page % 64);
            if taken {
                self.taken[page / 64] |= bit;
            } else {
                self.taken[page / 64] &= !bit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_come_back() {
        let mut pages = Pages::new(512 << 10);
        assert_eq!(pages.bytes(), 512 << 10);
        let offset = |part: Option<Part>| part.map(|part| part.offset);
        let first = pages.take(1);
        let second = pages.take(4097);
        let third = pages.take(500 << 10);
        assert_eq!(offset(first), Some(0));
        assert_eq!(offset(second), Some(4096));
        assert_eq!(offset(third), Some(12288));
        assert_eq!(pages.take(1), None, "it is full");
        pages.give_back(second.unwrap());
        assert_eq!(pages.take(8193), None, "two pages are there, not three");
        assert_eq!(offset(pages.take(8192)), Some(4096));
        pages.give_back(first.unwrap());
        pages.give_back(third.unwrap());
        assert_eq!(offset(pages.take(500 << 10)), Some(12288));
        assert_eq!(pages.take((512 << 10) + 1), None, "more than there is");
    }
}
