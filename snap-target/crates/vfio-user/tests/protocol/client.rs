//! A client that is written here from the specification, byte by byte.

use vfio_user::{Area, Device, Event, Interrupt, ProtocolError, Region, Server, irq_flags};

/// Descriptors are numbers.
pub type Fd = u32;

/// QEMU's VERSION.
pub const VERSION_DATA: &[u8] = b"\0\0\0\0{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":1048576,\"pgsizes\":4096,\"max_dma_maps\":65535}}\0";

/// A message's bytes.
pub fn message(id: u16, command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(id.to_le_bytes());
    bytes.extend(command.to_le_bytes());
    bytes.extend((16 + body.len() as u32).to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Little-endian numbers, one behind the other.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The same of 64 bits.
pub fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_le_bytes()).collect()
}

/// A reply taken apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub id: u16,
    pub command: u16,
    /// The errno, where it is an error.
    pub result: Result<Vec<u8>, u32>,
    pub region_fd: Option<u32>,
}

impl Reply {
    pub fn ok(id: u16, command: u16, body: Vec<u8>) -> Self {
        let (result, region_fd) = (Ok(body), None);
        Self {
            id,
            command,
            result,
            region_fd,
        }
    }

    pub fn error(id: u16, command: u16, errno: u32) -> Self {
        let (result, region_fd) = (Err(errno), None);
        Self {
            id,
            command,
            result,
            region_fd,
        }
    }
}

/// A device with a region that can be mapped in part, one that can be read alone, and configuration space.
pub fn device() -> Device {
    let region = |size, writable, areas| Region {
        size,
        readable: true,
        writable,
        areas,
    };
    let page = |offset| Area {
        offset,
        size: 0x1000,
    };
    let mut regions = vec![Region::default(); 9];
    regions[0] = region(0x4000, true, vec![page(0x1000), page(0x3000)]);
    regions[6] = region(0x1000, false, vec![]);
    regions[7] = region(0x1000, true, vec![]);
    let kind = |flags, count| Interrupt { flags, count };
    let line = irq_flags::EVENTFD | irq_flags::MASKABLE | irq_flags::AUTOMASKED;
    Device {
        regions,
        interrupts: vec![
            kind(line, 1),
            kind(0, 0),
            kind(irq_flags::EVENTFD, 8),
            kind(0, 0),
            kind(0, 0),
        ],
    }
}

/// A server and what a test has to do with it.
pub struct Wire {
    pub server: Server<Fd>,
}

impl Wire {
    /// Before VERSION.
    pub fn raw() -> Self {
        Self {
            server: Server::new(device()),
        }
    }

    /// After it.
    pub fn negotiated() -> Self {
        let mut wire = Self::raw();
        wire.send(&message(0, 1, 0, VERSION_DATA), &[]).unwrap();
        let reply = wire.reply().unwrap();
        assert!(reply.result.is_ok());
        wire
    }

    /// Hands in a message as the server wants it; its descriptors come with its first bytes.
    pub fn send(&mut self, bytes: &[u8], fds: &[Fd]) -> Result<(), ProtocolError> {
        let mut fds = fds.to_vec();
        let mut rest = bytes;
        while !rest.is_empty() {
            let wanted = self.server.want().min(rest.len());
            assert!(
                wanted > 0,
                "the server wants no bytes, and {} are left",
                rest.len()
            );
            let (now, later) = rest.split_at(wanted);
            self.server.receive(now, fds.drain(..))?;
            rest = later;
        }
        Ok(())
    }

    /// A command that is answered by itself.
    pub fn ask(&mut self, command: u16, body: &[u8], fds: &[Fd]) -> Reply {
        self.send(&message(7, command, 0, body), fds).unwrap();
        assert_eq!(self.server.next_event(), None);
        self.reply().unwrap()
    }

    /// A command that the device carries out.
    pub fn event(&mut self, command: u16, body: &[u8], fds: &[Fd]) -> Event<Fd> {
        self.send(&message(7, command, 0, body), fds).unwrap();
        assert_eq!(self.reply(), None, "it waits for the device");
        self.server.next_event().unwrap()
    }

    /// The next message of the server's, which is a reply.
    pub fn reply(&mut self) -> Option<Reply> {
        let message = self.server.outgoing()?;
        let bytes = &message.bytes;
        assert_eq!(word(bytes, 4) as usize, bytes.len());
        let flags = word(bytes, 8);
        let (is_reply, is_error) = (flags & 0xF == 1, flags & 0x20 != 0);
        assert!(is_reply, "{flags:#x}");
        let body = bytes[16..].to_vec();
        let errno = word(bytes, 12);
        let result = match is_error {
            true => {
                assert!(
                    body.is_empty() && errno > 0,
                    "an error has a number, and nothing else"
                );
                Err(errno)
            }
            false => {
                assert_eq!(errno, 0);
                Ok(body)
            }
        };
        Some(Reply {
            id: half(bytes, 0),
            command: half(bytes, 2),
            result,
            region_fd: message.region_fd,
        })
    }
}

pub fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}
