//! The lives of subsystems, kept by a thread of their own: what their SMART logs count goes on over restarts.
//!
//! Contract: a life is saved as running when the daemon is ready, before a host is told of it, every [`LIFE_INTERVAL`] while something is counted, and as
//! ended when the daemon has drained. So a start that finds one running knows that the end before was not announced. What a daemon that is killed has
//! counted since the last saving, and no host was told of, is lost; nothing runs backwards. A folder that fails is a problem of health and fails nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use admin_proto::v1::HealthCode;
use frontend_nvme::{Life, LifeKeeper, LifeSaved};
use nvme::controller::Lifetime;
use nvme::nqn::Nqn;

use crate::health::Health;
#[cfg(doc)]
use crate::limits::LIFE_INTERVAL;
use crate::limits::{LIFE_IDLE_INTERVAL, LIFE_JOBS_MAX, LIFE_PATIENCE};
use crate::state::{LifeFiles, LifeRecord, StateError};

/// What health calls them.
const SUBJECT: &str = "SMART counters";
/// What is said where the thread does not come back from the folder.
const SILENT: &str = "the state folder does not answer: what subsystems count is not kept";

/// Reaches the thread.
#[derive(Debug)]
pub struct Lives {
    jobs: SyncSender<Job>,
    health: Health,
    /// The last round has not been carried out.
    round_is_due: Arc<AtomicBool>,
    /// The thread was waited for in vain: no further subsystem waits to be opened.
    is_silent: AtomicBool,
}

#[derive(Debug)]
enum Job {
    /// A subsystem is about to be served: its life until now.
    Open {
        nqn: Nqn,
        is_new: bool,
        opened: SyncSender<Option<Lifetime>>,
    },
    /// All that were opened are served.
    Begin(SyncSender<()>),
    Save(Saving),
    Round(Vec<(Nqn, Lifetime)>, Arc<AtomicBool>),
    /// An orderly end.
    End(Vec<(Nqn, Lifetime)>, SyncSender<()>),
    Forget(Nqn),
}

struct Saving {
    nqn: Nqn,
    lifetime: Lifetime,
    saved: LifeSaved,
}

impl std::fmt::Debug for Saving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Saving").field("nqn", &self.nqn).finish()
    }
}

impl Lives {
    /// Starts the thread that keeps the lives in a folder.
    ///
    /// # Errors
    /// The folder, or a thread, cannot be had.
    pub fn start(folder: &Path, health: Health) -> io::Result<Self> {
        Self::over(LifeFiles::open(folder)?, health)
    }

    fn over(files: LifeFiles, health: Health) -> io::Result<Self> {
        let (jobs, queue) = sync_channel(LIFE_JOBS_MAX);
        let book = Book {
            files,
            health: health.clone(),
            known: BTreeMap::new(),
            failing: BTreeSet::new(),
        };
        std::thread::Builder::new()
            .name("lives".to_owned())
            .spawn(move || book.keep(&queue))?;
        Ok(Self {
            jobs,
            health,
            round_is_due: Arc::default(),
            is_silent: AtomicBool::new(false),
        })
    }

    /// What a subsystem brings that is about to be served: what it left the last time, or nothing where it `is_new`. What is not known is not kept, either.
    pub fn open(&self, nqn: &Nqn, is_new: bool) -> Life {
        if self.is_silent.load(Ordering::Relaxed) {
            return Life::default();
        }
        let opened = self.ask(|opened| Job::Open {
            nqn: nqn.clone(),
            is_new,
            opened,
        });
        let Some(lifetime) = opened.flatten() else {
            return Life::default();
        };
        let keeper = Keeper {
            jobs: self.jobs.clone(),
            nqn: nqn.clone(),
        };
        Life {
            lifetime,
            keeper: Some(Arc::new(keeper)),
        }
    }

    /// Those that were opened are served from now on.
    pub fn begin(&self) {
        self.ask(Job::Begin);
    }

    /// Saves what has changed.
    pub fn save(&self, lifetimes: Vec<(Nqn, Lifetime)>) {
        if self.round_is_due.swap(true, Ordering::AcqRel) {
            return self.problem(SILENT);
        }
        let round = Job::Round(lifetimes, self.round_is_due.clone());
        if self.jobs.try_send(round).is_err() {
            self.problem(SILENT);
        }
    }

    /// Saves them for the last time.
    pub fn end(&self, lifetimes: Vec<(Nqn, Lifetime)>) {
        self.ask(|done| Job::End(lifetimes, done));
    }

    /// A subsystem was deleted, and its life with it.
    pub fn forget(&self, nqn: &Nqn) {
        if self.jobs.try_send(Job::Forget(nqn.clone())).is_err() {
            self.problem(SILENT);
        }
    }

    /// Waits for the thread.
    fn ask<T>(&self, job: impl FnOnce(SyncSender<T>) -> Job) -> Option<T> {
        // A rendezvous: an answer that comes too late is known to be taken by nobody.
        let (answer, answered) = sync_channel(0);
        let sent = self.jobs.try_send(job(answer));
        let answer = sent
            .ok()
            .and_then(|()| answered.recv_timeout(LIFE_PATIENCE).ok());
        if answer.is_none() {
            self.is_silent.store(true, Ordering::Relaxed);
            self.problem(SILENT);
        }
        answer
    }

    fn problem(&self, what: &str) {
        tracing::error!("{what}");
        self.health
            .problem(SUBJECT, HealthCode::StateFolder, what.to_owned());
    }
}

/// Saves one life for the front desk.
#[derive(Debug)]
struct Keeper {
    jobs: SyncSender<Job>,
    nqn: Nqn,
}

