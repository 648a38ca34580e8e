//! SIGINT, SIGTERM and SIGHUP: the first lets a command end in order, a second one ends the program at once. SIGXFSZ: nothing.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::anyhow;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level};

use crate::failure::Failure;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// A write beyond the limit on the size of files (`ulimit -f`) is to fail, with a word of where, and not to end the program.
pub fn outlive_file_limit() -> Result<(), Failure> {
    // Whoever handles the signal gets EFBIG from the write; nobody asks whether it was there. The programs that this one starts do not inherit that.
    let unread = Arc::new(AtomicBool::new(false));
    flag::register(SIGXFSZ, unread).map(drop).map_err(failed)
}

/// Becomes true with the first signal.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    first_is_told().map_err(failed)
}

fn first_is_told() -> io::Result<Arc<AtomicBool>> {
    let told = Arc::new(AtomicBool::new(false));
    for signal in SIGNALS {
        flag::register_conditional_shutdown(signal, 1, told.clone())?;
        flag::register(signal, told.clone())?;
    }
    Ok(told)
}

fn failed(error: io::Error) -> Failure {
    Failure::system(anyhow!("listening to signals: {error}"))
}

/// The first signal, to wait for.
pub struct Signals(UnixStream);

impl Signals {
    /// From now on.
    pub fn listen() -> Result<Signals, Failure> {
        let listen = || {
            let (told, tells) = UnixStream::pair()?;
            first_is_told()?;
            for signal in SIGNALS {
                low_level::pipe::register(signal, tells.try_clone()?)?;
            }
            Ok(told)
        };
        listen().map(Signals).map_err(failed)
    }

    /// Until it is there.
    pub fn wait(mut self) {
        // An error ends the waiting too: whoever waits then ends in order.
        let _ = self.0.read(&mut [0]);
    }
}
