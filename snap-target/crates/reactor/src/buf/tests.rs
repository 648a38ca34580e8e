use proptest::prelude::*;

use super::*;

/// A buffer of several segments, and its bytes.
fn pieces(lens: &[usize]) -> (IoBuf, Vec<u8>) {
    let mut buf = IoBuf::empty();
    let mut bytes = Vec::new();
    for &len in lens {
        let piece: Vec<u8> = (0..len)
            .map(|i| (bytes.len() + i).to_le_bytes()[0] ^ 0x3c)
            .collect();
        buf.append(IoBuf::from_bytes(&piece).unwrap());
        bytes.extend(piece);
    }
    (buf, bytes)
}

#[test]
fn slices_cut_across_segments() {
    let (buf, whole) = pieces(&[6, 5, 1, 5]);
    assert_eq!((buf.len(), buf.segments().len()), (whole.len(), 4));
    for start in 0..=whole.len() {
        for end in start..=whole.len() {
            assert_eq!(buf.slice(start..end).to_vec(), &whole[start..end]);
        }
    }
    assert_eq!(
        buf.slice(15..999).to_vec(),
        &whole[15..],
        "ends are clamped"
    );
    assert!(buf.slice(99..999).is_empty());
}

#[test]
fn views_share_memory_and_only_the_last_one_is_exclusive() {
    let mut buf = IoBuf::heap(100).unwrap();
    let mut view = buf.slice(10..20);
    assert!(buf.exclusive().is_none() && view.exclusive().is_none());
    assert_eq!(view.copy_from(0, &[7; 10]), 10);
    assert_eq!(
        buf.slice(9..21).to_vec(),
        [0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0]
    );
    drop(buf);
    assert_eq!(
        view.exclusive().unwrap(),
        [7; 10],
        "the view, not the memory around it"
    );
    let (mut two, _) = pieces(&[3, 3]);
    assert!(two.exclusive().is_none(), "not one segment");
    assert_eq!(IoBuf::empty().exclusive().unwrap(), []);
}

#[test]
fn a_lease_is_read_only_and_keeps_its_memory() {
    let memory = Rc::new(Mapping::new(4096).unwrap());
    let keeper = Lease::new(memory.clone(), memory.region());
    // SAFETY: the keeper holds the mapping, which is longer than the lease.
    let mut lease = unsafe { IoBuf::lease(keeper, memory.at(100).unwrap(), 50) };
    assert!(lease.is_lease() && !lease.is_guest());
    assert_eq!(
        (lease.copy_from(0, &[1; 50]), lease.fill(0, 50, 1)),
        (0, 0),
        "nothing is written"
    );
    assert!(lease.exclusive().is_none());
    assert_eq!(lease.to_vec(), [0; 50]);
    assert_eq!(Rc::strong_count(&memory), 2);
    let view = lease.slice(10..20);
    drop(lease);
    assert_eq!(Rc::strong_count(&memory), 2, "a view holds it, too");
    drop(view);
    assert_eq!(Rc::strong_count(&memory), 1);
}

#[test]
fn guest_memory_is_written_but_never_exclusive() {
    let memory = Rc::new(Mapping::new(8192).unwrap());
    let keeper = Lease::new(memory.clone(), memory.region());
    let parts = [
        (memory.at(4096).unwrap(), 10),
        (memory.at(0).unwrap(), 0),
        (memory.at(7).unwrap(), 5),
    ];
    // SAFETY: the keeper holds the mapping, and all parts are inside.
    let mut guest = unsafe { IoBuf::guest(&keeper, &parts) };
    assert!(guest.is_guest() && !guest.is_lease());
    assert_eq!(
        (guest.len(), guest.segments().len()),
        (15, 2),
        "empty parts are left out"
    );
    assert_eq!(guest.copy_from(8, b"abcdefg"), 7);
    assert_eq!(guest.to_vec(), b"\0\0\0\0\0\0\0\0abcdefg");
    assert!(guest.slice(0..1).exclusive().is_none());
}

