//! A `snap-target` process of a test's own, volumes for it, and a host that connects.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use initiator::{Initiator, Options};
use nvme_spec::Status;

pub use super::packing::pack;

/// NQN that `snap-target` serves without `--nqn`.
pub const NQN: &str = "nqn.2026-11.io.xio:snap";

const PROGRAM: &str = env!("CARGO_BIN_EXE_snap-target");

/// A running daemon; killed when dropped.
pub struct Target {
    child: Child,
    pub address: String,
    /// What it printed before it was ready.
    lines: Vec<String>,
}

impl Target {
    /// Starts the daemon on a free port and waits until it says that it is ready.
    pub fn start(arguments: &[&str]) -> Target {
        Self::start_at("127.0.0.1:0", arguments)
    }

    /// The same at an address.
    pub fn start_at(address: &str, arguments: &[&str]) -> Target {
        Self::spawn(address, arguments, Stdio::inherit())
    }

    /// Starts it on a free port with its log in a file.
    pub fn start_logged(arguments: &[&str], log: &Path) -> Target {
        Self::spawn("127.0.0.1:0", arguments, File::create(log).unwrap().into())
    }

    /// Starts it with a configuration file, which says where it listens.
    pub fn start_configured(file: &Path) -> Target {
        let file = file.to_str().unwrap();
        Self::launch(&["--config", file, "--log", "warn"], Stdio::inherit())
    }

    /// The same with its log in a file.
    pub fn start_configured_logged(file: &Path, log: &Path) -> Target {
        let file = file.to_str().unwrap();
        let arguments = ["--config", file, "--log", "warn"];
        Self::launch(&arguments, File::create(log).unwrap().into())
    }

    fn spawn(address: &str, arguments: &[&str], log: Stdio) -> Target {
        let mut arguments = arguments.to_vec();
        arguments.extend(["--listen", address, "--log", "warn"]);
        Self::launch(&arguments, log)
    }

    /// The same under a limit of the shell's.
    pub fn start_under(limit: &str, arguments: &[&str]) -> Target {
        let mut shell = Command::new("sh");
        let script = format!("{limit}; exec \"$0\" \"$@\"");
        shell.args(["-c", &script, PROGRAM]);
        shell.args(["--listen", "127.0.0.1:0", "--log", "warn"]);
        Self::run(shell, arguments, Stdio::inherit())
    }

    /// The same as a service of a service manager that listens at this socket.
    pub fn start_notifying(file: &Path, socket: &Path) -> Target {
        let mut program = Command::new(PROGRAM);
        program.env("NOTIFY_SOCKET", socket);
        let file = file.to_str().unwrap();
        Self::run(
            program,
            &["--config", file, "--log", "warn"],
            Stdio::inherit(),
        )
    }

    fn launch(arguments: &[&str], log: Stdio) -> Target {
        Self::run(Command::new(PROGRAM), arguments, log)
    }

    fn run(mut program: Command, arguments: &[&str], log: Stdio) -> Target {
        let mut child = program
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = Vec::new();
        let address = loop {
            match stdout.next() {
                Some(line) => {
                    let line = line.unwrap();
                    if let Some(address) = line.strip_prefix("ready ") {
                        break address.to_owned();
                    }
                    lines.push(line);
                }
                None => panic!("snap-target {arguments:?} ended: {:?}", child.wait()),
            }
        };
        Target {
            child,
            address,
            lines,
        }
    }

    /// The rest of a line that it printed before it was ready.
    pub fn said(&self, prefix: &str) -> &str {
        let found = self.lines.iter().find_map(|line| line.strip_prefix(prefix));
        found.unwrap()
    }

    /// Its memory, as the system says it: "VmRSS: 12345 kB".
    pub fn resident(&self) -> String {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS"));
        line.unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The exit status, where something else ends it.
    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Connects a host.
    pub fn host(&self, options: &Options) -> Initiator {
        Initiator::connect(&self.address, NQN, options).unwrap()
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// SIGTERM, and the exit status.
    pub fn terminate(mut self) -> Option<i32> {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A folder of a test's own; removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Its own name, without the process's number.
    pub fn name(&self) -> String {
        let name = self.0.file_name().unwrap().to_str().unwrap();
        name.rsplit_once('-').unwrap().0.to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

/// Real token ids: u32, little-endian, all below 50,257.
pub fn tokens() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/data/r50k-u32.bin");
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// The status of a command that must fail.
pub fn status_of(result: Result<(), initiator::Error>) -> Status {
    match result {
        Err(initiator::Error::Command { status, .. }) => status,
        other => panic!("expected a command's error, got {other:?}"),
    }
}

/// A small generator with a fixed seed: reads at random places are the same in each run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % limit
    }
}
