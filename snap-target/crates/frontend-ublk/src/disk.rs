//! What a device presents of a namespace.

use namespace::{Backing, Namespace, NamespaceKey};
use ublk::{Attributes, Basic, Discard, Params, SECTOR_BYTES};

use crate::limits::{RANGE_BLOCKS_MAX, REQUEST_BYTES_MAX};

/// A namespace as a block device: its size and what requests need to know. A resize makes another one.
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
    /// Tells its store from another of the same name; 0: nothing has to.
    pub(crate) instance: u64,
    /// Its content is still there when this process has ended.
    pub(crate) outlives: bool,
}

impl Disk {
    /// Of a namespace.
    #[must_use]
    pub fn of(namespace: &Namespace) -> Self {
        Self {
            key: namespace.key,
            name: namespace.name.clone(),
            block_bytes: namespace.lba_bytes,
            blocks: namespace.blocks,
            read_only: namespace.write_protected,
            optimal_bytes: namespace.optimal_read_bytes,
            uuid: namespace.identity.uuid,
            instance: match &namespace.backing {
                Backing::Raw(store) => store.instance(),
                // Their UUID follows from what is in them.
                Backing::View { .. } | Backing::Mixed(_) => 0,
            },
            outlives: namespace.outlives_the_process(),
        }
    }

    /// What the kernel keeps with a device of it that is made for `place`.
    pub(crate) fn stamp(&self, place: &str) -> Stamp {
        let [block_shift, ..] = self.block_bytes.trailing_zeros().to_le_bytes();
        let mut content = self.uuid.to_vec();
        if self.instance != 0 {
            content.extend(self.instance.to_le_bytes());
        }
        let shape = [block_shift, u8::from(self.read_only)];
        Stamp {
            place: hash(b"snap-target", place.as_bytes()),
            content: hash(&content, &shape),
        }
    }

    /// Its size in sectors.
    pub(crate) fn sectors(&self) -> u64 {
        self.blocks * u64::from(self.sectors_per_block())
    }

    pub(crate) fn sectors_per_block(&self) -> u32 {
        self.block_bytes / SECTOR_BYTES
    }

    /// What the kernel is told of it.
    pub(crate) fn params(&self) -> Params {
        let shift = |bytes: u32| bytes.max(1).ilog2().to_le_bytes()[0];
        let logical_shift = shift(self.block_bytes);
        let protection = if self.read_only {
            Attributes::READ_ONLY
        } else {
            0
        };
        let range_sectors = RANGE_BLOCKS_MAX * self.sectors_per_block();
        Params::new(
            Basic {
                attributes: protection | Attributes::VOLATILE_CACHE | Attributes::FUA,
                logical_shift,
                physical_shift: logical_shift,
                io_opt_shift: shift(self.optimal_bytes.max(self.block_bytes)),
                io_min_shift: logical_shift,
                sectors_max: REQUEST_BYTES_MAX / SECTOR_BYTES,
                sectors: self.sectors(),
                ..Basic::default()
            },
            (!self.read_only).then(|| Discard {
                granularity: self.block_bytes,
                sectors_max: range_sectors,
                zero_sectors_max: range_sectors,
                segments_max: 1,
                ..Discard::default()
            }),
        )
    }
}

/// What tells a device from others of its number: the kernel keeps it as long as the device is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Whose it is: a daemon's with this namespace.
    pub(crate) place: u32,
    /// What it presents, at whatever size: the same content, with blocks of the same size, and as protected.
    pub(crate) content: u32,
}

impl Stamp {
    pub(crate) fn of_bits(bits: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
        Self {
            place: u32::from_le_bytes([e, f, g, h]),
            content: u32::from_le_bytes([a, b, c, d]),
        }
    }

    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.place) << 32 | u64::from(self.content)
    }
}

/// 32-bit FNV-1a.
fn hash(first: &[u8], second: &[u8]) -> u32 {
    let bytes = first.iter().chain(&[0]).chain(second);
    bytes.fold(0x811C_9DC5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Of 1000 blocks of 4 KiB.
    pub(crate) fn disk() -> Disk {
        Disk {
            key: NamespaceKey::next(),
            name: "disk".to_owned(),
            block_bytes: 4096,
            blocks: 1000,
            read_only: false,
            optimal_bytes: 64 << 10,
            uuid: [7; 16],
            instance: 5,
            outlives: true,
        }
    }

    #[test]
    fn a_stamp_stays_over_a_resize_and_nothing_else() {
        let stamp = |disk: &Disk| disk.stamp("nqn 1");
        let first = stamp(&disk());
        assert_eq!(Stamp::of_bits(first.to_bits()), first);
        let (key, blocks) = (NamespaceKey::next(), 2000);
        assert_eq!(
            stamp(&Disk {
                key,
                blocks,
                ..disk()
            }),
            first
        );
        assert_ne!(disk().stamp("nqn 2").place, first.place);
        assert_eq!(disk().stamp("nqn 2").content, first.content);
        let (uuid, instance, block_bytes, read_only) = ([8; 16], 6, 512, true);
        for other in [
            Disk { uuid, ..disk() },
            Disk { instance, ..disk() },
            Disk {
                block_bytes,
                ..disk()
            },
            Disk {
                read_only,
                ..disk()
            },
        ] {
            assert_ne!(stamp(&other).content, first.content, "{other:?}");
        }
    }

    #[test]
    fn the_kernel_is_told_what_a_disk_is() {
        let params = disk().params();
        let basic = params.basic;
        // VOLATILE_CACHE and FUA.
        assert_eq!(
            (basic.attributes, basic.sectors, basic.sectors_max),
            (0b1100, 8000, 2048)
        );
        let shifts = (
            basic.logical_shift,
            basic.physical_shift,
            basic.io_min_shift,
            basic.io_opt_shift,
        );
        assert_eq!(shifts, (12, 12, 12, 16));
        let discard = params.discard;
        assert_eq!((discard.granularity, discard.segments_max), (4096, 1));
        assert_eq!(
            (discard.sectors_max, discard.zero_sectors_max),
            (8 << 16, 8 << 16)
        );

        let (block_bytes, read_only) = (512, true);
        let params = Disk {
            block_bytes,
            read_only,
            ..disk()
        }
        .params();
        assert_eq!(
            (params.basic.attributes, params.basic.sectors),
            (0b1101, 1000)
        );
        assert_eq!(params.discard, Discard::default());
        // No whole power of two: what is below.
        let optimal_bytes = 48 << 10;
        assert_eq!(
            Disk {
                optimal_bytes,
                ..disk()
            }
            .params()
            .basic
            .io_opt_shift,
            15
        );
    }
}