/// Wherever it begins, and however long it is: each byte where it belongs, and none beside.
#[test]
fn guest_memory_is_written_at_every_place() {
    const ROOM: u32 = 1024;
    let memory = Rc::new(Mapping::new(ROOM as usize).unwrap());
    let source: Vec<u8> = (0..600_u32)
        .map(|at| (at * 7 + 1).to_le_bytes()[0] | 1)
        .collect();
    for at in 0..72_usize {
        for len in (0..590_u32).step_by(1 + at % 7) {
            let mut whole = IoBuf::guest_in(&memory, &[(0, ROOM)]).unwrap();
            let mut part = IoBuf::guest_in(&memory, &[(at, len)]).unwrap();
            let bytes = &source[at % 5..][..len as usize];
            let place = at..at + bytes.len();
            whole.fill(0, whole.len(), 0xA0);
            assert_eq!(part.copy_from(0, bytes), bytes.len());
            let mut wanted = vec![0xA0; ROOM as usize];
            wanted[place.clone()].copy_from_slice(bytes);
            assert!(whole.to_vec() == wanted, "{len} bytes at {at}");
            assert_eq!(part.fill(0, bytes.len(), 0x5C), bytes.len());
            wanted[place].fill(0x5C);
            assert!(whole.to_vec() == wanted, "{len} bytes at {at}");
        }
    }
}

#[test]
fn nothing_larger_than_a_segment_is_made() {
    let error = IoBuf::heap(usize::try_from(u32::MAX).unwrap() + 1).unwrap_err();
    assert!(matches!(error, ReactorError::Memory { .. }));
    assert!(IoBuf::heap(0).unwrap().is_empty());
}

/// Pages of a guest, none beside its neighbour, each with its number in every byte; the first one from its middle on.
fn guest_pages(count: usize) -> (Rc<Mapping>, IoBuf, Vec<u8>) {
    let memory = Rc::new(Mapping::new(count * 8192).unwrap());
    let parts: Vec<(usize, u32)> = (0..count)
        .map(|page| match page {
            0 => (2048, 2048),
            page => (page * 8192, 4096),
        })
        .collect();
    let mut buf = IoBuf::guest_in(&memory, &parts).unwrap();
    let model: Vec<u8> = (0..buf.len())
        .map(|at| ((at + 2048) / 4096).to_le_bytes()[0] ^ at.to_le_bytes()[0])
        .collect();
    assert_eq!(buf.copy_from(0, &model), model.len());
    (memory, buf, model)
}

#[test]
fn views_of_many_segments_are_ranges_of_one_list() {
    let (memory, buf, model) = guest_pages(257);
    assert_eq!((buf.len(), buf.segments().len()), (257 * 4096 - 2048, 257));
    for (start, end, segments) in [
        (0, 1, 1),
        (0, 2048, 1),
        (2047, 2049, 2),
        (2048, 2048 + 4096, 1),
        (5000, 900_000, 220),
        (model.len() - 1, model.len(), 1),
        (model.len() - 4097, usize::MAX, 2),
        (0, model.len(), 257),
    ] {
        let view = buf.slice(start..end);
        let end = end.min(model.len());
        assert_eq!(view.len(), end - start);
        assert_eq!(view.segments().len(), segments, "{start}..{end}");
        assert_eq!(view.segments().count(), segments, "{start}..{end}");
        assert!(view.to_vec() == model[start..end], "{start}..{end}");
        let inner = view.slice(view.len() / 3..view.len());
        assert!(inner.to_vec() == model[start + view.len() / 3..end]);
    }
    assert!(buf.slice(model.len()..usize::MAX).is_empty());
    let view = buf.slice(100..500_000);
    drop(buf);
    assert_eq!(Rc::strong_count(&memory), 2, "the view keeps the guest");
    drop(view);
    assert_eq!(
        Rc::strong_count(&memory),
        1,
        "a recycled list keeps nothing"
    );
}

