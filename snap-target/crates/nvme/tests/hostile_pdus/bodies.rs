//! The bodies of the fuzz targets (`fuzz/`): any bytes are a script, and whatever it says the ends stay sound. The same run here as properties.

use std::time::Duration;

use nvme::Time;
use nvme::tcp::host::Want as HostWant;

use crate::against_host::{Victim, digested};
use crate::against_target::{Attack, TRANSFER_BYTES_MAX, limits, target};
use crate::support::memory::most_held;
use crate::wire::*;
use nvme::simulation::target::{MemoryTarget, TargetQueue};

/// More than a target with its disk, four connections with all their buffers, and the script's own bytes take together.
const MEMORY_MAX: usize = 16 << 20;
/// Connections of a script.
const CONNECTIONS_MAX: usize = 4;
const HOST: &str = "nqn.2026-11.test:hostile";

/// The script: bytes that decide, and zeros when they are over.
pub(crate) struct Script<'a>(pub(crate) &'a [u8]);

impl Script<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    pub(crate) fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from(self.half()) | u32::from(self.half()) << 16
    }

    /// One of the values most of the time, else any.
    pub(crate) fn of(&mut self, values: &[u32]) -> u32 {
        let choice = usize::from(self.byte());
        match values.get(choice % (values.len() + 1)) {
            Some(&value) => value,
            None => self.word(),
        }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }
}

/// A host's bytes, cut anywhere, on a connection in any of its stages.
pub fn target_bytes(data: &[u8]) {
    let held = most_held(|| {
        let mut script = Script(data);
        let mut attack = match script.byte() % 6 {
            0 => Attack::fresh(),
            stage @ 1..=4 => Attack::greeted(stage - 1),
            _ => Attack::on_io_queue(),
        };
        let cut = usize::from(script.byte()) * 16 + 1;
        feed_target(&mut attack.target, &mut attack.queue, script.0, cut);
        if attack.queue.ended.is_some() {
            let used = attack
                .queue
                .receive(&[0; 600], &mut attack.target, Time::ZERO);
            assert_eq!((used, attack.say(&[]).len()), (0, 0), "after the end");
        }
    });
    assert!(held < MEMORY_MAX, "{held} bytes");
}

fn feed_target(
    target: &mut MemoryTarget,
    queue: &mut TargetQueue,
    bytes: &[u8],
    cut: usize,
) -> Vec<u8> {
    let most = usize::from(limits().queue_entries_max) * TRANSFER_BYTES_MAX as usize;
    let mut out = Vec::new();
    for mut rest in bytes.chunks(cut) {
        while !rest.is_empty() && queue.ended.is_none() {
            let before = out.len();
            let used = queue.receive(rest, target, Time::ZERO);
            rest = &rest[used..];
            queue.run(target, Time::ZERO);
            queue.transmit(&mut out);
            let stuck = used == 0 && out.len() == before && queue.ended.is_none();
            assert!(!stuck, "no byte is taken and none sent");
            assert!(queue.buffer_bytes() <= most);
        }
    }
    queue.transmit(&mut out);
    out
}

/// A target's bytes, cut anywhere, to a host with commands under way.
pub fn host_bytes(data: &[u8]) {
    let held = most_held(|| {
        let mut script = Script(data);
        let mut victim = Victim::greeted(script.byte() % 4);
        let cut = usize::from(script.byte()) * 16 + 1;
        victim.read(2);
        victim.write(16);
        victim.flush();
        for piece in script.0.chunks(cut) {
            let used = victim.host.receive(piece);
            while victim.host.next_event().is_some() {}
            let mut out = Vec::new();
            victim.host.transmit(&mut out);
            if victim.host.connection.want() == HostWant::Closed {
                return victim.must_be_deaf();
            }
            assert_eq!(used, piece.len(), "bytes are left though it lives");
        }
    });
    assert!(held < MEMORY_MAX, "{held} bytes");
}

/// Opcodes of I/O commands that come with what is in the capsule: Write, Flush, Compare, Write Uncorrectable, Write Zeroes, Dataset Management,
/// Verify, Reservation Register, Acquire and Release, Copy.
const WITH_CAPSULE: [u32; 12] = [
    0x01, 0x01, 0x00, 0x05, 0x04, 0x08, 0x09, 0x0C, 0x0D, 0x11, 0x15, 0x19,
];

/// One connection of a script's host.
struct Open {
    queue: TargetQueue,
    digests: bool,
    /// Commands sent and answers seen.
    asked: u32,
    answered: u32,
    /// What an R2T asked for and was not sent yet: CID, TTAG, offset, length.
    wanted: Vec<(u16, u16, u32, u32)>,
}

/// A host's operations in any order: connections, controllers, commands, data, resets and ends, over several connections of one target.
struct Session {
    target: MemoryTarget,
    open: Vec<Open>,
    now: Time,
    last_cntlid: u16,
}

