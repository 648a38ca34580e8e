//! What a device presents of a namespace.

use std::time::Duration;

use namespace::{Backing, Namespace, NamespaceKey};

use crate::limits::{CANCEL_BOUND_MS_MAX, LINGERS_MS_MAX};

/// Bytes of a sector: the unit in which the protocol counts, whatever the block.
pub(crate) const SECTOR_BYTES: u32 = 512;
/// Bytes of a serial number.
pub(crate) const SERIAL_BYTES: usize = 20;

/// A namespace as a virtio disk: its size and what requests need to know. A resize makes another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub(crate) key: NamespaceKey,
    pub(crate) name: String,
    /// 512 or 4096.
    pub(crate) block_bytes: u32,
    pub(crate) blocks: u64,
    pub(crate) read_only: bool,
    /// What a read costs least in, in bytes.
    pub(crate) optimal_bytes: u32,
    pub(crate) uuid: [u8; 16],
    pub(crate) serial: [u8; SERIAL_BYTES],
    /// Its store may work on guest memory.
    pub(crate) direct: bool,
    /// So long after the end of a process its writes may still land.
    pub(crate) lingers: Duration,
}

/// Which disk it is: one with the same has the same content, under the same rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskIdentity {
    pub(crate) uuid: [u8; 16],
    pub(crate) block_bytes: u32,
    pub(crate) read_only: bool,
}

impl Disk {
    /// Of a namespace.
    #[must_use]
    pub fn of(namespace: &Namespace) -> Self {
        let direct = match &namespace.backing {
            Backing::Raw(store) => {
                let limits = store.limits();
                let lets_go = |bound| bound < CANCEL_BOUND_MS_MAX;
                limits.guest_memory && limits.cancel_bound_ms.is_some_and(lets_go)
            }
            Backing::View { .. } | Backing::Mixed(_) => false,
        };
        let lingers_ms = match &namespace.backing {
            Backing::Raw(store) => store.limits().lingers_ms,
            // Nothing is written.
            Backing::View { .. } => 0,
            // Of parts, which may be anywhere.
            Backing::Mixed(_) => LINGERS_MS_MAX,
        };
        Self {
            key: namespace.key,
            name: namespace.name.clone(),
            block_bytes: namespace.lba_bytes,
            blocks: namespace.blocks,
            read_only: namespace.write_protected,
            optimal_bytes: namespace.optimal_read_bytes,
            uuid: namespace.identity.uuid,
            serial: serial(&namespace.identity.uuid),
            direct,
            lingers: Duration::from_millis(lingers_ms.into()),
        }
    }

    /// Whether a guest that knows one may go on with the other: its content is the same, and so is all that its driver has asked once.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// What its driver has asked once, and relies on.
    pub(crate) fn identity(&self) -> DiskIdentity {
        DiskIdentity {
            uuid: self.uuid,
            block_bytes: self.block_bytes,
            read_only: self.read_only,
        }
    }

    pub(crate) fn sectors_per_block(&self) -> u32 {
        self.block_bytes / SECTOR_BYTES
    }

    /// Its size in sectors.
    pub(crate) fn sectors(&self) -> u64 {
        self.blocks * u64::from(self.sectors_per_block())
    }
}

/// The first twenty hexadecimal digits of the UUID: what stays when the disk is served anew.
fn serial(uuid: &[u8; 16]) -> [u8; SERIAL_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut serial = [0; SERIAL_BYTES];
    for (pair, byte) in serial.chunks_exact_mut(2).zip(uuid) {
        pair.copy_from_slice(&[
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]);
    }
    serial
}
