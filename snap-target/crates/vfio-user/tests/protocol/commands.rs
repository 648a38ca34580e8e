//! Each command: what it becomes, what it is answered, and what is refused.

use vfio_user::{DmaId, Errno, Event, ProtocolError, Unmap};

use crate::client::{Reply, VERSION_DATA, Wire, longs, message, word, words};

const EINVAL: u32 = 22;
const ENOTSUP: u32 = 95;
const ENOSYS: u32 = 38;
const E2BIG: u32 = 7;

fn map_body(flags: u32, offset: u64, address: u64, size: u64) -> Vec<u8> {
    [words(&[32, flags]), longs(&[offset, address, size])].concat()
}

fn unmap_body(flags: u32, address: u64, size: u64) -> Vec<u8> {
    [words(&[24, flags]), longs(&[address, size])].concat()
}

fn access_body(offset: u64, region: u32, count: u32) -> Vec<u8> {
    [longs(&[offset]), words(&[region, count])].concat()
}

#[test]
fn version_comes_first_and_once() {
    let mut wire = Wire::raw();
    let early = wire.send(&message(1, 4, 0, &words(&[16, 0, 0, 0])), &[]);
    assert_eq!(early, Err(ProtocolError::NotNegotiated { command: 4 }));
    assert_eq!((wire.server.want(), wire.reply()), (0, None));

    let mut wire = Wire::raw();
    assert!(wire.server.capabilities().is_none());
    wire.send(&message(3, 1, 0, VERSION_DATA), &[]).unwrap();
    let reply = wire.reply().unwrap();
    let body = reply.result.unwrap();
    assert_eq!((reply.id, reply.command, &body[..4]), (3, 1, &[0; 4][..]));
    assert_eq!(body.last(), Some(&0));
    assert_eq!(wire.server.capabilities().unwrap().fds_max, 16);
    assert_eq!(wire.ask(1, VERSION_DATA, &[]), Reply::error(7, 1, EINVAL));
}

/// The minor version of the reply is none that the client did not offer; another major one ends the connection.
#[test]
fn another_version_is_not_agreed_to() {
    let mut newer = Wire::raw();
    newer.send(&message(1, 1, 0, b"\0\0\x05\0"), &[]).unwrap();
    assert_eq!(newer.reply().unwrap().result.unwrap()[..4], [0; 4]);

    for body in [&b"\x01\0\0\0"[..], b"\0\0", b"", b"\0\0\0\0{"] {
        let mut wire = Wire::raw();
        let refused = wire.send(&message(1, 1, 0, body), &[]).unwrap_err();
        assert!(
            matches!(refused, ProtocolError::Version { .. }),
            "{refused}"
        );
        assert_eq!(wire.reply(), Some(Reply::error(1, 1, EINVAL)));
        assert_eq!(wire.server.want(), 0, "not a byte is read any more");
    }
}

#[test]
fn the_device_describes_itself() {
    let mut wire = Wire::negotiated();
    let info = wire.ask(4, &words(&[16, 0, 0, 0]), &[]);
    // PCI, and it can be reset.
    assert_eq!(info, Reply::ok(7, 4, words(&[16, 3, 9, 5])));
    let short = wire.ask(4, &words(&[15, 0, 0, 0]), &[]);
    assert_eq!(short, Reply::error(7, 4, EINVAL));

    let region = |index| [words(&[32, 0, index, 0]), longs(&[0, 0])].concat();
    let config = wire.ask(5, &region(7), &[]);
    let expected = [words(&[32, 3, 7, 0]), longs(&[0x1000, 0])].concat();
    assert_eq!(config, Reply::ok(7, 5, expected));
    let absent = wire.ask(5, &region(2), &[]);
    assert_eq!(
        absent,
        Reply::ok(7, 5, [words(&[32, 0, 2, 0]), longs(&[0, 0])].concat())
    );
    for index in [9, u32::MAX] {
        assert_eq!(wire.ask(5, &region(index), &[]), Reply::error(7, 5, EINVAL));
    }
}

/// QEMU asks with 32 bytes of room, is told how many it takes, and asks again.
#[test]
fn areas_that_can_be_mapped_are_told_where_they_have_room() {
    let mut wire = Wire::negotiated();
    let ask = |room| [words(&[room, 0, 0, 0]), longs(&[0, 0])].concat();
    let first = wire.ask(5, &ask(32), &[]);
    let whole = 32 + 16 + 2 * 16;
    // QEMU takes capabilities at 0 for an error.
    let told = [words(&[whole, 0xF, 0, 32]), longs(&[0x4000, 0])].concat();
    assert_eq!((first.result, first.region_fd), (Ok(told), Some(0)));

    let second = wire.ask(5, &ask(whole), &[]);
    let expected = [
        words(&[whole, 0xF, 0, 32]),
        longs(&[0x4000, 0]),
        vec![1, 0, 1, 0],
        words(&[0, 2, 0]),
        longs(&[0x1000, 0x1000, 0x3000, 0x1000]),
    ];
    assert_eq!(
        (second.result, second.region_fd),
        (Ok(expected.concat()), Some(0))
    );
    assert_eq!(wire.ask(5, &ask(31), &[]), Reply::error(7, 5, EINVAL));
}

