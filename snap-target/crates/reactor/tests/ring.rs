//! The ring against sockets and files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use reactor::buf::IoBuf;
use reactor::{Event, Fd, Owner, Payload, Ring, RingConfig, SendBatch, Wait};

fn next(owner: &Owner) -> Event {
    loop {
        if let Some(event) = owner.next_event() {
            return event;
        }
        owner.ring().turn(Wait::Block { until: None }).unwrap();
    }
}

#[test]
fn receives_and_sends() {
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let owner = ring.register().unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let ours = Fd::from(ours);
    owner.recv(&ours, 7).unwrap();
    theirs.write_all(b"hello").unwrap();
    let event = next(&owner);
    assert_eq!((event.tag, event.result), (7, Ok(5)));
    let Payload::Chunk(chunk) = event.payload else {
        panic!("{event:?}")
    };
    assert_eq!(&*chunk, b"hello");

    let mut batch = SendBatch::new(256, 16);
    let payload = IoBuf::from_bytes(b"0123456789").unwrap();
    assert!(batch.push_bytes(b"he"));
    assert!(batch.push_bytes(b"ad"));
    assert!(batch.push_payload(&payload, 2..6));
    assert!(batch.push_bytes(b"!"));
    owner.send(&ours, batch, 8).unwrap();
    let event = next(&owner);
    assert_eq!((event.tag, event.result), (8, Ok(9)));
    let mut got = [0; 9];
    theirs.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"head2345!");
}
