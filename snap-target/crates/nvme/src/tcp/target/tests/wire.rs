//! What a command costs on the wire, against the bytes that went over it.

use super::*;
use crate::queue::WireBytes;

const SLOT: Slot = Slot(0);

/// A driver that counts the bytes of both ways.
struct Counting {
    driver: Driver,
    digests: u8,
    wire: WireBytes,
}

impl Counting {
    fn new(limits: &TargetLimits, digests: u8, flow_control: bool) -> Self {
        Self {
            driver: Driver::connected(limits, digests, 8, flow_control),
            digests,
            wire: WireBytes::default(),
        }
    }

    fn feed(&mut self, plain: &[u8]) {
        let bytes = match self.digests {
            0 => plain.to_vec(),
            _ => digested(plain, true),
        };
        self.wire.received += bytes.len() as u64;
        self.driver.feed(&bytes);
    }

    fn send(&mut self) {
        let sent = self.driver.sent();
        self.wire.sent += sent.iter().map(|pdu| pdu.len() as u64).sum::<u64>();
    }

    /// The command was answered: what the machine says it cost, before and after its answer has left.
    fn check(&mut self) {
        let said = self.driver.connection.wire(SLOT);
        self.send();
        assert_eq!(said, std::mem::take(&mut self.wire));
    }

    fn read(&mut self, bytes: u32) {
        self.feed(&read(1, bytes));
        self.driver.answer_with(SLOT, bytes, 7);
        self.check();
    }

    /// Of a read that fails: a response alone.
    fn failing_read(&mut self) {
        self.feed(&read(2, 8192));
        let failed = Completion::of(nvme_spec::Status::INTERNAL_ERROR);
        self.driver.connection.respond(SLOT, failed, 0);
        self.check();
    }

    fn write_in_capsule(&mut self, bytes: u32) {
        let data = vec![3; bytes as usize];
        self.feed(&capsule(&sqe(WRITE, 3, 1, bytes, IN_CAPSULE), &data));
        self.driver.connection.respond(SLOT, Completion::SUCCESS, 0);
        self.check();
    }

    /// By R2Ts of 4096 bytes.
    fn write(&mut self, bytes: u32) {
        self.feed(&write(4, bytes));
        self.driver
            .connection
            .request_data(SLOT, Time::ZERO)
            .unwrap();
        for offset in (0..bytes).step_by(4096) {
            self.send();
            let data = vec![5; (bytes - offset).min(4096) as usize];
            self.feed(&h2c_data(4, 0, offset, &data, LAST));
        }
        self.driver.connection.respond(SLOT, Completion::SUCCESS, 0);
        self.check();
    }
}

#[test]
fn a_command_costs_the_bytes_that_went_over_the_wire_for_it() {
    for (digests, flow_control) in [(0, true), (0, false), (3, true), (3, false)] {
        let limits = TargetLimits {
            c2h_data_bytes_max: 4096,
            r2t_bytes_max: 4096,
            ..TargetLimits::default()
        };
        let mut counting = Counting::new(&limits, digests, flow_control);
        for bytes in [512, 4096, 4100, 10_000] {
            counting.read(bytes);
            counting.write(bytes);
        }
        counting.write_in_capsule(512);
        counting.write_in_capsule(8192);
        counting.failing_read();
        counting.feed(&flush(5));
        counting
            .driver
            .connection
            .respond(SLOT, Completion::SUCCESS, 0);
        counting.check();
    }
}

/// Padding up to what the host asked for is a part of it.
#[test]
fn padding_is_counted() {
    let mut driver = Driver::new(&TargetLimits::default());
    driver.feed(&ic_req(31, 0));
    driver.feed(&connect(0));
    driver.connection.established(8, false);
    driver.connection.authenticated();
    driver.connection.respond(SLOT, Completion::SUCCESS, 0);
    driver.sent();
    driver.feed(&read(1, 512));
    driver.answer_with(SLOT, 512, 1);
    let said = driver.connection.wire(SLOT);
    assert_eq!((said.received, said.sent), (72, 128 + 512));
    let sent: usize = driver.sent().iter().map(Vec::len).sum();
    assert_eq!(sent, 128 + 512);
}
