//! The example of docs/prefetch.md, run as it is written.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Where the document's daemon listens.
const ADDRESS: &str = "127.0.0.1:4420";
/// Ends what a command prints.
const MARK: &str = "-- the command has ended";

/// A shell in a folder, and what it started.
struct Shell {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Shell {
    fn start(folder: &Path) -> Shell {
        let programs = Path::new(env!("CARGO_BIN_EXE_snapctl")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Command::new("sh")
            .env("PATH", format!("{}:{path}", programs.display()))
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "exec 2>&1").unwrap();
        Shell {
            stdout: BufReader::new(child.stdout.take().unwrap()),
            stdin,
            child,
        }
    }

    /// Runs a line, and returns what is printed up to `mark`.
    fn run(&mut self, line: &str, mark: &str) -> String {
        writeln!(self.stdin, "{line}").unwrap();
        let mut printed = String::new();
        while !printed.contains(mark) {
            let read = self.stdout.read_line(&mut printed).unwrap();
            assert!(read > 0, "{line}\n{printed}");
        }
        printed
    }

    /// Runs a command to its end, which must be a good one.
    fn done(&mut self, command: &str) -> String {
        let printed = self.run(&format!("{command}\necho \"$? {MARK}\""), MARK);
        let end = format!("0 {MARK}\n");
        let printed = printed.strip_suffix(&end);
        printed
            .unwrap_or_else(|| panic!("{command} fails"))
            .to_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It waits for what it started, which ends.
        let _told = writeln!(self.stdin, "kill $target; wait; exit");
        let _ended = self.child.wait();
    }
}

#[test]
#[ignore = "needs snap-target and xio beside this program: ci/test builds all"]
fn prefetch_is_shown_from_a_folder_to_the_figures() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = std::fs::read_to_string(root.join("docs/prefetch.md")).unwrap();
    let (_, example) = document
        .split_once("From a folder to the figures:\n\n```\n")
        .unwrap();
    let (example, _) = example.split_once("```\n").unwrap();
    let folder = TempDir::new().unwrap();
    let dataset = root.join("fixtures/dataset");
    let copied = Command::new("cp")
        .arg("-r")
        .args([&dataset, &folder.path().join("dataset")])
        .status();
    assert!(copied.unwrap().success());
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let mut shell = Shell::start(folder.path());
    let mut told = String::new();
    for line in example.lines() {
        let line = line.replace(ADDRESS, &address);
        match line.strip_suffix(" &") {
            Some(command) if command.starts_with("snap-target ") => {
                shell.run(&format!("{line}\ntarget=$!"), "ready ");
            }
            // Whoever types it is not as quick as the order: all of it fits the budget.
            Some(_) => told = shell.run(&line, "all of "),
            None => {
                shell.done(&line);
            }
        }
    }
    let order = std::fs::read_to_string(folder.path().join("epoch-7.txt")).unwrap();
    let said = format!("all of {} ranges, ", order.lines().count());
    assert!(told.contains(&said), "{told}");
    let stats = "snapctl --socket admin.sock stat --totals --prefetch --json";
    let stats: Value = serde_json::from_str(&shell.done(stats)).unwrap();
    let ahead = &stats["namespaces"][0]["prefetch"];
    let count = |name: &str| ahead[name].as_u64().unwrap();
    assert!(count("fetched") > 0, "{ahead}");
    // Each frame was there when it was read, and each was read.
    assert_eq!(count("hits"), count("fetched"), "{ahead}");
    let others = ["late", "wasted", "kept_bytes"].map(count);
    assert_eq!(others, [0; 3], "{ahead}");
}
