//! Sockets: receiving, sending, accepting; at each feature level.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use crate::levels::{PATIENCE, at_each_level, next};
use reactor::buf::{IoBuf, Pool, PoolConfig};
use reactor::{COMMAND_BYTES, Errno, Fd, Payload, RingConfig, SendBatch, Wait};

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i.wrapping_mul(31) ^ (i >> 8)).to_le_bytes()[0])
        .collect()
}

#[test]
fn receives_until_the_stream_ends() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Fd::from(ours);
        let sent = pattern(200_000);
        let writer = thread::spawn({
            let sent = sent.clone();
            move || theirs.write_all(&sent).unwrap()
        });
        let mut got = Vec::new();
        owner.recv(&ours, 7).unwrap();
        loop {
            let event = next(&owner);
            assert_eq!(event.tag, 7);
            match event.payload {
                Payload::Chunk(chunk) => {
                    assert_eq!(event.result, Ok(u32::try_from(chunk.len()).unwrap()));
                    got.extend_from_slice(&chunk);
                }
                _ => {
                    assert_eq!(event.result, Ok(0), "the end of the stream");
                    assert!(!event.more);
                    break;
                }
            }
            if !event.more {
                owner.recv(&ours, 7).unwrap();
            }
        }
        writer.join().unwrap();
        assert!(got == sent, "every byte, in order");
        assert_eq!(owner.in_flight(), 0);
    });
}

#[test]
fn receives_once_and_leaves_the_rest_in_the_socket() {
    at_each_level(
        &RingConfig {
            recv_buffer_bytes: 64,
            ..RingConfig::default()
        },
        |ring| {
            let owner = ring.register().unwrap();
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let ours = Fd::from(ours);
            let sent = pattern(64 + 5000);
            theirs.write_all(&sent).unwrap();
            owner.recv_once(&ours, 1).unwrap();
            let event = next(&owner);
            assert_eq!((event.result, event.more), (Ok(64), false));
            let Payload::Chunk(chunk) = event.payload else {
                panic!("no chunk")
            };
            assert_eq!(&*chunk, &sent[..64]);

            owner
                .recv_into(&ours, IoBuf::heap(5000).unwrap(), 2)
                .unwrap();
            let event = next(&owner);
            assert_eq!((event.tag, event.result), (2, Ok(5000)));
            let Payload::Buf(buf) = event.payload else {
                panic!("no buffer")
            };
            assert_eq!(buf.to_vec(), &sent[64..]);
        },
    );
}

#[test]
fn fills_a_buffer_of_many_segments_from_many_small_writes() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Fd::from(ours);
        // More segments than one system operation takes.
        let mut buf = IoBuf::empty();
        for len in 1..=200 {
            buf.append(IoBuf::heap(len).unwrap());
        }
        let sent = pattern(buf.len());
        let len = u32::try_from(buf.len()).unwrap();
        owner.recv_into(&ours, buf, 3).unwrap();
        let writer = thread::spawn({
            let sent = sent.clone();
            move || {
                sent.chunks(777)
                    .for_each(|part| theirs.write_all(part).unwrap())
            }
        });
        let event = next(&owner);
        writer.join().unwrap();
        assert_eq!(event.result, Ok(len));
        let Payload::Buf(buf) = event.payload else {
            panic!("no buffer")
        };
        assert!(buf.to_vec() == sent);
    });
}

#[test]
fn a_stream_that_ends_early_says_how_much_came() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Fd::from(ours);
        owner
            .recv_into(&ours, IoBuf::heap(1000).unwrap(), 3)
            .unwrap();
        theirs.write_all(&[9; 300]).unwrap();
        drop(theirs);
        let event = next(&owner);
        assert_eq!(event.result, Ok(300));
        let Payload::Buf(buf) = event.payload else {
            panic!("no buffer")
        };
        assert_eq!(buf.slice(0..300).to_vec(), [9; 300]);
    });
}

