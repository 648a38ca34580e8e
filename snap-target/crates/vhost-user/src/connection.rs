//! The socket: messages in, replies out.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::error::{ConnectionError, MessageError};
use crate::message::{Message, Reply};
use crate::wire::{BODY_BYTES_MAX, FILES_MAX, HEADER_BYTES, Header};

const CONFIG_CHANGE_MSG: u32 = 2;
/// A message that has begun has ended by then, and an answer was taken: whoever serves a front-end can be told to end.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(5);

/// A front-end's connection. Its calls wait, for [`MESSAGE_PATIENCE`] at most.
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

    /// The next message, to be called when the socket has something; none where the front-end has closed it behind the last one.
    ///
    /// # Errors
    /// A message that is refused, or that does not end; a socket that broke.
    pub fn receive(&mut self) -> Result<Option<Message>, ConnectionError> {
        let mut header = [0; HEADER_BYTES];
        let mut files = Vec::new();
        let until = Instant::now() + MESSAGE_PATIENCE;
        if !self.fill(&mut header, &mut files, until)? {
            return Ok(None);
        }
        let header = Header::of_bytes(header);
        let Header { code, bytes, .. } = header;
        if bytes > BODY_BYTES_MAX {
            return Err(MessageError::Length { code, bytes }.into());
        }
        let mut body = std::mem::take(&mut self.body);
        let part = body.get_mut(..bytes as usize).unwrap_or_default();
        let decoded = match part.is_empty() || self.fill(part, &mut files, until)? {
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
        let until = Instant::now() + MESSAGE_PATIENCE;
        send(&self.socket, header, &body, file, Some(until))
    }

    /// Says what became of a request that has no reply of its own.
    ///
    /// # Errors
    /// The socket.
    pub fn acknowledge(&self, code: u32, succeeded: bool) -> Result<(), ConnectionError> {
        self.reply(code, Reply::U64(u64::from(!succeeded)))
    }

    /// Fills `out`, and collects what comes with it; false at the end of the stream before the first byte.
    fn fill(
        &self,
        out: &mut [u8],
        files: &mut Vec<OwnedFd>,
        until: Instant,
    ) -> Result<bool, ConnectionError> {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let received = recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(rest)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
            );
            let received = match received {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    wait(&self.socket, PollFlags::IN, until)?;
                    continue;
                }
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
        send(&self.socket, header, &[], None, None)
    }
}

/// The socket, for whoever waits for what it has.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits for the front-end until then.
fn wait(socket: &impl AsFd, events: PollFlags, until: Instant) -> Result<(), ConnectionError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ConnectionError::Slow(MESSAGE_PATIENCE.as_secs()));
    }
    let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
    match poll(&mut [PollFd::new(socket, events)], Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends all of it until then; none: what is not taken at once is an error.
fn send(
    socket: &impl AsFd,
    header: Header,
    body: &[u8],
    file: Option<BorrowedFd<'_>>,
    until: Option<Instant>,
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
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        ) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if let Some(until) = until => wait(socket, PollFlags::OUT, until)?,
            sent => done += sent?,
        }
    }
    Ok(())
}
