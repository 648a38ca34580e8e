//! A virtio disk, its monitor and its guest: one session an input, on one device that all of them share.
#![no_main]

use std::sync::OnceLock;

#[allow(dead_code, reason = "the guest's tests use the rest")]
#[path = "../../snap-target/crates/frontend-vhost-user-blk/tests/guest/monitor.rs"]
mod monitor;
#[path = "../../snap-target/crates/frontend-vhost-user-blk/tests/guest/sequences.rs"]
mod sequences;
#[allow(dead_code, reason = "the guest's tests use the rest")]
#[path = "../../snap-target/crates/frontend-vhost-user-blk/tests/guest/served.rs"]
mod served;

struct Disk {
    served: served::Served,
    /// Files that were open at first.
    files: usize,
}

static DISK: OnceLock<Disk> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let disk = DISK.get_or_init(|| {
        let served = served::Served::new(served::memory());
        let files = sequences::files_of(&served);
        Disk { served, files }
    });
    sequences::session(&disk.served, data);
    sequences::keeps_no_file(&disk.served, disk.files);
});
