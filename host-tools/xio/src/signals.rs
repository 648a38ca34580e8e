//! SIGINT, SIGTERM and SIGHUP: the first lets a command end in order, a second one ends the program at once. SIGXFSZ: nothing.
//!
//! A mount waits for its signal ([`Signals::wait`]). Any other command ends wherever it is, also where it waits for a disk or a target ([`end_in_order`]): a thread of its
//! own clears the terminal, removes what is not finished, and ends the process by the signal, so that a shell's loop ends with it, and says 130 for Ctrl-C. What the
//! command does meanwhile is held up at the next [`Underway::now`]: nothing is drawn or made behind that thread's back.

use std::fs;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{process, thread};

use anyhow::anyhow;
use console::Term;
use indicatif::ProgressBar;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level};

use crate::failure::Failure;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
/// Attempts to remove a folder that something may still be made in.
const ATTEMPTS: usize = 100;
/// Where Linux says which signals a process ignores (proc(5)).
const STATUS: &str = "/proc/self/status";

/// A write beyond the limit on the size of files (`ulimit -f`) is to fail, with a word of where, and not to end the program.
pub fn outlive_file_limit() -> Result<(), Failure> {
    // Whoever handles the signal gets EFBIG from the write; nobody asks whether it was there. The programs that this one starts do not inherit that.
    let unread = Arc::new(AtomicBool::new(false));
    flag::register(SIGXFSZ, unread).map(drop).map_err(failed)
}

fn failed(error: io::Error) -> Failure {
    Failure::system(anyhow!("listening to signals: {error}"))
}

/// The first signal, to wait for.
pub struct Signals {
    tells: UnixStream,
    /// The other end. Where every signal is ignored nobody else has it, and that is no end.
    _told: UnixStream,
    which: Arc<AtomicUsize>,
}

impl Signals {
    /// From now on.
    pub fn listen() -> Result<Signals, Failure> {
        let ignored = ignored(&fs::read_to_string(STATUS).unwrap_or_default());
        let listen = || {
            let (tells, told) = UnixStream::pair()?;
            let (is_told, which) = (Arc::new(AtomicBool::new(false)), Arc::default());
            for signal in SIGNALS.into_iter().filter(|it| !ignored.contains(it)) {
                // In this order: the second signal finds that the first was there.
                flag::register_conditional_default(signal, is_told.clone())?;
                flag::register(signal, is_told.clone())?;
                let number = usize::try_from(signal).unwrap_or_default();
                flag::register_usize(signal, Arc::clone(&which), number)?;
                low_level::pipe::register(signal, told.try_clone()?)?;
            }
            Ok(Signals {
                tells,
                _told: told,
                which,
            })
        };
        listen().map_err(failed)
    }

    /// Until it is there; which one it is.
    pub fn wait(mut self) -> i32 {
        // An error ends the waiting too: whoever waits then ends in order.
        let _ = self.tells.read(&mut [0]);
        i32::try_from(self.which.load(Ordering::Relaxed)).unwrap_or(SIGTERM)
    }
}

/// Of [`SIGNALS`], what whoever started the program had it ignore, as nohup(1) does: that stays so.
fn ignored(status: &str) -> Vec<i32> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let mask = mask.unwrap_or_default();
    let is_ignored = |signal: &i32| mask >> (signal - 1) & 1 == 1;
    SIGNALS.into_iter().filter(is_ignored).collect()
}

/// Has this command end by the first signal from now on, in order.
pub fn end_in_order() -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let wait = move || {
        end(signals.wait());
    };
    let started = thread::Builder::new()
        .name("xio-signals".to_owned())
        .spawn(wait);
    started.map(drop).map_err(failed)
}

fn end(signal: i32) -> ! {
    // Never given back: nobody draws or makes anything any more.
    let mut underway = Underway::now();
    // What is being said is said to its end, and nothing after.
    let stderr = io::stderr().lock();
    for bar in underway.bars.drain(..) {
        bar.finish_and_clear();
    }
    let terminal = Term::stderr();
    if terminal.is_term() {
        // What it shows of the key. A terminal that is gone is told nothing.
        let _ = terminal.clear_line();
    }
    let why = match underway.unfinished.is_empty() {
        true => "ended by a signal",
        false => "ended by a signal; what was not complete is removed",
    };
    underway.unfinished.drain(..).for_each(|path| remove(&path));
    printout::stderr::error(why);
    // It ends the process; where it cannot, the status that a shell would show.
    let _ = low_level::emulate_default_handler(signal);
    drop((stderr, underway));
    process::exit(128 + signal)
}

/// Removes a file or a folder. What is being made in the folder at this moment is the last thing.
fn remove(path: &Path) {
    for _ in 0..ATTEMPTS {
        let removed = match fs::symlink_metadata(path) {
            Ok(about) if about.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(error) => Err(error),
        };
        // Anything else than a name that came meanwhile stays as it is: there is no time to mend it.
        if !removed.is_err_and(|error| error.kind() == io::ErrorKind::DirectoryNotEmpty) {
            return;
        }
        thread::yield_now();
    }
}

/// What a command is about, which a signal must bring to an end.
#[derive(Debug)]
pub struct Underway {
    /// What is drawn on the terminal: the innermost last.
    pub bars: Vec<ProgressBar>,
    /// What is to be removed where it is not finished.
    unfinished: Vec<PathBuf>,
}

static UNDERWAY: Mutex<Underway> = Mutex::new(Underway {
    bars: Vec::new(),
    unfinished: Vec::new(),
});

impl Underway {
    /// All of it. Does not return once the command is told to end.
    pub fn now() -> MutexGuard<'static, Underway> {
        UNDERWAY.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file or a folder that is removed where a signal comes before this is dropped.
#[derive(Debug)]
pub struct Unfinished(PathBuf);

impl Unfinished {
    /// It is there now.
    pub fn new(path: &Path) -> Unfinished {
        Underway::now().unfinished.push(path.to_owned());
        Unfinished(path.to_owned())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let unfinished = &mut Underway::now().unfinished;
        if let Some(place) = unfinished.iter().position(|path| *path == self.0) {
            unfinished.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_stays_so() {
        let status =
            |mask: &str| format!("Name:\txio\nSigBlk:\t7fff\nSigIgn:\t{mask}\nSigCgt:\t0\n");
        assert!(ignored(&status("0000000000000000")).is_empty());
        assert_eq!(ignored(&status("0000000000000001")), [SIGHUP]);
        assert_eq!(ignored(&status("0000000000001006")), [SIGINT]);
        assert_eq!(ignored(&status("ffffffffffffffff")), SIGNALS);
        assert!(ignored("of another system").is_empty());
    }
}
