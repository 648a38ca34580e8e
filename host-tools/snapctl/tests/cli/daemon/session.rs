//! docs/snapctl.md is a session: its console blocks are run in their order, in one shell, with one daemon, and print what the document shows.
//!
//! The programs are looked for beside this one. `XIO_WRITE_DOCUMENT=1 cargo test -p snapctl -- --ignored session` writes the outputs anew; port 4420 must be
//! free then.

use std::path::{Path, PathBuf};

use super::Daemon;
use super::shell::Shell;

/// The reader's folder, and the test's has a name as long: columns are as wide.
const FOLDER: &str = "/tmp/xio-tour";
const PORT: &str = "127.0.0.1:4420";
/// Ends what a command prints.
const MARK: &str = "-- the command has ended";
/// What these print differs from run to run in each line that has a number; as many there are.
const MEASURED: [&str; 3] = ["snapctl stat", "snapctl recorder", "snapctl target show"];

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/snapctl.md")
}

/// The document's blocks of a kind.
fn blocks<'a>(document: &'a str, kind: &str) -> Vec<&'a str> {
    let mut all = Vec::new();
    let mut rest = document;
    let opened = format!("```{kind}\n");
    while let Some((_, from)) = rest.split_once(&opened) {
        let (block, after) = from.split_once("```\n").expect("a block ends");
        all.push(block);
        rest = after;
    }
    all
}

/// A shell that runs one command of the document after the other.
struct Session {
    shell: Shell,
    folder: String,
    address: String,
}

impl Session {
    fn start(daemon: &Daemon) -> Session {
        let environment = [("XIO_ADMIN_SOCKET", &*daemon.socket())];
        Session {
            shell: Shell::start(&daemon.folder, &environment, "exit"),
            folder: daemon.folder.to_str().unwrap().to_owned(),
            address: daemon.address(),
        }
    }

    /// What a command of the document prints, as the document would show it.
    fn run(&mut self, command: &str) -> String {
        let command = command
            .replace(FOLDER, &self.folder)
            .replace(PORT, &self.address);
        let printed = self.shell.run(&format!("{command}\necho '{MARK}'"), MARK);
        let printed = printed.strip_suffix(&format!("{MARK}\n")).unwrap();
        printed
            .replace(&self.folder, FOLDER)
            .replace(&self.address, PORT)
    }
}

/// A command of the document.
struct Shown {
    command: String,
    /// What it printed now, and what the document says.
    printed: String,
    written: String,
}

impl Shown {
    /// `at` is the line of the document where what it says ends.
    fn check(&self, at: usize) {
        let [printed, written] =
            [&self.printed, &self.written].map(|text| lasting(&self.command, text));
        let command = &self.command;
        assert!(
            printed == written,
            "docs/snapctl.md:{at}: {command}\nprints {printed:#?}\nand not {written:#?}"
        );
    }
}

/// A text without what differs from run to run: UUIDs and other identifiers, times, ports of clients, and with them the width of columns.
fn lasting(command: &str, printed: &str) -> Vec<String> {
    let is_measured = MEASURED.iter().any(|it| command.starts_with(it));
    let lines = printed.lines().map(|line| {
        let words = line
            .split_whitespace()
            .map(|word| lasting_word(command, word));
        words.collect::<Vec<_>>().join(" ")
    });
    let has_number = |line: &str| line.contains(|c: char| c.is_ascii_digit());
    lines
        .map(|line| match is_measured && has_number(&line) {
            true => "(numbers)".to_owned(),
            false => line,
        })
        .collect()
}

fn lasting_word(command: &str, word: &str) -> String {
    // Events before these may have been one more or less; a process has another number each time.
    let number = word.trim_end_matches(')');
    if command.starts_with("snapctl events") && number.parse::<u64>().is_ok() {
        return "N".to_owned();
    }
    let mut text = String::new();
    let mut run = String::new();
    for c in word.chars().chain(['\n']) {
        if c.is_ascii_hexdigit() || "-:.TZ".contains(c) {
            run.push(c);
            continue;
        }
        text.push_str(&lasting_run(&run));
        run.clear();
        text.push(c);
    }
    text.trim_end().to_owned()
}

/// Hexadecimal digits and what stands between those of identifiers, times and addresses.
fn lasting_run(run: &str) -> String {
    let digits = run.chars().filter(char::is_ascii_hexdigit).count();
    if run.contains('T') && run.ends_with('Z') {
        "TIME".to_owned()
    } else if run.starts_with("127.0.0.1:") && run != PORT {
        "ADDRESS".to_owned()
    } else if digits >= 32 {
        "ID".to_owned()
    } else {
        run.to_owned()
    }
}

#[test]
#[ignore = "needs the daemon's program and xio beside this one: ci/test builds all"]
fn the_document_is_a_session_that_runs_as_it_is_shown() {
    let document = std::fs::read_to_string(path()).unwrap();
    let is_written = std::env::var_os("XIO_WRITE_DOCUMENT").is_some();
    let folder = tempfile::Builder::new()
        .prefix("xio-")
        .rand_bytes(FOLDER.len() - "/tmp/xio-".len())
        .tempdir_in("/tmp")
        .unwrap();
    let volume =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/golden-volumes/framed.vol");
    std::fs::copy(volume, folder.path().join("tokens.vol")).unwrap();
    let disk = std::fs::File::create(folder.path().join("disk.raw")).unwrap();
    disk.set_len(20 << 20).unwrap();
    let [config] = blocks(&document, "toml")[..] else {
        panic!("one configuration")
    };
    let address = if is_written { PORT } else { "127.0.0.1:0" };
    let daemon = Daemon::start_config(folder.path(), &config.replace(PORT, address));
    let mut shell = Session::start(&daemon);
    let (mut now, mut in_block) = (String::new(), false);
    let mut shown: Option<Shown> = None;
    for (at, line) in document.lines().enumerate() {
        let is_fence = line.starts_with("```");
        let command = line.strip_prefix("$ ").filter(|_| in_block);
        if let Some(shown) = shown.take_if(|_| command.is_some() || is_fence)
            && !is_written
        {
            shown.check(at);
        }
        if let Some(command) = command {
            let printed = shell.run(command);
            now.push_str(&format!("{line}\n{printed}"));
            shown = Some(Shown {
                command: command.to_owned(),
                printed,
                written: String::new(),
            });
            continue;
        }
        if let Some(Shown { written, .. }) = &mut shown {
            written.push_str(&format!("{line}\n"));
            continue;
        }
        if is_fence {
            in_block = line == "```console";
        }
        now.push_str(&format!("{line}\n"));
    }
    if is_written {
        std::fs::write(path(), now).unwrap();
    }
}
