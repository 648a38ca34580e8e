//! Running the program.

use std::io::{BufRead, BufReader, Lines, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

/// What a run came to.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `snapctl` with this socket, or with none that is there.
pub fn snapctl(socket: Option<&Path>, arguments: &[&str]) -> Ran {
    let socket = socket.unwrap_or(Path::new("/nowhere/snap-target.sock"));
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_snapctl"))
        .env("XIO_ADMIN_SOCKET", socket)
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .args(arguments)
        .output()
        .unwrap();
    Ran {
        status: status.code().unwrap(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// `snapctl events --follow`, and what it prints.
pub struct Following {
    pub child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Following {
    pub fn start(socket: &Path, arguments: &[&str]) -> Following {
        let mut child = Command::new(env!("CARGO_BIN_EXE_snapctl"))
            .args(["events", "--follow", "--json"])
            .args(arguments)
            .env("XIO_ADMIN_SOCKET", socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Following { child, lines }
    }

    /// The next line; it is waited for.
    pub fn line(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    /// Waits for its end: status, the rest of the lines, and what it said of a failure.
    pub fn end(mut self) -> (Option<i32>, Vec<String>, String) {
        let rest = self.lines.by_ref().map(Result::unwrap).collect();
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), rest, said)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // It has ended where the test went well, or goes on for ever.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every command that does something, as its words: found by walking the help.
pub fn commands() -> Vec<Vec<String>> {
    let mut leaves = Vec::new();
    walk(&mut Vec::new(), &mut leaves);
    leaves
}

fn walk(words: &mut Vec<String>, leaves: &mut Vec<Vec<String>>) {
    let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    arguments.push("--help");
    let help = snapctl(None, &arguments).stdout;
    let Some((_, listed)) = help.split_once("\nCommands:\n") else {
        leaves.push(words.clone());
        return;
    };
    for line in listed.lines().take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap();
        // A description that is wrapped is deeper than a name.
        if name != "help" && line.starts_with("  ") && !line.starts_with("   ") {
            words.push(name.to_owned());
            walk(words, leaves);
            words.pop();
        }
    }
}
