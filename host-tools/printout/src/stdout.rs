//! What a program prints for its caller.

use std::io::{self, ErrorKind, Write};

/// Whether there is still somebody to print for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It was taken.
    There,
    /// The reader has seen enough (`... | head`). That is no error, but printing more is in vain.
    Gone,
}

/// Prints `text`.
///
/// # Errors
/// What the system says, where it is not that the reader is gone.
pub fn print(text: &str) -> io::Result<Reader> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error),
    }
}