#[test]
fn takes_what_is_there_into_a_buffer_of_several_segments() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Fd::from(ours);
        let sent = pattern(1000);
        let mut got = Vec::new();
        // Into the first segment, across both, the rest, and the end of the stream.
        for (bytes, taken) in [(300, 300), (450, 450), (250, 250), (0, 0)] {
            let mut buf = IoBuf::heap(400).unwrap();
            buf.append(IoBuf::heap(100).unwrap());
            owner.recv_some(&ours, buf, 4).unwrap();
            theirs
                .write_all(&sent[got.len()..got.len() + bytes])
                .unwrap();
            if bytes == 0 {
                theirs.shutdown(std::net::Shutdown::Write).unwrap();
            }
            let event = next(&owner);
            assert_eq!((event.tag, event.result, event.more), (4, Ok(taken), false));
            let Payload::Buf(buf) = event.payload else {
                panic!("no buffer")
            };
            assert_eq!(buf.len(), 500, "the buffer comes back whole");
            got.extend(buf.slice(0..bytes).to_vec());
        }
        assert_eq!(got, sent);
    });
}

#[test]
fn a_receive_that_is_cancelled_leaves_the_bytes_in_the_socket() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Fd::from(ours);
        let op = owner
            .recv_some(&ours, IoBuf::from_bytes(&[1; 8]).unwrap(), 1)
            .unwrap();
        ring.turn(Wait::Poll).unwrap();
        ring.cancel(op);
        let event = next(&owner);
        assert_eq!(event.result, Err(Errno::ECANCELED));
        theirs.write_all(&[2; 8]).unwrap();
        let Payload::Buf(buf) = event.payload else {
            panic!("no buffer")
        };
        assert_eq!(
            buf.to_vec(),
            [1; 8],
            "nothing is written after it came back"
        );
        owner.recv_some(&ours, IoBuf::heap(16).unwrap(), 2).unwrap();
        assert_eq!(next(&owner).result, Ok(8));
    });
}

#[test]
fn sends_headers_and_payload_gathered_and_completely() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let pool = Pool::new(ring, &PoolConfig::default()).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Fd::from(ours);
        let mut payload = pool.alloc(3 << 20).unwrap();
        payload.copy_from(0, &pattern(3 << 20));

        // Far more than the socket holds: the send is continued as the reader takes.
        let mut batch = SendBatch::new(4096, 64);
        let mut expected = Vec::new();
        for piece in 0..24usize {
            let header = [u8::try_from(piece).unwrap(); 24];
            let range = piece * (128 << 10)..(piece + 1) * (128 << 10) - piece;
            assert!(batch.push_bytes(&header[..20]));
            assert!(batch.push_bytes(&header[20..]));
            assert!(batch.push_payload(&payload, range.clone()));
            expected.extend_from_slice(&header);
            expected.extend_from_slice(&payload.slice(range).to_vec());
        }
        assert_eq!(batch.len(), expected.len());
        // Payload of the fourth MiB lies in other slots: pieces across slots take two segments.
        owner.send(&ours, batch, 8).unwrap();
        let reader = thread::spawn({
            let len = expected.len();
            move || {
                let mut got = vec![0; len];
                theirs.read_exact(&mut got).unwrap();
                (got, theirs)
            }
        });
        let event = next(&owner);
        assert_eq!(
            (event.tag, event.result),
            (8, Ok(u32::try_from(expected.len()).unwrap()))
        );
        let (got, mut theirs) = reader.join().unwrap();
        assert!(got == expected);

        // The batch comes back, and holds the payload until it is cleared.
        let Payload::Sent(mut batch) = event.payload else {
            panic!("no batch")
        };
        assert!(payload.slice(0..1).exclusive().is_none());
        batch.clear();
        assert!(batch.is_empty());
        assert!(batch.push_bytes(b"again"));
        owner.send(&ours, batch, 9).unwrap();
        assert_eq!(next(&owner).result, Ok(5));
        let mut got = [0; 5];
        theirs.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"again");
    });
}

