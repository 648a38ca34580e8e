//! The vfio-user client, blocking, written from the specification.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// How long a reply may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Client {
    socket: UnixStream,
    next_id: u16,
    /// What the target is answered from, where it asks for memory.
    pub hidden: Hidden,
    /// Descriptors that came and were not taken.
    fds: Vec<OwnedFd>,
}

/// Memory that is not shared by descriptor.
#[derive(Default)]
pub struct Hidden {
    pub base: u64,
    pub bytes: Vec<u8>,
    /// Lengths of what was asked for, in order.
    pub reads: Vec<usize>,
    pub writes: Vec<usize>,
}

/// DMA_READ or DMA_WRITE, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub id: u16,
    pub command: u16,
    pub address: u64,
    pub count: u64,
    pub data: Vec<u8>,
}

pub const DMA_READ: u16 = 11;
pub const DMA_WRITE: u16 = 12;

impl Client {
    /// Connects and agrees on the version.
    pub fn connect(path: &Path) -> Client {
        Client::connect_with(path, 1 << 20)
    }

    /// The same, and takes so many bytes of data in a message.
    pub fn connect_with(path: &Path, data_bytes_max: u32) -> Client {
        let mut client = Client::dial(path);
        let said = format!(
            "\0\0\0\0{{\"capabilities\":{{\"max_msg_fds\":16,\"max_data_xfer_size\":{data_bytes_max}}}}}\0"
        );
        client.call(1, said.as_bytes(), &[]).unwrap();
        client
    }

    /// Connects, and says nothing.
    pub fn dial(path: &Path) -> Client {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client {
            socket,
            next_id: 1,
            hidden: Hidden::default(),
            fds: Vec::new(),
        }
    }

