//! Replicas that are down are tried with reads of nobody's.

use std::time::Instant;

use reactor::buf::IoBuf;
use store::{Op, Rejected, StoreError, Terms};

use super::ReplicaHandle;
use crate::replicas::member::{PROBE, PROBE_BYTES, Probe, name_of};
use crate::replicas::read::not_answered;

impl ReplicaHandle {
    /// Tries those that are down and were left alone for long enough.
    pub(super) fn probe(&mut self, now: Instant) {
        for (member, there) in self.members.iter_mut().enumerate() {
            if there.probe.is_some() || self.closed || !self.standing.is_due(member, now) {
                continue;
            }
            let len = self.limits.bytes.min(PROBE_BYTES);
            let Some(buf) = usize::try_from(len)
                .ok()
                .and_then(|len| IoBuf::heap(len).ok())
            else {
                return;
            };
            let asked = self.asked;
            self.asked += 1;
            let terms = Terms::default();
            let (op, name) = (Op::Read { offset: 0 }, name_of(PROBE, asked));
            match there.store.submit(op, Some(buf), name, terms) {
                Ok(()) => {
                    there.probe = Some(Probe {
                        asked,
                        since: now,
                        is_recalled: false,
                    });
                }
                // What it has will tell.
                Err(Rejected {
                    why: StoreError::Busy,
                    ..
                }) => {}
                Err(Rejected { why, .. }) => self.standing.failed(member, why.to_string(), now),
            }
        }
    }

    pub(super) fn probed(&mut self, member: usize, result: Result<u32, StoreError>, now: Instant) {
        let there = &mut self.members[member];
        let is_recalled = there.probe.take().is_some_and(|probe| probe.is_recalled);
        match result {
            Ok(_) => {
                there.answered_at = now;
                self.standing.answered(member);
            }
            // That was told when it was recalled.
            Err(_) if is_recalled || self.closed => {}
            Err(why) => self.standing.failed(member, why.to_string(), now),
        }
    }

    /// A replica that does not answer a probe is left alone for longer.
    pub(super) fn recall_probes(&mut self, now: Instant) {
        for (member, there) in self.members.iter_mut().enumerate() {
            let Some(probe) = &mut there.probe else {
                continue;
            };
            let waited = now.saturating_duration_since(probe.since);
            if !probe.is_recalled && waited >= self.patience {
                probe.is_recalled = true;
                there.store.cancel(name_of(PROBE, probe.asked));
                let why = not_answered(&self.name, member, 0, self.patience);
                self.standing.failed(member, why.to_string(), now);
            }
        }
    }
}
