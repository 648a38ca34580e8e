//! The example of docs/prefetch.md, run as it is written.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::shell::Shell;

/// Where the document's daemon listens.
const ADDRESS: &str = "127.0.0.1:4420";
/// Ends what a command prints.
const MARK: &str = "-- the command has ended";

/// Runs a command to its end, which must be a good one.
fn done(shell: &mut Shell, command: &str) -> String {
    let printed = shell.run(&format!("{command}\necho \"$? {MARK}\""), MARK);
    let end = format!("0 {MARK}\n");
    let printed = printed.strip_suffix(&end);
    printed
        .unwrap_or_else(|| panic!("{command} fails"))
        .to_owned()
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
    // What it started ends with it.
    let mut shell = Shell::start(folder.path(), &[], "kill $target; wait; exit");
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
                done(&mut shell, &line);
            }
        }
    }
    let order = std::fs::read_to_string(folder.path().join("epoch-7.txt")).unwrap();
    let said = format!("all of {} ranges, ", order.lines().count());
    assert!(told.contains(&said), "{told}");
    // Into a file: the order's own command may have lines to say still.
    let stats = "snapctl --socket admin.sock stat --totals --prefetch --json > stats.json";
    done(&mut shell, stats);
    let stats = std::fs::read(folder.path().join("stats.json")).unwrap();
    let stats: Value = serde_json::from_slice(&stats).unwrap();
    let ahead = &stats["namespaces"][0]["prefetch"];
    let count = |name: &str| ahead[name].as_u64().unwrap();
    assert!(count("fetched") > 0, "{ahead}");
    // Each frame was there when it was read, and each was read.
    assert_eq!(count("hits"), count("fetched"), "{ahead}");
    let others = ["late", "wasted", "kept_bytes"].map(count);
    assert_eq!(others, [0; 3], "{ahead}");
}
