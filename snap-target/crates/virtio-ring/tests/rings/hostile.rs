//! Drivers that break the rules.

use proptest::prelude::*;
use virtio_ring::{ChainError, Descriptor, Format, Layout, Options, Position, Ring, RingError};

use super::driver::{Driver, RAM_BYTES, Request};
use super::model::format;
use super::ram::{Part, Ram};

const BOTH: Options = Options {
    indirect: true,
    event_index: true,
};
const DESCRIPTORS: usize = 0x1000;

fn ring(driver: &Driver, options: Options) -> Ring<Part> {
    Ring::new(
        &driver.ram,
        &driver.layout,
        options,
        Position(driver.base()),
        None,
    )
    .unwrap()
}

fn one(bytes: u32, writable: bool) -> Request {
    Request {
        parts: vec![Descriptor {
            address: 0x4000,
            bytes,
            writable,
        }],
        indirect: false,
    }
}

/// What a chain is found to be after `change` was made to the descriptor table of a ring with one chain of three.
fn chain_after(change: impl FnOnce(&Ram), options: Options) -> Result<(), ChainError> {
    let mut driver = Driver::new(Format::Split, 8, true);
    let mut ring = ring(&driver, options);
    let parts = [false, true, true].map(|writable| Descriptor {
        address: 0x4000,
        bytes: 512,
        writable,
    });
    driver
        .add(&Request {
            parts: parts.to_vec(),
            indirect: false,
        })
        .unwrap();
    change(&driver.ram);
    let mut chain = Vec::new();
    let taken = ring.take(&driver.ram, &mut chain).unwrap().unwrap();
    assert!(chain.len() <= virtio_ring::CHAIN_MAX);
    ring.give_back(taken.head, None).unwrap();
    ring.publish();
    assert_eq!(
        driver.reap(),
        Some((0, Some(0))),
        "a chain that cannot be used can be given back"
    );
    taken.chain
}

fn descriptor(ram: &Ram, at: usize, address: u64, bytes: u32, flags: u16, next: u16) {
    ram.write(at, &address.to_le_bytes());
    ram.write(at + 8, &bytes.to_le_bytes());
    ram.write16(at + 12, flags);
    ram.write16(at + 14, next);
}

#[test]
fn chains_that_break_the_rules_are_found_and_can_be_given_back() {
    let without = Options {
        indirect: false,
        event_index: true,
    };
    let third = DESCRIPTORS + 32;
    assert_eq!(chain_after(|_| {}, BOTH), Ok(()));
    // A loop.
    assert_eq!(
        chain_after(|ram| descriptor(ram, third, 0x4000, 1, 3, 1), BOTH),
        Err(ChainError::TooLong)
    );
    assert_eq!(
        chain_after(|ram| descriptor(ram, third, 0x4000, 1, 3, 8), BOTH),
        Err(ChainError::Next { next: 8, size: 8 })
    );
    assert_eq!(
        chain_after(|ram| descriptor(ram, third, 0x4000, 1, 0, 0), BOTH),
        Err(ChainError::Order)
    );
    let indirect = |bytes, flags| move |ram: &Ram| descriptor(ram, third, 0x5000, bytes, flags, 0);
    assert_eq!(
        chain_after(indirect(16, 4), without),
        Err(ChainError::NotNegotiated)
    );
    assert_eq!(
        chain_after(indirect(16, 5), BOTH),
        Err(ChainError::IndirectGoesOn)
    );
    for bytes in [0, 15, 17, 16 * 1025, u32::MAX] {
        assert_eq!(
            chain_after(indirect(bytes, 4), BOTH),
            Err(ChainError::IndirectLength { bytes })
        );
    }
    for address in [RAM_BYTES as u64 - 8, u64::MAX - 8, u64::MAX] {
        let change = |ram: &Ram| descriptor(ram, third, address, 32, 4, 0);
        assert_eq!(
            chain_after(change, BOTH),
            Err(ChainError::IndirectOutside { address })
        );
    }
    let nested = |ram: &Ram| {
        indirect(16, 4)(ram);
        descriptor(ram, 0x5000, 0x6000, 16, 4, 0);
    };
    assert_eq!(chain_after(nested, BOTH), Err(ChainError::Nested));
    let looping = |ram: &Ram| {
        indirect(32, 4)(ram);
        descriptor(ram, 0x5000, 0x6000, 16, 3, 1);
        descriptor(ram, 0x5010, 0x6000, 16, 3, 0);
    };
    assert_eq!(chain_after(looping, BOTH), Err(ChainError::TooLong));
    let outside = |ram: &Ram| {
        indirect(32, 4)(ram);
        descriptor(ram, 0x5000, 0x6000, 16, 3, 2);
    };
    assert_eq!(
        chain_after(outside, BOTH),
        Err(ChainError::Next { next: 2, size: 2 })
    );
}

