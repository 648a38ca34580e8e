//! What requests come to.

use frontend_vhost_user_blk::DeviceIo;
use store::{BlockingStore, SharedStore};

use super::monitor::{
    Asked, DATA, GUEST, Guest, MEMORY_BYTES, Monitor, RawDescriptor, longs, words,
};
use super::served::{DISK_BYTES, Served, file, memory};

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;
const OK: u8 = 0;
const IO_ERROR: u8 = 1;
const UNSUPPORTED: u8 = 2;

struct Machine {
    served: Served,
    monitor: Monitor,
    guest: Guest,
}

impl Machine {
    fn new(served: Served) -> Self {
        let (mut monitor, guest) = (Monitor::connect(&served.path), Guest::new());
        monitor.negotiate();
        monitor.share(&guest);
        monitor.start(0);
        Self {
            served,
            monitor,
            guest,
        }
    }

    /// A request that has come back: its status, and how many bytes were written of it.
    fn done(&mut self, kind: u32, sector: u64, out: &[u8], into: u32) -> (u8, u32, Asked) {
        let asked = self.guest.ask(kind, sector, out, into);
        self.monitor.kick();
        let (head, written) = self.guest.wait_used();
        assert_eq!(head, u32::from(asked.head));
        (self.guest.status(&asked), written, asked)
    }

    fn status(&mut self, kind: u32, sector: u64, out: &[u8], into: u32) -> u8 {
        self.done(kind, sector, out, into).0
    }
}

fn stored(store: &SharedStore, offset: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    BlockingStore::new(store)
        .unwrap()
        .read(offset, &mut out)
        .unwrap();
    out
}

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 / 7) as u8 ^ seed).collect()
}

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [longs(&[sector]), words(&[sectors, flags])].concat()
}

#[test]
fn what_is_written_is_read_back() {
    // The first goes straight between guest and store, the other through buffers of the engine: nobody says when a file lets go of guest memory.
    for store in [memory(), file()] {
        let mut machine = Machine::new(Served::new(store));
        let data = pattern(64 << 10, 7);
        let (status, written, _) = machine.done(OUT, 16, &data, 0);
        assert_eq!((status, written), (OK, 1));
        assert_eq!(stored(&machine.served.store, 16 * 512, data.len()), data);
        let (status, written, asked) = machine.done(IN, 16, &[], 64 << 10);
        assert_eq!((status, written), (OK, (64 << 10) + 1));
        assert_eq!(machine.guest.get(asked.data, data.len()), data);
        assert_eq!(machine.status(FLUSH, 0, &[], 0), OK);
    }
}

#[test]
fn a_long_request_goes_in_pieces() {
    let mut machine = Machine::new(Served::new(memory()));
    let data = pattern((1 << 20) + 8192, 3);
    assert_eq!(machine.status(OUT, 0, &data, 0), OK);
    assert_eq!(stored(&machine.served.store, 0, data.len()), data);
    let bytes = u32::try_from(data.len()).unwrap();
    let (status, written, asked) = machine.done(IN, 0, &[], bytes);
    assert_eq!((status, written), (OK, bytes + 1));
    assert_eq!(machine.guest.get(asked.data, data.len()), data);
}

#[test]
fn requests_that_cannot_be_are_answered_so() {
    let mut machine = Machine::new(Served::new(memory()));
    let end = DISK_BYTES / 512;
    let block = vec![1; 4096];
    for (sector, bytes) in [
        (end, 4096),
        (end - 8, 8192),
        (u64::MAX - 7, 4096),
        (1, 4096),
        (0, 512),
        (0, 1),
    ] {
        assert_eq!(
            machine.status(IN, sector, &[], bytes),
            IO_ERROR,
            "{bytes} bytes from sector {sector}"
        );
    }
    assert_eq!(machine.status(OUT, end, &block, 0), IO_ERROR);
    assert_eq!(
        machine.status(OUT, 0, &[], 0),
        IO_ERROR,
        "nothing is no write"
    );
    assert_eq!(machine.status(IN, end - 8, &[], 4096), OK);
    for kind in [2, 3, 10, 14, 16, 99, u32::MAX] {
        assert_eq!(
            machine.status(kind, 0, &[], 4096),
            UNSUPPORTED,
            "type {kind}"
        );
    }
}

