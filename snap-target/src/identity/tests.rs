//! Trees as sysfs has them, and what their devices are called.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use namespace::Identity;

use super::{Device, of_device, of_path};

/// Names and content.
type Files<'f> = &'f [(&'f str, &'f str)];

/// A device's folder with these files.
fn tree(root: &Path, device: &str, files: Files<'_>) -> PathBuf {
    let folder = root.join(device);
    std::fs::create_dir_all(&folder).unwrap();
    for (file, content) in files {
        let file = folder.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }
    folder
}

#[test]
fn a_device_is_called_after_its_wwid_and_a_partition_after_its_disks() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let nvme = "eui.0025385b91504a2e";
    let scsi = "t10.ATA     QEMU HARDDISK                           QM00001";
    let dm = "LVM-jVGWzzB4TfWAmXz2fTWiyiQDGNBzQ4SPhpRkq4UB9kkpL1Q8nQ3dyBkJfgUJw5Fz";
    let cases: [(&str, Files<'_>, Option<&str>); 9] = [
        ("nvme0n1", &[("wwid", "eui.0025385b91504a2e\n")], Some(nvme)),
        (
            "nvme0n1/nvme0n1p2",
            &[("partition", "2\n")],
            Some("eui.0025385b91504a2e partition 2"),
        ),
        ("sda", &[("device/wwid", &format!("{scsi}\n"))], Some(scsi)),
        ("dm-3", &[("dm/uuid", &format!("{dm}\n"))], Some(dm)),
        // No answer, or one that every such device gives.
        ("vda", &[("serial", "")], None),
        ("vda/vda1", &[("partition", "1\n")], None),
        ("nvme1n1", &[("wwid", "eui.0000000000000000\n")], None),
        (
            "nvme2n1",
            &[
                ("wwid", "uuid.00000000-0000-0000-0000-000000000000\n"),
                ("device/wwid", "\n"),
            ],
            None,
        ),
        ("dm-4", &[("dm/uuid", "\n")], None),
    ];
    for (device, files, expected) in cases {
        let folder = tree(root, device, files);
        let name = Device::read(&folder).unwrap().lasting_name();
        assert_eq!(name.as_deref(), expected, "{device}");
    }
}

/// By the WWID; without one by what is kept; without that by its path.
#[test]
fn a_name_that_the_kernel_gives_anew_decides_nothing() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let named = tree(root, "8:0", &[("device/wwid", "naa.5000c500a1b2c3d4\n")]);
    let nameless = tree(root, "254:0", &[]);
    let (sda, sdb) = (Path::new("/dev/sda"), Path::new("/dev/sdb"));
    let asked = RefCell::new(Vec::new());
    let mut kept = |path: &Path, bytes| {
        asked.borrow_mut().push((path.to_owned(), bytes));
        Ok(Some([7; 16]))
    };
    let mut none = |_: &Path, _| Ok(None);
    let by_wwid = of_device(&named, sda, 4096, &mut kept).unwrap();
    assert_eq!(by_wwid, of_device(&named, sdb, 8192, &mut none).unwrap());
    assert_eq!(*asked.borrow(), []);
    assert_eq!(
        of_device(&nameless, sdb, 4096, &mut kept).unwrap(),
        Identity { uuid: [7; 16] }
    );
    assert_eq!(*asked.borrow(), [(sdb.to_owned(), 4096)]);
    let by_path = of_device(&nameless, sdb, 4096, &mut none).unwrap();
    assert_eq!(by_path, Identity::of_raw("file", b"/dev/sdb"));
    assert_ne!(by_path, of_device(&nameless, sda, 4096, &mut none).unwrap());
    let mut fails = |_: &Path, _| anyhow::bail!("it cannot be kept");
    assert!(of_device(&nameless, sda, 4096, &mut fails).is_err());
}

/// The link is the stable name: what it leads to may move.
#[test]
fn a_file_is_called_after_the_name_it_was_given() {
    let root = tempfile::tempdir().unwrap();
    let (first, second) = (root.path().join("a.raw"), root.path().join("b.raw"));
    let link = root.path().join("disk");
    let mut none = |_: &Path, _| Ok(None);
    std::fs::write(&first, [0; 4096]).unwrap();
    std::fs::write(&second, [0; 4096]).unwrap();
    std::os::unix::fs::symlink(&first, &link).unwrap();
    let before = of_path(&link, 4096, &mut none).unwrap();
    assert_ne!(before, of_path(&first, 4096, &mut none).unwrap());
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&second, &link).unwrap();
    assert_eq!(before, of_path(&link, 4096, &mut none).unwrap());
    std::fs::remove_file(&second).unwrap();
    assert!(of_path(&link, 4096, &mut none).is_err());
}