impl LifeKeeper for Keeper {
    fn save(&self, lifetime: Lifetime, saved: LifeSaved) {
        let saving = Saving {
            nqn: self.nqn.clone(),
            lifetime,
            saved,
        };
        if let Err(
            TrySendError::Full(Job::Save(saving)) | TrySendError::Disconnected(Job::Save(saving)),
        ) = self.jobs.try_send(Job::Save(saving))
        {
            (saving.saved)(false);
        }
    }
}

/// What the thread knows.
#[derive(Debug)]
struct Book {
    files: LifeFiles,
    health: Health,
    /// Of the subsystems that are served.
    known: BTreeMap<Nqn, Known>,
    /// Those whose last saving failed.
    failing: BTreeSet<Nqn>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    now: Lifetime,
    saved: Option<Lifetime>,
}

impl Known {
    /// Whether a round saves it: the powered time alone may wait.
    fn is_worth_saving(&self) -> bool {
        self.saved.is_none_or(|saved| {
            !saved.shows_the_same(&self.now)
                || self.now.powered.saturating_sub(saved.powered) >= LIFE_IDLE_INTERVAL
        })
    }
}

impl Book {
    /// Does what is asked, in its order, until nobody can ask for more.
    fn keep(mut self, queue: &Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            match job {
                Job::Open {
                    nqn,
                    is_new,
                    opened,
                } => {
                    let life = self.open(&nqn, is_new);
                    if opened.send(life).is_err() {
                        self.known.remove(&nqn);
                    }
                }
                Job::Begin(begun) => {
                    self.save_where(|known| known.saved.is_none());
                    let _heard = begun.send(());
                }
                Job::Save(saving) => {
                    self.learn(&saving.nqn, saving.lifetime);
                    (saving.saved)(self.save(&saving.nqn, true));
                }
                Job::Round(lifetimes, is_due) => {
                    self.learn_all(lifetimes);
                    self.save_where(Known::is_worth_saving);
                    is_due.store(false, Ordering::Release);
                }
                Job::End(lifetimes, ended) => {
                    self.learn_all(lifetimes);
                    for nqn in self.known.keys().cloned().collect::<Vec<_>>() {
                        self.save(&nqn, false);
                    }
                    // Whatever else is asked for comes too late.
                    self.known.clear();
                    let _heard = ended.send(());
                }
                Job::Forget(nqn) => self.forget(&nqn),
            }
        }
    }

    /// The life of a subsystem as it goes on now.
    fn open(&mut self, nqn: &Nqn, is_new: bool) -> Option<Lifetime> {
        let found = if is_new {
            Ok(None)
        } else {
            self.files.load(nqn)
        };
        let life = match found {
            Ok(found) => found.map_or_else(Lifetime::default, |it| next_start(&it)),
            Err(error) => {
                self.failed(nqn, &error);
                return None;
            }
        };
        let known = Known {
            now: life,
            saved: None,
        };
        self.known.insert(nqn.clone(), known);
        Some(life)
    }

    fn learn_all(&mut self, lifetimes: Vec<(Nqn, Lifetime)>) {
        for (nqn, lifetime) in lifetimes {
            self.learn(&nqn, lifetime);
        }
    }

    /// A round was asked for earlier than it comes: what a host was told meanwhile is newer.
    fn learn(&mut self, nqn: &Nqn, lifetime: Lifetime) {
        if let Some(known) = self.known.get_mut(nqn)
            && lifetime.powered >= known.now.powered
        {
            known.now = lifetime;
        }
    }

    fn save_where(&mut self, is_meant: impl Fn(&Known) -> bool) {
        let all = self.known.iter().filter(|(_, known)| is_meant(known));
        for nqn in all.map(|(nqn, _)| nqn.clone()).collect::<Vec<_>>() {
            self.save(&nqn, true);
        }
    }

    /// Saves a life as it is now; false where it is not kept.
    fn save(&mut self, nqn: &Nqn, is_running: bool) -> bool {
        let Some(known) = self.known.get_mut(nqn) else {
            return false;
        };
        let record = LifeRecord {
            lifetime: known.now,
            is_running,
        };
        match self.files.save(nqn, &record) {
            Ok(()) => {
                known.saved = Some(known.now);
                self.well(nqn);
                true
            }
            Err(error) => {
                self.failed(nqn, &error);
                false
            }
        }
    }

    fn forget(&mut self, nqn: &Nqn) {
        self.known.remove(nqn);
        self.well(nqn);
        if let Err(error) = self.files.remove(nqn) {
            tracing::error!(%nqn, "{error}; a subsystem of that name that the file comes to name goes on with them");
        }
    }

    fn failed(&mut self, nqn: &Nqn, error: &StateError) {
        if self.failing.insert(nqn.clone()) {
            tracing::error!(%nqn, "{error}");
        }
        self.health
            .problem(SUBJECT, HealthCode::StateFolder, error.to_string());
    }

    fn well(&mut self, nqn: &Nqn) {
        self.failing.remove(nqn);
        if self.failing.is_empty() {
            self.health.well(SUBJECT);
        }
    }
}

/// A life at the next start. One that is found running was ended by nobody.
fn next_start(found: &LifeRecord) -> Lifetime {
    let before = &found.lifetime;
    Lifetime {
        power_cycles: before.power_cycles.saturating_add(1),
        unsafe_shutdowns: before
            .unsafe_shutdowns
            .saturating_add(found.is_running.into()),
        ..*before
    }
}

#[cfg(test)]
mod tests;
