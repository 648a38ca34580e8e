//! The state machine: one client's connection.

use std::collections::{BTreeMap, VecDeque};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::device::Device;
use crate::errno::Errno;
use crate::event::{DmaId, Echo, Event, Ticket};
use crate::limits::{
    DATA_BYTES_MAX, DMA_REQUESTS_MAX, HEADER_BYTES, MESSAGE_BYTES_MAX, MESSAGE_FDS_MAX,
    OUTGOING_BYTES_MAX,
};
use crate::wire::{self, command, flags};
use crate::{Capabilities, request, version};

/// Why a connection cannot go on: the client is no vfio-user client, or speaks another version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A message that is shorter than its header, or longer than any may be.
    #[error("a message of {bytes} bytes; it has {HEADER_BYTES} to {MESSAGE_BYTES_MAX}")]
    MessageSize {
        /// What its header says.
        bytes: u32,
    },
    /// Neither a command nor a reply.
    #[error("a message of type {kind}; 0 is a command, 1 a reply")]
    MessageType {
        /// What its header says.
        kind: u32,
    },
    /// More descriptors than were announced as possible.
    #[error("a message with more than {MESSAGE_FDS_MAX} descriptors")]
    TooManyFds,
    /// Something came before VERSION.
    #[error("command {command} came before VERSION")]
    NotNegotiated {
        /// Which.
        command: u16,
    },
    /// The client wants another version, or says nonsense in its VERSION.
    #[error("the client's VERSION {major}.{minor} cannot be agreed to: {errno}")]
    Version {
        /// Its version.
        major: u16,
        /// The same.
        minor: u16,
        /// What it was answered.
        errno: Errno,
    },
    /// A reply to nothing.
    #[error("a reply to message {id}, command {command}, which nothing waits for")]
    UnexpectedReply {
        /// Whose.
        id: u16,
        /// What it says that it answers.
        command: u16,
    },
    /// More bytes were handed in than [`Server::want`] said.
    #[error("{bytes} bytes were received where {wanted} were wanted")]
    Unwanted {
        /// How many.
        bytes: usize,
        /// How many it wanted.
        wanted: usize,
    },
}

/// A message to be sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// All of it.
    pub bytes: Vec<u8>,
    /// The descriptor of this region goes with its first byte.
    pub region_fd: Option<u32>,
}

/// See the crate.
#[derive(Debug)]
pub struct Server<F> {
    device: Device,
    stage: Stage,
    /// What has come of the message under way, its header first.
    incoming: Vec<u8>,
    fds: Vec<F>,
    events: VecDeque<Event<F>>,
    outgoing: VecDeque<Outgoing>,
    outgoing_bytes: usize,
    /// Ours that wait for a reply.
    dma: BTreeMap<u16, Asked>,
    next_id: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    AwaitVersion,
    Live(Capabilities),
    Failed,
}

/// What a reply must be to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    command: u16,
    address: u64,
    count: u64,
}

impl<F> Server<F> {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(device: Device) -> Self {
        Self {
            device,
            stage: Stage::AwaitVersion,
            incoming: Vec::with_capacity(HEADER_BYTES + 64),
            fds: Vec::new(),
            events: VecDeque::new(),
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
            dma: BTreeMap::new(),
            next_id: 0,
        }
    }

    /// What the client has said of itself; none before its VERSION.
    #[must_use]
    pub fn capabilities(&self) -> Option<&Capabilities> {
        match &self.stage {
            Stage::Live(capabilities) => Some(capabilities),
            Stage::AwaitVersion | Stage::Failed => None,
        }
    }

    /// Bytes to receive next, at most: none while the client takes no replies, while events wait, and after a fatal error. They never reach beyond
    /// the message under way, so that the descriptors that come with them are its own.
    #[must_use]
    pub fn want(&self) -> usize {
        if self.stage == Stage::Failed
            || self.outgoing_bytes > OUTGOING_BYTES_MAX
            || !self.events.is_empty()
        {
            return 0;
        }
        self.message_bytes() - self.incoming.len()
    }

    /// Of the message under way, as far as is known.
    fn message_bytes(&self) -> usize {
        match wire::Header::ref_from_prefix(&self.incoming) {
            Ok((header, _)) => header.size.get() as usize,
            Err(_) => HEADER_BYTES,
        }
    }