#[test]
fn appending_to_one_view_changes_no_other() {
    let (mut buf, mut whole) = pieces(&[3, 4, 5, 6, 7]);
    let (clone, part) = (buf.clone(), buf.slice(2..9));
    let (more, bytes) = pieces(&[2, 2, 2, 2, 2, 2]);
    let mut cut = buf.slice(0..9);
    cut.append(more.clone());
    assert_eq!(cut.to_vec(), [&whole[..9], &bytes].concat());
    buf.append(more);
    assert_eq!(clone.to_vec(), whole);
    assert_eq!(part.to_vec(), &whole[2..9]);
    whole.extend(bytes);
    assert_eq!((buf.to_vec(), buf.segments().len()), (whole.clone(), 11));
    buf.truncate(8);
    buf.append(part);
    assert_eq!(buf.to_vec(), [&whole[..8], &whole[2..9]].concat());
}

#[test]
fn a_segment_knows_its_region_and_its_place_in_it() {
    let heap = IoBuf::heap(8192).unwrap();
    let heap_region = heap.segments().next().unwrap().region();
    let view = heap.slice(5000..6000);
    let segment = view.segments().next().unwrap();
    assert_eq!(
        (segment.region(), segment.region_offset()),
        (heap_region, 5000)
    );
    let (memory, mut buf, _) = guest_pages(6);
    buf.append(view);
    let places: Vec<_> = buf
        .slice(2048 + 10..usize::MAX)
        .segments()
        .map(|segment| (segment.region(), segment.region_offset()))
        .collect();
    let guest = memory.region().id();
    assert_eq!(
        places,
        [
            (guest, 8192 + 10),
            (guest, 2 * 8192),
            (guest, 3 * 8192),
            (guest, 4 * 8192),
            (guest, 5 * 8192),
            (heap_region, 5000)
        ]
    );
    assert_ne!(guest, heap_region);
    assert!(buf.touches(guest) && buf.touches(heap_region));
    let last = buf.slice(buf.len() - 1000..buf.len());
    assert!(!last.touches(guest) && last.touches(heap_region));
    assert!(!last.is_guest() && buf.is_guest());
}

#[test]
fn volatile_stores_reach_every_byte_and_no_other() {
    for start in 0..9 {
        for len in [0usize, 1, 7, 8, 9, 15, 16, 17, 40] {
            let memory = Rc::new(Mapping::new(4096).unwrap());
            let part = |at: usize, len: usize| {
                let len = u32::try_from(len).unwrap();
                IoBuf::guest_in(&memory, &[(at, len)]).unwrap()
            };
            part(0, 64).fill(0, 64, 0xaa);
            let bytes: Vec<u8> = (1..=40).collect();
            // A source that is aligned otherwise than the destination.
            let from = &bytes[start % 3..][..len.min(37)];
            let mut model = [0xaa; 64];
            model[start..start + from.len()].copy_from_slice(from);
            assert_eq!(part(start, from.len()).copy_from(0, from), from.len());
            assert_eq!(part(0, 64).to_vec(), model, "{len} at {start}");
            model[start..start + len].fill(0x11);
            assert_eq!(part(start, len).fill(0, len, 0x11), len);
            assert_eq!(part(0, 64).to_vec(), model, "{len} at {start}");
        }
    }
    let memory = Rc::new(Mapping::new(4096).unwrap());
    assert!(IoBuf::guest_in(&memory, &[(4000, 97)]).is_none());
    assert!(IoBuf::guest_in(&memory, &[(usize::MAX, 1)]).is_none());
}

