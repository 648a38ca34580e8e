//! What the reactors share of a remote store, and where their handles come from.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::{Ring, Sender, channel};
use store::{Backend, Limits, Store, StoreError};

use crate::handle::{Handle, Inboxes};
use crate::lending::LENDINGS_MAX;
use crate::message::{Abort, HandleId, MESSAGES_MAX, ToCustodian};
use crate::report::{PathReport, PathState};
use crate::shared::Shared;

static NEXT_HANDLE: AtomicU64 = AtomicU64::new(0);

pub(crate) struct RemoteBackend {
    shared: Arc<Shared>,
    life: Arc<Life>,
}

impl RemoteBackend {
    pub fn new(shared: Arc<Shared>, custodian: Sender<ToCustodian>, aborts: Sender<Abort>) -> Self {
        let life = Arc::new(Life { custodian, aborts });
        Self { shared, life }
    }
}

/// What the store and its handles hold together: when the last of them is gone, the custodian is told.
#[derive(Debug)]
pub(crate) struct Life {
    pub custodian: Sender<ToCustodian>,
    pub aborts: Sender<Abort>,
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = self.custodian.send(ToCustodian::End);
    }
}

impl fmt::Debug for RemoteBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteBackend")
            .field("name", &self.shared.name)
            .finish_non_exhaustive()
    }
}

impl Backend for RemoteBackend {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn describe(&self) -> String {
        let reports = self.shared.reports();
        let up = |state: &PathState| matches!(state, PathState::Up(_));
        let up = reports.iter().filter(|report| up(&report.state)).count();
        format!(
            "{up} of {} paths up, namespace {} of {} blocks of {} bytes",
            reports.len(),
            self.shared.namespace.nsid.0,
            self.shared.namespace.blocks,
            self.shared.namespace.lba_bytes
        )
    }

    fn limits(&self) -> Limits {
        self.shared.limits.clone()
    }

    fn problems(&self) -> Vec<String> {
        let problem = |report: PathReport| {
            let (address, losses) = (report.address, report.losses);
            let why =
                |failure: Option<String>| failure.unwrap_or_else(|| "not connected".to_owned());
            match report.state {
                PathState::Up(ana) if ana.is_usable() && report.reactors_without > 0 => {
                    let (without, why) = (report.reactors_without, why(report.failure));
                    Some(format!(
                        "path {address} is up, and {without} reactors have no queue there: {why}"
                    ))
                }
                PathState::Up(ana) if ana.is_usable() => None,
                PathState::Up(ana) => Some(format!(
                    "path {address} is up, and the namespace is {ana} there"
                )),
                PathState::Down => {
                    let why = why(report.failure);
                    Some(format!(
                        "path {address} is down (lost {losses} times): {why}"
                    ))
                }
            }
        };
        let paths = self.shared.reports().into_iter().filter_map(problem);
        let borrowers = self.shared.borrowers.load(Ordering::Relaxed);
        let borrowed = (borrowers > 0).then(|| {
            format!("{borrowers} reactors have no queue on any path that can be used and go through the queues of others, with copies")
        });
        paths.chain(borrowed).collect()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        let (sender, custodian) = channel(ring, MESSAGES_MAX);
        let (lending, handles) = channel(ring, LENDINGS_MAX);
        let inboxes = Inboxes {
            custodian,
            handles,
            own: lending.clone(),
        };
        let id = HandleId(NEXT_HANDLE.fetch_add(1, Ordering::Relaxed));
        let handle = Handle::new(id, self.shared.clone(), ring, self.life.clone(), inboxes)?;
        let join = ToCustodian::Join {
            handle: id,
            sender,
            lending,
        };
        if self.life.custodian.send(join).is_err() {
            return Err(StoreError::Resources {
                store: self.shared.name.clone(),
                why: "its custodian takes no messages".to_owned(),
            });
        }
        Ok(Box::new(handle))
    }
}