#[test]
fn the_serial_number_is_of_the_identity() {
    let mut machine = Machine::new(Served::new(memory()));
    let (status, written, asked) = machine.done(GET_ID, 0, &[], 20);
    assert_eq!((status, written), (OK, 21));
    assert_eq!(machine.guest.get(asked.data, 20), b"30313233343536373839");
    assert_eq!(machine.status(GET_ID, 0, &[], 19), IO_ERROR);
}

#[test]
fn ranges_are_zeroed_and_discarded() {
    let mut machine = Machine::new(Served::new(memory()));
    let data = pattern(64 << 10, 9);
    assert_eq!(machine.status(OUT, 0, &data, 0), OK);
    assert_eq!(machine.status(WRITE_ZEROES, 0, &range(8, 8, 0), 0), OK);
    assert_eq!(machine.status(WRITE_ZEROES, 0, &range(24, 8, 1), 0), OK);
    let two = [range(40, 8, 0), range(49, 14, 0)].concat();
    assert_eq!(machine.status(DISCARD, 0, &two, 0), OK);
    let mut expected = data.clone();
    for block in [1, 3, 5] {
        expected[block * 4096..(block + 1) * 4096].fill(0);
    }
    assert_eq!(
        stored(&machine.served.store, 0, data.len()),
        expected,
        "blocks that are discarded in part stay"
    );
    let end = DISK_BYTES / 512;
    for (kind, given, status) in [
        (WRITE_ZEROES, range(8, 8, 2), UNSUPPORTED),
        (DISCARD, range(8, 8, 1), UNSUPPORTED),
        (WRITE_ZEROES, range(8, 7, 0), IO_ERROR),
        (WRITE_ZEROES, range(4, 8, 0), IO_ERROR),
        (WRITE_ZEROES, range(end, 8, 0), IO_ERROR),
        (WRITE_ZEROES, range(u64::MAX, 8, 0), IO_ERROR),
        (WRITE_ZEROES, range(0, 0, 0), IO_ERROR),
        (
            WRITE_ZEROES,
            [range(0, 8, 0), range(8, 8, 0)].concat(),
            IO_ERROR,
        ),
        (DISCARD, range(end - 8, 16, 0), IO_ERROR),
        (DISCARD, vec![0; 15], IO_ERROR),
        (DISCARD, range(0, 8, 0).repeat(33), IO_ERROR),
        (DISCARD, vec![], IO_ERROR),
    ] {
        assert_eq!(
            machine.status(kind, 0, &given, 0),
            status,
            "type {kind}: {given:?}"
        );
    }
}

/// What the configuration space says is the most: 65,536 blocks in a range.
#[test]
fn a_range_has_no_more_blocks_than_the_disk_says() {
    let spec = store::StoreSpec::parse("null:1GiB").unwrap();
    let store = SharedStore::open(&spec, store::OpenOptions::read_write()).unwrap();
    let mut machine = Machine::new(Served::new(store));
    let sectors_max = 65_536 * 8;
    for kind in [WRITE_ZEROES, DISCARD] {
        assert_eq!(machine.status(kind, 8, &range(8, sectors_max, 0), 0), OK);
        for sectors in [sectors_max + 8, 2 * sectors_max, u32::MAX - 7] {
            let given = range(0, sectors, 0);
            assert_eq!(machine.status(kind, 0, &given, 0), IO_ERROR, "{sectors}");
        }
        assert_eq!(machine.status(kind, 8, &range(8, 8, 0), 0), OK);
    }
}

#[test]
fn a_protected_disk_is_read_only() {
    let served = Served::with(memory(), |namespace| namespace.write_protected = true);
    let mut machine = Machine::new(served);
    let offered = u64::from_le_bytes(machine.monitor.ask(1, &[]).try_into().unwrap());
    assert_eq!(offered & (1 << 5 | 1 << 13 | 1 << 14), 1 << 5);
    assert_eq!(machine.status(OUT, 0, &[1; 4096], 0), IO_ERROR);
    assert_eq!(machine.status(DISCARD, 0, &range(0, 8, 0), 0), IO_ERROR);
    assert_eq!(
        machine.status(WRITE_ZEROES, 0, &range(0, 8, 0), 0),
        IO_ERROR
    );
    assert_eq!(machine.status(IN, 0, &[], 4096), OK);
    assert_eq!(machine.status(FLUSH, 0, &[], 0), OK);
}

