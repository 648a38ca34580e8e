//! Data of writes that a store reads where the guest has them, and what of them is copied: counted, byte by byte.

use nvme_spec::Status;
use store::decorate::{Delay, Limit};
use store::{OpenOptions, SharedStore, StoreSpec};
use tempfile::TempDir;

use crate::driver::{BASE, DATA, Guest, MEMORY_BYTES, Machine, pattern, status, transfer};
use frontend_nvme::conformance::{Gate, memory};

const BYTES: u64 = 16 * 4096;

/// Bytes that the reactors have copied between their own memory and the guest's, when each has said so.
fn copied_bytes(machine: &Machine, guest: &mut Guest) -> u64 {
    // What a turn has counted is told before its answers are: one command more has it all told.
    guest.csts();
    let reactors = machine.target.telemetry.snapshot().reactors;
    reactors.iter().map(|it| it.wire_copied_bytes).sum()
}

/// What a write of the whole disk copies, over a store; the store has its bytes then.
fn write_copies(store: SharedStore) -> u64 {
    let machine = Machine::start(store, 1);
    let mut guest = machine.running();
    guest.put(DATA, &pattern(5, BYTES as usize));
    // A list of pages, each for itself.
    let pages: Vec<u64> = (1..16).map(|page| DATA + page * 4096).collect();
    guest.put_list(crate::driver::LIST, &pages);
    let before = copied_bytes(&machine, &mut guest);
    let write = transfer(1, 0, 16, DATA, crate::driver::LIST);
    assert_eq!(status(&guest.run(1, write)), Status::SUCCESS);
    let copied = copied_bytes(&machine, &mut guest) - before;
    guest.put(DATA, &[0; BYTES as usize]);
    let read = transfer(2, 0, 16, DATA, crate::driver::LIST);
    assert_eq!(status(&guest.run(1, read)), Status::SUCCESS);
    assert!(guest.get(DATA, BYTES as usize) == pattern(5, BYTES as usize));
    copied
}

fn file() -> (TempDir, SharedStore) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let spec = StoreSpec::parse(&format!("file:{}", path.display())).unwrap();
    let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    (folder, store)
}

/// The store copies out of the guest's memory itself, and has done so when it has taken the write.
#[test]
fn a_store_that_ends_in_submit_has_the_data_without_a_copy() {
    assert_eq!(write_copies(memory()), 0);
}

/// What a read of `null:` brings is zeros, whatever was there; of `void:` it is nothing, and the guest's memory stays as it is.
#[test]
fn a_void_leaves_memory_as_it_is() {
    for (name, is_left) in [("null:1MiB", false), ("void:1MiB", true)] {
        let spec = StoreSpec::parse(name).unwrap();
        let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
        let machine = Machine::start(store, 1);
        let mut guest = machine.running();
        guest.put(DATA, &pattern(9, 8192));
        let read = transfer(2, 3, 1, DATA + 0x800, DATA + 0x1000);
        assert_eq!(status(&guest.run(1, read)), Status::SUCCESS);
        let mut expected = pattern(9, 8192);
        if !is_left {
            expected[0x800..0x1800].fill(0);
        }
        assert!(guest.get(DATA, 8192) == expected, "{name}");
        let write = transfer(1, 3, 1, DATA, 0);
        assert_eq!(status(&guest.run(1, write)), Status::SUCCESS);
    }
}

/// Whoever keeps a write, for a moment or for long, gets a copy: the guest's memory is its own again.
#[test]
fn a_store_that_keeps_its_writes_has_copies_of_their_data() {
    let (_folder, file) = file();
    assert_eq!(write_copies(file), BYTES, "a file");
    let delay = Delay {
        change: std::time::Duration::from_nanos(1),
        ..Delay::default()
    };
    let delayed = delay.over(memory()).unwrap();
    assert_eq!(write_copies(delayed), BYTES, "behind a delay");
    let limit: Limit = "1000MB/s".parse().unwrap();
    let mut limited = limit.over(vec![memory()]);
    let limited = limited.remove(0);
    assert_eq!(write_copies(limited), BYTES, "behind a limit");
    let (_gate, held) = Gate::over(memory(), 0);
    assert_eq!(write_copies(held), BYTES, "behind a gate");
}

/// With a write that a store keeps, the window of its data goes at once, and what the guest puts there afterwards is not written.
#[test]
fn a_window_goes_though_a_store_keeps_a_write_from_there() {
    let (gate, store) = Gate::over(memory(), 1);
    let machine = Machine::start(store, 2);
    let mut guest = machine.running();
    let apart = BASE + MEMORY_BYTES;
    guest.map(apart, 0x1000, DATA - BASE, 3).unwrap();
    guest.put(DATA, &pattern(7, 4096));
    guest.submit(1, transfer(1, 3, 1, apart, 0));
    gate.wait_held(1);
    let body = Guest::unmap_body(apart, 0x1000);
    assert_eq!(guest.client.call(3, &body, &[]), Ok(body));
    guest.put(DATA, &[0xEE; 4096]);
    gate.open();
    assert_eq!(status(&guest.complete(1)), Status::SUCCESS);
    let read = guest.run(1, transfer(2, 3, 1, DATA, 0));
    assert_eq!(status(&read), Status::SUCCESS);
    assert!(guest.get(DATA, 4096) == pattern(7, 4096));
}
