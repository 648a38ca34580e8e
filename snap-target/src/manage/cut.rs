//! Files that are to be cut: hosts have been told of the new end, and what is behind it must never be shown to them again, whatever becomes of the cut.
//!
//! So it is kept with the namespace, and saved, before hosts see the new size, and forgotten when the file has it on stable storage. Until then nothing of
//! the file is opened anew, for another size or at the next start, before it has been cut.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use admin_proto::v1::{HealthCode, Reason};
use frontend_nvme::Closing;
use nvme::nqn::Nqn;

use super::{ManageError, Manager, namespaces};
use crate::config::{Cut, NamespaceConfig, SourceSpec};
use crate::limits::RESIZE_TIME_MAX;

/// Gives a file another size, on stable storage.
pub(super) type SetSize = fn(&Path, u64) -> io::Result<()>;

/// A file that was cut while operations of its namespace, as it was before, were under way: what they write behind the new end makes it longer again. So it is
/// cut once more when they have ended, and until then nothing else is made of it.
#[derive(Debug)]
pub(super) struct CutAgain {
    pub(super) nqn: Nqn,
    pub(super) nsid: u32,
    pub(super) source: SourceSpec,
    pub(super) path: PathBuf,
    pub(super) cut: Cut,
    pub(super) operations: Closing,
    /// Keeps others from changing its size.
    pub(super) held: Arc<()>,
}

impl CutAgain {
    pub(super) fn why(&self) -> String {
        format!(
            "operations of {} as it was before are still under way: its store has not answered them; what they write behind the new end is cut off when they have ended, and until then it gets no other size",
            self.source
        )
    }

    /// What health calls it.
    fn id(&self) -> String {
        let subject = namespaces::subject(&self.nqn, self.nsid);
        format!("{subject} cut")
    }
}

/// Cuts the file of a namespace that is still to be cut. On a thread that may wait.
pub(super) fn finish(config: &NamespaceConfig, set_size: SetSize) -> Result<(), ManageError> {
    let last = config.source.parts().last().and_then(|part| part.path());
    match (config.cut, last) {
        (Some(cut), Some(path)) => make(path, cut, set_size),
        _ => Ok(()),
    }
}

/// Cuts a file, also where it was cut before and writes of then have made it longer again. One that is longer than it was has somebody else's bytes.
fn make(path: &Path, cut: Cut, set_size: SetSize) -> Result<(), ManageError> {
    let refused = |why: String| {
        let text = format!(
            "{}: hosts were told that it ends after {} bytes, and it could not be cut to that: {why}",
            path.display(),
            cut.to
        );
        ManageError::new(Reason::SourceUnusable, text)
    };
    let has = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?;
    if has.len() > cut.from {
        return Err(refused(format!(
            "somebody has made it {} bytes long since; cut it by hand (truncate --size {})",
            has.len(),
            cut.to
        )));
    }
    // Where somebody has cut it, too: that may not be on stable storage.
    set_size(path, cut.to.min(has.len())).map_err(|error| refused(error.to_string()))
}

impl Manager {
    /// Has a file cut once more when these operations have ended.
    pub(super) fn cut_later(&mut self, cut: CutAgain) {
        let why = cut.why();
        tracing::warn!(nqn = %cut.nqn, nsid = cut.nsid, "{why}");
        self.health.problem(&cut.id(), HealthCode::Closing, why);
        self.cuts.push(cut);
    }

    /// Cuts what is to be cut once more, and can be now.
    pub(super) fn look_at_cuts(&mut self) {
        let is_over = |cut: &mut CutAgain| cut.operations.is_over();
        let over: Vec<CutAgain> = self.cuts.extract_if(.., is_over).collect();
        for cut in over {
            self.cut_again(cut);
        }
    }

    fn cut_again(&mut self, again: CutAgain) {
        let (path, cut, held) = (again.path.clone(), again.cut, again.held.clone());
        let set_size = self.set_size;
        let work = move |_: &_| {
            let _held = held;
            make(&path, cut, set_size)
        };
        let source = again.source.to_string();
        let follow = move |manager: &mut Self, made: Result<(), ManageError>| {
            manager.health.well(&again.id());
            if let Err(error) = made {
                return tracing::error!(
                    "{error}; nothing else is made of the file before it is cut: ask for this size again"
                );
            }
            let now = manager.desired.namespace(&again.nqn, again.nsid);
            // It may have been detached, and another one have its number.
            if now.is_some_and(|config| config.source == again.source) {
                manager.cut_is_made(&again.nqn, again.nsid);
            }
        };
        self.errand_then(source, RESIZE_TIME_MAX, None, work, follow);
    }

    /// The file of a namespace has been cut. That this cannot be saved takes nothing back: the next who opens it sees by its size that it is.
    pub(super) fn cut_is_made(&mut self, nqn: &Nqn, nsid: u32) {
        let mut next = self.desired.clone();
        let subsystem = next.subsystems.get_mut(nqn);
        let Some(config) = subsystem.and_then(|it| it.namespaces.get_mut(&nsid)) else {
            return;
        };
        if config.cut.take().is_none() {
            return;
        }
        if let Err(error) = self.save(&next) {
            tracing::warn!(%nqn, nsid, %error, "that its file has been cut is not saved");
        }
        self.desired = next;
    }
}