#[test]
fn the_configuration_space_says_what_there_is() {
    let mut machine = Machine::new(Served::new(memory()));
    let space = machine
        .monitor
        .ask(24, &[words(&[0, 60, 0]), vec![0; 60]].concat());
    let space = &space[12..];
    let word = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().unwrap());
    assert_eq!(
        u64::from_le_bytes(space[..8].try_into().unwrap()),
        DISK_BYTES / 512
    );
    assert_eq!((word(8), word(12), word(20)), (32 << 10, 126, 4096));
    assert_eq!(u16::from_le_bytes(space[34..36].try_into().unwrap()), 64);
    assert_eq!((word(36), word(40), word(44)), (8 << 16, 32, 8));
    assert_eq!((word(48), word(52), space[56]), (8 << 16, 1, 1));
    // Not there: what is not offered may not be written.
    assert_eq!(
        machine
            .monitor
            .try_order(25, &[words(&[32, 1, 0]), vec![1]].concat(), &[]),
        Some(1)
    );
    assert_eq!(machine.status(FLUSH, 0, &[], 0), OK, "and all goes on");
}

#[test]
fn framing_is_the_drivers_choice() {
    let mut machine = Machine::new(Served::new(memory()));
    let guest = &mut machine.guest;
    let data = pattern(4096, 5);
    // The header in three parts, data with it, and the status behind data in one descriptor.
    guest.put(DATA, &[words(&[OUT, 0]), longs(&[0])].concat());
    guest.put(DATA + 16, &data);
    let head = guest.chain(&[
        (DATA, 3, false),
        (DATA + 3, 9, false),
        (DATA + 12, 4 + 1000, false),
        (DATA + 1016, 3096, false),
        (0x20_0000, 1, true),
    ]);
    machine.monitor.kick();
    assert_eq!(guest.wait_used(), (head.into(), 1));
    assert_eq!(stored(&machine.served.store, 0, 4096), data);
    guest.put(DATA, &[words(&[IN, 0]), longs(&[0])].concat());
    let head = guest.chain(&[
        (DATA, 16, false),
        (0x20_0000, 100, true),
        (0x21_0000, 3997, true),
    ]);
    machine.monitor.kick();
    assert_eq!(guest.wait_used(), (head.into(), 4097));
    let read = [guest.get(0x20_0000, 100), guest.get(0x21_0000, 3996)].concat();
    assert_eq!(read, data);
    assert_eq!(guest.get(0x21_0000 + 3996, 1), [OK]);
}

#[test]
fn chains_that_are_no_requests_come_back() {
    let mut machine = Machine::new(Served::new(memory()));
    let guest = &mut machine.guest;
    guest.put(DATA, &[words(&[IN, 0]), longs(&[0])].concat());
    let status = 0x20_0000;
    let outside = GUEST + MEMORY_BYTES;
    let at = |offset: usize| GUEST + offset as u64;
    let chains = [
        // No place for a status; a short header; data, header or status outside.
        (vec![(at(DATA), 16, false)], 0, false),
        (vec![(at(DATA), 15, false), (at(status), 1, true)], 1, true),
        (
            vec![
                (at(DATA), 16, false),
                (outside, 4096, true),
                (at(status), 1, true),
            ],
            0,
            true,
        ),
        (
            vec![
                (at(DATA), 16, false),
                (outside - 8, 4096, true),
                (at(status), 1, true),
            ],
            0,
            true,
        ),
        (
            vec![
                (at(DATA), 16, false),
                (u64::MAX - 100, 4096, true),
                (at(status), 1, true),
            ],
            0,
            true,
        ),
        (vec![(outside, 16, false), (at(status), 1, true)], 1, true),
        (
            vec![
                (at(DATA), 16, false),
                (at(0x21_0000), 4096, true),
                (outside, 1, true),
            ],
            0,
            false,
        ),
        (
            vec![
                (at(DATA), 16, false),
                (at(0x21_0000), 4096, true),
                (u64::MAX, u32::MAX, true),
            ],
            0,
            false,
        ),
    ];
    for (parts, written, is_told) in chains {
        guest.put(status, &[0xAA]);
        let head = guest.chain_at(&parts);
        machine.monitor.kick();
        assert_eq!(guest.wait_used(), (head.into(), written), "{parts:?}");
        let told = if is_told { IO_ERROR } else { 0xAA };
        assert_eq!(guest.get(status, 1), [told], "{parts:?}");
    }
}

