//! Sources are opened on threads of their own: a disk or a server that does not answer holds up nobody but who asked for it.
//!
//! The manager starts a thread and goes on with other requests; what is to follow runs when the thread has said what came of it, or when its time is over.
//! A thread that is silent cannot be ended: it stays until the system answers, health shows it, and there are no more than [`OPENINGS_MAX`] at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use admin_proto::v1::{HealthCode, Reason};
use namespace::Namespace;

use super::{ManageError, Manager};
use crate::config::NamespaceConfig;
use crate::identity::{self, Node};
use crate::limits::OPENINGS_MAX;
use crate::line_of;
use crate::open;

/// What stands behind a namespace, opened.
#[derive(Debug)]
pub struct Opened {
    /// As it is.
    pub namespace: Namespace,
    /// What its path leads to, to be told from other names of the same.
    pub node: Option<Node>,
}

/// What is done with it.
pub(super) type Then = Box<dyn FnOnce(&mut Manager, Result<Opened, ManageError>) + Send>;

/// A UUID, where there is a state folder to keep it.
type Given = Result<Option<[u8; 16]>, String>;

/// What a thread says.
enum Said {
    /// A device of this path and size has no name of its own.
    Asks(PathBuf, u64, SyncSender<Given>),
    /// What came of it.
    Done(Box<Result<Opened, String>>),
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
    by: Instant,
    /// The UUID that it has, where that is known.
    uuid: Option<[u8; 16]>,
    then: Then,
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

impl Manager {
    /// Opens what stands behind a namespace; `uuid` is the one that it has already, where it is known.
    pub(super) fn open_then(
        &mut self,
        config: &NamespaceConfig,
        uuid: Option<[u8; 16]>,
        then: Then,
    ) {
        match self.start_opening(config) {
            Ok(id) => {
                let pending = Pending {
                    source: config.source.to_string(),
                    by: Instant::now() + self.openings.time_max,
                    uuid,
                    then,
                };
                self.openings.pending.insert(id, pending);
            }
            Err(error) => then(self, Err(error)),
        }
    }

    fn start_opening(&mut self, config: &NamespaceConfig) -> Result<u64, ManageError> {
        let openings = &mut self.openings;
        if openings.pending.len() + openings.silent.len() >= OPENINGS_MAX {
            let text = format!(
                "{OPENINGS_MAX} sources are being opened and have not answered, and no more are possible at a time; see to those that `snapctl target health` names"
            );
            return Err(ManageError::new(Reason::Limit, text));
        }
        openings.last += 1;
        let (id, say) = (openings.last, openings.say.clone());
        let (config, policy) = (config.clone(), self.policy.clone());
        let thread = std::thread::Builder::new().name("open".to_owned());
        let started = thread.spawn(move || {
            let mut given = |path: &Path, bytes| ask(&say, id, path, bytes);
            let opened = open::namespace(&config, &policy, &mut given).map(|namespace| Opened {
                namespace,
                node: identity::node_of(&config.source),
            });
            let result = opened.map_err(|error| line_of(&error));
            // The manager may have ended.
            let _heard = say.send((id, Said::Done(Box::new(result))));
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
        while let Some(by) = self.openings.pending.values().map(|it| it.by).min() {
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
            Said::Done(result) => {
                if let Some(source) = self.openings.silent.remove(&id) {
                    tracing::info!(source, "a source that was silent has answered");
                    self.health.well(&problem_of(&source));
                }
                if let Some(pending) = self.openings.pending.remove(&id) {
                    let opened = result.map_err(unusable);
                    (pending.then)(self, opened);
                }
            }
        }
    }

    fn give_up_the_silent(&mut self) {
        let now = Instant::now();
        let all = self.openings.pending.iter();
        let over: Vec<u64> = all
            .filter(|(_, it)| it.by <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            let Some(Pending { source, then, .. }) = self.openings.pending.remove(&id) else {
                continue;
            };
            let text = format!(
                "{source} has not answered for {:?}; see to the disk, or the server of its file system",
                self.openings.time_max
            );
            tracing::error!("{text}");
            let problem = problem_of(&source);
            self.health
                .problem(&problem, HealthCode::SourceSilent, text.clone());
            self.openings.silent.insert(id, source);
            then(self, Err(ManageError::new(Reason::SourceSilent, text)));
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

/// A thread's question for a UUID.
fn ask(
    say: &Sender<(u64, Said)>,
    id: u64,
    path: &Path,
    bytes: u64,
) -> anyhow::Result<Option<[u8; 16]>> {
    let (answer, answered) = sync_channel(1);
    say.send((id, Said::Asks(path.to_owned(), bytes, answer)))
        .map_err(|_| anyhow::anyhow!("the daemon is ending"))?;
    let given = answered.recv().map_err(anyhow::Error::from)?;
    given.map_err(anyhow::Error::msg)
}

fn unusable(why: String) -> ManageError {
    ManageError::new(Reason::SourceUnusable, why)
}
