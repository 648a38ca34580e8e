//! The real daemon, and a host: what is changed here is what the host sees.
//!
//! The daemon's program is looked for beside this one. `cargo build -p snap-target` puts it there; ci/test does, and runs these tests.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use initiator::{Initiator, Options};
use serde_json::Value;
use tempfile::TempDir;

use super::support::{Following, Ran, snapctl};

mod prefetch;
mod roles;
mod session;
mod shell;

const NQN: &str = "nqn.2026-11.org.example:disks";
const ORIGIN: &str = "ORIGIN_ADMIN";

/// A daemon of its own; it is ended when this is dropped.
struct Daemon {
    child: Child,
    folder: PathBuf,
    /// What it printed before it was ready.
    said: Vec<String>,
}

impl Daemon {
    /// Starts it with its state in `folder`.
    fn start(folder: &Path) -> Daemon {
        Self::start_with(folder, "")
    }

    /// The same with more in its section `[admin]`.
    fn start_with(folder: &Path, admin: &str) -> Daemon {
        let text = "[target]\nworkers = 0\nstate = \"state\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
                    [[subsystem]]\nnqn = \"nqn.2026-11.org.example:configured\"\nallow-any-host = true\n\
                    [admin]\nsocket = \"admin.sock\"\n";
        Self::start_config(folder, &format!("{text}{admin}"))
    }