    /// A command and its reply: the body, or the errno.
    pub fn call(
        &mut self,
        command: u16,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Vec<u8>, u32> {
        let id = self.send(command, 0, body, fds);
        self.reply(id)
    }

    /// A command that is not answered.
    pub fn post(&mut self, command: u16, body: &[u8]) {
        self.send(command, 0x10, body, &[]);
    }

    /// Sends a command; its name is returned.
    pub fn send(&mut self, command: u16, flags: u32, body: &[u8], fds: &[BorrowedFd<'_>]) -> u16 {
        let sent = self.try_send(command, flags, body, fds);
        sent.expect("the target takes it")
    }

    /// The same, where the target may be gone.
    pub fn try_send(
        &mut self,
        command: u16,
        flags: u32,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Option<u16> {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let mut bytes = Vec::new();
        bytes.extend(id.to_le_bytes());
        bytes.extend(command.to_le_bytes());
        bytes.extend((16 + body.len() as u32).to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let sent = sendmsg(
            self.socket.as_fd(),
            &[IoSlice::new(&bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        );
        (sent == Ok(bytes.len())).then_some(id)
    }

    /// The next reply, which must be this one's. What the target asks for before it is answered.
    pub fn reply(&mut self, id: u16) -> Result<Vec<u8>, u32> {
        loop {
            let (header, body) = self.message();
            if word(&header, 8) & 0xF == 0 {
                self.serve(asked(&header, &body));
                continue;
            }
            assert_eq!(
                word(&header, 0) as u16,
                id,
                "the reply is another command's"
            );
            return match word(&header, 8) & 0x20 {
                0 => Ok(body),
                _ => Err(word(&header, 12)),
            };
        }
    }

    /// The same with the descriptors that came with its first byte.
    pub fn reply_with_fds(&mut self, id: u16) -> (Result<Vec<u8>, u32>, Vec<OwnedFd>) {
        self.fds.clear();
        (self.reply(id), std::mem::take(&mut self.fds))
    }

    /// The next message, which must be the target's own.
    pub fn asked(&mut self) -> Asked {
        let (header, body) = self.message();
        assert_eq!(word(&header, 8) & 0x1F, 0, "a command that wants a reply");
        asked(&header, &body)
    }

    fn header(&mut self) -> std::io::Result<[u8; 16]> {
        let mut header = [0; 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        // libFuzzer's clock is a signal.
        let first = rustix::io::retry_on_intr(|| {
            recvmsg(
                self.socket.as_fd(),
                &mut [IoSliceMut::new(&mut header)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            )
        });
        let first = first?.bytes;
        if first == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let rights = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        self.fds.extend(rights.flatten());
        self.socket.read_exact(&mut header[first..])?;
        Ok(header)
    }

    fn message(&mut self) -> ([u8; 16], Vec<u8>) {
        self.whole_message().unwrap()
    }

    fn whole_message(&mut self) -> std::io::Result<([u8; 16], Vec<u8>)> {
        let header = self.header()?;
        let mut body = vec![0; word(&header, 4) as usize - 16];
        self.socket.read_exact(&mut body)?;
        Ok((header, body))
    }

    /// Answers what the target has asked for, if it has asked for something.
    pub fn serve_pending(&mut self) {
        let mut peeked = [0; 1];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        if let Ok((_, 1)) = rustix::net::recv(self.socket.as_fd(), &mut peeked, flags) {
            let asked = self.asked();
            self.serve(asked);
        }
    }

    /// Answers as the protocol has it.
    pub fn serve(&mut self, asked: Asked) {
        let hidden = &mut self.hidden;
        let start = asked.address.wrapping_sub(hidden.base) as usize;
        let place = hidden
            .bytes
            .get_mut(start..start + asked.count as usize)
            .expect("what is asked for is in the window");
        let mut body = [asked.address.to_le_bytes(), asked.count.to_le_bytes()].concat();
        match asked.command {
            DMA_READ => {
                hidden.reads.push(place.len());
                body.extend_from_slice(place);
            }
            DMA_WRITE => {
                hidden.writes.push(asked.data.len());
                place.copy_from_slice(&asked.data);
            }
            other => panic!("the target asks for {other}"),
        }
        self.answer(asked.id, asked.command, 1, 0, &body);
    }

    /// The next message; none where the target is gone.
    pub fn try_message(&mut self) -> Option<([u8; 16], Vec<u8>)> {
        match self.whole_message() {
            Ok(message) => Some(message),
            Err(error) => {
                let is_late = error.kind() == std::io::ErrorKind::WouldBlock;
                assert!(!is_late, "the target says nothing");
                None
            }
        }
    }

    /// A reply of any kind: 1 is one, 0x21 one that says that it failed.
    pub fn answer(&mut self, id: u16, command: u16, flags: u32, error: u32, body: &[u8]) {
        let sent = self.try_answer(id, command, flags, error, body);
        sent.expect("the target takes it");
    }

    /// The same, where the target may be gone.
    pub fn try_answer(
        &mut self,
        id: u16,
        command: u16,
        flags: u32,
        error: u32,
        body: &[u8],
    ) -> Option<()> {
        let mut bytes = Vec::new();
        bytes.extend(id.to_le_bytes());
        bytes.extend(command.to_le_bytes());
        bytes.extend((16 + body.len() as u32).to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(error.to_le_bytes());
        bytes.extend(body);
        self.socket.write_all(&bytes).ok()
    }

    /// The socket itself.
    pub fn raw(&mut self) -> &mut UnixStream {
        &mut self.socket
    }

    /// Whether nothing has been replied so far, and the connection is there.
    pub fn is_silent(&mut self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let peeked = rustix::net::recv(
            self.socket.as_fd(),
            &mut [0; 1],
            rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT,
        );
        self.socket.set_nonblocking(false).unwrap();
        matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }

    /// Whether the other side has ended the connection, which a test waits for.
    pub fn is_let_go(&mut self) -> bool {
        match self.socket.read(&mut [0; 1]) {
            Ok(bytes) => bytes == 0,
            // It had not read everything.
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

fn word(header: &[u8; 16], at: usize) -> u32 {
    u32::from_le_bytes(header[at..at + 4].try_into().unwrap())
}

fn asked(header: &[u8; 16], body: &[u8]) -> Asked {
    let long = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
    Asked {
        id: word(header, 0) as u16,
        command: (word(header, 0) >> 16) as u16,
        address: long(0),
        count: long(8),
        data: body[16..].to_vec(),
    }
}
