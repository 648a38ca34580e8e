//! A host, and what targets may send it.

use std::time::Duration;

use nvme::Time;
use nvme::queue::{QueueId, Slot};
use nvme::rdma::host;
use nvme_spec::{Sqe, Status};

use super::{MEMORY_MAX, TIMEOUT};
use crate::bodies::Script;
use crate::support::memory::most_held;

/// A controller's acceptance and responses, and the device's completions, in any order.
pub fn rdma_host(data: &[u8]) {
    let held = most_held(|| {
        let mut script = Script(data);
        let crqsize = script.of(&[1, 3, 8]) as u16;
        let mut accept = [0; 32];
        accept[2..4].copy_from_slice(&crqsize.to_le_bytes());
        let mut host = Host {
            connection: host::Connection::new(host::HostOptions {
                qid: QueueId(1),
                cntlid: 1,
                depth: 4,
                in_capsule_bytes_max: 4096,
                command_timeout: TIMEOUT,
            }),
            script,
            now: Time::ZERO,
            receives: crqsize.into(),
            next_key: 0x100,
            flying: Vec::new(),
            ended: false,
        };
        if host.connection.accepted(&accept).is_ok() {
            host.run();
        }
    });
    assert!(held < MEMORY_MAX, "{held} bytes");
}

/// A command that left.
struct Flying {
    slot: Slot,
    cid: u16,
    key: Option<u32>,
    is_sent: bool,
    answer: Option<u32>,
}

struct Host<'a> {
    script: Script<'a>,
    connection: host::Connection,
    now: Time,
    receives: usize,
    next_key: u32,
    flying: Vec<Flying>,
    ended: bool,
}

impl Host<'_> {
    fn run(&mut self) {
        while !self.script.0.is_empty() {
            match self.script.byte() % 7 {
                0 => self.submit(),
                1 => self.send(),
                2 | 3 => self.respond(),
                4 => {
                    let at = usize::from(self.script.byte()) % self.flying.len().max(1);
                    if let Some(flying) = self.flying.get_mut(at) {
                        flying.is_sent = true;
                        self.connection.sent(flying.slot);
                    }
                }
                5 => self.invalidate(),
                _ => {
                    let millis = self.script.of(&[0, 1, 1000, 6000]) % 10_000;
                    self.now = self.now + Duration::from_millis(millis.into());
                    self.connection.tick(self.now);
                }
            }
            self.events();
        }
    }

    fn submit(&mut self) {
        let bytes = self.script.of(&[0, 512, 4096, 8192, 1 << 24]);
        let transfer = match self.script.byte() % 3 {
            0 => nvme::initiator::Transfer::None,
            1 => nvme::initiator::Transfer::In(bytes),
            _ => nvme::initiator::Transfer::Out(bytes),
        };
        let command = nvme::initiator::Command {
            sqe: Sqe::ZERO,
            transfer,
        };
        let before = self.connection.outstanding();
        let taken = self.connection.submit(&command, self.now);
        assert_eq!(
            self.connection.outstanding(),
            before + usize::from(taken.is_ok())
        );
        if self.ended {
            assert_eq!(taken, Err(host::SubmitError::Closed));
        }
        if let Ok(slot) = taken
            && self.script.byte().is_multiple_of(8)
        {
            assert!(self.connection.withdraw(slot));
            assert!(!self.connection.withdraw(slot), "once");
        }
    }

    fn send(&mut self) {
        let Some(next) = self.connection.next_capsule() else {
            return;
        };
        assert!(!self.ended, "{next:?} after the end");
        let is_keyed = matches!(
            next.data,
            host::CapsuleData::Read(_) | host::CapsuleData::Written(_)
        );
        let lasts = match self.script.byte() % 4 {
            0 => host::Lasts::AsTheConnection,
            _ => host::Lasts::AsTheCommand,
        };
        self.next_key += 1;
        let grant = host::Grant {
            address: 0x1000,
            key: self.next_key,
            lasts,
        };
        let sqe = self.connection.send(next.slot, Some(grant)).unwrap();
        let cid = sqe.cid.get();
        assert!(self.flying.iter().all(|flying| flying.cid != cid));
        let is_windowed = is_keyed && lasts == host::Lasts::AsTheCommand;
        self.flying.push(Flying {
            slot: next.slot,
            cid,
            key: is_windowed.then_some(self.next_key),
            is_sent: false,
            answer: None,
        });
        let unanswered = self.flying.iter().filter(|flying| flying.answer.is_none());
        assert!(unanswered.count() <= self.receives);
    }

    /// A response to one of the commands most of the time, with its own key or another's.
    fn respond(&mut self) {
        let at = usize::from(self.script.byte()) % self.flying.len().max(1);
        let result = self.script.word();
        let (own_cid, own_key) = match self.flying.get(at) {
            Some(flying) => (flying.cid, flying.key),
            None => (0, None),
        };
        let cid = match self.script.byte() % 16 {
            0 => self.script.half(),
            _ => own_cid,
        };
        let invalidated = match self.script.byte() % 8 {
            0 => Some(self.script.of(&[self.next_key, 0])),
            1..=3 => None,
            _ => own_key,
        };
        let mut cqe = vec![0; 16];
        cqe[..4].copy_from_slice(&result.to_le_bytes());
        cqe[12..14].copy_from_slice(&cid.to_le_bytes());
        let len = self.script.of(&[16, 16, 16, 16, 15, 0]) as usize % 64;
        cqe.resize(len, 0);
        let is_good = len == 16
            && self.flying.iter().any(|flying| {
                flying.cid == cid
                    && flying.answer.is_none()
                    && (invalidated.is_none() || invalidated == flying.key)
            });
        self.connection.response(&cqe, invalidated);
        if !is_good || self.ended {
            return;
        }
        let flying = self.flying.iter_mut().find(|flying| flying.cid == cid);
        let flying = flying.unwrap();
        flying.answer = Some(result);
        if invalidated.is_some() {
            flying.key = None;
        }
    }

    fn invalidate(&mut self) {
        if let Some((slot, key)) = self.connection.next_invalidation() {
            let flying = self.flying.iter_mut().find(|flying| flying.slot == slot);
            let flying = flying.expect("a command that left");
            assert!(flying.answer.is_some() && flying.key == Some(key));
            flying.key = None;
            self.connection.invalidated(slot);
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.connection.next_event() {
            assert!(!self.ended, "{event:?} after the end");
            match event {
                host::Event::Completed { slot, cqe } => {
                    let Some(at) = self.flying.iter().position(|flying| flying.slot == slot) else {
                        assert_eq!(cqe.status(), Status::HOST_ABORTED, "it never left");
                        continue;
                    };
                    let flying = self.flying.swap_remove(at);
                    assert!(
                        flying.is_sent && flying.key.is_none(),
                        "its memory is reached"
                    );
                    assert_eq!(Some(cqe.dw0.get()), flying.answer, "another's answer");
                }
                host::Event::Fatal(_) => self.ended = true,
            }
        }
        if !self.ended {
            let done =
                |flying: &Flying| flying.is_sent && flying.key.is_none() && flying.answer.is_some();
            assert!(!self.flying.iter().any(done), "it does not end");
        }
    }
}
