//! Who owns what until when: cancelling, dropping, full tables; at each feature level.

use std::io::Read;
use std::os::unix::net::UnixStream;

use crate::levels::{at_each_level, next, settle};
use reactor::buf::{IoBuf, Pool, PoolConfig};
use reactor::{Errno, Fd, Owner, Payload, ReactorError, Ring, RingConfig, SendBatch};

const POLLIN: i16 = 1;

#[test]
fn a_cancelled_operation_ends_once_and_gives_its_buffer_back() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let ours = Fd::from(ours);
        let ops = [
            owner.recv(&ours, 0).unwrap(),
            owner.recv_into(&ours, IoBuf::heap(10).unwrap(), 1).unwrap(),
            owner.poll(&ours, POLLIN, 2).unwrap(),
        ];
        settle(ring);
        assert!(owner.next_event().is_none());
        assert_eq!(owner.in_flight(), 3);
        for op in ops {
            ring.cancel(op);
            ring.cancel(op);
        }
        let mut tags = Vec::new();
        for _ in 0..3 {
            let event = next(&owner);
            assert_eq!((event.result, event.more), (Err(Errno::ECANCELED), false));
            assert_eq!(matches!(event.payload, Payload::Buf(_)), event.tag == 1);
            tags.push(event.tag);
        }
        tags.sort_unstable();
        assert_eq!(tags, [0, 1, 2]);
        settle(ring);
        assert!(owner.next_event().is_none(), "one last event each");
        assert_eq!(owner.in_flight(), 0);
        // Stale names do nothing, also where their place in the table is used again.
        let again = owner.recv(&ours, 3).unwrap();
        ops.iter().for_each(|&stale| ring.cancel(stale));
        settle(ring);
        assert!(owner.next_event().is_none());
        ring.cancel(again);
        assert_eq!(next(&owner).result, Err(Errno::ECANCELED));
    });
}

#[test]
fn cancelled_before_it_was_submitted() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let op = owner
            .recv_into(&Fd::from(ours), IoBuf::heap(10).unwrap(), 1)
            .unwrap();
        ring.cancel(op);
        let event = next(&owner);
        assert_eq!(event.result, Err(Errno::ECANCELED));
        assert!(matches!(event.payload, Payload::Buf(buf) if buf.len() == 10));
    });
}

#[test]
fn dropping_an_owner_ends_its_operations_and_frees_what_they_held() {
    at_each_level(&RingConfig::default(), |ring| {
        let pool = Pool::new(ring, &PoolConfig::default()).unwrap();
        let bystander = ring.register().unwrap();
        let (by_ours, by_theirs) = UnixStream::pair().unwrap();
        bystander.recv(&Fd::from(by_ours), 9).unwrap();

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let owner = ring.register().unwrap();
        {
            let ours = Fd::from(ours);
            owner
                .recv_into(&ours, pool.alloc(1 << 20).unwrap(), 1)
                .unwrap();
            owner
                .recv_into(&ours, pool.alloc(4096).unwrap(), 2)
                .unwrap();
            owner.poll(&ours, POLLIN, 3).unwrap();
            // A send that cannot finish: nobody reads.
            let mut batch = SendBatch::new(16, 16);
            let payload = pool.alloc(4 << 20).unwrap();
            assert!(batch.push_payload(&payload, 0..4 << 20));
            owner.send(&ours, batch, 4).unwrap();
        }
        settle(ring);
        assert_eq!(owner.in_flight(), 4);
        assert!(pool.usage().used_bytes > 5 << 20);
        // Drop waits: afterwards nothing refers to the buffers or the descriptor.
        drop(owner);
        assert_eq!(pool.usage().used_bytes, 0);
        let mut sink = Vec::new();
        theirs.read_to_end(&mut sink).unwrap();
        assert!(
            sink.len() < 4 << 20,
            "the socket is closed, so the read came to an end"
        );

        // Others go on.
        assert_eq!(bystander.in_flight(), 1);
        drop(by_theirs);
        let event = next(&bystander);
        assert_eq!((event.tag, event.result), (9, Ok(0)));
    });
}

#[test]
fn an_owner_that_is_gone_gets_nothing_and_its_place_is_used_again() {
    let config = RingConfig {
        owners_max: 2,
        ..RingConfig::default()
    };
    at_each_level(&config, |ring| {
        let first = ring.register().unwrap();
        let _second = ring.register().unwrap();
        let refused = ring.register().unwrap_err();
        assert!(
            matches!(
                refused,
                ReactorError::Full {
                    what: "owners",
                    limit: 2
                }
            ),
            "{refused}"
        );
        let (ours, theirs) = UnixStream::pair().unwrap();
        first.recv(&Fd::from(ours), 1).unwrap();
        drop(theirs);
        settle(ring);
        let stale = first.id();
        // Its event waits in the inbox, and it is in the ready list.
        drop(first);
        let third = ring.register().unwrap();
        assert_ne!(third.id(), stale);
        assert!(ring.next_ready().is_none());
        assert!(third.next_event().is_none());
    });
}

