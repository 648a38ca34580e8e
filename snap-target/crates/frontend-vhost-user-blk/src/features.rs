//! virtio's features (virtio 1.3, 5.2.3 and 6).

use vhost_user::features::F_PROTOCOL_FEATURES;

use crate::disk::Disk;

pub(crate) const BLK_F_SIZE_MAX: u64 = 1 << 1;
pub(crate) const BLK_F_SEG_MAX: u64 = 1 << 2;
pub(crate) const BLK_F_RO: u64 = 1 << 5;
pub(crate) const BLK_F_BLK_SIZE: u64 = 1 << 6;
pub(crate) const BLK_F_FLUSH: u64 = 1 << 9;
pub(crate) const BLK_F_TOPOLOGY: u64 = 1 << 10;
pub(crate) const BLK_F_CONFIG_WCE: u64 = 1 << 11;
pub(crate) const BLK_F_MQ: u64 = 1 << 12;
pub(crate) const BLK_F_DISCARD: u64 = 1 << 13;
pub(crate) const BLK_F_WRITE_ZEROES: u64 = 1 << 14;
pub(crate) const F_INDIRECT_DESC: u64 = 1 << 28;
pub(crate) const F_EVENT_IDX: u64 = 1 << 29;
pub(crate) const F_VERSION_1: u64 = 1 << 32;
pub(crate) const F_RING_PACKED: u64 = 1 << 34;

const NAMES: [(u64, &str); 14] = [
    (BLK_F_SIZE_MAX, "size-max"),
    (BLK_F_SEG_MAX, "seg-max"),
    (BLK_F_RO, "ro"),
    (BLK_F_BLK_SIZE, "blk-size"),
    (BLK_F_FLUSH, "flush"),
    (BLK_F_TOPOLOGY, "topology"),
    (BLK_F_CONFIG_WCE, "config-wce"),
    (BLK_F_MQ, "mq"),
    (BLK_F_DISCARD, "discard"),
    (BLK_F_WRITE_ZEROES, "write-zeroes"),
    (F_INDIRECT_DESC, "indirect-desc"),
    (F_EVENT_IDX, "event-idx"),
    (F_VERSION_1, "version-1"),
    (F_RING_PACKED, "ring-packed"),
];

/// Of a disk that takes writes, besides.
const OF_WRITABLE: u64 = BLK_F_CONFIG_WCE | BLK_F_DISCARD | BLK_F_WRITE_ZEROES;

/// What a device offers for a disk.
pub(crate) fn offered(disk: &Disk) -> u64 {
    let always = BLK_F_SIZE_MAX
        | BLK_F_SEG_MAX
        | BLK_F_BLK_SIZE
        | BLK_F_FLUSH
        | BLK_F_TOPOLOGY
        | BLK_F_MQ
        | F_INDIRECT_DESC
        | F_EVENT_IDX
        | F_VERSION_1
        | F_RING_PACKED;
    match disk.read_only {
        true => always | BLK_F_RO,
        false => always | OF_WRITABLE,
    }
}

/// What no disk is offered with.
pub(crate) fn unknown(features: u64) -> u64 {
    let known = NAMES
        .iter()
        .fold(F_PROTOCOL_FEATURES, |all, (bit, _)| all | bit);
    features & !known
}

/// Features by their names.
#[must_use]
pub fn feature_names(features: u64) -> String {
    let set = NAMES.iter().filter(|(bit, _)| features & bit != 0);
    let names: Vec<&str> = set.map(|(_, name)| *name).collect();
    names.join(" ")
}
