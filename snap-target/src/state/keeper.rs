//! The keepers of namespaces: one thread writes the records of all of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use namespace::{Identity, KeepError, Keeper, RecordKind, Saved};

use super::disk::{Disk, Folder, replace};
use super::record::{seal, unseal};
use crate::limits::SAVES_MAX;
use crate::text::uuid_text;

/// Makes the keepers of namespaces; its thread ends with the last of them.
#[derive(Clone, Debug)]
pub struct Keepers {
    saves: SyncSender<Save>,
    folder: Arc<PathBuf>,
}

/// A record on its way to the folder.
struct Save {
    name: String,
    kind: RecordKind,
    bytes: Vec<u8>,
    saved: Saved,
}

impl Keepers {
    /// Starts the thread that writes the records of a folder.
    ///
    /// # Errors
    /// The folder, or a thread, cannot be had.
    pub fn start(folder: &Path) -> std::io::Result<Self> {
        let mut disk = Folder::open(folder)?;
        let (saves, queue) = sync_channel(SAVES_MAX);
        std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || keep(&mut disk, &queue))?;
        Ok(Self {
            saves,
            folder: Arc::new(folder.to_owned()),
        })
    }

    /// The keeper of a namespace.
    pub fn of(&self, identity: &Identity) -> Arc<dyn Keeper> {
        Arc::new(FolderKeeper {
            keepers: self.clone(),
            uuid: uuid_text(&identity.uuid),
        })
    }
}

/// Writes records in their order until nobody can ask for more.
fn keep(disk: &mut dyn Disk, queue: &Receiver<Save>) {
    let mut sequence = 0;
    while let Ok(save) = queue.recv() {
        sequence += 1;
        let record = seal(save.kind.name(), sequence, &save.bytes);
        let result = replace(disk, &save.name, &record).map_err(|error| KeepError {
            kind: save.kind,
            why: format!("{}: {error}", save.name),
        });
        if let Err(error) = &result {
            tracing::error!(%error, "a record of a namespace was not saved");
        }
        (save.saved)(result);
    }
}

/// Keeps one namespace's records in the state folder.
#[derive(Debug)]
struct FolderKeeper {
    keepers: Keepers,
    uuid: String,
}

impl FolderKeeper {
    fn file_name(&self, kind: RecordKind) -> String {
        format!("{}.{}", self.uuid, kind.name())
    }
}

impl Keeper for FolderKeeper {
    fn is_durable(&self) -> bool {
        true
    }

    fn save(&self, kind: RecordKind, bytes: Vec<u8>, saved: Saved) {
        let save = Save {
            name: self.file_name(kind),
            kind,
            bytes,
            saved,
        };
        let (save, why) = match self.keepers.saves.try_send(save) {
            Ok(()) => return,
            Err(TrySendError::Full(save)) => (save, format!("{SAVES_MAX} others wait already")),
            Err(TrySendError::Disconnected(save)) => (save, "the daemon is ending".to_owned()),
        };
        (save.saved)(Err(KeepError { kind, why }));
    }

    fn load(&self, kind: RecordKind) -> Result<Option<Vec<u8>>, KeepError> {
        let name = self.file_name(kind);
        let path = self.keepers.folder.join(&name).display().to_string();
        let failed = |why| KeepError { kind, why };
        let folder = Folder::open(&self.keepers.folder)
            .map_err(|error| failed(format!("{path}: {error}")))?;
        match folder.read(&name) {
            Ok(None) => Ok(None),
            Ok(Some(record)) => unseal(kind.name(), &record, &path)
                .map(|(_, bytes)| Some(bytes.to_vec()))
                .map_err(|error| failed(error.to_string())),
            Err(error) => Err(failed(format!("{path}: {error}"))),
        }
    }
}

impl std::fmt::Debug for Save {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Save").field("name", &self.name).finish()
    }
}
