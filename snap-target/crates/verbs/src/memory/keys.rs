//! Registered memory and windows by their keys, and the copies that a device makes.

#![allow(
    unsafe_code,
    reason = "copies by address, as a device makes them; each block says why"
)]

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::bytes;
use crate::domain::ScatterEntry;
use crate::key::{Access, LKey, QpNumber, RKey};

/// A run of memory as a work request names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sge {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) lkey: LKey,
}

pub(super) type Sges = SmallVec<[Sge; 2]>;

pub(super) fn sges(entries: &[ScatterEntry]) -> Sges {
    let sge = |entry: &ScatterEntry| Sge {
        address: entry.address,
        len: entry.len,
        lkey: entry.lkey,
    };
    entries.iter().map(sge).collect()
}

/// A domain's number; its own for each node's domain.
pub(super) type DomainNumber = u64;

#[derive(Clone, Copy, Debug)]
struct Region {
    domain: DomainNumber,
    address: u64,
    len: u64,
    access: Access,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    qp: QpNumber,
    address: u64,
    len: u64,
    access: Access,
    region: u32,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Region(Region),
    Window {
        domain: DomainNumber,
        bound: Option<Bound>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The whole key: index and tag.
    key: u32,
    what: What,
}

/// The protection check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Denied;

/// What a bind asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bind {
    pub(super) window: RKey,
    pub(super) next: RKey,
    pub(super) region: LKey,
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) access: Access,
}

#[derive(Debug, Default)]
pub(super) struct Keys {
    /// By index: a key without its tag.
    entries: BTreeMap<u32, Entry>,
    last_index: u32,
}

impl Keys {
    fn insert(&mut self, tag: u64, what: What) -> u32 {
        // Indexes are 24 bits wide, and used again only after all others.
        loop {
            self.last_index = (self.last_index + 1) & 0x00ff_ffff;
            if self.last_index != 0 && !self.entries.contains_key(&self.last_index) {
                break;
            }
        }
        let key = (self.last_index << 8) | (tag & 0xff) as u32;
        self.entries.insert(self.last_index, Entry { key, what });
        key
    }

    pub(super) fn add_region(
        &mut self,
        tag: u64,
        domain: DomainNumber,
        address: u64,
        len: u64,
        access: Access,
    ) -> u32 {
        self.insert(
            tag,
            What::Region(Region {
                domain,
                address,
                len,
                access,
            }),
        )
    }

    pub(super) fn add_window(&mut self, tag: u64, domain: DomainNumber) -> u32 {
        self.insert(
            tag,
            What::Window {
                domain,
                bound: None,
            },
        )
    }

    pub(super) fn remove(&mut self, key: u32) {
        self.entries.remove(&(key >> 8));
    }

    pub(super) fn has_windows(&self, key: u32) -> bool {
        self.entries.values().any(
            |entry| matches!(entry.what, What::Window { bound: Some(bound), .. } if bound.region == key >> 8),
        )
    }

    fn region(&self, key: u32) -> Result<Region, Denied> {
        match self.entries.get(&(key >> 8)) {
            Some(Entry {
                key: whole,
                what: What::Region(region),
            }) if *whole == key => Ok(*region),
            _ => Err(Denied),
        }
    }

    fn local(&self, sge: Sge, domain: DomainNumber, access: Access) -> Result<(), Denied> {
        let region = self.region(sge.lkey.0)?;
        let fits = within(region.address, region.len, sge.address, sge.len.into());
        if fits && region.domain == domain && region.access.contains(access) {
            return Ok(());
        }
        Err(Denied)
    }

    /// The bytes that a list of entries names.
    pub(super) fn gather(&self, sges: &[Sge], domain: DomainNumber) -> Result<Vec<u8>, Denied> {
        let mut out = Vec::new();
        for sge in sges.iter().filter(|sge| sge.len > 0) {
            self.local(*sge, domain, Access::LOCAL_READ)?;
            // SAFETY: the range is inside a region that is registered: its registration keeps it mapped until it is out of this table.
            unsafe { load(sge.address, sge.len as usize, &mut out) };
        }
        Ok(out)
    }

    /// Bytes into what a list of entries names, which has room for them. Nothing is written where an entry is denied.
    pub(super) fn scatter(
        &self,
        sges: &[Sge],
        domain: DomainNumber,
        content: &[u8],
    ) -> Result<(), Denied> {
        for sge in sges.iter().filter(|sge| sge.len > 0) {
            self.local(*sge, domain, Access::LOCAL_WRITE)?;
        }
        let mut left = content;
        for sge in sges {
            let (part, rest) = left.split_at(left.len().min(sge.len as usize));
            // SAFETY: as in `gather`, and the region is one for writing.
            unsafe { store(sge.address, part) };
            left = rest;
        }
        Ok(())
    }