#[test]
fn a_batch_refuses_what_does_not_fit_and_stays_as_it_was() {
    let payload = IoBuf::from_bytes(&pattern(100)).unwrap();
    let mut batch = SendBatch::new(8, 2);
    assert!(batch.has_room(8, 2) && !batch.has_room(9, 1) && !batch.has_room(1, 3));
    assert!(!batch.push_bytes(&[0; 9]), "larger than the arena");
    assert!(!batch.push_payload(&payload, 50..101), "beyond the end");
    assert!(batch.is_empty());
    assert!(batch.push_bytes(&[1; 4]));
    assert!(batch.push_payload(&payload, 0..10));
    assert!(!batch.push_payload(&payload, 10..20), "no third segment");
    assert!(
        !batch.push_bytes(&[1; 4]),
        "no third segment for a header either"
    );
    assert_eq!((batch.len(), batch.segments_left()), (14, 0));
    batch.clear();
    assert!(
        batch.push_bytes(&[1; 4]) && batch.push_bytes(&[2; 4]),
        "neighbours in the arena are one segment"
    );
    assert_eq!(batch.segments_left(), 1);
}

#[test]
fn sends_zero_copy_or_by_copy_the_same_bytes() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let tcp = Fd::from(listener.accept().unwrap().0);
        let (unix, mut other) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        let unix = Fd::from(unix);
        let sent = pattern(2 << 20);
        let payload = IoBuf::from_bytes(&sent).unwrap();
        // TCP can, a Unix socket cannot.
        for (socket, reader) in [
            (&tcp, &mut theirs as &mut (dyn Read + Send)),
            (&unix, &mut other),
        ] {
            let mut batch = SendBatch::new(64, 8);
            assert!(batch.push_bytes(b"head") && batch.push_payload(&payload, 0..sent.len()));
            owner.send_zero_copy(socket, batch, 4).unwrap();
            let mut got = vec![0; 4 + sent.len()];
            thread::scope(|scope| {
                let reading = scope.spawn(|| reader.read_exact(&mut got));
                let event = next(&owner);
                assert_eq!(event.result, Ok(u32::try_from(4 + sent.len()).unwrap()));
                assert!(!event.more);
                reading.join().unwrap().unwrap();
            });
            assert!(got[4..] == sent[..]);
            assert_eq!(owner.in_flight(), 0);
            assert!(owner.next_event().is_none());
        }
    });
}

#[test]
fn a_peer_that_is_gone_is_an_error_and_no_signal() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut batch = SendBatch::new(8, 1);
        assert!(batch.push_bytes(b"hello"));
        owner.send(&Fd::from(ours), batch, 1).unwrap();
        let event = next(&owner);
        assert_eq!(event.result, Err(Errno::EPIPE));
        assert!(matches!(event.payload, Payload::Sent(_)));
    });
}

#[test]
fn accepts_one_connection_after_another() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Fd::from(listener);
        owner.accept(&listener, 5).unwrap();
        for round in 0..20u8 {
            let mut client = TcpStream::connect(address).unwrap();
            let event = next(&owner);
            let Payload::Socket(socket) = event.payload else {
                panic!("{event:?}")
            };
            if !event.more {
                owner.accept(&listener, 5).unwrap();
            }
            client.write_all(&[round]).unwrap();
            let mut got = [0];
            TcpStream::from(socket).read_exact(&mut got).unwrap();
            assert_eq!(got, [round], "it is that client's connection");
        }
    });
}

#[test]
fn a_flood_of_connections_over_the_inbox_limit_is_delivered_in_full() {
    let config = RingConfig {
        ops_max: 4,
        events_max: 4,
        submissions: 4,
        ..RingConfig::default()
    };
    at_each_level(&config, |ring| {
        let owner = ring.register().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Fd::from(listener);
        owner.accept(&listener, 5).unwrap();
        let clients: Vec<TcpStream> = (0..40)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        for _ in &clients {
            let event = next(&owner);
            assert!(matches!(event.payload, Payload::Socket(_)));
            if !event.more {
                owner.accept(&listener, 5).unwrap();
            }
        }
    });
}

