//! What controllers know of namespaces: an immutable set with an epoch.

use super::BlockAt;
use super::ConfigError;
use super::Protection;
use super::Visibility;
use super::subsystem::NAMESPACES_MAX;
use crate::nqn::Nqn;
use nvme_spec::{Lba, Nsid};
use std::sync::Arc;

/// One namespace as a host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// NSID, 1 to 1024.
    pub nsid: Nsid,
    /// What the driver knows it by; never told to a host.
    pub handle: u64,
    /// Which of the subsystem's hosts see it.
    pub visibility: Visibility,
    /// NSZE and NCAP.
    pub block_count: u64,
    /// Bytes of a logical block: a power of two from 512 to 64 KiB.
    pub lba_bytes: u32,
    /// UUID; zeros = none.
    pub uuid: [u8; 16],
    /// NGUID; zeros = none.
    pub nguid: [u8; 16],
    /// EUI64.
    pub eui64: Option<[u8; 8]>,
    /// Writes fail with Namespace is Write Protected: it presents what nobody may write.
    pub write_protected: bool,
    /// The same, as a host set it.
    pub protection: Protection,
    /// Its reservations can survive the loss of power.
    pub keeps_reservations: bool,
    /// NOIOB: boundary that I/O better not crosses, in blocks; 0 = none.
    pub optimal_boundary_blocks: u16,
    /// NPWG, NPWA, NOWS: granularity and size of good I/O, in blocks; 0 = not reported.
    pub optimal_blocks: u16,
    /// DLFEAT: blocks that were deallocated read as zeros, and Write Zeroes may deallocate.
    pub deallocated_reads_zeros: bool,
    /// NAWUN, NAWUPF: a write that crosses no multiple of so many blocks is seen, and survives, as a whole or not at all; 0 = not reported.
    pub atomic_blocks: u16,
}

impl NamespaceInfo {
    /// True where a host cannot tell one from the other.
    fn looks_like(&self, other: &NamespaceInfo) -> bool {
        let told = |info: &NamespaceInfo| NamespaceInfo {
            handle: 0,
            visibility: Visibility::All,
            ..info.clone()
        };
        told(self) == told(other)
    }

    /// The first block beyond the end that a command reaches from this one.
    #[must_use]
    pub fn first_beyond(&self, lba: Lba) -> BlockAt {
        BlockAt {
            nsid: self.nsid,
            lba: Lba(lba.0.max(self.block_count)),
        }
    }

    /// LBADS: the block's bytes as a power of two.
    pub(super) fn lbads(&self) -> u8 {
        u8::try_from(self.lba_bytes.trailing_zeros()).unwrap_or(0)
    }
}

/// The namespaces of a subsystem at one epoch. Lookup is an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceSet {
    epoch: u64,
    by_nsid: Vec<Option<NamespaceInfo>>,
}

impl NamespaceSet {
    /// A checked set. `epoch` grows with every change of the subsystem's namespaces.
    pub fn new(
        epoch: u64,
        namespaces: impl IntoIterator<Item = NamespaceInfo>,
    ) -> Result<NamespaceSet, ConfigError> {
        let mut by_nsid: Vec<Option<NamespaceInfo>> = Vec::new();
        for info in namespaces {
            let nsid = info.nsid;
            let index = Self::index(nsid).ok_or(ConfigError::NsidOutOfRange { nsid })?;
            if !info.lba_bytes.is_power_of_two() || !(512..=65536).contains(&info.lba_bytes) {
                return Err(ConfigError::LbaBytes {
                    nsid,
                    lba_bytes: info.lba_bytes,
                });
            }
            if info.block_count == 0
                || info
                    .block_count
                    .checked_mul(u64::from(info.lba_bytes))
                    .is_none()
            {
                return Err(ConfigError::BlockCount {
                    nsid,
                    block_count: info.block_count,
                });
            }
            if by_nsid.len() <= index {
                by_nsid.resize(index + 1, None);
            }
            match by_nsid.get_mut(index) {
                Some(place @ None) => *place = Some(info),
                _ => return Err(ConfigError::DuplicateNsid { nsid }),
            }
        }
        Ok(NamespaceSet { epoch, by_nsid })
    }

    /// Which state of the subsystem this is.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The namespace, where it is active.
    pub fn get(&self, nsid: Nsid) -> Option<&NamespaceInfo> {
        self.by_nsid
            .get(usize::try_from(nsid.0.checked_sub(1)?).ok()?)?
            .as_ref()
    }

    /// Active namespaces by rising NSID.
    pub fn iter(&self) -> impl Iterator<Item = &NamespaceInfo> {
        self.by_nsid.iter().flatten()
    }

    /// The set as one host sees it: what is hidden from it is not there.
    pub fn seen_by(self: &Arc<Self>, host: &Nqn) -> Arc<NamespaceSet> {
        let sees = |info: &NamespaceInfo| info.visibility.includes(host);
        if self.iter().all(sees) {
            return Arc::clone(self);
        }
        let seen = self.by_nsid.iter().cloned();
        Arc::new(NamespaceSet {
            epoch: self.epoch,
            by_nsid: seen.map(|info| info.filter(sees)).collect(),
        })
    }

    /// NSIDs that are active in one set alone, or differ in what a host is told.
    pub(super) fn changed(&self, other: &NamespaceSet) -> Vec<Nsid> {
        (1..=NAMESPACES_MAX)
            .map(Nsid)
            .filter(|&nsid| match (self.get(nsid), other.get(nsid)) {
                (Some(one), Some(other)) => !one.looks_like(other),
                (one, other) => one.is_some() != other.is_some(),
            })
            .collect()
    }

    fn index(nsid: Nsid) -> Option<usize> {
        (1..=NAMESPACES_MAX)
            .contains(&nsid.0)
            .then(|| usize::try_from(nsid.0 - 1).ok())
            .flatten()
    }
}
