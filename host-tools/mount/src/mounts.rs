//! The system's list of mounts.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// proc_pid_mountinfo(5).
const LIST: &str = "/proc/self/mountinfo";
/// Fields of a line: device number, and the folder that is mounted on.
const DEVICE: usize = 2;
const FOLDER: usize = 4;

/// The device number of what is mounted on `folder`, a path without links; `None` where nothing is, or the system has no list.
pub(crate) fn device_on(folder: &Path) -> Option<Vec<u8>> {
    let list = fs::read(LIST).ok()?;
    device_in(&list, folder)
}

fn device_in(list: &[u8], folder: &Path) -> Option<Vec<u8>> {
    let folder = escaped(folder.as_os_str().as_bytes());
    // The last is on top of the others.
    let mut lines = list.rsplit(|&byte| byte == b'\n');
    lines
        .find_map(|line| {
            let field = |index| line.split(|&byte| byte == b' ').nth(index);
            (field(FOLDER) == Some(&folder)).then(|| field(DEVICE))?
        })
        .map(<[u8]>::to_vec)
}

/// As the list has it: four characters in octal digits.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(path.len());
    for &byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => text.extend(format!("\\{byte:03o}").bytes()),
            byte => text.push(byte),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_on_a_folder_is_the_one_that_is_seen() {
        let list = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            40 22 0:51 / /mnt/a\\040b ro,nosuid - fuse.xio a.xio ro,user_id=0\n\
            41 40 0:52 / /mnt/a\\040b ro,nosuid - fuse.xio b.xio ro,user_id=0\n\
            42 22 0:53 / /mnt/a ro - fuse c.xio ro\n";
        let on = |folder: &str| device_in(list, Path::new(folder));
        assert_eq!(on("/mnt/a b"), Some(b"0:52".to_vec()));
        assert_eq!(on("/mnt/a"), Some(b"0:53".to_vec()));
        assert_eq!(on("/"), Some(b"8:1".to_vec()));
        assert_eq!(on("/mnt"), None);
        assert_eq!(on("/mnt/a\\040b"), None);
        assert_eq!(device_in(b"", Path::new("/")), None);
        assert_eq!(escaped(b"a\tb\n\\"), b"a\\011b\\012\\134");
    }
}
