//! A mount of a test: started, ended, gone with it. Where this machine cannot mount, tests say that they are skipped.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::support::{Folder, Random, xio};

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

pub fn can_mount() -> bool {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let can =
        device.is_ok() && (is_root() || Command::new("fusermount3").arg("-V").output().is_ok());
    if !can {
        skip("this machine cannot mount: no /dev/fuse, or neither root nor fusermount3");
    }
    can
}

/// Says that a test does nothing here.
pub fn skip(why: &str) {
    println!("skipped: {why}");
}

/// A mount that is there until it is dropped.
pub struct Mount {
    child: Child,
    pub folder: PathBuf,
    errors: PathBuf,
    pub said: String,
}

impl Mount {
    /// Mounts `source` on the new folder `name`.
    pub fn start(folder: &Folder, source: &str, name: &str, more: &[&str]) -> Mount {
        fs::create_dir(folder.path(name)).unwrap();
        Mount::again(folder, source, name, more)
    }

    /// Mounts `source` on the folder `name`, which is there.
    pub fn again(folder: &Folder, source: &str, name: &str, more: &[&str]) -> Mount {
        let at = folder.path(name);
        let before = folder.names().len();
        let errors = folder.path(&format!("{name}.{before}.err"));
        let mut child = xio()
            .current_dir(folder.path(""))
            .args(["mount", source, name])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        let complaints = fs::read_to_string(&errors).unwrap();
        assert!(
            said.starts_with(&format!("{name}: mounted, ")),
            "{said}{complaints}"
        );
        Mount {
            child,
            folder: at,
            errors,
            said,
        }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(told.unwrap().success());
    }

    /// What it has complained of so far.
    pub fn complaints(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }

    /// Waits for the program's end; its exit status, and all that it complained of.
    pub fn ended(&mut self) -> (i32, String) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code().unwrap(), self.complaints());
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Unmounts by SIGTERM; nothing may have been complained of.
    pub fn end(mut self) {
        self.signal("TERM");
        assert_eq!(self.ended(), (0, String::new()));
        assert!(!is_mounted(&self.folder));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Where a test failed: what reads in it gets an error, and the folder can be removed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if is_mounted(&self.folder) {
            unmount(&self.folder);
        }
    }
}

/// As a person takes it away, also where it is in use.
pub fn unmount(folder: &Path) {
    let (program, options) = match is_root() {
        true => ("umount", &["-l"][..]),
        false => ("fusermount3", &["-u", "-z"][..]),
    };
    let unmounted = Command::new(program).args(options).arg(folder).status();
    assert!(unmounted.unwrap().success());
}

pub fn is_mounted(folder: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let needle = format!(" {} fuse", folder.display());
    mounts.lines().any(|line| line.contains(&needle))
}

pub fn ids(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..count)
        .flat_map(|_| (random.next() % 50_000).to_le_bytes())
        .collect()
}
