//! The socket: messages in, replies out.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::error::{ConnectionError, MessageError};
use crate::message::{Message, Reply};
use crate::wire::{BODY_BYTES_MAX, FILES_MAX, HEADER_BYTES, Header};

const CONFIG_CHANGE_MSG: u32 = 2;

/// A front-end's connection. Its calls block.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
    body: Vec<u8>,
}

impl Connection {
    /// Over a socket that was accepted.
    #[must_use]
    pub fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            body: vec![0; BODY_BYTES_MAX as usize],
        }
    }

    /// The next message; none where the front-end has closed the socket behind the last one.
    ///
    /// # Errors
    /// A message that is refused; a socket that broke.
    pub fn receive(&mut self) -> Result<Option<Message>, ConnectionError> {
        let mut header = [0; HEADER_BYTES];
        let mut files = Vec::new();
        if !self.fill(&mut header, &mut files)? {
            return Ok(None);
        }
        let header = Header::of_bytes(header);
        let Header { code, bytes, .. } = header;
        if bytes > BODY_BYTES_MAX {
            return Err(MessageError::Length { code, bytes }.into());
        }
        let mut body = std::mem::take(&mut self.body);
        let part = body.get_mut(..bytes as usize).unwrap_or_default();
        let decoded = match part.is_empty() || self.fill(part, &mut files)? {
            true => Message::decode(header, part, files),
            false => return Err(ConnectionError::Cut),
        };
        self.body = body;
        Ok(Some(decoded?))
    }

    /// Answers a request.
    ///
    /// # Errors
    /// The socket.
    pub fn reply(&self, code: u32, reply: Reply) -> Result<(), ConnectionError> {
        let (body, file) = reply.into_parts();
        let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let header = Header::reply(code, bytes);
        let file = file.as_ref().map(AsFd::as_fd);
        send(&self.socket, header, &body, file, SendFlags::empty())
    }

    /// Says what became of a request that has no reply of its own.
    ///
    /// # Errors
    /// The socket.
    pub fn acknowledge(&self, code: u32, succeeded: bool) -> Result<(), ConnectionError> {
        self.reply(code, Reply::U64(u64::from(!succeeded)))
    }

    /// Fills `out`, and collects what comes with it; false at the end of the stream before the first byte.
    fn fill(&self, out: &mut [u8], files: &mut Vec<OwnedFd>) -> Result<bool, ConnectionError> {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let received = recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(rest)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            );
            let received = match received {
                Err(Errno::INTR) => continue,
                received => received?,
            };
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(came) = message {
                    files.extend(came);
                }
            }
            // More than there is room for: the kernel has closed the rest.
            if received.flags.contains(ReturnFlags::CTRUNC) || files.len() > FILES_MAX {
                let (files, expected) = (files.len(), FILES_MAX);
                return Err(MessageError::Files {
                    code: 0,
                    files,
                    expected,
                }
                .into());
            }
            match received.bytes {
                0 if done == 0 => return Ok(false),
                0 => return Err(ConnectionError::Cut),
                bytes => done += bytes,
            }
        }
        Ok(true)
    }
}

/// The channel for requests of the back-end.
#[derive(Debug)]
pub struct BackendChannel {
    socket: OwnedFd,
}

impl BackendChannel {
    /// Over what came with SET_BACKEND_REQ_FD.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// The configuration space has changed: the front-end reads it again. It is not waited for, also where it takes nothing: whoever tells of a change serves
    /// others besides.
    ///
    /// # Errors
    /// The socket; it is full.
    pub fn config_changed(&self) -> Result<(), ConnectionError> {
        let header = Header::request(CONFIG_CHANGE_MSG, 0);
        send(&self.socket, header, &[], None, SendFlags::DONTWAIT)
    }
}

fn send(
    socket: &impl AsFd,
    header: Header,
    body: &[u8],
    file: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> Result<(), ConnectionError> {
    let bytes = [&header.to_bytes()[..], body].concat();
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if done == 0 && !files.is_empty() {
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(&files));
            debug_assert!(fits, "there is room for one");
        }
        match sendmsg(
            socket,
            &[IoSlice::new(rest)],
            &mut ancillary,
            flags | SendFlags::NOSIGNAL,
        ) {
            Err(Errno::INTR) => {}
            sent => done += sent?,
        }
    }
    Ok(())
}
