//! What every reactor shares of a namespace: immutable, behind an `Arc`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use store::{Durability, Problem, RANGE_BYTES_MIN, SharedStore};
use volume::Volume;
use volume::format::Stream;

use crate::{
    AccessGate, Ahead, Damage, Forgetful, Identity, KeepError, Keeper, Marks, Mixed, TakeUpError,
    WriteFence, WriteGate,
};

/// Names a namespace in this process. NSIDs repeat between subsystems, and after a detach; keys never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceKey(u64);

impl NamespaceKey {
    /// One that nobody has had.
    #[must_use]
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// As others may keep it, to give it back with [`NamespaceKey::from_bits`].
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From [`NamespaceKey::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Display for NamespaceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// What stands behind a namespace.
#[derive(Clone, Debug)]
pub enum Backing {
    /// The store's bytes are the presented bytes.
    Raw(SharedStore),
    /// A view of a volume.
    View {
        /// The volume with the view.
        volume: Volume,
        /// The stores of its sources, by [`volume::SourceId`].
        stores: Vec<SharedStore>,
    },
    /// Several of both, one behind another.
    Mixed(Mixed),
}

/// A namespace as the host sees it.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// Its name in this process: what engines know it by.
    pub key: NamespaceKey,
    /// NSID in its subsystem, from 1.
    pub nsid: u32,
    /// What it is called in tables and logs.
    pub name: String,
    /// UUID and NGUID.
    pub identity: Identity,
    /// Logical block size in bytes: 512 or 4096.
    pub lba_bytes: u32,
    /// Size in logical blocks.
    pub blocks: u64,
    /// Writes are refused with Namespace Is Write Protected, whichever blocks they are of.
    pub write_protected: bool,
    /// The unit in which reads cost least (a frame, a granule), in bytes: NPRG, NOWS.
    pub optimal_read_bytes: u32,
    /// What stands behind it.
    pub backing: Backing,
    /// Holds writes back while one whose host is gone may still be applied.
    pub fence: WriteFence,
    /// Nobody changes what a raw store behind it holds while it is served, here or elsewhere: what was read of it may be kept.
    pub is_immutable: bool,
    /// What is read ahead in it.
    pub ahead: Ahead,
    /// Keeps writes out while a Compare and Write is under way.
    pub gate: WriteGate,
    /// Blocks that are marked uncorrectable.
    pub marks: Marks,
    /// Damage that reads of it met.
    pub damage: Damage,
    /// Who may do what with it.
    pub access: AccessGate,
    /// What must survive restarts besides the data.
    pub keeper: Arc<dyn Keeper>,
}

impl Namespace {
    /// A namespace over a store as it is. `lba_bytes` beyond the last whole block are not presented.
    #[must_use]
    pub fn of_store(nsid: u32, store: SharedStore, identity: Identity, lba_bytes: u32) -> Self {
        let limits = store.limits();
        Self {
            key: NamespaceKey::next(),
            nsid,
            name: store.name().to_owned(),
            identity,
            lba_bytes,
            blocks: limits.bytes / u64::from(lba_bytes),
            write_protected: !limits.writable,
            optimal_read_bytes: limits.alignment_bytes.max(lba_bytes),
            backing: Backing::Raw(store),
            is_immutable: false,
            ahead: Ahead::new(),
            fence: WriteFence::default(),
            gate: WriteGate::default(),
            marks: Marks::new(lba_bytes),
            damage: Damage::default(),
            access: AccessGate::default(),
            keeper: Forgetful::keeper(),
        }
    }

    /// A namespace over a view of a volume; `stores` are those of its sources.
    #[must_use]
    pub fn of_view(nsid: u32, volume: Volume, stores: Vec<SharedStore>) -> Self {
        Self {
            key: NamespaceKey::next(),
            nsid,
            name: stores
                .first()
                .map_or_else(|| volume.name().to_owned(), |store| store.name().to_owned()),
            identity: Identity {
                uuid: volume.namespace_uuid(),
            },
            lba_bytes: volume.lba_bytes(),
            blocks: volume.block_count(),
            write_protected: true,
            optimal_read_bytes: optimal_read_bytes(&volume),
            is_immutable: false,
            ahead: Ahead::new(),
            fence: WriteFence::default(),
            gate: WriteGate::default(),
            marks: Marks::new(volume.lba_bytes()),
            backing: Backing::View { volume, stores },
            damage: Damage::default(),
            access: AccessGate::default(),
            keeper: Forgetful::keeper(),
        }
    }

    /// Makes this namespace the next state of another one: the same disk to its hosts, with another size or another store behind it. What
    /// holds writes back, and what must survive restarts, is shared by both, since requests to the old one may still be under way.
    #[must_use]
    pub fn succeeding(mut self, old: &Self) -> Self {
        self.nsid = old.nsid;
        self.identity = old.identity;
        self.fence = old.fence.clone();
        self.gate = old.gate.clone();
        self.marks = old.marks.clone();
        self.damage = old.damage.clone();
        self.access = old.access.clone();
        self.keeper = old.keeper.clone();
        if self.blocks > old.blocks {
            self.marks.cut(old.blocks, &*self.keeper);
        }
        self.with_its_parts()
    }

    /// Takes over the marks that its keeper has of an earlier life; to be called before it is attached. It may block.
    ///
    /// # Errors
    /// A record that cannot be read: the namespace must not be attached as if there were none.
    pub fn restore_marks(&self) -> Result<(), KeepError> {
        self.marks.restore(&*self.keeper)
    }

    /// Has this keeper remember what must survive restarts, and takes up what it has. May block.
    ///
    /// # Errors
    /// What it has cannot be read, or is damaged: the namespace must not be served as if there were nothing.
    pub fn kept_by(mut self, keeper: Arc<dyn Keeper>) -> Result<Self, TakeUpError> {
        self.access = AccessGate::taken_up(keeper.as_ref())?;
        self.marks.restore(&*keeper)?;
        self.keeper = keeper;
        Ok(self)
    }

    /// Whether nobody changes it: then it may be read ahead.
    #[must_use]
    pub fn never_changes(&self) -> bool {
        match &self.backing {
            Backing::View { .. } => true,
            Backing::Raw(_) => self.is_immutable && self.write_protected,
            Backing::Mixed(_) => false,
        }
    }

    /// Presented bytes, whole blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.lba_bytes)
    }

    /// Whether blocks that were deallocated read as zeros.
    #[must_use]
    pub fn reads_zeros_after_discard(&self) -> bool {
        match &self.backing {
            Backing::Raw(store) => store.limits().discard_zeroes,
            Backing::View { .. } => false,
            Backing::Mixed(mixed) => mixed.writable().all(Self::reads_zeros_after_discard),
        }
    }

    /// Whether its content is still there when this process has ended.
    #[must_use]
    pub fn outlives_the_process(&self) -> bool {
        match &self.backing {
            Backing::Raw(store) => store.limits().durability != Durability::None,
            Backing::View { .. } => true,
            Backing::Mixed(mixed) => mixed.writable().all(Self::outlives_the_process),
        }
    }

    /// Bytes of which a write that crosses no multiple of them is seen, and survives power loss, as a whole or not at all; 1 = none.
    #[must_use]
    pub fn atomic_write_bytes(&self) -> u32 {
        match &self.backing {
            Backing::Raw(store) => store.limits().atomic_write_bytes,
            Backing::View { .. } => 1,
            Backing::Mixed(mixed) => mixed.atomic_write_bytes(self.lba_bytes),
        }
    }

    /// The longest range that its store zeroes or discards at once.
    pub(crate) fn range_bytes_max(&self) -> u32 {
        match &self.backing {
            Backing::Raw(store) => store.limits().range_bytes_max,
            Backing::View { .. } => RANGE_BYTES_MIN,
            Backing::Mixed(mixed) => {
                let all = mixed.writable().map(Self::range_bytes_max);
                all.min().unwrap_or(RANGE_BYTES_MIN)
            }
        }
    }

    /// What is wrong at the moment with the stores behind it though they work, or may again; a line each.
    #[must_use]
    pub fn store_problems(&self) -> Vec<Problem> {
        let stores = self.parts().flat_map(Self::stores);
        stores.flat_map(SharedStore::problems).collect()
    }

    /// The stores behind it, by source; those of a mixed one are its parts'.
    pub(crate) fn stores(&self) -> &[SharedStore] {
        match &self.backing {
            Backing::Raw(store) => std::slice::from_ref(store),
            Backing::View { stores, .. } => stores,
            Backing::Mixed(_) => &[],
        }
    }
}

/// The namespaces of a subsystem at one moment, by NSID. A change makes a new set; reactors hold the one they were given.
#[derive(Clone, Debug, Default)]
pub struct NamespaceSet {
    namespaces: Vec<Arc<Namespace>>,
}

impl NamespaceSet {
    /// Of namespaces in ascending order of their NSIDs.
    #[must_use]
    pub fn new(namespaces: Vec<Arc<Namespace>>) -> Self {
        debug_assert!(
            namespaces.is_sorted_by(|a, b| a.nsid < b.nsid),
            "NSIDs ascend"
        );
        Self { namespaces }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Arc<Namespace>] {
        &self.namespaces
    }
}

/// Presented bytes of the largest frame: a read of less fetches and decodes a whole frame all the same.
fn optimal_read_bytes(volume: &Volume) -> u32 {
    let frame = |stream: &Stream| {
        let elements = stream.elements_of_frame(0).unwrap_or(0);
        elements.saturating_mul(stream.element_type().bytes() as u64)
    };
    let largest = volume.streams().iter().map(frame).max().unwrap_or(0);
    u32::try_from(largest)
        .unwrap_or(u32::MAX)
        .clamp(volume.lba_bytes(), 1 << 20)
}