#[test]
fn a_chain_that_leads_nowhere_has_a_status_where_that_is_known() {
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const INDIRECT: u16 = 4;
    let mut machine = Machine::new(Served::new(memory()));
    let guest = &mut machine.guest;
    guest.put(DATA, &[words(&[IN, 0]), longs(&[0])].concat());
    let (data, status) = (0x21_0000, 0x20_0000);
    let header = (DATA, 16, NEXT, 1);
    let out = (WRITE | NEXT, 2);
    // Each leads from its last descriptor to one that is none, or breaks a rule; whether its status is known, and how much was written from the start.
    let chains: [(&[RawDescriptor], bool, u32); 7] = [
        (
            &[
                header,
                (data, 4096, out.0, out.1),
                (status, 1, WRITE | NEXT, 99),
            ],
            true,
            0,
        ),
        // Without data the status is the first that is written.
        (&[header, (status, 1, WRITE | NEXT, 99)], true, 1),
        // A loop: its header comes again, behind what is written.
        (&[header, (status, 1, WRITE | NEXT, 0)], true, 1),
        (
            &[header, (status, 1, out.0, out.1), (DATA, 16, 0, 0)],
            true,
            1,
        ),
        // A table, without the feature, is where the chain ends.
        (
            &[header, (status, 1, out.0, out.1), (DATA, 16, INDIRECT, 0)],
            true,
            1,
        ),
        // What was written last may be anything.
        (&[header, (data, 4096, WRITE | NEXT, 99)], false, 0),
        (&[(DATA, 16, NEXT, 99)], false, 0),
    ];
    for (parts, is_known, written) in chains {
        guest.put(status, &[0xAA]);
        guest.put(data, &[0xAA; 4096]);
        let head = guest.raw_chain(parts);
        machine.monitor.kick();
        assert_eq!(guest.wait_used(), (head.into(), written), "{parts:?}");
        let told = if is_known { IO_ERROR } else { 0xAA };
        assert_eq!(guest.get(status, 1), [told], "{parts:?}");
        assert_eq!(guest.get(data, 4096), [0xAA; 4096], "{parts:?}");
    }
}

#[test]
fn a_device_counts_what_it_does() {
    let mut machine = Machine::new(Served::new(memory()));
    let report = |machine: &Machine| machine.served.device.as_ref().unwrap().report();
    let before = report(&machine);
    assert!(before.connected_since.is_some());
    assert_eq!((before.queues, before.io), (1, DeviceIo::default()));
    assert_eq!(machine.status(OUT, 0, &[1; 8192], 0), OK);
    for _ in 0..3 {
        assert_eq!(machine.status(IN, 0, &[], 4096), OK);
    }
    assert_eq!(machine.status(IN, DISK_BYTES / 512, &[], 4096), IO_ERROR);
    assert_eq!(machine.status(99, 0, &[], 4096), UNSUPPORTED);
    assert_eq!(machine.status(GET_ID, 0, &[], 20), OK);
    assert_eq!(machine.status(FLUSH, 0, &[], 0), OK);
    assert_eq!(machine.status(WRITE_ZEROES, 0, &range(8, 8, 0), 0), OK);
    assert_eq!(machine.status(DISCARD, 0, &range(16, 8, 0), 0), OK);
    // A range that covers no block.
    assert_eq!(machine.status(DISCARD, 0, &range(17, 1, 0), 0), OK);
    // The queue stops: all of it has been counted.
    assert_eq!(machine.monitor.stop(), 11);
    let after = report(&machine);
    let DeviceIo { kicks, calls, .. } = after.io;
    let expected = DeviceIo {
        reads: 3,
        writes: 1,
        flushes: 1,
        discards: 2,
        write_zeroes: 1,
        bytes_read: 3 * 4096,
        bytes_written: 8192,
        errors: 2,
        in_flight: 0,
        kicks,
        calls,
    };
    assert_eq!((after.queues, after.io), (0, expected));
    assert!(
        (1..=11).contains(&kicks) && (1..=11).contains(&calls),
        "{kicks}, {calls}"
    );
}
