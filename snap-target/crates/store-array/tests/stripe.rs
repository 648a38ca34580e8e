//! Stripes: the contract, the geometry against a model of its own, and labels that keep wrong members out.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod scripted;

use nix::errno::Errno;
use store::Token;
use store::conformance::{self, Subject};
use store::decorate::{Fault, Faulty, On, What, When};
use store::{BlockingStore, Op, OpenOptions, SharedStore, StoreError, StoreSpec};
use store_array::ArrayError;
use store_array::stripe::{self, SetId};

use scripted::{Bench, Scripted};

const UNIT: u32 = 64 << 10;
const SET: SetId = SetId([7; 16]);

/// Memory, which reads as zeros.
fn memory(bytes: u64) -> SharedStore {
    SharedStore::open(&StoreSpec::Mem { bytes }, OpenOptions::read_write()).unwrap()
}

fn members(count: usize) -> Vec<SharedStore> {
    (0..count).map(|_| memory((1 << 20) + 4096)).collect()
}

fn made(members: Vec<SharedStore>) -> SharedStore {
    stripe::open_or_make(members, UNIT, SET).unwrap().0
}

fn read(store: &SharedStore, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    BlockingStore::new(store)
        .unwrap()
        .read(offset, &mut bytes)
        .unwrap();
    bytes
}

fn write(store: &SharedStore, offset: u64, bytes: &[u8]) {
    BlockingStore::new(store)
        .unwrap()
        .write(offset, bytes)
        .unwrap();
}

/// Bytes that tell their place.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
    (0..len as u64).map(|at| byte(at + seed)).collect()
}

#[test]
fn it_is_a_store_as_any_other() {
    for count in [2, 3, 5] {
        conformance::run(&Subject::new(|| made(members(count))));
    }
}

/// Where docs/format.md says that a unit is.
#[test]
fn a_unit_is_where_the_specification_has_it() {
    let members = members(3);
    let stripe = made(members.clone());
    assert_eq!(stripe.bytes(), 3 << 20);
    let content = pattern(3 << 20, 1);
    for (part, bytes) in content.chunks(1 << 20).enumerate() {
        write(&stripe, (part as u64) << 20, bytes);
    }
    for (unit, expected) in content.chunks(UNIT as usize).enumerate() {
        let offset = (unit / 3) as u64 * u64::from(UNIT);
        assert!(
            read(&members[unit % 3], offset, UNIT as usize) == expected,
            "unit {unit}"
        );
    }
    // And the other way, in odd pieces.
    let mut offset = 0;
    for len in [1, 65_535, 65_536, 65_537, 300_000, 1 << 20, 12_345]
        .iter()
        .cycle()
    {
        let len = (*len).min(content.len() - offset);
        assert!(read(&stripe, offset as u64, len) == content[offset..offset + len]);
        offset += len;
        if offset == content.len() {
            break;
        }
    }
}

#[test]
fn zeros_go_where_they_belong() {
    let stripe = made(members(3));
    let mut model = pattern(3 << 20, 5);
    for (part, bytes) in model.chunks(1 << 20).enumerate() {
        write(&stripe, (part as u64) << 20, bytes);
    }
    for (offset, len) in [
        (1, 10),
        (65_000, 1000),
        (100_000, 500_000),
        (1 << 20, 1 << 20),
    ] {
        let zero = Op::Zero {
            offset,
            len,
            durable: true,
        };
        BlockingStore::new(&stripe).unwrap().run(zero).unwrap();
        let (start, len) = (
            usize::try_from(offset).unwrap(),
            usize::try_from(len).unwrap(),
        );
        model[start..start + len].fill(0);
    }
    for (part, bytes) in model.chunks(1 << 20).enumerate() {
        assert!(read(&stripe, (part as u64) << 20, 1 << 20) == bytes);
    }
}

