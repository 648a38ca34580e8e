//! The target's machine behind a blocking socket, one step at a time.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use nvme::Time;
use nvme::digest::crc32c_append;
use nvme::queue::{Completion, Slot, Transfer};
use nvme::simulation::gather;
use nvme::tcp::batch::TxBatch;
use nvme::tcp::target::{Connection, Event, TargetLimits, Want};
use nvme_spec::fabrics::FabricsType;
use nvme_spec::{AdminOpcode, Sqe, Status};
use store_nvme::conformance::{Arrived, Controller, DEPTH_MAX, PATIENCE};

/// The controller's end of one connection.
pub struct Peer {
    stream: TcpStream,
    started: Instant,
    connection: Connection,
    buffers: Vec<Vec<u8>>,
    /// Commands that came while something else was waited for.
    arrived: VecDeque<Arrived>,
    /// All data of the command are there.
    ready: Vec<bool>,
    received: Vec<u8>,
    /// Of what was received the machine has taken so much.
    used: usize,
    batch: TxBatch,
    held: Vec<u8>,
}

impl Peer {
    pub fn new(stream: TcpStream, limits: &TargetLimits) -> Peer {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let slots = usize::from(DEPTH_MAX) * 4;
        Peer {
            stream,
            started: Instant::now(),
            connection: Connection::new(limits, Time::ZERO),
            buffers: vec![Vec::new(); slots],
            arrived: VecDeque::new(),
            ready: vec![false; slots],
            received: Vec::new(),
            used: 0,
            batch: TxBatch::with_capacity(64),
            held: Vec::new(),
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.started.elapsed()
    }

    /// Goes on until something is there; false once the host has closed the connection.
    fn until(&mut self, mut is_there: impl FnMut(&mut Peer) -> bool) -> bool {
        while !is_there(self) {
            if !self.step() {
                return false;
            }
        }
        true
    }

    /// Takes in what is there, or waits for more; false at the end.
    fn step(&mut self) -> bool {
        match self.connection.want() {
            Want::Event => self.event(),
            Want::Closed => panic!("the host broke the protocol"),
            Want::Slot => panic!("every answer has left"),
            _ if self.used == self.received.len() => {
                self.flush();
                return self.receive();
            }
            Want::Header(_) => self.used += self.connection.headers(&self.received[self.used..]),
            Want::Discard(len) => {
                let rest = &self.received[self.used..];
                let part = &rest[..rest.len().min(len as usize)];
                let crc = crc32c_append(self.connection.payload_crc(), part);
                self.used += part.len();
                self.connection
                    .payload(u32::try_from(part.len()).unwrap(), crc);
            }
            Want::Payload {
                slot, offset, len, ..
            } => {
                let rest = &self.received[self.used..];
                let part = &rest[..rest.len().min(len as usize)];
                let to = &mut self.buffers[slot.index()][offset as usize..];
                to[..part.len()].copy_from_slice(part);
                let crc = crc32c_append(self.connection.payload_crc(), part);
                self.used += part.len();
                self.connection
                    .payload(u32::try_from(part.len()).unwrap(), crc);
            }
        }
        self.flush();
        true
    }

    fn receive(&mut self) -> bool {
        self.received.resize(256 << 10, 0);
        self.used = 0;
        let count = match self.stream.read(&mut self.received) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("nothing came from the host: {error}"),
        };
        self.received.truncate(count);
        count > 0
    }

    fn event(&mut self) {
        match self.connection.next_event() {
            Some(Event::Connect { slot } | Event::Command { slot }) => {
                let transfer = self.connection.transfer(slot);
                let bytes = transfer.bytes();
                self.buffers[slot.index()] = vec![0xDD; bytes as usize];
                self.ready[slot.index()] = false;
                self.arrived.push_back(Arrived {
                    tag: slot,
                    sqe: *self.connection.command(slot),
                    bytes,
                    is_in_capsule: matches!(transfer, Transfer::InCapsule { .. }),
                });
            }
            Some(Event::DataReady { slot }) => self.ready[slot.index()] = true,
            other => panic!("the host is honest: {other:?}"),
        }
    }

    /// What the machine has to send.
    fn outgoing(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            self.connection.transmit(&mut self.batch);
            if self.batch.is_empty() {
                return out;
            }
            for slot in gather(&mut self.batch, &self.buffers, &mut out) {
                self.connection.transmitted(slot);
            }
        }
    }

    fn flush(&mut self) {
        let out = self.outgoing();
        self.say(&out);
    }

    /// A host that is gone is found by the next receive.
    pub fn say(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Err(error) if !is_gone(error.kind()) => panic!("{error}"),
            _ => {}
        }
    }

    /// Where the first `bytes` of data end in a stream of C2HData PDUs.
    fn end_of_data(&self, stream: &[u8], bytes: usize) -> usize {
        let digest = if self.connection.digests().1 { 4 } else { 0 };
        let (mut at, mut left) = (0, bytes);
        loop {
            let header = &stream[at..at + 8];
            let data_at = usize::from(header[3]);
            let len = u32::from_le_bytes(header[4..].try_into().unwrap()) as usize;
            let data = len - data_at - digest;
            if left <= data {
                return at + data_at + left;
            }
            left -= data;
            at += len;
        }
    }

    fn respond(&mut self, tag: Slot, status: Status, result: u64, data: &[u8]) {
        let sqe: Sqe = *self.connection.command(tag);
        let connect = (AdminOpcode::FABRICS.0, FabricsType::CONNECT.0);
        if (sqe.opcode, sqe.fctype()) == connect && status.is_success() {
            self.connection.established(DEPTH_MAX, false);
            self.connection.authenticated();
        }
        if !data.is_empty() {
            self.buffers[tag.index()] = data.to_vec();
        }
        #[expect(clippy::cast_possible_truncation, reason = "its halves")]
        let completion = Completion {
            status,
            dw0: result as u32,
            dw1: (result >> 32) as u32,
        };
        let len = u32::try_from(data.len()).unwrap();
        self.connection.respond(tag, completion, len);
    }
}

fn is_gone(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

impl Controller for Peer {
    fn command(&mut self) -> Option<Arrived> {
        self.until(|peer| !peer.arrived.is_empty());
        self.arrived.pop_front()
    }

    fn data(&mut self, tag: Slot) -> Option<Vec<u8>> {
        if matches!(self.connection.transfer(tag), Transfer::Remote { .. }) {
            self.ask(tag);
        }
        let is_there = self.until(|peer| peer.ready[tag.index()]);
        is_there.then(|| self.buffers[tag.index()].clone())
    }

    fn ask(&mut self, tag: Slot) {
        let now = self.now();
        self.connection.request_data(tag, now).unwrap();
        self.flush();
    }

    fn answer(&mut self, tag: Slot, status: Status, result: u64, data: &[u8]) {
        // What came with the command and was not looked at yet.
        if self.connection.transfer(tag).bytes() > 0 && !self.ready[tag.index()] {
            let is_in_capsule = matches!(self.connection.transfer(tag), Transfer::InCapsule { .. });
            self.until(|peer| !is_in_capsule || peer.ready[tag.index()]);
        }
        self.respond(tag, status, result, data);
        self.flush();
    }

    fn begin_answer(&mut self, tag: Slot, data: &[u8], bytes: usize) {
        self.flush();
        self.respond(tag, Status::SUCCESS, 0, data);
        let mut out = self.outgoing();
        self.held = out.split_off(self.end_of_data(&out, bytes));
        self.say(&out);
    }

    fn finish_answer(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.say(&held);
    }
}