    /// The same with this configuration, which has its admin socket there.
    fn start_config(folder: &Path, text: &str) -> Daemon {
        let config = folder.join("snap-target.toml");
        std::fs::write(&config, text).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_snapctl")).with_file_name("snap-target");
        let mut child = Command::new(&program)
            .arg("--config")
            .arg(&config)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        while !said
            .last()
            .is_some_and(|line: &String| line.starts_with("ready"))
        {
            let line = lines.next().expect("it ended before it was ready");
            said.push(line.unwrap());
        }
        Daemon {
            child,
            folder: folder.to_owned(),
            said,
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("admin.sock")
    }

    fn ctl(&self, arguments: &[&str]) -> Ran {
        snapctl(Some(&self.socket()), arguments)
    }

    /// Runs a command that must fail, for a program: its exit status and its reason.
    fn refused(&self, arguments: &[&str]) -> (i32, String) {
        let ran = self.ctl(&[arguments, &["--json"]].concat());
        assert_eq!(ran.stdout, "", "{arguments:?}");
        let object: Value = serde_json::from_str(&ran.stderr).unwrap();
        assert_eq!(object["exit_status"], ran.status, "{object}");
        (ran.status, object["reason"].as_str().unwrap().to_owned())
    }

    /// Runs a command that must succeed.
    fn done(&self, arguments: &[&str]) -> String {
        let ran = self.ctl(arguments);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{arguments:?}");
        ran.stdout
    }

    /// The same, for programs.
    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[arguments, &["--json"]].concat())).unwrap()
    }

    fn address(&self) -> String {
        let listeners = self.json(&["listener", "list"]);
        listeners["listeners"][0]["address"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// The namespaces that a host sees when it connects now: number and bytes.
    fn seen(&self, options: &Options) -> Vec<(u32, u64)> {
        let host = Initiator::connect(&self.address(), NQN, options).unwrap();
        let seen = host.namespaces().iter();
        seen.map(|namespace| (namespace.nsid.0, namespace.bytes()))
            .collect()
    }

    /// Lets it end by itself, as an operator does.
    fn drain(mut self) {
        self.done(&["target", "drain", "--within", "20"]);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn numbered(list: &Value) -> Vec<(&str, u64)> {
    let namespaces = list["namespaces"].as_array().unwrap();
    let number = |namespace: &'_ Value| namespace["nsid"].as_u64().unwrap();
    namespaces
        .iter()
        .map(|namespace| (namespace["origin"].as_str().unwrap(), number(namespace)))
        .collect()
}

#[test]
#[ignore = "needs the daemon's program beside this one: ci/test builds both"]
fn a_host_sees_what_is_attached_resized_hidden_and_detached_and_a_restart_keeps_it() {
    let folder = TempDir::new().unwrap();
    let disk = folder.path().join("disk.raw");
    std::fs::write(&disk, vec![0; 4 << 20]).unwrap();
    let source = format!("file:{}", disk.display());
    let daemon = Daemon::start(folder.path());
    let options = Options::default();
    let host = options.hostnqn.as_str();

    daemon.done(&["subsystem", "create", NQN]);
    let again = daemon.ctl(&["subsystem", "create", NQN]);
    assert_eq!(
        (again.status, again.stderr.lines().count()),
        (5, 1),
        "{}",
        again.stderr
    );
    // Nobody was named: nobody may connect.
    assert!(Initiator::connect(&daemon.address(), NQN, &options).is_err());
    daemon.done(&["host", "allow", NQN, host]);
    assert_eq!(daemon.seen(&options), []);

    daemon.done(&["namespace", "attach", NQN, &source]);
    daemon.done(&[
        "namespace",
        "attach",
        NQN,
        "mem:1MiB",
        "--nsid",
        "7",
        "--lba",
        "512",
    ]);
    let list = daemon.json(&["namespace", "list", NQN]);
    assert_eq!(numbered(&list), [(ORIGIN, 1), (ORIGIN, 7)]);
    assert_eq!(daemon.seen(&options), [(1, 4 << 20), (7, 1 << 20)]);

    // Bytes, counters and controllers are those of this host.
    let mut connected = Initiator::connect(&daemon.address(), NQN, &options).unwrap();
    connected.write(1, 4096, &[0x5A; 4096]).unwrap();
    connected.flush(1).unwrap();
    assert_eq!(std::fs::read(&disk).unwrap()[4096..8192], [0x5A; 4096]);
    let controllers = daemon.json(&["controller", "list", "--subsystem", NQN]);
    assert_eq!(controllers["controllers"][0]["host_nqn"], host);
    let totals = daemon.json(&["stat", "--totals", "--host", host]);
    let written: u64 = totals["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["written_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(written, 4096);
    drop(connected);

    daemon.done(&["namespace", "resize", NQN, "1", "--size", "8MiB"]);
    daemon.done(&["namespace", "visibility", NQN, "7", "--no-host"]);
    assert_eq!(daemon.seen(&options), [(1, 8 << 20)]);
    let smaller = daemon.ctl(&["namespace", "resize", NQN, "1", "--size", "4MiB"]);
    assert_eq!(smaller.status, 5, "{}", smaller.stderr);
    daemon.done(&["namespace", "detach", NQN, "7"]);
    let events = daemon.done(&["events", "--topic", "namespace"]);
    assert!(events.lines().count() >= 5, "{events}");
    assert!(!daemon.done(&["recorder", "dump"]).is_empty());

    daemon.drain();
    let restarted = Daemon::start(folder.path());
    assert_eq!(
        numbered(&restarted.json(&["namespace", "list", NQN])),
        [(ORIGIN, 1)]
    );
    assert_eq!(restarted.seen(&options), [(1, 8 << 20)]);
    restarted.done(&["host", "deny", NQN, host]);
    assert!(Initiator::connect(&restarted.address(), NQN, &options).is_err());
    restarted.done(&["subsystem", "delete", NQN, "--force"]);
    let gone = restarted.ctl(&["namespace", "show", NQN, "1"]);
    assert_eq!(
        (gone.status, gone.stderr.lines().count()),
        (4, 1),
        "{}",
        gone.stderr
    );
    restarted.drain();
}

/// The changes that events tell of, behind a cursor.
fn changes(daemon: &Daemon, since: &str) -> Vec<String> {
    let told = daemon.done(&["events", "--since", since, "--topic", "namespace", "--json"]);
    let change = |line: &str| {
        let message: Value = serde_json::from_str(line).unwrap();
        let change = message["event"]["namespace"]["change"].as_str();
        change.map(|change| change.trim_start_matches("NAMESPACE_CHANGE_").to_owned())
    };
    told.lines().filter_map(change).collect()
}

#[test]
#[ignore = "needs the daemon's program beside this one: ci/test builds both"]
fn what_is_run_again_changes_nothing_and_what_is_heard_again_is_whole() {
    let folder = TempDir::new().unwrap();
    let disk = folder.path().join("disk.raw");
    std::fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let source = format!("file:{}", disk.display());
    let daemon = Daemon::start(folder.path());
    let options = Options::default();
    let host = options.hostnqn.as_str();

    let create = [
        "subsystem",
        "create",
        NQN,
        "--host",
        host,
        "--io-queues",
        "2",
        "--ensure",
    ];
    let attach = [
        "namespace",
        "attach",
        NQN,
        &source,
        "--lba",
        "512",
        "--ensure",
    ];
    for command in [&create[..], &attach] {
        let first = daemon.json(command);
        let again = daemon.json(command);
        for object in ["subsystem", "namespace"] {
            assert_eq!(first[object], again[object]);
        }
    }
    let other =
        |last: &[&'static str]| daemon.refused(&[&create[..3], last, &["--ensure"]].concat());
    let exists = (5, "REASON_SUBSYSTEM_EXISTS".to_owned());
    assert_eq!(other(&["--io-queues", "3"]), exists);
    assert_eq!(other(&["--any-host"]), exists);
    let lba = [
        "namespace",
        "attach",
        NQN,
        &source,
        "--lba",
        "4096",
        "--ensure",
    ];
    assert_eq!(daemon.refused(&lba), (5, "REASON_NSID_TAKEN".to_owned()));
    assert_eq!(daemon.refused(&create[..3]), exists);
    assert_eq!(
        daemon.refused(&["namespace", "show", NQN, "9"]),
        (4, "REASON_NO_NAMESPACE".to_owned())
    );
    assert_eq!(
        daemon.refused(&["listener", "remove", "9"]),
        (4, "REASON_NO_LISTENER".to_owned())
    );
    let address = daemon.address();
    for _ in 0..2 {
        daemon.done(&["listener", "add", &address, "--port-id", "1", "--ensure"]);
        daemon.done(&["referral", "add", "192.0.2.8:8009", "--ensure"]);
    }
    assert_eq!(
        daemon
            .refused(&["listener", "add", &address, "--port-id", "7", "--ensure"])
            .0,
        5
    );

    for nsid in ["5", "6", "7"] {
        daemon.done(&["namespace", "attach", NQN, "mem:1MiB", "--nsid", nsid]);
    }
    let list = daemon.json(&["namespace", "list"]);
    let in_pages = daemon.json(&["namespace", "list", "--page-size", "1"]);
    assert_eq!(numbered(&list).len(), 4);
    assert_eq!(list["namespaces"], in_pages["namespaces"]);

    // From an answer on: neither the attaches before it nor anything twice.
    let as_of = &list["as_of"];
    let since = format!(
        "{}:{}",
        as_of["instance"].as_str().unwrap(),
        as_of["sequence"]
    );
    let uuid = list["namespaces"][1]["uuid"].as_str().unwrap();
    daemon.done(&["namespace", "visibility", NQN, "5", "--no-host"]);
    daemon.done(&[
        "namespace",
        "show-to",
        NQN,
        "5",
        host,
        "--expect-uuid",
        uuid,
    ]);
    assert_eq!(
        daemon
            .seen(&options)
            .iter()
            .map(|(nsid, _)| *nsid)
            .collect::<Vec<_>>(),
        [1, 5, 6, 7]
    );
    let hidden = daemon.json(&[
        "namespace",
        "hide-from",
        NQN,
        "5",
        host,
        "nqn.2026-11.org.example:nobody",
    ]);
    assert_eq!(
        hidden["not_listed"],
        serde_json::json!(["nqn.2026-11.org.example:nobody"])
    );
    let other_uuid = "7d444840-9dc0-41d1-b245-5ffdce74fad2";
    let detach = |uuid| ["namespace", "detach", NQN, "5", "--expect-uuid", uuid];
    assert_eq!(
        daemon.refused(&detach(other_uuid)),
        (5, "REASON_OTHER_UUID".to_owned())
    );
    daemon.done(&detach(uuid));
    let expected = ["VISIBILITY", "VISIBILITY", "VISIBILITY", "DETACHED"];
    assert_eq!(changes(&daemon, &since)[..4], expected);

    // Somebody who follows hears on when the daemon is started again.
    let mut following = Following::start(&daemon.socket(), &["--topic", "namespace"]);
    let first = following.line()["started"]["instance"].clone();
    daemon.drain();
    let restarted = Daemon::start(folder.path());
    let second = loop {
        let line = following.line();
        if line["started"].is_object() {
            break line["started"]["instance"].clone();
        }
    };
    assert_ne!(first, second);
    restarted.done(&["namespace", "attach", NQN, "mem:2MiB", "--nsid", "8"]);
    let mut restarts = 0;
    loop {
        let line = following.line();
        restarts += u32::from(line["gap"]["reason"] == "GAP_REASON_RESTARTED");
        let event = &line["event"]["namespace"];
        if event["change"] == "NAMESPACE_CHANGE_ATTACHED" && event["nsid"] == 8 {
            break;
        }
    }
    assert!(restarts > 0);
    assert_eq!(changes(&restarted, &since).last().unwrap(), "ATTACHED");
    drop(following);
    restarted.drain();
}

#[test]
#[ignore = "needs the daemon's program beside this one: ci/test builds both"]
fn a_host_that_is_refused_is_let_in_by_the_line_that_is_told() {
    let folder = TempDir::new().unwrap();
    let daemon = Daemon::start(folder.path());
    let options = Options::default();
    let host = options.hostnqn.as_str();
    daemon.done(&["subsystem", "create", NQN]);
    daemon.done(&["namespace", "attach", NQN, "mem:1MiB"]);

    let mut following = Following::start(&daemon.socket(), &["--topic", "host"]);
    assert!(following.line()["started"].is_object());
    assert!(Initiator::connect(&daemon.address(), NQN, &options).is_err());
    let refused = loop {
        let line = following.line();
        if line["event"]["host_refused"].is_object() {
            break line["event"]["host_refused"].clone();
        }
    };
    assert_eq!(
        (&refused["host_nqn"], &refused["subsystem_nqn"]),
        (&host.into(), &NQN.into())
    );
    assert_eq!(refused["reason"], "REFUSED_REASON_NOT_ALLOWED");

    // As a person does it: the line is run as it stands there.
    let told = daemon.done(&["events", "--topic", "host"]);
    let mend = told
        .lines()
        .find_map(|line| line.trim().strip_prefix("mend   snapctl "));
    let words: Vec<&str> = mend.unwrap().split(' ').collect();
    daemon.done(&words);
    let mut connected = Initiator::connect(&daemon.address(), NQN, &options).unwrap();
    let user = |daemon: &Daemon| daemon.json(&["namespace", "show", NQN, "1"])["hosts"][0].clone();
    let idle = user(&daemon);
    assert_eq!(
        (&idle["host_nqn"], &idle["controllers"]),
        (&host.into(), &1.into())
    );
    assert!(idle["last_io_at"].is_null(), "{idle}");
    connected.write(1, 0, &[0x5A; 4096]).unwrap();
    assert!(user(&daemon)["last_io_at"].is_string());

    // What its readers say is told in order, and the last word of each is kept.
    let announce = |reader, position| {
        daemon.done(&[
            "announce",
            host,
            "--reader",
            reader,
            "--epoch",
            "0",
            "--position",
            position,
        ]);
    };
    announce("rank0", "7");
    announce("rank1", "8");
    announce("rank0", "9");
    let latest = daemon.json(&["announcement", "list", "--host", host]);
    let last = |at: usize| {
        let word = &latest["announcements"][at];
        (
            word["reader"].clone(),
            word["epoch"].clone(),
            word["position"].clone(),
        )
    };
    assert_eq!(last(0), ("rank0".into(), 0.into(), 9.into()));
    assert_eq!(last(1), ("rank1".into(), 0.into(), 8.into()));
    let told = daemon.done(&["events", "--topic", "announcement"]);
    let positions: Vec<&str> = told
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .collect();
    assert_eq!(positions, ["7", "8", "9"]);
    drop(connected);
    daemon.drain();
}
