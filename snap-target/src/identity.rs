//! What a raw store is called for ever: never after a kernel's name for a disk, which another disk may have at the next start.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use namespace::Identity;
use nix::sys::stat::{major, minor};

use crate::config::SourceSpec;

/// Where the kernel tells of block devices, by MAJOR:MINOR.
const SYSFS: &str = "/sys/dev/block";
/// What a file of sysfs that is asked for may hold.
const ATTRIBUTE_BYTES_MAX: usize = 4096;

/// The UUID that was given to a device of this path and size, where there is somewhere to keep it.
pub type Given<'g> = dyn FnMut(&Path, u64) -> Result<Option<[u8; 16]>> + 'g;

/// The identity of a file, or of a block device of so many bytes.
///
/// # Errors
/// It is not there, or its UUID cannot be kept.
pub fn of_path(path: &Path, bytes: u64, given: &mut Given<'_>) -> Result<Identity> {
    let metadata = path
        .metadata()
        .with_context(|| path.display().to_string())?;
    // The name that was given is what stays: what a link leads to may be another disk's next time.
    let path = std::path::absolute(path)?;
    if metadata.file_type().is_block_device() {
        of_device(&device_folder(&metadata), &path, bytes, given)
    } else {
        Ok(of_name(&path))
    }
}

/// A block device, or a file by its device and inode.
type Node = (u64, u64);

/// What the paths of a source's raw stores lead to now. Two names of one disk are found by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes(Vec<Node>);

impl Nodes {
    /// Asks the file system: not for a thread that may not wait.
    pub fn of(source: &SourceSpec) -> Self {
        Self(source.parts().iter().flat_map(nodes_of).collect())
    }

    /// Whether something is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some disk is behind both.
    pub fn meet(&self, others: &Self) -> bool {
        self.0.iter().any(|node| others.0.contains(node))
    }
}

/// Of its raw stores.
fn nodes_of(source: &SourceSpec) -> Vec<Node> {
    let is_volume = matches!(source, SourceSpec::Volume { .. });
    let paths = source.paths().into_iter().filter(|_| !is_volume);
    paths.filter_map(node_of).collect()
}

fn node_of(path: &Path) -> Option<Node> {
    let metadata = path.metadata().ok()?;
    if metadata.file_type().is_block_device() {
        // Numbers of devices and of file systems are of one kind; no inode is 0.
        return Some((metadata.rdev(), 0));
    }
    Some((metadata.dev(), metadata.ino()))
}

fn of_name(path: &Path) -> Identity {
    Identity::of_raw("file", path.as_os_str().as_encoded_bytes())
}

fn device_folder(metadata: &Metadata) -> PathBuf {
    let device = metadata.rdev();
    Path::new(SYSFS).join(format!("{}:{}", major(device), minor(device)))
}

/// The identity of the block device that sysfs describes in a folder.
fn of_device(folder: &Path, path: &Path, bytes: u64, given: &mut Given<'_>) -> Result<Identity> {
    let device = Device::read(folder).with_context(|| folder.display().to_string())?;
    if let Some(name) = device.lasting_name() {
        return Ok(Identity::of_raw("block device", name.as_bytes()));
    }
    if let Some(uuid) = given(path, bytes)? {
        return Ok(Identity { uuid });
    }
    tracing::warn!(
        device = %path.display(),
        "it has no WWID, and there is no state folder: its UUID follows from this path, which may be another disk's at the next start"
    );
    Ok(of_name(path))
}

/// What sysfs says of a block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Device {
    /// Of NVMe namespaces.
    wwid: Option<String>,
    /// Of SCSI disks.
    device_wwid: Option<String>,
    /// Of device-mapper devices: logical volumes, multipath maps.
    dm_uuid: Option<String>,
    /// Number of a partition, and its disk.
    partition: Option<(String, Box<Device>)>,
}

impl Device {
    fn read(folder: &Path) -> io::Result<Self> {
        let partition = match attribute(&folder.join("partition"))? {
            // A partition's folder lies in its disk's.
            Some(number) => Some((number, Box::new(Self::read(&folder.join(".."))?))),
            None => None,
        };
        Ok(Self {
            wwid: attribute(&folder.join("wwid"))?,
            device_wwid: attribute(&folder.join("device/wwid"))?,
            dm_uuid: attribute(&folder.join("dm/uuid"))?,
            partition,
        })
    }

    /// A name that no other device has, and this one has at each start.
    fn lasting_name(&self) -> Option<String> {
        if let Some((number, disk)) = &self.partition {
            return Some(format!("{} partition {number}", disk.lasting_name()?));
        }
        let names = [&self.wwid, &self.device_wwid, &self.dm_uuid];
        names
            .into_iter()
            .flatten()
            .find(|name| says_something(name))
            .cloned()
    }
}

/// Devices without an identity of their own have one of zeros, after its kind: `eui.0000000000000000`.
fn says_something(name: &str) -> bool {
    let value = name.split_once('.').map_or(name, |(_, value)| value);
    value.chars().any(|c| !matches!(c, '0' | '-' | ' ' | '.'))
}

/// One line of sysfs; none where there is none, or it is empty.
fn attribute(file: &Path) -> io::Result<Option<String>> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        // ENXIO, ENODEV and the like: drivers that have the file and no answer.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
        Err(_) => return Ok(None),
    };
    let text = String::from_utf8_lossy(bytes.get(..ATTRIBUTE_BYTES_MAX).unwrap_or(&bytes));
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
mod tests;