/// What was cleared holds nothing, and takes new bytes as a new one does; whoever else sees the old ones still does.
#[test]
fn a_cleared_buffer_begins_again() {
    for lens in [&[5][..], &[1, 2], &[3; 40]] {
        let (mut buf, model) = pieces(lens);
        let seen = buf.slice(0..model.len());
        buf.clear();
        assert_eq!((buf.len(), buf.segments().len()), (0, 0));
        let (other, bytes) = pieces(&[7, 7, 7]);
        buf.push_slice(&other, 0..21);
        assert_eq!(buf.to_vec(), bytes);
        assert_eq!(seen.to_vec(), model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Copies in and out, fills, slices of slices and raw runs agree with a plain vector.
    #[test]
    fn agrees_with_a_vector(
        lens in proptest::collection::vec(1usize..40, 1..24),
        steps in proptest::collection::vec((0usize..4, 0usize..200, 0usize..100, any::<u8>()), 1..30),
    ) {
        let (mut buf, mut model) = pieces(&lens);
        for (what, at, len, value) in steps {
            let at = at.min(model.len());
            let fits = len.min(model.len() - at);
            match what {
                0 => {
                    prop_assert_eq!(buf.copy_from(at, &vec![value; len]), fits);
                    model[at..at + fits].fill(value);
                }
                1 => {
                    prop_assert_eq!(buf.fill(at, len, value), fits);
                    model[at..at + fits].fill(value);
                }
                2 => {
                    let mut out = vec![0; len];
                    prop_assert_eq!(buf.copy_to(at, &mut out), fits);
                    prop_assert_eq!(&out[..fits], &model[at..at + fits]);
                }
                _ => {
                    let runs: Vec<usize> = buf.raw_segments(at, len).map(|(_, run)| run).collect();
                    prop_assert!(runs.iter().all(|&run| run > 0));
                    prop_assert_eq!(runs.iter().sum::<usize>(), fits);
                    // SAFETY: nobody writes meanwhile.
                    let read: Vec<u8> = unsafe { buf.as_slices(at, len) }.flatten().copied().collect();
                    prop_assert_eq!(&read, &model[at..at + fits]);
                    let view = buf.slice(at..at + fits);
                    let inner = view.slice(fits / 3..fits);
                    prop_assert_eq!(inner.to_vec(), &model[at + fits / 3..at + fits]);
                }
            }
        }
        prop_assert_eq!(buf.to_vec(), model);
    }
}

mod pool {
    use super::*;
    use crate::{Ring, RingConfig};

    fn ring() -> Ring {
        Ring::new(&RingConfig::default()).unwrap()
    }

    fn small() -> PoolConfig {
        PoolConfig {
            slots_4k: 2,
            slots_16k: 1,
            slots_64k: 1,
            slots_128k: 1,
            slots_1m: 2,
            register: false,
        }
    }

    #[test]
    fn takes_the_smallest_slot_that_is_free() {
        let pool = Pool::new(&ring(), &small()).unwrap();
        let total = 2 * 4096 + (16 << 10) + (64 << 10) + (128 << 10) + (2 << 20);
        assert_eq!(
            pool.usage(),
            PoolUse {
                used_bytes: 0,
                total_bytes: total,
                refusals: 0
            }
        );
        let mut held = Vec::new();
        let mut used = 0;
        for slot in [
            4 << 10,
            4 << 10,
            16 << 10,
            64 << 10,
            128 << 10,
            1 << 20,
            1 << 20,
        ] {
            let buf = pool.alloc(100).unwrap();
            used += slot;
            assert_eq!((buf.len(), pool.usage().used_bytes), (100, used));
            held.push(buf);
        }
        assert!(pool.alloc(1).is_none(), "all are taken");
        assert_eq!(pool.usage().refusals, 1);
        held.remove(3);
        assert_eq!(pool.usage().used_bytes, total - (64 << 10));
        assert!(pool.alloc((64 << 10) + 1).is_none());
        assert!(pool.alloc(64 << 10).is_some());
        held.clear();
        assert_eq!(pool.usage().used_bytes, 0);
    }

    #[test]
    fn slots_do_not_overlap_and_are_aligned_to_their_size() {
        let pool = Pool::new(&ring(), &small()).unwrap();
        let mut held: Vec<IoBuf> = [4096, 4096, 16 << 10, 64 << 10, 128 << 10, 1 << 20, 1 << 20]
            .map(|len| pool.alloc(len).unwrap())
            .into();
        for (value, buf) in (1u8..).zip(&mut held) {
            let len = buf.len();
            assert!(
                buf.segments()
                    .next()
                    .unwrap()
                    .ptr()
                    .addr()
                    .get()
                    .is_multiple_of(4096)
            );
            assert_eq!(buf.fill(0, len, value), len);
        }
        for (value, buf) in (1u8..).zip(&held) {
            assert!(buf.to_vec().iter().all(|&byte| byte == value));
        }
    }

    #[test]
    fn a_slot_returns_with_the_last_view_of_it() {
        let pool = Pool::new(&ring(), &small()).unwrap();
        let mut buf = pool.alloc(4096).unwrap();
        assert!(buf.exclusive().is_some());
        let view = buf.slice(5..6);
        assert!(buf.exclusive().is_none());
        drop(buf);
        assert_eq!(pool.usage().used_bytes, 4096);
        drop(view);
        assert_eq!(pool.usage().used_bytes, 0);
    }

    #[test]
    fn long_requests_take_several_slots_or_nothing() {
        let pool = Pool::new(&ring(), &small()).unwrap();
        let two = pool.alloc((1 << 20) + 1).unwrap();
        assert_eq!((two.segments().len(), two.len()), (2, (1 << 20) + 1));
        drop(two);
        assert!(pool.alloc(3 << 20).is_none(), "there are only two");
        assert_eq!(pool.usage().used_bytes, 0, "what was taken went back");
        assert!(pool.alloc(Pool::alloc_bytes_max() + 1).is_none());
        assert!(pool.alloc(0).is_some_and(|buf| buf.is_empty()));
    }

    #[test]
    fn a_ring_registers_one_pool() {
        let ring = ring();
        let register = PoolConfig {
            register: true,
            ..small()
        };
        let first = Pool::new(&ring, &register).unwrap();
        let second = Pool::new(&ring, &register).unwrap();
        assert!(!second.registered());
        assert!(
            second
                .alloc(10)
                .is_some_and(|buf| !buf.segments().next().unwrap().is_registered())
        );
        assert_eq!(
            first
                .alloc(10)
                .unwrap()
                .segments()
                .next()
                .unwrap()
                .is_registered(),
            first.registered()
        );
    }

    #[test]
    fn a_pool_of_nothing_refuses() {
        let none = PoolConfig {
            slots_4k: 0,
            slots_16k: 0,
            slots_64k: 0,
            slots_128k: 0,
            slots_1m: 0,
            register: true,
        };
        let pool = Pool::new(&ring(), &none).unwrap();
        assert!(pool.alloc(1).is_none());
        assert_eq!(pool.usage().total_bytes, 0);
    }
}

/// Pages of the mapping that are backed by memory.
fn resident_pages(mapping: &Mapping) -> usize {
    let mut pages = vec![0_u8; mapping.len() / PAGE_BYTES];
    // SAFETY: the range is mapped, and the vector has a byte for each of its pages.
    let result = unsafe {
        nix::libc::mincore(
            mapping.base().as_ptr().cast(),
            mapping.len(),
            pages.as_mut_ptr(),
        )
    };
    assert_eq!(result, 0);
    pages.iter().filter(|&&page| page & 1 != 0).count()
}

#[test]
fn populated_memory_is_there_before_its_first_use() {
    let mapping = Mapping::new(64 * PAGE_BYTES).unwrap();
    assert_eq!(resident_pages(&mapping), 0);
    mapping.populate().unwrap();
    assert_eq!(resident_pages(&mapping), 64);
}
