//! Files: reads, writes, flushes, with and without registered memory; at each feature level.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use crate::levels::{at_each_level, next};
use reactor::buf::{IoBuf, Pool, PoolConfig};
use reactor::{Errno, Fd, Fsync, Payload, RingConfig, WriteMode};

/// A file that is gone when its last descriptor is.
fn scratch_file() -> File {
    let path = std::env::temp_dir().join(format!(
        "reactor-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

#[test]
fn reads_and_writes_where_told() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let registered = Pool::new(
            ring,
            &PoolConfig {
                slots_1m: 2,
                ..PoolConfig::default()
            },
        )
        .unwrap();
        let plain = Pool::new(
            ring,
            &PoolConfig {
                register: false,
                ..PoolConfig::default()
            },
        )
        .unwrap();
        assert!(!plain.registered());
        let mut file = scratch_file();
        let fd = Fd::from(file.try_clone().unwrap());
        for pool in [&registered, &plain] {
            let mut buf = pool.alloc(10_000).unwrap();
            assert_eq!(
                buf.segments().next().unwrap().is_registered(),
                pool.registered()
            );
            buf.fill(0, 10_000, 0x5a);
            buf.copy_from(5000, b"middle");
            // A view in the middle of a slot, so that fixed buffers are used off their start.
            owner
                .write_at(&fd, 300, buf.slice(1000..9000), WriteMode::Durable, 1)
                .unwrap();
            assert_eq!(next(&owner).result, Ok(8000));
            owner.fsync(&fd, Fsync::Data, 2).unwrap();
            assert_eq!(next(&owner).result, Ok(0));

            let mut content = Vec::new();
            file.seek(SeekFrom::Start(300)).unwrap();
            file.read_to_end(&mut content).unwrap();
            assert_eq!(content.len(), 8000);
            assert_eq!(&content[4000..4006], b"middle");

            buf.fill(0, 10_000, 0);
            owner.read_at(&fd, 301, buf.slice(7..10_000), 3).unwrap();
            let event = next(&owner);
            assert_eq!(event.result, Ok(7999), "short at the end of the file");
            let Payload::Buf(view) = event.payload else {
                panic!("no buffer")
            };
            assert_eq!(view.slice(0..7999).to_vec(), &content[1..]);
            assert_eq!(
                buf.slice(0..7).to_vec(),
                [0; 7],
                "outside the view nothing is touched"
            );
            file.set_len(0).unwrap();
        }
    });
}

#[test]
fn lists_of_segments_are_cut_at_the_operation_limit() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let mut file = scratch_file();
        file.write_all(&[7; 4096]).unwrap();
        let fd = Fd::from(file);
        let mut buf = IoBuf::empty();
        (0..100).for_each(|_| buf.append(IoBuf::heap(10).unwrap()));
        owner.read_at(&fd, 0, buf, 1).unwrap();
        let event = next(&owner);
        assert_eq!(event.result, Ok(640), "64 segments of 10 bytes");
        let Payload::Buf(buf) = event.payload else {
            panic!("no buffer")
        };
        assert_eq!(buf.slice(0..640).to_vec(), [7; 640]);
        assert_eq!(buf.slice(640..1000).to_vec(), [0; 360]);
    });
}

#[test]
fn errors_come_with_the_resources() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let read_only = Fd::from(File::open("/dev/null").unwrap());
        owner
            .write_at(
                &read_only,
                0,
                IoBuf::from_bytes(b"x").unwrap(),
                WriteMode::Cached,
                1,
            )
            .unwrap();
        let event = next(&owner);
        assert_eq!(event.result, Err(Errno::EBADF));
        let Payload::Buf(buf) = event.payload else {
            panic!("no buffer")
        };
        assert_eq!(buf.to_vec(), b"x");
    });
}

#[test]
fn a_descriptor_may_be_dropped_before_its_operation_is_submitted() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let mut file = scratch_file();
        file.write_all(b"content").unwrap();
        owner
            .read_at(&Fd::from(file), 0, IoBuf::heap(7).unwrap(), 1)
            .unwrap();
        // The number would be reused here, were it free.
        let other = scratch_file();
        let event = next(&owner);
        drop(other);
        assert_eq!(event.result, Ok(7));
        let Payload::Buf(buf) = event.payload else {
            panic!("no buffer")
        };
        assert_eq!(buf.to_vec(), b"content");
    });
}

#[test]
fn a_small_submission_ring_takes_many_operations() {
    let config = RingConfig {
        submissions: 2,
        ops_max: 64,
        events_max: 64,
        ..RingConfig::default()
    };
    at_each_level(&config, |ring| {
        let owner = ring.register().unwrap();
        let mut file = scratch_file();
        let content: Vec<u8> = (0..60).collect();
        file.write_all(&content).unwrap();
        let fd = Fd::from(file);
        for at in 0..60 {
            owner.read_at(&fd, at, IoBuf::heap(1).unwrap(), at).unwrap();
        }
        let mut seen = [false; 60];
        for _ in 0..60 {
            let event = next(&owner);
            let Payload::Buf(buf) = event.payload else {
                panic!("no buffer")
            };
            assert_eq!(u64::from(buf.to_vec()[0]), event.tag);
            assert!(
                !std::mem::replace(&mut seen[usize::try_from(event.tag).unwrap()], true),
                "once each"
            );
        }
    });
}