#[test]
fn an_available_index_that_jumps_ends_the_ring() {
    let mut driver = Driver::new(Format::Split, 8, true);
    let mut ring = ring(&driver, BOTH);
    driver.add(&one(1, true)).unwrap();
    driver.ram.write16(0x8002, 9);
    let error = ring.take(&driver.ram, &mut Vec::new()).unwrap_err();
    assert_eq!(
        error,
        RingError::Available {
            available: 9,
            size: 8
        }
    );
}

#[test]
fn a_head_outside_ends_the_ring() {
    let mut driver = Driver::new(Format::Split, 8, true);
    let mut ring = ring(&driver, BOTH);
    driver.add(&one(1, true)).unwrap();
    driver.ram.write16(0x8004, 8);
    let error = ring.take(&driver.ram, &mut Vec::new()).unwrap_err();
    assert_eq!(error, RingError::Head { head: 8, size: 8 });
}

/// Were it, the record would be told that it is not in flight when its answer before is published.
#[test]
fn a_chain_whose_answer_is_held_is_not_taken_again() {
    let mut driver = Driver::new(Format::Split, 8, true);
    let mut ring = ring(&driver, BOTH);
    driver.add(&one(1, true)).unwrap();
    driver.add(&one(1, true)).unwrap();
    driver.ram.write16(0x8006, 0);
    let taken = ring.take(&driver.ram, &mut Vec::new()).unwrap().unwrap();
    ring.give_back(taken.head, None).unwrap();
    let error = ring.take(&driver.ram, &mut Vec::new()).unwrap_err();
    assert_eq!(error, RingError::Twice { id: 0 });
}

#[test]
fn a_chain_in_flight_is_not_taken_again() {
    for format in [Format::Split, Format::Packed] {
        let mut driver = Driver::new(format, 8, true);
        let mut ring = ring(&driver, BOTH);
        driver.add(&one(1, true)).unwrap();
        driver.add(&one(1, true)).unwrap();
        match format {
            Format::Split => driver.ram.write16(0x8006, 0),
            Format::Packed => driver.ram.write16(DESCRIPTORS + 16 + 12, 0),
        }
        ring.take(&driver.ram, &mut Vec::new()).unwrap().unwrap();
        let error = ring.take(&driver.ram, &mut Vec::new()).unwrap_err();
        assert_eq!(error, RingError::Twice { id: 0 });
    }
}

#[test]
fn a_packed_chain_without_an_end_ends_the_ring() {
    let driver = Driver::new(Format::Packed, 8, true);
    let mut ring = ring(&driver, BOTH);
    for index in 0..8 {
        driver
            .ram
            .write16(DESCRIPTORS + 16 * index + 14, 1 << 7 | 1);
    }
    let error = ring.take(&driver.ram, &mut Vec::new()).unwrap_err();
    assert_eq!(error, RingError::Endless);
}