#[test]
fn interrupts_are_described() {
    let mut wire = Wire::negotiated();
    for (index, flags, count) in [(0, 7, 1), (1, 0, 0), (2, 1, 8), (4, 0, 0)] {
        let reply = wire.ask(7, &words(&[16, 0, index, 0]), &[]);
        assert_eq!(reply, Reply::ok(7, 7, words(&[16, flags, index, count])));
    }
    let beyond = wire.ask(7, &words(&[16, 0, 5, 0]), &[]);
    assert_eq!(beyond, Reply::error(7, 7, EINVAL));
}

#[test]
fn windows_come_with_a_descriptor_or_without() {
    let mut wire = Wire::negotiated();
    let body = map_body(3, 0x5000, 0x10_0000, 0x2000);
    let event = wire.event(2, &body, &[42]);
    let Event::DmaMap {
        ticket,
        address,
        size,
        offset,
        access,
        fd,
    } = event
    else {
        panic!("{event:?}")
    };
    assert_eq!((address, size, offset), (0x10_0000, 0x2000, 0x5000));
    assert_eq!((access, fd), ((true, true), Some(42)));
    wire.server.done(ticket);
    assert_eq!(wire.reply(), Some(Reply::ok(7, 2, vec![])));

    let event = wire.event(2, &map_body(1, 0, 0xC_0000, 0x1000), &[]);
    let Event::DmaMap {
        ticket, access, fd, ..
    } = event
    else {
        panic!("{event:?}")
    };
    assert_eq!((access, fd), ((true, false), None));
    wire.server.refuse(ticket, Errno::EEXIST);
    assert_eq!(wire.reply(), Some(Reply::error(7, 2, 17)));

    for (body, fds) in [
        (map_body(3, 0, 0, 0), &[][..]),
        (map_body(3, 0, u64::MAX, 2), &[]),
        (map_body(3, u64::MAX, 0, 0x1000), &[1]),
        (map_body(0, 0, 0, 0x1000), &[]),
        (map_body(4, 0, 0, 0x1000), &[]),
        (map_body(3, 0, 0, 0x1000), &[1, 2]),
        (map_body(3, 0, 0, 0x1000)[..31].to_vec(), &[]),
        ([map_body(3, 0, 0, 0x1000), vec![0]].concat(), &[]),
    ] {
        assert_eq!(
            wire.ask(2, &body, fds),
            Reply::error(7, 2, EINVAL),
            "{body:?}"
        );
    }
}

#[test]
fn windows_go_one_by_one_or_all_and_the_reply_waits() {
    let mut wire = Wire::negotiated();
    let body = unmap_body(0, 0x10_0000, 0x2000);
    let event = wire.event(3, &body, &[]);
    let Event::DmaUnmap { ticket, unmap } = event else {
        panic!("{event:?}")
    };
    let window = Unmap::Window {
        address: 0x10_0000,
        size: 0x2000,
    };
    assert_eq!(unmap, window);
    // Others are answered meanwhile.
    assert!(wire.ask(4, &words(&[16, 0, 0, 0]), &[]).result.is_ok());
    wire.server.done(ticket);
    assert_eq!(wire.reply(), Some(Reply::ok(7, 3, body)));

    let event = wire.event(3, &unmap_body(2, 0, 0), &[]);
    assert!(
        matches!(
            event,
            Event::DmaUnmap {
                unmap: Unmap::All,
                ..
            }
        ),
        "{event:?}"
    );
    for (flags, address, errno) in [(1, 0, ENOTSUP), (2, 0x1000, EINVAL), (4, 0, EINVAL)] {
        let reply = wire.ask(3, &unmap_body(flags, address, 0), &[]);
        assert_eq!(reply, Reply::error(7, 3, errno));
    }
}

