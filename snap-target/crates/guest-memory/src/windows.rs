//! The table of windows, by guest address.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::loss::Loss;
use crate::shared::Shared;

/// The granularity of windows.
pub const PAGE_BYTES: u64 = 4096;

/// What a device may do with a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Read.
    pub read: bool,
    /// Write.
    pub write: bool,
}

impl Access {
    /// Reading and writing.
    pub const BOTH: Self = Self {
        read: true,
        write: true,
    };

    /// Whether it may be read and written.
    #[must_use]
    pub fn is_both(self) -> bool {
        self == Self::BOTH
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Out of guest memory.
    FromGuest,
    /// Into it.
    ToGuest,
}

/// A run of guest addresses.
#[derive(Clone, Debug)]
pub struct Window {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// What may be done with it.
    pub access: Access,
    /// Where it is mapped; none where it was not shared.
    pub memory: Option<Arc<Shared>>,
}

/// Why a window is not taken in, or not taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No whole pages, none at all, or beyond the last address.
    #[error("a window of {size:#x} bytes at {address:#x} is no run of pages")]
    Place {
        /// Where.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// Some of it is in another one.
    #[error("a window at {address:#x} overlaps the one at {other:#x}")]
    Overlaps {
        /// Where.
        address: u64,
        /// The other's address.
        other: u64,
    },
    /// As many as there may be.
    #[error("there are {limit} windows, and no more are possible")]
    TooMany {
        /// How many.
        limit: usize,
    },
    /// None was mapped exactly so.
    #[error("there is no window of {size:#x} bytes at {address:#x}")]
    Absent {
        /// Where.
        address: u64,
        /// Bytes.
        size: u64,
    },
}

/// Why guest memory is not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// In no window.
    #[error("address {address:#x} is in no window")]
    Outside {
        /// The first that is not.
        address: u64,
    },
    /// The window does not allow it.
    #[error("address {address:#x} may not be accessed so")]
    Denied {
        /// Where.
        address: u64,
    },
    /// The window was not shared: its bytes go by messages.
    #[error("address {address:#x} is in memory that was not shared")]
    NotShared {
        /// Where.
        address: u64,
    },
    /// The client has lost memory: nothing of it is touched any more.
    #[error(
        "address {address:#x} is of a client that has lost memory: a page of it could not be had"
    )]
    Lost {
        /// Where.
        address: u64,
    },
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// By address; none overlaps another.
    windows: Vec<Window>,
    /// Of whoever they are mapped for ([`Shared::map`]).
    loss: Arc<Loss>,
}

