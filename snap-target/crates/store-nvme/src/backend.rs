//! What the reactors share of a remote store, and where their handles come from.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::{Ring, Sender, channel};
use store::{Backend, Limits, Problem, Store, StoreError};

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

    fn problems(&self) -> Vec<Problem> {
        let reports = self.shared.reports();
        let is_way =
            |report: &PathReport| matches!(report.state, PathState::Up(ana) if ana.is_usable());
        let patience = self.shared.options.deadline;
        let stranded = (!reports.iter().any(is_way)).then(|| Problem {
            text: format!(
                "no path can be used: reads and writes wait for one, {patience:?} at most"
            ),
            mend: MEND_DOWN,
        });
        let borrowers = self.shared.borrowers.load(Ordering::Relaxed);
        let borrowed = (borrowers > 0).then(|| Problem {
            text: format!("{borrowers} reactors have no queue on any path that can be used and go through the queues of others, with copies"),
            mend: MEND_QUEUES,
        });
        let paths = reports.into_iter().flat_map(|report| of_path(&report));
        stranded.into_iter().chain(paths).chain(borrowed).collect()
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

const MEND_DOWN: &str =
    "see to the network and the remote target; the path is connected again as soon as it can be";
const MEND_FOREIGN: &str = "let the path's address lead to the store's own namespace, or attach it anew without that address (`snapctl namespace detach`, `attach`)";
const MEND_SILENT: &str = "see to the network, and to the remote target and its disks";
const MEND_ACCESS: &str =
    "see to the remote target: it says through which of its ports the namespace is reached";
const MEND_QUEUES: &str = "let the remote target have more queues, or the daemon fewer reactors (--reactors); queues are asked for again";

/// What is wrong with a path.
fn of_path(report: &PathReport) -> Option<Problem> {
    let (address, losses) = (report.address, report.losses);
    let why = report.failure.as_deref().unwrap_or("not connected");
    let (text, mend) = match report.state {
        PathState::Down if report.is_foreign => (
            format!("path {address} leads elsewhere and is not used: {why}"),
            MEND_FOREIGN,
        ),
        PathState::Down => (
            format!("path {address} is down (lost {losses} times): {why}"),
            MEND_DOWN,
        ),
        PathState::Up(ana) if !ana.is_usable() => (
            format!("path {address} is up, and the namespace is {ana} there"),
            MEND_ACCESS,
        ),
        PathState::Up(_) if report.reactors_unanswered > 0 => {
            let count = report.reactors_unanswered;
            (
                format!(
                    "path {address} is up, and {count} reactors have no answer there: what they sent waits, and reads go to another path where one stands"
                ),
                MEND_SILENT,
            )
        }
        PathState::Up(_) if report.reactors_without > 0 => {
            let without = report.reactors_without;
            (
                format!("path {address} is up, and {without} reactors have no queue there: {why}"),
                MEND_QUEUES,
            )
        }
        PathState::Up(_) => return None,
    };
    Some(Problem { text, mend })
}
