//! The namespaces of all subsystems, as the desk has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use namespace::{Namespace, NamespaceKey, NamespaceSet};
use nvme::controller::{NamespaceSet as NamespaceInfos, Visibility};
use nvme::nqn::Nqn;
use nvme_spec::Nsid;

use crate::admin::AdminError;
use crate::config::info;

/// A namespace of a subsystem.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) namespace: Arc<Namespace>,
    pub(super) visibility: Visibility,
    /// Reactors are still taking it in: hosts are not told of it yet.
    pub(super) is_coming: bool,
}

/// The namespaces of all subsystems.
#[derive(Debug, Default)]
pub(super) struct Disks {
    pub(super) by_subsystem: BTreeMap<Nqn, BTreeMap<u32, Disk>>,
    epoch: u64,
}

impl Disks {
    /// What a subsystem has at the start: the reactors' engines have it already.
    pub(super) fn begin(&mut self, nqn: &Nqn, set: &NamespaceSet) {
        let disks = set.all().iter().map(|namespace| {
            let disk = Disk {
                namespace: namespace.clone(),
                visibility: Visibility::All,
                is_coming: false,
            };
            (namespace.nsid, disk)
        });
        self.by_subsystem.insert(nqn.clone(), disks.collect());
    }

    /// What controllers are told of a subsystem.
    pub(super) fn infos(&mut self, nqn: &Nqn) -> Result<NamespaceInfos, AdminError> {
        self.epoch += 1;
        let disks = self.by_subsystem.get(nqn).into_iter().flatten();
        let there = disks.filter(|(_, disk)| !disk.is_coming);
        let infos = there.map(|(_, disk)| info(&disk.namespace, &disk.visibility));
        Ok(NamespaceInfos::new(self.epoch, infos)?)
    }

    /// A namespace that hosts see, by its number and its key.
    pub(super) fn namespace(
        &self,
        nqn: &Nqn,
        nsid: Nsid,
        key: NamespaceKey,
    ) -> Option<Arc<Namespace>> {
        let disk = self.by_subsystem.get(nqn)?.get(&nsid.0)?;
        (disk.namespace.key == key).then(|| disk.namespace.clone())
    }

    pub(super) fn of(&mut self, nqn: &Nqn) -> Result<&mut BTreeMap<u32, Disk>, AdminError> {
        let disks = self.by_subsystem.get_mut(nqn);
        disks.ok_or_else(|| AdminError::NoSubsystem { nqn: nqn.clone() })
    }

    /// What a host sees of a subsystem.
    pub(super) fn seen_by<'a>(
        &'a self,
        nqn: &Nqn,
        host: &'a Nqn,
    ) -> impl Iterator<Item = &'a Namespace> {
        let disks = self
            .by_subsystem
            .get(nqn)
            .into_iter()
            .flat_map(BTreeMap::values);
        disks
            .filter(|disk| !disk.is_coming && disk.visibility.includes(host))
            .map(|disk| &*disk.namespace)
    }

    pub(super) fn disk(&mut self, nqn: &Nqn, nsid: Nsid) -> Result<&mut Disk, AdminError> {
        let disk = self.of(nqn)?.get_mut(&nsid.0);
        disk.filter(|disk| !disk.is_coming)
            .ok_or_else(|| AdminError::NoNamespace {
                nqn: nqn.clone(),
                nsid,
            })
    }

    /// Whether a namespace can be added.
    pub(super) fn check_new(&mut self, nqn: &Nqn, namespace: &Namespace) -> Result<(), AdminError> {
        let disks = self.of(nqn)?;
        if disks.contains_key(&namespace.nsid) {
            return Err(AdminError::NsidTaken {
                nqn: nqn.clone(),
                nsid: Nsid(namespace.nsid),
            });
        }
        let mut others = disks.values();
        if let Some(twin) = others.find(|it| it.namespace.identity == namespace.identity) {
            return Err(AdminError::SameContent {
                nqn: nqn.clone(),
                nsid: Nsid(twin.namespace.nsid),
            });
        }
        NamespaceInfos::new(0, [info(namespace, &Visibility::All)])?;
        Ok(())
    }

    /// Whether a namespace can take the place of the one with its number.
    pub(super) fn check_next(
        &mut self,
        nqn: &Nqn,
        next: &Namespace,
    ) -> Result<NamespaceKey, AdminError> {
        let nsid = Nsid(next.nsid);
        let now = &self.disk(nqn, nsid)?.namespace;
        let differs = |what| Err(AdminError::OtherDisk { nsid, what });
        if now.identity != next.identity {
            return differs("the UUID");
        }
        if now.lba_bytes != next.lba_bytes {
            return differs("the block size");
        }
        let key = now.key;
        NamespaceInfos::new(0, [info(next, &Visibility::All)])?;
        Ok(key)
    }
}