/// Operations of hosts that know the protocol and keep to nothing else.
pub fn sequences(data: &[u8]) {
    let held = most_held(|| {
        let mut session = Session {
            target: target(),
            open: Vec::new(),
            now: Time::ZERO,
            last_cntlid: 0,
        };
        let mut script = Script(data);
        while !script.0.is_empty() {
            session.step(&mut script);
        }
        while !session.open.is_empty() {
            session.close(0);
        }
        assert_eq!(session.target.registry.controllers().count(), 0);
    });
    assert!(held < MEMORY_MAX, "{held} bytes");
}

impl Session {
    fn step(&mut self, script: &mut Script<'_>) {
        let act = script.byte() % 16;
        if self.open.is_empty() || act == 0 && self.open.len() < CONNECTIONS_MAX {
            return self.connect(script.byte() & 1 != 0);
        }
        let at = usize::from(script.byte()) % self.open.len();
        let cid = script.half();
        let bytes = match act {
            1 => connect_as(0, 0xFFFF, script),
            2 => connect_as(script.half() % 5, self.last_cntlid, script),
            3 => capsule(dwords(
                0x7F,
                0,
                [0, 0x14, script.of(&[0x0046_0001, 0x0046_4001, 0]), 0],
            )),
            4 => capsule(dwords(0x06, 4096, [script.of(&[0, 1, 2, 3]), 0, 0, 0])),
            5 => {
                let (page, dwords_z) = (script.of(&[1, 2, 3, 4, 5, 0x70]) & 0xFF, script.half());
                let length = (u32::from(dwords_z) + 1) * 4;
                let log = [
                    page | u32::from(dwords_z) << 16,
                    0,
                    script.of(&[0, 4, 1024]),
                    0,
                ];
                capsule(dwords(0x02, length, log))
            }
            6 => capsule(dwords(
                script.of(&[0x09, 0x0A]) as u8,
                script.of(&[0, 8, 4096]),
                [script.word(), script.word(), 0, 0],
            )),
            7 => {
                let (opcode, word) = (script.of(&[0x0C, 0x18, 0x08]) as u8, script.word());
                let named = self.wanted_command(word).unwrap_or(word);
                capsule(dwords(opcode, 0, [named, 0, 0, 0]))
            }
            8 | 9 => {
                let (lba, blocks) = (script.of(&[0, 1, 511]), script.half() % 130 + 1);
                let right = u32::from(blocks) * 512;
                let opcode = if act == 8 { READ } else { WRITE };
                capsule(sqe(
                    opcode,
                    cid,
                    lba,
                    blocks,
                    script.of(&[right, right, right]),
                ))
            }
            10 => {
                let data = vec![script.byte(); usize::from(script.byte()) * 32];
                let blocks = (data.len() / 512) as u16;
                let mut entry = sqe(script.of(&WITH_CAPSULE) as u8, cid, 0, blocks, 0);
                // Halves of fused operations, most of them of none.
                entry[1] |= script.byte() & script.byte() & 0b11;
                capsule_with_data(entry, &data)
            }
            11 => return self.send_wanted(at, script),
            12 => return self.close(at),
            13 => return self.pass(Duration::from_millis(u64::from(script.half()))),
            14 => {
                let data = vec![7; usize::from(script.byte()) * 4];
                h2c_data(script.byte(), cid, script.half() % 9, script.word(), &data)
            }
            _ => {
                let len = usize::from(script.byte());
                return self.say(at, &script.bytes(len), 0);
            }
        };
        let mut bytes = bytes;
        bytes[10..12].copy_from_slice(&cid.to_le_bytes());
        let asks = u32::from(bytes[0] == CAPSULE_CMD);
        if self.open[at].digests {
            bytes = digested(&bytes);
        }
        self.say(at, &bytes, asks);
    }

    fn connect(&mut self, digests: bool) {
        let mut queue = TargetQueue::new(&self.target, self.now);
        let hello = ic(IC_REQ, 0, if digests { 3 } else { 0 }, 0);
        let out = feed_target(&mut self.target, &mut queue, &hello, usize::MAX);
        assert_eq!(out.len(), 128);
        self.open.push(Open {
            queue,
            digests,
            asked: 0,
            answered: 0,
            wanted: Vec::new(),
        });
    }

    /// Sends bytes on one connection, and looks at all that comes back.
    fn say(&mut self, at: usize, bytes: &[u8], asks: u32) {
        let open = &mut self.open[at];
        open.asked += asks;
        let out = feed_target(&mut self.target, &mut open.queue, bytes, usize::MAX);
        for sent in Sent::all(&out) {
            match sent.pdu_type() {
                CAPSULE_RESP => open.answered += 1,
                C2H_DATA => open.answered += u32::from(sent.0[1] & SUCCESS != 0),
                R2T => {
                    open.wanted
                        .push((sent.half(8), sent.half(10), sent.word(12), sent.word(16)))
                }
                C2H_TERM => assert!(open.queue.ended.is_some()),
                other => panic!("a target sends no PDU of type {other}"),
            }
        }
        // Raw bytes may have been commands as well.
        assert!(
            open.answered <= open.asked || asks == 0,
            "more answers than commands"
        );
        open.asked = open.asked.max(open.answered);
        if let Some(id) = open.queue.controller() {
            self.last_cntlid = id.0;
        }
        self.follow();
    }