/// A run of bytes inside of one window.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Which.
    pub window: &'a Window,
    /// From its beginning.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Windows {
    /// None yet, of a client.
    #[must_use]
    pub fn of(loss: Arc<Loss>) -> Self {
        Self {
            windows: Vec::new(),
            loss,
        }
    }

    /// What says whether memory of its client is lost: asked before anything is told to it.
    #[must_use]
    #[inline]
    pub fn loss(&self) -> &Arc<Loss> {
        &self.loss
    }

    /// These and one more, where there are `limit` at most.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn with(&self, window: Window, limit: usize) -> Result<Self, Refused> {
        let (address, size) = (window.address, window.size);
        let is_whole =
            address.is_multiple_of(PAGE_BYTES) && size.is_multiple_of(PAGE_BYTES) && size > 0;
        if !is_whole || address.checked_add(size - 1).is_none() {
            return Err(Refused::Place { address, size });
        }
        let at = self.windows.partition_point(|it| it.address < address);
        let before = at.checked_sub(1).and_then(|at| self.windows.get(at));
        let overlapping = before
            .filter(|before| address - before.address < before.size)
            .or(self
                .windows
                .get(at)
                .filter(|after| after.address - address < size));
        if let Some(other) = overlapping {
            let other = other.address;
            return Err(Refused::Overlaps { address, other });
        }
        if self.windows.len() >= limit {
            return Err(Refused::TooMany { limit });
        }
        let mut windows = self.windows.clone();
        windows.insert(at, window);
        let loss = self.loss.clone();
        Ok(Self { windows, loss })
    }

    /// These without the one that was taken in exactly so, and what it was.
    ///
    /// # Errors
    /// [`Refused::Absent`].
    pub fn without(&self, address: u64, size: u64) -> Result<(Self, Window), Refused> {
        let found = self.windows.binary_search_by_key(&address, |it| it.address);
        let is_it = |at: &usize| self.windows.get(*at).is_some_and(|it| it.size == size);
        let Some(at) = found.ok().filter(is_it) else {
            return Err(Refused::Absent { address, size });
        };
        let mut windows = self.windows.clone();
        let window = windows.remove(at);
        let loss = self.loss.clone();
        Ok((Self { windows, loss }, window))
    }

    /// All of them, by address.
    pub fn iter(&self) -> impl Iterator<Item = &Window> {
        self.windows.iter()
    }

    /// The runs that bytes `[address, address + bytes)` are made of. It goes on to the first fault.
    pub fn runs(
        &self,
        address: u64,
        bytes: u64,
        way: Way,
    ) -> impl Iterator<Item = Result<Run<'_>, Fault>> {
        let mut at = address;
        let mut left = bytes;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let run = self.run_at(at, left, way);
            match &run {
                Ok(run) => {
                    left -= run.bytes;
                    // A window's last byte may be the last address: nothing is left then, or the next run is outside.
                    match at.checked_add(run.bytes) {
                        Some(next) => at = next,
                        None if left == 0 => {}
                        None => {
                            left = 0;
                            return Some(Err(Fault::Outside { address: u64::MAX }));
                        }
                    }
                }
                Err(_) => left = 0,
            }
            Some(run)
        })
    }

    /// Where bytes `[address, address + bytes)` are mapped, run by run, up to the first fault.
    ///
    /// # Errors
    /// That fault.
    #[inline]
    pub(crate) fn mapped(
        &self,
        address: u64,
        bytes: u64,
        way: Way,
        mut visit: impl FnMut(&Arc<Shared>, NonNull<u8>, usize),
    ) -> Result<(), Fault> {
        let (mut at, mut left) = (address, bytes);
        while left > 0 {
            let run = self.run_at(at, left, way)?;
            let not_shared = Fault::NotShared { address: at };
            let memory = run.window.memory.as_ref().ok_or(not_shared)?;
            let offset = usize::try_from(run.offset).map_err(|_| not_shared)?;
            let len = usize::try_from(run.bytes).map_err(|_| not_shared)?;
            visit(memory, memory.at(offset).ok_or(not_shared)?, len);
            left -= run.bytes;
            // A window's last byte may be the last address: nothing is left then, or the next run is outside.
            at = match at.checked_add(run.bytes) {
                Some(next) => next,
                None if left == 0 => return Ok(()),
                None => return Err(Fault::Outside { address: u64::MAX }),
            };
        }
        Ok(())
    }

    /// The first run: from an address to its window's end, or so many bytes. Inlined, since what it finds is larger than registers, and the processor waits for what was
    /// written in parts and is read as a whole.
    #[inline(always)]
    fn run_at(&self, address: u64, bytes: u64, way: Way) -> Result<Run<'_>, Fault> {
        let after = self.windows.partition_point(|it| it.address <= address);
        let window = after.checked_sub(1).and_then(|at| self.windows.get(at));
        let window = window
            .filter(|window| address - window.address < window.size)
            .ok_or(Fault::Outside { address })?;
        let allows = match way {
            Way::FromGuest => window.access.read,
            Way::ToGuest => window.access.write,
        };
        if !allows {
            return Err(Fault::Denied { address });
        }
        if self.loss.has_happened() {
            return Err(Fault::Lost { address });
        }
        let offset = address - window.address;
        let bytes = bytes.min(window.size - offset);
        Ok(Run {
            window,
            offset,
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Access = Access {
        read: true,
        write: true,
    };

    fn window(address: u64, size: u64) -> Window {
        Window {
            address,
            size,
            access: BOTH,
            memory: None,
        }
    }

    fn of(places: &[(u64, u64)]) -> Windows {
        places
            .iter()
            .fold(Windows::default(), |all, (address, size)| {
                all.with(window(*address, *size), 16).unwrap()
            })
    }

    #[test]
    fn windows_do_not_overlap() {
        let all = of(&[(0x4000, 0x2000), (0x8000, 0x1000)]);
        for (address, size, other) in [
            (0x4000, 0x2000, 0x4000),
            (0x3000, 0x2000, 0x4000),
            (0x5000, 0x1000, 0x4000),
            (0x5000, 0x8000, 0x4000),
            (0x6000, 0x3000, 0x8000),
            (0x0, 0x1_0000, 0x4000),
            (0x8000, u64::MAX - 0xFFFF, 0x8000),
        ] {
            let refused = all.with(window(address, size), 16).unwrap_err();
            assert_eq!(
                refused,
                Refused::Overlaps { address, other },
                "{address:#x}"
            );
        }
        for (address, size) in [(0x3000, 0x1000), (0x6000, 0x2000), (0x9000, 0x1000)] {
            assert!(all.with(window(address, size), 16).is_ok());
        }
        let last = window(u64::MAX - 0xFFF, 0x1000);
        assert!(all.with(last, 16).is_ok());
    }

    #[test]
    fn what_is_no_run_of_pages_is_refused() {
        for (address, size) in [
            (0x1001, 0x1000),
            (0x1000, 0x1001),
            (0x1000, 0),
            (u64::MAX - 0xFFF, 0x2000),
        ] {
            let refused = Windows::default().with(window(address, size), 16);
            assert_eq!(refused.unwrap_err(), Refused::Place { address, size });
        }
        let full = of(&[(0, 0x1000), (0x1000, 0x1000)]);
        let refused = full.with(window(0x2000, 0x1000), 2).unwrap_err();
        assert_eq!(refused, Refused::TooMany { limit: 2 });
    }

    #[test]
    fn a_window_goes_as_it_came() {
        let all = of(&[(0x4000, 0x2000), (0x8000, 0x1000)]);
        for (address, size) in [(0x4000, 0x1000), (0x5000, 0x1000), (0x9000, 0x1000)] {
            let refused = all.without(address, size).unwrap_err();
            assert_eq!(refused, Refused::Absent { address, size });
        }
        let (left, gone) = all.without(0x4000, 0x2000).unwrap();
        assert_eq!((gone.address, gone.size), (0x4000, 0x2000));
        let left: Vec<u64> = left.iter().map(|it| it.address).collect();
        assert_eq!(left, [0x8000]);
    }

    fn runs(all: &Windows, address: u64, bytes: u64, way: Way) -> Result<Vec<(u64, u64)>, Fault> {
        all.runs(address, bytes, way)
            .map(|run| run.map(|run| (run.window.address + run.offset, run.bytes)))
            .collect()
    }

    #[test]
    fn runs_go_on_from_window_to_window_and_no_further() {
        let all = of(&[(0x4000, 0x1000), (0x5000, 0x1000), (0x8000, 0x1000)]);
        let read = |address, bytes| runs(&all, address, bytes, Way::FromGuest);
        assert_eq!(read(0x4800, 0x100), Ok(vec![(0x4800, 0x100)]));
        assert_eq!(
            read(0x4800, 0x1000),
            Ok(vec![(0x4800, 0x800), (0x5000, 0x800)])
        );
        assert_eq!(read(0x5FFF, 2), Err(Fault::Outside { address: 0x6000 }));
        assert_eq!(read(0x3FFF, 2), Err(Fault::Outside { address: 0x3FFF }));
        assert_eq!(read(0, 1), Err(Fault::Outside { address: 0 }));
        assert_eq!(read(u64::MAX, 2), Err(Fault::Outside { address: u64::MAX }));
        assert_eq!(read(0x7000, 0), Ok(vec![]));
        let top = of(&[(u64::MAX - 0xFFF, 0x1000)]);
        let last = runs(&top, u64::MAX, 1, Way::FromGuest);
        assert_eq!(last, Ok(vec![(u64::MAX, 1)]));
        let beyond = runs(&top, u64::MAX, 2, Way::FromGuest);
        assert_eq!(beyond, Err(Fault::Outside { address: u64::MAX }));
    }

    #[test]
    fn what_a_window_does_not_allow_is_denied() {
        let rom = Window {
            access: Access {
                read: true,
                write: false,
            },
            ..window(0x5000, 0x1000)
        };
        let all = of(&[(0x4000, 0x1000)]).with(rom, 16).unwrap();
        assert!(runs(&all, 0x4000, 0x2000, Way::FromGuest).is_ok());
        let denied = runs(&all, 0x4000, 0x2000, Way::ToGuest);
        assert_eq!(denied, Err(Fault::Denied { address: 0x5000 }));
    }
}