#[test]
fn sizes_and_places_that_no_ring_has_are_refused() {
    let ram = Ram::new(RAM_BYTES);
    let new = |layout: &Layout, base| {
        Ring::<Part>::new(&ram, layout, BOTH, Position(base), None).map(drop)
    };
    let split = Layout {
        format: Format::Split,
        size: 8,
        descriptors: 0x1000,
        driver: 0x8000,
        device: 0xA000,
    };
    assert_eq!(new(&split, 0), Ok(()));
    for size in [0, 3, 6, 1025, 2048, u16::MAX] {
        let layout = Layout { size, ..split };
        assert!(
            matches!(new(&layout, 0), Err(RingError::Size { .. })),
            "{size}"
        );
    }
    let packed = Layout {
        format: Format::Packed,
        size: 6,
        ..split
    };
    assert_eq!(new(&packed, 0x8000_8000), Ok(()));
    assert_eq!(
        new(&packed, 0x8000_8006),
        Err(RingError::Position { index: 6, size: 6 })
    );
    assert_eq!(
        new(&packed, 0x8006_8000),
        Err(RingError::Position { index: 6, size: 6 })
    );
    assert_eq!(
        new(&split, 0x1_0000),
        Err(RingError::Position {
            index: 0x1_0000,
            size: 8
        })
    );
    for descriptors in [0x1001, 0x1008] {
        let layout = Layout {
            descriptors,
            ..split
        };
        assert!(
            matches!(new(&layout, 0), Err(RingError::Unaligned { .. })),
            "{descriptors:#x}"
        );
    }
    assert!(matches!(
        new(
            &Layout {
                driver: 0x8001,
                ..split
            },
            0
        ),
        Err(RingError::Unaligned { .. })
    ));
    assert!(matches!(
        new(
            &Layout {
                device: 0xA002,
                ..split
            },
            0
        ),
        Err(RingError::Unaligned { .. })
    ));
    for address in [RAM_BYTES as u64 - 16, u64::MAX - 15] {
        for layout in [
            Layout {
                descriptors: address,
                ..split
            },
            Layout {
                driver: address,
                ..split
            },
            Layout {
                device: address,
                ..split
            },
        ] {
            assert!(
                matches!(new(&layout, 0), Err(RingError::Outside { .. })),
                "{layout:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Memory full of anything: no panic, no access outside, an end of each take, and no more in flight than the ring has.
    #[test]
    fn any_bytes(
        format in format(),
        bytes in prop::collection::vec(any::<u8>(), 0x400),
        places in prop::collection::vec((0_usize..0x400, any::<u8>()), 0..64),
        with_record in any::<bool>(),
    ) {
        let driver = Driver::new(format, 16, true);
        for start in [0x1000, 0x8000, 0xA000, 0x4000, 0xE000] {
            driver.ram.write(start, &bytes);
        }
        // Records and indices that could be, so that more than the first check is seen.
        driver.ram.write16(0xE000 + 8, 1);
        driver.ram.write16(0xE000 + 10, 16);
        driver.ram.write(0xE000 + 16, &[0; 8]);
        driver.ram.write16(0x8002, 7);
        driver.ram.write16(0xA002, 0);
        driver.ram.write16(0xE000 + 14, 0);
        let record = with_record.then(|| driver.record());
        let made = Ring::new(&driver.ram, &driver.layout, BOTH, Position(driver.base()), record);
        let Ok(mut ring) = made else { return Ok(()) };
        let mut chain = Vec::new();
        let mut places = places.into_iter();
        for _ in 0..100 {
            let Ok(Some(taken)) = ring.take(&driver.ram, &mut chain) else { break };
            prop_assert!(chain.len() <= virtio_ring::CHAIN_MAX);
            prop_assert!(ring.in_flight() <= 16);
            if let Some((at, value)) = places.next() {
                for start in [0x1000, 0x8000, 0xA000] {
                    driver.ram.write(start + at, &[value]);
                }
                if value % 2 == 0 {
                    prop_assert_eq!(ring.give_back(taken.head, Some(1)), Ok(()));
                    ring.wants_call();
                    ring.with_kicks();
                }
            }
        }
    }
}