/// Who can wait does not take the last places: a store with much in flight must not keep connections from sending.
#[test]
fn an_owner_that_yields_leaves_the_reserved_places_to_the_others() {
    let config = RingConfig {
        ops_max: 8,
        ops_reserved: 3,
        ..RingConfig::default()
    };
    at_each_level(&config, |ring| {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let ours = Fd::from(ours);
        let (patient, other) = (ring.register_yielding().unwrap(), ring.register().unwrap());
        let started = |owner: &Owner| {
            let ops = (0..).map_while(|tag| owner.poll(&ours, POLLIN, tag).ok());
            ops.collect::<Vec<_>>()
        };
        // The other takes first what it may: what is reserved is for those who came as well.
        other.poll(&ours, POLLIN, 0).unwrap();
        let (taken, rest) = (started(&patient), started(&other));
        assert_eq!(taken.len(), 5);
        // One place is the ring's own watch for wake-ups.
        assert_eq!(rest.len(), 1);
        assert!(patient.poll(&ours, POLLIN, 9).is_err());
        ring.cancel(rest[0]);
        settle(ring);
        assert_eq!(started(&patient).len(), 0);
        assert_eq!(started(&other).len(), 1);
        ring.cancel(taken[0]);
        settle(ring);
        assert_eq!(started(&patient).len(), 1);
    });
}

#[test]
fn a_full_table_refuses_and_gives_everything_back() {
    let config = RingConfig {
        ops_max: 4,
        events_max: 4,
        submissions: 4,
        ..RingConfig::default()
    };
    at_each_level(&config, |ring| {
        let owner = ring.register().unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let ours = Fd::from(ours);
        // One of the four places is the ring's own watch for wake-ups.
        for tag in 0..3 {
            owner.poll(&ours, POLLIN, tag).unwrap();
        }
        let refused = owner
            .recv_into(&ours, IoBuf::from_bytes(b"mine").unwrap(), 9)
            .unwrap_err();
        assert_eq!(
            (refused.limit, refused.resources.to_vec()),
            (4, b"mine".to_vec())
        );
        let mut batch = SendBatch::new(16, 2);
        assert!(batch.push_bytes(b"mine too"));
        assert_eq!(owner.send(&ours, batch, 9).unwrap_err().resources.len(), 8);
        assert!(owner.recv(&ours, 9).is_err());
        assert_eq!(owner.in_flight(), 3);

        let (other, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        drop(owner);
        let owner = ring.register().unwrap();
        owner.recv(&Fd::from(other), 1).unwrap();
        assert_eq!(next(&owner).result, Ok(0));
    });
}

#[test]
fn chunks_and_buffers_outlive_the_ring() {
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let pool = Pool::new(&ring, &PoolConfig::default()).unwrap();
    let owner = ring.register().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::io::Write::write_all(&mut &theirs, b"kept").unwrap();
    owner.recv(&Fd::from(ours), 1).unwrap();
    let Payload::Chunk(chunk) = next(&owner).payload else {
        panic!("no chunk")
    };
    let mut buf = pool.alloc(100).unwrap();
    drop((owner, ring, pool));
    assert_eq!(&*chunk, b"kept");
    assert_eq!(buf.copy_from(0, b"kept"), 4);
    assert_eq!(&buf.exclusive().unwrap()[..4], b"kept");
}

#[test]
fn limits_that_cannot_work_are_refused_by_name() {
    let default = RingConfig::default;
    for (config, name) in [
        (
            RingConfig {
                submissions: 3,
                ..default()
            },
            "submissions",
        ),
        (
            RingConfig {
                ops_max: 0,
                ..default()
            },
            "ops_max",
        ),
        (
            RingConfig {
                ops_max: 100_000,
                ..default()
            },
            "ops_max",
        ),
        (
            RingConfig {
                events_max: 1,
                ..default()
            },
            "events_max",
        ),
        (
            RingConfig {
                owners_max: 0,
                ..default()
            },
            "owners_max",
        ),
        (
            RingConfig {
                recv_buffers: 3,
                ..default()
            },
            "recv_buffers",
        ),
        (
            RingConfig {
                recv_buffer_bytes: 0,
                ..default()
            },
            "recv_buffer_bytes",
        ),
        (
            RingConfig {
                timers_max: u32::MAX,
                ..default()
            },
            "timers_max",
        ),
    ] {
        let error = Ring::new(&config).err().unwrap();
        assert!(matches!(error, ReactorError::Config { .. }));
        assert!(error.to_string().contains(name), "{error}");
    }
}
