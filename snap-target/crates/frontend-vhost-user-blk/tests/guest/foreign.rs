//! A monitor that is not ours: the front-end of the crate `vhost`.

use std::os::fd::AsRawFd;

use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use super::monitor::{F_ALL, GUEST, Guest, MEMORY_BYTES, SIZE, USER};
use super::served::{DISK_BYTES, Served, memory};

const IN: u32 = 0;
const OUT: u32 = 1;
const QUEUES: u64 = 64;

/// Where the guest's ring lies, as its monitor addresses it.
const TABLE: u64 = USER;
const AVAILABLE: u64 = USER + 0x1000;
const USED: u64 = USER + 0x2000;

/// Everything up to a queue that runs; the queue's kick.
fn start(front: &mut Frontend, guest: &Guest, base: u16) -> EventFd {
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: GUEST,
        memory_size: MEMORY_BYTES,
        userspace_addr: USER,
        mmap_offset: 0,
        mmap_handle: guest.file.as_raw_fd(),
    };
    front.set_mem_table(&[region]).unwrap();
    front.set_vring_num(0, SIZE).unwrap();
    front.set_vring_base(0, base).unwrap();
    let places = VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: TABLE,
        used_ring_addr: USED,
        avail_ring_addr: AVAILABLE,
        log_addr: None,
    };
    front.set_vring_addr(0, &places).unwrap();
    let (kick, call) = (EventFd::new(0).unwrap(), EventFd::new(0).unwrap());
    front.set_vring_call(0, &call).unwrap();
    front.set_vring_kick(0, &kick).unwrap();
    front.set_vring_enable(0, true).unwrap();
    kick
}

#[test]
fn a_foreign_front_end_has_a_disk() {
    let served = Served::new(memory());
    let mut guest = Guest::new();
    let mut front = Frontend::connect(&served.path, QUEUES).unwrap();
    front.set_owner().unwrap();
    let offered = front.get_features().unwrap();
    assert_eq!(offered & F_ALL, F_ALL);
    let protocol = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD
        | VhostUserProtocolFeatures::RESET_DEVICE
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
    assert!(front.get_protocol_features().unwrap().contains(protocol));
    front.set_protocol_features(protocol).unwrap();
    front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    front.set_features(F_ALL).unwrap();
    assert_eq!(front.get_queue_num().unwrap(), QUEUES);
    assert!(front.get_max_mem_slots().unwrap() >= 32);
    let (_, space) = front
        .get_config(0, 60, VhostUserConfigFlags::empty(), &[0; 60])
        .unwrap();
    assert_eq!(space[..8], (DISK_BYTES / 512).to_le_bytes());
    let asked = VhostUserInflight::new(0, 0, 1, SIZE);
    let (about, records) = front.get_inflight_fd(&asked).unwrap();
    front.set_inflight_fd(&about, records.as_raw_fd()).unwrap();
    let kick = start(&mut front, &guest, 0);
    let written = guest.ask(OUT, 8, &[9; 4096], 0);
    kick.write(1).unwrap();
    assert_eq!(guest.wait_used(), (written.head.into(), 1));
    assert_eq!(guest.status(&written), 0);
    // Stopped, and started where it says.
    assert_eq!(front.get_vring_base(0).unwrap(), 1);
    let kick = start(&mut front, &guest, 1);
    let read = guest.ask(IN, 8, &[], 4096);
    kick.write(1).unwrap();
    assert_eq!(guest.wait_used(), (read.head.into(), 4097));
    assert_eq!(guest.get(read.data, 4096), [9; 4096]);
    let more = super::monitor::memory_file(1 << 20);
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: GUEST + MEMORY_BYTES,
        memory_size: 1 << 20,
        userspace_addr: USER + MEMORY_BYTES,
        mmap_offset: 0,
        mmap_handle: more.as_raw_fd(),
    };
    front.add_mem_region(&region).unwrap();
    front.remove_mem_region(&region).unwrap();
    front.reset_device().unwrap();
    let refused = front.set_features(1 << 63);
    assert!(refused.is_err(), "what was not offered is refused");
}
