//! `snapctl top` at a terminal.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::process::{Child, Command};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::fake::Fake;

/// The program at a terminal of 100 by 24, and our end of it.
fn at_terminal(fake: &Fake, arguments: &[&str]) -> (Child, File) {
    let size = Winsize {
        ws_row: 24,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(Some(&size), None).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_snapctl"))
        .args(arguments)
        .env("XIO_ADMIN_SOCKET", fake.socket())
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(pty.slave.try_clone().unwrap())
        .stdout(pty.slave.try_clone().unwrap())
        .stderr(pty.slave)
        .spawn()
        .unwrap();
    (child, File::from(pty.master))
}

/// What is shown until `mark` is, or until the program has ended.
fn shown(terminal: &mut File, mark: &str) -> String {
    let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&shown).contains(mark) {
        match terminal.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => shown.extend_from_slice(&piece[..read]),
            // EIO: nobody is at the other end any more.
            Err(error) if error.kind() != ErrorKind::Interrupted => break,
            Err(_) => {}
        }
    }
    String::from_utf8(shown).unwrap()
}

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

#[test]
fn top_shows_its_screen_and_gives_the_terminal_back_when_q_is_pressed() {
    let fake = Fake::start();
    fake.stay_open();
    let (mut top, mut terminal) = at_terminal(&fake, &["top"]);
    let screen = shown(&mut terminal, "reactor");
    assert!(screen.contains(ENTER), "{screen:?}");
    // Only cells that are not blank are drawn: words may have moves of the cursor between them.
    assert!(screen.contains("by reads"), "{screen:?}");
    // Sorting is seen before the end is asked for.
    terminal.write_all(b"w").unwrap();
    let sorted = shown(&mut terminal, "writes");
    assert!(!sorted.contains(LEAVE), "{sorted:?}");
    terminal.write_all(b"q").unwrap();
    let end = shown(&mut terminal, LEAVE);
    assert!(end.contains(LEAVE), "{end:?}");
    assert_eq!(top.wait().unwrap().code(), Some(0));
}

/// From outside: at the terminal an interrupt is a key.
#[test]
fn top_gives_the_terminal_back_whatever_ends_it() {
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGTERM] {
        let fake = Fake::start();
        fake.stay_open();
        let (mut top, mut terminal) = at_terminal(&fake, &["top"]);
        shown(&mut terminal, "reactor");
        let pid = Pid::from_raw(top.id().cast_signed());
        kill(pid, signal).unwrap();
        let end = shown(&mut terminal, LEAVE);
        assert!(end.contains(LEAVE), "{signal}: {end:?}");
        assert_eq!(top.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[test]
fn top_gives_the_terminal_back_before_it_says_that_the_daemon_is_gone() {
    let fake = Fake::start();
    let (mut top, mut terminal) = at_terminal(&fake, &["top"]);
    let all = shown(&mut terminal, "try again");
    let (screen, said) = all.split_once(LEAVE).unwrap();
    assert!(screen.contains(ENTER), "{all:?}");
    assert!(
        said.contains("snap-target ended the stream of counters"),
        "{all:?}"
    );
    assert_eq!(top.wait().unwrap().code(), Some(7));
}

#[test]
fn doctor_is_coloured_at_a_terminal_only_where_colour_is_wanted() {
    let fake = Fake::start();
    let (mut doctor, mut terminal) = at_terminal(&fake, &["doctor", "--listen", "127.0.0.1:0"]);
    let text = shown(&mut terminal, "failure");
    assert!(text.contains("\x1b[32mok  \x1b[0m"), "{text:?}");
    assert!(doctor.wait().is_ok());
}