#[test]
fn used_up_receive_buffers_stop_and_restart() {
    let config = RingConfig {
        recv_buffers: 2,
        recv_buffer_bytes: 16,
        ..RingConfig::default()
    };
    at_each_level(&config, |ring| {
        let owner = ring.register().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Fd::from(ours);
        let sent = pattern(48);
        theirs.write_all(&sent).unwrap();
        let mut held = Vec::new();
        while held.len() < 2 {
            if owner.in_flight() == 0 {
                owner.recv(&ours, 1).unwrap();
            }
            if let Payload::Chunk(chunk) = next(&owner).payload {
                held.push(chunk);
            }
        }
        let returned = ring.recv_buffers_returned();
        // Both buffers are held: the receive ends, or is refused from the start.
        if owner.in_flight() == 1 || owner.recv(&ours, 1).is_ok() {
            let event = next(&owner);
            assert_eq!((event.result, event.more), (Err(Errno::ENOBUFS), false));
        }
        let mut got: Vec<u8> = held.iter().flat_map(|chunk| chunk.to_vec()).collect();
        assert_eq!(ring.recv_buffers_returned(), returned);
        held.clear();
        assert_eq!(ring.recv_buffers_returned(), returned + 2);
        owner.recv(&ours, 1).unwrap();
        let Payload::Chunk(chunk) = next(&owner).payload else {
            panic!("no chunk")
        };
        got.extend_from_slice(&chunk);
        assert_eq!(got, sent, "nothing was lost meanwhile");
    });
}

#[test]
fn idle_connections_hold_no_buffer() {
    let config = RingConfig {
        recv_buffers: 4,
        ..RingConfig::default()
    };
    at_each_level(&config, |ring| {
        let owner = ring.register().unwrap();
        let pairs: Vec<_> = (0..30).map(|_| UnixStream::pair().unwrap()).collect();
        let (ours, mut theirs): (Vec<_>, Vec<_>) = pairs
            .into_iter()
            .map(|(ours, theirs)| (Fd::from(ours), theirs))
            .unzip();
        for (tag, socket) in (0..).zip(&ours) {
            owner.recv(socket, tag).unwrap();
        }
        // Those armed last first: they are the ones that would find no buffer.
        for round in 0..2 {
            for (tag, socket) in (0u8..30).zip(theirs.iter_mut()).rev() {
                socket.write_all(&[tag; 3]).unwrap();
                let event = next(&owner);
                assert_eq!(
                    (event.tag, event.result),
                    (u64::from(tag), Ok(3)),
                    "round {round}"
                );
                let Payload::Chunk(chunk) = event.payload else {
                    panic!("no chunk")
                };
                assert_eq!(&*chunk, [tag; 3]);
                if !event.more {
                    owner.recv(&ours[usize::from(tag)], event.tag).unwrap();
                }
            }
        }
        assert_eq!(owner.in_flight(), 30);
    });
}

/// A command of a socket's driver: how many bytes wait to be received (SOCKET_URING_OP_SIOCINQ, Linux 6.7).
#[test]
fn a_command_is_answered_by_the_driver_of_its_file() {
    at_each_level(&RingConfig::default(), |ring| {
        let owner = ring.register().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ours = Fd::from(listener.accept().unwrap().0);
        theirs.write_all(b"hello").unwrap();
        // So that they have arrived.
        owner.poll(&ours, 1, 1).unwrap();
        assert_eq!(next(&owner).result, Ok(1));
        owner.command(&ours, 0, [0; COMMAND_BYTES], 2).unwrap();
        assert_eq!(owner.in_flight(), 0, "nobody waits for it");
        let event = next(&owner);
        assert_eq!((event.tag, event.more), (2, false));
        match event.result {
            // Kernels before.
            Err(Errno::EINVAL | Errno::EOPNOTSUPP) => {}
            result => assert_eq!(result, Ok(5)),
        }
    });
}
