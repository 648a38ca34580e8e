//! Counters that outlive the target. What a host is told of them is saved before it is told: whatever ends the target, no host finds them running
//! backwards afterwards. A keeper that fails or is slow holds an answer up for a moment and no longer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use nvme::Time;
use nvme::controller::{ControllerId, Lifetime};
use nvme::nqn::Nqn;
use nvme::queue::{Completion, Slot};
use nvme_spec::log::{GetLogPage, LogPageId};
use nvme_spec::{AdminOpcode, Sqe, Status};

use super::Desk;
use crate::life::{Life, LifeKeeper, LifeSaved};
use crate::limits::{ANSWERS_HELD_MAX, TELL_PATIENCE};
use crate::message::Message;
use crate::table::Key;

/// The lives that are kept, and the answers that wait for that.
#[derive(Debug, Default)]
pub(super) struct Lives {
    kept: BTreeMap<Nqn, Kept>,
    /// By number, which is the order in which they were asked for.
    held: BTreeMap<u64, Held>,
    last: u64,
    /// Saves that have ended, and that the desk has not taken.
    ended: Arc<Mutex<Vec<(u64, bool)>>>,
}

#[derive(Debug)]
struct Kept {
    keeper: Arc<dyn LifeKeeper>,
    /// What is known to be saved.
    saved: Option<Lifetime>,
}

/// An answer that tells of a life.
#[derive(Debug)]
struct Held {
    key: Key,
    slot: Slot,
    completion: Completion,
    page: Vec<u8>,
    nqn: Nqn,
    keeper: Arc<dyn LifeKeeper>,
    told: Lifetime,
    until: Time,
}

/// Whether the answer to a command tells of the subsystem's life: SMART / Health Information, and Error Information with its Error Count.
pub(super) fn is_told_by(sqe: &Sqe) -> bool {
    AdminOpcode(sqe.opcode) == AdminOpcode::GET_LOG_PAGE
        && matches!(
            GetLogPage::of(sqe).id,
            LogPageId::SMART | LogPageId::ERROR_INFORMATION
        )
}

impl Desk {
    /// A subsystem is served from now on.
    pub(super) fn begin_life(&mut self, nqn: &Nqn, life: Life) {
        let now = self.clock.now();
        self.registry.set_lifetime(nqn, life.lifetime, now);
        if let Some(keeper) = life.keeper {
            let kept = Kept {
                keeper,
                saved: None,
            };
            self.lives.kept.insert(nqn.clone(), kept);
        }
    }

    /// It is not any more.
    pub(super) fn end_life(&mut self, nqn: &Nqn) {
        self.lives.kept.remove(nqn);
    }

    /// The lives of all subsystems until now.
    pub(super) fn lifetimes(&mut self) -> Vec<(Nqn, Lifetime)> {
        self.fold_all_counters();
        let now = self.clock.now();
        let all = self.registry.target().subsystems().iter();
        all.filter_map(|it| Some((it.nqn.clone(), self.registry.lifetime(&it.nqn, now)?)))
            .collect()
    }

    /// Sends a page that tells of a life as it was at `now`, once that is saved.
    pub(super) fn reply_when_saved(
        &mut self,
        id: ControllerId,
        key: Key,
        slot: Slot,
        completion: Completion,
        page: Vec<u8>,
        now: Time,
    ) {
        let is_told = completion.status == Status::SUCCESS;
        let unsaved = is_told.then(|| self.unsaved(id, now)).flatten();
        let Some((nqn, keeper, told)) = unsaved else {
            return self.send_page(key, slot, completion, &page);
        };
        self.lives.last += 1;
        let number = self.lives.last;
        let held = Held {
            key,
            slot,
            completion,
            page,
            nqn,
            keeper: keeper.clone(),
            told,
            until: now + TELL_PATIENCE,
        };
        self.lives.held.insert(number, held);
        keeper.save(told, self.on_life_saved(number));
    }

    /// The life of a controller's subsystem, where it is kept and more than what is saved can be seen of it.
    fn unsaved(&self, id: ControllerId, now: Time) -> Option<(Nqn, Arc<dyn LifeKeeper>, Lifetime)> {
        if self.lives.held.len() >= ANSWERS_HELD_MAX {
            return None;
        }
        let nqn = &self.registry.controller(id)?.subsystem()?.nqn;
        let kept = self.lives.kept.get(nqn)?;
        let life = self.registry.lifetime(nqn, now)?;
        let is_saved = kept.saved.is_some_and(|saved| saved.shows_the_same(&life));
        (!is_saved).then(|| (nqn.clone(), kept.keeper.clone(), life))
    }

    /// What a keeper is to call, perhaps on the desk's own thread.
    fn on_life_saved(&self, number: u64) -> LifeSaved {
        let (ended, desk) = (self.lives.ended.clone(), self.control.clone());
        Box::new(move |saved| {
            let mut all = ended.lock().unwrap_or_else(PoisonError::into_inner);
            all.push((number, saved));
            drop(all);
            // A full channel wakes the desk as well.
            if let Some(desk) = desk {
                let _full = desk.sender.send(Message::Kept);
            }
        })
    }

    /// Sends the answers whose lives are saved, or cannot be, or not in time.
    pub(super) fn send_held(&mut self, now: Time) {
        let ended = self
            .lives
            .ended
            .lock()
            .map(|mut all| std::mem::take(&mut *all));
        for (number, saved) in ended.unwrap_or_default() {
            let Some(held) = self.lives.held.remove(&number) else {
                continue;
            };
            // Another subsystem may have the name by now.
            if saved
                && let Some(kept) = self.lives.kept.get_mut(&held.nqn)
                && Arc::ptr_eq(&kept.keeper, &held.keeper)
            {
                kept.saved = Some(held.told);
            }
            self.send_page(held.key, held.slot, held.completion, &held.page);
        }
        while let Some(first) = self.lives.held.first_entry()
            && first.get().until <= now
        {
            let held = first.remove();
            tracing::warn!(nqn = %held.nqn, "a host is told of counters that are not saved in time");
            self.send_page(held.key, held.slot, held.completion, &held.page);
        }
    }

    /// When an answer has waited long enough.
    pub(super) fn held_deadline(&self) -> Option<Time> {
        Some(self.lives.held.values().next()?.until)
    }

    fn send_page(&mut self, key: Key, slot: Slot, completion: Completion, page: &[u8]) {
        let data_bytes = u32::try_from(page.len()).unwrap_or(0);
        self.reply(key, slot, completion, page, data_bytes);
        self.touched.push(key);
    }
}
