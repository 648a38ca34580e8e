//! snap-target as a child process, which does not outlive the demo.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::anyhow;

use crate::failure::Failure;

/// NQN of the demo's subsystem.
pub const NQN: &str = "nqn.2026-11.io.xio:demo";
/// Frame cache of the target: far less than the volumes together, so that frames are decoded each time.
pub const CACHE: &str = "4MiB";
/// How long the target may take to listen.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// The program's name.
const PROGRAM: &str = "snap-target";

/// The target's program: `given`, or the one beside this program.
pub fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let own = std::env::current_exe()
        .map_err(|error| Failure::system(anyhow!("finding this program: {error}")))?;
    let beside = own.with_file_name(PROGRAM);
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Failure::usage(anyhow!(
        "{} is not there; build it with `cargo build --release -p snap-target`, or name it with --target",
        beside.display()
    )))
}

/// A target that serves; killed when it is dropped.
pub struct Target {
    child: Child,
    /// Where it listens: "host:port".
    pub address: String,
    /// How many it serves.
    pub namespaces: usize,
}

impl Target {
    /// Starts `program` on a free port of this machine, and waits until it listens. The volumes become NSID 1, 2, and so on.
    pub fn start(program: &Path, volumes: &[PathBuf]) -> Result<Target, Failure> {
        let mut child = Command::new(program)
            .args(volumes)
            .args([
                "--listen",
                "127.0.0.1:0",
                "--nqn",
                NQN,
                "--cache",
                CACHE,
                "--log",
                "warn",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::io("starting", program, error))?;
        let lines = child.stdout.take();
        // From here on the child is killed whatever happens.
        let mut target = Target {
            child,
            address: String::new(),
            namespaces: volumes.len(),
        };
        let Some(lines) = lines else {
            return Err(Failure::system(anyhow!(
                "{}: its output is not to be had",
                program.display()
            )));
        };
        target.address = wait_until_ready(lines, program)?;
        Ok(target)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It only reads, so nothing is lost; an error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the target's lines up to `ready ADDR:PORT`; what follows is read and forgotten, so that the target never waits.
fn wait_until_ready(output: impl Read + Send + 'static, program: &Path) -> Result<String, Failure> {
    let (found, ready) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some(address) = line.strip_prefix("ready ") {
                // Nobody waits any longer after the time limit.
                let _ = found.send(address.to_owned());
            }
        }
    });
    ready.recv_timeout(READY_WITHIN).map_err(|error| {
        let why = match error {
            RecvTimeoutError::Timeout => "does not listen after 20 s",
            RecvTimeoutError::Disconnected => "has ended before it listened; what it said is above",
        };
        Failure::system(anyhow!("{} {why}", program.display()))
    })
}
