//! The vfio-user client, blocking, written from the specification.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// How long a reply may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Client {
    socket: UnixStream,
    next_id: u16,
}

impl Client {
    /// Connects and agrees on the version.
    pub fn connect(path: &Path) -> Client {
        let mut client = Client::dial(path);
        let version =
            b"\0\0\0\0{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":1048576}}\0";
        client.call(1, version, &[]).unwrap();
        client
    }

    /// Connects, and says nothing.
    pub fn dial(path: &Path) -> Client {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { socket, next_id: 1 }
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
        assert_eq!(sent, Ok(bytes.len()));
        id
    }

    /// The next reply, which must be this one's.
    pub fn reply(&mut self, id: u16) -> Result<Vec<u8>, u32> {
        let mut header = [0; 16];
        self.socket.read_exact(&mut header).unwrap();
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(word(0) as u16, id, "the reply is another command's");
        let mut body = vec![0; word(4) as usize - 16];
        self.socket.read_exact(&mut body).unwrap();
        match word(8) & 0x20 {
            0 => Ok(body),
            _ => Err(word(12)),
        }
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
