//! Files that are to be cut: hosts have been told of the new end, and what is behind it must never be shown to them again, whatever becomes of the cut.
//!
//! So it is kept with the namespace, and saved, before hosts see the new size, and forgotten when the file has it on stable storage. Until then nothing of
//! the file is opened anew, for another size or at the next start, before it has been cut.

use std::io;
use std::path::Path;

use admin_proto::v1::Reason;
use nvme::nqn::Nqn;

use super::{ManageError, Manager};
use crate::config::NamespaceConfig;

/// Gives a file another size, on stable storage.
pub(super) type SetSize = fn(&Path, u64) -> io::Result<()>;

/// Cuts the file of a namespace that is still to be cut. On a thread that may wait.
pub(super) fn finish(config: &NamespaceConfig, set_size: SetSize) -> Result<(), ManageError> {
    let last = config.source.parts().last().and_then(|part| part.path());
    let (Some(cut), Some(path)) = (config.cut, last) else {
        return Ok(());
    };
    let refused = |why: String| {
        let text = format!(
            "{}: hosts were told that it ends after {} bytes, and it could not be cut to that: {why}",
            path.display(),
            cut.to
        );
        ManageError::new(Reason::SourceUnusable, text)
    };
    let has = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?;
    if has.len() > cut.to && has.len() != cut.from {
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