    /// What the target's resets and ends ask of its connections.
    fn follow(&mut self) {
        for id in std::mem::take(&mut self.target.resets) {
            let is_io = |open: &Open| open.queue.controller() == Some(id) && !open.queue.is_admin();
            while let Some(at) = self.open.iter().position(is_io) {
                self.end(at);
            }
        }
        while let Some(at) = self.open.iter().position(|open| open.queue.ended.is_some()) {
            self.close(at);
        }
    }

    /// A command whose data are asked for, as Abort names it. Half of the time none.
    fn wanted_command(&self, word: u32) -> Option<u32> {
        let wanted = self.open.iter().find_map(|open| open.wanted.first());
        let (cid, ..) = wanted.filter(|_| word & 1 != 0)?;
        Some(u32::from(*cid) << 16 | word >> 1 & 3)
    }

    /// The data of the oldest R2T, all or a part.
    fn send_wanted(&mut self, at: usize, script: &mut Script<'_>) {
        let open = &mut self.open[at];
        if open.wanted.is_empty() {
            return;
        }
        let (cid, ttag, offset, len) = open.wanted.remove(0);
        let part = match script.byte() % 4 {
            0 => (len / 2) & !3,
            _ => len,
        };
        let part = part.clamp(1, 8 << 10);
        let last = if part == len { LAST_PDU } else { 0 };
        if part < len {
            open.wanted
                .insert(0, (cid, ttag, offset + part, len - part));
        }
        let mut bytes = h2c_data(last, cid, ttag, offset, &vec![0x55; part as usize]);
        if open.digests {
            bytes = digested(&bytes);
        }
        self.say(at, &bytes, 0);
    }

    /// A connection ends; an admin queue takes its I/O queues along.
    fn close(&mut self, at: usize) {
        let (id, is_admin) = {
            let queue = &self.open[at].queue;
            (queue.controller(), queue.is_admin())
        };
        self.end(at);
        if let Some(id) = id.filter(|_| is_admin) {
            while let Some(at) = self
                .open
                .iter()
                .position(|open| open.queue.controller() == Some(id))
            {
                self.end(at);
            }
        }
    }

    fn end(&mut self, at: usize) {
        let mut open = self.open.swap_remove(at);
        open.queue.close(&mut self.target, self.now);
    }

    /// Time passes: handshakes and silent controllers end.
    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
        self.target.run(self.now);
        for open in &mut self.open {
            open.queue.run(&mut self.target, self.now);
        }
        while let Some(id) = self.target.registry.next_expired(self.now) {
            self.target.registry.end(id);
            while let Some(at) = self
                .open
                .iter()
                .position(|open| open.queue.controller() == Some(id))
            {
                self.end(at);
            }
        }
        self.follow();
    }
}

/// An entry with a descriptor of so many bytes elsewhere, and CDW10 to CDW13.
fn dwords(opcode: u8, sgl_bytes: u32, values: [u32; 4]) -> [u8; 64] {
    let mut entry = sqe(opcode, 0, 0, 1, sgl_bytes);
    entry[4] = 0;
    for (at, value) in values.iter().enumerate() {
        entry[40 + at * 4..44 + at * 4].copy_from_slice(&value.to_le_bytes());
    }
    entry
}

fn connect_as(qid: u16, cntlid: u16, script: &mut Script<'_>) -> Vec<u8> {
    let subnqn = match script.byte() % 4 {
        0 => "nqn.2014-08.org.nvmexpress.discovery",
        _ => nvme::simulation::target::SUBNQN,
    };
    let mut data = [0; 1024];
    data[0] = 1;
    data[16..18].copy_from_slice(&cntlid.to_le_bytes());
    data[256..256 + subnqn.len()].copy_from_slice(subnqn.as_bytes());
    data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
    let kato_ms = u32::from(script.byte()) * 20;
    let sqsize = script.of(&[7, 31, 1]) & 0xFFFF;
    let mut entry = dwords(0x7F, 0, [u32::from(qid) << 16, sqsize, kato_ms, 0]);
    entry[4] = 1;
    capsule_with_data(entry, &data)
}

/// The seams for what is not NVMe: each parser of bytes from outside gets a body here and a target in `fuzz/`.
#[cfg(test)]
mod properties {
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        // 256 scripts each; PROPTEST_CASES says otherwise.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_host_bytes_leave_the_target_sound(script in vec(any::<u8>(), 0..3000)) {
            super::target_bytes(&script);
        }

        #[test]
        fn any_target_bytes_leave_the_host_sound(script in vec(any::<u8>(), 0..3000)) {
            super::host_bytes(&script);
        }

        #[test]
        fn any_operations_of_hosts_leave_the_target_sound(script in vec(any::<u8>(), 0..2000)) {
            super::sequences(&script);
        }
    }
}