#[test]
fn what_is_not_the_stripe_is_refused() {
    let all = members(3);
    made(all.clone());
    let other = members(3);
    stripe::open_or_make(other.clone(), UNIT, SetId([8; 16])).unwrap();
    let (found, set) = stripe::open(all.clone(), UNIT).unwrap();
    assert_eq!((found.bytes(), set), (3 << 20, SET));
    let of = |indices: &[usize]| {
        indices
            .iter()
            .map(|at| all[*at].clone())
            .collect::<Vec<_>>()
    };
    let refused = |members: Vec<SharedStore>, unit, part: &str| {
        let error = stripe::open(members, unit).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(
        of(&[1, 0, 2]),
        UNIT,
        "it is member 2 of its stripe, and stands as number 1",
    );
    refused(
        of(&[0, 1]),
        UNIT,
        "its stripe has 3 members, and 2 are named",
    );
    refused(
        of(&[0, 1, 1]),
        UNIT,
        "it is member 2 of its stripe, and stands as number 3",
    );
    refused(
        of(&[0, 1, 2]),
        2 * UNIT,
        "units of 65536 bytes, and 131072 are asked for",
    );
    refused(
        vec![all[0].clone(), other[1].clone(), all[2].clone()],
        UNIT,
        "of another stripe than the first",
    );
    refused(
        vec![all[0].clone(), all[1].clone(), memory(1 << 20)],
        UNIT,
        "no label of a stripe",
    );
    refused(of(&[0]), UNIT, "1 members: an array has 2 to 16");
    refused(of(&[0, 1, 2]), 4096, "a stripe unit of 4096 bytes");
    refused(vec![memory(4096), memory(4096)], UNIT, "too few for a unit");
    refused(members(2), UNIT, "it is blank: write stripe:new:");
}

/// Any flipped bit of a label is noticed.
#[test]
fn a_damaged_label_is_no_label() {
    let all = members(2);
    made(all.clone());
    let whole = read(&all[1], 1 << 20, 4096);
    for at in (0..64).chain([100, 4091, 4092, 4095]) {
        let mut label = whole.clone();
        label[at] ^= 0x10;
        write(&all[1], 1 << 20, &label);
        let error = stripe::open(all.clone(), UNIT).unwrap_err();
        let is_meant = match at {
            0..8 => matches!(
                error,
                ArrayError::NoLabel {
                    is_blank: false,
                    ..
                }
            ),
            _ => matches!(error, ArrayError::Damaged { .. }),
        };
        assert!(is_meant, "byte {at}: {error}");
    }
    write(&all[1], 1 << 20, &whole);
    stripe::open(all, UNIT).unwrap();
}

/// Nothing that has content becomes a member.
#[test]
fn only_blank_members_become_a_stripe() {
    for at in [0, 4095, 1 << 20, (1 << 20) + 4095] {
        let all = members(2);
        write(&all[1], at, &[1]);
        let error = stripe::open_or_make(all.clone(), UNIT, SET).unwrap_err();
        assert!(
            matches!(
                error,
                ArrayError::NotBlank { .. } | ArrayError::NoLabel { .. }
            ),
            "{error}"
        );
        assert_eq!(
            read(&all[0], 1 << 20, 4096),
            [0; 4096],
            "nothing was written"
        );
    }
    // What was made is opened, not made anew.
    let all = members(2);
    write(&made(all.clone()), 0, &[9; 4096]);
    let (again, set) = stripe::open_or_make(all, UNIT, SetId([9; 16])).unwrap();
    assert_eq!((set, read(&again, 0, 4096)), (SET, vec![9; 4096]));
}

/// A member that cannot be reached is said to be, unless others have done their parts of a change.
#[test]
fn a_change_that_was_done_in_part_is_not_said_to_be_undone() {
    let all = members(2);
    made(all.clone());
    let fault = |on| Fault {
        on,
        range: 0..1 << 20,
        when: When::Always,
        what: What::Unreachable {
            retry_after_ms: None,
        },
    };
    let faulty = Faulty::over(vec![fault(On::Write), fault(On::Read)], all[1].clone()).unwrap();
    // The label is beyond the faults.
    let members = vec![all[0].clone(), faulty.store()];
    let (stripe, _) = stripe::open(members, UNIT).unwrap();
    let mut store = BlockingStore::new(&stripe).unwrap();
    let unit = u64::from(UNIT);
    store.write(0, &[1; 4096]).unwrap();
    let alone = store.write(unit, &[1; 4096]).unwrap_err();
    assert!(matches!(alone, StoreError::Unreachable { .. }), "{alone}");
    let both = store.write(unit - 4096, &[1; 8192]).unwrap_err();
    let is_meant =
        matches!(both, StoreError::Io { source: Errno::EIO, offset, .. } if offset == unit - 4096);
    assert!(is_meant, "{both}");
    let read = store.read(unit - 4096, &mut [0; 8192]).unwrap_err();
    assert!(matches!(read, StoreError::Unreachable { .. }), "{read}");
}

/// A stripe whose first member serves when it is told to, and takes so many reads at a time, one of them ahead. Units of that member, from the beginning.
fn scripted_stripe(room: usize) -> (Scripted, Bench, impl Fn(u64) -> u64) {
    let mut all = members(2);
    made(all.clone());
    let first = Scripted::new(all[0].clone(), room, 1);
    all[0] = first.store();
    let (stripe, _) = stripe::open(all, UNIT).unwrap();
    first.hold();
    (first, Bench::new(&stripe), |unit| {
        unit * 2 * u64::from(UNIT)
    })
}

/// Serves one by one, and returns which units the member served.
fn units_served(member: &Scripted, bench: &mut Bench, count: usize) -> Vec<u64> {
    for served in 1..=count {
        member.serve(1);
        bench.poll();
        assert_eq!(bench.done.len(), served);
    }
    let offsets = member.served().into_iter();
    offsets.map(|offset| offset / u64::from(UNIT)).collect()
}

#[test]
fn a_piece_ahead_that_finds_no_room_holds_up_no_other() {
    let (member, mut bench, unit) = scripted_stripe(2);
    bench.read(unit(0), true);
    bench.read(unit(1), true);
    bench.read(unit(2), false);
    bench.read(unit(3), false);
    assert_eq!(units_served(&member, &mut bench, 4), [2, 3, 0, 1]);
}

#[test]
fn a_hurried_piece_goes_with_those_that_are_waited_for() {
    let (member, mut bench, unit) = scripted_stripe(1);
    for ahead in 0..3 {
        bench.read(unit(ahead), true);
    }
    bench.read(unit(3), false);
    bench.read(unit(4), false);
    for hurried in [2, 9] {
        bench.store.hurry(Token(unit(hurried)));
    }
    assert_eq!(units_served(&member, &mut bench, 5), [0, 3, 4, 2, 1]);
}

#[test]
fn a_piece_that_its_member_has_is_hurried_there() {
    let (member, mut bench, unit) = scripted_stripe(2);
    bench.read(unit(0), true);
    bench.read(unit(1), false);
    bench.store.hurry(Token(unit(0)));
    assert_eq!(units_served(&member, &mut bench, 2), [0, 1]);
}

#[test]
fn a_cancelled_read_ends_whether_it_waits_ahead_or_not() {
    let (member, mut bench, unit) = scripted_stripe(2);
    for ahead in 0..3 {
        bench.read(unit(ahead), true);
    }
    bench.read(unit(3), false);
    bench.read(unit(4), false);
    for cancelled in [1, 4, 3] {
        bench.store.cancel(Token(unit(cancelled)));
    }
    bench.poll();
    let mut ended: Vec<u64> = bench.done.iter().map(|it| it.token.0 / unit(1)).collect();
    ended.sort_unstable();
    assert_eq!(ended, [1, 3, 4]);
    bench.done.clear();
    assert_eq!(units_served(&member, &mut bench, 2), [0, 2]);
}

/// Half of the places is for what is waited for; a hurried read gives its place to another one ahead.
#[test]
fn what_is_ahead_leaves_room() {
    let (member, mut bench, _) = scripted_stripe(usize::MAX);
    assert_eq!(bench.fill(), [64, 64]);
    bench.store.hurry(Token(5 << 9));
    bench.store.hurry(Token(5 << 9));
    bench.store.hurry(Token(70 << 9));
    member.serve(2);
    bench.poll();
    assert_eq!(bench.done.len(), 2);
    // Two of those that are waited for were served, and one of the others is not ahead any more.
    let mut next = [1 << 20, 1 << 20 | 512, 1 << 20 | 1024].into_iter();
    let mut read = |is_ahead| bench.try_read(next.next().unwrap(), 512, is_ahead);
    assert_eq!(read(true), Ok(()));
    assert_eq!(read(true), Err(StoreError::Busy));
    assert_eq!(read(false), Ok(()));
}

/// What is said of a read reaches those members that have a piece of it, once for each, whether it waits there or not.
#[test]
fn members_are_told_of_their_own_pieces() {
    let (member, mut bench, unit) = scripted_stripe(1);
    // Three units, two of them of the first member; the last one waits.
    let len = 3 * UNIT as usize;
    bench.try_read(unit(0), len, true).unwrap();
    bench.try_read(unit(3), 4096, true).unwrap();
    bench.store.hurry(Token(unit(0)));
    assert_eq!(member.told(), 2);
    bench.store.cancel(Token(unit(0)));
    assert_eq!(member.told(), 4);
    bench.poll();
    assert_eq!(bench.done.len(), 1);
    bench.done.clear();
    assert_eq!(units_served(&member, &mut bench, 1), [3]);
}

/// The members, where the n-th write of labels fails: of three members, twice each.
fn failing_at(all: &[SharedStore], write: usize) -> Vec<SharedStore> {
    let mut members = all.to_vec();
    let fault = Fault {
        on: On::Write,
        range: 1 << 20..(1 << 20) + 4096,
        when: When::Nth(write as u64 / 3 + 1),
        what: What::Error(Errno::EIO),
    };
    let at = write % 3;
    let faulty = Faulty::over(vec![fault], members[at].clone()).unwrap();
    members[at] = faulty.store();
    members
}

/// Wherever the making is interrupted, once or twice: it is not opened, and the same command finishes it.
#[test]
fn an_interrupted_making_is_finished() {
    for first in 0..6 {
        for second in 0..=6 {
            let all = members(3);
            stripe::open_or_make(failing_at(&all, first), UNIT, SET).unwrap_err();
            if second < 6 {
                let other = SetId([8; 16]);
                stripe::open_or_make(failing_at(&all, second), UNIT, other).unwrap_err();
            }
            let error = stripe::open(all.clone(), UNIT).unwrap_err().to_string();
            assert!(error.contains("stripe:new:UNIT"), "{first}: {error}");
            let other = SetId([9; 16]);
            let (store, set) = stripe::open_or_make(all.clone(), UNIT, other).unwrap();
            // Whose label was written first; the first step wrote none.
            let expected = match (first, second) {
                (0, 0 | 6) => other,
                (0, _) => SetId([8; 16]),
                _ => SET,
            };
            assert_eq!(set, expected, "{first}, {second}");
            write(&store, 0, &pattern(1 << 20, 1));
            let (again, found) = stripe::open(all, UNIT).unwrap();
            assert_eq!(found, set);
            assert!(read(&again, 0, 1 << 20) == pattern(1 << 20, 1));
        }
    }
}

/// Wherever the opening of one that has content is interrupted: it is opened the next time, with all that it had, whichever way it is asked for.
#[test]
fn an_interrupted_opening_loses_nothing() {
    for first in 0..6 {
        for second in 0..6 {
            for is_new in [false, true] {
                let all = members(3);
                write(&made(all.clone()), 0, &pattern(1 << 20, 2));
                stripe::open(failing_at(&all, first), UNIT).unwrap_err();
                stripe::open(failing_at(&all, second), UNIT).unwrap_err();
                let (store, set) = match is_new {
                    true => stripe::open_or_make(all, UNIT, SetId([9; 16])).unwrap(),
                    false => stripe::open(all, UNIT).unwrap(),
                };
                assert_eq!(set, SET);
                assert!(read(&store, 0, 1 << 20) == pattern(1 << 20, 2));
            }
        }
    }
}

/// A member as it was before the stripe was last opened to be written to, and one that was replaced by a blank one.
#[test]
fn a_member_from_another_time_is_refused() {
    let all = members(3);
    write(&made(all.clone()), 0, &pattern(1 << 20, 3));
    let copy = |from: &SharedStore, to: &SharedStore| {
        write(to, 0, &read(from, 0, 1 << 20));
        write(to, 1 << 20, &read(from, 1 << 20, 4096));
    };
    let before = memory((1 << 20) + 4096);
    copy(&all[1], &before);
    write(&stripe::open(all.clone(), UNIT).unwrap().0, 0, &[1; 4096]);
    let with = |member: &SharedStore| vec![all[0].clone(), member.clone(), all[2].clone()];
    for error in [
        stripe::open(with(&before), UNIT).unwrap_err(),
        stripe::open_or_make(with(&before), UNIT, SetId([9; 16])).unwrap_err(),
    ] {
        let is_meant = matches!(
            error,
            ArrayError::Stale {
                generation: 2,
                last: 3,
                ..
            }
        );
        assert!(is_meant, "{error}");
    }
    let blank = memory((1 << 20) + 4096);
    let error = stripe::open_or_make(with(&blank), UNIT, SetId([9; 16])).unwrap_err();
    assert!(
        matches!(error, ArrayError::Mismatch { .. }) && error.to_string().contains("it is blank"),
        "{error}"
    );
    assert_eq!(
        read(&blank, 1 << 20, 4096),
        [0; 4096],
        "nothing was written"
    );
    // A copy as it is now is as good as the member.
    let now = memory((1 << 20) + 4096);
    copy(&all[1], &now);
    let (store, _) = stripe::open(with(&now), UNIT).unwrap();
    assert_eq!(read(&store, 0, 4096), [1; 4096]);
}
