//! What every reactor shares of a namespace: immutable, behind an `Arc`.

use std::sync::Arc;

use store::SharedStore;
use volume::Volume;
use volume::format::Stream;

use crate::{Forgetful, Identity, Keeper, WriteFence};

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
}

/// A namespace as the host sees it.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// NSID, from 1.
    pub nsid: u32,
    /// What it is called in tables and logs.
    pub name: String,
    /// UUID and NGUID.
    pub identity: Identity,
    /// Logical block size in bytes: 512 or 4096.
    pub lba_bytes: u32,
    /// Size in logical blocks.
    pub blocks: u64,
    /// Writes are refused with Namespace Is Write Protected.
    pub write_protected: bool,
    /// The unit in which reads cost least (a frame, a granule), in bytes: NPRG, NOWS.
    pub optimal_read_bytes: u32,
    /// What stands behind it.
    pub backing: Backing,
    /// Holds writes back while one whose host is gone may still be applied.
    pub fence: WriteFence,
    /// What must survive restarts besides the data.
    pub keeper: Arc<dyn Keeper>,
}

impl Namespace {
    /// A namespace over a store as it is. `lba_bytes` beyond the last whole block are not presented.
    #[must_use]
    pub fn of_store(nsid: u32, store: SharedStore, identity: Identity, lba_bytes: u32) -> Self {
        let limits = store.limits();
        Self {
            nsid,
            name: store.name().to_owned(),
            identity,
            lba_bytes,
            blocks: limits.bytes / u64::from(lba_bytes),
            write_protected: !limits.writable,
            optimal_read_bytes: limits.alignment_bytes.max(lba_bytes),
            backing: Backing::Raw(store),
            fence: WriteFence::default(),
            keeper: Forgetful::keeper(),
        }
    }

    /// A namespace over a view of a volume; `stores` are those of its sources.
    #[must_use]
    pub fn of_view(nsid: u32, volume: Volume, stores: Vec<SharedStore>) -> Self {
        Self {
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
            backing: Backing::View { volume, stores },
            fence: WriteFence::default(),
            keeper: Forgetful::keeper(),
        }
    }

    /// Presented bytes, whole blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.lba_bytes)
    }

    /// The stores behind it, by source.
    pub(crate) fn stores(&self) -> &[SharedStore] {
        match &self.backing {
            Backing::Raw(store) => std::slice::from_ref(store),
            Backing::View { stores, .. } => stores,
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
