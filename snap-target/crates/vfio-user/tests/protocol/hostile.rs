//! Clients that are no clients: bytes, lengths, descriptors and orders that nobody sends.

use proptest::prelude::*;
use vfio_user::limits::{MESSAGE_BYTES_MAX, MESSAGE_FDS_MAX, OUTGOING_BYTES_MAX};
use vfio_user::{Errno, Event, ProtocolError, Server};

use crate::client::{Fd, VERSION_DATA, Wire, device, message};

#[test]
fn lengths_that_no_message_has_end_the_connection() {
    for bytes in [0, 15, MESSAGE_BYTES_MAX as u32 + 1, u32::MAX] {
        let mut wire = Wire::negotiated();
        let mut header = message(1, 4, 0, &[]);
        header[4..8].copy_from_slice(&bytes.to_le_bytes());
        let refused = wire.send(&header, &[]).unwrap_err();
        assert_eq!(refused, ProtocolError::MessageSize { bytes });
        assert_eq!(wire.server.want(), 0);
        let after = wire.server.receive(&[0], []);
        assert!(matches!(after, Err(ProtocolError::Unwanted { .. })));
    }
    let mut wire = Wire::negotiated();
    let refused = wire.send(&message(1, 4, 2, &[]), &[]).unwrap_err();
    assert_eq!(refused, ProtocolError::MessageType { kind: 2 });
}

#[test]
fn more_descriptors_than_were_announced_end_the_connection() {
    let mut wire = Wire::negotiated();
    let fds: Vec<Fd> = (0..=MESSAGE_FDS_MAX as u32).collect();
    let refused = wire.send(&message(1, 2, 0, &[0; 32]), &fds).unwrap_err();
    assert_eq!(refused, ProtocolError::TooManyFds);
}

/// Descriptors belong to the message under way, in whatever part of it they come, and to no other.
#[test]
fn descriptors_stay_with_their_message() {
    let mut wire = Wire::negotiated();
    let map = [
        message(1, 2, 0, &[32, 0, 0, 0, 3, 0, 0, 0]),
        0_u64.to_le_bytes().to_vec(),
        0x1000_u64.to_le_bytes().to_vec(),
        0x1000_u64.to_le_bytes().to_vec(),
    ]
    .concat();
    let mut map = map;
    map[4..8].copy_from_slice(&48_u32.to_le_bytes());
    wire.server.receive(&map[..16], []).unwrap();
    wire.server.receive(&map[16..40], [5]).unwrap();
    wire.server.receive(&map[40..], []).unwrap();
    let event = wire.server.next_event();
    assert!(
        matches!(event, Some(Event::DmaMap { fd: Some(5), .. })),
        "{event:?}"
    );
    wire.server.receive(&map[..16], []).unwrap();
    wire.server.receive(&map[16..], []).unwrap();
    let event = wire.server.next_event();
    assert!(
        matches!(event, Some(Event::DmaMap { fd: None, .. })),
        "{event:?}"
    );
}

/// A message as somebody might send it who knows the form and not the sense.
#[derive(Clone, Debug)]
struct Sent {
    command: u16,
    flags: u32,
    body: Vec<u8>,
    fds: u8,
}

fn sent() -> impl Strategy<Value = Sent> {
    let flags = prop_oneof![8 => Just(0_u32), 2 => Just(0x10), 1 => Just(1), 1 => any::<u32>()];
    // Small numbers in words meet what there is more often than any bytes.
    let word = prop_oneof![4 => 0_u32..40, 1 => Just(u32::MAX), 1 => any::<u32>()];
    let words = prop::collection::vec(word, 0..16)
        .prop_map(|words| words.iter().flat_map(|word| word.to_le_bytes()).collect());
    let body = prop_oneof![4 => words, 1 => prop::collection::vec(any::<u8>(), 0..200)];
    let fds = prop_oneof![6 => Just(0_u8), 2 => 1_u8..3, 1 => 0_u8..20];
    (0_u16..22, flags, body, fds).prop_map(|(command, flags, body, fds)| Sent {
        command,
        flags,
        body,
        fds,
    })
}

