//! The records of subsystems' lives: what their SMART logs count, over restarts and power loss.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nvme::controller::{ControllerCounters, Lifetime};
use nvme::nqn::Nqn;
use serde::{Deserialize, Serialize};

use super::StateError;
use super::disk::{Disk, Folder, replace};
use super::record::{seal, unseal};
use crate::text::hex;

/// What the record of a life is called.
const LIFE_KIND: &str = "life";
/// What a record that cannot be used is called besides.
const ASIDE: &str = "aside";
/// What was tried, in messages.
const CANNOT_READ: &str = "the counters of a subsystem's life cannot be read";
const CANNOT_SAVE: &str = "the counters of a subsystem's life cannot be saved";
const CANNOT_REMOVE: &str = "the counters of a subsystem that was deleted cannot be removed";

/// A life as it was saved last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeRecord {
    /// Until then.
    pub lifetime: Lifetime,
    /// Nobody has announced its end.
    pub is_running: bool,
}

/// The lives in a folder.
#[derive(Debug)]
pub struct LifeFiles {
    folder: PathBuf,
    disk: Box<dyn Disk>,
    sequence: u64,
}

impl LifeFiles {
    /// Those in a folder that is there.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self::on(folder, Folder::open(folder)?))
    }

    /// The same over a disk of a test's own.
    pub fn on(folder: &Path, disk: impl Disk + 'static) -> Self {
        Self {
            folder: folder.to_owned(),
            disk: Box::new(disk),
            sequence: 0,
        }
    }

    /// The life of a subsystem, if it has one. A record that is damaged, or of a newer daemon, is set aside: it is worth a message, and no outage.
    ///
    /// # Errors
    /// [`StateError`]: it is not known whether there is one, and none may be saved in its place.
    pub fn load(&mut self, nqn: &Nqn) -> Result<Option<LifeRecord>, StateError> {
        let name = file_name(nqn);
        let refused =
            |folder: &Path, error: io::Error| StateError::refused(folder, CANNOT_READ, &error);
        let record = self.disk.read(&name);
        let Some(record) = record.map_err(|error| refused(&self.folder, error))? else {
            return Ok(None);
        };
        let file = self.folder.join(&name).display().to_string();
        match unseal(LIFE_KIND, &record, &file).and_then(|(_, json)| parse(nqn, json, &file)) {
            Ok(life) => Ok(Some(life)),
            Err(why) => {
                let aside = format!("{name}.{ASIDE}");
                self.disk
                    .rename(&name, &aside)
                    .and_then(|()| self.disk.sync_names())
                    .map_err(|error| refused(&self.folder, error))?;
                tracing::error!(
                    %nqn, "{why}; it is set aside as {file}.{ASIDE}, and the subsystem's SMART counters begin at zero"
                );
                Ok(None)
            }
        }
    }

    /// Saves a life.
    ///
    /// # Errors
    /// [`StateError`]: what is saved is what was saved before, or this.
    pub fn save(&mut self, nqn: &Nqn, life: &LifeRecord) -> Result<(), StateError> {
        self.sequence += 1;
        let json = serde_json::to_vec_pretty(&Document::of(nqn, life)).map_err(io::Error::other);
        let saved = json.and_then(|json| {
            let record = seal(LIFE_KIND, self.sequence, &json);
            replace(&mut *self.disk, &file_name(nqn), &record)
        });
        saved.map_err(|error| StateError::refused(&self.folder, CANNOT_SAVE, &error))
    }

    /// A subsystem has none any more.
    ///
    /// # Errors
    /// [`StateError`]: it may still be there.
    pub fn remove(&mut self, nqn: &Nqn) -> Result<(), StateError> {
        let removed = self.disk.remove(&file_name(nqn));
        removed
            .and_then(|()| self.disk.sync_names())
            .map_err(|error| StateError::refused(&self.folder, CANNOT_REMOVE, &error))
    }
}

/// Of any NQN.
fn file_name(nqn: &Nqn) -> String {
    let key = namespace::Identity::of_raw("subsystem", nqn.as_str().as_bytes());
    format!("{}.{LIFE_KIND}", hex(&key.uuid))
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    nqn: String,
    running: bool,
    power_cycles: u64,
    unsafe_shutdowns: u64,
    powered_ms: u64,
    bytes_read: u128,
    bytes_written: u128,
    read_commands: u128,
    write_commands: u128,
    media_errors: u128,
    busy_nanos: u128,
    error_log_entries: u64,
}

impl Document {
    fn of(nqn: &Nqn, life: &LifeRecord) -> Self {
        let Lifetime {
            power_cycles,
            unsafe_shutdowns,
            powered,
            counters,
        } = life.lifetime;
        Self {
            nqn: nqn.to_string(),
            running: life.is_running,
            power_cycles,
            unsafe_shutdowns,
            powered_ms: u64::try_from(powered.as_millis()).unwrap_or(u64::MAX),
            bytes_read: counters.bytes_read,
            bytes_written: counters.bytes_written,
            read_commands: counters.read_commands,
            write_commands: counters.write_commands,
            media_errors: counters.media_errors,
            busy_nanos: counters.busy_nanos,
            error_log_entries: counters.error_log_entries,
        }
    }

    fn life(&self) -> LifeRecord {
        let counters = ControllerCounters {
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
            read_commands: self.read_commands,
            write_commands: self.write_commands,
            media_errors: self.media_errors,
            busy_nanos: self.busy_nanos,
            error_log_entries: self.error_log_entries,
        };
        LifeRecord {
            lifetime: Lifetime {
                power_cycles: self.power_cycles,
                unsafe_shutdowns: self.unsafe_shutdowns,
                powered: Duration::from_millis(self.powered_ms),
                counters,
            },
            is_running: self.running,
        }
    }
}

fn parse(nqn: &Nqn, json: &[u8], file: &str) -> Result<LifeRecord, StateError> {
    let damaged = |why: String| StateError::Damaged {
        file: file.to_owned(),
        why,
    };
    let document: Document =
        serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
    if document.nqn != nqn.as_str() {
        return Err(damaged("it is another subsystem's".to_owned()));
    }
    Ok(document.life())
}
