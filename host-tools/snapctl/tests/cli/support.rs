//! Running the program.

use std::path::Path;
use std::process::{Command, Output, Stdio};

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