    /// Takes bytes in, and the descriptors that came with them.
    ///
    /// # Errors
    /// The connection cannot go on; replies that wait may still be sent.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        fds: impl IntoIterator<Item = F>,
    ) -> Result<(), ProtocolError> {
        let taken = self.take(bytes, fds);
        if taken.is_err() {
            self.stage = Stage::Failed;
            self.incoming.clear();
            self.fds.clear();
        }
        taken
    }

    fn take(
        &mut self,
        bytes: &[u8],
        fds: impl IntoIterator<Item = F>,
    ) -> Result<(), ProtocolError> {
        let wanted = self.want();
        if bytes.len() > wanted {
            let bytes = bytes.len();
            return Err(ProtocolError::Unwanted { bytes, wanted });
        }
        for fd in fds {
            if self.fds.len() >= MESSAGE_FDS_MAX {
                return Err(ProtocolError::TooManyFds);
            }
            self.fds.push(fd);
        }
        let had_header = self.incoming.len() >= HEADER_BYTES;
        self.incoming.extend_from_slice(bytes);
        let Ok((header, _)) = wire::Header::read_from_prefix(&self.incoming) else {
            return Ok(());
        };
        if !had_header {
            check_header(&header)?;
        }
        if self.incoming.len() < header.size.get() as usize {
            return Ok(());
        }
        let mut message = std::mem::take(&mut self.incoming);
        let fds = std::mem::take(&mut self.fds);
        let body = message.get(HEADER_BYTES..).unwrap_or_default();
        self.message(&header, body, fds)?;
        // A register's message costs no allocation; what a long one took is given back.
        message.clear();
        message.shrink_to(HEADER_BYTES + 64);
        self.incoming = message;
        Ok(())
    }

    fn message(
        &mut self,
        header: &wire::Header,
        body: &[u8],
        fds: Vec<F>,
    ) -> Result<(), ProtocolError> {
        if header.flags.get() & flags::TYPE_MASK == flags::REPLY {
            return self.answered(header, body);
        }
        let ticket = Ticket {
            id: header.id.get(),
            command: header.command.get(),
            wants_reply: header.flags.get() & flags::NO_REPLY == 0,
            echo: Echo::None,
        };
        match (self.stage, ticket.command) {
            (Stage::AwaitVersion, command::VERSION) => self.version(ticket, body),
            (Stage::AwaitVersion, command) => Err(ProtocolError::NotNegotiated { command }),
            _ => {
                self.command(ticket, body, fds);
                Ok(())
            }
        }
    }

    fn version(&mut self, ticket: Ticket, body: &[u8]) -> Result<(), ProtocolError> {
        let (asked, data) =
            wire::Version::read_from_prefix(body).unwrap_or((wire::Version::new_zeroed(), &[]));
        let (major, minor) = (asked.major.get(), asked.minor.get());
        let is_short = body.len() < size_of::<wire::Version>();
        let agreed = match major {
            _ if is_short => Err(Errno::EINVAL),
            version::MAJOR => version::negotiate(data),
            _ => Err(Errno::EINVAL),
        };
        match agreed {
            Ok((capabilities, json)) => {
                self.stage = Stage::Live(capabilities);
                let ours = wire::Version {
                    major: U16::new(version::MAJOR),
                    // The least there is: none that a client did not offer.
                    minor: U16::new(version::MINOR),
                };
                self.send_reply(&ticket, &[ours.as_bytes(), &json], None);
                Ok(())
            }
            Err(errno) => {
                self.refuse(ticket, errno);
                Err(ProtocolError::Version {
                    major,
                    minor,
                    errno,
                })
            }
        }
    }

    /// A command after VERSION: answered here, or handed out.
    fn command(&mut self, ticket: Ticket, body: &[u8], fds: Vec<F>) {
        // SPDK's client sends a window's descriptor with its DMA_UNMAP as well, where it is good for nothing and closed.
        let takes_fds = matches!(
            ticket.command,
            command::DMA_MAP | command::DMA_UNMAP | command::DEVICE_SET_IRQS
        );
        if !takes_fds && !fds.is_empty() {
            return self.refuse(ticket, Errno::EINVAL);
        }
        let device = &self.device;
        let event = match ticket.command {
            command::DMA_MAP => request::dma_map(ticket, body, fds),
            command::DMA_UNMAP => request::dma_unmap(ticket, body),
            command::DEVICE_SET_IRQS => request::set_irqs(ticket, body, fds, device),
            command::REGION_READ => request::region_read(ticket, body, device),
            command::REGION_WRITE => request::region_write(ticket, body, device),
            command::DEVICE_RESET if body.is_empty() => Ok(Event::Reset { ticket }),
            _ => return self.described(ticket, body),
        };
        match event {
            Ok(event) => self.events.push_back(event),
            Err((ticket, errno)) => self.refuse(ticket, errno),
        }
    }

    /// What the device's description answers, and what nothing does.
    fn described(&mut self, ticket: Ticket, body: &[u8]) {
        let index = body
            .get(8..12)
            .and_then(|bytes| U32::read_from_bytes(bytes).ok());
        let answer = match ticket.command {
            command::DEVICE_GET_INFO => request::whole(body)
                .and_then(|asked| self.device.info(&asked))
                .map(|reply| (reply, None)),
            command::DEVICE_GET_REGION_INFO => request::beginning(body)
                .and_then(|asked| self.device.region_info(&asked))
                .map(|(reply, has_fd)| (reply, index.filter(|_| has_fd).map(U32::get))),
            command::DEVICE_GET_IRQ_INFO => request::whole(body)
                .and_then(|asked| self.device.irq_info(&asked))
                .map(|reply| (reply, None)),
            command::VERSION | command::DEVICE_RESET => Err(Errno::EINVAL),
            command::DEVICE_GET_REGION_IO_FDS
            | command::REGION_WRITE_MULTI
            | command::DEVICE_FEATURE
            | command::MIG_DATA_READ
            | command::MIG_DATA_WRITE => Err(Errno::ENOTSUP),
            _ => Err(Errno::ENOSYS),
        };
        match answer {
            Ok((reply, region_fd)) => self.send_reply(&ticket, &[&reply], region_fd),
            Err(errno) => self.refuse(ticket, errno),
        }
    }

    /// The client has answered a request of ours.
    fn answered(&mut self, header: &wire::Header, body: &[u8]) -> Result<(), ProtocolError> {
        let (id, command) = (header.id.get(), header.command.get());
        let asked = self.dma.get(&id).copied();
        let Some(asked) = asked.filter(|asked| asked.command == command) else {
            return Err(ProtocolError::UnexpectedReply { id, command });
        };
        self.dma.remove(&id);
        let id = DmaId(id);
        let failed =
            (header.flags.get() & flags::ERROR != 0).then(|| Errno::of_wire(header.error.get()));
        let event = match (command, failed) {
            (command::DMA_READ, None) => Event::DmaRead {
                id,
                result: data_of(&asked, body),
            },
            (command::DMA_READ, Some(errno)) => Event::DmaRead {
                id,
                result: Err(errno),
            },
            (_, failed) => Event::DmaWritten {
                id,
                result: failed.map_or(Ok(()), Err),
            },
        };
        self.events.push_back(event);
        Ok(())
    }

    /// The next thing that a client asked for or answered.
    pub fn next_event(&mut self) -> Option<Event<F>> {
        self.events.pop_front()
    }

    /// The command was carried out.
    pub fn done(&mut self, ticket: Ticket) {
        let echo = ticket.echo;
        match &echo {
            Echo::None => self.send_reply(&ticket, &[], None),
            Echo::Unmap(asked) => self.send_reply(&ticket, &[asked.as_bytes()], None),
            Echo::Region(asked) => self.send_reply(&ticket, &[asked.as_bytes()], None),
        }
    }

    /// The data of a [`Event::RegionRead`]; where they are not as long as was asked, the read fails.
    pub fn read(&mut self, ticket: Ticket, data: &[u8]) {
        match ticket.echo {
            Echo::Region(asked) if asked.count.get() as usize == data.len() => {
                self.send_reply(&ticket, &[asked.as_bytes(), data], None);
            }
            _ => self.refuse(ticket, Errno::EIO),
        }
    }

    /// The command failed: the reply is a header with the error, and nothing else.
    pub fn refuse(&mut self, ticket: Ticket, errno: Errno) {
        if ticket.wants_reply {
            let flags = flags::REPLY | flags::ERROR;
            self.send(ticket.id, ticket.command, (flags, errno.get()), &[], None);
        }
    }

    /// Asks the client for bytes of its memory. None while as many requests as may be wait for their answers.
    ///
    /// # Errors
    /// [`Errno::E2BIG`]: more than client and protocol allow in one message; [`Errno::EBUSY`]: too many wait; [`Errno::EINVAL`] before VERSION.
    pub fn dma_read(&mut self, address: u64, count: u32) -> Result<DmaId, Errno> {
        self.dma_request(command::DMA_READ, address, count, &[])
    }

    /// Asks the client to write bytes to its memory.
    ///
    /// # Errors
    /// As [`Server::dma_read`].
    pub fn dma_write(&mut self, address: u64, data: &[u8]) -> Result<DmaId, Errno> {
        let count = u32::try_from(data.len()).map_err(|_| Errno::E2BIG)?;
        self.dma_request(command::DMA_WRITE, address, count, data)
    }

    /// Most bytes of one [`Server::dma_read`] or [`Server::dma_write`].
    #[must_use]
    pub fn dma_bytes_max(&self) -> u32 {
        let client = self.capabilities().map_or(0, |it| it.data_bytes_max);
        u32::try_from(client)
            .unwrap_or(u32::MAX)
            .min(DATA_BYTES_MAX)
    }

    fn dma_request(
        &mut self,
        command: u16,
        address: u64,
        count: u32,
        data: &[u8],
    ) -> Result<DmaId, Errno> {
        if self.capabilities().is_none() || count == 0 {
            return Err(Errno::EINVAL);
        }
        if count > self.dma_bytes_max() {
            return Err(Errno::E2BIG);
        }
        if self.dma.len() >= DMA_REQUESTS_MAX {
            return Err(Errno::EBUSY);
        }
        while self.dma.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let asked = Asked {
            command,
            address,
            count: u64::from(count),
        };
        self.dma.insert(id, asked);
        let access = wire::DmaAccess {
            address: U64::new(address),
            count: U64::new(u64::from(count)),
        };
        let parts = [access.as_bytes(), data];
        self.send(id, command, (flags::COMMAND, 0), &parts, None);
        Ok(DmaId(id))
    }

    fn send_reply(&mut self, ticket: &Ticket, parts: &[&[u8]], region_fd: Option<u32>) {
        if ticket.wants_reply {
            let how = (flags::REPLY, 0);
            self.send(ticket.id, ticket.command, how, parts, region_fd);
        }
    }

    fn send(
        &mut self,
        id: u16,
        command: u16,
        (flags, error): (u32, u32),
        parts: &[&[u8]],
        region_fd: Option<u32>,
    ) {
        let size = HEADER_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
        let header = wire::Header {
            id: U16::new(id),
            command: U16::new(command),
            size: U32::new(u32::try_from(size).unwrap_or(u32::MAX)),
            flags: U32::new(flags),
            error: U32::new(error),
        };
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(header.as_bytes());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        self.outgoing_bytes += size;
        self.outgoing.push_back(Outgoing { bytes, region_fd });
    }

    /// The next message to send. One that is sent in parts is the driver's until its last byte has left.
    pub fn outgoing(&mut self) -> Option<Outgoing> {
        let next = self.outgoing.pop_front()?;
        self.outgoing_bytes -= next.bytes.len();
        Some(next)
    }

    /// Whether there is something to send.
    #[must_use]
    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }
}

fn check_header(header: &wire::Header) -> Result<(), ProtocolError> {
    let bytes = header.size.get();
    if (bytes as usize) < HEADER_BYTES || bytes as usize > MESSAGE_BYTES_MAX {
        return Err(ProtocolError::MessageSize { bytes });
    }
    match header.flags.get() & flags::TYPE_MASK {
        flags::COMMAND | flags::REPLY => Ok(()),
        kind => Err(ProtocolError::MessageType { kind }),
    }
}

/// The data of a DMA_READ's reply, where it is the one that was asked for.
fn data_of(asked: &Asked, body: &[u8]) -> Result<Vec<u8>, Errno> {
    let (access, data) = wire::DmaAccess::read_from_prefix(body).map_err(|_| Errno::EIO)?;
    let is_it = access.address.get() == asked.address
        && access.count.get() == asked.count
        && data.len() as u64 == asked.count;
    match is_it {
        true => Ok(data.to_vec()),
        false => Err(Errno::EIO),
    }
}