/// Hands bytes in, however many are wanted; everything that comes out is answered in some way. Returns false where the connection has ended.
fn feed(server: &mut Server<Fd>, bytes: &[u8], fds: u8, answers: &mut u32) -> bool {
    let mut rest = bytes;
    let mut fds: Vec<Fd> = (0..u32::from(fds)).collect();
    while !rest.is_empty() {
        let wanted = server.want().min(rest.len());
        assert!(wanted > 0, "a live server with nothing to do wants bytes");
        let (now, later) = rest.split_at(wanted);
        if server.receive(now, fds.drain(..)).is_err() {
            assert_eq!(server.want(), 0);
            return false;
        }
        rest = later;
        while let Some(event) = server.next_event() {
            *answers = answers.wrapping_mul(31).wrapping_add(7);
            carry_out(server, event, *answers);
        }
        let mut bytes_out = 0;
        while let Some(message) = server.outgoing() {
            bytes_out += message.bytes.len();
            let size = u32::from_le_bytes(message.bytes[4..8].try_into().unwrap());
            assert_eq!(size as usize, message.bytes.len());
            let flags = u32::from_le_bytes(message.bytes[8..12].try_into().unwrap());
            let errno = u32::from_le_bytes(message.bytes[12..16].try_into().unwrap());
            assert_eq!(
                flags & 0x20 != 0,
                errno != 0,
                "errors have numbers, others have none"
            );
        }
        assert!(bytes_out <= OUTGOING_BYTES_MAX + MESSAGE_BYTES_MAX);
    }
    true
}

fn carry_out(server: &mut Server<Fd>, event: Event<Fd>, chance: u32) {
    let device = device();
    let ticket = match event {
        Event::DmaMap {
            ticket,
            address,
            size,
            ..
        } => {
            assert!(size > 0 && address.checked_add(size - 1).is_some());
            ticket
        }
        Event::SetIrqs { ticket, set } => {
            let kind = device.interrupts[set.index as usize];
            assert!(set.start + set.count <= kind.count);
            ticket
        }
        Event::RegionRead {
            ticket,
            region,
            offset,
            count,
        } => {
            assert!(offset + u64::from(count) <= device.regions[region as usize].size);
            return server.read(ticket, &vec![0; count as usize]);
        }
        Event::RegionWrite {
            ticket,
            region,
            offset,
            data,
        } => {
            let region = &device.regions[region as usize];
            assert!(region.writable && offset + data.len() as u64 <= region.size);
            ticket
        }
        Event::DmaUnmap { ticket, .. } | Event::Reset { ticket } => ticket,
        Event::DmaRead { .. } | Event::DmaWritten { .. } => return,
    };
    match chance % 3 {
        0 => server.refuse(ticket, Errno::EBUSY),
        _ => server.done(ticket),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever messages come, in whatever order: what gets to the device is inside of it, every reply is a message, and the next is read.
    #[test]
    fn sequences_of_messages(all in prop::collection::vec(sent(), 1..40), version in any::<bool>(), ask in any::<bool>()) {
        let mut server = Server::new(device());
        let mut chance = 1;
        if version {
            prop_assert!(feed(&mut server, &message(0, 1, 0, VERSION_DATA), 0, &mut chance));
        }
        for (id, sent) in all.iter().enumerate() {
            if ask && id % 5 == 0 {
                let _asked = server.dma_read(0x1000, 16);
                let _asked = server.dma_write(0x1000, b"bytes");
                while server.outgoing().is_some() {}
            }
            let bytes = message(id as u16, sent.command, sent.flags, &sent.body);
            if !feed(&mut server, &bytes, sent.fds, &mut chance) {
                break;
            }
        }
    }

    /// Any bytes at all.
    #[test]
    fn bytes(all in prop::collection::vec(any::<u8>(), 0..400), version in any::<bool>()) {
        let mut server = Server::new(device());
        let mut chance = 1;
        if version {
            prop_assert!(feed(&mut server, &message(0, 1, 0, VERSION_DATA), 0, &mut chance));
        }
        feed(&mut server, &all, 0, &mut chance);
    }
}