    /// Whether a peer of queue pair `qp` may reach a range.
    fn remote(
        &self,
        qp: QpNumber,
        domain: DomainNumber,
        rkey: RKey,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<(), Denied> {
        let entry = self
            .entries
            .get(&(rkey.0 >> 8))
            .filter(|entry| entry.key == rkey.0)
            .ok_or(Denied)?;
        let (of, base, bytes, allowed) = match entry.what {
            What::Region(region) => (region.domain, region.address, region.len, region.access),
            What::Window {
                domain,
                bound: Some(bound),
            } if bound.qp == qp => (domain, bound.address, bound.len, bound.access),
            What::Window { .. } => return Err(Denied),
        };
        if of == domain && within(base, bytes, address, len) && allowed.contains(access) {
            return Ok(());
        }
        Err(Denied)
    }

    pub(super) fn remote_read(
        &self,
        qp: QpNumber,
        domain: DomainNumber,
        rkey: RKey,
        address: u64,
        len: u32,
    ) -> Result<Vec<u8>, Denied> {
        let mut out = Vec::new();
        // Without bytes there is nothing to protect (InfiniBand spec, C9-88).
        if len > 0 {
            self.remote(qp, domain, rkey, address, len.into(), Access::REMOTE_READ)?;
            // SAFETY: as in `gather`; a window lies inside a region that stays registered as long as the window is bound.
            unsafe { load(address, len as usize, &mut out) };
        }
        Ok(out)
    }

    pub(super) fn remote_write(
        &self,
        qp: QpNumber,
        domain: DomainNumber,
        rkey: RKey,
        address: u64,
        content: &[u8],
    ) -> Result<(), Denied> {
        if !content.is_empty() {
            self.remote(
                qp,
                domain,
                rkey,
                address,
                content.len() as u64,
                Access::REMOTE_WRITE,
            )?;
            // SAFETY: as in `remote_read`, and it is for writing.
            unsafe { store(address, content) };
        }
        Ok(())
    }

    /// Binds a window; it must be bound to nothing.
    pub(super) fn bind(
        &mut self,
        qp: QpNumber,
        domain: DomainNumber,
        bind: Bind,
    ) -> Result<(), Denied> {
        let region = self.region(bind.region.0)?;
        let fits = within(region.address, region.len, bind.address, bind.len);
        if !fits || region.domain != domain || !region.access.contains(Access::WINDOW_BIND) {
            return Err(Denied);
        }
        match self.entries.get_mut(&(bind.window.0 >> 8)) {
            Some(Entry {
                key,
                what:
                    What::Window {
                        domain: of,
                        bound: bound @ None,
                    },
            }) if *key == bind.window.0 && *of == domain => {
                *key = bind.next.0;
                *bound = Some(Bound {
                    qp,
                    address: bind.address,
                    len: bind.len,
                    access: bind.access,
                    region: bind.region.0 >> 8,
                });
                Ok(())
            }
            _ => Err(Denied),
        }
    }

    /// Takes a window back, by its owner or by the peer of the queue pair that it is bound on.
    pub(super) fn invalidate(
        &mut self,
        qp: QpNumber,
        domain: DomainNumber,
        rkey: RKey,
    ) -> Result<(), Denied> {
        match self.entries.get_mut(&(rkey.0 >> 8)) {
            Some(Entry {
                key,
                what:
                    What::Window {
                        domain: of,
                        bound: bound @ Some(_),
                    },
            }) if *key == rkey.0 && *of == domain && bound.is_some_and(|bound| bound.qp == qp) => {
                *bound = None;
                Ok(())
            }
            _ => Err(Denied),
        }
    }

    /// A queue pair is gone, and with it the windows that were bound on it.
    pub(super) fn qp_gone(&mut self, qp: QpNumber) {
        for entry in self.entries.values_mut() {
            if let What::Window { bound, .. } = &mut entry.what
                && bound.is_some_and(|bound| bound.qp == qp)
            {
                *bound = None;
            }
        }
    }
}

fn within(base: u64, bytes: u64, address: u64, len: u64) -> bool {
    address >= base
        && address
            .checked_add(len)
            .is_some_and(|end| end <= base + bytes)
}

/// # Safety
/// The range is mapped and readable, and nothing has a `&mut` to it.
unsafe fn load(address: u64, len: usize, out: &mut Vec<u8>) {
    let at = out.len();
    out.resize(at + len, 0);
    // SAFETY: by this function's contract.
    unsafe { bytes::load(pointer(address), &mut out[at..]) };
}

/// # Safety
/// The range is mapped and writable, and nothing has a reference to it.
unsafe fn store(address: u64, content: &[u8]) {
    // SAFETY: by this function's contract.
    unsafe { bytes::store(pointer(address), content) };
}

/// An address was a pointer when its memory was registered.
#[expect(clippy::cast_possible_truncation, reason = "addresses of this process")]
fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}