#[test]
fn regions_are_read_inside_and_not_beyond() {
    let mut wire = Wire::negotiated();
    let body = access_body(0x3FFC, 0, 4);
    let event = wire.event(9, &body, &[]);
    let Event::RegionRead {
        ticket,
        region,
        offset,
        count,
    } = event
    else {
        panic!("{event:?}")
    };
    assert_eq!((region, offset, count), (0, 0x3FFC, 4));
    wire.server.read(ticket, b"data");
    assert_eq!(
        wire.reply(),
        Some(Reply::ok(7, 9, [&body[..], b"data"].concat()))
    );

    // A device that has fewer bytes than were asked for fails the read.
    let event = wire.event(9, &body, &[]);
    let Event::RegionRead { ticket, .. } = event else {
        panic!("{event:?}")
    };
    wire.server.read(ticket, b"dat");
    assert_eq!(wire.reply(), Some(Reply::error(7, 9, 5)));

    for (offset, region, count, errno) in [
        (0x3FFD, 0, 4, EINVAL),
        (u64::MAX, 0, 4, EINVAL),
        (0, 1, 1, EINVAL),
        (0, 9, 1, EINVAL),
        (0, u32::MAX, 1, EINVAL),
        (0, 0, (1 << 20) + 1, E2BIG),
        (0, 0, u32::MAX, E2BIG),
    ] {
        let reply = wire.ask(9, &access_body(offset, region, count), &[]);
        assert_eq!(
            reply,
            Reply::error(7, 9, errno),
            "{offset:#x} {region} {count}"
        );
    }
}

#[test]
fn regions_are_written_where_they_can_be() {
    let mut wire = Wire::negotiated();
    let body = [access_body(0x1008, 0, 4), b"\x05\0\0\0".to_vec()].concat();
    let event = wire.event(10, &body, &[]);
    let Event::RegionWrite {
        ticket,
        region,
        offset,
        data,
    } = event
    else {
        panic!("{event:?}")
    };
    assert_eq!((region, offset, &data[..]), (0, 0x1008, &[5, 0, 0, 0][..]));
    wire.server.done(ticket);
    assert_eq!(
        wire.reply(),
        Some(Reply::ok(7, 10, access_body(0x1008, 0, 4)))
    );

    for (head, data) in [
        (access_body(0, 6, 4), vec![0; 4]),
        (access_body(0, 0, 4), vec![0; 3]),
        (access_body(0, 0, 4), vec![0; 5]),
        (access_body(0x3FFE, 0, 4), vec![0; 4]),
    ] {
        let reply = wire.ask(10, &[head, data].concat(), &[]);
        assert_eq!(reply, Reply::error(7, 10, EINVAL));
    }
}

/// Doorbells come so: nothing is answered, whatever becomes of them.
#[test]
fn who_wants_no_reply_gets_none() {
    let mut wire = Wire::negotiated();
    let body = [access_body(0x1000, 0, 4), vec![1, 0, 0, 0]].concat();
    wire.send(&message(9, 10, 0x10, &body), &[]).unwrap();
    let Some(Event::RegionWrite { ticket, .. }) = wire.server.next_event() else {
        panic!()
    };
    wire.server.done(ticket);
    assert_eq!(wire.reply(), None);
    wire.send(&message(9, 10, 0x10, &body[..10]), &[]).unwrap();
    wire.send(&message(9, 99, 0x10, &body), &[]).unwrap();
    assert_eq!((wire.server.next_event(), wire.reply()), (None, None));
}

#[test]
fn a_reset_is_answered_when_it_is_done() {
    let mut wire = Wire::negotiated();
    let event = wire.event(13, &[], &[]);
    let Event::Reset { ticket } = event else {
        panic!("{event:?}")
    };
    wire.server.done(ticket);
    assert_eq!(wire.reply(), Some(Reply::ok(7, 13, vec![])));
    assert_eq!(wire.ask(13, &[0], &[]), Reply::error(7, 13, EINVAL));
}

/// A command with a body that nobody knows: the body is passed over, and the next message is read as it was sent.
#[test]
fn unknown_commands_are_refused_with_their_bodies() {
    let mut wire = Wire::negotiated();
    for (command, errno) in [
        (0, ENOSYS),
        (14, ENOSYS),
        (19, ENOSYS),
        (u16::MAX, ENOSYS),
        (6, ENOTSUP),
        (15, ENOTSUP),
        (16, ENOTSUP),
        (17, ENOTSUP),
        (18, ENOTSUP),
        // Those that we send are none that we take.
        (11, ENOSYS),
        (12, ENOSYS),
    ] {
        for body in [&[][..], &[0xFF; 5], &[0; 4096]] {
            let reply = wire.ask(command, body, &[]);
            assert_eq!(reply, Reply::error(7, command, errno));
        }
    }
    assert!(wire.ask(4, &words(&[16, 0, 0, 0]), &[]).result.is_ok());
}

#[test]
fn descriptors_that_a_command_does_not_take_are_refused() {
    let mut wire = Wire::negotiated();
    for command in [4, 5, 7, 9, 10, 13, 99] {
        let reply = wire.ask(command, &words(&[16, 0, 0, 0]), &[1]);
        assert_eq!(reply, Reply::error(7, command, EINVAL));
    }
}

