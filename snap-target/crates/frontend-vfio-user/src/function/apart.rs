//! Guest memory that goes by messages: the function sends what its queues ask for, and hands them what the client says. A message is sent where no other waits to
//! be, so that replies never wait behind more than one of them and the client's own messages are taken in meanwhile: both ends may have a full socket.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use nvme::controller::Registers;
use nvme::queue::{Completion, Slot};
use nvme_spec::AdminOpcode;
use nvme_spec::register::Csts;
use vfio_user::{DmaId, Errno};

use super::{FunctionLink, TAG_APART};
use crate::apart::{Answer, Ask, Load};
use crate::limits::DMA_PATIENCE;
use crate::queue::Submissions;

/// What the client was asked, and has not answered.
#[derive(Debug, Default)]
pub(super) struct Apart {
    sent: BTreeMap<DmaId, Sent>,
    /// That were ever sent.
    messages: u64,
    /// Its timer is set.
    is_timed: bool,
    /// Answers of the admin queue that say that a queue is gone, while its messages are not.
    deletions: Vec<(Slot, Completion, Arc<Submissions>)>,
}

#[derive(Debug)]
struct Sent {
    from: Arc<Submissions>,
    slot: Slot,
    number: u64,
    address: u64,
    bytes: u32,
    is_write: bool,
    /// When nobody waits for it any more.
    until: Instant,
    /// Nobody does: its queue was told that it failed.
    is_given_up: bool,
}

impl Apart {
    /// Whether a message reads or writes a window, by address and size, which the client may not have finished.
    pub(super) fn is_under_way(&self, (address, size): (u64, u64)) -> bool {
        let overlaps = |it: &Sent| {
            it.address
                .checked_sub(address)
                .is_some_and(|offset| offset < size)
        };
        self.under_way().any(overlaps)
    }

    /// How many were sent.
    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    fn under_way(&self) -> impl Iterator<Item = &Sent> {
        self.sent.values().filter(|it| !it.is_given_up)
    }

    fn has_writes(&self) -> bool {
        self.under_way().any(|it| it.is_write)
    }

    fn has_writes_of(&self, queue: &Arc<Submissions>) -> bool {
        let mut all = self.under_way();
        all.any(|it| it.is_write && Arc::ptr_eq(&it.from, queue))
    }

    /// The client has left something unanswered for too long.
    fn is_mute(&self) -> bool {
        self.sent.values().any(|it| it.is_given_up)
    }
}

impl FunctionLink {
    /// Sends what queues have asked for, as far as the client takes it.
    pub(super) fn send_messages(&mut self) {
        while self.sending.is_none() && !self.server.has_outgoing() && !self.is_over {
            let Some(ask) = self.common.asks.pop() else {
                return;
            };
            if self.is_there(&ask) {
                self.send_message(ask);
                self.send();
            }
        }
    }

    /// Whether the queue is there still that asks.
    fn is_there(&self, ask: &Ask) -> bool {
        let of = match ask.from.id.is_admin() {
            true => self.is_live.then(|| self.admin.submissions()),
            false => self.submissions.get(&ask.from.id),
        };
        of.is_some_and(|it| Arc::ptr_eq(it, &ask.from))
    }

    fn send_message(&mut self, ask: Ask) {
        let (bytes, way) = (ask.load.bytes(), ask.load.way());
        // The window may have gone since. The controller's own registers are no memory (CVE-2021-3929).
        let mut runs = self.view.windows.runs(ask.address, bytes.into(), way);
        let is_reachable =
            runs.all(|run| run.is_ok()) && !self.config.bar0_has(ask.address, bytes.into());
        drop(runs);
        let asked = match &ask.load {
            _ if !is_reachable || self.apart.is_mute() => Err(Errno::EFAULT),
            Load::Read(bytes) => self.server.dma_read(ask.address, *bytes),
            Load::Write(data) => self.server.dma_write(ask.address, data),
        };
        let sent = Sent {
            is_write: matches!(ask.load, Load::Write(_)),
            from: ask.from,
            slot: ask.slot,
            number: ask.number,
            address: ask.address,
            bytes,
            until: Instant::now() + DMA_PATIENCE,
            is_given_up: false,
        };
        match asked {
            Ok(id) => {
                self.time_messages(sent.until);
                self.apart.messages += 1;
                self.apart.sent.insert(id, sent);
            }
            Err(errno) => {
                tracing::debug!(%errno, address = format!("{:#x}", sent.address), "guest memory cannot be asked for");
                sent.hand_back(None);
            }
        }
    }

