//! Whether what stands behind a path is the store.

use nvme::initiator::{Attached, NamespaceIds, NamespaceInfo};

use crate::shared::Shared;

/// Whether a path leads to the namespace that the store is: never another one under a mount.
pub(super) fn is_same(
    shared: &Shared,
    found: &NamespaceInfo,
    attached: &Attached,
) -> Result<(), String> {
    let ours = &shared.namespace;
    if found.nsid != ours.nsid || found.ids != ours.ids {
        return Err(format!(
            "another namespace is there: number {} with {}, and the store is number {} with {}",
            found.nsid.0, found.ids, ours.nsid.0, ours.ids
        ));
    }
    if ours.ids == NamespaceIds::default() && attached.controller.serial != shared.controller.serial
    {
        return Err(format!(
            "the namespace has no identifier (UUID, NGUID, EUI64), and its controller has the serial number {}, not {}: give it a UUID",
            attached.controller.serial, shared.controller.serial
        ));
    }
    let (now, then) = (&attached.controller, &shared.controller);
    if now.volatile_write_cache && !then.volatile_write_cache
        || then.writes_zeroes && !now.writes_zeroes
        || then.deallocates && !now.deallocates
        || found.write_protected && shared.limits.writable
    {
        return Err(
            "its controller has a volatile write cache, a write protection, or lacks Write Zeroes or Dataset Management, other than when the store was opened: open it anew"
                .to_owned(),
        );
    }
    if found.lba_bytes != ours.lba_bytes || found.blocks < ours.blocks {
        return Err(format!(
            "the namespace has {} blocks of {} bytes now, and had {} of {} when the store was opened",
            found.blocks, found.lba_bytes, ours.blocks, ours.lba_bytes
        ));
    }
    if now.deallocate_blocks_max < then.deallocate_blocks_max {
        return Err(format!(
            "its controller deallocates {} blocks at most (DMRSL), and the first path's {}: give the paths the same limits",
            now.deallocate_blocks_max, then.deallocate_blocks_max
        ));
    }
    if attached.controller.transfer_bytes_max < shared.controller.transfer_bytes_max {
        return Err(format!(
            "its controller takes commands of {} bytes at most, and the first path's {}: give the paths the same MDTS",
            attached.controller.transfer_bytes_max, shared.controller.transfer_bytes_max
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nvme::initiator::{ControllerInfo, NamespaceIds};
    use nvme::nqn::Nqn;
    use nvme_spec::Nsid;

    use super::*;
    use crate::clock::Clock;
    use crate::options::RemoteOptions;

    fn namespace() -> NamespaceInfo {
        NamespaceInfo {
            nsid: Nsid(3),
            lba_bytes: 4096,
            blocks: 1000,
            write_protected: false,
            optimal_boundary_blocks: 0,
            deallocated_reads_zeros: false,
            ana_group: 0,
            ids: NamespaceIds {
                nguid: Some([7; 16]),
                ..NamespaceIds::default()
            },
        }
    }

    fn attached() -> Attached {
        let controller = ControllerInfo {
            cntlid: 1,
            serial: "S1".to_owned(),
            model: String::new(),
            firmware: String::new(),
            is_discovery: false,
            transfer_bytes_max: 1 << 20,
            in_capsule_bytes_max: 0,
            io_queue_depth_max: 127,
            volatile_write_cache: false,
            disconnect: true,
            keep_alive_granularity_ms: 100,
            traffic_based_keep_alive: false,
            quiesce_time: Duration::ZERO,
            writes_zeroes: true,
            deallocates: true,
            deallocate_blocks_max: 5000,
            reports_ana: false,
            aborts_max: 4,
            notices: 0,
        };
        Attached {
            cntlid: 1,
            controller,
            io_queues: 4,
            namespaces: Vec::new(),
        }
    }

    /// A path to another controller of the same subsystem, but for what `change` does, to a store whose namespace is `ours`.
    fn of(ours: NamespaceInfo, change: impl Fn(&mut NamespaceInfo, &mut Attached)) -> String {
        let options = RemoteOptions::new(Nqn::parse("nqn.2026-11.test:h").unwrap(), [1; 16]);
        let (mut found, mut other) = (ours.clone(), attached());
        let shared = Shared::new(
            "nvme-test".to_owned(),
            options,
            Clock::stepped(),
            ours,
            attached().controller,
            true,
        );
        other.controller.cntlid = 2;
        change(&mut found, &mut other);
        is_same(&shared, &found, &other).err().unwrap_or_default()
    }

    #[test]
    fn another_path_to_the_same_namespace_is_one() {
        assert_eq!(of(namespace(), |_, _| {}), "");
        // It may have grown, and its controller may do more.
        assert_eq!(of(namespace(), |found, _| found.blocks += 1), "");
        let more = |_: &mut NamespaceInfo, other: &mut Attached| {
            other.controller.deallocate_blocks_max += 1;
            // A subsystem has one serial number; identifiers say more.
            other.controller.serial = "S2".to_owned();
        };
        assert_eq!(of(namespace(), more), "");
    }

    #[test]
    fn another_namespace_is_not() {
        for why in [
            of(namespace(), |found, _| found.nsid = Nsid(4)),
            of(namespace(), |found, _| found.ids.nguid = Some([8; 16])),
            of(namespace(), |found, _| found.ids = NamespaceIds::default()),
        ] {
            assert!(why.contains("another namespace is there"), "{why}");
        }
        let why = of(namespace(), |found, _| found.lba_bytes = 512);
        assert!(why.contains("1000 blocks of 512 bytes now"), "{why}");
        let why = of(namespace(), |found, _| found.blocks -= 1);
        assert!(why.contains("999 blocks of 4096 bytes now"), "{why}");
    }

    /// NSID 3 of any subsystem would do otherwise.
    #[test]
    fn one_without_identifiers_is_told_by_its_serial_number() {
        let nameless = NamespaceInfo {
            ids: NamespaceIds::default(),
            ..namespace()
        };
        assert_eq!(of(nameless.clone(), |_, _| {}), "");
        let why = of(nameless, |_, other| {
            other.controller.serial = "S2".to_owned();
        });
        assert!(why.contains("the serial number S2, not S1"), "{why}");
    }

    /// The store said that nothing has to be flushed, and its host sends no flush.
    #[test]
    fn a_volatile_write_cache_that_the_first_path_had_not_is_refused() {
        let changes: [fn(&mut NamespaceInfo, &mut Attached); 4] = [
            |_, other| other.controller.volatile_write_cache = true,
            |_, other| other.controller.writes_zeroes = false,
            |_, other| other.controller.deallocates = false,
            |found, _| found.write_protected = true,
        ];
        for change in changes {
            let why = of(namespace(), change);
            assert!(why.contains("open it anew"), "{why}");
        }
    }

    #[test]
    fn lower_limits_than_the_first_path_has_are_refused() {
        let why = of(namespace(), |_, other| {
            other.controller.deallocate_blocks_max = 4999;
        });
        assert!(why.contains("deallocates 4999 blocks at most"), "{why}");
        let why = of(namespace(), |_, other| {
            other.controller.transfer_bytes_max = 4096;
        });
        assert!(why.contains("commands of 4096 bytes at most"), "{why}");
    }
}