/// SPDK's client asks for a region with as many bytes as its reply may have, and sends a window's descriptor when it takes the window away (lib/vfio_user/host).
#[test]
fn what_spdk_sends_is_taken() {
    let mut wire = Wire::negotiated();
    let mut ask = [words(&[4064, 0, 0, 0]), longs(&[0, 0])].concat();
    ask.resize(4064, 0);
    let reply = wire.ask(5, &ask, &[]);
    let body = reply.result.unwrap();
    assert_eq!((reply.region_fd, body.len()), (Some(0), 32 + 16 + 2 * 16));
    assert_eq!(body[..16], words(&[80, 0xF, 0, 32]));

    let event = wire.event(3, &unmap_body(0, 0x10_0000, 0x2000), &[42]);
    assert!(matches!(event, Event::DmaUnmap { .. }), "{event:?}");
}

#[test]
fn memory_without_a_descriptor_is_read_and_written_by_messages() {
    let mut wire = Wire::negotiated();
    let read = wire.server.dma_read(0xABC_D000, 8).unwrap();
    let written = wire.server.dma_write(0x5000, b"entry").unwrap();
    assert_ne!(read, written);
    let sent = wire.server.outgoing().unwrap().bytes;
    assert_eq!(sent[2..4], [11, 0]);
    assert_eq!(
        (word(&sent, 8), &sent[16..]),
        (0, &longs(&[0xABC_D000, 8])[..])
    );
    let sent = wire.server.outgoing().unwrap().bytes;
    let expected = [longs(&[0x5000, 5]), b"entry".to_vec()].concat();
    assert_eq!((sent[2], &sent[16..]), (12, &expected[..]));

    // Answered the other way round, one with an error that says 0.
    wire.send(&message(written.0, 12, 1 | 0x20, &[]), &[])
        .unwrap();
    let failed = Event::DmaWritten {
        id: written,
        result: Err(Errno::EIO),
    };
    assert_eq!(wire.server.next_event(), Some(failed));
    let body = [longs(&[0xABC_D000, 8]), b"contents".to_vec()].concat();
    wire.send(&message(read.0, 11, 1, &body), &[]).unwrap();
    let done = Event::DmaRead {
        id: read,
        result: Ok(b"contents".to_vec()),
    };
    assert_eq!(wire.server.next_event(), Some(done));
    // Nothing waits for it any more.
    let again = wire.send(&message(read.0, 11, 1, &body), &[]);
    let unexpected = ProtocolError::UnexpectedReply {
        id: read.0,
        command: 11,
    };
    assert_eq!(again, Err(unexpected));
}

#[test]
fn data_that_were_not_asked_for_are_an_error() {
    for (address, count, data) in [
        (0x1000, 8, 7),
        (0x1000, 7, 7),
        (0x2000, 8, 8),
        (0x1000, 8, 9),
    ] {
        let mut wire = Wire::negotiated();
        let id = wire.server.dma_read(0x1000, 8).unwrap();
        let body = [longs(&[address, count]), vec![0; data]].concat();
        wire.send(&message(id.0, 11, 1, &body), &[]).unwrap();
        let failed = Event::DmaRead {
            id,
            result: Err(Errno::EIO),
        };
        assert_eq!(wire.server.next_event(), Some(failed));
    }
}

#[test]
fn requests_to_the_client_keep_to_limits() {
    let mut raw = Wire::raw();
    assert_eq!(raw.server.dma_read(0, 1), Err(Errno::EINVAL));
    let mut wire = Wire::raw();
    let small = b"\0\0\0\0{\"capabilities\":{\"max_data_xfer_size\":512}}\0";
    wire.send(&message(0, 1, 0, small), &[]).unwrap();
    assert_eq!(wire.server.dma_read(0, 513), Err(Errno::E2BIG));
    assert_eq!(wire.server.dma_write(0, &[0; 513]), Err(Errno::E2BIG));
    assert_eq!(wire.server.dma_read(0, 0), Err(Errno::EINVAL));
    let ids: Vec<DmaId> = (0..vfio_user::limits::DMA_REQUESTS_MAX)
        .map(|_| wire.server.dma_read(0, 512).unwrap())
        .collect();
    assert_eq!(wire.server.dma_read(0, 1), Err(Errno::EBUSY));
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
}

/// A client that takes no replies is not listened to before it does.
#[test]
fn who_takes_no_replies_is_not_read_from() {
    let mut wire = Wire::negotiated();
    let body = access_body(0, 7, 0x1000);
    let mut reads = 0;
    while wire.server.want() > 0 {
        wire.send(&message(1, 9, 0, &body), &[]).unwrap();
        let Some(Event::RegionRead { ticket, .. }) = wire.server.next_event() else {
            panic!()
        };
        wire.server.read(ticket, &[0; 0x1000]);
        reads += 1;
        assert!(reads < 10_000, "replies are bounded");
    }
    assert!(wire.reply().is_some());
    assert_eq!(wire.server.want(), 16);
}
