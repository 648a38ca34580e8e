//! `xio bench` and targets that say nothing any more: a job ends when it should, and says what it measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use namespace::{Identity, Namespace, NamespaceSet};
use store::{OpenOptions, SharedStore, StoreSpec};

use super::served::{NQN, Target};
use super::support::{Folder, xio};

/// Leads to `target` until that has sent so many bytes in all; then nothing comes any more, and every connection stays open. Returns where it listens, and what
/// tells of the silence.
fn way_that_falls_silent(target: SocketAddr, bytes: usize) -> (SocketAddr, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (silent, is_silent) = mpsc::channel();
    thread::spawn(move || {
        let left = Arc::new(std::sync::Mutex::new(bytes));
        for host in listener.incoming().map_while(Result::ok) {
            let there = TcpStream::connect(target).unwrap();
            host.set_nodelay(true).unwrap();
            there.set_nodelay(true).unwrap();
            let (mut from_host, mut to_target) =
                (host.try_clone().unwrap(), there.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from_host, &mut to_target));
            let (left, silent) = (left.clone(), silent.clone());
            thread::spawn(move || pass(there, host, &left, &silent));
        }
    });
    (address, is_silent)
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    left: &std::sync::Mutex<usize>,
    silent: &mpsc::Sender<()>,
) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mut left = left.lock().unwrap();
        if *left < count {
            *left = 0;
            let _ = silent.send(());
            drop(left);
            // As long as the test lives, the connections do.
            loop {
                thread::park();
            }
        }
        *left -= count;
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

fn served(folder: &Folder) -> Target {
    let path = folder.write("disk", &vec![0; 1 << 20]);
    let store = SharedStore::open(&StoreSpec::File { path }, OpenOptions::read_write()).unwrap();
    let namespace = Namespace::of_store(1, store, Identity::of_raw("test", b"silent"), 4096);
    Target::serve(NQN, NamespaceSet::new(vec![Arc::new(namespace)]))
}

fn bench(url: &str, options: &[&str]) -> Child {
    let arguments = ["bench", url, "--rw", "randread", "--iodepth", "8"];
    let command = &mut xio();
    command.args(arguments).args(options);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().unwrap()
}

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    let told = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(told.unwrap().success());
}

/// Its exit status, what it printed and what it complained of.
fn ended(child: Child) -> (i32, String, String) {
    let output = child.wait_with_output().unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// Of the commands that are outstanding some may still have an answer on its way.
fn is_unanswered(stderr: &str) -> bool {
    let rest = stderr
        .strip_prefix("error: ")
        .and_then(|it| it.split_once(' '));
    let count = rest.and_then(|(count, _)| count.parse::<u32>().ok());
    count.is_some_and(|count| (1..=8).contains(&count))
        && stderr.ends_with(" had no answer: the target was silent for 2 s after the end; what was asked may be done or not\n")
}

#[test]
fn a_job_ends_at_its_runtime_though_the_target_is_silent() {
    let folder = Folder::new();
    let target = served(&folder);
    let (address, _is_silent) = way_that_falls_silent(target.address, 128 << 10);
    let url = format!("nvme+tcp://{address}/{NQN}");
    let (status, stdout, stderr) = ended(bench(&url, &["--time-based", "--runtime", "1"]));
    assert!(status == 3 && is_unanswered(&stderr), "{status} {stderr}");
    // What was measured is there, and took the time of the job, not that of the silence.
    assert!(
        stdout.contains("read") && stdout.contains("IOPS"),
        "{stdout}"
    );
}

#[test]
fn a_signal_ends_a_job_though_the_target_is_silent() {
    let folder = Folder::new();
    let target = served(&folder);
    let (address, is_silent) = way_that_falls_silent(target.address, 128 << 10);
    let url = format!("nvme+tcp://{address}/{NQN}");
    let child = bench(&url, &["--loops", "1000000"]);
    is_silent.recv().unwrap();
    interrupt(&child);
    let (status, stdout, stderr) = ended(child);
    assert!(status == 130 && is_unanswered(&stderr), "{status} {stderr}");
    assert!(
        stdout.contains("read") && stdout.contains("IOPS"),
        "{stdout}"
    );
}

#[test]
fn a_signal_ends_a_job_that_is_still_connecting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nvme+tcp://{}/{NQN}", listener.local_addr().unwrap());
    let child = bench(&url, &[]);
    let (_connection, _) = listener.accept().unwrap();
    interrupt(&child);
    let (status, stdout, stderr) = ended(child);
    let error = format!("error: ended by a signal while connecting to {url}\n");
    assert_eq!((status, stdout.as_str(), stderr), (130, "", error));
}