    /// The client has answered a message.
    pub(super) fn client_answered(&mut self, id: DmaId, result: Result<Vec<u8>, Errno>) {
        let Some(sent) = self.apart.sent.remove(&id) else {
            return;
        };
        if sent.is_given_up {
            return;
        }
        if let Err(errno) = &result {
            tracing::debug!(%errno, address = format!("{:#x}", sent.address), "the client does not let guest memory be reached");
        }
        sent.hand_back(result.ok());
    }

    fn time_messages(&mut self, until: Instant) {
        if !self.apart.is_timed {
            self.apart.is_timed = self.owner.timer(until, TAG_APART).is_ok();
            self.is_over |= !self.apart.is_timed;
        }
    }

    /// Whoever has waited for the client too long hears that it failed.
    pub(super) fn give_up_messages(&mut self) {
        self.apart.is_timed = false;
        let now = Instant::now();
        let waiting = self.apart.sent.values_mut().filter(|it| !it.is_given_up);
        for sent in waiting.filter(|it| it.until <= now) {
            tracing::warn!(
                host = self.names.host.as_str(),
                subsystem = self.names.subsystem.as_str(),
                address = format!("{:#x}", sent.address),
                "the client does not answer for guest memory within {DMA_PATIENCE:?}: commands with data there fail until it does"
            );
            sent.is_given_up = true;
            sent.hand_back(None);
        }
        if let Some(next) = self.apart.under_way().map(|it| it.until).min() {
            self.time_messages(next);
        }
    }

    /// What queues that are gone have asked for is not sent.
    pub(super) fn forget_messages(&mut self) {
        self.common.asks.retain(|ask| self.is_there(ask));
    }

    /// CSTS.RDY says that nothing changes the guest's memory any more: not before that is so.
    pub(super) fn show_or_withhold(&mut self, registers: &Registers) {
        let goes = self.bar.shown().csts.ready() && !registers.csts.ready();
        if goes && self.apart.has_writes() {
            self.withheld = Some(*registers);
            let csts = Csts(registers.csts.0 | Csts::RDY);
            self.bar.show(&Registers { csts, ..*registers });
        } else {
            self.withheld = None;
            self.bar.show(registers);
        }
    }

    /// The same is true of the answer to a Delete I/O Submission Queue.
    pub(super) fn withholds(&mut self, slot: Slot, completion: Completion) -> bool {
        let sqe = self.admin.command(slot);
        if sqe.opcode != AdminOpcode::DELETE_IO_SQ.0 || !completion.status.is_success() {
            return false;
        }
        let queue = sqe.cdw10.get() & 0xFFFF;
        let is_of = |it: &&Sent| it.is_write && u32::from(it.from.id.0) == queue;
        let of = self.apart.under_way().find(is_of).map(|it| it.from.clone());
        let waits = of.is_some();
        self.apart
            .deletions
            .extend(of.map(|of| (slot, completion, of)));
        waits
    }

    /// Says what was withheld, where its last message has been answered.
    pub(super) fn finish_withheld(&mut self) {
        if !self.apart.has_writes()
            && let Some(registers) = self.withheld.take()
        {
            self.bar.show(&registers);
        }
        let mut deletions = std::mem::take(&mut self.apart.deletions);
        deletions.retain(|(slot, completion, queue)| {
            let waits = self.apart.has_writes_of(queue);
            if !waits {
                self.admin.respond(*slot, *completion, 0);
            }
            waits
        });
        self.apart.deletions = deletions;
    }
}

impl Sent {
    /// Tells the queue.
    fn hand_back(&self, data: Option<Vec<u8>>) {
        self.from.answers.push(Answer {
            slot: self.slot,
            number: self.number,
            data: data.map(|data| (data, self.bytes)),
        });
        self.from.bell.ring();
    }
}
