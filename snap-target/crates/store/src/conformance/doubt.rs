//! Bytes of which somebody says that they are wrong.

use reactor::buf::IoBuf;

use super::rig::{Rig, pattern};
use super::{PATIENCE, Subject};
use crate::contract::{Op, Terms, Token};
use crate::shared::SharedStore;

const BYTES: usize = 4096;
/// Copies of any store besides the one that was read: far more than there are.
const COPIES_MAX: u32 = 64;

/// Whoever doubts right bytes reads the same ones; whatever the range is, the answer is how many other copies there are.
pub(super) fn doubt_changes_no_byte(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let data = pattern(1 << 20, 5);
    rig.write(0, &data);
    let expected = if subject.remembers {
        data
    } else {
        vec![0; 1 << 20]
    };
    check(&mut rig, &expected);
}

pub(super) fn its_content_stays_what_it_is(shared: &SharedStore, content: &[u8]) {
    check(&mut Rig::new(shared, PATIENCE), &content[..1 << 20]);
}

/// `expected` are its first bytes.
fn check(rig: &mut Rig, expected: &[u8]) {
    let bytes = rig.limits().bytes;
    let copies = rig.store.doubt(0, BYTES as u64);
    assert!(copies <= COPIES_MAX, "{copies} copies");
    // Never read, read, twice, in part, with a neighbour, all of it, nothing, and what is not there.
    let ranges = [
        (0, 4096),
        (0, 4096),
        (512, 512),
        (100, 8192),
        (0, bytes),
        (4096, 0),
        (bytes - 1, 1),
        (bytes, 4096),
        (bytes - 512, u64::MAX),
        (u64::MAX, u64::MAX),
    ];
    for (offset, len) in ranges {
        let told = rig.store.doubt(offset, len);
        assert!(told <= copies, "{len} bytes at {offset}: {told} copies");
        for at in [0, 4096, 65_536] {
            let found = rig.read(at as u64, BYTES);
            assert!(found == expected[at..at + BYTES], "{at} after {offset}");
        }
    }
    // While reads of them are under way.
    let depth = u64::from(rig.limits().queue_depth_max.min(8));
    for token in 0..depth {
        let (offset, buf) = (token * 4096, IoBuf::heap(BYTES).unwrap());
        rig.submit(Op::Read { offset }, Some(buf), token);
        rig.store.doubt(offset, BYTES as u64);
    }
    for done in rig.wait(usize::try_from(depth).unwrap()) {
        assert_eq!(done.result, Ok(4096));
        let at = usize::try_from(done.token.0 * 4096).unwrap();
        assert!(done.buf.unwrap().to_vec() == expected[at..at + BYTES]);
    }
    rig.expect_quiet();
}

/// Reads of these bytes until they are right: how many were wrong.
fn wrong_reads(rig: &mut Rig, at: usize, expected: &[u8]) -> u32 {
    for wrong in 0..=COPIES_MAX {
        if rig.read(at as u64, expected.len()) == expected {
            return wrong;
        }
        let copies = rig.store.doubt(at as u64, expected.len() as u64);
        assert!(
            wrong < copies,
            "{copies} other copies, and {} reads in a row are wrong at {at}",
            wrong + 1
        );
    }
    unreachable!("as many copies as no store has")
}

/// No copy is asked twice before all were asked; afterwards the right one is asked first.
pub(super) fn who_doubts_gets_the_right_bytes(shared: &SharedStore, content: &[u8], wrong: u32) {
    let mut rig = Rig::new(shared, PATIENCE);
    let mut found = 0;
    for at in [64 << 10, (64 << 10) + 4096, 128 << 10, 512 << 10] {
        let expected = &content[at..at + BYTES];
        let first = wrong_reads(&mut rig, at, expected);
        assert!(first <= wrong, "{first} of {wrong} wrong copies");
        found += first;
        for _ in 0..4 {
            assert_eq!(wrong_reads(&mut rig, at, expected), 0, "again at {at}");
        }
        // Of a part too.
        let part = &content[at + 512..at + 1024];
        assert_eq!(wrong_reads(&mut rig, at + 512, part), 0, "a part at {at}");
    }
    assert!(found > 0, "no copy of the subject was wrong");
    rig.expect_quiet();
}

/// Reads of many places go wrong together; doubted in another order, each is right within the copies that there are, and one more.
pub(super) fn doubts_of_many_places_do_not_hide_each_other(shared: &SharedStore, content: &[u8]) {
    let mut rig = Rig::new(shared, PATIENCE);
    let depth = rig.limits().queue_depth_max.min(16) as usize;
    let place = |token: usize| (64 << 10) + token * 3072;
    let mut open: Vec<usize> = (0..depth).collect();
    for reads in 0.. {
        for token in &open {
            let op = Op::Read {
                offset: place(*token) as u64,
            };
            let buf = Some(IoBuf::heap(BYTES).unwrap());
            let taken = rig
                .store
                .submit(op, buf, Token(*token as u64), Terms::default());
            taken.expect("there is room");
        }
        let mut done = rig.wait(open.len());
        done.sort_unstable_by_key(|done| std::cmp::Reverse(done.token.0));
        open.clear();
        for done in done {
            assert_eq!(done.result, Ok(4096));
            let token = usize::try_from(done.token.0).unwrap();
            let at = place(token);
            if done.buf.unwrap().to_vec() != content[at..at + BYTES] {
                let copies = rig.store.doubt(at as u64, BYTES as u64);
                assert!(reads <= copies, "{reads} reads were wrong at {at}");
                open.push(token);
            }
        }
        if open.is_empty() {
            break;
        }
    }
    rig.expect_quiet();
}
