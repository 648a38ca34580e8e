//! The UUIDs of block devices that have no name of their own: random, and kept with the device's path and size.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::disk::replace;
use super::record::{seal, unseal};
use super::{StateError, StateFolder};
use crate::text::{hex, uuid_bytes, uuid_text};

/// What the record of a device is called.
const DEVICE_KIND: &str = "device";
/// What was tried, in messages.
const CANNOT_KEEP: &str = "a device's UUID cannot be kept";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    path: String,
    bytes: u64,
    uuid: String,
}

impl StateFolder {
    /// The UUID of the device that has this path and size. Another size is another device: it gets another UUID.
    ///
    /// # Errors
    /// [`StateError`]: the device must not be served under a UUID that it would not have again.
    pub fn device(&mut self, path: &Path, bytes: u64) -> Result<[u8; 16], StateError> {
        if let Some((kept_bytes, uuid)) = self.kept_device(path)? {
            if kept_bytes == bytes {
                return Ok(uuid);
            }
            tracing::warn!(
                device = %path.display(), bytes, kept_bytes,
                "it has another size than before, and no WWID: it is served as another disk, under a new UUID"
            );
        }
        let mut uuid = [0; 16];
        let refused = |error| StateError::refused(&self.path, CANNOT_KEEP, &error);
        random(&mut uuid).map_err(refused)?;
        self.keep_device(path, bytes, uuid)?;
        Ok(uuid)
    }

    /// Keeps a device's UUID: of a new one, or of one that has another size now and is the same.
    ///
    /// # Errors
    /// As [`StateFolder::device`].
    pub fn keep_device(
        &mut self,
        path: &Path,
        bytes: u64,
        uuid: [u8; 16],
    ) -> Result<(), StateError> {
        let device = Device {
            path: path.to_string_lossy().into_owned(),
            bytes,
            uuid: uuid_text(&uuid),
        };
        let kept = serde_json::to_vec_pretty(&device)
            .map_err(std::io::Error::other)
            .and_then(|json| {
                let record = seal(DEVICE_KIND, 1, &json);
                replace(&mut *self.disk, &file_name(path), &record)
            });
        kept.map_err(|error| StateError::refused(&self.path, CANNOT_KEEP, &error))
    }

    /// Size and UUID.
    fn kept_device(&self, path: &Path) -> Result<Option<(u64, [u8; 16])>, StateError> {
        let name = file_name(path);
        let record = self.disk.read(&name).map_err(|error| {
            StateError::refused(&self.path, "a device's UUID cannot be read", &error)
        })?;
        let Some(record) = record else {
            return Ok(None);
        };
        let file = self.path.join(name).display().to_string();
        let (_, json) = unseal(DEVICE_KIND, &record, &file)?;
        let device: Option<Device> = serde_json::from_slice(json).ok();
        device
            .and_then(|it| Some((it.bytes, uuid_bytes(&it.uuid)?)))
            .map(Some)
            .ok_or(StateError::Damaged {
                file,
                why: "it names no UUID".to_owned(),
            })
    }
}

/// Of any path, however long.
fn file_name(path: &Path) -> String {
    let key = namespace::Identity::of_raw("device path", path.as_os_str().as_encoded_bytes());
    format!("{}.{DEVICE_KIND}", hex(&key.uuid))
}

/// RFC 9562, version 4.
fn random(uuid: &mut [u8; 16]) -> std::io::Result<()> {
    use std::io::Read;
    std::fs::File::open("/dev/urandom")?.read_exact(uuid)?;
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    Ok(())
}
