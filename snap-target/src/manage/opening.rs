//! Sources are opened, grown and cut on threads of their own: a disk or a server that does not answer holds up nobody but who asked for it.
//!
//! The manager starts a thread and goes on with other requests; what is to follow runs when the thread has said what came of it, or when its time is over.
//! A thread that is silent cannot be ended: it stays until the system answers, health shows it, and there are no more than [`OPENINGS_MAX`] at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use admin_proto::v1::{HealthCode, Reason};
use namespace::Namespace;
use volume::SourcePolicy;

use super::cut::{self, SetSize};
use super::{ManageError, Manager};
use crate::config::NamespaceConfig;
use crate::identity::Nodes;
use crate::limits::OPENINGS_MAX;
use crate::line_of;
use crate::open;

/// What stands behind a namespace, opened.
#[derive(Debug)]
pub struct Opened {
    /// As it is.
    pub namespace: Namespace,
    /// What its paths lead to, to be told from other names of the same.
    pub nodes: Nodes,
}

/// What is done with it.
pub(super) type Then = Box<dyn FnOnce(&mut Manager, Result<Opened, ManageError>) + Send>;

/// What follows when a thread is done, or was given up: why.
type Follow = Box<dyn FnOnce(&mut Manager, Option<ManageError>) + Send>;

/// A UUID, where there is a state folder to keep it.
type Given = Result<Option<[u8; 16]>, String>;

/// What a thread says.
enum Said {
    /// A device of this path and size has no name of its own.
    Asks(PathBuf, u64, SyncSender<Given>),
    /// It is done.
    Done,
}

/// A thread's way to the manager.
pub(super) struct Ask {
    id: u64,
    say: Sender<(u64, Said)>,
}

/// Sources that are being opened.
pub(super) struct Openings {
    /// How long each may take.
    time_max: Duration,
    /// Threads say here what they have to.
    say: Sender<(u64, Said)>,
    said: Receiver<(u64, Said)>,
    pending: BTreeMap<u64, Pending>,
    /// Threads whose time is over and that are silent, by what they open.
    silent: BTreeMap<u64, String>,
    last: u64,
}

struct Pending {
    source: String,
    since: Instant,
    time_max: Duration,
    /// The UUID that it has, where that is known.
    uuid: Option<[u8; 16]>,
    then: Follow,
}

impl Pending {
    fn by(&self) -> Instant {
        self.since + self.time_max
    }
}

impl Openings {
    pub(super) fn new(time_max: Duration) -> Self {
        let (say, said) = channel();
        Self {
            time_max,
            say,
            said,
            pending: BTreeMap::new(),
            silent: BTreeMap::new(),
            last: 0,
        }
    }

    /// Whether there is something to wait for.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.silent.is_empty()
    }

    /// Whether a thread hangs in this source.
    pub(super) fn is_silent(&self, config: &NamespaceConfig) -> bool {
        let source = config.source.to_string();
        self.silent.values().any(|it| *it == source)
    }
}

/// What health calls a source that does not answer.
fn problem_of(source: &str) -> String {
    format!("opening {source}")
}

/// What stands behind a namespace, opened as its configuration says. On a thread that may wait.
fn open(
    config: &NamespaceConfig,
    policy: &SourcePolicy,
    set_size: SetSize,
    ask: &Ask,
) -> Result<Opened, ManageError> {
    cut::finish(config, set_size)?;
    let mut given = |path: &Path, bytes| ask.uuid_of(path, bytes);
    let opened = open::namespace(config, policy, &mut given);
    let namespace = opened.map_err(|error| unusable(line_of(&error)))?;
    Ok(Opened {
        namespace,
        nodes: Nodes::of(&config.source),
    })
}

impl Manager {
    /// Opens what stands behind a namespace; `uuid` is the one that it has already, where it is known.
    pub(super) fn open_then(
        &mut self,
        config: &NamespaceConfig,
        uuid: Option<[u8; 16]>,
        then: Then,
    ) {
        let (source, time_max) = (config.source.to_string(), self.openings.time_max);
        let (config, policy, set_size) = (config.clone(), self.policy.clone(), self.set_size);
        let work = move |ask: &Ask| open(&config, &policy, set_size, ask);
        self.errand_then(source, time_max, uuid, work, then);
    }

