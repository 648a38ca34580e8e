//! A store that the suite can only read, with content that is known.

use reactor::buf::IoBuf;

use super::rig::{Random, Rig, guest_pages, scattered_pages, segmented};
use super::{BYTES_MIN, PATIENCE};
use crate::contract::{Op, Terms, Token};
use crate::error::ErrorKind;
use crate::limits::TRANSFER_BYTES_MIN;
use crate::shared::SharedStore;

pub(super) fn changes_are_refused(shared: &SharedStore) {
    let mut rig = Rig::new(shared, PATIENCE);
    assert!(!rig.limits().writable, "the subject is one for reading");
    let write = Op::Write {
        offset: 0,
        durable: false,
    };
    let zero = Op::Zero {
        offset: 0,
        len: 512,
        durable: false,
    };
    let discard = Op::Discard {
        offset: 0,
        len: 512,
    };
    for op in [write, zero, discard] {
        let buf = op.takes_buffer().then(|| IoBuf::heap(512).unwrap());
        let rejected = rig
            .store
            .submit(op, buf, Token(1), Terms::default())
            .expect_err("a change of what is opened for reading");
        assert_eq!(rejected.why.kind(), ErrorKind::ReadOnly);
        assert_eq!(rejected.buf.is_some(), op.takes_buffer());
    }
    rig.run(Op::Flush, None);
    rig.expect_quiet();
}

pub(super) fn its_content_is_read_in_every_way(shared: &SharedStore, content: &[u8]) {
    let mut rig = Rig::new(shared, PATIENCE);
    let bytes = content.len() as u64;
    assert!(bytes >= BYTES_MIN, "the suite needs {BYTES_MIN} bytes");
    assert_eq!(rig.limits().bytes, bytes, "as long as its content");
    let whole = TRANSFER_BYTES_MIN as usize;
    let guest = rig.limits().guest_memory;
    let mut random = Random::new(3);
    for round in 0..64 {
        let (len, buf) = match round % 4 {
            0 => (whole, scattered_pages(whole)),
            1 if guest => (whole, guest_pages(whole)),
            _ => {
                let len = usize::try_from(1 + random.below(100_000)).unwrap();
                (len, segmented(len, &[4096, 512, 100], 256))
            }
        };
        let offset = random.below(bytes - len as u64 + 1);
        let at = usize::try_from(offset).unwrap();
        let back = rig.run(Op::Read { offset }, Some(buf)).unwrap().to_vec();
        assert!(back == content[at..at + len], "{len} bytes at {offset}");
        if let Some(lease) = rig.store.lease(offset, u32::try_from(len).unwrap()) {
            assert!(lease.to_vec() == content[at..at + len], "a lease of them");
        }
    }
    assert!(
        rig.read(bytes - 1, 1) == content[content.len() - 1..],
        "the last byte"
    );
    let beyond = rig
        .store
        .submit(
            Op::Read { offset: bytes },
            Some(IoBuf::heap(1).unwrap()),
            Token(1),
            Terms::default(),
        )
        .expect_err("beyond the end");
    assert_eq!(beyond.why.kind(), ErrorKind::OutOfRange);
}

pub(super) fn it_ends_as_others_do(shared: &SharedStore) {
    let mut rig = Rig::new(shared, PATIENCE);
    let count = rig.limits().queue_depth_max.min(8);
    for at in 0..u64::from(count) {
        let buf = rig.pool.alloc(4096).unwrap();
        rig.submit(Op::Read { offset: at * 4096 }, Some(buf), at);
        rig.store.cancel(Token(at / 2));
    }
    rig.store.close();
    for done in rig.wait(count as usize) {
        assert_eq!(done.buf.map(|buf| buf.len()), Some(4096));
        if let Err(error) = done.result {
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        }
    }
    assert!(rig.store.is_closed());
    assert_eq!(rig.pool.usage().used_bytes, 0);
}
