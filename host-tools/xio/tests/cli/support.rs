//! Running the program, and data to run it on.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The program.
pub fn xio() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xio"));
    command.stdin(Stdio::null());
    command
}

/// The real data of the repository.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/data")
        .join(name)
}

/// Small files of each format, by its own writer.
pub fn formats(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/formats")
        .join(name)
}

/// The arguments that pack a file's elements by a chain into `v.xio`.
pub fn pack_elements<'a>(file: &'a str, dtype: &'a str, chain: &'a str) -> [&'a str; 8] {
    [
        "pack",
        file,
        "--dtype",
        dtype,
        "--store-as",
        chain,
        "-o",
        "v.xio",
    ]
}

/// What a run came to.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// A folder of its own to run in, gone afterwards.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(TempDir::new().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// The names in it, hidden ones too.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Runs `xio` in the folder.
    pub fn xio(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
        let Output {
            status,
            stdout,
            stderr,
        } = xio()
            .current_dir(self.0.path())
            .args(arguments)
            .output()
            .unwrap();
        Ran {
            status: status.code().unwrap(),
            stdout: String::from_utf8(stdout).unwrap(),
            stderr: String::from_utf8(stderr).unwrap(),
        }
    }

    /// As [`xio`](Self::xio), which must succeed without a word of complaint; returns what it printed.
    pub fn done(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
        let ran = self.xio(arguments);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
        ran.stdout
    }

    /// Makes `wrong.xio` of `v.xio`: a volume that is whole, of a disk that `change` was at.
    pub fn spoil_disk(&self, change: impl FnOnce(&mut [u8])) {
        self.done(["unpack", "v.xio", "-o", "disk.img"]);
        let mut disk = self.read("disk.img");
        change(&mut disk);
        self.write("disk.img", &disk);
        self.done(["pack", "disk.img", "--dtype", "u8", "-o", "wrong.xio"]);
    }

    /// As [`xio`](Self::xio), which must fail with this status and say exactly this, in one line.
    pub fn fails(&self, status: i32, error: &str, arguments: &[&str]) {
        let ran = self.xio(arguments);
        assert_eq!(ran.stderr, format!("error: {error}\n"), "{arguments:?}");
        assert_eq!(
            (ran.status, ran.stdout.as_str()),
            (status, ""),
            "{arguments:?}"
        );
    }
}

/// `xio` in a process that may write files of so many bytes.
pub fn limited(folder: &Folder, bytes: u64, arguments: &[&str]) -> Ran {
    // Whoever runs the tests may ignore the signal that comes with the limit, and programs inherit that.
    let output = Command::new("env")
        .args(["--default-signal=XFSZ", "prlimit"])
        .arg(format!("--fsize={bytes}"))
        .arg(xio().get_program())
        .args(arguments)
        .current_dir(folder.path(""))
        .output()
        .unwrap();
    Ran {
        status: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// In hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Numbers that are the same each time.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Numerical Recipes' 64-bit generator; its upper bits.
    pub fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
}