    /// Has something that may take its time done by a thread; `then` hears what came of it, or that nothing did in this time.
    pub(super) fn errand_then<T: Send + 'static>(
        &mut self,
        source: String,
        time_max: Duration,
        uuid: Option<[u8; 16]>,
        work: impl FnOnce(&Ask) -> Result<T, ManageError> + Send + 'static,
        then: impl FnOnce(&mut Self, Result<T, ManageError>) + Send + 'static,
    ) {
        let result = Arc::new(Mutex::new(None));
        let put = result.clone();
        let work = move |ask: &Ask| {
            let done = work(ask);
            *put.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        };
        let then = move |manager: &mut Self, given_up: Option<ManageError>| {
            let done = result.lock().unwrap_or_else(PoisonError::into_inner).take();
            let nothing = || ManageError::new(Reason::Fault, "nothing came of it");
            let outcome = match given_up {
                Some(error) => Err(error),
                None => done.unwrap_or_else(|| Err(nothing())),
            };
            then(manager, outcome);
        };
        match self.start_thread(work) {
            Ok(id) => {
                let pending = Pending {
                    source,
                    since: Instant::now(),
                    time_max,
                    uuid,
                    then: Box::new(then),
                };
                self.openings.pending.insert(id, pending);
            }
            Err(error) => then(self, Some(error)),
        }
    }

    fn start_thread(
        &mut self,
        work: impl FnOnce(&Ask) + Send + 'static,
    ) -> Result<u64, ManageError> {
        let openings = &mut self.openings;
        if openings.pending.len() + openings.silent.len() >= OPENINGS_MAX {
            let text = format!(
                "{OPENINGS_MAX} sources are being opened and have not answered, and no more are possible at a time; see to those that `snapctl target health` names"
            );
            return Err(ManageError::new(Reason::Limit, text));
        }
        openings.last += 1;
        let (id, say) = (openings.last, openings.say.clone());
        let thread = std::thread::Builder::new().name("open".to_owned());
        let started = thread.spawn(move || {
            let ask = Ask { id, say };
            work(&ask);
            // The manager may have ended.
            let _heard = ask.say.send((id, Said::Done));
        });
        started.map_err(|error| {
            let text = format!("no thread to open it with: {error}; try again");
            ManageError::new(Reason::Fault, text)
        })?;
        Ok(id)
    }

    /// Hears what the threads have said, and gives up those whose time is over.
    pub(super) fn hear_openings(&mut self) {
        while let Ok((id, said)) = self.openings.said.try_recv() {
            self.hear(id, said);
        }
        self.give_up_the_silent();
    }

    /// The same until every opening has ended or was given up. For a start, which has nothing else to do.
    pub fn wait_for_openings(&mut self) {
        while let Some(by) = self.openings.pending.values().map(Pending::by).min() {
            let left = by.saturating_duration_since(Instant::now());
            if let Ok((id, said)) = self.openings.said.recv_timeout(left) {
                self.hear(id, said);
            }
            self.give_up_the_silent();
        }
    }

    fn hear(&mut self, id: u64, said: Said) {
        match said {
            Said::Asks(path, bytes, answer) => {
                let given = match self.openings.pending.get(&id).map(|it| it.uuid) {
                    Some(uuid) => self.given(&path, bytes, uuid),
                    None => Err("nobody waits for it any more".to_owned()),
                };
                let _heard = answer.send(given);
            }
            Said::Done => {
                if let Some(source) = self.openings.silent.remove(&id) {
                    tracing::info!(source, "a source that was silent has answered");
                    self.health.well(&problem_of(&source));
                }
                if let Some(pending) = self.openings.pending.remove(&id) {
                    (pending.then)(self, None);
                }
            }
        }
    }

    fn give_up_the_silent(&mut self) {
        let now = Instant::now();
        let all = self.openings.pending.iter();
        let over: Vec<u64> = all
            .filter(|(_, it)| it.by() <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            let Some(pending) = self.openings.pending.remove(&id) else {
                continue;
            };
            let Pending {
                source,
                time_max,
                then,
                ..
            } = pending;
            let text = format!(
                "{source} has not answered for {time_max:?}; see to the disk, or the server of its file system"
            );
            tracing::error!("{text}");
            let problem = problem_of(&source);
            self.health
                .problem(&problem, HealthCode::SourceSilent, text.clone());
            self.openings.silent.insert(id, source);
            then(self, Some(ManageError::new(Reason::SourceSilent, text)));
        }
    }

    /// The UUID of a device that has no name of its own: the one that it has, or the one that is kept for it.
    fn given(&mut self, path: &Path, bytes: u64, uuid: Option<[u8; 16]>) -> Given {
        let Some(state) = &mut self.state else {
            return Ok(uuid);
        };
        let given = match uuid {
            Some(uuid) => state.keep_device(path, bytes, uuid).map(|()| uuid),
            None => state.device(path, bytes),
        };
        given.map(Some).map_err(|error| error.to_string())
    }
}

impl Ask {
    /// The UUID of a device that has no name of its own.
    pub(super) fn uuid_of(&self, path: &Path, bytes: u64) -> anyhow::Result<Option<[u8; 16]>> {
        let (answer, answered) = sync_channel(1);
        let asks = Said::Asks(path.to_owned(), bytes, answer);
        self.say
            .send((self.id, asks))
            .map_err(|_| anyhow::anyhow!("the daemon is ending"))?;
        let given = answered.recv().map_err(anyhow::Error::from)?;
        given.map_err(anyhow::Error::msg)
    }
}

pub(super) fn unusable(why: String) -> ManageError {
    ManageError::new(Reason::SourceUnusable, why)
}
