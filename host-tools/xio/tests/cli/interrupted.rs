//! Ctrl-C at a terminal: nothing of a progress bar stays, what is said is said whole, the next prompt has a line of its own, and nothing unfinished is left.

mod screen;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use nix::pty::{Winsize, openpty};
use screen::Screen;

use super::support::{Folder, pack_elements, xio};

const SAID: &str = "error: ended by a signal";
const SAID_OF_OUTPUT: &str = "error: ended by a signal; what was not complete is removed";
/// Bytes of files that take long enough to be read for a key to be pressed meanwhile.
const LARGE_BYTES: u64 = 64 << 30;

/// Runs a command at a terminal of so many columns, as its only program, and presses Ctrl-C once `mark` is shown. What it came to, and what is on the screen then.
fn interrupted(
    folder: &Folder,
    columns: u16,
    mark: &str,
    command: &[&str],
) -> (ExitStatus, Screen) {
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(Some(&size), None).unwrap();
    // In a session of its own, whose terminal this is: keys become signals.
    let mut child = Command::new("setsid")
        .arg("--ctty")
        .args(command)
        .current_dir(folder.path(""))
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
        .stdin(pty.slave.try_clone().unwrap())
        .stdout(pty.slave.try_clone().unwrap())
        .stderr(pty.slave)
        .spawn()
        .unwrap();
    let mut terminal = File::from(pty.master);
    let mut shown = Vec::new();
    read_until(&mut terminal, &mut shown, Some(mark));
    terminal.write_all(b"\x03").unwrap();
    read_until(&mut terminal, &mut shown, None);
    let mut screen = Screen::new(columns.into());
    // The key makes the terminal drop what it has not passed on, which may begin or end within a character.
    screen.show(&String::from_utf8_lossy(&shown));
    (child.wait().unwrap(), screen)
}

/// Until `mark` is shown, or the program has ended.
fn read_until(terminal: &mut File, shown: &mut Vec<u8>, mark: Option<&str>) {
    let mut piece = [0; 4096];
    while !mark.is_some_and(|mark| String::from_utf8_lossy(shown).contains(mark)) {
        match terminal.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => shown.extend_from_slice(&piece[..read]),
            // EIO: nobody is at the other end any more.
            Err(error) if error.kind() != ErrorKind::Interrupted => break,
            Err(_) => {}
        }
    }
}

/// Interrupts `xio` with these arguments, at several widths. What was there is there then, and nothing else.
fn expect_clean(folder: &Folder, mark: &str, arguments: &[&str]) {
    let there = folder.names();
    let program = xio().get_program().to_str().unwrap().to_owned();
    let command = [&[program.as_str()], arguments].concat();
    for columns in [200, 80, 40] {
        let (status, screen) = interrupted(folder, columns, mark, &command);
        assert_eq!(status.signal(), Some(2), "{arguments:?}: {screen:?}");
        // Longer lines go on in the next. A file without a name is gone by itself, and not everywhere there are such.
        let text = screen.text().replace('\n', "");
        assert!([SAID, SAID_OF_OUTPUT].contains(&text.as_str()), "{text}");
        assert_eq!(screen.column(), 0, "{arguments:?}");
        assert_eq!(folder.names(), there, "{arguments:?}");
    }
    // A shell says 130, on the next line.
    let line = format!("trap : INT; '{}'; echo \"then $?\"", command.join("' '"));
    let (status, screen) = interrupted(folder, 80, mark, &["sh", "-c", &line]);
    assert!(status.success());
    let text = screen.text();
    let (said, then) = text.rsplit_once('\n').unwrap();
    assert!([SAID, SAID_OF_OUTPUT].contains(&said), "{text}");
    assert_eq!(then, "then 130");
    assert_eq!(folder.names(), there);
}

/// A file of zeros that takes no place.
fn large(folder: &Folder, name: &str) {
    let file = File::create(folder.path(name)).unwrap();
    file.set_len(LARGE_BYTES).unwrap();
}

#[test]
fn a_pack() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("d")).unwrap();
    large(&folder, "d/zeros");
    // The survey, which reads, and a chain that is known beforehand.
    let disk = ["pack", "d", "--store-as", "lz4", "-o", "v.xio"];
    expect_clean(&folder, "reading", &disk);
    let elements = pack_elements("d/zeros", "u8", "lz4");
    expect_clean(&folder, "packing", &elements);
}

#[test]
fn a_map() {
    let folder = Folder::new();
    large(&folder, "zeros");
    let map = ["map", "zeros", "--dtype", "u8", "-o", "v.xio"];
    expect_clean(&folder, "mapping", &map);
}

#[test]
fn what_reads_a_volume() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("d")).unwrap();
    let file = File::create(folder.path("d/zeros")).unwrap();
    file.set_len(1 << 30).unwrap();
    folder.done(["map", "d", "--no-manifest", "-o", "v.xio"]);
    expect_clean(&folder, "checking", &["verify", "v.xio"]);
    expect_clean(&folder, "comparing", &["diff", "d", "v.xio"]);
    expect_clean(&folder, "unpacking", &["unpack", "v.xio", "-o", "disk"]);
    expect_clean(&folder, "copying", &["cp", "v.xio", "copy"]);
}

/// Whoever starts it with a signal ignored wants that: nohup(1), and shells for what they run in the background.
#[test]
fn what_is_ignored_does_not_end_it() {
    let folder = Folder::new();
    let mut child = Command::new("env")
        .arg("--ignore-signal=INT,HUP")
        .arg(xio().get_program())
        .args(["pack", "-", "--name", "n", "--dtype", "u8", "-o", "v.xio"])
        .current_dir(folder.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than a pipe holds: it has begun to read.
    input.write_all(&[7; 1 << 20]).unwrap();
    for signal in ["INT", "HUP"] {
        let pid = child.id().to_string();
        let told = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(told.unwrap().success());
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    folder.done(["verify", "v.xio"]);
}
